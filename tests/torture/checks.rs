//! What has to be true of a round, each check by its name.

use std::fmt;
use std::time::Duration;

use tests::Hold;
use tests::history::{Violation, violations};

use crate::log::{Log, Write};
use crate::resource::register;
use crate::round::Terms;
use crate::site::Site;
use crate::{LEASE, keys};

/// A check that failed.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.check, self.what)
    }
}

/// The checks of a finished round.
pub(crate) fn all(log: &Log, site: &Site, terms: Terms) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |check, what: Vec<String>| {
        let number = what.len();
        if let Some(first) = what.into_iter().next() {
            let what = format!("{number} in all, the first: {first}");
            found.push(Finding { check, what });
        }
    };
    find("log", log.junk.clone());
    find("overlap", overlap(log, terms));
    find("token", tokens(log));
    find("stale-write", stale_writes(&log.writes));
    if !terms.loses_locks {
        find("refused-holder", refused_holders(&log.writes));
        find("counter", counters(log, site));
    }
    if terms.calm {
        let losses = log.losses.iter();
        find(
            "needless-loss",
            losses.map(|loss| format!("{loss:?}")).collect(),
        );
        // With several processes at one key there is always somebody to wake.
        let silent = site.proxy.messages() == 0;
        find(
            "wake-ups",
            silent
                .then(|| "no message passed".to_owned())
                .into_iter()
                .collect(),
        );
    }
    find("errors", unexpected(log, terms));
    found
}

/// Pairs of certain holds of one key at one time.
pub(crate) fn overlaps(log: &Log) -> Vec<(Hold, Hold)> {
    let found = violations(log.holds.clone()).into_iter();
    found
        .filter_map(|violation| match violation {
            Violation::Overlap(earlier, later) => Some((earlier, later)),
            Violation::Token(..) => None,
        })
        .collect()
}

/// None while the store keeps its data. Else the earlier holder has to be told, or to leave by itself, before its
/// next renewal but one, and an overlap never outlasts the lease.
fn overlap(log: &Log, terms: Terms) -> Vec<String> {
    let wrong = |(earlier, later): &(Hold, Hold)| {
        let long = Duration::from_nanos(earlier.until.min(later.until) - later.from);
        let told = |hold: &Hold| {
            log.losses
                .iter()
                .any(|loss| loss.key == hold.key && loss.holder == hold.holder)
        };
        let why = if !terms.loses_locks {
            "though no lock was lost by the store"
        } else if long > LEASE {
            "longer than a lease"
        } else if long > LEASE * 3 / 4 && !told(earlier) {
            "and nobody was told"
        } else {
            return None;
        };
        Some(format!("{long:.1?}, {why}: {earlier}; {later}"))
    };
    overlaps(log).iter().filter_map(wrong).collect()
}

fn tokens(log: &Log) -> Vec<String> {
    let found = violations(log.holds.clone()).into_iter();
    found
        .filter(|violation| matches!(violation, Violation::Token(..)))
        .map(|violation| violation.to_string().replace('\n', " "))
        .collect()
}

/// In the register's own order, an accepted token is never below an earlier one, and equal only for one holder.
fn stale_writes(writes: &[Write]) -> Vec<String> {
    let mut accepted: Vec<&Write> = writes.iter().filter(|write| write.accepted).collect();
    accepted.sort_by_key(|write| (&write.key, write.number));
    let wrong = |pair: &[&Write]| {
        let (before, after) = (pair[0], pair[1]);
        let stale = before.key == after.key
            && (after.token < before.token
                || after.token == before.token && after.holder != before.holder);
        stale.then(|| format!("{after:?} after {before:?}"))
    };
    accepted.windows(2).filter_map(wrong).collect()
}

/// Somebody who holds for certain has the highest token there is.
fn refused_holders(writes: &[Write]) -> Vec<String> {
    let refused = writes.iter().filter(|write| !write.accepted && write.sure);
    refused.map(|write| format!("{write:?}")).collect()
}

/// Every write of a counter added one, unless it may have come after the lease.
fn counters(log: &Log, site: &Site) -> Vec<String> {
    let wrong = |key: &&str| {
        if log.doubts.contains(*key) {
            return None;
        }
        let number = |field| {
            let value: Option<u64> = site.resource.query(&["HGET", &register(key), field]);
            value.unwrap_or(0)
        };
        let (value, writes) = (number("value"), number("writes"));
        (value != writes).then(|| format!("`{key}` is {value} after {writes} increments"))
    };
    keys::ALL.iter().filter_map(wrong).collect()
}

/// Acquires fail for want of the lock or of the server, and in no other way.
fn unexpected(log: &Log, terms: Terms) -> Vec<String> {
    let fine = |kind: &str| {
        matches!(kind, "dropped" | "ok" | "busy" | "unavailable" | "lost")
            || kind == "denied" && terms.denies
    };
    let kinds = log.refusals.iter().chain(&log.ends);
    kinds
        .filter(|(kind, _)| !fine(kind))
        .map(|(kind, number)| format!("{number} times {kind}"))
        .collect()
}

/// How long after this moment each hot key was held for the first time; those that were not are left out.
pub(crate) fn recoveries(log: &Log, healed: u64) -> Vec<(&'static str, Duration)> {
    let first = |key: &'static str| {
        let holds = log
            .holds
            .iter()
            .filter(|hold| hold.key == key && hold.from >= healed);
        let at = holds.map(|hold| hold.from).min()?;
        Some((key, Duration::from_nanos(at - healed)))
    };
    keys::HOT.into_iter().filter_map(first).collect()
}
