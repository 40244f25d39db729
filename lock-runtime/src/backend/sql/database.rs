//! The operations that a database provides for locks in one of its tables.

use std::time::Duration;

use super::{Arg, Row, Statement};
use crate::backend::{Boxed, Fault, Give, Listen, SilentListener};
use crate::values::{Key, LockError, Moment, StoreError, StoreKind};

/// A database, as the kinds of locks see it.
pub(crate) trait Database: Send + Sync + 'static {
    /// Checks a name against the database's own rules. The default is for a database that has none.
    ///
    /// # Errors
    /// [`LockError::InvalidName`].
    fn check_key(&self, _: &Key) -> Result<(), LockError> {
        Ok(())
    }

    /// Returns what a transaction of the caller runs, by the statement `take` first, to take over a hold. `params` are the
    /// name, the holder and the topic of the waiters.
    fn give(&self, take: &Statement, params: [String; 3]) -> Give;

    /// Listens to a topic. The default is for a database that sends no messages.
    fn listen(&self, _: String) -> Box<dyn Listen> {
        Box::new(SilentListener)
    }

    /// Notes that something is held until `end`, unless it is released before. A database that reports forced releases
    /// by itself need not note it.
    fn holds_until(&self, _end: Moment) {}

    /// Reports the forced releases that the database has not reported yet. It is called when a renewal finds that a
    /// hold is lost, before that loss is reported.
    fn misses_holds(&self) -> Boxed<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Ends the tasks that listen.
    fn close(&self);
}

/// Opens connections to a database, and runs statements on them.
pub(crate) trait Connector: Send + Sync + 'static {
    /// An open connection.
    type Connection: Send + 'static;

    /// The kind of store.
    const STORE: StoreKind;

    /// Opens a connection, and checks its server. It is called on the runtime on which connections live.
    fn open(
        &self,
    ) -> impl Future<Output = Result<OpenedConnection<Self::Connection>, Fault>> + Send;

    /// Returns `true` if an idle connection may be lent to a statement without a sign of life. It is called each time before
    /// one is lent.
    fn is_fresh(&self, connection: &Self::Connection) -> bool;

    /// Asks the server for a sign of life on an idle connection. Returns `true` if there is one.
    fn is_alive(&self, connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;

    /// Runs one statement.
    fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        args: &[Arg],
    ) -> impl Future<Output = Result<Vec<Row>, Failed>> + Send;

    /// Returns the time after which the server has ended a statement by itself. A statement whose client is gone keeps a
    /// session of the server until then.
    fn longest_statement(&self) -> Duration;

    /// Waits until a statement that nobody waits for any more has ended, as far as the server tells. Returns `true` if
    /// the connection may be lent again.
    fn retire(&self, connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;
}

/// A connection that was opened.
#[derive(Debug)]
pub(crate) struct OpenedConnection<T> {
    pub(crate) connection: T,
    /// What the server has drawn for this connection, and for no other one: see [`HolderIds`](crate::values::HolderIds).
    pub(crate) drawn: String,
    /// The time after which another connection has to take its place, because its login expires.
    pub(crate) renew_after: Option<Duration>,
}

/// The reason why a statement was not answered.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    /// True if the connection cannot be used after it.
    pub(crate) ends_the_connection: bool,
}

impl Failed {
    /// The statement did not find the table of the locks, which was there when the connection was opened. The connection
    /// can be used once the table is there again.
    pub(crate) fn table_is_gone(why: &StoreError) -> Failed {
        let why = format!("{why}: the table of the locks was there before");
        Failed {
            fault: Fault::NoTable(StoreError::new(why)),
            ends_the_connection: false,
        }
    }
}
