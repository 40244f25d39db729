//! The operations that a database provides for locks in one of its tables.

use std::time::Duration;

use super::{Arg, Row, Statement};
use crate::backend::{Boxed, Fault, Listen};
use crate::values::{Key, LockError, Moment, StoreKind};

/// A database, as the kinds of locks see it.
pub(crate) trait Database: Send + Sync + 'static {
    /// The kind of store.
    fn store(&self) -> StoreKind;

    /// Returns its name for errors and logs, without user and password.
    fn shown(&self) -> &str;

    /// Whether releases are notified. If not, those who wait ask again and again.
    fn notifies(&self) -> bool;

    /// Its own rules for names.
    ///
    /// # Errors
    /// [`LockError::InvalidName`].
    fn check_key(&self, key: &Key) -> Result<(), LockError>;

    /// Listens to a topic, if releases are notified.
    fn listen(&self, topic: String) -> Box<dyn Listen>;

    /// Something is held until then, if it is not given back. A database that tells of forced releases need not know.
    fn holds_until(&self, end: Moment) {
        let _ = end;
    }

    /// A renewal found that something is not held any more. Before its holder learns that, a database that has not told
    /// of forced releases yet does so.
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

    /// Returns the server's name for errors and logs, without user and password.
    fn shown(&self) -> &str;

    /// Opens a connection, and checks its server.
    fn open(&self) -> impl Future<Output = Result<Opened<Self::Connection>, Fault>> + Send;

    /// Whether a connection that nobody had may be lent to a statement. It is asked before each.
    fn is_fresh(&self, connection: &mut Self::Connection) -> impl Future<Output = bool> + Send;

    /// Runs one statement.
    fn run(
        &self,
        connection: &mut Self::Connection,
        statement: &Statement,
        args: &[Arg],
    ) -> impl Future<Output = Result<Vec<Row>, Failed>> + Send;

    /// Resolves when a statement that nobody waits for any more has ended, as far as the server tells; with the
    /// connection, if it may be lent again.
    fn retire(
        &self,
        connection: Self::Connection,
    ) -> impl Future<Output = Option<Self::Connection>> + Send;
}

/// A connection that was opened.
#[derive(Debug)]
pub(crate) struct Opened<T> {
    pub(crate) connection: T,
    /// After which time another one has to take its place, for its login expires.
    pub(crate) renew_after: Option<Duration>,
}

/// The reason why a statement was not answered.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    /// Whether the connection is of no use after it.
    pub(crate) ends_the_connection: bool,
}
