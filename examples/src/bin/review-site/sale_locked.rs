//! The flash sale, by a lock for each user: who has ordered does not order again, and the payment is asked for once.
//!
//! **The lock** `site:sale:locked:user:{user}` covers the look at earlier orders, the payment and the order: three steps in
//! two systems, which no transaction covers. Clicks of one user take turns, those of different users do not.
//!
//! The stock needs no lock: `UPDATE … WHERE stock > 0` compares and writes in one step.
//!
//! The transaction is committed inside the function, so the lock outlives it, unless the browser hangs up: then the function
//! is dropped, and what was sent to the database goes on. What a lease cannot do: if the process is paused for longer than its lease, its transaction may come after that of the user's next click. See `sale_fenced.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use examples::Sqlite;
use lock_runtime::{Ids, LockManager, distributed_lock};

use crate::error::Error;
use crate::sale::{self, Answer};

pub(crate) const SALE: &str = "locked";

#[derive(Clone)]
pub(crate) struct LockedSale {
    pub(crate) database: Sqlite,
    pub(crate) locks: LockManager,
    pub(crate) ids: Ids,
    /// The number of payments that were asked for.
    pub(crate) payments: Arc<AtomicU64>,
}

impl LockedSale {
    #[distributed_lock(key = "site:sale:locked:user:{user}", wait = "30s", manager = self.locks)]
    pub(crate) async fn buy(&self, user: i64) -> Result<Answer, Error> {
        self.check_and_sell(user).await
    }

    /// Right only under the lock: what was read may be out of date after each `await`.
    async fn check_and_sell(&self, user: i64) -> Result<Answer, Error> {
        let looked = self
            .database
            .call(move |it| Ok((sale::has_ordered(it, SALE, user)?, sale::stock(it, SALE)?)));
        match looked.await? {
            (true, _) => return Ok(Answer::AlreadyOrdered),
            (false, 0) => return Ok(Answer::SoldOut),
            (false, _) => {}
        }
        self.authorise_payment(user).await;
        let id = self.ids.next().await?;
        let order = self
            .database
            .transaction(move |it| sale::take_one(it, SALE, user, id));
        // The last piece may have gone while the payment was authorised: a real service gives the money back here.
        Ok(order.await?)
    }

    /// Stands in for a call of a payment service.
    async fn authorise_payment(&self, _user: i64) {
        self.payments.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
