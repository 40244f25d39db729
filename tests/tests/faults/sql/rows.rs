//! Tests of rows that somebody else has locked, or deleted.

use lock_runtime::{LockError, LostReason, TryAcquire};
use tests::faults::{free_within, renewed, took};
use tests::{Blocker, Sql, answered, eventually, eventually_within};

use super::{CALL, LEASE, LONG, MS, SOON, block, end, scene, scene_with};

tests::on_each_database!(
    a_row_locked_by_a_transaction_delays_only_its_own_lock
    requests_behind_a_locked_row_leave_connections_to_others
    plain_permits_given_up_behind_a_locked_row_are_never_taken
    a_fair_request_given_up_behind_a_locked_row_takes_nothing
    a_lost_row_is_a_lost_lock
);

async fn a_row_locked_by_a_transaction_delays_only_its_own_lock<D: Sql>() {
    // A statement that waits for a row does so for longer than this test lasts.
    let (table, _pipe, locks, other) = scene_with::<D>(2 * LONG).await;
    for n in 0..12 {
        free_within(&locks, &format!("blocked-{n}"), LONG).await;
    }
    let guard = locks.mutex("kept").lease(LEASE).acquire().await.unwrap();
    // This lock is renewed in one batch with the other one.
    let locked = locks.mutex("locked").lease(LEASE);
    let locked = locked.acquire().await.unwrap();
    let mut blockers = vec![block(&table, "lock:locked")];
    let others = (0..12).map(|n| block(&table, &format!("lock:blocked-{n}")));
    blockers.extend(others);
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..12 {
        let request = locks.mutex(format!("blocked-{n}"));
        asking.spawn(request.wait(2 * LONG).acquire());
    }
    // Releases and renewals have connections that acquires cannot take.
    assert_eq!(locked.lost().wait().await, LostReason::Expired);
    renewed([&guard]).await;
    drop(locked);
    let (released, after) = took(guard.release()).await;
    released.unwrap();
    assert!(after < SOON, "{after:?}");
    let refused = other.mutex("blocked-0").wait(700 * MS).acquire().await;
    assert!(
        matches!(
            refused,
            Err(LockError::Unavailable { .. } | LockError::Busy { .. })
        ),
        "{refused:?}"
    );
    assert!(asking.try_join_next().is_none(), "nobody gives up");
    blockers.into_iter().for_each(Blocker::commit);
    while let Some(next) = asking.join_next().await {
        next.unwrap().unwrap().release().await.unwrap();
    }
    for n in 0..12 {
        free_within(&other, &format!("blocked-{n}"), LONG).await;
    }
    end(table, locks, other).await;
}

async fn requests_behind_a_locked_row_leave_connections_to_others<D: Sql>() {
    let (table, _pipe, locks, other) = scene_with::<D>(2 * LONG).await;
    let readers = || locks.read("r").lease(LONG).wait(2 * LONG);
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(readers().acquire().await.unwrap());
    }
    let counter = locks.plain_semaphore("s");
    counter.try_set_permits(5).await.unwrap();
    let blockers = ["lock:r", "lock:s"].map(|row| block(&table, row));
    let mut asking = tokio::task::JoinSet::new();
    for guard in held {
        asking.spawn(async move { guard.release().await.unwrap() });
        let acquired = readers().acquire();
        asking.spawn(async move { acquired.await.unwrap().release().await.unwrap() });
        let counter = counter.clone();
        asking.spawn(async move { counter.add_permits(1).await.unwrap() });
    }
    for _ in 0..20 {
        free_within(&locks, "another lock", SOON).await;
    }
    let why = "other statements of this process wait for the same row";
    eventually("a request that gives up says so", async || {
        let refused = readers().wait(500 * MS).acquire().await.unwrap_err();
        refused.to_string().contains(why)
    })
    .await;
    assert!(asking.try_join_next().is_none(), "nobody gives up");
    blockers.into_iter().for_each(Blocker::commit);
    while let Some(next) = asking.join_next().await {
        next.unwrap();
    }
    assert_eq!(counter.available().await.unwrap(), 17);
    drop(counter);
    end(table, locks, other).await;
}

async fn plain_permits_given_up_behind_a_locked_row_are_never_taken<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    let semaphore = locks.plain_semaphore("s");
    semaphore.try_set_permits(5).await.unwrap();
    for _ in 0..3 {
        // A date is late by the time that the last answer took.
        let busy = answered(async || semaphore.permits(6).try_acquire().await);
        let (busy, late) = took(busy).await;
        assert!(matches!(busy, Ok(TryAcquire::Busy { .. })), "{busy:?}");
        let blocker = block(&table, "lock:s");
        let refused = semaphore.permits(1).wait(300 * MS).acquire().await;
        assert!(refused.is_err(), "{refused:?}");
        tokio::time::sleep(late + 20 * MS).await;
        // The statement waits for the row still, unless it was cancelled, and gets it before the next transaction.
        blocker.commit();
        block(&table, "lock:s").commit();
        assert_eq!(other.plain_semaphore("s").available().await.unwrap(), 5);
    }
    semaphore.permits(1).wait(LONG).acquire().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 4);
    drop(semaphore);
    end(table, locks, other).await;
}

async fn a_fair_request_given_up_behind_a_locked_row_takes_nothing<D: Sql>() {
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
        let refused = locks.fair("k").wait(CALL + CALL / 2).acquire().await;
        assert!(refused.is_err(), "{refused:?}");
        blocker.commit();
        // A place would stay until somebody else asks for the lock.
        table.assert_clean().await;
        let next = other.fair("k").wait(SOON).acquire().await.unwrap();
        next.release().await.unwrap();
    }
    end(table, locks, other).await;
}

async fn a_lost_row_is_a_lost_lock<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    let guard = locks.mutex("k").lease(LEASE).acquire().await.unwrap();
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
