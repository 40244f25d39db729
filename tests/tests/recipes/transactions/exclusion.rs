//! Tests of who is kept out by a lock in a transaction.

use lock_runtime::{LockError, TryAcquire};
use tests::answered;

use super::{
    Driver, LONG, MS, Open, assert_refused_at_once, free_within, is_busy, manager, scene, take,
    take_within, the_lease_is_over,
};

tests::on_each_database!(
    a_transaction_and_a_lease_exclude_each_other
    of_two_transactions_in_a_deadlock_one_is_busy_and_repeatable
);

async fn a_transaction_and_a_lease_exclude_each_other<D: Driver>() {
    let (table, locks, mut one, mut two) = scene::<D>().await;
    let other = manager(&table).await;
    // The second time, the row is there already.
    for _ in 0..2 {
        let guard = locks.mutex("k").acquire().await.unwrap();
        let mut mine = D::begin(&mut one).await;
        let refused = take(&other, &mut mine, "k").await;
        assert!(is_busy(&refused), "{refused:?}");
        let first = guard.fencing_token().unwrap();
        guard.release().await.unwrap();

        let second = take(&other, &mut mine, "k").await.unwrap().unwrap();
        assert!(second > first);
        let mut theirs = D::begin(&mut two).await;
        let refused = take(&locks, &mut theirs, "k").await;
        assert!(is_busy(&refused), "{refused:?}");
        assert!(locks.inspect("k").await.unwrap().held);
        // Others are refused while the lease by which the transaction came to its lock is not over, and after that.
        for _ in 0..2 {
            for request in [locks.mutex("k"), locks.fair("k"), locks.fenced("k")] {
                assert_refused_at_once(request.try_acquire()).await;
            }
            let waits = async || locks.mutex("k").wait(1_000 * MS).acquire().await;
            let refused = answered(waits).await;
            assert!(
                matches!(refused, Err(LockError::Busy { .. })),
                "{refused:?}"
            );
            let both = [locks.mutex("k"), locks.mutex("other")];
            assert_refused_at_once(locks.multi(both).try_acquire()).await;
            the_lease_is_over(&table).await;
            assert!(locks.inspect("k").await.unwrap().held);
        }
        mine.commit().await;

        let TryAcquire::Acquired(guard) = locks.mutex("k").try_acquire().await.unwrap() else {
            panic!("the commit has given it back");
        };
        assert!(guard.fencing_token().unwrap() > second);
        guard.release().await.unwrap();
        let taken = take(&locks, &mut theirs, "k").await;
        assert!(
            taken.is_ok(),
            "a transaction that was refused goes on: {taken:?}"
        );
        theirs.rollback().await;
        free_within(&locks, "k", LONG).await;
    }
    table.assert_clean().await;
}

async fn of_two_transactions_in_a_deadlock_one_is_busy_and_repeatable<D: Driver>() {
    let (table, locks, mut one, mut two) = scene::<D>().await;
    let mut mine = D::begin_for_several(&mut one).await;
    let mut theirs = D::begin_for_several(&mut two).await;
    take(&locks, &mut mine, "a").await.unwrap();
    take(&locks, &mut theirs, "b").await.unwrap();
    let (first, second) = tokio::join!(
        async {
            let taken = take_within(&locks, &mut mine, "b", 3_000 * MS).await;
            mine.rollback().await;
            taken
        },
        take_within(&locks, &mut theirs, "a", LONG),
    );
    assert!(is_busy(&first), "{first:?}");
    assert!(second.is_ok(), "{second:?}");
    theirs.commit().await;
    let mut mine = D::begin_for_several(&mut one).await;
    for name in ["a", "b"] {
        let taken = take_within(&locks, &mut mine, name, D::FREE_AFTER_COMMIT).await;
        taken.unwrap();
    }
    mine.commit().await;
    table.assert_clean().await;
}
