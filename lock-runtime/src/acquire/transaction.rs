//! A lock that a transaction of the caller's has: it is acquired by a short lease, which the transaction takes over.
//!
//! The transaction does not ask for the lock itself. A statement that finds the row changed since it began locks the row
//! before it looks at it again: a transaction that had lost such a race would keep the winner from releasing.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::attempt::Attempt;
use crate::acquire::checked_request::Deadline;
use crate::acquire::contend::{Asked, Contender, contend};
use crate::backend::{
    Acquired, Fault, GIVEN, Give, HoldRef, Listen, Renewal, Renewed, TOO_EARLY, Transactions,
};
use crate::hold::Core;
use crate::release::undo_later;
use crate::values::{Backoff, FencingToken, HolderId, Key, LockError, Moment, Ttl, clock};

/// The lease by which a lock is held until the transaction has it: long enough for one statement of a slow database. A
/// transaction that is rolled back keeps the lock from others for so long at the most.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// The pauses before the looks whether a transaction was rolled back. Most have ended before the first one.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// Chance makes it up to a half longer.
const LAST_LOOK: Duration = Duration::from_millis(300);

/// The pauses between the looks of a transaction at a row that statements of others have locked.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(64);

/// The database that a transaction is of: see [`SqlTransaction`].
///
/// ```
/// use lock_runtime::SqlDialect;
///
/// fn placeholder(dialect: SqlDialect) -> &'static str {
///     match dialect {
///         SqlDialect::Mysql => "?",
///         _ => "$1",
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlDialect {
    /// PostgreSQL: parameters are `$1`, `$2`, and so on.
    Postgres,
    /// MySQL or MariaDB: a parameter is a `?`.
    Mysql,
}

/// A transaction of the caller's, whatever its driver is: a few lines that run a statement in it.
///
/// The library knows no driver, so it pins no version of one. These are the lines for `tokio-postgres`;
/// [those for sqlx](crate::_documentation::postgres#inside-your-own-transaction) are as many, and so are
/// [those for `mysql_async`](crate::_documentation::mysql#inside-your-own-transaction).
///
#[cfg_attr(feature = "postgres", doc = "```")]
#[cfg_attr(not(feature = "postgres"), doc = "```ignore")]
/// use lock_runtime::SqlTransaction;
/// use tokio_postgres::types::{ToSql, Type};
/// use tokio_postgres::{Error, Transaction};
///
/// struct Tx<'a>(&'a Transaction<'a>);
///
/// impl SqlTransaction for Tx<'_> {
///     type Error = Error;
///
///     async fn ask(&mut self, sql: &str, params: &[&str]) -> Result<String, Error> {
///         let typed = |param| (param as &(dyn ToSql + Sync), Type::TEXT);
///         let params: Vec<_> = params.iter().map(typed).collect();
///         self.0.query_typed(sql, &params).await?[0].try_get(0)
///     }
/// }
/// ```
///
/// [`LockRequest::in_transaction`](crate::LockRequest::in_transaction) takes a lock with it,
/// [`raise_fence`](crate::raise_fence) shows a token to the database.
pub trait SqlTransaction: Send {
    /// The driver's error type.
    type Error: Error + Send + Sync + 'static;

    /// The database that the transaction is of. Default: PostgreSQL.
    const DIALECT: SqlDialect = SqlDialect::Postgres;

    /// Runs a statement in the transaction. All of its parameters are texts. Its answer is one row with one column, which
    /// is a text, too. On MySQL and MariaDB, there may be no row: answer with an empty text then.
    ///
    /// # Errors
    /// The driver's error. It is passed on as [`TransactionError::Driver`].
    fn ask(
        &mut self,
        sql: &str,
        params: &[&str],
    ) -> impl Future<Output = Result<String, Self::Error>> + Send;
}

/// The reason why a transaction has no lock, or may not go on. Roll the transaction back.
///
/// ```
/// use lock_runtime::TransactionError;
///
/// /// Whether the whole transaction is to be done again from its beginning. The driver knows more of its own errors: of
/// /// PostgreSQL's, 40001 and 40P01 (a deadlock) are worth another try.
/// fn again<E: std::error::Error>(error: &TransactionError<E>) -> bool {
///     error.is_retryable()
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError<E> {
    /// The lock was not had: [`Busy`](LockError::Busy) if somebody else has it, also for two transactions that wait for
    /// each other.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A later holder has shown its token: [`raise_fence`](crate::raise_fence).
    #[error(
        "the fence of `{lock}` refuses token {token}: a later holder has raised it; roll back, and acquire the lock again"
    )]
    #[non_exhaustive]
    Fenced {
        /// The name of the lock.
        lock: String,
        /// The token that came too late.
        token: FencingToken,
    },
    /// The driver, or the database, has failed.
    #[error("the transaction failed: {0}")]
    Driver(#[source] E),
}

impl<E> TransactionError<E> {
    /// True if the same transaction, done again from its beginning, can succeed without anybody changing code or
    /// configuration. Errors of the driver are for the driver to judge: false. A refused token stays refused: false.
    pub fn is_retryable(&self) -> bool {
        match self {
            TransactionError::Lock(error) => error.is_retryable(),
            TransactionError::Fenced { .. } | TransactionError::Driver(_) => false,
        }
    }
}

/// Acquires the lock within the attempt's wait, and gives it to the transaction.
pub(crate) async fn acquire<T: SqlTransaction>(
    attempt: &Attempt,
    transactions: &dyn Transactions,
    transaction: &mut T,
) -> Result<Option<FencingToken>, TransactionError<T::Error>> {
    attempt.core.life.check_open(attempt.key())?;
    let wait = attempt.begin();
    let mut seat = TransactionSeat {
        attempt,
        transactions,
        transaction,
        looks: 0,
        failed: None,
    };
    let first = seat.ask(attempt.deadline.since, attempt.deadline).await;
    let outcome = contend(&mut seat, first, None).await;
    if let Some(failed) = seat.failed {
        wait.failed_in_driver(clock::now());
        return Err(TransactionError::Driver(failed));
    }
    wait.came_to(outcome.as_ref().map(|_| true), clock::now());
    outcome.map_err(TransactionError::Lock)
}

/// A lease on its way to a transaction. Dropped, it is given back in the background, unless the transaction commits.
struct OnItsWay {
    core: Arc<Core>,
    key: Arc<Key>,
    holder: HolderId,
    /// Until then, the transaction may take the lease over.
    ends: Moment,
    /// The store may have the lease until then: later than it `ends` after a look whether it is there.
    stays: Moment,
    arrived: bool,
}

impl OnItsWay {
    fn hold_ref(&self) -> HoldRef<'_> {
        HoldRef::one(&self.key, self.holder)
    }

    /// Returns `true` if the store has the lease, and nobody has locked its row.
    async fn is_there(&mut self, ttl: Ttl) -> bool {
        // The renewal is asked for until then at the latest.
        self.stays = self.ends + ttl.duration();
        let timeout = self.core.options.call_timeout.min(self.ends.remaining());
        // A renewal that extends nothing would not see that a row is locked.
        let renewal = Renewal {
            key: self.key.clone(),
            holder: self.holder,
            permits: 1,
            ttl: Some(ttl),
            waits: false,
        };
        matches!(self.core.renew(renewal, timeout).await, Ok(Renewed::Held))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        if !self.arrived {
            undo_later(&self.core, &self.key, self.hold_ref(), self.stays);
            return;
        }
        let (core, key, holder) = (self.core.clone(), self.key.clone(), self.holder);
        let stays = self.stays;
        // A shutdown waits for the looks: some of those who wait are told by them alone.
        self.core.life.spawn(async move {
            take_back(&core, HoldRef::one(&key, holder), stays).await;
        });
    }
}

/// Looks now and then whether the transaction was rolled back before the lease has ended: others need not wait for that.
async fn take_back(core: &Core, hold_ref: HoldRef<'_>, stays: Moment) {
    let Some(transactions) = core.backend.transactions() else {
        return;
    };
    let mut pauses = Backoff::new(FIRST_LOOK, LAST_LOOK);
    loop {
        clock::sleep(pauses.pause()).await;
        // The last look comes after the lease: those who wait may be told by it.
        let is_last = stays.has_passed();
        let looked = transactions.take_back(hold_ref, core.options.call_timeout);
        if matches!(looked.await, Ok(false)) || is_last {
            return;
        }
    }
}

/// A transaction that asks for a lock.
struct TransactionSeat<'a, T: SqlTransaction> {
    attempt: &'a Attempt,
    transactions: &'a dyn Transactions,
    transaction: &'a mut T,
    /// The number of times that the transaction was asked to take a lease over. A look that took nothing may have locked the row
    /// of somebody else until the transaction ends: after its lease, nothing is asked any more.
    looks: u64,
    /// The driver's error.
    failed: Option<T::Error>,
}

impl<T: SqlTransaction> TransactionSeat<'_, T> {
    /// Lets the transaction take the lease over. Returns its last answer, and whether the store had the lease before that
    /// look and nobody had locked the row.
    async fn give(&mut self, mut lease: OnItsWay) -> Result<(String, bool), T::Error> {
        let Give { take, then, params } = self.transactions.give(lease.hold_ref());
        let params: Vec<&str> = params.iter().map(String::as_str).collect();
        let ttl = self.attempt.request.hold_options.ttl;
        let mut pauses = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        let mut answer = String::new();
        let mut is_there = false;
        loop {
            // A statement that comes after the lease may lock a row that is somebody else's by then.
            if lease.ends.remaining() < ON_ITS_WAY / 4 {
                is_there = false;
                break;
            }
            self.looks += 1;
            answer = self.transaction.ask(&take, &params).await?;
            if is_there || answer == GIVEN {
                break;
            }
            // A transaction that sees what was there before will not see more. MySQL's has found the lease, and locked it;
            // PostgreSQL's may have found none.
            if answer == TOO_EARLY {
                is_there = T::DIALECT == SqlDialect::Mysql || lease.is_there(ttl).await;
                break;
            }
            // A row that others write is free again when their commits have ended.
            if answer.is_empty() && lease.ends.remaining() >= ON_ITS_WAY / 2 {
                clock::sleep(pauses.pause()).await;
                continue;
            }
            // The row may have become free just after this look, so another look decides.
            is_there = lease.is_there(ttl).await;
            if !is_there {
                break;
            }
        }
        if let (GIVEN, Some(then)) = (&*answer, then) {
            self.transaction.ask(&then, &params).await?;
        }
        lease.arrived = answer == GIVEN;
        Ok((answer, is_there))
    }
}

impl<T: SqlTransaction> Contender for TransactionSeat<'_, T> {
    type Granted = Option<FencingToken>;

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, now: Moment, deadline: Deadline) -> Asked<Option<FencingToken>> {
        let Attempt { core, request, .. } = self.attempt;
        let mut call = self.attempt.call(core.ids.fresh(), now, deadline);
        // The lease only bridges the time until the transaction has the lock, and is no bound for the call.
        call.timeout = deadline.cut(core.options.call_timeout, now);
        let (_asking, answer) = self.attempt.ask(&mut call, false).await;
        let granted = match answer {
            Ok(Acquired::Granted(granted, _)) => granted,
            Ok(Acquired::Busy { left, .. }) => return Asked::busy(left),
            Err(fault) => return Asked::Failed(fault),
        };
        let ends = granted.sent_at + request.hold_options.ttl.duration();
        let lease = OnItsWay {
            core: core.clone(),
            key: request.key.clone(),
            holder: call.hold_ref.holder,
            ends,
            stays: ends,
            arrived: false,
        };
        let (answer, is_there) = match self.give(lease).await {
            Ok(answer) => answer,
            Err(error) => {
                let fault = Fault::unknown(error.to_string());
                self.failed = Some(error);
                return Asked::Failed(fault);
            }
        };
        let fault = match &*answer {
            GIVEN => return Asked::Granted(granted.token),
            // The first look found it, so the transaction has looked at something before, and will do so each time.
            TOO_EARLY if self.looks == 1 && is_there => Fault::Impossible(
                "the transaction sees what was there before it had the lock: roll it back. At this isolation level, a \
                 transaction takes one lock, before it reads anything, and in the database of this lock manager"
                    .to_owned(),
            ),
            TOO_EARLY if is_there => Fault::not_done(
                "the transaction has waited for the lock's row, and sees what was there before: roll it back",
            ),
            _ if is_there => Fault::Impossible(
                "the transaction does not see the lock: it has to be in the database and the schema of this lock manager, \
                 and nobody else may have locked the row"
                    .to_owned(),
            ),
            _ if ends.remaining() < ON_ITS_WAY / 4 => Fault::not_done(
                "the transaction was too slow to take the lock over: roll it back",
            ),
            _ => Fault::not_done(
                "the lock was released by force on its way to the transaction, or others have locked its row for long: roll \
                 it back",
            ),
        };
        Asked::Failed(fault)
    }

    fn listen(&mut self) -> Box<dyn Listen> {
        self.attempt.core.backend.listen(self.attempt.key())
    }

    fn goes_on_after(&self, fault: &Fault) -> bool {
        self.looks == 0 && fault.is_passing()
    }
}
