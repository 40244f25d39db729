//! Tests of servers that crash or freeze, and of connections that they end.

use std::time::{Duration, Instant};

use lock_runtime::{LockError, LostReason, TryAcquire};
use tests::faults::{free_within, kept_in_order, renewed};
use tests::{Server, Sql, Table, eventually};

use super::{LEASE, LONG, MS, SOON, end, manager, scene};

tests::on_each_database!(
    nobody_is_admitted_while_a_guard_says_that_it_is_held
    holds_and_waiters_outlast_a_crash_of_the_server
    a_frozen_server_ends_a_hold_on_time_and_the_next_token_rises
    connections_ended_by_the_server_end_no_hold_and_no_wait
    a_fair_waiter_keeps_its_place_after_a_cut_under_another_id
);

async fn nobody_is_admitted_while_a_guard_says_that_it_is_held<D: Sql>() {
    let table = Table::<D>::new();
    let (locks, other) = (manager(&table.url()).await, manager(&table.url()).await);
    let mut keys = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (locks, other) = (locks.clone(), other.clone());
        keys.spawn(async move {
            let (key, began) = (format!("k{n}"), Instant::now());
            while began.elapsed() < 6_000 * MS {
                // Renewals come late now and then: then the lock is lost, and the guard must say so.
                let lease = locks.mutex(&*key).lease(1_000 * MS).wait(LONG);
                let guard = lease.acquire().await.unwrap();
                while guard.is_held() && began.elapsed() < 6_000 * MS {
                    if let Ok(TryAcquire::Acquired(next)) = other.mutex(&*key).try_acquire().await {
                        assert!(!guard.is_held(), "two holders");
                        next.release().await.unwrap();
                    }
                }
            }
        });
    }
    while let Some(done) = keys.join_next().await {
        done.unwrap();
    }
    end(table, locks, other).await;
}

async fn holds_and_waiters_outlast_a_crash_of_the_server<D: Sql>() {
    let mut server = Server::<D>::start();
    let (locks, other) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = locks.mutex("k").wait(LONG).acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(10 * LONG).acquire());
    eventually("the waiter waits", async || {
        other
            .inspect("k")
            .await
            .is_ok_and(|info| info.local_waiters == 1)
    })
    .await;
    server.restart();
    assert!(guard.is_held(), "a crash is no loss");
    eventually("the server keeps the lock", async || {
        locks.inspect("k").await.is_ok_and(|info| info.held)
    })
    .await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.fencing_token().unwrap() > first);
    guard.release().await.unwrap();
}

async fn a_frozen_server_ends_a_hold_on_time_and_the_next_token_rises<D: Sql>() {
    let server = Server::<D>::start();
    let (locks, other) = (manager(&server.url()).await, manager(&server.url()).await);
    let guard = locks.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
    let first = guard.fencing_token().unwrap();
    server.sigstop();
    tokio::time::sleep(1_500 * MS).await;
    // The clock alone ends it. `is_held` would end it as well, and only the watchdog is to do that.
    assert!(guard.remaining().is_zero());
    let told = tokio::time::timeout(SOON, guard.lost().wait()).await;
    assert_eq!(told.expect("it is told"), LostReason::Expired);
    let refused = other.mutex("k").wait(100 * MS).acquire().await;
    assert!(
        matches!(
            refused,
            Err(LockError::Unavailable { .. } | LockError::Busy { .. })
        ),
        "{refused:?}"
    );
    server.sigcont();
    let next = other.mutex("k").wait(LONG).acquire().await.unwrap();
    assert!(next.fencing_token().unwrap() > first);
    next.release().await.unwrap();
    free_within(&other, "k", LONG).await;
}

async fn connections_ended_by_the_server_end_no_hold_and_no_wait<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
    let waiter = tokio::spawn(other.mutex("k").wait(10 * LONG).acquire());
    for _ in 0..3 {
        table.end_connections();
        renewed([&guard]).await;
    }
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    end(table, locks, other).await;
}

/// A copy of the process may have the id that the waiter had before the cut.
async fn a_fair_waiter_keeps_its_place_after_a_cut_under_another_id<D: Sql>() {
    kept_in_order(Duration::ZERO, keeps_its_place::<D>).await;
}

/// Returns whether the waiter that came first was served first.
async fn keeps_its_place<D: Sql>() -> bool {
    let (table, pipe, locks, other) = scene::<D>().await;
    let guard = other.fair("k").acquire().await.unwrap();
    let queue = || {
        let rows = table
            .server()
            .query(&format!("SELECT queue FROM {}", table.name()));
        rows.concat()
    };
    let first = tokio::spawn(locks.fair("k").wait(2 * LONG).acquire());
    let is_first = async || queue().matches("\"h\"").count() == 1;
    eventually("it waits", is_first).await;
    let place = queue();
    let behind = tokio::spawn(other.fair("k").wait(2 * LONG).acquire());
    let are_two = async || queue().matches("\"h\"").count() == 2;
    eventually("another one waits", are_two).await;
    let before = pipe.connections();
    pipe.cut();
    eventually("it connects again", async || pipe.connections() > before).await;
    guard.release().await.unwrap();
    let (mut first, mut behind) = (first, behind);
    let guard = tokio::select! {
        biased;
        guard = &mut first => guard.unwrap().unwrap(),
        passed = &mut behind => {
            passed.unwrap().unwrap().release().await.unwrap();
            first.await.unwrap().unwrap().release().await.unwrap();
            end(table, locks, other).await;
            return false;
        }
    };
    assert!(!behind.is_finished());
    let holders = table
        .server()
        .query(&format!("SELECT holder FROM {}", table.name()));
    assert!(
        holders.len() == 1 && !place.contains(&holders[0]),
        "{holders:?}, {place}"
    );
    guard.release().await.unwrap();
    behind.await.unwrap().unwrap().release().await.unwrap();
    end(table, locks, other).await;
    true
}
