//! A thread that wakes the watchdog's loop in time, in a runtime of several workers.
//!
//! The runtime's own timers are not enough there. One idle worker looks after the timers and sockets of all. If a message
//! wakes it, it runs the body that waited for the message. Until that body awaits, nobody looks after timers and sockets,
//! although other workers are idle (<https://github.com/tokio-rs/tokio/issues/4730>). So a body that blocks would stop the
//! watchdog. Neither may a body wake the loop: the task that a body wakes stays with its worker.
//!
//! A wake from this thread goes to an idle worker. That one runs the loop, and looks after timers and sockets from then on.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::observe::metrics::logged;
use crate::sync::Mutex;
use crate::values::clock;

/// The time after which the thread looks at its plan again while no moment is set.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// The thread ends when this is dropped.
pub(super) struct Alarm(Arc<Shared>);

struct Shared {
    plan: Mutex<Plan>,
    changed: Condvar,
    wake: Arc<Notify>,
}

#[derive(Default)]
struct Plan {
    at: Option<Instant>,
    is_over: bool,
}

impl Alarm {
    /// Starts the thread, if a body that blocks a worker of this runtime leaves another one.
    pub(super) fn begin(runtime: &Handle, wake: &Arc<Notify>) -> Option<Alarm> {
        if runtime.metrics().num_workers() < 2 {
            return None;
        }
        let shared = Arc::new(Shared {
            plan: Mutex::default(),
            changed: Condvar::new(),
            wake: wake.clone(),
        });
        let alarm = Alarm(shared.clone());
        let thread = std::thread::Builder::new()
            .name("lock-watchdog".to_owned())
            .stack_size(0x20000);
        match thread.spawn(move || shared.run()) {
            Ok(_) => Some(alarm),
            Err(error) => {
                logged!(
                    warn,
                    reason = %error,
                    "the watchdog has no thread of its own: a body that blocks its worker may lose its lock"
                );
                None
            }
        }
    }

    /// Wakes the loop at that moment, or earlier if an earlier moment is set: the loop plans the next one then.
    pub(super) fn set(&self, at: Instant) {
        let mut plan = self.0.plan.lock();
        if plan.at.is_none_or(|earlier| at < earlier) {
            plan.at = Some(at);
            drop(plan);
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.plan.lock().is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut plan = self.plan.lock();
        while !plan.is_over {
            let now = clock::now().tick();
            let left = plan.at.map_or(IDLE, |at| at.saturating_duration_since(now));
            if left.is_zero() {
                plan.at = None;
                drop(plan);
                self.wake.notify_one();
                plan = self.plan.lock();
            } else {
                let waited = self.changed.wait_timeout(plan, left);
                plan = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_earliest_moment_counts_and_the_thread_ends() {
        let wake = Arc::<Notify>::default();
        let alarm = Alarm::begin(&Handle::current(), &wake).unwrap();
        let now = clock::now().tick();
        for after in [HOUR, Duration::from_millis(1), HOUR] {
            alarm.set(now + after);
        }
        wake.notified().await;
        alarm.set(now + HOUR);
        drop(alarm);
        // The thread has the other reference.
        while Arc::strong_count(&wake) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
