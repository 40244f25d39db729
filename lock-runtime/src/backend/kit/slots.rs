//! Numbers by the digest of a key, for hints: a fixed number of slots, so nothing grows and nothing has to be forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of slots.
const SLOTS: u64 = 1024;

/// A number for each key. Two keys may share a slot, which then has the number that was written last.
pub(crate) struct Slots(Box<[AtomicU64]>);

impl Default for Slots {
    fn default() -> Slots {
        Slots((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Slots {
    pub(crate) fn set(&self, digest: u64, number: u64) {
        if let Some(slot) = self.slot(digest) {
            slot.store(number, Ordering::Relaxed);
        }
    }

    /// Returns the number of the key with this digest; zero if none was written.
    pub(crate) fn get(&self, digest: u64) -> u64 {
        let slot = self.slot(digest);
        slot.map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    fn slot(&self, digest: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(digest % SLOTS).ok()?)
    }
}
