//! The flash sale, three ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use examples::{Failure, prove};
use lock_runtime::key;
use redis::AsyncCommands;
use redis::streams::{StreamReadOptions, StreamReadReply};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Sites, until};
use crate::error::Error;
use crate::process::write_orders;
use crate::sale::{self, Answer};
use crate::sale_stream::{ORDERS, WRITERS};
use crate::site::{Home, STOCK, Site, connect};
use crate::{sale_fenced, sale_locked, sale_stream};

const USERS: i64 = 1000;
const CLICKS: i64 = 3;
/// Clicks under way at once.
const AT_ONCE: usize = 64;

pub(super) async fn prove_all(home: &Home, sites: &Sites) -> Result<(), Failure> {
    println!(
        "   {USERS} users click {CLICKS} times each; there are {STOCK} pieces, one for each user"
    );
    let click = |site: Site, user| async move { site.locked_sale.buy(user).await };
    let figures = storm(sites, click).await?;
    let payments = sites
        .iter()
        .map(|site| site.locked_sale.payments.load(Ordering::Relaxed));
    let payments: u64 = payments.sum();
    figures.check(sites, sale_locked::SALE).await?;
    prove(
        payments < STOCK as u64 + AT_ONCE as u64,
        format!(
            "{payments} payments were asked for: one for each order, and for those who came just too late"
        ),
    )?;

    let click = |site: Site, user| async move { site.fenced_sale.buy(user).await };
    storm(sites, click)
        .await?
        .check(sites, sale_fenced::SALE)
        .await?;
    late_click(sites).await?;

    stream(home, sites).await
}

async fn stream(home: &Home, sites: &Sites) -> Result<(), Failure> {
    let click = |site: Site, user| async move { site.stream_sale.buy(user).await };
    let figures = storm(sites, click).await?;
    let (left, unwritten) = sites[0].stream_sale.left().await?;
    prove(
        (left, unwritten) == (0, STOCK as u64),
        format!("Redis has decided: {unwritten} orders are on the stream, none is in the database"),
    )?;

    // A writer takes some, and is never seen again.
    let mut redis = sites[0].redis.clone();
    let dead = StreamReadOptions::default()
        .group(WRITERS, "dead")
        .count(30);
    let taken: StreamReadReply = redis.xread_options(&[ORDERS], &[">"], &dead).await?;
    let taken = taken.keys[0].ids.len();

    let stopped = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    let started = Instant::now();
    for site in sites {
        let redis = connect(&home.store).await?;
        writers.spawn(write_orders(site.clone(), redis, stopped.clone()));
    }
    until("every order is written", async || {
        Ok(sites[0].stream_sale.left().await?.1 == 0)
    })
    .await?;
    let took = started.elapsed();
    stopped.store(true, Ordering::Relaxed);
    writers.join_all().await;
    figures.check(sites, sale_stream::SALE).await?;
    println!(
        "   a writer died with {taken} orders; after {:.1} s the others had written all",
        took.as_secs_f64()
    );

    // Redis loses its data: what is in the database comes back.
    let () = redis
        .del(&["site:{sale}:stock", "site:{sale}:buyers", ORDERS])
        .await?;
    sites[1].stream_sale.open().await?;
    let has_one = buyer(&sites[0], sale_stream::SALE).await?;
    let again = sites[2].stream_sale.buy(has_one).await?;
    let other = sites[2].stream_sale.buy(USERS + 1).await?;
    prove(
        (again, other) == (Answer::AlreadyOrdered, Answer::SoldOut),
        "after Redis has lost its data, stock and buyers come back from the database",
    )
}

async fn buyer(site: &Site, sale: &'static str) -> Result<i64, Failure> {
    let select = "SELECT user FROM orders WHERE sale = ?1 LIMIT 1";
    let row = site
        .database
        .call(move |it| it.query_row(select, [sale], |row| row.get(0)));
    Ok(row.await?)
}

/// A click is paused with the lock in its hands, and goes on when the user has bought and cancelled since.
async fn late_click(sites: &Sites) -> Result<(), Failure> {
    let [paused, quick, _] = sites;
    let user = buyer(quick, sale_fenced::SALE).await?;
    quick.fenced_sale.cancel(user).await?;
    let lock = key!("site:sale:fenced:user:{}", user);
    let guard = paused.locks.mutex(lock.clone()).acquire().await?;
    // As if the pause was longer than the lease.
    quick.locks.force_release(lock).await?;
    let bought = quick.fenced_sale.buy(user).await?;
    let cancelled = quick.fenced_sale.cancel(user).await?;
    let late = paused.fenced_sale.order(user, guard.fencing_token()).await;
    drop(guard);
    let has_ordered =
        move |it: &rusqlite::Connection| sale::has_ordered(it, sale_fenced::SALE, user);
    prove(
        matches!(bought, Answer::Ordered(_))
            && cancelled
            && matches!(late, Err(Error::Refused(StatusCode::CONFLICT, _)))
            && !quick.database.call(has_ordered).await?,
        "a click that was paused comes after buy and cancel of the same user: the fence refuses it",
    )
}

/// What the users were told, and how long it took.
struct Figures {
    ordered: usize,
    clicks: usize,
    elapsed: Duration,
    /// Shortest first.
    waits: Vec<Duration>,
}

async fn storm<F>(sites: &Sites, click: impl Fn(Site, i64) -> F) -> Result<Figures, Failure>
where
    F: Future<Output = Result<Answer, Error>> + Send + 'static,
{
    let limit = Arc::new(Semaphore::new(AT_ONCE));
    let mut clicks = JoinSet::new();
    let started = Instant::now();
    let users = (1..=USERS).flat_map(|user| (0..CLICKS).map(move |_| user));
    for (user, site) in users.zip(sites.iter().cycle()) {
        let permit = limit.clone().acquire_owned().await?;
        let click = click(site.clone(), user);
        clicks.spawn(async move {
            let sent = Instant::now();
            let answer = click.await;
            drop(permit);
            (answer, sent.elapsed())
        });
    }
    let (mut ordered, mut waits) = (0, vec![]);
    while let Some(click) = clicks.join_next().await {
        let (answer, wait) = click?;
        ordered += usize::from(matches!(answer?, Answer::Ordered(_)));
        waits.push(wait);
    }
    waits.sort_unstable();
    Ok(Figures {
        ordered,
        clicks: waits.len(),
        elapsed: started.elapsed(),
        waits,
    })
}

impl Figures {
    /// Compares with what is in the database.
    async fn check(&self, sites: &Sites, sale: &'static str) -> Result<(), Failure> {
        let totals = "SELECT count(*), count(DISTINCT user) FROM orders WHERE sale = ?1";
        let read = sites[0].database.call(move |it| {
            let (orders, users): (i64, i64) =
                it.query_row(totals, [sale], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok((orders, users, sale::stock(it, sale)?))
        });
        let (orders, users, left) = read.await?;
        let wait = |percent: usize| {
            let rank = (self.waits.len() * percent).div_ceil(100);
            self.waits[rank - 1].as_secs_f64() * 1000.0
        };
        prove(
            (orders, users, left) == (STOCK, STOCK, 0) && self.ordered == STOCK as usize,
            format!(
                "{sale}: {orders} orders of {users} users, {left} pieces left; {} clicks, {:.0} a second, p50 {:.1} ms, p99 {:.1} ms",
                self.clicks,
                self.clicks as f64 / self.elapsed.as_secs_f64(),
                wait(50),
                wait(99),
            ),
        )
    }
}
