//! The output of the clients, parsed.

use std::collections::{BTreeMap, BTreeSet};

use tests::Hold;

use crate::task::UNTOLD;

/// A client that noticed, in whatever way, that it had lost its lock.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) key: String,
    pub(crate) holder: String,
    pub(crate) at: u64,
    /// The reason that the library gave, or that the release told.
    pub(crate) why: String,
}

/// A token that was shown to the register.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) key: String,
    pub(crate) holder: String,
    pub(crate) token: u64,
    /// The number of writes that this register has accepted up to here, including this one if it was accepted.
    pub(crate) number: u64,
    pub(crate) accepted: bool,
    /// Whether the holder was certain of its hold when the answer had come.
    pub(crate) sure: bool,
    /// The times of the call and of the answer.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}

/// A hold that others may share: readers, writers, permits.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) hold: Hold,
    /// The part of the key's room that it takes.
    pub(crate) weight: u64,
}

/// A mutex that was asked for without a wait.
#[derive(Debug, Clone)]
pub(crate) struct Try {
    pub(crate) holder: String,
    pub(crate) asked: u64,
    pub(crate) answer: Answer,
    /// The time at which everything was said.
    pub(crate) over: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Refused,
    Unknown,
    /// The times when it had the guard, was last certain, and began to give it back; and the result of that.
    Granted {
        token: Option<u64>,
        at: u64,
        seen: u64,
        leaving: u64,
        end: String,
    },
}

/// A wait for a lock that processes keep, until it was granted or the time was over.
#[derive(Debug, Clone)]
pub(crate) struct Wait {
    pub(crate) key: String,
    pub(crate) asked: u64,
    pub(crate) until: u64,
}

/// Everything said in one round.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) holds: Vec<Hold>,
    pub(crate) shares: Vec<Share>,
    pub(crate) losses: Vec<Loss>,
    /// Holds whose end is unknown: their releases were dropped, or not answered.
    pub(crate) untold: BTreeSet<String>,
    pub(crate) writes: Vec<Write>,
    /// Counters that may have been written too late.
    pub(crate) doubts: BTreeSet<String>,
    /// Acquires that got nothing, by reason.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Releases, by how they went.
    pub(crate) ends: BTreeMap<String, u64>,
    pub(crate) tries: Vec<Try>,
    pub(crate) waits: Vec<Wait>,
    /// Tries that found somebody else.
    pub(crate) refused_tries: u64,
    /// Clients that were killed. Nobody knows what they did last.
    pub(crate) killed: Vec<String>,
    /// Lines that make no sense.
    pub(crate) junk: Vec<String>,
}

impl Log {
    /// Returns the holds of all kinds.
    pub(crate) fn all_holds(&self) -> impl Iterator<Item = &Hold> {
        let shared = self.shares.iter().map(|share| &share.hold);
        self.holds.iter().chain(shared)
    }

    /// Returns the number of acquires and releases, whatever came of them.
    pub(crate) fn operations(&self) -> u64 {
        let refused: u64 = self.refusals.values().sum();
        let ended: u64 = self.ends.values().sum();
        let held = self.all_holds().count() as u64;
        held + refused + ended + self.refused_tries
    }

    /// Returns the number of writes with a token below one that the register had seen.
    pub(crate) fn stale_tries(&self) -> u64 {
        self.writes.iter().filter(|write| !write.accepted).count() as u64
    }

    pub(crate) fn note(&mut self, line: &str) {
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
            ("waited", [key, asked, until]) => self.waits.push(Wait {
                key: (*key).to_owned(),
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
