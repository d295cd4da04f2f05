//! Line parser for heads.
//!
//! Corrupts lines that end with a bare line feed, and the second of two conflicting fields.

use super::chunks::{ChunkProgress, Chunks};
use super::fields::{BodyLength, Field};
use super::{BytePosition, FramingGuard};

/// Next step of the parser.
#[derive(Clone, Copy)]
enum Next {
    /// A line begins here.
    Line(usize),
    /// Somewhere from here on.
    Search(usize),
    /// Behind a body that ends here.
    Behind(usize),
    /// Skip the chunks that begin or continue here.
    Chunks(usize),
}

impl FramingGuard {
    /// Parses the bytes line by line.
    pub(super) fn follow(&mut self, bytes: &mut [u8], from: usize, at: BytePosition) {
        // Bodies may have line feeds alone; heads may not (RFC 9112 section 2.2 lets us, and others read them otherwise).
        let mut is_head = !self.lost || at != BytePosition::Body;
        // Earlier bytes belong to another request or were inspected.
        let mut begins = from;
        let rest = &bytes[from..];
        if let Some(head) = &mut self.head {
            head.go_on(rest);
        }
        let mut next = if self.chunks.is_some() {
            Next::Chunks(from)
        } else if let Some((field, value)) = self.tail.field(rest) {
            self.note(bytes, from, field, from + value);
            Next::Search(from)
        } else if let ([.., b'\n', b'\r'], [b'\n', ..]) = (self.tail.as_slice(), rest) {
            let next = self.close_head(from + 1, bytes.len());
            is_head &= !self.lost;
            next
        } else if self.tail.last() == Some(b'\n') {
            Next::Line(from)
        } else {
            Next::Search(from)
        };
        loop {
            next = match next {
                Next::Line(at) => match &bytes[at..] {
                    [b'\n', ..] => self.end_of_head(bytes, at, at + 1, &mut is_head),
                    [b'\r', b'\n', ..] => self.end_of_head(bytes, at, at + 2, &mut is_head),
                    _ => {
                        self.line(bytes, at);
                        Next::Search(at)
                    }
                },
                Next::Search(mut at) => loop {
                    let Some(length) = line_feed(&bytes[at..]) else {
                        return;
                    };
                    let end = at + length;
                    let before = match end.checked_sub(1) {
                        Some(before) if begins <= before => Some(bytes[before]),
                        _ if begins == from => self.tail.last(),
                        _ => None,
                    };
                    if is_head && before != Some(b'\r') {
                        bytes[end] = 0;
                        is_head = false;
                    }
                    at = end + 1;
                    // Most lines show with their first byte that they are of no interest here.
                    match bytes.get(at) {
                        Some(b'\r' | b'\n' | b'C' | b'c' | b'T' | b't') | None => {
                            break Next::Line(at);
                        }
                        Some(_) => {}
                    }
                },
                Next::Behind(at) => {
                    begins = at;
                    Next::Search(at)
                }
                Next::Chunks(at) => {
                    let chunks = self.chunks.get_or_insert_default();
                    match chunks.follow(bytes, at) {
                        ChunkProgress::On => return,
                        ChunkProgress::Broken(at) => {
                            self.chunks = None;
                            self.lost = true;
                            is_head = false;
                            Next::Search(at)
                        }
                        ChunkProgress::End(end) => {
                            self.chunks = None;
                            self.end = Some(self.read + end as u64);
                            is_head = !self.lost;
                            Next::Line(end)
                        }
                    }
                }
            };
        }
    }

    /// An empty line begins at a place and ends at another.
    fn end_of_head(
        &mut self,
        bytes: &mut [u8],
        begins: usize,
        ends: usize,
        is_head: &mut bool,
    ) -> Next {
        if *is_head && bytes[begins] == b'\n' {
            bytes[begins] = 0;
            *is_head = false;
        }
        let next = self.close_head(ends, bytes.len());
        // The following bytes may belong to a body.
        *is_head &= !self.lost;
        next
    }

    /// Parses the line at an offset.
    #[inline]
    fn line(&mut self, bytes: &mut [u8], at: usize) {
        if let Some((field, name)) = Field::begins(&bytes[at..]) {
            self.note(bytes, at, field, at + name);
        }
    }

    /// Records a framing field at offset `at`, with its value at offset `value`.
    #[inline]
    fn note(&mut self, bytes: &mut [u8], at: usize, field: Field, value: usize) {
        let head = self.head.get_or_insert_default();
        if head.note(field, &bytes[value..]) {
            // No name of a field has this byte in it.
            bytes[at] = 0;
        }
    }

    /// An empty line is behind, and what follows it begins at a place.
    fn close_head(&mut self, at: usize, len: usize) -> Next {
        let Some(head) = self.head.take() else {
            return Next::Line(at);
        };
        let ending = head.ending();
        self.end = match ending {
            BodyLength::After(length) => (self.read + at as u64).checked_add(length),
            BodyLength::Chunked | BodyLength::Unclear => None,
        };
        if ending == BodyLength::Chunked {
            self.chunks = Some(Chunks::default());
            return Next::Chunks(at);
        }
        let Some(end) = self.end else {
            // The apparent head of another request may lie within this one.
            self.lost = true;
            return Next::Line(at);
        };
        if !self.lost {
            self.body_end = end;
        }
        match self.body_left(len) {
            past if at < past => Next::Behind(past),
            _ => Next::Line(at),
        }
    }
}

/// Finds the first line feed. Header lines are short, so scanning eight bytes at a time costs less than a call of a
/// search for long strings.
#[inline(always)]
pub(super) fn line_feed(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const SHORT: usize = 64;
    let mut at = 0;
    while at < SHORT {
        let Some(word) = bytes[at..].first_chunk::<8>() else {
            break;
        };
        // A zero byte marks a line feed; the lowest match is never a false positive.
        let rest = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'\n'));
        let zeros = rest.wrapping_sub(ONES) & !rest & (ONES << 7);
        if zeros != 0 {
            return Some(at + (zeros.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr::memchr(b'\n', &bytes[at..]).map(|found| at + found)
}
