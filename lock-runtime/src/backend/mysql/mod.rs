//! The store on MySQL and MariaDB: the operations that `backend/sql/` needs of a database.
//!
//! | file or folder | concept |
//! |---|---|
//! | `url` | the target that a URL names: a server, a table, a number of connections |
//! | `tls`, `no_tls` | the TLS settings of the driver, and a build without TLS |
//! | `connection` | the opening of a connection, and the checks of its server |
//! | `connector` | the implementation of the connector, which runs statements on connections |
//! | `forced` | the task that looks for forced releases |
//! | `statements`, `sql/` | the statements |
//! | `faults` | the outcome of a statement after an error |

mod connection;
mod connector;
mod faults;
mod forced;
mod statements;
#[cfg_attr(not(feature = "tls-rustls"), path = "no_tls.rs")]
mod tls;
mod url;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::connection::{MysqlConnector, Timeouts};
use self::forced::Looker;
use self::statements::{Own, hex};
pub(crate) use self::url::Target;
use super::kit::server_clock::ServerClock;
use super::opening::Opening;
use super::sql::pool::Aborted;
use super::sql::{Database, Pool, Schema, Server, SqlBackend, Statement};
use super::{Boxed, Give};
use crate::sync::Mutex;
use crate::values::{LockError, Moment};

/// The database of a URL. It notifies no waiters.
struct Mysql {
    target: Arc<Target>,
    looker: Arc<Looker>,
    /// The task that looks for forced releases.
    watcher: Aborted<Infallible>,
    /// The time until which something may be held.
    held: watch::Sender<Option<Moment>>,
}

/// Connects, unless the options are `lazy`, and checks the server.
pub(crate) async fn connect(
    target: Target,
    opening: Opening,
) -> Result<Arc<SqlBackend>, LockError> {
    let (options, target) = (&opening.options, Arc::new(target));
    let statements = statements::statements(&target);
    let own = Arc::new(Own::of(&target, &statements));
    let (clock, timeout) = (Arc::new(ServerClock::default()), options.call_timeout);
    let schema = Schema::new(&statements.schema, options.ensure_schema);
    let fitness = statements.fitness.clone();
    let connector = |timeouts| MysqlConnector {
        target: target.clone(),
        fitness: fitness.clone(),
        schema: schema.clone(),
        own: own.clone(),
        clock: clock.clone(),
        strict: options.strict,
        timeout,
        timeouts,
        handle: opening.runtime.clone(),
    };
    let server = Server {
        requests: connector(Timeouts::of_requests(timeout)),
        renewals: connector(Timeouts::of_renewals(timeout)),
        waiting_renewals: connector(Timeouts::of_requests(timeout)),
        pool: target.pool,
        notifies: target.notify,
        statements,
        clock: clock.clone(),
    };
    let watcher = connector(Timeouts::of_requests(timeout));
    let database = async || Arc::new(Mysql::watching(&target, watcher, &opening)) as _;
    SqlBackend::connect(server, &opening, database).await
}

impl Mysql {
    /// Begins to look for forced releases.
    fn watching(target: &Arc<Target>, connector: MysqlConnector, opening: &Opening) -> Mysql {
        let held = watch::Sender::new(None);
        let looker = Arc::new(Looker {
            own: connector.own.clone(),
            timeout: opening.options.call_timeout,
            calls: Pool::new(connector, &opening.runtime, &opening.ids, 1),
            events: opening.events.clone(),
            told: Mutex::default(),
        });
        let watch = looker.clone().watch(held.subscribe());
        Mysql {
            target: target.clone(),
            looker,
            watcher: Aborted::spawn(&opening.runtime, watch),
            held,
        }
    }
}

impl Database for Mysql {
    fn give(&self, take: &Statement, [name, holder, _]: [String; 3]) -> Give {
        let fill = |text: &str| self.target.table.put_into(text);
        Give {
            take: fill(&take.text),
            then: Some(fill(&self.looker.own.free_at_commit)),
            params: vec![hex(&name), holder],
        }
    }

    fn holds_until(&self, end: Moment) {
        self.held.send_if_modified(|until| {
            let longer = until.is_none_or(|until| end - until > Duration::ZERO);
            if longer {
                *until = Some(end);
            }
            longer
        });
    }

    fn misses_holds(&self) -> Boxed<'_> {
        Box::pin(self.looker.look())
    }

    fn close(&self) {
        self.watcher.abort();
        self.looker.calls.close();
    }
}
