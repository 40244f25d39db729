//! A proof that some keys are served while something is wrong with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use lock_runtime::LockManager;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::eventually::eventually_within;

/// The shortest time between two requests for the same key, so that a busy machine can keep up.
const EVERY: Duration = Duration::from_millis(20);

/// Tasks that acquire and release a key each, at a steady pace. They end with this value.
#[derive(Debug)]
pub struct Load {
    served: Vec<Arc<AtomicU64>>,
    _tasks: JoinSet<()>,
}

impl Load {
    /// Starts one task for each key.
    pub fn start(locks: &LockManager, keys: &[String]) -> Self {
        let mut tasks = JoinSet::new();
        let task = |key| {
            let lock = locks.mutex(key).wait(Duration::from_secs(60));
            let served = Arc::new(AtomicU64::new(0));
            let count = served.clone();
            tasks.spawn(async move {
                let mut ticks = tokio::time::interval(EVERY);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    // An acquire that fails is missing in the count.
                    if let Ok(guard) = lock.clone().acquire().await {
                        count.fetch_add(1, SeqCst);
                        let _ = guard.release().await;
                    }
                }
            });
            served
        };
        Self {
            served: keys.iter().map(task).collect(),
            _tasks: tasks,
        }
    }

    /// Returns how often all of them were served so far.
    pub fn served(&self) -> u64 {
        self.each().iter().sum()
    }

    /// Waits until each key was served twenty times more. A key that shares something with a server that does not answer
    /// waits for the timeout of a call, which has to be a minute.
    pub async fn goes_on(&self) {
        let before = self.each();
        let patience = Duration::from_secs(50);
        eventually_within(patience, "every key is served", async || {
            let now = self.each();
            now.iter()
                .zip(&before)
                .all(|(now, before)| *now >= before + 20)
        })
        .await;
    }

    fn each(&self) -> Vec<u64> {
        let served = self.served.iter();
        served.map(|count| count.load(SeqCst)).collect()
    }
}
