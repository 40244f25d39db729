//! The flash sale, decided by a script in Redis, and written to the database behind it.
//!
//! | key | what it is |
//! | --- | --- |
//! | `site:{sale}:stock` | the pieces that are left |
//! | `site:{sale}:buyers` | the set of users who have ordered |
//! | `site:{sale}:orders` | a stream of the orders that the database does not have yet, with the group `writers` |
//!
//! A click is one script (`decide.lua`), without a lock and without the database. Each process is a consumer of the group:
//! it writes an order to the database, and then acknowledges it. What a process had taken and not acknowledged when it
//! died, another one takes over (`XAUTOCLAIM`).
//!
//! **The lock** `site:sale:stream:user:{user}` is for the writers. An order can be with two of them: one was paused, the
//! other one took it over. Under the lock they take turns, so that what a real service does here besides (charge the card)
//! is not done twice at the same time. A writer that is paused for longer than its lease may still do it late: give the
//! payment the order's id as its idempotency key. The rows are right without the lock: a row that is there already is
//! acknowledged like a new one.
//!
//! What this way costs: an order that was promised is as durable as Redis. Let it write its log to the disk
//! (`appendonly yes`), or a crash of the server loses the orders of its last second.

use std::time::Duration;

use examples::Sqlite;
use lock_runtime::{Ids, LockManager, distributed_lock};
use redis::streams::{
    StreamAutoClaimOptions, StreamAutoClaimReply, StreamId, StreamReadOptions, StreamReadReply,
};
use redis::{AsyncCommands, Script};

use crate::error::Error;
use crate::sale::{self, Answer};
use crate::site::Redis;

pub(crate) const SALE: &str = "stream";

/// A user has one order, however many writers write it.
pub(crate) const SCHEMA: &str =
    "CREATE UNIQUE INDEX one_for_each_user ON orders (sale, user) WHERE sale = 'stream';";

const STOCK: &str = "site:{sale}:stock";
const BUYERS: &str = "site:{sale}:buyers";
pub(crate) const ORDERS: &str = "site:{sale}:orders";
pub(crate) const WRITERS: &str = "writers";

/// The time after which an order that was taken and not acknowledged goes to another writer. A writer that is only slow
/// does no harm: see above.
pub(crate) const TAKE_OVER: Duration = Duration::from_secs(3);
/// The time for which a writer waits for orders, before it looks for some to take over.
const BLOCK: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 20;

#[derive(Clone)]
pub(crate) struct StreamSale {
    pub(crate) redis: Redis,
    pub(crate) database: Sqlite,
    pub(crate) locks: LockManager,
    pub(crate) ids: Ids,
}

impl StreamSale {
    /// Brings the stock of the database to Redis, if it is not there: at the first start, or after Redis lost its data.
    /// Under a lock, for it reads the database and then writes to Redis. A process that is paused between the two for longer
    /// than its lease must not bring sold pieces back, so a stock that is there stays.
    #[distributed_lock(key = "site:sale:stream:open", wait = "30s", manager = self.locks)]
    pub(crate) async fn open(&self) -> Result<(), Error> {
        let mut redis = self.redis.clone();
        let group = redis.xgroup_create_mkstream(ORDERS, WRITERS, 0).await;
        match group {
            Err(error) if error.code() != Some("BUSYGROUP") => return Err(error.into()),
            Err(_) | Ok(()) => {}
        }
        if redis.exists(STOCK).await? {
            return Ok(());
        }
        // One transaction, or an order could be written between the two looks.
        let read = self.database.transaction(|it| {
            let mut buyers = it.prepare("SELECT user FROM orders WHERE sale = ?1")?;
            let buyers: Result<Vec<i64>, _> = buyers.query_map([SALE], |row| row.get(0))?.collect();
            Ok((sale::stock(it, SALE)?, buyers?))
        });
        let (stock, buyers) = read.await?;
        let mut open = redis::pipe();
        open.atomic();
        if !buyers.is_empty() {
            open.sadd(BUYERS, buyers);
        }
        open.set_nx(STOCK, stock);
        Ok(open.exec_async(&mut redis).await?)
    }

    /// Orders. The database has the order a moment later.
    pub(crate) async fn buy(&self, user: i64) -> Result<Answer, Error> {
        let id = self.ids.next().await?;
        let decide = Script::new(include_str!("decide.lua"));
        let mut decide = decide.key(STOCK);
        decide.key(BUYERS).key(ORDERS).arg(user).arg(id);
        let decided: String = decide.invoke_async(&mut self.redis.clone()).await?;
        Ok(match decided.as_str() {
            "ordered" => Answer::Ordered(id),
            "twice" => Answer::AlreadyOrdered,
            _ => Answer::SoldOut,
        })
    }

    /// Returns how many pieces are left, and how many orders the database does not have yet.
    pub(crate) async fn left(&self) -> Result<(i64, u64), Error> {
        let mut left = redis::pipe();
        left.atomic().get(STOCK).xlen(ORDERS);
        let (stock, unwritten): (Option<i64>, u64) =
            left.query_async(&mut self.redis.clone()).await?;
        Ok((stock.unwrap_or(0), unwritten))
    }

    /// Writes orders to the database as the writer of that name, until `stopped`. `redis` is a connection of its own: a
    /// read that waits holds up everything behind it.
    pub(crate) async fn write_orders(
        &self,
        redis: &mut Redis,
        writer: &str,
        stopped: impl Fn() -> bool,
    ) -> Result<(), Error> {
        while !stopped() {
            let mut orders = self.abandoned(redis, writer).await?;
            if orders.is_empty() {
                orders = self.fresh(redis, writer).await?;
            }
            for order in orders {
                match order.get("user").zip(order.get("id")) {
                    Some((user, id)) => self.write(user, id).await?,
                    None => tracing::error!("{} on the stream is no order", order.id),
                }
                let mut done = redis::pipe();
                done.atomic()
                    .xack(ORDERS, WRITERS, &[&order.id])
                    .xdel(ORDERS, &[&order.id]);
                let () = done.query_async(redis).await?;
            }
        }
        Ok(())
    }

    /// Removes the names of writers that have not asked for an hour.
    pub(crate) async fn forget_writers(&self) -> Result<(), Error> {
        let forget = Script::new(include_str!("forget_writers.lua"));
        let mut forget = forget.key(ORDERS);
        Ok(forget
            .arg(WRITERS)
            .invoke_async(&mut self.redis.clone())
            .await?)
    }

    async fn fresh(&self, redis: &mut Redis, writer: &str) -> Result<Vec<StreamId>, Error> {
        let options = StreamReadOptions::default()
            .group(WRITERS, writer)
            .block(BLOCK.as_millis() as usize)
            .count(AT_ONCE);
        let read: StreamReadReply = redis.xread_options(&[ORDERS], &[">"], &options).await?;
        Ok(read
            .keys
            .into_iter()
            .flat_map(|stream| stream.ids)
            .collect())
    }

    /// Takes over what another writer has taken and not acknowledged for a while.
    async fn abandoned(&self, redis: &mut Redis, writer: &str) -> Result<Vec<StreamId>, Error> {
        let idle = TAKE_OVER.as_millis() as usize;
        let options = StreamAutoClaimOptions::default().count(AT_ONCE);
        let claimed: StreamAutoClaimReply = redis
            .xautoclaim_options(ORDERS, WRITERS, writer, idle, "0-0", options)
            .await?;
        Ok(claimed.claimed)
    }

    #[distributed_lock(key = "site:sale:stream:user:{user}", wait = "30s", manager = self.locks)]
    async fn write(&self, user: i64, id: i64) -> Result<(), Error> {
        let written = self.database.transaction(move |it| {
            // An order that is there was written by another writer, or by one that died before it acknowledged.
            match sale::has_ordered(it, SALE, user)? {
                true => Ok(Answer::AlreadyOrdered),
                false => sale::take_one(it, SALE, user, id),
            }
        });
        // Redis never promises more than the database has, unless it has lost its data meanwhile.
        if written.await? == Answer::SoldOut {
            tracing::error!("order {id} was promised, and there is nothing left");
        }
        Ok(())
    }
}
