//! The cost that the attribute adds to the same call by hand, on the memory store, where nothing else costs much.

use std::time::Instant;

use lock_runtime::{LockError, LockManager, distributed_lock, key};

use crate::stats::{mean_95, micros};

const RUNS: usize = 100;
const CALLS: u64 = 2_000;

async fn body(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:{id}", manager = locks)]
async fn annotated(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    body(id).await
}

async fn by_hand(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    let guard = locks.mutex(key!("order:{id}")).acquire().await?;
    guard.protect(body(id)).await.into_result()?
}

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::in_memory();
        let (mut added, mut hand) = (Vec::new(), Vec::new());
        for run in 0..RUNS + 2 {
            let mut took = [0.0; 2];
            for turn in 0..2 {
                let at = Instant::now();
                if (run + turn) % 2 == 0 {
                    for id in 0..CALLS {
                        annotated(&locks, id).await.unwrap();
                    }
                    took[0] = micros(at.elapsed()) / CALLS as f64;
                } else {
                    for id in 0..CALLS {
                        by_hand(&locks, id).await.unwrap();
                    }
                    took[1] = micros(at.elapsed()) / CALLS as f64;
                }
            }
            if run >= 2 {
                added.push(took[0] - took[1]);
                hand.push(took[1]);
            }
        }
        let (added, half) = mean_95(&added);
        println!("an annotated call on the memory store, {RUNS} interleaved runs of {CALLS} calls");
        println!("  by hand          {:7.3} µs", mean_95(&hand).0);
        println!("  attribute adds   {added:7.3} ± {half:.3} µs (95 %)");
    });
}
