//! Decimal numbers as text, both ways, without the machinery of `fmt`: every call to a store writes and reads some.

/// The longest text of a number.
pub(crate) const LONGEST: usize = 20;

/// Appends `number`.
pub(crate) fn push(text: &mut String, mut number: u64) {
    let mut digits = [0; LONGEST];
    let mut first = LONGEST;
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text.push_str(str::from_utf8(&digits[first..]).unwrap_or_default());
}

/// The number that `text` is, if it is 1 to 19 digits and nothing else: 19 digits always fit.
pub(crate) fn parse(text: &[u8]) -> Option<u64> {
    if !(1..LONGEST).contains(&text.len()) {
        return None;
    }
    text.iter().try_fold(0, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| number * 10 + u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_as_std_writes_it_and_read_back() {
        for number in [0, 1, 9, 10, 1_795_248_594_129_927, u64::MAX] {
            let mut text = String::from("x");
            push(&mut text, number);
            assert_eq!(text, format!("x{number}"));
            let fits = number < 10_000_000_000_000_000_000;
            assert_eq!(parse(&text.as_bytes()[1..]), fits.then_some(number));
        }
    }

    #[test]
    fn text_with_other_characters_or_too_many_digits_is_no_number() {
        for text in ["", "-1", "+1", " 1", "1e3", "1.5", "18446744073709551615"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
