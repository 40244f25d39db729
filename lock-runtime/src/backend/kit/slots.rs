//! Numbers by the digest of a key, for hints: a fixed number of slots, so nothing grows and nothing has to be forgotten.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of slots. The low bits of a digest choose one.
const SLOTS: u64 = 1024;

/// The bits of a number. Above them, a slot has the high bits of its key's digest.
const BITS: u32 = 52;
const NUMBER: u64 = (1 << BITS) - 1;

/// A number of 52 bits for each key. Two keys may share a slot, which then has the number of the key that was written last.
/// One in four million pairs of keys cannot be told apart.
pub(crate) struct Slots(Box<[AtomicU64]>);

impl Default for Slots {
    fn default() -> Slots {
        Slots((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Slots {
    pub(crate) fn set(&self, digest: u64, number: u64) {
        if let Some(slot) = self.slot(digest) {
            slot.store(digest & !NUMBER | number & NUMBER, Ordering::Relaxed);
        }
    }

    /// Returns the number of the key with this digest; zero if none was written.
    pub(crate) fn get(&self, digest: u64) -> u64 {
        let slot = self.slot(digest);
        let slot = slot.map_or(0, |slot| slot.load(Ordering::Relaxed));
        if slot >> BITS == digest >> BITS {
            slot & NUMBER
        } else {
            0
        }
    }

    fn slot(&self, digest: u64) -> Option<&AtomicU64> {
        self.0.get(usize::try_from(digest % SLOTS).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_only_its_own_number_in_a_shared_slot() {
        let (slots, key, other) = (Slots::default(), 7 << BITS | 3, 8 << BITS | 3);
        assert_eq!((slots.get(key), slots.get(other)), (0, 0));
        slots.set(key, u64::MAX);
        assert_eq!((slots.get(key), slots.get(other)), (NUMBER, 0));
        slots.set(other, 1);
        assert_eq!((slots.get(key), slots.get(other)), (0, 1));
    }
}
