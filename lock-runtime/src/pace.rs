//! How long one process may keep a key to itself. Handing over locally is the fastest way to serve many tasks,
//! and unfair to other processes: a mere publish never lets them in, because the local waiter asks first.

use std::time::Duration;

use crate::clock::{self, Moment};

/// So many hand-overs in a row…
const HAND_OVERS: u32 = 16;
/// …or so much time, where others may be waiting.
const STRETCH: Duration = Duration::from_millis(50);
/// Where nobody else is known to wait: peers that neither subscribe nor publish still get a chance.
const STRETCH_ALONE: Duration = Duration::from_secs(1);

const LEAST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The state of one key's hand-over budget. A fresh one has its whole budget.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the first hand-over of this stretch happened.
    since: Option<Moment>,
    hand_overs: u32,
    /// Waiters of other processes, as of the last hand-over; `None` if unknown.
    strangers: Option<u64>,
    /// How long to stay away after the next stretch; doubles while this process keeps winning.
    pause: Option<Duration>,
    /// The budget is spent: the next head stays away first.
    stand_back: bool,
}

impl Pace {
    /// Whether the budget allows one more hand-over.
    pub(crate) fn may_hand_over(&self) -> bool {
        let Some(since) = self.since else { return true };
        if self.strangers == Some(0) {
            since.elapsed() < STRETCH_ALONE
        } else {
            self.hand_overs < HAND_OVERS && since.elapsed() < STRETCH
        }
    }

    pub(crate) fn handed_over(&mut self, strangers: Option<u64>) {
        self.since.get_or_insert_with(clock::now);
        self.hand_overs += 1;
        self.strangers = strangers;
    }

    /// The budget is spent: whoever is next stays away from the key for a while.
    pub(crate) fn stand_back(&mut self) {
        self.stand_back = true;
        self.since = None;
        self.hand_overs = 0;
        self.strangers = None;
    }

    /// How long the head must stay away before it asks the store, given a recent round trip.
    pub(crate) fn pause(&mut self, round_trip: Duration) -> Option<Duration> {
        if !std::mem::take(&mut self.stand_back) {
            return None;
        }
        let least = (round_trip * 4).max(LEAST_PAUSE);
        let pause = self.pause.map_or(least, |pause| {
            (pause * 2).clamp(least, LONGEST_PAUSE.max(least))
        });
        self.pause = Some(pause);
        Some(pause.mul_f64(0.75 + fastrand::f64() / 2.0))
    }

    /// Somebody else had the key: the next pause is a short one again.
    pub(crate) fn saw_another(&mut self) {
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_with_strangers_waiting_hands_over_sixteen_times_at_most() {
        let mut pace = Pace::default();
        for _ in 0..16 {
            assert!(pace.may_hand_over());
            pace.handed_over(Some(3));
        }
        assert!(!pace.may_hand_over());
    }

    #[tokio::test(start_paused = true)]
    async fn or_for_fifty_milliseconds() {
        let mut pace = Pace::default();
        pace.handed_over(None);
        tokio::time::advance(Duration::from_millis(49)).await;
        assert!(pace.may_hand_over());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!pace.may_hand_over());
    }

    #[tokio::test(start_paused = true)]
    async fn alone_it_goes_on_for_a_second() {
        let mut pace = Pace::default();
        for _ in 0..1_000 {
            pace.handed_over(Some(0));
        }
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(pace.may_hand_over());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!pace.may_hand_over());
    }

    #[test]
    fn the_pause_doubles_while_the_process_keeps_winning() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(Duration::ZERO), None);
        let mut between = |least: u64, most: u64| {
            pace.stand_back();
            let pause = pace.pause(Duration::from_millis(1)).unwrap();
            let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
            assert!(
                pause >= least.mul_f64(0.75) && pause <= most.mul_f64(1.25),
                "{pause:?}"
            );
        };
        between(5, 5);
        between(10, 10);
        between(20, 20);
        between(40, 40);
        between(50, 50);
        between(50, 50);
        pace.saw_another();
        pace.stand_back();
        assert!(pace.pause(Duration::ZERO).unwrap() < Duration::from_millis(7));
    }
}
