//! Numbers that a reader of 64-bit numbers would change.

/// Returns true if a text has more digits in a row, with or without a point, than an `f64` keeps.
pub fn has_long_number(text: &[u8]) -> bool {
    const DIGITS_MAX: usize = 15;
    let run = |bytes: &mut dyn Iterator<Item = &u8>| {
        bytes.take_while(|byte| is_of_number(**byte)).count()
    };
    // A longer number covers one of every sixteen bytes.
    (DIGITS_MAX..text.len()).step_by(DIGITS_MAX + 1).any(|at| {
        is_of_number(text[at])
            && DIGITS_MAX < run(&mut text[..at].iter().rev()) + run(&mut text[at..].iter())
    })
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.')
}

/// Returns the first integer of a JSON document that has more than 64 bits, and that no float of 64 bits stands for.
pub fn rounded_integer(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let is_part = |b: &&u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = bytes[at..].iter().take_while(is_part).count();
                let number = &json[at..at + length];
                if is_rounded(number) {
                    return Some(number);
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    None
}

/// Returns the position after a string.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn is_rounded(number: &str) -> bool {
    /// Number of digits that 64 bits always hold.
    const DIGITS: usize = 18;
    if number.len() <= DIGITS || number.contains(['.', 'e', 'E']) {
        return false;
    }
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return false;
    }
    // JavaScript writes floats up to 1e21 without an exponent, and fills them up with zeros.
    let is_float = |float: f64| format!("{float}") == number || format!("{float:.0}") == number;
    !number.parse().is_ok_and(is_float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_more_than_15_digits_are_long_wherever_they_stand() {
        for before in 0..40 {
            let with = |digits: &str| format!("{}{digits}{}", " ".repeat(before), "x".repeat(7));
            assert!(!has_long_number(with("123456789012345").as_bytes()));
            assert!(has_long_number(with("1234567890123456").as_bytes()));
            assert!(has_long_number(with("12345678.901234567890").as_bytes()));
            assert!(!has_long_number(with("12345678 901234567890").as_bytes()));
        }
    }

    #[test]
    fn integers_that_a_reader_would_change_are_found() {
        for (json, found) in [
            (
                r#"{"a": 18446744073709551617}"#,
                Some("18446744073709551617"),
            ),
            (
                r#"["\"", -9223372036854775809]"#,
                Some("-9223372036854775809"),
            ),
            ("[18446744073709551615, -9223372036854775808]", None),
            (
                r#"{"18446744073709551617": "18446744073709551617\\"}"#,
                None,
            ),
            ("[0.12345678901234567890, 18446744073709551617.5]", None),
            ("[1e400, 123456789012345678901234567890E2]", None),
            // What JavaScript writes for 1e20 and 2 ** 67, and the exact value of the latter.
            ("[100000000000000000000, 147573952589676410000]", None),
            ("147573952589676412928", None),
            ("147573952589676412929", Some("147573952589676412929")),
            (r#""18446744073709551617"#, None),
        ] {
            assert_eq!(rounded_integer(json), found, "{json}");
        }
    }
}
