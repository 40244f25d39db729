//! The PostgreSQL store: the operations that `backend/sql/` needs of a database.
//!
//! | file or folder | concept |
//! |---|---|
//! | `url` | the target that a URL names: a server, a table, a number of connections |
//! | `tls`, `no_tls`, `channel_binding` | TLS, a build without it, and the binding of a login to a TLS connection |
//! | `hosts` | the settings of tokio-postgres for the hosts of a URL, and for `sslmode` |
//! | `connection` | the opening of a connection, and the checks of its server |
//! | `connector` | the connector, which opens connections and runs statements on them |
//! | `listen` | the connection that wakes waiters |
//! | `notices` | whether the server takes notices to waiters |
//! | `statements`, `sql/` | the statements |
//! | `faults` | the outcome of a statement after an error |

#[cfg(feature = "tls-rustls")]
mod channel_binding;
mod connection;
mod connector;
mod faults;
mod hosts;
mod listen;
mod notices;
mod statements;
#[cfg_attr(not(feature = "tls-rustls"), path = "no_tls.rs")]
mod tls;
mod url;

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_postgres::Config;

use self::connector::PostgresConnector;
use self::listen::PostgresSubscriber;
use self::notices::Notices;
pub(crate) use self::url::PostgresTarget;
use super::kit::topic::WakeUps;
use super::opening::Opening;
use super::sql::pool::Aborted;
use super::sql::{self, Database, SqlBackend, Statement};
use super::{Give, Listen};
use crate::values::name::invalid;
use crate::values::{Key, LockError};

/// A server, and what the connections of one manager share.
type Server = sql::Server<Config>;

/// The database of a URL, and its listeners.
struct Postgres {
    server: Arc<Server>,
    notices: Arc<Notices>,
    topics: Arc<WakeUps>,
    subscriber: Aborted<Infallible>,
}

/// Connects, unless the options are `lazy`, and checks the server.
pub(crate) async fn connect(
    target: PostgresTarget,
    opening: Opening,
) -> Result<Arc<SqlBackend>, LockError> {
    let statements = statements::statements(&target.table);
    let server = Server::new(target, statements, &opening);
    let notices = Arc::<Notices>::default();
    let connectors = [(); 3].map(|()| PostgresConnector {
        server: server.clone(),
        notices: notices.clone(),
    });
    let database = async || Arc::new(Postgres::listening(&server, &notices, &opening).await) as _;
    SqlBackend::connect(&server, connectors, &opening, database).await
}

impl Postgres {
    /// Starts the subscriber. Unless the options are `lazy`, waits until it has tried to connect.
    async fn listening(
        server: &Arc<Server>,
        notices: &Arc<Notices>,
        opening: &Opening,
    ) -> Postgres {
        let topics = Arc::<WakeUps>::default();
        let (first, tried) = oneshot::channel();
        let subscriber = PostgresSubscriber {
            server: server.clone(),
            topics: topics.clone(),
            events: opening.events.clone(),
        };
        let subscriber = Aborted::spawn(&opening.runtime, subscriber.run(first));
        if !opening.options.lazy {
            // Without a subscription, a forced release of the first hold would be missed. The sender is dropped, which is
            // an error here, after the attempt.
            let _ = tried.await;
        }
        Postgres {
            server: server.clone(),
            notices: notices.clone(),
            topics,
            subscriber,
        }
    }
}

impl Database for Postgres {
    fn check_key(&self, key: &Key) -> Result<(), LockError> {
        if key.raw().contains('\0') {
            Err(invalid(
                key.name(),
                "a name has no NUL character on PostgreSQL, whose text has none",
            ))
        } else {
            Ok(())
        }
    }

    fn give(&self, take: &Statement, params: [String; 3]) -> Give {
        let take = self.server.target.table.put_into(&take.text);
        Give {
            take: self.notices.in_a_transaction(&take),
            then: None,
            params: params.into(),
        }
    }

    fn listen(&self, topic: String) -> Box<dyn Listen> {
        Box::new(self.topics.listen(&topic))
    }

    fn close(&self) {
        self.subscriber.abort();
    }
}
