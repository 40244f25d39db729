//! Fencing tokens: a hybrid clock, `max(previous + 1, the store's TIME in µs)`.

use std::fmt;
use std::str::FromStr;

use crate::values::clock::{self, Moment};

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
/// # To the resource, and back
///
/// A token is below 2^53, so it fits into a signed column of 64 bits, a number of JavaScript's and the text of a header.
/// It converts into `i64`, `u64` and, with `Display`, text of 16 digits at most. `TryFrom<i64>`, `TryFrom<u64>` and
/// `FromStr` read it again, and refuse what is no token with [`FencingTokenError`]. `0` can be read, too: no hold has it,
/// so it is a good first value for a column. With the feature `serde`, a token is serialized as its number.
///
/// [Fencing](crate::_documentation::fencing) has the statements for PostgreSQL, MySQL, SQLite, Redis and S3.
///
/// ```
/// use lock_runtime::{FencingToken, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let guard = LockManager::in_memory().mutex("meter:gas").acquire().await?;
/// let token = guard.fencing_token().ok_or("this kind of lock has no tokens")?;
///
/// let column = i64::from(token);
/// assert_eq!(FencingToken::try_from(column)?, token);
///
/// let header = token.to_string();
/// assert_eq!(header.parse::<FencingToken>()?, token);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(try_from = "u64", into = "u64")
)]
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

    /// The token that is `more` later.
    pub(crate) fn plus(self, more: u64) -> FencingToken {
        FencingToken(self.0.saturating_add(more))
    }

    /// The token after `previous` at the time `now_micros`.
    pub(crate) fn after(previous: Option<FencingToken>, now_micros: u64) -> FencingToken {
        let floor = previous.map_or(0, |token| token.0 + 1);
        FencingToken(floor.max(now_micros))
    }
}

/// The number of tokens that are set aside at a time. Tokens that follow the clock are up to this number of µs ahead of
/// it: less than a tenure lasts, so that the clock has caught up when the next ones are set aside.
pub(crate) const SPARE_TOKENS: u64 = 1_900;

/// Tokens that the store has set aside for holds which follow without a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenRange {
    /// No hold of this lock has a later token.
    pub(crate) given: FencingToken,
    pub(crate) last: FencingToken,
    /// The store's time when it set them aside, in µs, and when its answer was here. `None`: the tokens follow no clock.
    clock: Option<(u64, Moment)>,
}

impl TokenRange {
    /// The tokens after `given`, up to `last`.
    pub(crate) fn new(
        given: FencingToken,
        last: FencingToken,
        clock: Option<(u64, Moment)>,
    ) -> TokenRange {
        TokenRange { given, last, clock }
    }

    /// The same tokens, whose time was read at this moment of another clock.
    #[cfg(simulation)]
    pub(crate) fn heard_at(self, now: Moment) -> TokenRange {
        let clock = self.clock.map(|(micros, _)| (micros, now));
        TokenRange { clock, ..self }
    }

    /// The tokens that have not been given, if there are any. No hold gets them after that.
    pub(crate) fn unused(self) -> Option<TokenRange> {
        (!self.is_empty()).then_some(self)
    }

    /// Whether all of them have been given.
    pub(crate) fn is_empty(&self) -> bool {
        self.given >= self.last
    }

    /// The next token, if there is one within some microseconds: for one task that takes tokens faster than the clock
    /// goes. Never more than one of them is missing, because none was given ahead of the clock. A paused clock brings
    /// none.
    pub(crate) fn take_soon(&mut self) -> Option<FencingToken> {
        const LOOKS: usize = 100;
        if self.is_empty() {
            return None;
        }
        (0..LOOKS).find_map(|_| {
            std::hint::spin_loop();
            self.take(clock::now())
        })
    }

    /// The next token, if there is one by `now`.
    ///
    /// A token that follows the clock is never ahead of the store's. After a failover that forgot the range, the
    /// store's next token is at least its time: larger than all tokens that were given from here.
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

/// For a signed column of 64 bits: `bigint` in PostgreSQL and MySQL, `INTEGER` in SQLite.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> i64 {
        token.0.cast_signed() // Below 2^53.
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = FencingTokenError;

    fn try_from(value: u64) -> Result<FencingToken, FencingTokenError> {
        FencingToken::checked(value).ok_or(FencingTokenError(Some(value.into())))
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = FencingTokenError;

    /// The value that a column held.
    ///
    /// ```
    /// use lock_runtime::FencingToken;
    ///
    /// assert_eq!(FencingToken::try_from(33_i64)?.get(), 33);
    /// let error = FencingToken::try_from(-1_i64).unwrap_err();
    /// assert_eq!(error.to_string(), "-1 is no fencing token: tokens go from 0 to 9007199254740991 (2^53 - 1)");
    /// # Ok::<(), lock_runtime::FencingTokenError>(())
    /// ```
    fn try_from(value: i64) -> Result<FencingToken, FencingTokenError> {
        let token = u64::try_from(value).ok().and_then(FencingToken::checked);
        token.ok_or(FencingTokenError(Some(value.into())))
    }
}

impl FromStr for FencingToken {
    type Err = FencingTokenError;

    /// Parses the value of a header: decimal digits alone.
    ///
    /// ```
    /// use lock_runtime::FencingToken;
    ///
    /// assert_eq!("33".parse::<FencingToken>()?.get(), 33);
    /// assert!("33.0".parse::<FencingToken>().is_err());
    /// # Ok::<(), lock_runtime::FencingTokenError>(())
    /// ```
    fn from_str(text: &str) -> Result<FencingToken, FencingTokenError> {
        // `u64` would let a sign pass.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse().ok().filter(|_| digits);
        let token = value.and_then(FencingToken::checked);
        token.ok_or(FencingTokenError(None))
    }
}

/// Something that is no [`FencingToken`]: a number below 0 or from 2^53 on, or text that is not one in decimal digits.
///
/// The same input is refused again: a retry does not help. See the example of [`FencingToken`].
// It has the number, but no text: that came from outside, and may be of any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is no fencing token: tokens go from 0 to 9007199254740991 (2^53 - 1)",
    .0.map_or_else(|| "the text".to_owned(), |number| number.to_string())
)]
pub struct FencingTokenError(Option<i128>);

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: u64 = (1 << 53) - 1;

    #[test]
    fn a_token_survives_a_column_and_a_header() {
        for number in [0, 1, 1_795_251_945_375_433, LARGEST] {
            let token = FencingToken::try_from(number).unwrap();
            assert_eq!(u64::from(token), number);
            assert_eq!(FencingToken::try_from(i64::from(token)), Ok(token));
            assert_eq!(token.to_string().parse(), Ok(token));
            assert_eq!(format!("{token:016}").parse(), Ok(token));
        }
    }

    #[test]
    fn other_numbers_are_refused_with_the_number_and_the_bounds() {
        let too_large = [LARGEST + 1, u64::MAX].map(FencingToken::try_from);
        let signed = [i64::MIN, -1, 1 << 53, i64::MAX].map(FencingToken::try_from);
        let errors = too_large.into_iter().chain(signed).map(Result::unwrap_err);
        let said: Vec<String> = errors.map(|error| error.to_string()).collect();
        let numbers = [
            "9007199254740992",
            "18446744073709551615",
            "-9223372036854775808",
            "-1",
            "9007199254740992",
            "9223372036854775807",
        ];
        let wanted = numbers.map(|number| {
            format!("{number} is no fencing token: tokens go from 0 to 9007199254740991 (2^53 - 1)")
        });
        assert_eq!(said, wanted);
    }

    #[test]
    fn text_that_is_no_token_is_refused_and_not_repeated() {
        let too_large = (LARGEST + 1).to_string();
        for text in [
            "", " ", "-1", "+1", "1 ", "0x1", "1e3", "1.0", "٣", &too_large,
        ] {
            let error = text.parse::<FencingToken>().unwrap_err();
            assert_eq!(
                error.to_string(),
                "the text is no fencing token: tokens go from 0 to 9007199254740991 (2^53 - 1)",
                "{text:?}"
            );
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_token_is_a_number_in_json_and_what_is_no_token_is_not_read() {
        let token = FencingToken::try_from(LARGEST).unwrap();
        let json = serde_json::to_string(&token).unwrap();
        assert_eq!(json, "9007199254740991");
        assert_eq!(serde_json::from_str::<FencingToken>(&json).unwrap(), token);
        for refused in ["9007199254740992", "-1", "1.5", "\"33\"", "null"] {
            assert!(serde_json::from_str::<FencingToken>(refused).is_err());
        }
        let error = serde_json::from_str::<FencingToken>("9007199254740992").unwrap_err();
        assert!(
            error.to_string().starts_with("9007199254740992 is no"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_range_has_tokens_until_its_last_one_is_taken() {
        let token = |number| FencingToken::checked(number).unwrap();
        let mut range = TokenRange::new(token(7), token(9), None);
        assert!(!range.is_empty());
        assert_eq!(range.take_soon(), Some(token(8)));
        assert!(!range.is_empty());
        assert_eq!(range.take_soon(), Some(token(9)));
        assert!(range.is_empty());
        assert_eq!(range.take_soon(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_the_clock_is_not_taken_before_its_time() {
        let token = |number| FencingToken::checked(number).unwrap();
        let heard = clock::now();
        let mut range = TokenRange::new(token(1_000), token(1_002), Some((1_000, heard)));
        let after = |micros| heard + std::time::Duration::from_micros(micros);
        assert_eq!(range.take(heard), None);
        assert_eq!(range.take(after(1)), Some(token(1_001)));
        assert_eq!(range.take(after(1)), None);
        assert_eq!(range.take(after(9)), Some(token(1_002)));
        assert_eq!(range.take(after(9)), None, "it was the last one");
    }
}
