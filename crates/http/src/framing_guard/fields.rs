//! The two fields of a head that say where its body ends, and what the length among them is.

use super::lines::line_feed;

/// The longer one of the two names, with its colon.
pub(super) const NAME_MAX: usize = "transfer-encoding:".len();
pub(super) const LENGTH: &[u8] = b"content-length:";
pub(super) const CODING: &[u8] = b"transfer-encoding:";

/// A framing field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Length,
    Coding,
}

impl Field {
    /// The field whose line begins with these bytes, and how long its name is.
    #[inline]
    pub(super) fn begins(line: &[u8]) -> Option<(Self, usize)> {
        match line {
            // Nearly each head has a content type too.
            [b'c' | b'C', _, _, _, _, _, _, _, b'l' | b'L', ..] if begins_with(line, LENGTH) => {
                Some((Self::Length, LENGTH.len()))
            }
            [b't' | b'T', rest @ ..] if begins_with(rest, &CODING[1..]) => {
                Some((Self::Coding, CODING.len()))
            }
            _ => None,
        }
    }

    /// The field whose name has begun with some bytes of a line and ends with others, and how many of these it takes.
    pub(super) fn goes_on(begun: &[u8], bytes: &[u8]) -> Option<(Self, usize)> {
        if begun.is_empty() {
            return None;
        }
        let ends = |name: &[u8]| {
            let (beginning, rest) = name.split_at_checked(begun.len())?;
            let found = !rest.is_empty()
                && beginning.eq_ignore_ascii_case(begun)
                && begins_with(bytes, rest);
            found.then_some(rest.len())
        };
        match ends(LENGTH) {
            Some(end) => Some((Self::Length, end)),
            None => ends(CODING).map(|end| (Self::Coding, end)),
        }
    }
}

/// Framing fields of one head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Framing {
    has_length: bool,
    has_coding: bool,
    /// Value of `Content-Length`.
    value: Option<u64>,
    /// Partial length, while its line is incomplete.
    begun: Option<PartialNumber>,
}

/// End of a body, as declared by its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    /// Body length in bytes.
    After(u64),
    /// With its last chunk.
    Chunked,
    /// The end is ambiguous.
    Unclear,
}

/// Partial number that arrives in several pieces.
#[derive(Clone, Copy, Debug, Default)]
struct PartialNumber {
    text: [u8; DIGITS_MAX],
    len: usize,
}

/// Longest number that is put together, blanks included.
const DIGITS_MAX: usize = 32;

impl Framing {
    /// Records a field whose value begins with these bytes. Returns true if the head now has both fields.
    #[inline]
    pub(super) fn note(&mut self, field: Field, value: &[u8]) -> bool {
        match field {
            Field::Length => {
                if !self.has_length {
                    self.has_length = true;
                    self.begin(value);
                }
            }
            Field::Coding => self.has_coding = true,
        }
        self.has_length && self.has_coding
    }

    /// Returns the end of the body, once the head is complete.
    pub(super) fn ending(&self) -> BodyLength {
        match (self.has_length, self.has_coding, self.value) {
            (false, true, _) => BodyLength::Chunked,
            (_, false, Some(length)) => BodyLength::After(length),
            _ => BodyLength::Unclear,
        }
    }

    /// Reads a length that begins here.
    #[inline]
    fn begin(&mut self, bytes: &[u8]) {
        if let Some(end) = line_feed(bytes) {
            self.value = number(&bytes[..end]);
        } else {
            self.begun = Some(PartialNumber::default());
            self.go_on(bytes);
        }
    }

    /// Reads on in the line of a length that has begun and not ended.
    #[inline]
    pub(super) fn go_on(&mut self, bytes: &[u8]) {
        let Some(begun) = &mut self.begun else {
            return;
        };
        let end = line_feed(bytes);
        let more = &bytes[..end.unwrap_or(bytes.len())];
        if end.is_some() && begun.len == 0 {
            self.value = number(more);
            self.begun = None;
            return;
        }
        let Some(room) = begun.text.get_mut(begun.len..begun.len + more.len()) else {
            // The value is too long.
            self.begun = None;
            return;
        };
        room.copy_from_slice(more);
        begun.len += more.len();
        if end.is_some() {
            self.value = number(&begun.text[..begun.len]);
            self.begun = None;
        }
    }
}

#[inline]
pub(super) fn begins_with(bytes: &[u8], name: &[u8]) -> bool {
    bytes
        .get(..name.len())
        .is_some_and(|found| found.eq_ignore_ascii_case(name))
}

/// The number that is written in digits, with blanks around it.
#[inline]
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
