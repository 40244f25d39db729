//! The time for which a process keeps a key to itself, and for which it then leaves the key alone. A local hand-over is the
//! fastest way to serve many tasks, and unfair to other processes: a mere publish never lets them in, because the next local
//! waiter asks first.

use std::time::Duration;

use crate::values::Moment;

/// The length of a slice while other processes may be waiting. A slice ends with the hold that outlasts it.
const SLICE: Duration = Duration::from_millis(2);
/// The least number of round trips in a slice.
const SLICE_IN_ROUND_TRIPS: u32 = 8;
/// The length of a slice if no other process is known to wait: peers that neither subscribe nor publish still get a chance.
const SLICE_ALONE: Duration = Duration::from_secs(1);
/// For how long after a grant the lock goes from turn to turn in this process without a request to the store. After that, other
/// processes may wait, or the lock may have been released by force.
const TURNS_FOR: Duration = Duration::from_millis(2);
/// The least number of round trips in that time: each grant costs a round trip, in which no caller has the lock.
const TURNS_IN_ROUND_TRIPS: u32 = 4;

/// The time in which the lock changes from one process to another: a release, its message, a request and its answer.
const CHANGE_IN_ROUND_TRIPS: u32 = 2;
/// More others do not make a rest longer.
const MOST_OTHERS: u32 = 64;
/// The least rest after a slice: a waiter of another process receives the release's message, and asks, within a round trip of
/// its own.
const REST: Duration = Duration::from_millis(1);
/// One rest in this many is a long one, by chance: waiters that are further from the store than this process get their turn.
const LONG_ONE_IN: u32 = 32;
const LONG_REST: Duration = Duration::from_millis(50);
/// The number of round trips in a long rest of a process that is far away: three slices.
const LONG_REST_IN_ROUND_TRIPS: u32 = SLICE_IN_ROUND_TRIPS * 3;
/// The longest rest, however long the round trips are. So one slow answer does not cost seconds.
const LONGEST_REST: Duration = Duration::from_millis(250);
/// The part of `keep_for` for which a process rests after it: some peers neither announce that they want the key nor listen,
/// and only try now and then.
const REST_AFTER_KEEPING: u32 = 100;
/// The longest such rest: callers of this process who come then wait for no holder.
const LONGEST_REST_AFTER_KEEPING: Duration = Duration::from_millis(10);

/// For how long this process may keep one key. A fresh one has its whole time.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    hand_overs: Option<HandOvers>,
    /// Until when the process may keep the key between its holds, and for how long it then rests at least.
    kept: Option<(Moment, Duration)>,
    /// Whether the caller that has the lock had to wait for another process.
    contended: bool,
}

/// The time in which the lock goes from caller to caller of this process.
#[derive(Clone, Copy, Debug)]
struct HandOvers {
    since: Moment,
    until: Moment,
    /// The number of waiters of other processes, as of the store's last answer. 0 if it cannot be known.
    others: u64,
}

/// What this process knows of other processes that want a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// This number of other processes was seen to want the key lately; it may be none.
    Seen(u64),
    /// They and this process take turns by the store's list: a release reserves the lock for the first on it.
    InTurns,
}

impl Slice {
    /// Whether there is time for one more hand-over.
    pub(crate) fn may_hand_over(&self, now: Moment) -> bool {
        self.hand_overs
            .is_none_or(|slice| !now.has_reached(slice.until))
    }

    /// The store has granted the lock to this process, or to its next holder. Returns until when the lock may go round in this
    /// process without the store. `notice_time`: see [`Backend`](crate::backend::Backend::notice_time).
    pub(crate) fn granted(
        &mut self,
        others: Option<u64>,
        notice_time: Duration,
        now: Moment,
    ) -> Moment {
        let since = self.hand_overs.map_or(now, |slice| slice.since);
        let until = since
            + match others {
                Some(0) => SLICE_ALONE,
                _ => length(notice_time),
            };
        self.hand_overs = Some(HandOvers {
            since,
            until,
            others: others.unwrap_or(0),
        });
        (now + TURNS_FOR.max(notice_time * TURNS_IN_ROUND_TRIPS)).earlier(until)
    }

    /// Whether the lock may go to a caller of this process that came after its guard was dropped. `held_for`: the length of
    /// the turn that has ended. So another process waits for a slice, and never for a long turn plus a slice.
    pub(crate) fn may_return(&self, held_for: Duration, notice_time: Duration) -> bool {
        self.knows_nobody() && held_for < length(notice_time)
    }

    /// Whether the store's last answer named no waiter of another process.
    pub(crate) fn knows_nobody(&self) -> bool {
        self.hand_overs.is_none_or(|slice| slice.others == 0)
    }

    /// Another caller of this process asks the store: what it gets begins a slice.
    pub(crate) fn begins_anew(&mut self) {
        self.hand_overs = None;
        self.contended = false;
    }

    /// The caller had to wait for another process.
    pub(crate) fn note_contended(&mut self) {
        self.contended = true;
    }

    /// The process keeps the key between its holds, from now on or still.
    pub(crate) fn keeps(&mut self, keep_for: Duration, now: Moment) {
        let rest = (keep_for / REST_AFTER_KEEPING).min(LONGEST_REST_AFTER_KEEPING);
        self.kept.get_or_insert((now + keep_for, rest));
    }

    /// False once the process has kept the key for `keep_for`: further turns do not begin that time anew.
    pub(crate) fn may_keep(&self, now: Moment) -> bool {
        self.kept.is_none_or(|(until, _)| !now.has_reached(until))
    }

    /// No caller of this process has used the key for a while: others had their chance.
    pub(crate) fn note_unused(&mut self) {
        self.kept = None;
    }

    /// Another process wants the key. It asks when it receives the release's message; this process asks later.
    pub(crate) fn note_wanted(&mut self, now: Moment) {
        self.kept = Some((now, Duration::ZERO));
    }

    /// The key has been given back. Returns for how long no caller of this process asks for it. Without that, other processes
    /// would have to win a race for each hold or slice, and one whose core is busy would lose nearly all of these races.
    /// `held_for`: the length of the turn that has ended.
    ///
    /// Turns that were shorter than a slice have a rest by chance, so that there is about one in the time of a slice.
    ///
    /// After a slice, most of the others get as much time as this process had, and the time in which the lock changes hands.
    /// The length depends on nothing that happened before the slice. Rests that grew while a process kept winning starved
    /// processes that met nobody.
    pub(crate) fn rest(
        &mut self,
        others: Others,
        held_for: Duration,
        notice_time: Duration,
        now: Moment,
    ) -> Option<Duration> {
        let kept = self.kept.take_if(|(until, _)| now.has_reached(*until));
        let slice = self.hand_overs.take();
        let contended = std::mem::take(&mut self.contended);
        let least = a_few(notice_time);
        if let Some((_, rest)) = kept {
            return Some(rest.max(least));
        }
        let kept_for = slice.map_or(held_for, |slice| now - slice.since);
        let slice = slice.filter(|slice| now.has_reached(slice.until));
        let others_come_first = match others {
            Others::Seen(processes) => {
                let is_due = || length(notice_time).mul_f64(fastrand::f64()) <= kept_for;
                slice.is_some() || processes > 0 && is_due()
            }
            // Those that are not on the list need a rest.
            Others::InTurns => slice.is_some_and(|slice| slice.others == 0),
        };
        if !others_come_first {
            return None;
        }
        let rest = if fastrand::u32(..LONG_ONE_IN) == 0 {
            long(notice_time)
        } else {
            // Those that were seen lately may want nothing just now. Only if this process had to wait do they want it now.
            let seen = match others {
                // One of them takes the lock at once.
                Others::Seen(processes) if contended => processes.saturating_sub(1),
                _ => 0,
            };
            let counted = slice.map_or(0, |slice| slice.others);
            turns(counted.max(seen), kept_for, notice_time).clamp(least, long(notice_time))
        };
        Some(rest.mul_f64(0.75 + fastrand::f64() / 2.0))
    }
}

/// The time that so many others need for slices of this length.
fn turns(others: u64, length: Duration, notice_time: Duration) -> Duration {
    let others = u32::try_from(others).unwrap_or(u32::MAX);
    (length * 3 / 4 + notice_time * CHANGE_IN_ROUND_TRIPS) * others.min(MOST_OTHERS)
}

/// The length of a slice while other processes may be waiting.
fn length(notice_time: Duration) -> Duration {
    SLICE.max(notice_time * SLICE_IN_ROUND_TRIPS)
}

fn long(notice_time: Duration) -> Duration {
    (notice_time * LONG_REST_IN_ROUND_TRIPS).clamp(LONG_REST, LONGEST_REST)
}

/// Long enough for others to ask.
fn a_few(notice_times: Duration) -> Duration {
    (notice_times * 4).clamp(REST, LONGEST_REST)
}

#[cfg(test)]
mod tests;
