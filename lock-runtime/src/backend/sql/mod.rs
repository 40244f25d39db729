//! Locks in a table of a database: one row is one lock, and every operation is one statement about one row.
//!
//! These are the parts that stores in databases have in common. The statements of each database are in a folder of its
//! own, such as `backend/postgres/`.
//!
//! | file or folder | concept |
//! |---|---|
//! | `database` | the operations of a database |
//! | `statements` | the statements by name, their arguments and answers |
//! | `pool` | connections that are lent to one statement at a time |
//! | `table`, `schema` | a table's name, and the creation of tables |
//! | `topic` | the topics of notifications to waiters |
//! | `url`, `dial` | the parts that the URLs of databases share; connecting to one of the hosts that they name |
//! | `encryption` | the values of `sslmode` |
//! | `row_limit` | a limit for the statements that may wait for one row |
//! | `relogin` | another connection in place of one whose login expires |
//! | `undo` | the undoing of an acquire whose outcome is unknown |
//! | `kinds/` | the statements that each kind of lock sends |

pub(super) mod database;
mod dial;
pub(super) mod encryption;
pub(super) mod kinds;
pub(super) mod pool;
mod relogin;
mod row_limit;
pub(super) mod schema;
pub(super) mod statements;
pub(crate) mod table;
pub(super) mod topic;
mod undo;
pub(super) mod url;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle;

pub(super) use self::database::{Connector, Database, Failed, OpenedConnection};
pub(super) use self::encryption::Encryption;
use self::kinds::{acquire, acquire_all, exclusive, operators, release, renewals};
pub(super) use self::pool::{Calls, Pool, Purpose, SqlAnswer, Until};
pub(super) use self::schema::MissingTable;
pub(super) use self::statements::{Arg, Row, Statement, Statements, Value, malformed, named};
pub(super) use self::table::Table;
use self::topic::{own_topic, topic};
use self::undo::compensate;
use self::url::SqlTarget;
use super::kit::polling::{self, Polling};
use super::kit::seen_processes::SeenProcesses;
use super::kit::{server_clock::ServerClock, slots::Slots, standing::Standing};
use super::listen::Both;
use super::opening::Opening;
use super::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Boxed, Counters, Directory, Fault, HandedOver,
    HoldRef, Listen, Released, Renewal, Renewed, Reply, Snapshot, StoreTraits, Within,
};
use crate::values::{Checkup, Count, HolderId, Key, Kind, LockError, Moment, StoreKind, Ttl};

/// The number of connections for renewals. Renewals have their own, so that nothing else keeps them waiting.
const RENEWALS: usize = 2;

/// The number of connections for renewals that wait for rows which others write. They have their own, so that they keep
/// no other renewal waiting. These are opened when they are needed.
const WAITING_RENEWALS: usize = 2;

/// Locks in one table of a database.
pub(crate) struct SqlBackend {
    inner: Arc<SqlShared>,
}

/// The state that the backend shares with compensations.
struct SqlShared {
    database: Arc<dyn Database>,
    store: StoreKind,
    /// The server's name for errors and logs, without user and password.
    shown: String,
    /// True if releases notify waiters. Otherwise waiters ask again and again.
    notifies: bool,
    statements: Arc<Statements>,
    call_timeout: Duration,
    handle: Handle,
    clock: Arc<ServerClock>,
    pool: Arc<dyn Calls>,
    renewals: Arc<dyn Calls>,
    waiting_renewals: Arc<dyn Calls>,
    /// The time since which the server answers, or does not.
    standing: Standing,
    others: SeenProcesses,
    /// What the last looks at keys have found.
    last_seen: Arc<Slots>,
    /// The number of compensations under way.
    pending: Arc<Count>,
}

/// A server, and what the connections of one manager share.
pub(super) struct Server<H> {
    pub(super) target: SqlTarget<H>,
    pub(super) statements: Arc<Statements>,
    pub(super) clock: Arc<ServerClock>,
    /// The timeout of a call, and of each step of opening a connection.
    pub(super) timeout: Duration,
    /// The runtime on which connections live. That of a caller may end before they do.
    pub(super) handle: Handle,
    /// True if the user wants the tables to be created, until they were found or created.
    wants_tables: AtomicBool,
    /// True if it was reached before.
    reached: Arc<AtomicBool>,
}

impl<H> Server<H> {
    pub(super) fn new(
        target: SqlTarget<H>,
        statements: Statements,
        opening: &Opening,
    ) -> Arc<Server<H>> {
        Arc::new(Server {
            target,
            statements: Arc::new(statements),
            clock: Arc::default(),
            timeout: opening.options.call_timeout,
            handle: opening.runtime.clone(),
            wants_tables: AtomicBool::new(opening.options.ensure_schema),
            reached: Arc::default(),
        })
    }
}

impl SqlBackend {
    /// Connects, unless the options are `lazy`, and checks the server. `database` then begins to listen. The connectors
    /// are those for requests, for renewals, and for renewals that wait for rows which others write.
    pub(super) async fn connect<H, C: Connector>(
        server: &Server<H>,
        [requests, renewals, waiting_renewals]: [C; 3],
        opening: &Opening,
        database: impl AsyncFnOnce() -> Arc<dyn Database>,
    ) -> Result<Arc<SqlBackend>, LockError> {
        let pool = |connector, size| Pool::new(connector, server, &opening.ids, size);
        let requests = pool(requests, server.target.pool);
        let renewals = pool(renewals, RENEWALS);
        let shown = &server.target.shown;
        if !opening.options.lazy {
            // Renewals get a connection now: the first renewal of a short lease has less time than opening one may
            // take.
            for pool in [&requests, &renewals] {
                let first = pool.open().await;
                first.map_err(|fault| fault.into_error(shown))?;
            }
        }
        let inner = SqlShared {
            database: database().await,
            store: C::STORE,
            shown: shown.clone(),
            notifies: server.target.notify,
            statements: server.statements.clone(),
            call_timeout: server.timeout,
            clock: server.clock.clone(),
            pool: requests,
            renewals,
            waiting_renewals: pool(waiting_renewals, WAITING_RENEWALS),
            handle: server.handle.clone(),
            standing: Standing::default(),
            others: SeenProcesses::default(),
            last_seen: Arc::default(),
            pending: Arc::default(),
        };
        let inner = Arc::new(inner);
        Ok(Arc::new(SqlBackend { inner }))
    }
}

impl Drop for SqlBackend {
    /// Ends the connections. Compensations that are under way get the time of one call before that.
    fn drop(&mut self) {
        if self.inner.pending.count() == 0 {
            self.inner.close();
            return;
        }
        let inner = self.inner.clone();
        self.inner.handle.spawn(async move {
            let _ = tokio::time::timeout(inner.call_timeout, inner.pending.zero()).await;
            inner.close();
        });
    }
}

impl SqlShared {
    /// Runs a statement that changes a row, on a connection that any request may use.
    async fn run(
        &self,
        statement: &Arc<Statement>,
        args: Vec<Arg>,
        deadline: Moment,
    ) -> Result<SqlAnswer, Fault> {
        self.run_for(Purpose::Change, statement, args, deadline)
            .await
    }

    /// Runs a statement, and returns its first row, if there is one.
    async fn ask(
        &self,
        statement: &Arc<Statement>,
        args: Vec<Arg>,
        deadline: Moment,
    ) -> Result<Option<Row>, Fault> {
        let answer = self.run(statement, args, deadline).await?;
        Ok(answer.rows.into_iter().next())
    }

    /// Runs a statement on a connection for this purpose.
    fn run_for<'a>(
        &'a self,
        purpose: Purpose,
        statement: &'a Arc<Statement>,
        args: Vec<Arg>,
        deadline: Moment,
    ) -> Reply<'a, SqlAnswer> {
        let pool = self.pool.clone();
        pool.call(purpose, statement, args, deadline.into())
    }

    fn listen_for_all(&self, key: &Key) -> Box<dyn Listen> {
        self.listen(topic(key), Polling::for_all(&self.last_seen, key))
    }

    /// Listens to a topic. Where releases notify nobody, waiters also ask after pauses.
    fn listen(&self, topic: String, polling: Polling) -> Box<dyn Listen> {
        let listener = self.database.listen(topic);
        if self.notifies {
            listener
        } else {
            Box::new(Both(listener, Box::new(polling)))
        }
    }

    fn close(&self) {
        self.database.close();
        self.pool.close();
        self.renewals.close();
        self.waiting_renewals.close();
    }
}

impl Backend for SqlBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(async move {
            let key = request.hold_ref.key;
            let acquired = acquire::acquire(&self.inner, request).await?;
            if let Acquired::Busy { first: None, .. } = acquired {
                self.inner.others.want(key);
            }
            Ok(acquired)
        })
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(acquire_all::acquire_all(&self.inner, requests))
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        Box::pin(release::release(&self.inner, hold_ref, timeout))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], within: Within) -> Reply<'a, Vec<Renewed>> {
        Box::pin(renewals::renew(&self.inner, batch, within))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(operators::force_release(&self.inner, key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        Box::pin(operators::inspect(&self.inner, key, timeout))
    }

    fn store(&self) -> StoreKind {
        self.inner.store
    }

    fn traits(&self) -> StoreTraits {
        StoreTraits {
            kinds: &Kind::ALL,
            renew_batch: 1_000,
            hands_over: true,
            ..StoreTraits::default()
        }
    }

    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        self.inner.database.check_key(key)
    }

    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        Box::pin(exclusive::hand_over(&self.inner, from, to, spare))
    }

    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        _: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        Box::pin(release::downgrade(&self.inner, hold_ref, timeout))
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(self)
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        self.inner.listen_for_all(key)
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        self.inner.listen(own_topic(key, holder), Polling::new())
    }

    fn transactions(&self) -> Option<&dyn super::Transactions> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn health(&self, timeout: Duration) -> Boxed<'_, Checkup> {
        Box::pin(operators::health(&self.inner, timeout))
    }

    fn wanted_by(&self, key: &Key) -> u64 {
        self.inner.others.wanted_by(key)
    }

    fn round_trip(&self, _: &Key) -> Duration {
        self.inner.pool.round_trip()
    }

    fn notice_time(&self, key: &Key, held_for: Duration) -> Duration {
        let round_trip = self.round_trip(key);
        if self.inner.notifies {
            round_trip
        } else {
            round_trip + polling::pause_after(held_for) / 2
        }
    }

    fn drained(&self) -> Boxed<'_> {
        Box::pin(self.inner.pending.zero())
    }

    fn close(&self) {
        self.inner.close();
    }
}
