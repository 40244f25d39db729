//! The checks of what several processes said of their locks, each with its name.

use std::fmt;
use std::time::Duration;

use lock_runtime::LostReason;

use super::log::{Log, Loss, Share, Wait, Write};
use super::names::{self, client_of, is_renewed};
use crate::history::{Hold, Violation, violations};
use crate::workload::WAIT;

/// A check that failed.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    /// What it found.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.check, self.what)
    }
}

impl Finding {
    /// Returns the finding of a check, if it found anything.
    pub fn of(check: &'static str, what: Vec<String>) -> Option<Self> {
        let number = what.len();
        let first = what.into_iter().next()?;
        let what = format!("{number} in all, the first: {first}");
        Some(Self { check, what })
    }
}

/// The facts about a round that the checks have to know.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The lease of every lock.
    pub lease: Duration,
    /// Whether nothing went wrong on purpose.
    pub calm: bool,
    /// Whether the store may have lost locks, or ended leases too early.
    pub loses_locks: bool,
    /// Whether the store may have been emptied.
    pub forgets: bool,
    /// Whether the store may have refused requests.
    pub denies: bool,
    /// Whether processes may have shut down while their tasks went on.
    pub closes: bool,
    /// Whether there were two faults at once.
    pub two: bool,
    /// Whether another server may have taken over.
    pub fails_over: bool,
    /// Whether two servers may have granted locks side by side.
    pub splits: bool,
    /// The time since which there is one such server again.
    pub healed: Option<u64>,
    /// How far the store's clock stepped forward at once.
    pub jump: Option<Duration>,
    /// How soon a renewal tells a holder that the store has forgotten its lock, if nothing holds that up.
    pub told_within: Option<Duration>,
}

/// Runs the checks that need nothing but what was said.
pub fn findings(log: &Log, terms: &Terms) -> Vec<Finding> {
    let mut found = vec![
        ("log", log.junk.clone()),
        ("overlap", overlap(log, terms)),
        ("stale-write", stale_writes(&log.writes, terms)),
        ("errors", unexpected(log, terms)),
    ];
    if !terms.splits {
        found.push(("token", tokens(log, terms)));
    }
    if !terms.loses_locks {
        found.push(("refused-holder", refused_holders(&log.writes)));
        if !terms.forgets {
            found.push(("false-loss", false_losses(log)));
        }
    }
    if terms.calm {
        let losses = log.losses.iter().map(|loss| format!("{loss:?}"));
        let at_once = log.refusals.get("lost");
        let at_once = at_once.map(|times| format!("{times} acquires got what was lost already"));
        found.push(("needless-loss", losses.chain(at_once).collect()));
    }
    let found = found.into_iter();
    found
        .filter_map(|(check, what)| Finding::of(check, what))
        .collect()
}

/// Returns the pairs of certain holds of one key that overlapped though they exclude each other.
pub fn overlaps(log: &Log) -> Vec<(Hold, Hold)> {
    // A guard that was never seen to hold was certain of nothing: its process may have been frozen just before.
    let certain = log.holds.iter().filter(|hold| hold.until > hold.from);
    let found = violations(certain.cloned().collect()).into_iter();
    found
        .filter_map(|violation| match violation {
            Violation::Overlap(earlier, later) => Some((earlier, later)),
            Violation::Token(..) => None,
        })
        .chain(crowds(&log.shares))
        .collect()
}

/// Returns the shared holds that were one too many when they began, each with the one whose end made room for it.
fn crowds(shares: &[Share]) -> Vec<(Hold, Hold)> {
    let certain = shares
        .iter()
        .filter(|share| share.hold.until > share.hold.from);
    let mut shares: Vec<&Share> = certain.collect();
    shares.sort_by_key(|share| (&share.hold.key, share.hold.from));
    let mut inside: Vec<&Share> = Vec::new();
    let mut found = Vec::new();
    for share in shares {
        let hold = &share.hold;
        inside.retain(|other| other.hold.key == hold.key && other.hold.until > hold.from);
        inside.sort_by_key(|other| other.hold.until);
        let room = names::room(&hold.key).saturating_sub(share.weight);
        let mut taken: u64 = inside.iter().map(|other| other.weight).sum();
        if taken > room {
            let makes_room = inside.iter().find(|other| {
                taken -= other.weight;
                taken <= room
            });
            found.extend(makes_room.map(|earlier| (earlier.hold.clone(), hold.clone())));
        }
        inside.push(share);
    }
    found
}

/// Returns the overlaps of two holds that must not be.
///
/// While the store keeps its data there are none. Otherwise, an overlap ends with the earlier one's lease, which nobody
/// extends any more. If two masters lived side by side, it ends at most a lease after there is one master again. A
/// store that is there tells a loser at its next renewal, which is long before the lease ends.
fn overlap(log: &Log, terms: &Terms) -> Vec<String> {
    let lease = nanos(terms.lease);
    let wrong = |(earlier, later): &(Hold, Hold)| {
        let until = earlier.until.min(later.until);
        let long = Duration::from_nanos(until - later.from);
        let why = if !terms.loses_locks {
            "though no lock was lost by the store"
        } else if terms.jump.is_some_and(|jump| long > jump) {
            "longer than the clock jumped"
        } else if terms.splits && terms.healed.is_some_and(|healed| until > healed + lease) {
            "a lease after there was one master again"
        } else if !terms.splits && long > terms.lease {
            "longer than a lease"
        } else if terms.told_within.is_some_and(|bound| long > bound) && is_renewed(&earlier.key) {
            "longer than it takes a renewal to tell its holder"
        } else if !terms.fails_over && !terms.two && was_to_be_told(log, earlier, later) {
            "and its holder was not told"
        } else {
            return None;
        };
        Some(format!("{long:.1?}, {why}: {earlier}; {later}"))
    };
    overlaps(log).iter().filter_map(wrong).collect()
}

/// Returns whether the loser of two holds that overlapped could notice, and did not.
///
/// The store had ended the one with the lower token when it granted the other one: a client that had to wait for a
/// processor may have begun the earlier one later. It could notice if it was not killed, asked for the answer to its
/// release and got one, and held alone: if several share, it is not known here which one lost its share. A holder that
/// passed the lock on inside its process asked nothing, and neither did one whose process keeps the lock.
fn was_to_be_told(log: &Log, earlier: &Hold, later: &Hold) -> bool {
    let (loser, winner) = match (earlier.token, later.token) {
        (Some(one), Some(other)) if other < one => (later, earlier),
        _ => (earlier, later),
    };
    let is_exclusive = |other: &Hold| other.holder == loser.holder && other.key == loser.key;
    let passed_on = |next: &Hold| has_range_of(loser, next) && next.token < winner.token;
    !is_told_or_gone(log, loser)
        && log.holds.iter().any(is_exclusive)
        && !names::is_kept(&loser.key)
        && !log.holds.iter().any(passed_on)
}

/// Returns whether the next hold may have its token from the range of the one before it, which the store gave to their
/// process. Two holds of one process that ask the store have the tokens of others between them, if there were others.
fn has_range_of(before: &Hold, next: &Hold) -> bool {
    next.key == before.key
        && next.token > before.token
        && client_of(&next.holder) == client_of(&before.holder)
}

/// Returns whether the hold may have a token that its process had in hand when another one was granted the lock.
fn had_token_in_hand(log: &Log, hold: &Hold, other: &Hold) -> bool {
    let mut holds = log.all_holds();
    holds.any(|before| before.from < other.from && has_range_of(before, hold))
}

/// Returns the losses because the store did not know the lock. There are none while the store keeps every lock: that
/// the client does not know is another reason, and so is a lease that ran out.
fn false_losses(log: &Log) -> Vec<String> {
    let refused = |loss: &&Loss| loss.why == format!("{:?}", LostReason::Refused);
    let refused = log.losses.iter().filter(refused);
    refused.map(|loss| format!("{loss:?}")).collect()
}

/// Returns whether a holder noticed that it lost its lock, at the latest when it gave the lock back.
pub fn is_told(log: &Log, hold: &Hold) -> bool {
    let mut losses = log.losses.iter();
    losses.any(|loss| loss.key == hold.key && loss.holder == hold.holder)
}

/// Returns whether a holder noticed that it lost its lock, or cannot have been told: it was killed, or did not wait for the
/// answer to its release.
fn is_told_or_gone(log: &Log, hold: &Hold) -> bool {
    let died = |name: &String| client_of(&hold.holder) == name;
    is_told(log, hold) || log.untold.contains(&hold.holder) || log.killed.iter().any(died)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the tokens that did not rise.
///
/// If locks may be lost, the members of a set are left out: if they are taken one by one, a member is held for longer
/// than the guard, and somebody else may have had it in between, with a higher token.
fn tokens(log: &Log, terms: &Terms) -> Vec<String> {
    let with_tokens = log.all_holds().filter(|hold| {
        hold.token.is_some() && !(terms.loses_locks && hold.key.starts_with("multi"))
    });
    let found = violations(with_tokens.cloned().collect()).into_iter();
    found
        .filter(|violation| match violation {
            // If the store has lost a lock, holders that come to know of their grant late have lower tokens than those
            // who came meanwhile: the last turns of a tenure, and who had its answer on the way. They are told, and a
            // resource that compares tokens refuses their writes, which another check looks at.
            Violation::Token(other, later) => {
                !terms.loses_locks
                    || !had_token_in_hand(log, later, other) && !is_told_or_gone(log, later)
            }
            _ => false,
        })
        .map(|violation| violation.to_string().replace('\n', " "))
        .collect()
}

/// Returns the writes that were accepted too late. In the register's own order, an accepted token is never below an
/// earlier one, and it is equal only for one holder. Exception: two masters may
/// have given equal tokens in one microsecond.
fn stale_writes(writes: &[Write], terms: &Terms) -> Vec<String> {
    let fenced = writes.iter().filter(|write| write.token > 0);
    let mut accepted: Vec<&Write> = fenced.filter(|write| write.accepted).collect();
    accepted.sort_by_key(|write| (&write.key, write.number));
    let wrong = |pair: &[&Write]| {
        let (before, after) = (pair[0], pair[1]);
        let stale = before.key == after.key
            && (after.token < before.token
                || !terms.splits && after.token == before.token && after.holder != before.holder);
        stale.then(|| format!("{after:?} after {before:?}"))
    };
    accepted.windows(2).filter_map(wrong).collect()
}

/// Returns the refused writes of certain holders. A certain holder has the highest token there is.
fn refused_holders(writes: &[Write]) -> Vec<String> {
    let refused = writes.iter().filter(|write| !write.accepted && write.sure);
    refused.map(|write| format!("{write:?}")).collect()
}

/// Returns the outcomes that must not be. Acquires fail because the lock is held or the server is away, and in few
/// other ways.
fn unexpected(log: &Log, terms: &Terms) -> Vec<String> {
    let fine = |kind: &str| {
        matches!(kind, "dropped" | "ok" | "busy" | "unavailable" | "lost")
            || kind == "denied" && terms.denies
            || kind == "closing" && terms.closes
            // Only a semaphore may say so. Its number is set before the first request, so the store must have forgotten it.
            || kind == "unset" && (terms.forgets || terms.fails_over && terms.loses_locks)
    };
    let kinds = log.refusals.iter().chain(&log.ends);
    kinds
        .filter(|(kind, _)| !fine(kind))
        .map(|(kind, number)| format!("{number} times {kind}"))
        .collect()
}

/// Returns the waits during which the lock was not used for longer than `bound` says of its key. A lock that nobody uses
/// and somebody waits for goes to that one soon.
pub fn unused_while_waited_for(log: &Log, bound: impl Fn(&str) -> Option<Duration>) -> Vec<String> {
    let long = log.waits.iter().filter_map(|wait| {
        let bound = bound(&wait.key)?;
        let rest = longest_rest(log, wait);
        (rest > bound).then_some((wait, rest))
    });
    long.map(|(wait, rest)| {
        let key = &wait.key;
        format!("nobody used `{key}` for {rest:.1?}, and it was waited for: {wait:?}")
    })
    .collect()
}

/// Returns the waits that were granted their key before an earlier one was. `margin`: by how much later the second one has to
/// ask, and by how much sooner to end; `None` if these two are in no order.
pub fn overtaken(log: &Log, margin: impl Fn(&Wait, &Wait) -> Option<Duration>) -> Vec<String> {
    let mut waits: Vec<&Wait> = log.waits.iter().collect();
    waits.sort_by_key(|wait| (&wait.key, wait.asked));
    let mut found = Vec::new();
    for (index, first) in waits.iter().enumerate() {
        let during = waits[index + 1..].iter();
        let during = during.take_while(|it| it.key == first.key && it.asked < first.until);
        // Others may have ended without the lock.
        let granted = during.filter(|it| it.until - it.asked < nanos(WAIT));
        for second in granted {
            let is_overtaken = margin(first, second).is_some_and(|margin| {
                let margin = nanos(margin);
                first.asked + margin < second.asked && second.until + margin < first.until
            });
            if is_overtaken {
                found.push(format!("{second:?} overtook {first:?}"));
            }
        }
    }
    found
}

/// Returns the longest time within a wait in which nobody held the lock.
fn longest_rest(log: &Log, wait: &Wait) -> Duration {
    let within = wait.asked..wait.until;
    let holds = log
        .holds
        .iter()
        .filter(|hold| hold.key == wait.key && hold.from < within.end && hold.until > within.start);
    let mut holds: Vec<_> = holds.map(|hold| (hold.from, hold.until)).collect();
    holds.sort_unstable();
    let (mut free_since, mut longest) = (within.start, 0);
    for (from, until) in holds.into_iter().chain([(within.end, within.end)]) {
        longest = longest.max(from.saturating_sub(free_since));
        free_since = free_since.max(until);
    }
    Duration::from_nanos(longest)
}
