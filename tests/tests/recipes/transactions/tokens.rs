//! Tests of tokens of locks in transactions, and of fences.

use std::time::Instant;

use lock_runtime::{TransactionError, raise_fence};

use super::{MS, Tx, scene, take};

#[tokio::test]
async fn fenced_locks_count_on_in_a_transaction() {
    let (table, locks, mut one, _) = scene().await;
    for count in [1_u64, 3, 5] {
        let mine = one.transaction().await.unwrap();
        let taken = locks.fenced("k").in_transaction(&mut Tx(&mine)).await;
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
    let made = format!("CREATE TABLE {fences} (lock_name text PRIMARY KEY, token bigint NOT NULL)");
    one.batch_execute(&made).await.unwrap();
    let late = locks.mutex("k").acquire().await.unwrap();
    let late_token = late.fencing_token().unwrap();
    let mine = one.transaction().await.unwrap();
    raise_fence(&mut Tx(&mine), &fences, "k", late_token)
        .await
        .unwrap();
    mine.commit().await.unwrap();
    late.release().await.unwrap();

    let theirs = two.transaction().await.unwrap();
    let token = take(&locks, &theirs, "k").await.unwrap().unwrap();
    let asked = Instant::now();
    let mine = one.transaction().await.unwrap();
    let (mut early, mut next) = (Tx(&mine), Tx(&theirs));
    raise_fence(&mut next, &fences, "k", token).await.unwrap();
    raise_fence(&mut next, &fences, "k", token).await.unwrap();
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
}
