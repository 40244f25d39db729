//! Locks, and fences, inside a transaction of the caller's.

use crate::acquire::attempt::Attempt;
use crate::acquire::transaction::{self, ON_ITS_WAY, SqlDialect, SqlTransaction, TransactionError};
use crate::api::request::LockRequest;
use crate::backend::sql::table::is_table;
use crate::values::{FencingToken, StoreKind, Ttl, config};

impl LockRequest {
    /// Takes the lock into a transaction of yours, which gives it back when it ends. What the transaction has written is
    /// visible to the next holder. The lock cannot be lost while the transaction is open: there is no lease that could run
    /// out, nothing is renewed, and there is no guard.
    ///
    /// A commit frees the lock, and wakes the waiters, if the database can. So does a rollback, even one by a
    /// connection that was cut. If the transaction was shorter than two seconds, a rollback takes effect within half a
    /// second, because the manager has to look. If its process ends, too, the lock is free two seconds after it was
    /// acquired.
    ///
    /// It is one lock with [`acquire`](LockRequest::acquire): leases and transactions exclude each other. The transaction
    /// has to be in the database of a PostgreSQL manager, or on the server of a MySQL or MariaDB one, whose
    /// [default isolation](crate::_documentation::mysql#inside-your-own-transaction) allows one lock a transaction. Make
    /// this the first statement of it, and ask once: under a hold of the same lock, by a lease or by the transaction
    /// itself, it waits in vain. The request's `wait` and `label` count; `lease` and `auto_renew` do not; `min_hold`,
    /// `max_hold` and `keep_for` are refused.
    ///
    /// **A transaction has to be open on that connection.** Without one, each statement is a transaction by itself: the
    /// lock is free at once, and nobody is told. On MySQL and MariaDB, a statement such as `CREATE TABLE` commits, and a
    /// deadlock ends, the transaction before.
    ///
    /// The token is higher than those of all earlier holds. Raise the fence with it ([`raise_fence`])
    /// if holders of leases write the same data: one of them may be late. It is `None` with
    /// [`fencing(false)`](crate::LockManagerBuilder::fencing).
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
    /// [`TransactionError::Lock`]; unless it is `Busy`, roll the transaction back, which may have locked the lock's row:
    /// `Busy` if somebody had the lock for the whole wait, `InvalidConfig` for another kind than `mutex` and `fenced`,
    /// another store, a transaction of another database, or one at `repeatable read` or `serializable` that has read
    /// before; the others are those of [`acquire`](LockRequest::acquire).
    /// [`TransactionError::Driver`] if the statement failed.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back, or leaves it with the transaction: roll that back.
    pub async fn in_transaction<T: SqlTransaction>(
        self,
        transaction: &mut T,
    ) -> Result<Option<FencingToken>, TransactionError<T::Error>> {
        tokio::task::coop::consume_budget().await;
        let times = [
            ("min_hold", self.overrides.min_hold),
            ("max_hold", self.overrides.max_hold),
            ("keep_for", self.overrides.keep_for),
        ];
        if let Some((option, _)) = times.iter().find(|(_, time)| time.is_some()) {
            let why = format!("a transaction has a lock until it ends: leave out `{option}`");
            return Err(config(why).into());
        }
        let (core, mut request) = self.into_checked()?;
        request.hold_options.ttl = Ttl::new(ON_ITS_WAY, false).map_err(config)?;
        request.hold_options.renewed = false;
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
        let (store, own) = (
            core.backend.store(),
            match T::DIALECT {
                SqlDialect::Postgres => StoreKind::Postgres,
                SqlDialect::Mysql => StoreKind::Mysql,
            },
        );
        let Some(transactions) = core.backend.transactions().filter(|_| store == own) else {
            let (store, own) = (store.name(), own.name());
            return Err(config(format!(
                "the {store} store keeps no locks of transactions of {own}: connect to the transaction's own database, \
                 `{own}://…`"
            ))
            .into());
        };
        transaction::acquire(&attempt, transactions, transaction).await
    }
}

/// Raises the fence of a lock inside a transaction of yours, or fails if a later holder has raised it. Nothing that the
/// transaction writes after that can come from a holder that is too late.
///
/// Make it the first statement of every transaction that the lock guards: it also makes what you read after it safe,
/// because the next holder waits here until you commit. `fences` is a table, `name` or `schema.name`, of the characters a-z,
/// 0-9 and _:
///
/// ```sql
/// CREATE TABLE fences (lock_name text PRIMARY KEY, token bigint NOT NULL)
/// ```
///
/// On MySQL and MariaDB, `lock_name` is a `VARBINARY(512)`.
///
/// The lock may be in any store; the table is in the database that has the data under the lock.
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
    let number = token.to_string();
    let asked = match T::DIALECT {
        SqlDialect::Postgres => {
            let sql = include_str!("raise_fence.sql").replace("{fences}", fences);
            transaction.ask(&sql, &[lock, &number]).await
        }
        SqlDialect::Mysql => {
            let [raise, read] = [
                include_str!("raise_fence_on_mysql.sql"),
                include_str!("read_fence_on_mysql.sql"),
            ]
            .map(|sql| sql.replace("{fences}", fences));
            match transaction.ask(&raise, &[lock, &number, &number]).await {
                Ok(_) => transaction.ask(&read, &[&number, lock]).await,
                Err(error) => Err(error),
            }
        }
    };
    match asked.map_err(TransactionError::Driver)?.as_str() {
        "raised" => Ok(()),
        _ => Err(TransactionError::Fenced {
            lock: lock.to_owned(),
            token,
        }),
    }
}
