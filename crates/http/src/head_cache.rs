//! Recognition of heads that repeat the previous one of an HTTP/1 connection.
//!
//! Clients reuse connections and send the same head with each request, except for the body length. The results of its
//! fields are then reused ([`SummaryCache`](super::headers::SummaryCache)): framing, Host and Origin, media types, and
//! protocol headers. Authentication still runs for each request. `docs/dev/performance-notes.md` has the measured gain.
//!
//! Only exact repetition counts: all bytes are equal, except for the digits of `Content-Length`, which are parsed
//! again. The comparison takes constant time, since heads may hold credentials and callers may share a connection.
//!
//! **Invariant.** Results belong to the request with their number. [`Repeats`] names both the request whose head
//! repeats and the head that it repeats; the cache returns results for exactly that head. So it does not matter in
//! which order bytes are read and requests begin.

use std::fmt;

use memchr::memmem;
use zeroize::Zeroizing;

use super::framing::{CODING, LENGTH, begins_with};
use crate::auth::{StoreBackoff, is_same};

/// The head of a request equals the head of an earlier one. Requests of a connection are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    pub(super) request: u32,
    pub(super) head: u32,
}

/// Longest head that is remembered. There is one for each connection.
const REMEMBERED_MAX_BYTES: usize = 2048;
/// Maximum number of digits of a body length.
const DIGITS_MAX: usize = 9;

/// Remembered head of a connection.
#[derive(Default)]
pub(super) struct KnownHeads {
    last: Option<Box<KnownHead>>,
    /// Heads may keep differing.
    backoff: StoreBackoff,
}

/// Raw bytes of a head.
struct KnownHead {
    /// Number of the request that had it.
    number: u32,
    /// Its bytes without the digits of its length.
    text: Zeroizing<Vec<u8>>,
    /// Offset of the length digits.
    digits: usize,
    was_of_use: bool,
}

/// A request whose head is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownRequest {
    /// Number of the request that had the head before.
    pub(super) number: u32,
    pub(super) head_bytes: usize,
    pub(super) body_bytes: usize,
}

impl KnownHeads {
    /// Looks whether these bytes begin with the remembered head, and no request follows them.
    #[inline]
    pub(super) fn recognise(&mut self, bytes: &[u8]) -> Option<KnownRequest> {
        let last = self.last.as_mut()?;
        let known = last.begins(bytes)?;
        last.was_of_use = true;
        Some(known)
    }

    /// Remembers the head at the start of these bytes if that is worthwhile. `left` bytes of its body have not arrived.
    /// Returns true if it was remembered.
    pub(super) fn remember(&mut self, bytes: &[u8], left: u64, number: u32) -> bool {
        if self.backoff.passes_over() {
            return false;
        }
        let Some(head) = KnownHead::of(bytes, left, number) else {
            return false;
        };
        let was_in_vain = self.last.as_ref().is_some_and(|last| !last.was_of_use);
        self.backoff.stores(was_in_vain);
        self.last = Some(Box::new(head));
        true
    }
}

impl KnownHead {
    /// Extracts the head from the start of these bytes. Returns `None` if it must not be remembered.
    fn of(bytes: &[u8], left: u64, number: u32) -> Option<Self> {
        let end = memmem::find(bytes, b"\r\n\r\n")? + 4;
        let head = bytes.get(..end).filter(|_| end <= REMEMBERED_MAX_BYTES)?;
        // Blank lines may stand before a head.
        head.first().filter(|first| first.is_ascii_uppercase())?;
        let mut found = None;
        let mut at = 0;
        for line in head.split_inclusive(|byte| *byte == b'\n') {
            if begins_with(line, CODING) || begins_with(line, LENGTH) && found.is_some() {
                return None;
            }
            if begins_with(line, LENGTH) {
                let value = &line[LENGTH.len()..];
                let blanks = value.iter().take_while(|b| matches!(b, b' ' | b'\t'));
                found = Some(at + LENGTH.len() + blanks.count());
            }
            at += line.len();
        }
        let digits = found?;
        let (count, said) = number_in(&head[digits..])?;
        let behind = head.get(digits + count..)?;
        if (end + said) as u64 != bytes.len() as u64 + left || !behind.starts_with(b"\r\n") {
            return None;
        }
        let text = [&head[..digits], behind].concat();
        Some(Self {
            number,
            text: Zeroizing::new(text),
            digits,
            was_of_use: false,
        })
    }

    /// Looks whether a request at the start of these bytes has this head, and no bytes follow it.
    #[inline]
    fn begins(&self, bytes: &[u8]) -> Option<KnownRequest> {
        let (before, behind) = self.text.split_at_checked(self.digits)?;
        let (begins, rest) = bytes.split_at_checked(before.len())?;
        let (count, length) = number_in(rest)?;
        let goes_on = rest.get(count..count + behind.len())?;
        let head = self.text.len() + count;
        // Requests without a body take the normal path.
        let is_one = length != 0 && bytes.len() <= head + length;
        (is_one & is_same(begins, before) & is_same(goes_on, behind)).then_some(KnownRequest {
            number: self.number,
            head_bytes: head,
            body_bytes: length,
        })
    }
}

/// Parses leading digits; returns their count and value. `None` if there are none or too many.
#[inline]
fn number_in(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut number = 0;
    for (at, byte) in bytes.iter().enumerate().take(DIGITS_MAX + 1) {
        match byte {
            b'0'..=b'9' if at < DIGITS_MAX => number = 10 * number + usize::from(byte - b'0'),
            b'0'..=b'9' => return None,
            _ => return (at != 0).then_some((at, number)),
        }
    }
    None
}

/// Redacts the contents, which may include credentials.
impl fmt::Debug for KnownHeads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownHeads")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nAccept: */*\r\n\r\n";

    /// Bytes of the body that have not arrived, where none has.
    const LEFT: u64 = 3;

    fn knowing(head: &str) -> KnownHeads {
        let mut known = KnownHeads::default();
        assert!(known.remember(head.as_bytes(), LEFT, 2), "{head:?}");
        known
    }

    fn body_ends(known: &mut KnownHeads, text: &str) -> Option<usize> {
        let request = known.recognise(text.as_bytes())?;
        assert_eq!(
            &text[..request.head_bytes],
            text.split_inclusive("\r\n\r\n").next().unwrap_or("")
        );
        assert_eq!(request.number, 2);
        Some(request.head_bytes + request.body_bytes)
    }

    #[test]
    fn a_head_is_known_again_whatever_length_it_says() {
        let mut known = knowing(HEAD);
        for length in [1, 3, 12, 1_234_567, 999_999_999] {
            let again = HEAD.replace(": 3", &format!(": {length}"));
            assert_eq!(body_ends(&mut known, &again), Some(again.len() + length));
            let begun = format!("{again}x");
            assert_eq!(body_ends(&mut known, &begun), Some(again.len() + length));
        }
    }

    #[test]
    fn one_that_differs_by_a_byte_is_not_and_neither_is_part_of_one() {
        let mut known = knowing(HEAD);
        for at in 0..HEAD.len() {
            assert_eq!(body_ends(&mut known, &HEAD[..at]), None, "up to {at}");
            let mut other = HEAD.as_bytes().to_vec();
            other[at] ^= 1;
            let is_digit = other[at].is_ascii_digit() && HEAD.as_bytes()[at] == b'3';
            assert_eq!(known.recognise(&other).is_some(), is_digit, "at {at}");
        }
    }

    #[test]
    fn lengths_of_another_form_are_looked_at_by_others() {
        let mut known = knowing(HEAD);
        for length in [
            "",
            "0",
            "+3",
            "-3",
            " 3",
            "3 ",
            "3, 3",
            "3\r\nContent-Length: 3",
            "0x3",
            "1234567890",
        ] {
            let other = HEAD.replace(": 3", &format!(": {length}"));
            assert_eq!(body_ends(&mut known, &other), None, "{length:?}");
        }
    }

    #[test]
    fn a_request_behind_which_more_has_come_is_looked_at_by_others() {
        let mut known = knowing(HEAD);
        assert!(body_ends(&mut known, &format!("{HEAD}abc")).is_some());
        assert_eq!(body_ends(&mut known, &format!("{HEAD}abcP")), None);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_remembered() {
        let long = format!("x: {}\r\n\r\n", "y".repeat(REMEMBERED_MAX_BYTES));
        for head in [
            HEAD.replace("Host: a", "Transfer-Encoding: chunked"),
            HEAD.replace("Host: a", "content-length: 3"),
            HEAD.replace("Content-Length: 3\r\n", ""),
            HEAD.replace(": 3", ": 3 "),
            HEAD.replace(": 3", ": 03x"),
            HEAD.replace("\r\n\r\n", &format!("\r\n{long}")),
            HEAD.replace("\r\n\r\n", "\r\n"),
            format!("\r\n{HEAD}"),
        ] {
            assert!(
                !KnownHeads::default().remember(head.as_bytes(), LEFT, 2),
                "{head:?}"
            );
        }
        assert!(!KnownHeads::default().remember(HEAD.as_bytes(), LEFT + 1, 2));
    }

    #[test]
    fn where_heads_differ_all_the_time_few_are_remembered() {
        let mut known = KnownHeads::default();
        let remembered = (0..1_000).filter(|number| {
            let head = HEAD.replace("Host: a", &format!("Host: {number}"));
            known.remember(head.as_bytes(), LEFT, 2)
        });
        assert!(remembered.count() < 30);
        // Once it is of use, the next one is remembered at once.
        let last = (0..64).find(|_| known.remember(HEAD.as_bytes(), LEFT, 2));
        assert!(last.is_some());
        assert!(known.recognise(HEAD.as_bytes()).is_some());
        known.backoff = StoreBackoff::default();
        assert!(known.remember(HEAD.replace(": a", ": b").as_bytes(), LEFT, 2));
        assert!(!known.backoff.passes_over());
    }
}
