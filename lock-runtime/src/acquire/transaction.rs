//! A lock that a transaction of the caller's takes and gives back: what its driver has to do, and the wait for it.

use std::error::Error;
use std::future::Future;

use crate::acquire::attempt::Attempt;
use crate::acquire::contend::{Asked, Contender, contend};
use crate::backend::{Fault, Listen, TakenBy, Transactions};
use crate::values::clock::{self, Moment};
use crate::values::error::{LockError, StoreError};
use crate::values::fence::FencingToken;

/// How often a transaction asks for a lock that was busy, and is not any more, before it waits.
const TRIES: usize = 4;

/// A transaction of the caller's, whatever its driver is: a few lines that run a statement in it.
///
/// The library knows no driver, so it pins no version of one. These are the lines for `tokio-postgres`;
/// [those for sqlx](crate::_documentation::postgres#inside-your-own-transaction) are as many.
///
/// ```
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
    /// What the driver calls an error.
    type Error: Error + Send + Sync + 'static;

    /// Runs a statement in the transaction. All of its parameters are of the type `text`. Its answer is one row with one
    /// column, which is a text, too.
    ///
    /// # Errors
    /// What the driver says. It is passed on as [`TransactionError::Driver`].
    fn ask(
        &mut self,
        sql: &str,
        params: &[&str],
    ) -> impl Future<Output = Result<String, Self::Error>> + Send;
}

/// Why a transaction has no lock, or may not go on. Roll the transaction back.
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
        /// What the fence is of.
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

/// Takes the lock within the attempt's wait.
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
        failed: None,
    };
    let first = seat.ask(attempt.deadline.since).await;
    let outcome = contend(&mut seat, first).await;
    wait.came_to(outcome.as_ref().map(|_| true));
    outcome.map_err(|error| match seat.failed {
        Some(failed) => TransactionError::Driver(failed),
        None => error.into(),
    })
}

/// A transaction that asks for a lock.
struct TransactionSeat<'a, T: SqlTransaction> {
    attempt: &'a Attempt,
    transactions: &'a dyn Transactions,
    transaction: &'a mut T,
    /// What the driver said when it failed. Nothing is asked after that.
    failed: Option<T::Error>,
}

impl<T: SqlTransaction> Contender for TransactionSeat<'_, T> {
    type Granted = Option<FencingToken>;

    fn attempt(&self) -> &Attempt {
        self.attempt
    }

    async fn ask(&mut self, _: Moment) -> Asked<Option<FencingToken>> {
        let Attempt {
            core,
            request,
            deadline,
        } = self.attempt;
        let (sql, params) = self.transactions.take(&request.key);
        let params: Vec<&str> = params.iter().map(String::as_str).collect();
        for _ in 0..TRIES {
            let answer = match self.transaction.ask(sql, &params).await {
                Ok(answer) => answer,
                Err(error) => {
                    let fault = Fault::Unknown(StoreError::new(error.to_string()));
                    self.failed = Some(error);
                    return Asked::Failed(fault);
                }
            };
            let now = clock::now();
            let asker = core.ids.fresh();
            let mut call = core.acquire_request(&request.key, asker, &request.hold_options, now);
            call.waits = deadline.rest(request.wait, now);
            match self.transactions.answered(call, &answer).await {
                Ok(TakenBy::Asker(token)) => return Asked::Granted(token),
                Ok(TakenBy::Other { left }) => return Asked::Busy(left),
                Ok(TakenBy::Nobody) => {}
                Err(fault) => return Asked::Failed(fault),
            }
        }
        // It changes hands all the time.
        Asked::Busy(None)
    }

    fn listen(&self) -> Box<dyn Listen> {
        self.attempt.core.backend.listen(self.attempt.key())
    }

    fn count_as_waiting(&self) -> Result<(), LockError> {
        Ok(())
    }

    fn goes_on_after(&self, fault: &Fault) -> bool {
        self.failed.is_none() && fault.is_passing()
    }
}
