//! Numbers with more digits than a number of 64 bits keeps.

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
}
