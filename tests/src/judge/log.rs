//! What was said, parsed.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::Hold;
use crate::workload::UNTOLD;

/// A client that noticed, in whatever way, that it had lost its lock.
#[derive(Debug, Clone)]
pub struct Loss {
    /// The lock's name.
    pub key: String,
    /// The one that lost it.
    pub holder: String,
    /// The time at which it noticed.
    pub at: u64,
    /// The reason that the library gave, or that the release told.
    pub why: String,
}

/// A token that was shown to the register.
#[derive(Debug, Clone)]
pub struct Write {
    /// The name of the lock, and of the register.
    pub key: String,
    /// The one that showed the token.
    pub holder: String,
    /// The token; 0 if the lock has none.
    pub token: u64,
    /// The number of writes that this register has accepted up to here, including this one if it was accepted.
    pub number: u64,
    /// Whether the register accepted it.
    pub accepted: bool,
    /// Whether the holder was certain of its hold when the answer had come.
    pub sure: bool,
    /// The times of the call and of the answer.
    pub asked: u64,
    /// The time of the answer.
    pub answered: u64,
}

/// A hold that others may share: readers, writers, permits.
#[derive(Debug, Clone)]
pub struct Share {
    /// The hold.
    pub hold: Hold,
    /// The part of the key's room that it takes.
    pub weight: u64,
}

/// A mutex that was asked for without a wait.
#[derive(Debug, Clone)]
pub struct Try {
    /// The one that asked.
    pub holder: String,
    /// The time of the call.
    pub asked: u64,
    /// What it was told.
    pub answer: Answer,
    /// The time at which everything was said.
    pub over: u64,
}

/// What was said of a lock that was asked for without a wait.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Somebody else had it.
    Refused,
    /// There was no answer.
    Unknown,
    /// The times when it had the guard, was last certain, and began to give it back; and the result of that.
    Granted {
        /// Its token.
        token: Option<u64>,
        /// When it had the guard.
        at: u64,
        /// When it was last certain.
        seen: u64,
        /// When it began to give it back.
        leaving: u64,
        /// The result of that.
        end: String,
    },
}

/// A wait for a lock that one task has at a time, until it was granted or the time was over.
#[derive(Debug, Clone)]
pub struct Wait {
    /// The lock's name.
    pub key: String,
    /// The one that asked.
    pub holder: String,
    /// The time of the call.
    pub asked: u64,
    /// The time of its end.
    pub until: u64,
}

/// Everything said in one round.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// Holds that exclude all others of their key.
    pub holds: Vec<Hold>,
    /// Holds that others may share.
    pub shares: Vec<Share>,
    /// The losses that were noticed.
    pub losses: Vec<Loss>,
    /// Holds whose end is unknown: their releases were dropped, or not answered.
    pub untold: BTreeSet<String>,
    /// The tokens that were shown to the registers.
    pub writes: Vec<Write>,
    /// Counters that may have been written too late.
    pub doubts: BTreeSet<String>,
    /// Acquires that got nothing, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Releases, by how they went.
    pub ends: BTreeMap<String, u64>,
    /// The mutexes that were asked for without a wait.
    pub tries: Vec<Try>,
    /// The waits for locks that one task has at a time.
    pub waits: Vec<Wait>,
    /// Tries that found somebody else.
    pub refused_tries: u64,
    /// Clients that were killed. Nobody knows what they did last.
    pub killed: Vec<String>,
    /// Lines that make no sense.
    pub junk: Vec<String>,
}

impl Log {
    /// Returns the holds of all kinds.
    pub fn all_holds(&self) -> impl Iterator<Item = &Hold> {
        let shared = self.shares.iter().map(|share| &share.hold);
        self.holds.iter().chain(shared)
    }

    /// Returns the number of acquires and releases, whatever came of them.
    pub fn operations(&self) -> u64 {
        let refused: u64 = self.refusals.values().sum();
        let ended: u64 = self.ends.values().sum();
        let held = self.all_holds().count() as u64;
        held + refused + ended + self.refused_tries
    }

    /// Returns the number of writes with a token below one that the register had seen.
    pub fn stale_tries(&self) -> u64 {
        self.writes.iter().filter(|write| !write.accepted).count() as u64
    }

    /// Takes out what was said of some keys, and the counts of refusals and ends, which are of all keys.
    #[must_use]
    pub fn split_off(&mut self, is: impl Fn(&str) -> bool) -> Self {
        Self {
            holds: self.holds.extract_if(.., |hold| is(&hold.key)).collect(),
            shares: self
                .shares
                .extract_if(.., |share| is(&share.hold.key))
                .collect(),
            losses: self.losses.extract_if(.., |loss| is(&loss.key)).collect(),
            writes: self.writes.extract_if(.., |write| is(&write.key)).collect(),
            refusals: std::mem::take(&mut self.refusals),
            ends: std::mem::take(&mut self.ends),
            untold: self.untold.clone(),
            killed: self.killed.clone(),
            ..Self::default()
        }
    }

    /// Takes note of a line.
    pub fn note(&mut self, line: &str) {
        if self.understand(line).is_none() {
            self.junk.push(line.to_owned());
        }
    }

    fn understand(&mut self, line: &str) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        let words: Vec<&str> = rest.split(' ').collect();
        match (what, &words[..]) {
            ("hold", _) => self.holds.push(line.parse().ok()?),
            ("share", [weight, ..]) => self.shares.push(Share {
                hold: rest.split_once(' ')?.1.parse().ok()?,
                weight: weight.parse().ok()?,
            }),
            ("tried", [holder, asked, over, answer @ ("refused" | "unknown")]) => {
                self.refused_tries += u64::from(*answer == "refused");
                self.tries.push(Try {
                    holder: (*holder).to_owned(),
                    asked: asked.parse().ok()?,
                    answer: match *answer {
                        "refused" => Answer::Refused,
                        _ => Answer::Unknown,
                    },
                    over: over.parse().ok()?,
                });
            }
            (
                "tried",
                [
                    holder,
                    asked,
                    at,
                    "granted",
                    token,
                    seen,
                    leaving,
                    over,
                    end,
                ],
            ) => {
                self.tries.push(Try {
                    holder: (*holder).to_owned(),
                    asked: asked.parse().ok()?,
                    answer: Answer::Granted {
                        token: Some(token.parse().ok()?).filter(|token| *token > 0),
                        at: at.parse().ok()?,
                        seen: seen.parse().ok()?,
                        leaving: leaving.parse().ok()?,
                        end: (*end).to_owned(),
                    },
                    over: over.parse().ok()?,
                });
            }
            ("waited", [key, holder, asked, until]) => self.waits.push(Wait {
                key: (*key).to_owned(),
                holder: (*holder).to_owned(),
                asked: asked.parse().ok()?,
                until: until.parse().ok()?,
            }),
            ("none", _) => *self.refusals.entry(rest.to_owned()).or_default() += 1,
            ("end", _) => *self.ends.entry(rest.to_owned()).or_default() += 1,
            ("doubt", [key]) => drop(self.doubts.insert((*key).to_owned())),
            ("loss", [_, holder, _, UNTOLD]) => drop(self.untold.insert((*holder).to_owned())),
            ("loss", [key, holder, at, why]) => self.losses.push(Loss {
                key: (*key).to_owned(),
                holder: (*holder).to_owned(),
                at: at.parse().ok()?,
                why: (*why).to_owned(),
            }),
            ("write", [key, holder, token, number, accepted, sure, asked, answered]) => {
                self.writes.push(Write {
                    key: (*key).to_owned(),
                    holder: (*holder).to_owned(),
                    token: token.parse().ok()?,
                    number: number.parse().ok()?,
                    accepted: *accepted == "1",
                    sure: *sure == "1",
                    asked: asked.parse().ok()?,
                    answered: answered.parse().ok()?,
                })
            }
            _ => return None,
        }
        Some(())
    }
}
