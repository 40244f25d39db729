//! A checked request, and the deadline of its caller.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::values::ttl::LEAST_CALL;
use crate::values::{HoldOptions, Key, Moment, clock};

/// What one caller asks for, with the manager's settings filled in.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRequest {
    pub(crate) key: Arc<Key>,
    pub(crate) hold_options: HoldOptions,
    /// The number of permits of a new semaphore.
    pub(crate) in_all: Option<NonZeroU64>,
    /// `None` waits for ever.
    pub(crate) wait: Option<Duration>,
    /// The least time for which the key stays taken, from the moment at which the caller has the lock. Boxed, because it is
    /// rare and would make each future larger.
    pub(crate) min_hold: Option<Box<Duration>>,
    /// Whether the request may share an ancestor's hold.
    pub(crate) reentrant: bool,
}

/// The longest wait that ends with a last question.
const SHORT_WAIT: Duration = Duration::from_secs(12);

/// The moments at which the caller came, and at which it gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(super) since: Moment,
    pub(super) until: Option<Moment>,
    /// The time of a last question, shortly before `until`: see [`asks_a_last_question`](Deadline::asks_a_last_question).
    last_question: Option<Moment>,
}

impl Deadline {
    pub(crate) fn new(wait: Option<Duration>) -> Deadline {
        let since = clock::now();
        Deadline {
            since,
            until: wait.map(|wait| since + wait),
            last_question: None,
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.is_over_at(clock::now())
    }

    /// Like [`is_over`](Deadline::is_over), for a caller that has just read the clock.
    pub(crate) fn is_over_at(self, now: Moment) -> bool {
        self.until.is_some_and(|until| now.has_reached(until))
    }

    /// Moves the end to `until`, if the end is earlier.
    pub(crate) fn lasts(&mut self, until: Moment) {
        self.until = self.until.map(|before| before.later(until));
    }

    /// From now on, [`pause`](Deadline::pause) ends in time for a last question: as early before the end as `earliest` says,
    /// or up to half of that later. If that time is over already, there is none.
    ///
    /// Where messages are lost, those before a waiter in the store's order may be served, or give up, after its last question.
    /// Without another one, the lock would stay free, or reserved for one after the other, while all of them give up. A
    /// waiting writer, whose question keeps readers out, would leave after it though they have gone. The time is drawn: if all asked equally early, each might ask shortly before its turn comes. Of many that wait for longer,
    /// one always asks soon, because each pause between two questions is drawn, too.
    pub(crate) fn asks_a_last_question(&mut self, earliest: impl FnOnce() -> Duration) {
        let (None, Some(until)) = (self.last_question, self.until) else {
            return;
        };
        let wait = until - self.since;
        if wait > SHORT_WAIT {
            return;
        }
        let earliest = earliest().min(wait / 4);
        // A question that has no time for its answer costs the place.
        if earliest >= LEAST_CALL {
            let before = earliest.mul_f64(0.5 + fastrand::f64() * 0.5);
            self.last_question = Some(self.since + (wait - before));
        }
    }

    /// Whether the caller waits at all. A wait of zero is over when it begins.
    pub(crate) fn waits(self) -> bool {
        !self.is_over_at(self.since)
    }

    /// Returns the time that the caller has waited; zero if it does not wait.
    pub(crate) fn waited(self) -> Duration {
        if self.waits() {
            self.since.elapsed()
        } else {
            Duration::ZERO
        }
    }

    /// Resolves when the wait is over.
    pub(crate) async fn over(self) {
        match self.until {
            Some(until) => clock::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Sleeps for `pause`, or until a last question is due, or until the wait ends.
    pub(crate) async fn pause(self, pause: Duration) {
        let now = clock::now();
        let due = self.last_question.filter(|due| !now.has_reached(*due));
        let ends = [due, self.until].into_iter().flatten();
        clock::sleep_until(ends.fold(now + pause, Moment::earlier)).await;
    }

    /// Returns the rest of the wait.
    pub(crate) fn rest(self, now: Moment) -> Duration {
        self.until.map_or(Duration::MAX, |until| until - now)
    }

    /// Returns the timeout of a call, which is at most the rest of the wait.
    pub(crate) fn cut(self, timeout: Duration, now: Moment) -> Duration {
        match self.until {
            // A request that does not wait still makes one call.
            Some(until) if !now.has_reached(until) => timeout.min((until - now).max(LEAST_CALL)),
            _ => timeout,
        }
    }
}
