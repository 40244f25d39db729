//! The time since which a server has answered, or has failed to answer.

use crate::sync::Mutex;
use crate::values::{Moment, clock};

/// Whether the server answers, and since when. The task that keeps the server's connection writes it, and so do health
/// checks.
#[derive(Debug)]
pub(crate) struct Standing(Mutex<(bool, Moment)>);

impl Default for Standing {
    /// Starts as a server that has not been reached yet.
    fn default() -> Standing {
        Standing(Mutex::new((false, clock::now())))
    }
}

impl Standing {
    /// Records whether the server answers now. Returns the time since which that has been so.
    pub(crate) fn note(&self, answers: bool) -> Moment {
        // A copied value: nothing can be half done.
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
    async fn the_first_time_that_it_was_seen_so_counts() {
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
