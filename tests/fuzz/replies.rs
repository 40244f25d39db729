//! Replies of a server to our scripts, whatever it sends. Reading them must not panic, and must not take for a granted
//! lock what is not exactly that.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use redis::Value;

const WORDS: [&str; 16] = [
    "OK",
    "BUSY",
    "QUEUED",
    "STALE",
    "FOREIGN",
    "LOST",
    "FREE",
    "HELD",
    "COUNT",
    "SHORT",
    "KEPT",
    "FENCE",
    "exclusive",
    "read",
    "write",
    "",
];

fn value(input: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    Ok(
        match input.int_in_range(0..=if depth == 0 { 6 } else { 8 })? {
            0 => Value::Nil,
            1 => Value::Int(input.int_in_range(-3..=3)?),
            2 => Value::Int(input.arbitrary()?),
            3 => Value::BulkString(input.choose(&WORDS)?.as_bytes().to_vec()),
            4 => Value::BulkString(input.arbitrary::<u64>()?.to_string().into()),
            5 => Value::BulkString(input.arbitrary::<&[u8]>()?.to_vec()),
            6 => Value::SimpleString(input.arbitrary()?),
            7 => Value::Map(vec![(value(input, depth - 1)?, value(input, depth - 1)?)]),
            _ => array(input, depth - 1)?,
        },
    )
}

fn array(input: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    let length = input.int_in_range(0..=8)?;
    Ok(Value::Array(
        (0..length)
            .map(|_| value(input, depth))
            .collect::<Result<_>>()?,
    ))
}

/// Returns whether a reply grants the lock: `OK`, the token if one was wanted, and the server's time, with nothing else
/// and nothing more. The time alone also grants it, and is then the token.
fn grants(reply: &Value, fenced: bool) -> bool {
    let number = |digits: &[u8]| {
        let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(digits)
            .ok()?
            .parse::<u64>()
            .ok()
            .filter(|_| plain)
    };
    let items = match reply {
        Value::Array(items) => items,
        Value::BulkString(time) => {
            return number(time).is_some_and(|time| !fenced || time < 1 << 53);
        }
        _ => return false,
    };
    let [word, Value::BulkString(token), Value::BulkString(time)] = items.as_slice() else {
        return false;
    };
    let word = match word {
        Value::BulkString(word) => word == b"OK",
        Value::SimpleString(word) => word == "OK",
        _ => false,
    };
    let token = match fenced {
        true => number(token).is_some_and(|token| token < 1 << 53),
        false => token.is_empty(),
    };
    word && token && number(time).is_some()
}

pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let Ok((fenced, reply)) = input
        .arbitrary()
        .and_then(|fenced| Ok((fenced, array(&mut input, 2)?)))
    else {
        return;
    };
    let check = |reply: &Value| {
        let is_grant = lock_runtime::fuzz::is_grant(reply, fenced);
        assert!(!is_grant || grants(reply, fenced), "{reply:?}");
    };
    check(&reply);
    if let Value::Array(items) = &reply {
        items.iter().for_each(check);
    }
}
