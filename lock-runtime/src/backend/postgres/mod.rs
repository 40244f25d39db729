//! The PostgreSQL store: the operations that `backend/sql/` needs of a database.
//!
//! | file or folder | concept |
//! |---|---|
//! | `url` | the target that a URL names: a server, a table, a number of connections |
//! | `tls`, `no_tls`, `channel_binding` | TLS, a build without it, and the binding of a login to a TLS connection |
//! | `hosts`, `encryption` | the settings of tokio-postgres for the hosts of a URL, and for `sslmode` |
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
mod encryption;
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

use self::connector::PostgresConnector;
use self::listen::PostgresSubscriber;
use self::notices::Notices;
pub(crate) use self::url::Target;
use super::kit::server_clock::ServerClock;
use super::kit::topic::WakeUps;
use super::opening::Opening;
use super::sql::pool::Aborted;
use super::sql::{Database, Schema, Server, SqlBackend, Statement};
use super::{Give, Listen};
use crate::values::name::invalid;
use crate::values::{Key, LockError};

/// The database of a URL, and its listeners.
struct Postgres {
    target: Arc<Target>,
    notices: Arc<Notices>,
    topics: Arc<WakeUps>,
    subscriber: Aborted<Infallible>,
}

/// Connects, unless the options are `lazy`, and checks the server.
pub(crate) async fn connect(
    target: Target,
    opening: Opening,
) -> Result<Arc<SqlBackend>, LockError> {
    let (options, target) = (&opening.options, Arc::new(target));
    let statements = statements::statements(&target.table);
    let (clock, timeout) = (Arc::new(ServerClock::default()), options.call_timeout);
    let notices = Arc::<Notices>::default();
    let schema = Schema::new(&statements.schema, options.ensure_schema);
    let connector = || PostgresConnector {
        target: target.clone(),
        fitness: statements.fitness.clone(),
        schema: schema.clone(),
        notices: notices.clone(),
        clock: clock.clone(),
        timeout,
        handle: opening.runtime.clone(),
    };
    let server = Server {
        requests: connector(),
        renewals: connector(),
        waiting_renewals: connector(),
        pool: target.pool,
        notifies: target.notify,
        statements,
        clock: clock.clone(),
    };
    let database = async || Arc::new(Postgres::listening(&target, &notices, &opening).await) as _;
    SqlBackend::connect(server, &opening, database).await
}

impl Postgres {
    /// Starts the subscriber. Unless the options are `lazy`, waits until it has tried to connect.
    async fn listening(
        target: &Arc<Target>,
        notices: &Arc<Notices>,
        opening: &Opening,
    ) -> Postgres {
        let topics = Arc::<WakeUps>::default();
        let (first, tried) = oneshot::channel();
        let subscriber = PostgresSubscriber {
            target: target.clone(),
            topics: topics.clone(),
            events: opening.events.clone(),
            timeout: opening.options.call_timeout,
        };
        let subscriber = Aborted::spawn(&opening.runtime, subscriber.run(first));
        if !opening.options.lazy {
            // Without a subscription, a forced release of the first hold would be missed. The sender is dropped, which is
            // an error here, after the attempt.
            let _ = tried.await;
        }
        Postgres {
            target: target.clone(),
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
        let take = self.target.table.put_into(&take.text);
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
