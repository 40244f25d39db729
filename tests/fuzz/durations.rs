//! Durations as the attribute takes them: a whole number and a unit, read exactly or refused.

use std::time::Duration;

#[path = "../../lock-macros/src/duration.rs"]
mod duration;

fn expected(text: &str) -> Option<Duration> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let (unit, factor) = units.into_iter().find(|(unit, _)| text.ends_with(unit))?;
    let digits = text.strip_suffix(unit)?;
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let millis = u128::from(number) * factor;
    Some(Duration::from_millis(u64::try_from(millis).ok()?))
}

pub fn run(text: &str) {
    let read = duration::parse(text);
    assert_eq!(read.clone().ok(), expected(text), "{text}");
    match read {
        Ok(read) => assert_eq!(
            duration::parse(&duration::display(read)),
            Ok(read),
            "{text}"
        ),
        Err(why) => assert!(why.contains(text), "{text}: {why}"),
    }
}
