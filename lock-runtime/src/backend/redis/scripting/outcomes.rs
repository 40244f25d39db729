//! Outcomes that the scripts of several kinds have in common, and how they are parsed.

use std::time::Duration;

use redis::Value;

use super::{Items, faults, text};
use crate::backend::{Fault, Released, Renewed};
use crate::observe::metrics::logged;
use crate::values::{FencingToken, decimal};

/// The reply to a request that the server refuses after its date.
#[derive(Debug)]
pub(crate) struct Dated<T> {
    /// `None` if the request was refused as too late.
    pub(crate) done: Option<T>,
    /// In µs of the server's TIME.
    pub(crate) time: u64,
}

/// What a script did, and the messages that it could not publish.
#[derive(Debug, PartialEq)]
pub(crate) struct Announced<T> {
    pub(crate) done: T,
    /// Each after its channel.
    pub(crate) unpublished: Vec<(String, String)>,
}

impl<T> Announced<T> {
    /// Parses the end of a reply: the messages that were not published.
    pub(crate) fn read(done: T, mut items: Items) -> Option<Result<Announced<T>, Fault>> {
        let unpublished = items.messages()?;
        Some(Ok(Announced { done, unpublished }))
    }
}

/// The reply of an acquire. `time` is in µs of the server's TIME.
#[derive(Debug)]
pub(crate) enum AcquireReply {
    Granted {
        token: Option<FencingToken>,
        time: u64,
        /// Boxed, because few requests ask for it.
        tenure: Option<Box<TenureReply>>,
    },
    Busy {
        left: Option<Duration>,
        /// The holder may only be keeping the lock, and was asked to give it up.
        kept: bool,
        /// Only for a fair lock: whether the caller is the first in the queue.
        first: Option<bool>,
        time: u64,
    },
    Stale {
        time: u64,
    },
}

/// The part of a reply that says how many clients listen, and which tokens are reserved for callers of the same
/// process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenureReply {
    /// The last reserved token.
    pub(crate) last: Option<FencingToken>,
    pub(crate) subscribers: Option<u64>,
}

/// Parses the reply of an acquire after its first `word`. The reply has a token if the request named a fence. It has the
/// terms of a tenure if the request asked for reserved tokens.
pub(crate) fn acquire_reply(
    word: &str,
    mut items: Items,
    is_fenced: bool,
    has_tenure: bool,
) -> Option<Result<AcquireReply, Fault>> {
    let reply = match word {
        "OK" => {
            let token = items.token()?;
            if token.is_some() != is_fenced {
                return None;
            }
            let time = items.digits()?;
            let tenure = if has_tenure {
                Some(Box::new(TenureReply {
                    last: items.token()?,
                    // -1 if the ACL does not allow the question.
                    subscribers: u64::try_from(items.integer()?).ok(),
                }))
            } else {
                None
            };
            AcquireReply::Granted {
                token,
                time,
                tenure,
            }
        }
        "BUSY" | "KEPT" => AcquireReply::Busy {
            left: items.expiry()?,
            kept: word == "KEPT",
            first: None,
            time: items.digits()?,
        },
        "STALE" => AcquireReply::Stale {
            time: items.digits()?,
        },
        // A shortcut replies with the time alone, which is the token.
        time if items.is_lone() => {
            let time = decimal::parse(time.as_bytes())?;
            AcquireReply::Granted {
                token: if is_fenced {
                    Some(FencingToken::checked(time)?)
                } else {
                    None
                },
                time,
                tenure: None,
            }
        }
        _ => return None,
    };
    items.end(Ok(reply))
}

/// The reply of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseReply {
    /// [`DoneAndListed`](Released::DoneAndListed) only for a release by the list: the lock is reserved for another process.
    pub(crate) released: Released,
    /// Where the lock was not simply released, in µs of the server's TIME; else 0.
    pub(crate) time: u64,
    /// The number of listeners that received the message that the lock is free, where it is counted: for a mutex and a
    /// read/write lock.
    pub(crate) receivers: u64,
}

impl Announced<ReleaseReply> {
    /// The reply of a release of which nobody heard, or where that is not counted.
    pub(crate) const DONE: Announced<ReleaseReply> = Announced {
        done: ReleaseReply {
            released: Released::Done,
            time: 0,
            receivers: 0,
        },
        unpublished: Vec::new(),
    };
}

/// Parses the reply of a release: a number that says how the lock was released, the time where it was not simply
/// released, and the messages.
pub(crate) fn release_reply(mut items: Items) -> Option<Result<Announced<ReleaseReply>, Fault>> {
    let code = items.integer()?;
    let released = match code {
        -1 => Released::DoneAndListed,
        0 => Released::NotHeld,
        1.. => Released::Done,
        _ => return None,
    };
    let reply = ReleaseReply {
        released,
        time: if code < 1 { items.digits()? } else { 0 },
        receivers: u64::try_from(code - 1).unwrap_or(0),
    };
    Announced::read(reply, items)
}

/// Parses the answers of a renewal, one for each of the `expected` items.
pub(crate) fn read_renewals(expected: usize, reply: Value) -> Option<Result<Vec<Renewed>, Fault>> {
    let mut items = Items::of(reply)?;
    let mut answers = Vec::with_capacity(expected);
    let mut failed = None;
    for _ in 0..expected {
        answers.push(match items.value()? {
            Value::Int(1) => Renewed::Held,
            Value::Int(0) => Renewed::NotHeld,
            error => {
                failed.get_or_insert(faults::of_text(&text(error)?));
                Renewed::Unknown
            }
        });
    }
    // If one key fails, only its own hold is unknown. If all keys fail, the call has failed.
    if let Some(fault) = failed {
        if answers.iter().all(|answer| *answer == Renewed::Unknown) {
            return Some(Err(fault));
        }
        logged!(debug, %fault, "some keys of a renewal failed");
    }
    items.end(Ok(answers))
}
