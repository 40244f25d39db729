//! PostgreSQL: what a database has to be able to do (`backend/sql/`), in its words.
//!
//! | file or folder | concept |
//! |---|---|
//! | `url` | what a URL names: a server, a table, how many connections |
//! | `tls`, `no_tls`, `channel_binding` | TLS, a build without it, and what ties a login to it |
//! | `hosts`, `encryption` | what tokio-postgres is told of the hosts of a URL, and of `sslmode` |
//! | `connection` | opening one, and what is asked of a server before it may keep locks |
//! | `connector` | running statements on connections |
//! | `listen` | the connection by which those who wait are woken |
//! | `statements`, `sql/` | what is sent |
//! | `faults` | what an error says about the outcome |

#[cfg(feature = "tls-rustls")]
mod channel_binding;
mod connection;
mod connector;
mod encryption;
mod faults;
mod hosts;
mod listen;
mod statements;
#[cfg_attr(not(feature = "tls-rustls"), path = "no_tls.rs")]
mod tls;
mod url;

use std::sync::Arc;

use tokio::sync::watch;

use self::connector::PostgresConnector;
use self::listen::{Hearing, Listener, Subscriber, Topics};
pub(crate) use self::url::Target;
use super::Listen;
use super::kit::server_clock::ServerClock;
use super::opening::Opening;
use super::sql::{Database, Server, SqlBackend};
use crate::values::name::invalid;
use crate::values::{Key, LockError, StoreKind};

/// The database of a URL, and who listens to it.
struct Postgres {
    target: Arc<Target>,
    topics: Arc<Topics>,
    hearing: watch::Receiver<Hearing>,
    /// The subscriber ends when it becomes true or is gone.
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
    if options.ensure_schema {
        let creating = connection::run(&target, &statements.schema.text, timeout);
        let created = creating.await;
        created.map_err(|fault| fault.into_error(target.shown()))?;
    }
    let connector = || PostgresConnector {
        target: target.clone(),
        fitness: statements.fitness.clone(),
        clock: clock.clone(),
        timeout,
        handle: opening.runtime.clone(),
    };
    let server = Server {
        requests: connector(),
        renewals: connector(),
        waiting_renewals: connector(),
        pool: target.pool,
        transactions: statements::of_transactions(&target.table),
        statements,
        clock: clock.clone(),
    };
    let database = async || Arc::new(Postgres::listening(&target, &opening).await) as _;
    SqlBackend::connect(server, &opening, database).await
}

impl Postgres {
    /// Begins to listen.
    async fn listening(target: &Arc<Target>, opening: &Opening) -> Postgres {
        let (closed, topics) = (watch::Sender::new(false), Arc::new(Topics::default()));
        let begins = match target.notify {
            true => Hearing::Opening,
            false => Hearing::Off,
        };
        let (tell, mut hearing) = watch::channel(begins);
        let subscriber = Subscriber {
            target: target.clone(),
            topics: topics.clone(),
            events: opening.events.clone(),
            timeout: opening.options.call_timeout,
            hearing: tell,
            closed: closed.subscribe(),
        };
        opening.runtime.spawn(subscriber.run());
        if !opening.options.lazy {
            // A forced release of the first hold would be missed. The subscriber tells when it has tried.
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
        match key.raw().contains('\0') {
            true => Err(invalid(
                key.name(),
                "a name has no NUL character on PostgreSQL, whose text has none",
            )),
            false => Ok(()),
        }
    }

    fn listen(&self, topic: String) -> Box<dyn Listen> {
        Box::new(Listener::new(
            &self.topics,
            &self.hearing,
            topic,
            self.target.notify,
        ))
    }

    fn close(&self) {
        self.closed.send_replace(true);
    }
}
