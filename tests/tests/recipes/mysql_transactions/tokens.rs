//! Tests of tokens of locks in transactions, and of fences.

use std::time::Instant;

use lock_runtime::{TransactionError, raise_fence};
use mysql_async::prelude::Queryable;

use super::{MS, Tx, begin, scene, take};

#[tokio::test]
async fn fenced_locks_count_on_in_a_transaction() {
    let (table, locks, mut one, _) = scene().await;
    for count in [1_u64, 3, 5] {
        let mut mine = begin(&mut one).await;
        let taken = locks.fenced("k").in_transaction(&mut Tx(&mut mine)).await;
        assert_eq!(taken.unwrap().unwrap().get(), count);
        mine.commit().await.unwrap();
        let guard = locks.fenced("k").acquire().await.unwrap();
        assert_eq!(guard.fencing_token().unwrap().get(), count + 1);
        guard.release().await.unwrap();
    }
    table.assert_clean().await;
}

#[tokio::test]
async fn a_transaction_of_a_late_holder_is_refused_by_the_fence() {
    let (table, locks, mut one, mut two) = scene().await;
    let fences = format!("{}_fences", table.name());
    let made = format!(
        "CREATE TABLE {fences} (lock_name VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL) ENGINE = InnoDB"
    );
    one.query_drop(made).await.unwrap();
    let late = locks.mutex("k").acquire().await.unwrap();
    let late_token = late.fencing_token().unwrap();
    let mut mine = begin(&mut one).await;
    raise_fence(&mut Tx(&mut mine), &fences, "k", late_token)
        .await
        .unwrap();
    mine.commit().await.unwrap();
    late.release().await.unwrap();

    let mut theirs = begin(&mut two).await;
    let token = take(&locks, &mut theirs, "k").await.unwrap().unwrap();
    let asked = Instant::now();
    let mut mine = begin(&mut one).await;
    for _ in 0..2 {
        raise_fence(&mut Tx(&mut theirs), &fences, "k", token)
            .await
            .unwrap();
    }
    let mut early = Tx(&mut mine);
    let (refused, ()) = tokio::join!(raise_fence(&mut early, &fences, "k", late_token), async {
        tokio::time::sleep(100 * MS).await;
        theirs.commit().await.unwrap();
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
    mine.rollback().await.unwrap();
    let kept = format!("SELECT token FROM {fences}");
    assert_eq!(table.server().query(&kept), [token.to_string()]);
}
