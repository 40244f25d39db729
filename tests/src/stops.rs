//! Stops of the machine, and rounds of a test that are run again because one of them was seen.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lock_runtime::LockManager;

/// The shortest stop that costs a process its turns: some slices of a lock's time.
pub const STOP: Duration = Duration::from_millis(100);
/// The shortest stop that costs a hold which a message has granted: it lasts for a second at first.
pub const STOP_OF_A_GRANT: Duration = Duration::from_millis(900);

/// The time for which a shutdown waits at most for what is under way.
pub const DRAIN: Duration = Duration::from_secs(2);

/// Shuts a manager down. Returns whether that took less than a shutdown may wait for what is under way: then it has left
/// nothing behind, however slow the machine is.
pub async fn shut_down(locks: &LockManager) -> bool {
    let began = Instant::now();
    locks.shutdown().await;
    began.elapsed() < DRAIN
}

/// Runs a round until it is good. A round that is not good is run again, a few times, if the machine stood still for `stop`
/// meanwhile: such a round shows nothing. Otherwise it is a failure. `stop` is zero where the round itself has seen that a
/// store was slow.
pub async fn in_one_of_a_few_rounds(stop: Duration, what: &str, round: impl AsyncFnMut() -> bool) {
    in_one_of(4, what, |_, longest| longest >= stop, round).await;
}

/// Runs a round until it is good, so many times at most. The time that a bad round took, or the longest stop in it, has to be
/// an excuse: otherwise it is a failure.
pub(crate) async fn in_one_of(
    rounds: usize,
    what: &str,
    is_excuse: impl Fn(Duration, Duration) -> bool,
    mut round: impl AsyncFnMut() -> bool,
) {
    for _ in 0..rounds {
        let (began, stops) = (Instant::now(), Stops::watch());
        if round().await {
            return;
        }
        let (took, longest) = (began.elapsed(), stops.longest());
        assert!(
            is_excuse(took, longest),
            "in {took:?}, with no stop longer than {longest:?}: {what}"
        );
    }
    panic!("in none of {rounds} rounds: {what}");
}

/// Looks for how long the machine does not run this process. The thread ends with the watch.
#[derive(Debug)]
pub struct Stops {
    watch: Arc<()>,
    looking: JoinHandle<Duration>,
}

impl Stops {
    /// Begins to look.
    pub fn watch() -> Stops {
        const LOOK: Duration = Duration::from_millis(5);
        let watch = Arc::new(());
        let watched = Arc::downgrade(&watch);
        let looking = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while watched.strong_count() > 0 {
                let began = Instant::now();
                std::thread::sleep(LOOK);
                longest = longest.max(began.elapsed().saturating_sub(LOOK));
            }
            longest
        });
        Stops { watch, looking }
    }

    /// Returns the longest stop that was seen.
    pub fn longest(self) -> Duration {
        drop(self.watch);
        self.looking.join().expect("it only sleeps")
    }
}
