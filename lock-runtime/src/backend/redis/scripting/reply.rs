//! Parses script replies strictly: any deviation from the promised form is malformed.

use std::time::Duration;

use redis::Value;

use crate::backend::Fault;
use crate::values::key::FENCE_PREFIX;
use crate::values::{FencingToken, decimal};

/// The items of a reply, taken one after the other. A reply that is not an array is its only item.
pub(crate) struct Items {
    rest: std::vec::IntoIter<Value>,
    is_lone: bool,
}

impl Items {
    pub(crate) fn of(reply: Value) -> Option<Items> {
        let (items, is_lone) = match reply {
            Value::Array(items) => (items, false),
            item @ (Value::BulkString(_) | Value::Int(_)) => (vec![item], true),
            _ => return None,
        };
        let rest = items.into_iter();
        Some(Items { rest, is_lone })
    }

    /// Returns `true` if the reply is not an array.
    pub(crate) fn is_lone(&self) -> bool {
        self.is_lone
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        text(self.rest.next()?)
    }

    /// Returns `None` if the next item is not this word.
    pub(crate) fn word(&mut self, word: &str) -> Option<()> {
        (self.text()? == word).then_some(())
    }

    /// Returns text for people, which may quote text that others have written.
    pub(crate) fn words(&mut self) -> Option<String> {
        match self.rest.next()? {
            Value::BulkString(bytes) => Some(words(&bytes)),
            _ => None,
        }
    }

    pub(crate) fn value(&mut self) -> Option<Value> {
        self.rest.next()
    }

    pub(crate) fn integer(&mut self) -> Option<i64> {
        match self.rest.next()? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// Parses 0 or 1.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.integer()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Parses a number that a script sent as text, because Lua would have rounded it.
    pub(crate) fn digits(&mut self) -> Option<u64> {
        match self.rest.next()? {
            Value::BulkString(bytes) => decimal::parse(&bytes),
            _ => None,
        }
    }

    /// Parses a token. The inner `None` means that no token was wanted.
    pub(crate) fn token(&mut self) -> Option<Option<FencingToken>> {
        let number = match self.rest.next()? {
            Value::BulkString(bytes) if bytes.is_empty() => return Some(None),
            Value::BulkString(bytes) => decimal::parse(&bytes)?,
            _ => return None,
        };
        FencingToken::checked(number).map(Some)
    }

    /// Parses the answer of PTTL. The inner `None` means that there is no expiry.
    pub(crate) fn expiry(&mut self) -> Option<Option<Duration>> {
        expiry(self.integer()?)
    }

    /// Returns the channel and payload of each message that a script could not publish, from the rest of its reply.
    /// Skips a channel whose name is not valid text: others wrote the name, and none of our listeners is there.
    pub(crate) fn messages(&mut self) -> Option<Vec<(String, String)>> {
        let mut messages = Vec::new();
        while let Some(channel) = self.value() {
            let (Value::BulkString(channel), payload) = (channel, self.text()?) else {
                return None;
            };
            if let Ok(channel) = String::from_utf8(channel) {
                messages.push((channel, payload));
            }
        }
        Some(messages)
    }

    /// Returns the value if no item is left; otherwise the reply is malformed.
    pub(crate) fn end<T>(mut self, value: T) -> Option<T> {
        self.rest.next().is_none().then_some(value)
    }
}

/// Parses the answer of PTTL. The inner `None` means that there is no expiry.
pub(crate) fn expiry(millis: i64) -> Option<Option<Duration>> {
    match millis {
        -1 => Some(None),
        // The key expired between two commands of the script's caller.
        -2 => Some(Some(Duration::ZERO)),
        millis => Some(Some(Duration::from_millis(u64::try_from(millis).ok()?))),
    }
}

pub(crate) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

/// Returns text without control characters.
fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "\u{fffd}")
}

/// Returns the fault of a script that has found something else at a key: `{'FOREIGN', key, why}`, or `FENCE` for a fence.
/// `None` for any other reply.
pub(crate) fn foreign(reply: &Value) -> Option<Fault> {
    let Value::Array(items) = reply else {
        return None;
    };
    let [
        Value::BulkString(word),
        Value::BulkString(key),
        Value::BulkString(why),
    ] = &**items
    else {
        return None;
    };
    let is_fence = match word.as_slice() {
        b"FOREIGN" => false,
        b"FENCE" => true,
        _ => return None,
    };
    let key = String::from_utf8_lossy(key).into_owned();
    let mut why = words(why);
    if is_fence {
        why.push_str(&advice_on_fence(&key));
    }
    Some(Fault::Foreign { key, why })
}

/// Returns advice about a fence that holds no token.
fn advice_on_fence(fence: &str) -> String {
    if fence.starts_with(FENCE_PREFIX) {
        format!(
            "; no lock of its slot that has tokens can be acquired until it is mended: `DEL {fence}` does, tokens then \
             continue from the server's clock"
        )
    } else {
        format!(
            "; the lock cannot be acquired until it is mended: `SET {fence}` to the last token that was given, or a greater one"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(values: Vec<Value>) -> Items {
        Items::of(Value::Array(values)).unwrap()
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn sixteen_digits_are_read_exactly() {
        let token = items(vec![bulk("1795248594129927")])
            .token()
            .unwrap()
            .unwrap();
        assert_eq!(token.get(), 1_795_248_594_129_927);
        assert_eq!(items(vec![bulk("")]).token(), Some(None));
    }

    #[test]
    fn malformed_items_are_none_and_never_a_panic() {
        for bad in [
            "-1",
            "+1",
            "1e3",
            " 1",
            "9007199254740992",
            "99999999999999999999",
            "1.5",
        ] {
            assert_eq!(items(vec![bulk(bad)]).token(), None, "{bad}");
        }
        assert_eq!(items(vec![Value::Nil]).text(), None);
        assert_eq!(items(vec![Value::BulkString(vec![0xff])]).text(), None);
        assert_eq!(items(vec![]).integer(), None);
        assert_eq!(items(vec![Value::Int(-3)]).expiry(), None);
        assert_eq!(
            items(vec![Value::Int(1)]).end(()),
            None,
            "something is left over"
        );
        assert!(Items::of(Value::Nil).is_none());
    }

    #[test]
    fn expiries_are_pttls() {
        assert_eq!(items(vec![Value::Int(-1)]).expiry(), Some(None));
        assert_eq!(
            items(vec![Value::Int(-2)]).expiry(),
            Some(Some(Duration::ZERO))
        );
        assert_eq!(
            items(vec![Value::Int(7)]).expiry(),
            Some(Some(Duration::from_millis(7)))
        );
    }
}
