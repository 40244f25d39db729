//! What is logged when thousands of holds have one and the same trouble: the first of a second in full, the
//! others of that second as one line with their number.

use std::time::Duration;

use tokio::time::Instant;

use crate::observe::Cause;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Digest {
    /// Those that are counted now, one for each cause: a handful.
    seconds: Vec<Second>,
    /// Nobody logs what is counted any more.
    is_over: bool,
}

#[derive(Debug)]
struct Second {
    cause: Cause,
    ends: Instant,
    more: usize,
}

impl Digest {
    /// Notes this number of holds with this trouble. True if this cause was not logged in the last second: log it in full.
    pub(super) fn is_first(&mut self, cause: Cause, holds: usize, now: Instant) -> bool {
        match self.seconds.iter_mut().find(|second| second.cause == cause) {
            _ if self.is_over => true,
            Some(second) => {
                second.more += holds;
                false
            }
            None => {
                let ends = now + SECOND;
                self.seconds.push(Second {
                    cause,
                    ends,
                    more: 0,
                });
                true
            }
        }
    }

    /// The end of the first of the seconds.
    pub(super) fn next(&self) -> Option<Instant> {
        self.seconds.iter().map(|second| second.ends).min()
    }

    /// Returns each cause whose second has ended by now, and how many more holds it had. A second that counted
    /// something is followed by another one.
    pub(super) fn ended(&mut self, now: Instant) -> Vec<(Cause, usize)> {
        let mut told = Vec::new();
        self.seconds.retain_mut(|second| {
            if now < second.ends {
                return true;
            }
            let more = std::mem::take(&mut second.more);
            if more > 0 {
                told.push((second.cause, more));
                second.ends = now + SECOND;
            }
            more > 0
        });
        told
    }

    /// Sets whether a loop logs what is counted. Without one, each event is logged in full.
    pub(super) fn set_logged(&mut self, logged: bool) {
        self.is_over = !logged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::LostReason;

    const REFUSED: Cause = Cause::Lost(LostReason::Refused);
    const EXPIRED: Cause = Cause::Lost(LostReason::Expired);

    #[test]
    fn a_cause_is_logged_at_once_and_then_once_a_second() {
        let mut digest = Digest::default();
        let began = Instant::now();
        assert!(digest.is_first(REFUSED, 1, began));
        assert!(digest.is_first(EXPIRED, 1, began), "causes are apart");
        for _ in 0..9_999 {
            assert!(!digest.is_first(REFUSED, 1, began));
        }
        assert_eq!(digest.ended(began), []);
        assert_eq!(digest.next(), Some(began + SECOND));
        assert_eq!(digest.ended(began + SECOND), [(REFUSED, 9_999)]);
        assert!(
            !digest.is_first(REFUSED, 2, began + SECOND),
            "a flood that goes on is told of once a second"
        );
        assert_eq!(digest.ended(began + 2 * SECOND), [(REFUSED, 2)]);
        assert_eq!(digest.ended(began + 3 * SECOND), []);
        assert_eq!(digest.next(), None, "a quiet second ends it");
        assert!(digest.is_first(REFUSED, 1, began + 3 * SECOND));
        digest.set_logged(false);
        assert!(digest.is_first(REFUSED, 1, began + 3 * SECOND));
    }
}
