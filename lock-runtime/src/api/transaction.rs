//! Locks, and fences, inside a transaction of the caller's.

use crate::acquire::attempt::Attempt;
use crate::acquire::transaction::{self, SqlTransaction, TransactionError};
use crate::api::request::LockRequest;
use crate::backend::postgres::is_table;
use crate::values::error::config;
use crate::values::fence::FencingToken;

impl LockRequest {
    /// Takes the lock in a transaction of yours, which gives it back when it ends: by a commit, a rollback, or the end of
    /// its connection. What the transaction has written is visible to the next holder. There is no lease that could run
    /// out, nothing is renewed, and there is no guard.
    ///
    /// It is one lock with [`acquire`](LockRequest::acquire): leases and transactions exclude each other. The transaction
    /// has to be in the database of a PostgreSQL manager, at `read committed`. A second request of the same transaction
    /// is granted; one under a lease of the same process is not. A rollback to a savepoint gives back what was taken
    /// after it. The request's `wait` and `label` count; what it says of a lease does not.
    ///
    /// The token is higher than those of all earlier holds. Raise the fence with it ([`raise_fence`](crate::raise_fence))
    /// if holders of leases write the same data: one of them may be late. It is worth nothing after a rollback.
    /// `None` with [`fencing(false)`](crate::LockManagerBuilder::fencing).
    ///
    /// ```no_run
    /// use lock_runtime::{LockManager, SqlTransaction, TransactionError};
    ///
    /// async fn book<T: SqlTransaction>(locks: &LockManager, tx: &mut T) -> Result<(), TransactionError<T::Error>> {
    ///     locks.mutex("account:7").in_transaction(tx).await?;
    ///     // Read and write with the same transaction, and commit it: the lock is free after that, and not before.
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`TransactionError::Lock`] with a [`LockError`](crate::LockError): `Busy` if somebody had it for the whole wait,
    /// `InvalidConfig` for another kind than `mutex` and `fenced`, another store, another database, or another isolation
    /// level. [`TransactionError::Driver`] if a statement failed. The transaction is not aborted by the former.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lock with the transaction: roll it back.
    pub async fn in_transaction<T: SqlTransaction>(
        self,
        transaction: &mut T,
    ) -> Result<Option<FencingToken>, TransactionError<T::Error>> {
        tokio::task::coop::consume_budget().await;
        let (core, request) = self.into_checked()?;
        let kind = request.key.kind();
        if !kind.is_mutex() {
            return Err(config(format!(
                "a transaction takes mutexes and fenced locks: no {}",
                kind.plural()
            ))
            .into());
        }
        core.start_here()?;
        let attempt = Attempt::new(core.clone(), request);
        let Some(transactions) = core.backend.transactions() else {
            let store = core.backend.store().name();
            return Err(config(format!(
                "the {store} store keeps no locks of transactions: connect to the transaction's own database, `postgres://…`"
            ))
            .into());
        };
        transaction::acquire(&attempt, transactions, transaction).await
    }
}

/// Raises the fence of a lock inside a transaction of yours, or fails if a later holder has raised it: nothing that the
/// transaction writes after it can be that of a holder which came too late.
///
/// Make it the first statement of every transaction that the lock guards: it also makes what you read after it safe,
/// because the next holder waits here until you commit. `fences` is a table, `name` or `schema.name`, of the characters a-z,
/// 0-9 and _:
///
/// ```sql
/// CREATE TABLE fences (lock_name text PRIMARY KEY, token bigint NOT NULL)
/// ```
///
/// The lock may be in any store, the table is in the database of what it guards.
/// [Fencing](crate::_documentation::fencing#postgresql) says how to keep a fence in the row itself instead.
///
/// ```no_run
/// use lock_runtime::{FencingToken, SqlTransaction, TransactionError, raise_fence};
///
/// async fn sell<T: SqlTransaction>(tx: &mut T, token: FencingToken) -> Result<(), TransactionError<T::Error>> {
///     raise_fence(tx, "fences", "shop:lamps", token).await?;
///     // Read and write with the same transaction, and commit it.
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`TransactionError::Fenced`] if the fence is higher than the token: roll back. [`TransactionError::Driver`] if the
/// statement failed; at stricter levels than `read committed`, SQLSTATE 40001 says to repeat the transaction.
/// [`LockError::InvalidConfig`](crate::LockError::InvalidConfig) for a name that is no table's.
///
/// # Cancel safety
/// Dropping the future may leave the fence raised in the transaction: roll it back.
pub async fn raise_fence<T: SqlTransaction>(
    transaction: &mut T,
    fences: &str,
    lock: &str,
    token: FencingToken,
) -> Result<(), TransactionError<T::Error>> {
    if !is_table(fences) {
        return Err(config(
            "the table of the fences is named by `name` or `schema.name`, of the characters a-z, 0-9 and _",
        )
        .into());
    }
    let sql = include_str!("raise_fence.sql").replace("{fences}", fences);
    let number = token.to_string();
    let asked = transaction.ask(&sql, &[lock, &number]).await;
    match asked.map_err(TransactionError::Driver)?.as_str() {
        "raised" => Ok(()),
        _ => Err(TransactionError::Fenced {
            lock: lock.to_owned(),
            token,
        }),
    }
}
