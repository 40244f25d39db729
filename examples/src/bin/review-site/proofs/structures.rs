//! Ids, and what the structures of Redis decide without a lock.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use examples::{Failure, prove};
use redis::AsyncCommands;

use super::{Sites, all_at_once};
use crate::check_ins::Day;
use crate::feed::Seen;
use crate::ids;
use crate::nearby::{KM, PAGE, Place};
use crate::site::{CENTRE, SHOPS, Site};

pub(super) async fn ids(sites: &Sites) -> Result<(), Failure> {
    const TASKS: usize = 24;
    const EACH: usize = 250;
    let started = Instant::now();
    let draw = |site: Site, _| async move {
        let mut ids = vec![];
        for _ in 0..EACH {
            ids.push(site.orders.next().await?);
        }
        Ok(ids)
    };
    let drawn = all_at_once(sites, TASKS, draw).await?;
    let rate = (TASKS * EACH) as f64 / started.elapsed().as_secs_f64();
    // Those of a millisecond are shuffled.
    let rising = drawn.iter().all(|ids| ids.is_sorted_by_key(|id| id >> 22));
    let all: HashSet<i64> = drawn.into_iter().flatten().collect();
    prove(
        rising && all.len() == TASKS * EACH && all.iter().all(|id| *id > 0),
        format!(
            "{TASKS} tasks draw {EACH} ids each: {} different ones, each task's in the order of time ({rate:.0} a second)",
            all.len()
        ),
    )?;
    let key = format!("lock:{}order", ids::PREFIX);
    let () = sites[0].redis.clone().del(key).await?;
    // What was drawn ahead is handed out for 100 ms.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let next = sites[1].orders.next().await?;
    prove(
        all.iter().all(|id| *id < next),
        "after Redis has lost its data, the next id is larger than all of them",
    )
}

pub(super) async fn prove_all(sites: &Sites) -> Result<(), Failure> {
    likes(sites).await?;
    follows(sites).await?;
    feed(sites).await?;
    nearby(sites).await?;
    check_ins(sites).await?;
    visitors(sites).await
}

async fn likes(sites: &Sites) -> Result<(), Failure> {
    let click = |site: Site, _| async move { site.likes.click(1, 7).await };
    let liked = all_at_once(sites, 101, click).await?;
    let liked = liked.into_iter().filter(|liked| *liked).count();
    let odd = sites[0].likes.count(1).await?;
    all_at_once(sites, 101, click).await?;
    let even = sites[0].likes.count(1).await?;
    prove(
        (liked, odd, even) == (51, 1, 0),
        "101 clicks of one user at once: liked; 101 more: not liked",
    )?;
    for user in [5, 3, 9, 1, 7, 2] {
        sites[user as usize % 3].likes.click(2, user).await?;
    }
    let first = sites[0].likes.first_five(2).await?;
    prove(
        first == [5, 3, 9, 1, 7],
        "the first five of six who liked, in their order",
    )
}

async fn follows(sites: &Sites) -> Result<(), Failure> {
    let [one, other, third] = sites;
    for whom in [11, 12, 13, 14] {
        one.follows.follow(1, whom).await?;
        other.follows.follow(2, whom + 2).await?;
    }
    third.follows.unfollow(2, 14).await?;
    let (common, followers) = (third.follows.in_common(1, 2), third.follows.followers(13));
    let (common, mut followers) = (common.await?, followers.await?);
    followers.sort_unstable();
    prove(
        common == [13] && followers == [1, 2],
        "two users follow four each; one in common, after one was left",
    )
}

async fn feed(sites: &Sites) -> Result<(), Failure> {
    let [reader, author, _] = sites;
    // Thirty of each hundred have the same time.
    let entry = |review: i64| Seen {
        time: 1000 + review - review.min(30),
        review,
    };
    for review in 1..=100 {
        author.feed.push(entry(review), &[1]).await?;
    }
    let (mut seen, mut all, mut new) = (Seen::NOTHING, vec![], 100);
    loop {
        let page = reader.feed.page(1, seen, 7).await?;
        let Some(last) = page.last() else { break };
        seen = *last;
        all.extend(page.iter().map(|entry| entry.review));
        // New ones come between the pages: later ones, and one of the time of the last one that was read.
        new += 1;
        author.feed.push(entry(new), &[1]).await?;
        let review = seen.review + 1_000_000;
        author.feed.push(Seen { review, ..seen }, &[1]).await?;
    }
    let before: Vec<i64> = all.iter().copied().filter(|id| *id <= 100).collect();
    prove(
        before == (1..=100).rev().collect::<Vec<_>>() && before.len() == all.len(),
        format!(
            "a feed of 100, 30 of them of the same ms, in pages of 7 while {} new ones come: each once",
            2 * (new - 100)
        ),
    )
}

async fn nearby(sites: &Sites) -> Result<(), Failure> {
    let (mut pages, mut all) = (0, vec![]);
    loop {
        let page = sites[pages % 3].nearby.page(CENTRE, pages).await?;
        if page.is_empty() {
            break;
        }
        pages += 1;
        all.extend(page);
    }
    let different: HashMap<i64, f64> = all.iter().copied().collect();
    let sorted = all.is_sorted_by(|one, next| one.1 <= next.1);
    // Shop n is n times 50 m away, so the hundredth is at the edge.
    let inside = (1..100).all(|shop| {
        let km = different.get(&shop);
        km.is_some_and(|km| (km - shop as f64 * 0.05).abs() < 0.01)
    });
    let none_outside = all.iter().all(|(shop, km)| *km <= KM && *shop <= 100);
    let nowhere = Place {
        latitude: 99.0,
        ..CENTRE
    };
    prove(
        sorted
            && inside
            && none_outside
            && different.len() == all.len()
            && sites[0].nearby.page(nowhere, 0).await.is_err(),
        format!(
            "{} of {SHOPS} shops are within {KM} km: {pages} pages of {PAGE}, the nearest first, none twice",
            all.len()
        ),
    )
}

async fn check_ins(sites: &Sites) -> Result<(), Failure> {
    let day = |number: i64| Day::of(number * 86_400);
    // From 27 December 2027 to 2 March 2028, a leap year.
    let (first, last) = (21_179, 21_245);
    let leap = Day {
        year: 2028,
        month: 2,
        day: 29,
    };
    let ends = (day(first), day(last), day(last - 2));
    let expected = (
        Day {
            year: 2027,
            month: 12,
            day: 27,
        },
        Day {
            year: 2028,
            month: 3,
            day: 2,
        },
        leap,
    );
    let mut days = 0;
    for number in first..=last {
        days = sites[number as usize % 3]
            .check_ins
            .check_in(1, day(number))
            .await?;
    }
    let again = sites[0].check_ins.check_in(1, day(last)).await?;
    let later = sites[1].check_ins.check_in(1, day(last + 2)).await?;
    prove(
        ends == expected && (days, again, later) == (67, 67, 1),
        "67 days in a row, over the ends of three months, and a leap day; after a day without, 1",
    )
}

async fn visitors(sites: &Sites) -> Result<(), Failure> {
    const EACH: usize = 100;
    let visit = |site: Site, part: usize| async move {
        for visitor in 0..EACH {
            let name = format!("visitor {}", part / 2 * EACH + visitor);
            site.visitors.visit(1, &name).await?;
        }
        Ok(())
    };
    all_at_once(sites, 100, visit).await?;
    let (visitors, views) = sites[0].visitors.count(1).await?;
    let mut redis = sites[0].redis.clone();
    let bytes: u64 = redis.strlen("site:visitors:1").await?;
    prove(
        visitors.abs_diff(5000) < 150 && views == 10_000 && bytes < 13_000,
        format!(
            "10000 views by 5000 visitors: {visitors} are counted, in {bytes} bytes, and {views} views"
        ),
    )
}
