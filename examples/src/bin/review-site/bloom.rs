//! A Bloom filter of ids: who asks for an id that does not exist is sent away before cache and database.
//!
//! `site:shops:bloom` is a bitmap. An id sets 7 of its 2^17 bits; an id of which one bit is not set was never added. Of
//! ids that were never added, one in a hundred passes once 13,000 were. An id cannot be taken out again.
//!
//! One more bit says that the filter is complete. Without it (the server has lost its data, or evicted the key) the filter
//! knows nothing, and lets everybody pass.
//!
//! No lock: bits are only ever set, so the order in which processes set them does not matter.

use crate::error::Error;
use crate::site::Redis;

const BITS: u64 = 1 << 17;
const HASHES: u64 = 7;
/// The bit behind all others.
const COMPLETE: u64 = BITS;

#[derive(Clone)]
pub(crate) struct Bloom {
    pub(crate) redis: Redis,
    pub(crate) key: &'static str,
}

impl Bloom {
    /// Adds ids. Call it before a row is inserted: a reader who is quick must find the id here, too.
    pub(crate) async fn add(&self, ids: &[i64]) -> Result<(), Error> {
        let mut bits = redis::pipe();
        for bit in ids.iter().copied().flat_map(bits_of) {
            bits.setbit(self.key, bit as usize, true).ignore();
        }
        Ok(bits.exec_async(&mut self.redis.clone()).await?)
    }

    /// Says that every id of the database was added.
    pub(crate) async fn complete(&self) -> Result<(), Error> {
        let mut bits = redis::pipe();
        bits.setbit(self.key, COMPLETE as usize, true);
        Ok(bits.exec_async(&mut self.redis.clone()).await?)
    }

    /// Returns false if the id does not exist.
    pub(crate) async fn may_contain(&self, id: i64) -> Result<bool, Error> {
        // One transaction: a key that is lost between two looks must not look like an id that was never added.
        let mut bits = redis::pipe();
        bits.atomic().getbit(self.key, COMPLETE as usize);
        for bit in bits_of(id) {
            bits.getbit(self.key, bit as usize);
        }
        let set: Vec<bool> = bits.query_async(&mut self.redis.clone()).await?;
        let is_complete = set[0];
        Ok(!is_complete || set.iter().all(|set| *set))
    }
}

/// The bits of an id, the same in every process and in every version of this program.
fn bits_of(id: i64) -> impl Iterator<Item = u64> {
    let first = mixed(id as u64);
    // Odd, so that the steps meet every bit.
    let step = mixed(first) | 1;
    (0..HASHES).map(move |round| first.wrapping_add(round.wrapping_mul(step)) % BITS)
}

/// The finalizer of splitmix64: numbers that differ in one bit differ in about half of them afterwards.
fn mixed(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
