//! PostgreSQL: one row is one lock, and every operation is one statement about one row.
//!
//! | file or folder | concept |
//! |---|---|
//! | `url` | what a URL names: a server, a table, how many connections |
//! | `tls`, `no_tls`, `channel_binding` | TLS, a build without it, and what ties a login to it |
//! | `hosts` | which of several servers is the primary |
//! | `encryption` | what `sslmode` asks for |
//! | `connection` | opening one, and what is asked of a server before it may keep locks |
//! | `pool` | connections that are lent to one statement at a time |
//! | `relogin` | another connection in place of one whose login expires |
//! | `listen` | the connection by which those who wait are woken |
//! | `statements`, `sql/` | what is sent |
//! | `faults` | what an error says about the outcome |
//! | `undo` | what undoes an acquire when nobody knows whether it happened |
//! | `kinds/` | what each kind of lock sends |

#[cfg(feature = "tls-rustls")]
mod channel_binding;
mod connection;
mod encryption;
mod faults;
mod hosts;
mod kinds;
mod listen;
mod pool;
mod relogin;
mod statements;
#[cfg_attr(not(feature = "tls-rustls"), path = "no_tls.rs")]
mod tls;
mod undo;
mod url;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use self::kinds::{acquire, acquire_all, exclusive, operators, release, renewals};
use self::listen::{Hearing, Listener, Subscriber, Topics, own_topic, topic};
use self::pool::Pool;
use self::statements::Statements;
pub(crate) use self::url::{Target, is_table};
use super::connect::Opening;
use super::kit::server_clock::ServerClock;
use super::kit::standing::Standing;
use super::{
    AcquireRequest, Acquired, AcquiredAll, Backend, Counters, Directory, HandOff, HandedOver,
    HoldRef, Listen, Released, Renewal, Renewed, Reply, Shared, Snapshot, Transactions,
};
use crate::values::count::Count;
use crate::values::error::LockError;
use crate::values::health::Checkup;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::name::invalid;
use crate::values::store::StoreKind;
use crate::values::ttl::Ttl;

/// Renewals have connections of their own: nothing else may keep them waiting.
const RENEWALS: usize = 2;

/// How many connections compensations may have at a time.
const UNDOING: usize = 1;

/// Locks in one table of a PostgreSQL database.
pub(crate) struct PostgresBackend {
    inner: Arc<Inner>,
}

/// Shared with compensations.
struct Inner {
    target: Arc<Target>,
    statements: Arc<Statements>,
    call_timeout: Duration,
    handle: tokio::runtime::Handle,
    clock: Arc<ServerClock>,
    pool: Arc<Pool>,
    renewals: Arc<Pool>,
    topics: Arc<Topics>,
    hearing: watch::Receiver<Hearing>,
    /// Since when the server answers, or does not.
    standing: Standing,
    /// Compensations under way.
    pending: Arc<Count>,
    /// One for each compensation that may have a connection.
    undoing: Semaphore,
    /// The subscriber ends when it becomes true or is gone.
    closed: watch::Sender<bool>,
}

impl PostgresBackend {
    /// Connects, unless the options are `lazy`, and checks the server.
    pub(crate) async fn connect(
        target: Target,
        opening: Opening,
    ) -> Result<Arc<PostgresBackend>, LockError> {
        let options = &opening.options;
        let (target, handle) = (Arc::new(target), opening.runtime.clone());
        let statements = Arc::new(Statements::of(&target.table));
        let clock = Arc::new(ServerClock::default());
        let timeout = options.call_timeout;
        let pool = |size| Pool::new(&target, &statements, &clock, &handle, timeout, size);
        let (requests, renewals) = (pool(target.pool), pool(RENEWALS));
        if options.ensure_schema {
            create_table(&target, &statements, timeout).await?;
        }
        if !options.lazy {
            let first = requests.open().await;
            first.map_err(|fault| fault.into_error(target.shown()))?;
        }
        let (closed, topics) = (watch::Sender::new(false), Arc::new(Topics::default()));
        let begins = match target.notify {
            true => Hearing::Opening,
            false => Hearing::Off,
        };
        let (tell, mut hearing) = watch::channel(begins);
        let subscriber = Subscriber {
            target: target.clone(),
            topics: topics.clone(),
            events: opening.events,
            timeout,
            hearing: tell,
            closed: closed.subscribe(),
        };
        handle.spawn(subscriber.run());
        if !options.lazy {
            // A forced release of the first hold would be missed. The subscriber tells when it has tried.
            let _ = hearing
                .wait_for(|hearing| *hearing != Hearing::Opening)
                .await;
        }
        let inner = Inner {
            target,
            statements,
            call_timeout: timeout,
            handle,
            clock,
            pool: requests,
            renewals,
            topics,
            hearing,
            standing: Standing::default(),
            pending: Arc::default(),
            undoing: Semaphore::new(UNDOING),
            closed,
        };
        Ok(Arc::new(PostgresBackend {
            inner: Arc::new(inner),
        }))
    }
}

/// Creates the table if there is none.
async fn create_table(
    target: &Arc<Target>,
    statements: &Statements,
    timeout: Duration,
) -> Result<(), LockError> {
    let creating = connection::run(target, &statements.schema.text, timeout);
    creating
        .await
        .map_err(|fault| fault.into_error(target.shown()))
}

impl Drop for PostgresBackend {
    /// Compensations that are under way get one call's time before the connections end.
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

impl Inner {
    fn close(&self) {
        self.closed.send_replace(true);
        self.pool.close();
        self.renewals.close();
    }
}

impl Backend for PostgresBackend {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        Box::pin(acquire::acquire(&self.inner, request))
    }

    fn acquire_all<'a>(&'a self, requests: &'a [AcquireRequest<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(acquire_all::acquire_all(&self.inner, requests))
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, timeout: Duration) -> Reply<'a, Released> {
        Box::pin(release::release(&self.inner, hold_ref, timeout))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        useful: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        Box::pin(renewals::renew(&self.inner, batch, timeout, useful))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        Box::pin(operators::force_release(&self.inner, key, timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Snapshot>> {
        Box::pin(operators::inspect(&self.inner, key, timeout))
    }

    fn store(&self) -> StoreKind {
        StoreKind::Postgres
    }

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        match key.raw().contains('\0') {
            true => Err(invalid(
                key.name(),
                "a name has no NUL character on PostgreSQL, whose text has none",
            )),
            false => Ok(()),
        }
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }

    fn counters(&self) -> Option<&dyn Counters> {
        Some(self)
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        let inner = &self.inner;
        Box::new(Listener::new(&inner.topics, &inner.hearing, topic(key)))
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        let (inner, topic) = (&self.inner, own_topic(key, holder));
        Box::new(Listener::new(&inner.topics, &inner.hearing, topic))
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn health(&self, timeout: Duration) -> Pin<Box<dyn Future<Output = Checkup> + Send + '_>> {
        Box::pin(operators::health(&self.inner, timeout))
    }

    fn renew_batch(&self) -> usize {
        1_000
    }

    fn round_trip(&self, _: &Key) -> Duration {
        self.inner.pool.round_trip()
    }

    fn drained(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.inner.pending.zero())
    }

    fn close(&self) {
        self.inner.close();
    }
}

impl HandOff for PostgresBackend {
    fn hand_over<'a>(
        &'a self,
        from: HolderId,
        to: AcquireRequest<'a>,
        spare: u64,
    ) -> Reply<'a, HandedOver> {
        Box::pin(async move {
            match to.hold_ref.key.kind() {
                Kind::Mutex | Kind::Fenced | Kind::Read | Kind::Write => {
                    exclusive::hand_over(&self.inner, from, to, spare).await
                }
                // Nobody owns the turn at a semaphore, and the successor of a fair lock is the first in its queue.
                Kind::Semaphore | Kind::Fair => Ok(HandedOver::NotHeld),
            }
        })
    }
}

impl Shared for PostgresBackend {
    fn downgrade<'a>(
        &'a self,
        hold_ref: HoldRef<'a>,
        _: Ttl,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        Box::pin(release::downgrade(&self.inner, hold_ref, timeout))
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend")
            .field("target", &self.inner.target)
            .field("pool", &self.inner.pool)
            .finish_non_exhaustive()
    }
}
