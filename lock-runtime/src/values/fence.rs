//! Fencing tokens: a hybrid clock, `max(previous + 1, the store's TIME in µs)`.

use std::fmt;

/// A number that strictly increases with every exclusive acquisition of a key.
///
/// Hand it to the resource that the lock guards and let the resource refuse a token below the last one it has
/// seen (`token >= last` passes: one holder may write several times). That closes the gap which no lease can
/// close, a holder that is paused between its check and its write
/// ([Kleppmann, "How to do distributed locking"](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)).
///
/// Tokens increase per key on one unbroken history of the store. Across a fail-over, a flush or a restart they
/// still increase if the store's new clock lags by less than the time since the last token; those of
/// [`fenced`](crate::LockManager::fenced) start again at 1 if the store loses their counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token that a store returned. Numbers from 2^53 on lose digits in Lua and in JSON readers.
    pub(crate) fn checked(value: u64) -> Option<FencingToken> {
        (value < 1 << 53).then_some(FencingToken(value))
    }

    /// The number: below 2^53, so it fits a signed 64-bit column and a JavaScript number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The token after `previous` at the time `now_micros`.
    pub(crate) fn after(previous: Option<FencingToken>, now_micros: u64) -> FencingToken {
        let floor = previous.map_or(0, |token| token.0 + 1);
        FencingToken(floor.max(now_micros))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}
