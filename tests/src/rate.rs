//! A measure of how well some keys are served while something is wrong with others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_runtime::LockManager;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

/// The shortest time between two requests for the same key, so that a busy machine can keep up.
const EVERY: Duration = Duration::from_millis(20);

/// Tasks that acquire and release a key each, at a steady pace. They end with this value.
#[derive(Debug)]
pub struct Load {
    waits: Arc<Mutex<Vec<Duration>>>,
    _tasks: JoinSet<()>,
}

impl Load {
    /// Starts one task for each key.
    pub fn start(locks: &LockManager, keys: &[String]) -> Self {
        let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let mut tasks = JoinSet::new();
        for key in keys {
            let (lock, waits) = (
                locks.mutex(key).wait(Duration::from_secs(60)),
                waits.clone(),
            );
            tasks.spawn(async move {
                let mut ticks = tokio::time::interval(EVERY);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let since = Instant::now();
                    // An acquire that fails is missing in the count.
                    let Ok(guard) = lock.clone().acquire().await else {
                        continue;
                    };
                    let waited = since.elapsed();
                    waits
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(waited);
                    let _ = guard.release().await;
                }
            });
        }
        Self {
            waits,
            _tasks: tasks,
        }
    }

    /// Returns what is served from now on, in this much time.
    pub async fn during(&self, time: Duration) -> Served {
        let since = Instant::now();
        self.take();
        tokio::time::sleep(time).await;
        let waits = self.take();
        Served {
            rate: f64::from(u32::try_from(waits.len()).expect("few"))
                / since.elapsed().as_secs_f64(),
            slowest: waits.into_iter().max().unwrap_or(Duration::MAX),
        }
    }

    /// Waits until keys are served about as well as while nothing was wrong. At first, the machine may be busy with
    /// what has just begun, which passes. Keys that share something with a server that does not answer stay badly
    /// served.
    pub async fn becomes_as_good_as(&self, healthy: Served) {
        const WINDOW: Duration = Duration::from_millis(500);
        let mut seen = Vec::new();
        for _ in 0..20 {
            let served = self.during(WINDOW).await;
            if served.rate >= healthy.rate * 0.5 && served.slowest < WINDOW {
                return;
            }
            seen.push(served);
        }
        panic!("{healthy:?} before, {seen:?} now");
    }

    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The result of a [`Load`].
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// The number of acquisitions in a second.
    pub rate: f64,
    /// The time that the slowest one took.
    pub slowest: Duration,
}
