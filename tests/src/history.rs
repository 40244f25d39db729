//! Recorded holds, and the check that no two of one key overlapped and no token went backwards.
//!
//! A recorded hold is the time in which a client may *act* as the holder: from the return of
//! `acquire` to the earliest of the call of `release`, the loss signal and the local deadline. Both
//! ends lie inside the time in which the store must not admit anybody else, so an overlap of two
//! recorded holds proves a broken lock and is never an artefact of the recording.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock};

use rustix::time::{ClockId, clock_gettime};

/// The clock of a simulation, in ns.
static CLOCK: OnceLock<fn() -> u64> = OnceLock::new();

/// Makes this the clock of everything that is recorded in this process from now on.
pub fn record_by(clock: fn() -> u64) {
    let _ = CLOCK.set(clock);
}

/// Returns nanoseconds of the machine's monotonic clock, which can be compared between the processes of one machine, or
/// the time of a [simulation](record_by).
pub fn now_ns() -> u64 {
    if let Some(clock) = CLOCK.get() {
        return clock();
    }
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A hold, and the time in which it was certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The lock's name.
    pub key: String,
    /// The holder, in any form that helps to read a failure. It has no spaces.
    pub holder: String,
    /// The fencing token.
    pub token: Option<u64>,
    /// The time at which the acquisition had returned.
    pub from: u64,
    /// The time at which the hold ceased to be certain.
    pub until: u64,
}

/// Writes a line of a worker process: `hold KEY HOLDER TOKEN FROM UNTIL`.
impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            holder,
            token,
            from,
            until,
        } = self;
        write!(
            f,
            "hold {key} {holder} {} {from} {until}",
            token.unwrap_or(0)
        )
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["hold", key, holder, token, from, until] = words[..] else {
            return Err(format!("no recorded hold: {line:?}"));
        };
        let number = |word: &str| {
            word.parse::<u64>()
                .map_err(|error| format!("{line:?}: {error}"))
        };
        Ok(Self {
            key: key.to_owned(),
            holder: holder.to_owned(),
            token: Some(number(token)?).filter(|token| *token > 0),
            from: number(from)?,
            until: number(until)?,
        })
    }
}

/// Holds recorded by many tasks.
#[derive(Debug, Default)]
pub struct History {
    holds: Mutex<Vec<Hold>>,
}

impl History {
    /// Returns an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that an acquisition has just returned. [`OpenHold::end`] records the hold.
    pub fn begin(&self, key: &str, holder: impl fmt::Display, token: Option<u64>) -> OpenHold<'_> {
        let hold = Hold {
            key: key.to_owned(),
            holder: holder.to_string(),
            token,
            from: 0,
            until: 0,
        };
        let from = now_ns();
        let hold = Hold {
            from,
            until: from,
            ..hold
        };
        OpenHold {
            history: self,
            hold: Some(hold),
        }
    }

    /// Adds a hold that was recorded elsewhere.
    pub fn add(&self, hold: Hold) {
        self.holds
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .push(hold);
    }

    /// Returns the number of recorded holds.
    pub fn len(&self) -> usize {
        self.holds
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .len()
    }

    /// Returns the holds that were recorded so far.
    pub fn holds(&self) -> Vec<Hold> {
        self.holds
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// Returns whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns every violation in what was recorded so far.
    pub fn violations(&self) -> Vec<Violation> {
        let holds = self
            .holds
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone();
        violations(holds)
    }

    /// Panics if two holds of one key overlapped or a token did not rise.
    pub fn assert_exclusive(&self) {
        let found = self.violations();
        let shown: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
        assert!(
            found.is_empty(),
            "{} violations in {} holds:\n{}",
            found.len(),
            self.len(),
            shown.join("\n")
        );
    }
}

/// A hold that goes on. It is recorded when it ends, at the latest when it is dropped.
#[derive(Debug)]
pub struct OpenHold<'a> {
    history: &'a History,
    hold: Option<Hold>,
}

impl OpenHold<'_> {
    /// Ends the hold. Call this right before `release` or at the first sign of a loss.
    pub fn end(self) {}

    /// Asks the guard whether it still holds. If so, the hold was certain up to the moment before the question.
    ///
    /// This is for holds that may be lost: ask often, and end with [`end_as_seen`](Self::end_as_seen).
    pub fn seen(&mut self, is_held: impl FnOnce() -> bool) -> bool {
        let asked_at = now_ns();
        let held = is_held();
        if let (true, Some(hold)) = (held, &mut self.hold) {
            hold.until = asked_at;
        }
        held
    }

    /// Ends the hold at the last moment at which it was [`seen`](Self::seen) to be certain.
    pub fn end_as_seen(mut self) {
        if let Some(hold) = self.hold.take() {
            self.history.add(hold);
        }
    }
}

impl Drop for OpenHold<'_> {
    fn drop(&mut self) {
        if let Some(mut hold) = self.hold.take() {
            hold.until = now_ns();
            self.history.add(hold);
        }
    }
}

/// A violation that was found in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// One key had two holders at one time.
    Overlap(Hold, Hold),
    /// A later hold had a token that was not above an earlier one's.
    Token(Hold, Hold),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, a, b) = match self {
            Self::Overlap(a, b) => ("overlap", a, b),
            Self::Token(a, b) => ("token did not rise", a, b),
        };
        write!(f, "{what}:\n  {a}\n  {b}")
    }
}

/// Checks recorded holds, key by key, in the order in which they began.
///
/// Holds that follow each other must have rising tokens; for holds that overlap (already a
/// violation) it is enough that their tokens differ.
pub fn violations(mut holds: Vec<Hold>) -> Vec<Violation> {
    holds.sort_by_key(|hold| (hold.from, hold.until));
    let mut found = Vec::new();
    let mut last: BTreeMap<String, Sweep> = BTreeMap::new();
    for hold in holds {
        let sweep = last.entry(hold.key.clone()).or_default();
        if let Some(previous) = sweep
            .longest
            .as_ref()
            .filter(|earlier| earlier.until > hold.from)
        {
            found.push(Violation::Overlap(previous.clone(), hold.clone()));
        }
        if let Some(token) = hold.token {
            let higher = sweep.highest.as_ref().filter(|earlier| {
                earlier.until <= hold.from && earlier.token.is_some_and(|was| was >= token)
            });
            if let Some(earlier) = higher.or_else(|| sweep.seen.get(&token)) {
                found.push(Violation::Token(earlier.clone(), hold.clone()));
            }
            if sweep
                .highest
                .as_ref()
                .is_none_or(|highest| highest.token < hold.token)
            {
                sweep.highest = Some(hold.clone());
            }
            sweep.seen.insert(token, hold.clone());
        }
        if sweep
            .longest
            .as_ref()
            .is_none_or(|longest| longest.until < hold.until)
        {
            sweep.longest = Some(hold);
        }
    }
    found
}

/// The holds of one key so far.
#[derive(Default)]
struct Sweep {
    longest: Option<Hold>,
    highest: Option<Hold>,
    seen: BTreeMap<u64, Hold>,
}

#[cfg(test)]
mod tests;
