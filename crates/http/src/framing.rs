//! Strict framing of HTTP/1 requests, for facts that hyper's parsed head does not show.
//!
//! hyper frames the requests. It accepts some that another parser, such as a proxy in front, may end elsewhere, which is
//! request smuggling: it drops a `Content-Length` beside `Transfer-Encoding` (RFC 9112 section 6.3), accepts header
//! lines that end with a bare line feed (section 2.2) and control characters in chunk extensions, and waits for more at
//! a bare line feed in trailers. [`FramingCheck`] reads the bytes before hyper does, and changes none of them. It counts
//! the heads, and notes the number of the first request that can be framed in two ways. hyper hands over requests in
//! the same order, so the connection rejects the one with that number, and closes.
//!
//! A head that equals the previous one is not read again ([`super::head_cache`]).

mod chunks;
#[cfg(test)]
mod tests;

use memchr::memchr;

use self::chunks::{ChunkProgress, Chunks};
use super::head_cache::{KnownHeads, Repeats};

pub(super) const LENGTH: &[u8] = b"content-length:";
pub(super) const CODING: &[u8] = b"transfer-encoding:";

/// Read size for connections with large requests, in bytes. Arguments of 64 KiB then mostly arrive in one piece and
/// need no copy.
pub(super) const READ_MAX: usize = 80 * 1024;
/// Longest line that is kept while it is incomplete. hyper rejects a head before it has a line of this size.
const LINE_MAX_BYTES: usize = READ_MAX;

/// Reads along with the incoming bytes of one connection.
#[derive(Debug, Default)]
pub(super) struct FramingCheck {
    /// Number of complete heads.
    heads: u32,
    position: Position,
    /// Lines of the head so far.
    head: HeadLines,
    known: KnownHeads,
}

/// Position within a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// In a head, or before one.
    #[default]
    Head,
    /// In a body, with its number of missing bytes.
    Body(u64),
    Chunks(Chunks),
    /// Behind an ambiguous request: no further request is served.
    Ambiguous,
}

/// Results of one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Number of the request that can be framed in two ways.
    pub(super) ambiguous: Option<u32>,
    /// A head that equals an earlier one.
    pub(super) repeats: Option<Repeats>,
}

/// The head can be framed in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ambiguous;

impl FramingCheck {
    /// Reads the bytes of one read.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8]) -> Findings {
        let begins_head = self.position == Position::Head && self.head.is_empty();
        if begins_head && let Some(known) = self.known.recognise(bytes) {
            self.heads += 1;
            self.body_of((known.head_bytes + known.body_bytes - bytes.len()) as u64);
            return Findings {
                ambiguous: None,
                repeats: Some(Repeats {
                    request: self.heads,
                    head: known.number,
                }),
            };
        }
        let findings = self.read_closely(bytes);
        // Most connections that send a second request send many.
        if begins_head && 1 < self.heads && findings.ambiguous.is_none() {
            let left = match self.position {
                Position::Head if self.head.is_empty() => Some(0),
                Position::Body(left) => Some(left),
                _ => None,
            };
            if let Some(left) = left {
                self.known.remember(bytes, left, self.heads);
            }
        }
        findings
    }

    fn read_closely(&mut self, mut bytes: &[u8]) -> Findings {
        while !bytes.is_empty() {
            let read = match &mut self.position {
                Position::Ambiguous => break,
                Position::Head => match self.head.read(bytes) {
                    Ok(None) => break,
                    Ok(Some((read, framing))) => {
                        self.heads += 1;
                        match framing {
                            Framing::Length(length) => self.body_of(length),
                            Framing::Chunked => self.position = Position::Chunks(Chunks::default()),
                        }
                        read
                    }
                    Err(Ambiguous) => return self.is_ambiguous(self.heads + 1),
                },
                Position::Body(left) => {
                    let read = usize::try_from(*left).map_or(bytes.len(), |l| l.min(bytes.len()));
                    let left = *left - read as u64;
                    self.body_of(left);
                    read
                }
                Position::Chunks(chunks) => match chunks.read(bytes) {
                    ChunkProgress::On => break,
                    ChunkProgress::End(read) => {
                        self.position = Position::Head;
                        read
                    }
                    ChunkProgress::Broken => return self.is_ambiguous(self.heads),
                },
            };
            bytes = &bytes[read..];
        }
        Findings::default()
    }

    /// Continues with a body of `bytes` bytes, or with the next head if there are none.
    #[inline]
    fn body_of(&mut self, bytes: u64) {
        self.position = match bytes {
            0 => Position::Head,
            left => Position::Body(left),
        };
    }

    #[cold]
    fn is_ambiguous(&mut self, request: u32) -> Findings {
        self.position = Position::Ambiguous;
        self.head = HeadLines::default();
        Findings {
            ambiguous: Some(request),
            repeats: None,
        }
    }

    /// Returns true if part of a head has arrived.
    #[inline]
    pub(super) fn is_in_head(&self) -> bool {
        !self.head.is_empty()
    }

    /// Returns true if the latest request is incomplete, or its end is not known.
    pub(super) fn is_in_body(&self) -> bool {
        self.position != Position::Head
    }
}

/// Framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Length in bytes.
    Length(u64),
    /// Ends with its last chunk.
    Chunked,
}

/// The lines of a head, which may arrive in pieces.
#[derive(Debug, Default)]
struct HeadLines {
    /// Set from the request line on. Blank lines may precede it (RFC 9112 section 2.2).
    has_begun: bool,
    /// Incomplete line.
    partial: Vec<u8>,
    fields: FramingFields,
}

/// The fields that frame the body.
#[derive(Clone, Copy, Debug, Default)]
struct FramingFields {
    length: Option<u64>,
    is_chunked: bool,
}

impl HeadLines {
    #[inline]
    fn is_empty(&self) -> bool {
        !self.has_begun && self.partial.is_empty()
    }

    /// Reads on. Once the head is complete, returns how many of the bytes belong to it, and the framing of its body.
    fn read(&mut self, bytes: &[u8]) -> Result<Option<(usize, Framing)>, Ambiguous> {
        let mut at = 0;
        while let Some(length) = memchr(b'\n', &bytes[at..]) {
            let end = at + length;
            let framing = if self.partial.is_empty() {
                self.add_line(&bytes[at..end])?
            } else {
                let mut line = std::mem::take(&mut self.partial);
                line.extend_from_slice(&bytes[at..end]);
                self.add_line(&line)?
            };
            at = end + 1;
            if let Some(framing) = framing {
                *self = Self::default();
                return Ok(Some((at, framing)));
            }
        }
        self.partial.extend_from_slice(&bytes[at..]);
        match self.partial.len() {
            ..LINE_MAX_BYTES => Ok(None),
            _ => Err(Ambiguous),
        }
    }

    /// Adds a line without its line feed. Returns the framing of the body behind the last one.
    #[inline]
    fn add_line(&mut self, line: &[u8]) -> Result<Option<Framing>, Ambiguous> {
        let line = line.strip_suffix(b"\r").ok_or(Ambiguous)?;
        if line.is_empty() {
            return match self.has_begun {
                true => self.fields.framing().map(Some),
                false => Ok(None),
            };
        }
        if self.has_begun {
            self.fields.add(line)?;
        }
        self.has_begun = true;
        Ok(None)
    }
}

impl FramingFields {
    #[inline]
    fn add(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        match line.first() {
            // A folded line could belong to either of the fields (RFC 9112 section 5.2).
            Some(b' ' | b'\t') => return Err(Ambiguous),
            Some(b'c' | b'C') if begins_with(line, LENGTH) => {
                let length = number(&line[LENGTH.len()..]).ok_or(Ambiguous)?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(Ambiguous);
                }
                self.length = Some(length);
            }
            Some(b't' | b'T') if begins_with(line, CODING) => self.is_chunked = true,
            _ => {}
        }
        Ok(())
    }

    fn framing(self) -> Result<Framing, Ambiguous> {
        match (self.length, self.is_chunked) {
            (Some(_), true) => Err(Ambiguous),
            (None, true) => Ok(Framing::Chunked),
            (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

#[inline]
pub(super) fn begins_with(bytes: &[u8], name: &[u8]) -> bool {
    bytes
        .get(..name.len())
        .is_some_and(|found| found.eq_ignore_ascii_case(name))
}

/// Parses digits with blanks around them.
fn number(text: &[u8]) -> Option<u64> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let begin = text.iter().position(|byte| !is_blank(byte))?;
    let end = text.iter().rposition(|byte| !is_blank(byte))? + 1;
    text[begin..end].iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
