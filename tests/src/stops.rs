//! Stops of the machine, and rounds of a test that are run again because one of them was seen.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shortest stop of the machine for which a round may be run again: some slices of a lock's time.
pub const STOP: Duration = Duration::from_millis(100);

/// Runs a round until it is good. A round that is not good is run again, a few times, if the machine stood still meanwhile:
/// such a round shows nothing. Otherwise it is a failure.
pub async fn in_one_of_a_few_rounds(what: &str, mut round: impl AsyncFnMut() -> bool) {
    const ROUNDS: usize = 4;
    for _ in 0..ROUNDS {
        let stops = Stops::watch();
        if round().await {
            return;
        }
        let longest = stops.longest();
        assert!(
            longest >= STOP,
            "no stop was longer than {longest:?}: {what}"
        );
    }
    panic!("in none of {ROUNDS} rounds: {what}");
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
