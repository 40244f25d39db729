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

use mysql_async::Opts;
use tokio::sync::watch;

use self::connection::{MysqlConnector, Timeouts};
use self::forced::Looker;
use self::statements::{filled, hex};
pub(crate) use self::url::MysqlTarget;
use super::opening::Opening;
use super::sql::pool::Aborted;
use super::sql::{self, Database, Pool, SqlBackend, Statement};
use super::{Boxed, Give};
use crate::sync::Mutex;
use crate::values::{LockError, Moment, clock};

/// A server, and what the connections of one manager share.
type Server = sql::Server<Opts>;

/// The database of a URL. It notifies no waiters.
struct Mysql {
    looker: Arc<Looker>,
    /// The task that looks for forced releases.
    watcher: Aborted<Infallible>,
    /// The time until which something may be held. At first it is the time of the beginning.
    held: watch::Sender<Moment>,
}

/// Connects, unless the options are `lazy`, and checks the server.
pub(crate) async fn connect(
    target: MysqlTarget,
    opening: Opening,
) -> Result<Arc<SqlBackend>, LockError> {
    let statements = statements::statements(&target);
    let server = Server::new(target, statements, &opening);
    let connector = |timeouts| MysqlConnector {
        server: server.clone(),
        strict: opening.options.strict,
        timeouts,
    };
    let (requests, renewals) = (
        Timeouts::of_requests(server.timeout),
        Timeouts::of_renewals(server.timeout),
    );
    let connectors = [requests, renewals, requests].map(connector);
    let watcher = connector(requests);
    let database = async || Arc::new(Mysql::watching(watcher, &opening)) as _;
    SqlBackend::connect(&server, connectors, &opening, database).await
}

impl Mysql {
    /// Begins to look for forced releases.
    fn watching(connector: MysqlConnector, opening: &Opening) -> Mysql {
        let (server, held) = (connector.server.clone(), watch::Sender::new(clock::now()));
        let looker = Arc::new(Looker {
            forced: Statement::new(
                "forced",
                filled(include_str!("sql/forced.sql"), &server.target),
            ),
            calls: Pool::new(connector, &server, &opening.ids, 1),
            server,
            events: opening.events.clone(),
            told: Mutex::default(),
        });
        let watch = looker.clone().watch(held.subscribe());
        Mysql {
            looker,
            watcher: Aborted::spawn(&opening.runtime, watch),
            held,
        }
    }
}

impl Database for Mysql {
    fn give(&self, take: &Statement, [name, holder, _]: [String; 3]) -> Give {
        let target = &self.looker.server.target;
        let then = filled(include_str!("sql/free_at_commit.sql"), target);
        Give {
            take: target.table.put_into(&take.text),
            then: Some(target.table.put_into(&then)),
            params: vec![hex(&name), holder],
        }
    }

    fn holds_until(&self, end: Moment) {
        self.held.send_modify(|until| *until = until.later(end));
    }

    fn misses_holds(&self) -> Boxed<'_> {
        Box::pin(self.looker.look())
    }

    fn close(&self) {
        self.watcher.abort();
        self.looker.calls.close();
    }
}
