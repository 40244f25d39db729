//! Durations written as string literals: `"250ms"`, `"2s"`, `"5m"`, `"1h"`.

use std::time::Duration;

/// Parses one whole number followed by one unit. The error says what is wrong.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    if digits.is_empty() {
        return Err(format!(
            "`{text}` is no duration: write a whole number and a unit, such as \"250ms\", \"2s\", \"5m\" or \"1h\""
        ));
    }
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" => {
            return Err(format!(
                "the duration `{text}` needs a unit: \"{text}ms\", \"{text}s\", \"{text}m\" or \"{text}h\""
            ));
        }
        _ if unit.starts_with('.') => {
            return Err(format!(
                "the duration `{text}` must be a whole number: use a smaller unit, such as \"1500ms\" for 1.5 s"
            ));
        }
        _ => {
            return Err(format!(
                "`{unit}` in the duration `{text}` is no unit: the units are ms, s, m and h, one per duration"
            ));
        }
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis_per_unit))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("the duration `{text}` is too long"))
}

/// Writes a duration that `parse` has read in the shortest way, for messages.
pub(crate) fn display(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if !millis.is_multiple_of(1_000) => format!("{millis}ms"),
        _ if !millis.is_multiple_of(60_000) => format!("{}s", millis / 1_000),
        _ if !millis.is_multiple_of(3_600_000) => format!("{}m", millis / 60_000),
        _ => format!("{}h", millis / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_understood_and_written_back() {
        for (text, millis) in [
            ("250ms", 250),
            ("2s", 2_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(display(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "is no duration"),
            ("s", "is no duration"),
            ("-2s", "is no duration"),
            (" 2s", "is no duration"),
            ("2", "needs a unit: \"2ms\""),
            ("1.5s", "whole number"),
            ("2 s", "is no unit"),
            ("2S", "is no unit"),
            ("1m30s", "is no unit"),
            ("2us", "is no unit"),
            ("99999999999999999999s", "too long"),
            ("9999999999999999h", "too long"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(reason), "{text}: {message}");
        }
    }
}
