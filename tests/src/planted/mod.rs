//! Bugs in what a client does, which torture and the simulation have to find.
//!
//! Each is one line of the library, or a few, that reads another way in a copy of it. The library itself has no trace of
//! that.

mod client;
mod copy;

pub use self::client::ALL;
pub use self::copy::{CHOSEN, build, check};

/// A bug.
#[derive(Debug)]
pub struct Bug {
    /// Its name.
    pub name: &'static str,
    /// A seed of the simulation that shows it, or did when it was written down.
    pub seed: Option<u64>,
    /// The checks of the simulation, any of which has to catch it. None if the simulation does not have it.
    pub caught_by: &'static [&'static str],
    edits: &'static [Edit],
}

/// A text that differs in the copy.
#[derive(Debug)]
struct Edit {
    /// The path below `lock-runtime/src/`.
    file: &'static str,
    /// The text that stands there, once.
    is: &'static str,
    /// The text that stands there in the copy. `PLANTED` is true in a process for which this bug is chosen. In others,
    /// the line does what it did before.
    becomes: &'static str,
}

impl Bug {
    /// Returns the bug of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|bug| bug.name == name)
    }

    /// Whether the simulation has it: below the trait of stores, that has a store of its own.
    pub fn is_above_the_trait(&self) -> bool {
        !self.is_in("backend/") || self.is_in("backend/quorum/")
    }

    /// Whether it is in a folder of the library, such as `/sql/`.
    pub fn is_in(&self, folder: &str) -> bool {
        self.edits.iter().any(|edit| edit.file.contains(folder))
    }
}

/// Checks that this stands in the text, and nowhere else in it.
///
/// # Errors
/// The message says how often it does.
pub fn stands_once(text: &str, what: &str) -> Result<(), String> {
    match text.matches(what).count() {
        1 => Ok(()),
        times => Err(format!("`{what}` stands there {times} times, not once")),
    }
}
