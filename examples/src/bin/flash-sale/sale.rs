//! The service, which sells a coupon of which there are few, once to each user.

use std::time::Duration;

use examples::SqliteError;
use lock_runtime::{FencingToken, LockError, LockManager, distributed_lock};

use crate::database::Database;

/// The shop's side of a purchase. Clones share everything.
#[derive(Clone)]
pub(crate) struct Sale {
    database: Database,
    locks: LockManager,
}

/// The reason why nothing was sold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is no coupon of this name.
    #[error("no such coupon")]
    NoSuchCoupon,
    /// Every coupon has its buyer.
    #[error("sold out")]
    SoldOut,
    /// The user has one already.
    #[error("one per user")]
    AlreadyOrdered,
    /// The lock went to somebody else, who wrote first.
    #[error("too late: the lock was lost")]
    Overtaken,
    /// The lock was refused, or was lost on the way. `#[distributed_lock]` needs this conversion.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] SqliteError),
}

impl Sale {
    pub(crate) fn new(database: Database, locks: LockManager) -> Sale {
        Sale { database, locks }
    }

    /// Sells a coupon to a user. Purchases of one coupon run one at a time, over all processes.
    #[distributed_lock(
        key = "coupon:{coupon}",
        wait = "30s",
        lease = "10s",
        manager = self.locks,
        guard = lease
    )]
    pub(crate) async fn buy(&self, coupon: &str, user: u32) -> Result<i64, Refusal> {
        let token = lease.fencing_token();
        self.check_and_sell(coupon, user, token).await
    }

    /// Does the same without the lock, to see what happens.
    pub(crate) async fn buy_unlocked(&self, coupon: &str, user: u32) -> Result<i64, Refusal> {
        self.check_and_sell(coupon, user, None).await
    }

    /// Reads, decides and writes. This is right only while nobody else does the same: the value that was read may be
    /// out of date after every `await` that follows it.
    async fn check_and_sell(
        &self,
        coupon: &str,
        user: u32,
        token: Option<FencingToken>,
    ) -> Result<i64, Refusal> {
        let left = self.database.left(coupon).await?;
        if left.ok_or(Refusal::NoSuchCoupon)? <= 0 {
            return Err(Refusal::SoldOut);
        }
        if self.database.has_ordered(coupon, user).await? {
            return Err(Refusal::AlreadyOrdered);
        }
        authorise_payment(user).await;
        let order = self.database.insert(coupon, user, token).await?;
        order.ok_or(Refusal::Overtaken)
    }
}

/// Stands in for a call to a payment service.
async fn authorise_payment(_user: u32) {
    tokio::time::sleep(Duration::from_millis(2)).await;
}
