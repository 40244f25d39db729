//! Tests of transactions in which a lock would exclude nobody.

use lock_runtime::LockManager;

use super::{Driver, Open, assert_refused, is_busy, scene, take};

tests::on_each_database!(what_could_not_exclude_others_is_refused_with_what_to_do);

async fn what_could_not_exclude_others_is_refused_with_what_to_do<D: Driver>() {
    let (table, locks, mut one, _) = scene::<D>().await;
    let mut mine = D::begin(&mut one).await;
    for request in [locks.read("k"), locks.write("k"), locks.fair("k")] {
        let taken = request.in_transaction(&mut mine).await;
        assert_refused(taken, "takes mutexes and fenced locks");
    }
    let memory = LockManager::in_memory();
    assert_refused(take(&memory, &mut mine, "k").await, D::SCHEME);
    let reader = locks.read("shared").acquire().await.unwrap();
    assert_refused(take(&locks, &mut mine, "shared").await, "shared");
    reader.release().await.unwrap();
    take(&locks, &mut mine, "shared").await.unwrap();
    // A transaction has its lock once.
    assert!(is_busy(&take(&locks, &mut mine, "shared").await));
    mine.rollback().await;
    table.assert_clean().await;
}
