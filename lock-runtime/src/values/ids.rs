//! Ids: a hybrid clock of 63 bits, `max(last + 1, the store's time)`, from which ranges are drawn.
//!
//! An id has 31 bits of seconds since [`EPOCH`], then 32 bits that begin each second from µs × [`PER_MICRO`]. The id after
//! the last one of a second is the first one of the next second.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use uuid::Uuid;

/// 2026-01-01T00:00:00Z, in seconds since 1970. Every version and every store must use it, so it may never change.
pub(crate) const EPOCH: u64 = 1_767_225_600;

/// The number of ids for each µs. The last µs of a second still has all of them.
pub(crate) const PER_MICRO: u64 = 4_294;

/// The number of low bits that are shuffled: a block of ids is 2^22 / 2^32 of a second, 977 µs.
pub(crate) const BLOCK_BITS: u32 = 22;

/// The most ids that are drawn at a time. They are 2.4 µs of the clock, so ids are not further ahead of it.
pub(crate) const MOST_IDS: u32 = 10_000;

/// The time for which a store keeps the last id of a source after the time that the id tells. By then, the clock alone
/// gives later ids.
pub(crate) const SOURCE_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What is drawn from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draw {
    /// Ids from this one on.
    From(i64),
    /// None before the store's clock has reached the next block. Until then, this is the last id.
    NotYet(i64),
}

/// What is drawn at `micros`, µs since 1970 by the store's clock. `last`: the last id that the source has given. `None`
/// if the clock is before [`EPOCH`], or the ids do not fit in 63 bits.
///
/// Shuffled ids do not begin a block before the clock has reached it, unless the clock was set back. So a store that has
/// lost a source and its secret may begin another one with the next block: no id of it was shuffled by another secret.
pub(crate) fn draw(last: Option<i64>, micros: u64, count: u32, shuffled: bool) -> Option<Draw> {
    let seconds = (micros / 1_000_000).checked_sub(EPOCH)?;
    let begin = i64::try_from(seconds.checked_mul(1 << 32)?).ok()?;
    let now = begin + (micros % 1_000_000 * PER_MICRO).cast_signed();
    let last = last.unwrap_or(if shuffled {
        now | ((1 << BLOCK_BITS) - 1)
    } else {
        now - 1
    });
    let first = last.checked_add(1)?.max(now);
    let end = first.checked_add(i64::from(count))?;
    let block = |id: i64| id >> BLOCK_BITS;
    if shuffled && block(last) <= block(now) && block(now) < block(end - 1) {
        return Some(Draw::NotYet(last));
    }
    Some(Draw::From(first))
}

/// Ids that follow one another, which nobody else has or gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdRange {
    first: i64,
    count: u32,
    /// The secret by which they are shuffled.
    pub(crate) secret: Option<IdSecret>,
}

impl IdRange {
    /// `None` if there are no such ids.
    pub(crate) fn new(first: i64, count: u32, secret: Option<IdSecret>) -> Option<IdRange> {
        let is_whole = first >= 0 && first.checked_add(i64::from(count)).is_some();
        is_whole.then_some(IdRange {
            first,
            count,
            secret,
        })
    }

    /// Takes the next `count` ids from the range, if it has as many left.
    pub(crate) fn take(&mut self, count: u32) -> Option<IdRange> {
        let left = self.count.checked_sub(count)?;
        let taken = IdRange { count, ..*self };
        self.first += i64::from(count);
        self.count = left;
        Some(taken)
    }

    /// The number of ids that are left.
    pub(crate) fn left(&self) -> u32 {
        self.count
    }

    /// The last of the ids, before it is shuffled. A range that is empty has none.
    #[cfg(test)]
    pub(crate) fn last(&self) -> i64 {
        self.positions().end - 1
    }

    fn positions(&self) -> Range<i64> {
        self.first..self.first + i64::from(self.count)
    }

    /// The ids as their users see them.
    pub(crate) fn ids(self) -> impl Iterator<Item = i64> {
        self.positions().map(move |id| self.shown(id))
    }

    /// The first of the ids.
    pub(crate) fn first(self) -> i64 {
        self.shown(self.first)
    }

    fn shown(&self, id: i64) -> i64 {
        match self.secret {
            Some(secret) => secret.shuffled(id),
            None => id,
        }
    }
}

/// The secret by which the ids of a source are shuffled. The first caller makes it, and the store keeps it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdSecret(Uuid);

impl IdSecret {
    /// A secret from the operating system's random generator.
    pub(crate) fn new() -> IdSecret {
        IdSecret(Uuid::new_v4())
    }

    /// The secret as stores keep it: 32 hexadecimal digits.
    pub(crate) fn text(self) -> String {
        self.0.simple().to_string()
    }

    pub(crate) fn parse(text: &str) -> Option<IdSecret> {
        let is_simple = text.len() == uuid::fmt::Simple::LENGTH;
        Uuid::try_parse(text)
            .ok()
            .filter(|_| is_simple)
            .map(IdSecret)
    }

    /// The id that stands for `id`: another one of its block.
    fn shuffled(self, id: i64) -> i64 {
        let (block, low) = (id >> BLOCK_BITS, id & ((1 << BLOCK_BITS) - 1));
        let mut hash = sha1_smol::Sha1::from(self.0.as_bytes());
        hash.update(&block.to_be_bytes());
        let low = shuffled_low(hash.digest().bytes(), u32::try_from(low).unwrap_or(0));
        block << BLOCK_BITS | i64::from(low)
    }
}

/// A Feistel network, so no two numbers become one. `keys` are others for each block, and outsiders see few ids of a block,
/// so the rounds need not be those of a cipher.
fn shuffled_low(keys: [u8; 20], low: u32) -> u32 {
    const HALF: u32 = BLOCK_BITS / 2;
    const MASK: u32 = (1 << HALF) - 1;
    let (mut left, mut right) = (low >> HALF, low & MASK);
    for key in keys.chunks_exact(4) {
        let key = key.iter().fold(0, |key, byte| key << 8 | u32::from(*byte));
        (left, right) = (right, left ^ (mixed(right ^ key) & MASK));
    }
    left << HALF | right
}

impl fmt::Debug for IdSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdSecret(…)")
    }
}

/// Makes every bit depend on all bits: the end of `MurmurHash3`.
fn mixed(mut bits: u32) -> u32 {
    bits = (bits ^ bits >> 16).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ bits >> 13).wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-26T00:00:00Z.
    const NOW: u64 = 1_795_651_200_000_000;
    const BLOCK: i64 = 1 << BLOCK_BITS;

    fn first_id(last: Option<i64>, micros: u64, count: u32) -> Option<i64> {
        match draw(last, micros, count, false)? {
            Draw::From(first) => Some(first),
            not_yet @ Draw::NotYet(_) => panic!("{not_yet:?}"),
        }
    }

    fn at(micros: u64) -> i64 {
        first_id(None, micros, 1).unwrap()
    }

    #[test]
    fn an_id_is_seconds_and_then_4294_for_each_microsecond() {
        assert_eq!(at(EPOCH * 1_000_000), 0);
        assert_eq!(at(EPOCH * 1_000_000 + 1), 4_294);
        assert_eq!(at(NOW) >> 32, (NOW / 1_000_000 - EPOCH).cast_signed());
        assert_eq!(at(NOW) & 0xFFFF_FFFF, 0);
        let last_of_a_second = at(NOW + 999_999) + 4_293;
        assert!(last_of_a_second < at(NOW + 1_000_000));
    }

    #[test]
    fn ids_never_fall_whatever_the_clock_does() {
        let last = at(NOW);
        assert_eq!(first_id(Some(last), NOW, 1), Some(last + 1));
        for micros in [EPOCH * 1_000_000, NOW - 1_000_000, NOW] {
            assert_eq!(first_id(Some(last), micros, 1), Some(last + 1));
        }
        assert_eq!(first_id(Some(last), NOW + 1, 1), Some(last + 4_294));
        let end_of_a_second = at(NOW + 1_000_000) - 1;
        assert_eq!(
            first_id(Some(end_of_a_second), NOW, 1),
            Some(at(NOW + 1_000_000)),
            "the carry"
        );
    }

    #[test]
    fn a_clock_outside_of_31_bits_gives_no_ids() {
        let end = (EPOCH + (1 << 31)) * 1_000_000;
        for micros in [0, EPOCH * 1_000_000 - 1, end, u64::MAX] {
            for last in [None, Some(at(NOW))] {
                assert_eq!(first_id(last, micros, 1), None, "{micros}");
            }
        }
        assert_eq!(at(end - 1), i64::MAX - 971_589);
        assert!(first_id(Some(i64::MAX - 2), NOW, 1).is_some());
        assert!(first_id(Some(i64::MAX - 2), NOW, 2).is_none());
        assert!(first_id(Some(i64::MAX), NOW, 1).is_none());
    }

    #[test]
    fn shuffled_ids_begin_no_block_before_the_clock_does() {
        let shuffled = |last, micros, count| draw(last, micros, count, true).unwrap();
        let block = at(NOW) >> BLOCK_BITS;
        let end = (block + 1) * BLOCK - 1;
        assert_eq!(shuffled(None, NOW, 1), Draw::NotYet(end));
        assert_eq!(shuffled(Some(end), NOW + 900, 1), Draw::NotYet(end));
        // A block is 976.7 µs.
        assert_eq!(shuffled(Some(end), NOW + 977, 1), Draw::From(at(NOW + 977)));
        assert_eq!(shuffled(Some(end - 10), NOW, 10), Draw::From(end - 9));
        assert_eq!(shuffled(Some(end - 10), NOW, 11), Draw::NotYet(end - 10));
        let later = end + 5 * BLOCK;
        assert_eq!(
            shuffled(Some(later), NOW, 11),
            Draw::From(later + 1),
            "the clock was set back"
        );
    }

    #[test]
    fn a_range_gives_each_of_its_ids_once_and_no_more() {
        let mut range = IdRange::new(7, 5, None).unwrap();
        let taken = |range: &mut IdRange, count| {
            let taken = range.take(count).map(IdRange::ids);
            taken.map(Iterator::collect::<Vec<_>>)
        };
        assert_eq!(taken(&mut range, 2), Some(vec![7, 8]));
        assert_eq!(taken(&mut range, 4), None);
        assert_eq!(taken(&mut range, 3), Some(vec![9, 10, 11]));
        assert_eq!((taken(&mut range, 1), range.left()), (None, 0));
        assert!(IdRange::new(-1, 5, None).is_none());
        assert!(IdRange::new(i64::MAX, 1, None).is_none());
    }

    #[test]
    fn the_shuffle_permutes_the_ids_of_each_block() {
        let keys = sha1_smol::Sha1::from(Uuid::new_v4().as_bytes());
        let keys = keys.digest().bytes();
        let mut seen = vec![false; BLOCK as usize];
        let mut fixed = 0;
        for low in 0..1 << BLOCK_BITS {
            let shuffled = shuffled_low(keys, low);
            fixed += u32::from(shuffled == low);
            assert!(
                !std::mem::replace(&mut seen[shuffled as usize], true),
                "{low}"
            );
        }
        assert!(fixed < 30, "a random permutation has one on average");
    }

    #[test]
    fn neighbours_are_shuffled_apart_and_each_block_in_its_own_way() {
        let secret = IdSecret::new();
        let first = at(NOW) >> BLOCK_BITS << BLOCK_BITS;
        let place = |id: i64| (secret.shuffled(id) % BLOCK) as f64 / BLOCK as f64;
        // Both sums are of 4,096 numbers that are spread over 0 to 1: they are 2,048 and 1,365, give or take 19 and 16.
        let spread: f64 = (0..4_096).map(|i| place(first + i)).sum();
        assert!((1_860.0..2_240.0).contains(&spread), "{spread}");
        let apart: f64 = (0..4_096)
            .map(|i| (place(first + i) - place(first + i + 1)).abs())
            .sum();
        assert!((1_200.0..1_530.0).contains(&apart), "{apart}");
        let same = (0..4_096).filter(|i| place(first + i) == place(first + i + BLOCK));
        assert!(same.count() < 10);
    }

    #[test]
    fn the_shuffle_is_frozen() {
        // All processes of a name must agree, whatever their versions are.
        let secret = IdSecret::parse("000102030405060708090a0b0c0d0e0f").unwrap();
        let shuffled = [0, 1, BLOCK - 1, BLOCK, at(NOW)].map(|id| secret.shuffled(id));
        assert_eq!(shuffled, FROZEN);
        assert_eq!(IdSecret::parse(&secret.text()), Some(secret));
        for text in ["", "0", "000102030405060708090a0b0c0d0e0g"] {
            assert!(IdSecret::parse(text).is_none());
        }
        assert_eq!(format!("{secret:?}"), "IdSecret(…)");
    }

    const FROZEN: [i64; 5] = [
        2_630_667,
        3_814_584,
        674_205,
        4_279_256,
        122_087_022_371_980_045,
    ];
}
