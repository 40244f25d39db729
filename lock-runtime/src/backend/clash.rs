//! The error for a key that is used as two kinds. It names the kind that was found and the kind that was asked for, in
//! the same words for every store.

use super::{CounterKind, Fault};
use crate::values::{Key, Kind};

/// The kind of entry that was found at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
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
    #[cfg(feature = "redis")]
    Other(&'static str),
}

impl Found {
    fn name(self) -> &'static str {
        match self {
            Found::Exclusive => "a mutex, or a fenced or fair lock",
            Found::ReadWrite => "a read/write lock",
            Found::Semaphore => "a semaphore",
            Found::Counter => "a semaphore or a latch",
            Found::Ids => "a source of ids",
            #[cfg(feature = "redis")]
            Found::Other(name) => name,
        }
    }

    /// Returns `true` if an entry of this kind can serve the request.
    #[cfg(feature = "redis")]
    pub(crate) fn serves(self, asked: Asked) -> bool {
        match asked {
            Asked::Lock(Kind::Mutex | Kind::Fenced | Kind::Fair) => self == Found::Exclusive,
            Asked::Lock(Kind::Read | Kind::Write) => self == Found::ReadWrite,
            Asked::Lock(Kind::Semaphore) | Asked::Counter(_) => {
                matches!(self, Found::Semaphore | Found::Counter)
            }
            Asked::Ids => self == Found::Ids,
            Asked::Any => !matches!(self, Found::Ids | Found::Other(_)),
        }
    }
}

/// The kind that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Lock(Kind),
    Counter(CounterKind),
    Ids,
    /// Any kind of lock, to inspect or to release it.
    Any,
}

impl Asked {
    fn name(self) -> &'static str {
        match self {
            Asked::Lock(Kind::Mutex) => "a mutex",
            Asked::Lock(Kind::Fenced) => "a fenced lock",
            Asked::Lock(Kind::Fair) => "a fair lock",
            Asked::Lock(Kind::Read | Kind::Write) => "a read/write lock",
            Asked::Lock(Kind::Semaphore) | Asked::Counter(CounterKind::Semaphore) => "a semaphore",
            Asked::Counter(CounterKind::Latch) => "a latch",
            Asked::Ids => "ids",
            Asked::Any => "a lock",
        }
    }
}

/// Returns the fault of a key that holds an entry of another kind.
pub(crate) fn clash(key: &Key, found: Found, asked: Asked) -> Fault {
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
#[cfg(feature = "redis")]
pub(crate) fn not_as_asked(why: &str, asked: Asked) -> String {
    format!("{why}; you asked for {}", asked.name())
}
