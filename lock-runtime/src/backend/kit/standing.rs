//! The time since which a server has answered, or has failed to answer.

use crate::sync::Mutex;
use crate::values::{Moment, clock};

/// Whether the server answers, and since when. Written by the task that keeps the server's connection, and by health
/// checks.
#[derive(Debug)]
pub(crate) struct Standing(Mutex<(bool, Moment)>);

impl Default for Standing {
    /// Starts as the state of a server that has not been reached yet.
    fn default() -> Standing {
        Standing(Mutex::new((false, clock::now())))
    }
}

impl Standing {
    /// Starts as the state of a server that has answered since then.
    pub(crate) fn answering(since: Moment) -> Standing {
        Standing(Mutex::new((true, since)))
    }

    /// Notes whether the server answers now. Returns the time since which this is so.
    pub(crate) fn note(&self, answers: bool) -> Moment {
        // The value is copied in one step, so no other thread can see half of it.
        let mut known = self.0.lock();
        if known.0 != answers {
            *known = (answers, clock::now());
        }
        known.1
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_time_of_a_state_counts() {
        let second = Duration::from_secs(1);
        let standing = Standing::default();
        tokio::time::advance(5 * second).await;
        assert!(standing.note(false).elapsed() >= 5 * second);
        assert!(standing.note(true).elapsed() < second);
        tokio::time::advance(3 * second).await;
        assert!(standing.note(true).elapsed() >= 3 * second);
        assert!(standing.note(false).elapsed() < second);
    }
}
