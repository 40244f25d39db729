//! Fencing tokens: a hybrid clock, `max(previous + 1, the store's TIME in µs)`.

use std::fmt;

use crate::values::clock::Moment;

/// A number that strictly increases with every exclusive acquisition of a key.
///
/// Hand it to the resource that the lock guards and let the resource refuse a token below the last one it has
/// seen (`token >= last` passes: one holder may write several times). That closes the gap which no lease can
/// close, a holder that is paused between its check and its write
/// ([Kleppmann, "How to do distributed locking"](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html)).
///
/// Tokens increase per key on one unbroken history of the store. Across a fail-over, a flush or a restart they
/// still increase if the store's new clock lags by less than the time since the last token, less 2 ms (tokens may be so
/// far ahead of the clock where callers of one process queue for a key); those of
/// [`fenced`](crate::LockManager::fenced) start again at 1 if the store loses their counter.
///
/// ```
/// # use lock_runtime::LockManager;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = LockManager::in_memory();
/// let guard = locks.mutex("order:17").acquire().await?;
/// let token = guard.fencing_token().map_or(0, |token| token.get());
/// // UPDATE orders SET state = 'paid', token = $1 WHERE id = 17 AND token <= $1
/// guard.release().await?;
///
/// let next = locks.mutex("order:17").acquire().await?;
/// assert!(next.fencing_token().is_some_and(|next| next.get() > token));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
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

    /// So many further on.
    pub(crate) fn plus(self, more: u64) -> FencingToken {
        FencingToken(self.0.saturating_add(more))
    }

    /// The token after `previous` at the time `now_micros`.
    pub(crate) fn after(previous: Option<FencingToken>, now_micros: u64) -> FencingToken {
        let floor = previous.map_or(0, |token| token.0 + 1);
        FencingToken(floor.max(now_micros))
    }
}

/// How many tokens are set aside at a time. Those that follow the clock are so many µs ahead of it: fewer than a tenure
/// has, so that the clock has caught up when the next ones are set aside.
pub(crate) const SPARE_TOKENS: u64 = 1_900;

/// Tokens that the store has set aside for holds which follow without a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenRange {
    given: FencingToken,
    last: FencingToken,
    /// The store's time when it set them aside, in µs, and when its answer was here. `None`: the tokens follow no clock.
    clock: Option<(u64, Moment)>,
}

impl TokenRange {
    /// Those after `given`, up to `last`.
    pub(crate) fn new(
        given: FencingToken,
        last: FencingToken,
        clock: Option<(u64, Moment)>,
    ) -> TokenRange {
        TokenRange { given, last, clock }
    }

    /// The next token, if there is one by `now`.
    ///
    /// A token that follows the clock is never ahead of the store's. After a failover that forgot the range, the store's
    /// next token is at least its time: larger than all that were given from here.
    pub(crate) fn take(&mut self, now: Moment) -> Option<FencingToken> {
        let time = self.clock.map_or(u64::MAX, |(micros, heard)| {
            let since = u64::try_from((now - heard).as_micros()).unwrap_or(u64::MAX);
            micros.saturating_add(since)
        });
        let next = self.given.0 + 1;
        if next > self.last.0 || next > time {
            return None;
        }
        self.given = FencingToken(next);
        Some(self.given)
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
