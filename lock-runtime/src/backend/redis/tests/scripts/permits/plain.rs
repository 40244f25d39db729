//! Tests of the scripts of plain permits and latches.

use super::*;

#[tokio::test]
async fn plain_permits_are_taken_in_time_all_or_none() {
    let bench = ScriptBench::new().await;
    assert!(matches!(bench.call(take(1)).await, Err(Fault::NotSet)));
    bench.call(set(3)).await.unwrap();
    let late = TakePermits {
        not_after_us: bench.server.time().await - 1,
        ..take(1)
    };
    let late = bench.call(late).await.unwrap();
    assert_eq!(late.done, None);
    for permits in [0, 1_001] {
        assert!(bench.call(take(permits)).await.is_err());
    }
    let taken = bench.call(take(2)).await.unwrap();
    assert_eq!(taken.done, Some(true));
    let short = bench.call(take(2)).await.unwrap();
    assert_eq!(short.done, Some(false));
    assert_eq!(bench.state().await, ("1".to_owned(), 0));
    bench.run("DEL lock:s").await;
    bench.run("HSET lock:s a 1").await;
    assert!(is_foreign(bench.call(take(1)).await, COUNT));
    assert!(is_foreign(bench.call(count_down()).await, COUNT));
}

/// Returns the count that is left, and whether the message is still to be published.
fn counted(reply: Announced<u64>) -> (u64, bool) {
    (reply.done, !reply.unpublished.is_empty())
}

#[tokio::test]
async fn a_latch_counts_down_to_zero_and_publishes_once() {
    let bench = ScriptBench::new().await;
    let closed = SetCounter {
        latch: true,
        ..set(2)
    };
    let mut messages = bench.server.listen(&[TOLD]).await;
    assert!(bench.call(closed).await.unwrap().done);
    assert_eq!(messages.recv().await.unwrap().1, "1");
    assert_eq!(counted(bench.call(count_down()).await.unwrap()), (1, false));
    let mut deaf = bench.user("-publish").await;
    assert_eq!(
        counted(run(&mut deaf, &count_down()).await.unwrap()),
        (0, true)
    );
    assert_eq!(bench.integer("EXISTS lock:s").await, 0);
    for _ in 0..2 {
        assert_eq!(counted(bench.call(count_down()).await.unwrap()), (0, false));
        assert_eq!(bench.integer("EXISTS lock:s").await, 0);
    }
    bench.call(set(1)).await.unwrap();
    assert_eq!(messages.recv().await.unwrap().1, "1");
    assert_eq!(counted(bench.call(count_down()).await.unwrap()), (0, false));
    assert_eq!(messages.recv().await.unwrap().1, "0");
    assert!(messages.try_recv().is_err());
}

#[tokio::test]
async fn what_a_change_could_not_publish_is_in_its_reply() {
    let bench = ScriptBench::new().await;
    let mut deaf = bench.user("-publish").await;
    let told = |payload: &str| [(TOLD.to_owned(), payload.to_owned())];
    let of_semaphore = run(&mut deaf, &set(3)).await.unwrap();
    assert_eq!(of_semaphore.unpublished, told("3"));
    let added = run(&mut deaf, &add(2)).await.unwrap();
    assert_eq!(added.unpublished, told("5"));
    // No waiter of a semaphore that is not set any more would have a permit.
    let deleted = run(&mut deaf, &delete()).await.unwrap();
    assert!(
        deleted.done && deleted.unpublished.is_empty(),
        "{deleted:?}"
    );
    let (latch, end) = (true, delete());
    let of_latch = run(&mut deaf, &SetCounter { latch, ..set(2) })
        .await
        .unwrap();
    assert_eq!(of_latch.unpublished, told("1"));
    let deleted = run(&mut deaf, &DeleteCounter { latch, ..end })
        .await
        .unwrap();
    assert_eq!(deleted.unpublished, told("0"));
}
