//! Tests of tokens of locks in transactions, and of fences.

use std::time::Instant;

use lock_runtime::{TransactionError, raise_fence};

use super::{Driver, MS, Open, scene, take};

tests::on_each_database!(
    fenced_locks_count_on_in_a_transaction
    a_transaction_of_a_late_holder_is_refused_by_the_fence
);

async fn fenced_locks_count_on_in_a_transaction<D: Driver>() {
    let (table, locks, mut one, _) = scene::<D>().await;
    for count in [1_u64, 3, 5] {
        let mut mine = D::begin(&mut one).await;
        let taken = locks.fenced("k").in_transaction(&mut mine).await;
        assert_eq!(taken.unwrap().unwrap().get(), count);
        mine.commit().await;
        let guard = locks.fenced("k").acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), count + 1);
        guard.release().await.unwrap();
    }
    table.assert_clean().await;
}

async fn a_transaction_of_a_late_holder_is_refused_by_the_fence<D: Driver>() {
    let (table, locks, mut one, mut two) = scene::<D>().await;
    let fences = format!("{}_fences", table.name());
    table.server().query(&format!(
        "CREATE TABLE {fences} (lock_name {} PRIMARY KEY, token BIGINT NOT NULL)",
        D::NAME_TYPE
    ));
    let late = locks.mutex("k").acquire().await.unwrap();
    let late_token = late.fencing_token().unwrap();
    let mut mine = D::begin(&mut one).await;
    raise_fence(&mut mine, &fences, "k", late_token)
        .await
        .unwrap();
    mine.commit().await;
    late.release().await.unwrap();

    let mut theirs = D::begin(&mut two).await;
    let token = take(&locks, &mut theirs, "k").await.unwrap().unwrap();
    let asked = Instant::now();
    let mut early = D::begin(&mut one).await;
    for _ in 0..2 {
        raise_fence(&mut theirs, &fences, "k", token).await.unwrap();
    }
    let (refused, ()) = tokio::join!(raise_fence(&mut early, &fences, "k", late_token), async {
        tokio::time::sleep(100 * MS).await;
        theirs.commit().await;
    });
    assert!(asked.elapsed() >= 100 * MS, "it waits for the commit");
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, TransactionError::Fenced { token, .. } if *token == late_token),
        "{refused}"
    );
    raise_fence(&mut early, &fences, "another", late_token)
        .await
        .unwrap();
    let odd = raise_fence(&mut early, "fences; --", "k", late_token).await;
    assert!(odd.unwrap_err().to_string().contains("schema.name"));
    early.rollback().await;
    let kept = format!("SELECT token FROM {fences}");
    assert_eq!(table.server().query(&kept), [token.to_string()]);
}
