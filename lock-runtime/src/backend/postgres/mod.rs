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

use std::sync::Arc;

use tokio::sync::watch;

use self::connector::PostgresConnector;
use self::listen::{Hearing, PostgresListener, PostgresSubscriber};
use self::notices::Notices;
pub(crate) use self::url::Target;
use super::Listen;
use super::kit::server_clock::ServerClock;
use super::kit::topic::WakeUps;
use super::opening::Opening;
use super::sql::{Database, Schema, Server, SqlBackend};
use crate::values::name::invalid;
use crate::values::{Key, LockError, StoreKind};

/// The database of a URL, and its listeners.
struct Postgres {
    target: Arc<Target>,
    topics: Arc<WakeUps>,
    hearing: watch::Receiver<Hearing>,
    /// The subscriber ends when this becomes true or is dropped.
    closed: watch::Sender<bool>,
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
        transactions: statements::of_transactions(&target.table, &notices),
        statements,
        clock: clock.clone(),
    };
    let database = async || Arc::new(Postgres::listening(&target, &opening).await) as _;
    SqlBackend::connect(server, &opening, database).await
}

impl Postgres {
    /// Starts the subscriber. Unless the options are `lazy`, waits until it has tried to connect.
    async fn listening(target: &Arc<Target>, opening: &Opening) -> Postgres {
        let (closed, topics) = (watch::Sender::new(false), Arc::new(WakeUps::default()));
        let begins = if target.notify {
            Hearing::Opening
        } else {
            Hearing::Off
        };
        let (tell, mut hearing) = watch::channel(begins);
        let subscriber = PostgresSubscriber {
            target: target.clone(),
            topics: topics.clone(),
            events: opening.events.clone(),
            timeout: opening.options.call_timeout,
            hearing: tell,
            closed: closed.subscribe(),
        };
        opening.runtime.spawn(subscriber.run());
        if !opening.options.lazy {
            // Without a subscription, a forced release of the first hold would be missed.
            let _ = hearing
                .wait_for(|hearing| *hearing != Hearing::Opening)
                .await;
        }
        Postgres {
            target: target.clone(),
            topics,
            hearing,
            closed,
        }
    }
}

impl Database for Postgres {
    fn store(&self) -> StoreKind {
        StoreKind::Postgres
    }

    fn shown(&self) -> &str {
        self.target.shown()
    }

    fn notifies(&self) -> bool {
        self.target.notify
    }

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

    fn listen(&self, topic: String) -> Box<dyn Listen> {
        Box::new(PostgresListener {
            listener: self.topics.listen(&topic),
            hearing: self.hearing.clone(),
        })
    }

    fn close(&self) {
        self.closed.send_replace(true);
    }
}
