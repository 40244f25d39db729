//! Pages of shops from the cache.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use examples::{Failure, prove};
use lock_runtime::key;
use redis::AsyncCommands;
use tokio::task::JoinSet;

use super::{Sites, all_at_once, until};
use crate::bloom::Bloom;
use crate::error::Error;
use crate::shop_cache::{OLD, Shop, life};
use crate::site::Site;

const READERS: usize = 200;
/// The pause of a reader before it reads again.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn prove_all(sites: &Sites) -> Result<(), Failure> {
    missing_and_old(sites).await?;
    absent(sites).await?;
    late_readers(sites).await?;
    rush(sites).await
}

fn queries(sites: &Sites) -> u64 {
    let each = sites.iter();
    each.map(|site| site.shops.queries.swap(0, Ordering::Relaxed))
        .sum()
}

async fn missing_and_old(sites: &Sites) -> Result<(), Failure> {
    queries(sites);
    let read = |site: Site, _| async move { site.shops.get(1).await };
    let answers = all_at_once(sites, READERS, read).await?;
    let same = answers
        .iter()
        .all(|shop| *shop == answers[0] && shop.is_some());
    prove(
        same && queries(sites) == 1,
        format!(
            "{READERS} readers of a page that is not cached: 1 query; the others waited for it"
        ),
    )?;

    // The database changes behind the cache's back, and the value gets old.
    let change =
        |it: &rusqlite::Connection| it.execute("UPDATE shops SET name = 'New' WHERE id = 1", []);
    sites[0].database.call(change).await?;
    let mut redis = sites[0].redis.clone();
    let () = redis
        .pexpire("site:shop:1", OLD.as_millis() as i64 - 1)
        .await?;
    let read = |site: Site, _| async move { site.shops.get_popular(1).await };
    let answers = all_at_once(sites, READERS, read).await?;
    let old = answers
        .iter()
        .flatten()
        .filter(|shop| shop.name == "Shop 1");
    let old = old.count();
    // It is rebuilt in the background.
    until("the page is rebuilt", async || {
        let cached = sites[1].shops.cached(1).await?;
        Ok(cached.is_some_and(|cached| cached.is_fresh))
    })
    .await?;
    let new = sites[2].shops.get_popular(1).await?;
    prove(
        old > 0 && new.is_some_and(|shop| shop.name == "New") && queries(sites) == 1,
        format!(
            "{READERS} readers of an old page: 1 query, in the background; {old} got the old page at once"
        ),
    )?;

    let mut expiries = HashMap::new();
    let shop = Some(Shop {
        id: 1,
        name: String::new(),
    });
    for _ in 0..1000 {
        *expiries.entry(life(&shop).as_secs()).or_insert(0) += 1;
    }
    let most = expiries.values().copied().max().unwrap_or(0);
    prove(
        most < 100,
        format!(
            "1000 pages that are cached together get old over {} s",
            expiries.len()
        ),
    )
}

async fn absent(sites: &Sites) -> Result<(), Failure> {
    // As many as the filter is made for.
    let redis = sites[0].redis.clone();
    let bloom = Bloom {
        redis,
        key: "site:proof:bloom",
    };
    let ids: Vec<i64> = (0..13_000).map(|id| id << 20).collect();
    for some in ids.chunks(1000) {
        bloom.add(some).await?;
    }
    let knows_nothing = bloom.may_contain(-1).await?;
    bloom.complete().await?;
    let (mut found, mut passed) = (0, 0);
    for id in ids.iter().step_by(13) {
        found += u32::from(bloom.may_contain(*id).await?);
        passed += u32::from(bloom.may_contain(*id + 1).await?);
    }
    prove(
        knows_nothing && found == 1000 && passed <= 20,
        format!("the filter finds 1000 of 1000 ids; of 1000 that do not exist, {passed} pass"),
    )?;

    let read = |site: Site, id: usize| async move { site.shops.get(100_000 + id as i64).await };
    let answers = all_at_once(sites, READERS, read).await?;
    let none = answers.iter().all(Option::is_none);
    let (unknown, passing) = (queries(sites), 4711);
    sites[0].shops.bloom.add(&[passing]).await?;
    let read = move |site: Site, _| async move { site.shops.get(passing).await };
    let answers = all_at_once(sites, READERS, read).await?;
    let none = none && answers.iter().all(Option::is_none);
    prove(
        none && unknown < 10 && queries(sites) == 1,
        format!(
            "{READERS} ids that do not exist: {unknown} queries; {READERS} readers of one that passes the filter: 1 \
             query, for that there is none is cached, too"
        ),
    )
}

/// A reader has read the row, and writes it to the cache after a write of another process.
async fn late_readers(sites: &Sites) -> Result<(), Failure> {
    let [reader, writer, _] = sites;
    let new = |name: &str| Shop {
        id: 2,
        name: name.to_owned(),
    };
    let name = async |site: &Site| -> Result<Option<String>, Error> {
        Ok(site.shops.get(2).await?.map(|shop| shop.name))
    };
    let begin = async |site: &Site| -> Result<_, Error> {
        let guard = site.locks.mutex(key!("site:shop:{}", 2)).acquire().await?;
        Ok((guard, site.shops.load(2).await?))
    };
    let (guard, row) = begin(reader).await?;
    let second = writer.shops.write(new("Second")).await?;
    let cached = reader.shops.cache(2, guard.fencing_token(), &row).await?;
    let stale = name(writer).await?;
    guard.release().await?;
    second.await??;
    prove(
        cached
            && stale.as_deref() == Some("Shop 2")
            && name(reader).await?.as_deref() == Some("Second"),
        "a reader that was slow caches the old page after the first deletion; the second one waits for it",
    )?;

    let (guard, row) = begin(reader).await?;
    // As if it was paused for longer than its lease.
    writer.locks.force_release(key!("site:shop:{}", 2)).await?;
    writer.shops.write(new("Third")).await?.await??;
    let cached = reader.shops.cache(2, guard.fencing_token(), &row).await?;
    drop(guard);
    prove(
        !cached && name(reader).await?.as_deref() == Some("Third"),
        "a reader that has lost its lock comes after both; its token is refused",
    )
}

async fn rush(sites: &Sites) -> Result<(), Failure> {
    const WRITES: usize = 30;
    let (ended, reads) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut readers = JoinSet::new();
    for number in 0..READERS {
        let (site, ended, reads) = (sites[number % 3].clone(), ended.clone(), reads.clone());
        readers.spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                site.shops.get(3).await?;
                reads.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            Ok::<_, Error>(())
        });
    }
    queries(sites);
    let mut old = 0;
    for number in 0..WRITES {
        let name = format!("Edition {number}");
        let shop = Shop { id: 3, name };
        let [writer, others @ ..] = sites;
        writer.shops.write(shop.clone()).await?.await??;
        for site in others {
            old += usize::from(site.shops.get(3).await? != Some(shop.clone()));
        }
    }
    ended.store(true, Ordering::Relaxed);
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    let (reads, queries) = (reads.load(Ordering::Relaxed), queries(sites));
    prove(
        old == 0 && queries <= 2 * WRITES as u64 + 1,
        format!(
            "{READERS} readers read {reads} times during {WRITES} writes: {queries} queries; after a write, {old} old pages"
        ),
    )
}
