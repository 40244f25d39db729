//! Tests of the guide's recipe for a job that runs once per tick, however the clocks of the replicas differ.

use std::sync::atomic::{AtomicUsize, Ordering};

use lock_runtime::{LockError, LockManager, distributed_lock};
use tests::Store;

const TICKS: u64 = 4;

// This is as in the guide, except for the time of `min_hold`, for which the test waits at its end. A busy machine may stand
// still for most of it.
#[distributed_lock(key = "invoices:{tick}", on_busy = skip, min_hold = "15s", manager = locks)]
async fn send_invoices(
    locks: &LockManager,
    tick: u64,
    runs: &AtomicUsize,
) -> Result<(), LockError> {
    runs.fetch_add(1, Ordering::SeqCst);
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = "reminders:{tick}", on_busy = skip, manager = locks)]
async fn without_min_hold(
    locks: &LockManager,
    tick: u64,
    runs: &AtomicUsize,
) -> Result<(), LockError> {
    runs.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

tests::suite! {
    async fn of_three_replicas_exactly_one_runs_a_job_per_tick(store: &mut Store) {
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(store.manager().await);
        }
        for tick in 0..TICKS {
            let (invoices, reminders) = (AtomicUsize::new(0), AtomicUsize::new(0));
            // The clocks of two replicas are equal. That of the third is so late that the job is done before.
            let late = replicas.len() - 1;
            let (a, b) = tokio::join!(
                send_invoices(&replicas[0], tick, &invoices),
                send_invoices(&replicas[1], tick, &invoices),
            );
            a.and(b).unwrap();
            send_invoices(&replicas[late], tick, &invoices).await.unwrap();
            assert_eq!(invoices.into_inner(), 1, "tick {tick}");
            for replica in &replicas {
                without_min_hold(replica, tick, &reminders).await.unwrap();
            }
            assert_eq!(reminders.into_inner(), 3, "the replicas come one after the other");
            replicas.rotate_left(1);
        }
    }
}
