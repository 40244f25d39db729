//! The times for which locks were away from those who wanted them.

use std::time::Duration;

use tests::Hold;

use crate::LEASE;
use crate::keys::{self, Way, Workload};
use crate::round::Strike;
use tests::judge::names::{WRITER, client_of};
use tests::judge::{Log, Terms};
use tests::workload::How;

/// The time after the end of its lease within which a killed client's lock is had by another, at p99.
pub(crate) const TAKEOVER: Duration = Duration::from_millis(250);
/// The time that a machine that stands still may add to the one in a hundred.
const STANDSTILL: Duration = Duration::from_secs(1);
/// The time within which a lock that is free and wanted is had, with every message lost: the cap and a fifth of it, and
/// a round trip of this program's processes on a busy machine.
const GAP: Duration = Duration::from_millis(1_200 + 250);

/// The same time if messages arrive and nobody leaves a lock to its lease.
pub(crate) const IN_PEACE: Duration = Duration::from_millis(750);
/// The same time at p50, if the lock goes from one client to another. A reservation of which nobody hears makes it more:
/// it lasts for twice as long.
const CHANGE: Duration = Duration::from_millis(50);

/// Returns the late takeovers, if they are more than the one in a hundred that may be late, or if one is beyond all
/// reason.
pub(crate) fn late_takeovers(times: &[Duration]) -> Vec<String> {
    let late: Vec<_> = times.iter().filter(|time| **time > TAKEOVER).collect();
    let excused = late.len() <= may_be_late(times.len())
        && late.iter().all(|time| **time <= TAKEOVER + STANDSTILL);
    let late = late.into_iter().filter(|_| !excused);
    late.map(|time| format!("{time:.1?} after the end of the lease"))
        .collect()
}

/// Returns how many of `number` are not part of the 99th percentile. Of few, it is one.
pub(crate) fn may_be_late(number: usize) -> usize {
    number.div_ceil(100)
}

/// Returns how long after the end of its lease each lock of a dead holder was had by the next one, if nothing else went
/// wrong.
///
/// The store does not tell which holder was killed. A lock that was held until its lease was over was a dead one's.
pub(crate) fn takeovers(log: &Log, terms: &Terms, strikes: &[Strike]) -> Vec<Duration> {
    /// The tolerance in nanoseconds, because the store and the harness do not look at one moment.
    const APART: u64 = 20_000_000;
    let next = |strike: &Strike, (key, due): (&str, u64)| {
        let holds = log.all_holds();
        let later = holds.filter(|hold| hold.key == key && hold.from > strike.begun);
        let from = later.map(|hold| hold.from).min()?;
        (from + APART >= due).then(|| Duration::from_nanos(from.saturating_sub(due)))
    };
    let strikes = strikes.iter().filter(|_| !terms.two);
    strikes
        .flat_map(|strike| {
            let left = strike.left_behind.iter().copied();
            left.filter_map(move |left| next(strike, left))
        })
        .collect()
}

/// A key, and the time for which it was free.
pub(crate) type Gap = (&'static str, Duration);

/// Returns for how long mutexes that are always wanted were free while waiters were told nothing.
pub(crate) fn gaps_without_messages(
    log: &Log,
    workload: Workload,
    terms: &Terms,
    strikes: &[Strike],
) -> Vec<Gap> {
    let silent = strikes
        .iter()
        .filter(|strike| strike.lost_messages && !terms.two);
    silent
        .flat_map(|strike| gaps(log, &workload.wanted(), strike.begun, strike.healed))
        .collect()
}

/// Returns the gaps of locks that were given back between two moments, whenever they were had again.
fn gaps(log: &Log, keys: &[&'static str], since: u64, until: u64) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for key in keys {
        let holds = in_order(log, key);
        let pairs = holds.windows(2);
        let within = pairs.filter(|pair| (since..until).contains(&pair[0].until));
        gaps.extend(within.map(|pair| (*key, gap(pair))));
    }
    gaps
}

/// Returns the holds of a key in the order in which they began.
fn in_order<'a>(log: &'a Log, key: &str) -> Vec<&'a Hold> {
    let mut holds: Vec<_> = log.holds.iter().filter(|hold| hold.key == key).collect();
    holds.sort_unstable_by_key(|hold| (hold.from, hold.until));
    holds
}

/// Returns how long nobody held between two holds.
fn gap(pair: &[&Hold]) -> Duration {
    Duration::from_nanos(pair[1].from.saturating_sub(pair[0].until))
}

/// Returns the gaps that are too long. Waiters look for themselves within the cap. In a calm round they need not,
/// because nobody leaves a lock to its lease.
pub(crate) fn long_gaps(
    log: &Log,
    workload: Workload,
    terms: &Terms,
    strikes: &[Strike],
) -> Vec<String> {
    let gaps = if terms.calm {
        gaps(log, &workload.wanted_in_peace(), 0, u64::MAX)
    } else {
        gaps_without_messages(log, workload, terms, strikes)
    };
    let bound = |key: &str| match (
        terms.calm && workload.topology.tells(),
        keys::FAIR.contains(&key),
    ) {
        (true, _) => IN_PEACE,
        (false, false) => GAP,
        // The first in the queue may give up just when it is called. The next one looks for itself as well.
        (false, true) => GAP * 2,
    };
    let long = gaps.into_iter().filter(|(key, gap)| *gap > bound(key));
    long.map(|(key, gap)| format!("`{key}` was free for {gap:.1?}, though wanted"))
        .collect()
}

/// Returns the mutexes, among those that are always wanted, that changed clients slowly. This is for calm rounds only.
pub(crate) fn slow_changes(log: &Log, workload: Workload) -> Vec<String> {
    let p50 = |key: &&str| {
        let holds = in_order(log, key);
        let changes = holds
            .windows(2)
            .filter(|pair| client_of(&pair[0].holder) != client_of(&pair[1].holder));
        let mut gaps: Vec<_> = changes.map(gap).collect();
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied()
    };
    let wanted = workload.wanted().into_iter();
    wanted
        .filter_map(|key| Some((key, p50(&key)?)))
        .filter(|(_, gap)| *gap > CHANGE)
        .map(|(key, gap)| format!("`{key}` was free for {gap:.1?} at p50 when it changed clients"))
        .collect()
}

/// Returns how long after the strike each hot key was had for the first time, in each way in which it is taken. `None`
/// if it was not.
///
/// After a failover only grants of the new master count, by their tokens, which are its clock's microseconds: a grant
/// of the old master may still be on its way. A hold without a token counts from the new master's first answer on.
pub(crate) fn recoveries(
    log: &Log,
    workload: Workload,
    strike: &Strike,
) -> Vec<(Way, Option<Duration>)> {
    let first = |way: Way| {
        let holds = holds_of(log, way).filter(|hold| {
            let is_new = strike.answered.is_none_or(|answered| match hold.token {
                Some(token) => token > strike.begun_us,
                None => hold.from >= answered,
            });
            hold.from >= strike.since() && is_new
        });
        let at = holds.map(|hold| hold.from).min();
        at.map(|at| Duration::from_nanos(at - strike.since()))
    };
    let hot = workload.hot();
    let mut ways = workload.ways();
    ways.retain(|(key, _)| {
        let affected = strike.affected.as_ref();
        hot.contains(key) && affected.is_none_or(|affected| affected.contains(key))
    });
    ways.into_iter().map(|way| (way, first(way))).collect()
}

/// Returns the ways in which a key was taken, and never had.
pub(crate) fn never_had(log: &Log, workload: Workload) -> Vec<Way> {
    let mut ways = workload.ways();
    // One task takes a lock of its client's own. It may drop its only request, and then pause to the end.
    ways.retain(|way| !way.0.starts_with("keep-own") && holds_of(log, *way).next().is_none());
    ways
}

/// Returns the clients, of these, that have had nothing since the strike. What a client had before may go round among its own
/// tasks until its lease is over, so that counts for nothing.
pub(crate) fn still_away(log: &Log, clients: Vec<&str>, strike: &Strike) -> Vec<String> {
    let lease = u64::try_from(LEASE.as_nanos()).unwrap_or(u64::MAX);
    let since = strike.since().max(strike.begun + lease);
    let is_back = |client: &&str| {
        let mut holds = log.all_holds();
        holds.any(|hold| hold.from >= since && client_of(&hold.holder) == *client)
    };
    let away = clients.into_iter().filter(|client| !is_back(client));
    away.map(str::to_owned).collect()
}

/// Returns the holds of a key that was taken in this way.
fn holds_of(log: &Log, (key, how): Way) -> impl Iterator<Item = &Hold> {
    let shares = log.shares.iter().filter(move |share| match how {
        How::Read => share.weight < WRITER,
        How::Write => share.weight == WRITER,
        _ => true,
    });
    let shares = shares.map(|share| &share.hold);
    log.holds
        .iter()
        .chain(shares)
        .filter(move |hold| hold.key == key)
}
