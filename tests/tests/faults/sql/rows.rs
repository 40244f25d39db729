//! Tests of rows that somebody else has locked, or deleted.

use std::time::Instant;

use lock_runtime::{LockError, LockManager, LostReason};
use tests::faults::{free_within, took};
use tests::{Blocker, Sql, Table, eventually_within};

use super::{CALL, LONG, MS, block, end, scene};

tests::on_each_database!(
    a_hold_with_the_shortest_lease_that_is_renewed_outlasts_a_locked_row_of_its_batch
    a_row_that_a_transaction_has_locked_holds_up_its_own_lock_alone
    a_fair_request_that_was_given_up_behind_a_locked_row_takes_no_lock_and_no_place
    a_lost_row_is_a_lost_lock
);

async fn a_hold_with_the_shortest_lease_that_is_renewed_outlasts_a_locked_row_of_its_batch<
    D: Sql,
>() {
    let table = Table::<D>::new();
    let builder = LockManager::builder().lease(1_000 * MS).ensure_schema(true);
    let locks = builder.connect(&table.url()).await.unwrap();
    let locked = locks.mutex("locked").acquire().await.unwrap();
    let kept = locks.mutex("kept").acquire().await.unwrap();
    let locked_read = locks.read("locked-read").acquire().await.unwrap();
    let kept_read = locks.read("kept-read").acquire().await.unwrap();
    let blockers = ["lock:locked", "lock:locked-read"].map(|name| block(&table, name));
    let began = Instant::now();
    while began.elapsed() < 3_000 * MS {
        let held = kept.is_held() && kept_read.is_held();
        assert!(held, "lost after {:?}", began.elapsed());
        tokio::time::sleep(20 * MS).await;
    }
    assert_eq!(locked.lost().wait().await, LostReason::Expired);
    assert_eq!(locked_read.lost().wait().await, LostReason::Expired);
    drop((locked, locked_read));
    blockers.into_iter().for_each(Blocker::commit);
    kept.release().await.unwrap();
    kept_read.release().await.unwrap();
    drop(locks);
    table.assert_deserted().await;
}

async fn a_row_that_a_transaction_has_locked_holds_up_its_own_lock_alone<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    for n in 0..12 {
        free_within(&locks, &format!("blocked-{n}"), LONG).await;
    }
    let guard = locks
        .mutex("kept")
        .lease(1_500 * MS)
        .acquire()
        .await
        .unwrap();
    // This lock is renewed in one batch with the other one.
    let locked = locks.mutex("locked").lease(1_500 * MS);
    let locked = locked.acquire().await.unwrap();
    let mut blockers = vec![block(&table, "lock:locked")];
    let others = (0..12).map(|n| block(&table, &format!("lock:blocked-{n}")));
    blockers.extend(others);
    let began = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..12 {
        asking.spawn(
            locks
                .mutex(format!("blocked-{n}"))
                .wait(2_000 * MS)
                .acquire(),
        );
    }
    // Releases and renewals have connections that acquires cannot take.
    while began.elapsed() < 3_000 * MS {
        assert!(guard.is_held());
        tokio::time::sleep(50 * MS).await;
    }
    assert_eq!(locked.lost().wait().await, LostReason::Expired);
    drop(locked);
    let (released, after) = took(guard.release()).await;
    released.unwrap();
    assert!(after < CALL, "{after:?}");
    while let Some(refused) = asking.join_next().await {
        let refused = refused.unwrap();
        assert!(
            matches!(
                refused,
                Err(LockError::Unavailable { .. } | LockError::Busy { .. })
            ),
            "{refused:?}"
        );
    }
    blockers.into_iter().for_each(Blocker::commit);
    for n in 0..12 {
        free_within(&other, &format!("blocked-{n}"), LONG).await;
    }
    end(table, locks, other).await;
}

async fn a_fair_request_that_was_given_up_behind_a_locked_row_takes_no_lock_and_no_place<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    locks
        .fair("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for _ in 0..3 {
        let blocker = block(&table, "lock:k");
        let refused = locks.fair("k").wait(700 * MS).acquire().await;
        assert!(refused.is_err(), "{refused:?}");
        blocker.commit();
        let next = other.fair("k").wait(4_000 * MS).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    end(table, locks, other).await;
}

async fn a_lost_row_is_a_lost_lock<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    let guard = locks.mutex("k").lease(1_500 * MS).acquire().await.unwrap();
    table.empty();
    assert_eq!(guard.lost().wait().await, LostReason::Refused);
    drop(guard);
    let next = other.mutex("k").acquire().await.unwrap();
    eventually_within(LONG, "it is held again", async || {
        locks.inspect("k").await.unwrap().held
    })
    .await;
    next.release().await.unwrap();
    end(table, locks, other).await;
}
