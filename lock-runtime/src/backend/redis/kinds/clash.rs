//! Explains the refusal of a key that holds something else. The refused script names the key, and another script finds
//! out what it holds.

use std::time::Duration;

use super::counters::leases;
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::{Items, Script, Source, lua, script, source};
use crate::backend::{AskedKind, Fault, FoundKind, clash, not_as_asked};
use crate::values::key::FENCE_PREFIX;
use crate::values::{Key, rare};

/// The refusal is already known, so its explanation may not take much of the caller's time.
const LONGEST: Duration = Duration::from_millis(500);

/// The words with which the script fragment `refusal` begins for a key of another type.
const WRONG_TYPE: &str = "it holds no ";

impl Router {
    /// Adds to the fault what the key holds, and the kind that was asked for. Returns any other fault as it is.
    pub(crate) async fn named(&self, fault: Fault, key: &Key, asked: AskedKind) -> Fault {
        match fault {
            Fault::Foreign { key: which, why } => rare(self.name(which, why, key, asked)).await,
            fault => fault,
        }
    }

    async fn name(&self, which: String, why: String, key: &Key, asked: AskedKind) -> Fault {
        let is_fence = which.starts_with(FENCE_PREFIX) || which == key.fence();
        let why = if which == key.raw() {
            let script = KindOf {
                key: key.raw(),
                leases: &leases(key),
            };
            match self.call(key, &script, LONGEST).await {
                Ok(Some(found)) if !found.serves(asked) => return clash(key, found, asked),
                // The key no longer exists, or its entry is of the right kind but damaged.
                Ok(_) => why,
                Err(_) => not_as_asked(&why, asked),
            }
        } else if why.starts_with(WRONG_TYPE) && !is_fence {
            not_as_asked(&why, asked)
        } else {
            // The text already contains advice.
            why
        };
        Fault::Foreign { key: which, why }
    }
}

script! {
    "kind", "no-writes", ["holder", "last_id"]
    struct KindOf<'a> {
        keys { key: &'a str }
        args { leases: &'a str }
    }
    |_, mut items| -> Option<FoundKind> {
        let found = match items.text()?.as_str() {
            "none" => None,
            "exclusive" => Some(FoundKind::Exclusive),
            "read_write" => Some(FoundKind::ReadWrite),
            "semaphore" => Some(FoundKind::Semaphore),
            "counter" => Some(FoundKind::Counter),
            "ids" => Some(FoundKind::Ids),
            "hash" => Some(FoundKind::Other("a hash that is not a lock")),
            "string" => Some(FoundKind::Other("a string")),
            "list" => Some(FoundKind::Other("a list")),
            "sorted set" => Some(FoundKind::Other("a sorted set")),
            "other" => Some(FoundKind::Other("of another type")),
            _ => return None,
        };
        items.end(Ok(found))
    }
}
