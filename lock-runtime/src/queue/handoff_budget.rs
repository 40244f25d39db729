//! The time for which one process may keep a key to itself. Handing over locally is the fastest way to serve many
//! tasks, and unfair to other processes: a mere publish never lets them in, because the local waiter asks first.

use std::time::Duration;

use tokio::time::Instant;

use crate::values::{Moment, clock};

/// The time for which a process hands over to itself while others may be waiting. A stretch ends with the hold that
/// outlasts it.
const STRETCH: Duration = Duration::from_millis(2);
/// So many round trips at least.
const STRETCH_IN_ROUND_TRIPS: u32 = 8;
/// The time in which the lock changes from one process to another: a release, its message, a question and its answer.
const CHANGE_IN_ROUND_TRIPS: u32 = 2;
/// For how long the store is not asked while the lock goes round in this process: by then others may wait, or the lock
/// may have been released by force.
const TENURE: Duration = Duration::from_millis(2);
/// So many round trips at least: each tenure costs one, in which nobody has the lock.
const TENURE_IN_ROUND_TRIPS: u32 = 4;
/// The length of a stretch if nobody else is known to wait: peers that neither subscribe nor publish still get a chance.
const STRETCH_ALONE: Duration = Duration::from_secs(1);

/// The least time for which a process stays away after a stretch: a waiter of another one hears of the release and asks
/// within a round trip of its own.
const PAUSE: Duration = Duration::from_millis(1);
/// So many stretches in a row without seeing another process have the lock, and the next pause is a long one: waiters
/// that are slower to ask than this process get their turn.
const STRETCHES_UNSEEN: u32 = 8;
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// Four round trips, and three stretches of a process that is far away, count as no more than this.
const LONGEST_WAY: Duration = Duration::from_millis(250);
/// Which part of the time a process leaves a key alone that it keeps between its holds, at the end of each `keep_for`: some
/// neither say that they want it nor listen, and only try now and then.
const LEFT_ALONE: u32 = 100;
/// The longest time for which it does so: callers of this process who come then wait for no holder.
const LEFT_ALONE_AT_MOST: Duration = Duration::from_millis(10);

/// How long a head stays away from a key. If it hears of others, the times count from `since`, else from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The moment before the process released the lock.
    pub(crate) since: Instant,
    pub(crate) least: Duration,
    pub(crate) most: Duration,
    /// The number of other processes that waited when this one gave the lock back.
    pub(crate) others: u64,
    /// It is over once so many releases by others were heard of, though not before `least`.
    pub(crate) releases: u64,
}

/// How long the next head stays away, as the end of a stretch says.
#[derive(Clone, Copy, Debug)]
struct StandBack {
    /// The moment before the process released the lock.
    since: Instant,
    /// The number of others that wait.
    others: u64,
    /// How long the process had the lock.
    stretch: Duration,
}

/// The state of one key's hand-over budget. A fresh one has its whole budget.
#[derive(Debug, Default)]
pub(crate) struct HandoffBudget {
    /// The moments of this stretch's beginning, and of its end as of the store's last answer.
    stretch: Option<(Moment, Moment)>,
    /// Waiters of other processes, as of then; `None` if unknown.
    strangers: Option<u64>,
    /// Stretches since this process last saw another one have the lock.
    unseen: u32,
    /// The budget is spent: the next head stays away first.
    stand_back: Option<StandBack>,
    /// Until when the process may keep the key between its holds, and for how long it then leaves it alone at least.
    kept: Option<(Moment, Duration)>,
}

impl HandoffBudget {
    /// Whether the budget allows one more hand-over.
    pub(crate) fn may_hand_over(&self) -> bool {
        !self.stands_back() && self.stretch.is_none_or(|(_, end)| !end.has_passed())
    }

    /// The store has given the lock to this process, or to its next holder. Until when it may go round in this process without
    /// the store. `round_trip`: a recent one.
    pub(crate) fn tenure_begins(&mut self, strangers: Option<u64>, round_trip: Duration) -> Moment {
        let now = clock::now();
        let since = self.stretch.map_or(now, |(since, _)| since);
        let end = since
            + match strangers {
                Some(0) => STRETCH_ALONE,
                _ => STRETCH.max(round_trip * STRETCH_IN_ROUND_TRIPS),
            };
        self.stretch = Some((since, end));
        self.strangers = strangers;
        (now + TENURE.max(round_trip * TENURE_IN_ROUND_TRIPS)).earlier(end)
    }

    /// The budget is spent: the next head stays away from the key for a while.
    ///
    /// Where others wait, most of them get as much time as this process had, and the time in which the lock changes. Each
    /// would otherwise have to win a race for every stretch, against all of the others, and one whose core is busy would
    /// lose nearly all of these races.
    pub(crate) fn stand_back(&mut self) {
        let stretch = self.stretch.take();
        // A release that is left to the background says so again, about the same stretch.
        if stretch.is_none() && self.stands_back() {
            return;
        }
        self.stand_back = Some(StandBack {
            since: clock::tick(),
            others: self.strangers.take().unwrap_or(0),
            stretch: stretch.map_or(Duration::ZERO, |(since, _)| since.elapsed()),
        });
    }

    /// Whether the next head stays away first.
    pub(crate) fn stands_back(&self) -> bool {
        self.stand_back.is_some()
    }

    /// Returns how long the head must stay away before it asks the store, given a recent round trip. Where others have their
    /// turns and need less time for them, nobody would have the lock for the rest of the pause: so it ends then. Half of it
    /// remains in any case, for all releases that are heard may be those of one process.
    ///
    /// A pause that grew while a process kept winning did starve some: those with short pauses met each other and kept
    /// them, and those with long ones met nobody.
    pub(crate) fn pause(&mut self, round_trip: Duration) -> Option<Pause> {
        let StandBack {
            since,
            others,
            stretch,
        } = self.stand_back.take()?;
        self.unseen += 1;
        let turn = stretch * 3 / 4 + round_trip * CHANGE_IN_ROUND_TRIPS;
        let turns = turn * u32::try_from(others).unwrap_or(u32::MAX).min(64);
        // Others that had no turn the last time may only listen: nobody would have the lock meanwhile.
        let longest = match self.unseen {
            1 => far(round_trip),
            _ => LONG_PAUSE,
        };
        let turns = turns.min(longest);
        let least = a_few(round_trip).max(turns / 2);
        let (mut most, mut releases) = (least.max(turns), others);
        if self.unseen.is_multiple_of(STRETCHES_UNSEEN) {
            // The turn of anybody ends it: two processes could otherwise both stay away for so long.
            (most, releases) = (most.max(LONG_PAUSE), 1);
        }
        let jitter = 0.75 + fastrand::f64() / 2.0;
        let [least, most] = [least, most].map(|pause| pause.mul_f64(jitter));
        Some(Pause {
            // Where nobody is known to wait, somebody may be about to ask, after the release.
            since: if others == 0 { clock::tick() } else { since },
            least,
            most,
            others,
            releases,
        })
    }

    /// The process keeps the key between its holds, from now on or still.
    pub(crate) fn keeps(&mut self, keep_for: Duration, now: Moment) {
        let alone = (keep_for / LEFT_ALONE).min(LEFT_ALONE_AT_MOST);
        self.kept.get_or_insert((now + keep_for, alone));
    }

    /// Whether it may go on to keep the key.
    pub(crate) fn may_keep(&self, now: Moment) -> bool {
        self.kept.is_none_or(|(until, _)| !now.has_reached(until))
    }

    /// Nobody of this process has used the key for a while.
    pub(crate) fn rests(&mut self) {
        self.kept = None;
    }

    /// Somebody else wants the key: they ask as soon as they hear that it is free, and this process not before them.
    pub(crate) fn is_wanted(&mut self, now: Moment) {
        self.kept = Some((now, Duration::ZERO));
    }

    /// The key has been given back. For how long nobody of this process asks for it, if it was kept for long enough.
    pub(crate) fn leave_alone(&mut self, round_trip: Duration, now: Moment) -> Option<Duration> {
        let (_, alone) = self.kept.take_if(|(until, _)| now.has_reached(*until))?;
        // After a stretch of hand-overs, the next head stays away anyway.
        let pause = alone.max(a_few(round_trip));
        self.stand_back.is_none().then_some(pause)
    }

    /// Another process had the key.
    pub(crate) fn saw_another(&mut self) {
        self.stretch = None;
        self.unseen = 0;
    }

    /// Another process has given the key back.
    pub(crate) fn heard_others(&mut self) {
        self.unseen = 0;
    }
}

/// Three stretches of a process that is far away; [`LONG_PAUSE`] at least.
fn far(round_trip: Duration) -> Duration {
    (round_trip * STRETCH_IN_ROUND_TRIPS * 3).clamp(LONG_PAUSE, LONGEST_WAY)
}

/// Long enough for others to ask. One slow answer lifts the measure: nobody stays away for seconds because of it.
fn a_few(round_trips: Duration) -> Duration {
    (round_trips * 4).clamp(PAUSE, LONGEST_WAY)
}

#[cfg(test)]
mod tests;
