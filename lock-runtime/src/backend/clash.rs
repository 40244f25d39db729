//! The error for a key that is used as two kinds. It names the kind that was found and the kind that was asked for, in
//! the same words for every store.

use super::{CounterKind, Fault};
use crate::values::{Key, Kind};

/// The kind of entry that was found at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundKind {
    /// A mutex, a fenced or a fair lock. Their entries look the same, and an entry of one serves the others.
    Exclusive,
    ReadWrite,
    /// Leased permits.
    Semaphore,
    /// A number: a semaphore without leased permits, or a latch.
    Counter,
    /// The last id of a source.
    Ids,
    /// Something that is not an entry of this library.
    Other(&'static str),
}

impl FoundKind {
    fn name(self) -> &'static str {
        match self {
            FoundKind::Exclusive => "a mutex, or a fenced or fair lock",
            FoundKind::ReadWrite => "a read/write lock",
            FoundKind::Semaphore => "a semaphore",
            FoundKind::Counter => "a semaphore or a latch",
            FoundKind::Ids => "a source of ids",
            FoundKind::Other(name) => name,
        }
    }

    /// Returns `true` if an entry of this kind can serve the request.
    pub(crate) fn serves(self, asked: AskedKind) -> bool {
        match asked {
            AskedKind::Lock(Kind::Mutex | Kind::Fenced | Kind::Fair) => {
                self == FoundKind::Exclusive
            }
            AskedKind::Lock(Kind::Read | Kind::Write) => self == FoundKind::ReadWrite,
            AskedKind::Lock(Kind::Semaphore) | AskedKind::Counter(_) => {
                matches!(self, FoundKind::Semaphore | FoundKind::Counter)
            }
            AskedKind::Ids => self == FoundKind::Ids,
            AskedKind::Any => !matches!(self, FoundKind::Ids | FoundKind::Other(_)),
        }
    }
}

/// The kind that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AskedKind {
    Lock(Kind),
    Counter(CounterKind),
    Ids,
    /// Any kind of lock, to inspect or to release it.
    Any,
}

impl AskedKind {
    fn name(self) -> &'static str {
        match self {
            AskedKind::Lock(Kind::Mutex) => "a mutex",
            AskedKind::Lock(Kind::Fenced) => "a fenced lock",
            AskedKind::Lock(Kind::Fair) => "a fair lock",
            AskedKind::Lock(Kind::Read | Kind::Write) => "a read/write lock",
            AskedKind::Lock(Kind::Semaphore) | AskedKind::Counter(CounterKind::Semaphore) => {
                "a semaphore"
            }
            AskedKind::Counter(CounterKind::Latch) => "a latch",
            AskedKind::Ids => "ids",
            AskedKind::Any => "a lock",
        }
    }
}

/// Returns the fault of a key that holds an entry of another kind.
pub(crate) fn clash(key: &Key, found: FoundKind, asked: AskedKind) -> Fault {
    Fault::Foreign {
        key: key.raw().to_owned(),
        why: format!("it is {}; you asked for {}", found.name(), asked.name()),
    }
}

/// Returns the fault of a source whose ids are shuffled for some of its users only.
pub(crate) fn shuffle_clash(key: &Key, is_shuffled: bool) -> Fault {
    let (is, asked) = if is_shuffled {
        ("shuffled", "plain")
    } else {
        ("plain", "shuffled")
    };
    Fault::Foreign {
        key: key.raw().to_owned(),
        why: format!("its ids are {is}; you asked for {asked} ones"),
    }
}

/// Returns the error text for any other problem with a key.
pub(crate) fn not_as_asked(why: &str, asked: AskedKind) -> String {
    format!("{why}; you asked for {}", asked.name())
}
