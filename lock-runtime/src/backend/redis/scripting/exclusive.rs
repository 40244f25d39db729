//! The scripts of locks with one holder at a time. The check of a new connection also runs them.

use super::outcomes::{
    AcquireReply, Announced, Dated, ReleaseReply, TenureReply, acquire_reply, read_renewals,
    release_reply,
};
use super::{Items, Script, Source, lua, renewal, script, source};
use crate::backend::{Fault, Renewed};
use crate::values::FencingToken;

script! {
    "acquire", shortcut after ["common_case"], ["digits", "range", "refusal", "fence", "admitted", "lease", "holder", "listeners", "keeper", "reserve_tokens"]
    struct Acquire<'a> {
        keys { lock: &'a str, fence: Option<&'a str> }
        args {
            holder: &'a str,
            lease_ms: u64,
            /// In µs of the server's TIME.
            not_after_us: u64,
            /// Whether the fence counts by one, as Redisson's does, instead of following the clock.
            counted: bool,
            /// The channel whose subscribers are counted, for a request with `spare`.
            channel: Option<&'a str>,
            /// The number of tokens to reserve after the holder's.
            spare: Option<u64>
        }
    }
    |this, mut items| -> AcquireReply {
        let word = items.text()?;
        acquire_reply(&word, items, this.fence.is_some(), this.spare.is_some())
    }
}

script! {
    "next_token", ["digits", "refusal", "fence", "admitted"]
    struct NextToken<'a> {
        keys { fence: &'a str }
        args { not_after_us: u64, counted: bool }
    }
    |_, mut items| -> Dated<FencingToken> {
        let done = match items.text()?.as_str() {
            "OK" => Some(items.token()??),
            "STALE" => None,
            _ => return None,
        };
        let time = items.digits()?;
        items.end(Ok(Dated { done, time }))
    }
}

script! {
    "release", "allow-oom", shortcut after ["publish", "publish_release"], ["digits", "time", "failed", "return_tokens"]
    struct Release<'a> {
        keys { lock: &'a str, fence: Option<String> }
        args {
            holder: &'a str,
            channel: &'a str,
            /// The last reserved token, and the last token that a hold has used.
            last: Option<u64>,
            used: Option<u64>
        }
    }
    |_, items| -> Announced<ReleaseReply> { release_reply(items) }
}

impl<'a> Release<'a> {
    /// Returns the script that releases the lock and returns no tokens.
    pub(crate) fn of(lock: &'a str, holder: &'a str, channel: &'a str) -> Release<'a> {
        Release {
            lock,
            fence: None,
            holder,
            channel,
            last: None,
            used: None,
        }
    }
}

script! {
    "handover", "allow-oom",
    shortcut after ["listeners"], ["digits", "range", "time", "failed", "refusal", "fence", "lease", "reserve_tokens"]
    struct HandOver<'a> {
        keys { lock: &'a str, fence: Option<&'a str> }
        args {
            from: &'a str,
            to: &'a str,
            lease_ms: u64,
            /// The channel whose subscribers are counted.
            channel: &'a str,
            counted: bool,
            /// The number of tokens to reserve after the new holder's.
            spare: u64
        }
    }
    // The token of the new holder, and the server's time. `None` if the old holder did not have the lock.
    |this, mut items| -> Option<(Option<FencingToken>, u64, TenureReply)> {
        match items.text()?.as_str() {
            "OK" => {
                let (token, last, time) = (items.token()?, items.token()?, items.digits()?);
                if [token, last].iter().any(|token| token.is_some() != this.fence.is_some()) {
                    return None;
                }
                // -1 if the ACL does not allow the question.
                let subscribers = u64::try_from(items.integer()?).ok();
                items.end(Ok(Some((token, time, TenureReply { last, subscribers }))))
            }
            "LOST" => items.end(Ok(None)),
            _ => None,
        }
    }
}

renewal! {
    "renew", ["digits", "range", "lease", "mark", "each"]
    struct Renew<'a> {
        keys { lock: &'a str }
        arg { holder: String }
    }
}
