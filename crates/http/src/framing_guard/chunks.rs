//! Chunk framing of a body (RFC 9112 section 7.1), checked before hyper reads it.
//!
//! hyper parses the chunks too and rejects nearly all malformed ones. This parser corrupts the ambiguous input that
//! hyper accepts, so that hyper rejects it as well. One case is control characters in an extension. The other is
//! trailer lines that end with a bare line feed, on which hyper would block until the body times out.

/// State of the chunk parser at the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size {
        has_digits: bool,
    },
    /// Whitespace after the size.
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// Start of a trailer line, or of the final empty line.
    Trailer,
    TrailerLine,
    TrailerLf,
    /// A line of the trailer was spoiled in its middle.
    Spoiled,
    LastLf,
}

/// A chunked body that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    place: ChunkState,
    /// Size of the chunk while it is parsed, then its remaining bytes.
    left: u64,
}

/// Result of following a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkProgress {
    /// The body continues after these bytes.
    On,
    /// The body ended; the next request begins at this offset.
    End(usize),
    /// The framing is invalid at this offset; hyper rejects it.
    Broken(usize),
}

/// Effect of one byte.
enum Step {
    On,
    End,
    Broken,
}

impl Default for Chunks {
    fn default() -> Self {
        Self {
            place: ChunkState::Size { has_digits: false },
            left: 0,
        }
    }
}

impl Chunks {
    /// Follows the body through the bytes from a place on.
    pub(super) fn follow(&mut self, bytes: &mut [u8], from: usize) -> ChunkProgress {
        let mut at = from;
        while at < bytes.len() {
            if self.place == ChunkState::Data {
                let here = bytes.len() - at;
                let skipped = usize::try_from(self.left).map_or(here, |left| left.min(here));
                self.left -= skipped as u64;
                at += skipped;
                if self.left == 0 {
                    self.place = ChunkState::DataCr;
                }
                continue;
            }
            match self.step(&mut bytes[at]) {
                Step::On => at += 1,
                Step::End => return ChunkProgress::End(at + 1),
                Step::Broken => return ChunkProgress::Broken(at),
            }
        }
        ChunkProgress::On
    }

    fn step(&mut self, byte: &mut u8) -> Step {
        self.place = match (self.place, *byte) {
            (ChunkState::Size { .. }, digit @ (b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')) => {
                let digit = (digit as char).to_digit(16).unwrap_or_default();
                let Some(size) = self.left.checked_mul(16) else {
                    return Step::Broken;
                };
                self.left = size | u64::from(digit);
                ChunkState::Size { has_digits: true }
            }
            (ChunkState::Size { has_digits: true } | ChunkState::Blank, b' ' | b'\t') => {
                ChunkState::Blank
            }
            (ChunkState::Size { has_digits: true } | ChunkState::Blank, b';') => {
                ChunkState::Extension
            }
            (
                ChunkState::Size { has_digits: true } | ChunkState::Blank | ChunkState::Extension,
                b'\r',
            ) => ChunkState::SizeLf,
            (ChunkState::Extension, ..=0x08 | 0x0a..=0x1f | 0x7f) => {
                *byte = b'\n';
                return Step::Broken;
            }
            (ChunkState::Extension, _) => ChunkState::Extension,
            (ChunkState::SizeLf, b'\n') if self.left == 0 => ChunkState::Trailer,
            (ChunkState::SizeLf, b'\n') => ChunkState::Data,
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size { has_digits: false },
            (ChunkState::Trailer, b'\r') => ChunkState::LastLf,
            (ChunkState::Trailer, b'\n') => {
                *byte = 0;
                ChunkState::TrailerLine
            }
            (ChunkState::TrailerLine, b'\r') => ChunkState::TrailerLf,
            (ChunkState::TrailerLine, b'\n') => {
                *byte = b'\r';
                ChunkState::Spoiled
            }
            (ChunkState::Trailer | ChunkState::TrailerLine, _) => ChunkState::TrailerLine,
            (ChunkState::TrailerLf, b'\n') => ChunkState::Trailer,
            (ChunkState::Spoiled, b'\n') => {
                // Behind what it was made of, it would be the end of a line.
                *byte = b'\r';
                return Step::Broken;
            }
            (ChunkState::LastLf, b'\n') => {
                *self = Self::default();
                return Step::End;
            }
            _ => return Step::Broken,
        };
        Step::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a body that comes in pieces of a length, and what became of it.
    fn followed(text: &str, piece: usize) -> (String, ChunkProgress) {
        let mut chunks = Chunks::default();
        let mut bytes = text.as_bytes().to_vec();
        let mut at = 0;
        for piece in bytes.chunks_mut(piece) {
            match chunks.follow(piece, 0) {
                ChunkProgress::On => at += piece.len(),
                ChunkProgress::End(end) => {
                    let end = ChunkProgress::End(at + end);
                    return (String::from_utf8_lossy(&bytes).into_owned(), end);
                }
                ChunkProgress::Broken(place) => {
                    let broken = ChunkProgress::Broken(at + place);
                    return (String::from_utf8_lossy(&bytes).into_owned(), broken);
                }
            }
        }
        (
            String::from_utf8_lossy(&bytes).into_owned(),
            ChunkProgress::On,
        )
    }

    #[test]
    fn bodies_end_where_they_end_whatever_stands_in_them() {
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "3\r\na\nb\r\n00\r\n\r\n",
            "5\r\n0\r\n\r\n\r\n0\r\n\r\n",
            "A;x=\"y\"\t\r\n0123456789\r\n0 ;z\r\n\r\n",
            "0\r\nx: y\r\nz: \r\n\r\n",
            "00000000000000000000003\r\nabc\r\n0\r\n\r\n",
        ] {
            let text = format!("{body}GET");
            for piece in 1..text.len() {
                let (left, found) = followed(&text, piece);
                assert_eq!(found, ChunkProgress::End(body.len()), "{body:?} by {piece}");
                assert_eq!(left, text);
            }
        }
    }

    #[test]
    fn what_is_no_body_is_seen_and_what_hyper_would_take_is_spoiled() {
        for (text, spoiled) in [
            ("\r\n", None),
            ("x", None),
            ("3\n", None),
            ("-3\r\n", None),
            ("3\r\nabcd", None),
            ("3\r\nabc\n0", None),
            ("3 3\r\n", None),
            ("11111111111111111\r\n", None),
            ("3;a\u{0}b\r\n", Some("3;a\nb\r\n")),
            ("3;a\u{7f}b\r\n", Some("3;a\nb\r\n")),
            ("3;a\nb\r\n", Some("3;a\nb\r\n")),
            ("0\r\nx: y\n\r\n", Some("0\r\nx: y\r\r\n")),
            ("0\r\nx: y\n\n", Some("0\r\nx: y\r\r")),
            ("0\r\nx: y\nz: a\r\n\r\n", Some("0\r\nx: y\rz: a\r\n\r\n")),
            ("0\r\n\n\n", Some("0\r\n\u{0}\r")),
            ("0\r\n\nX", Some("0\r\n\u{0}X")),
        ] {
            for piece in 1..=text.len() {
                let (left, found) = followed(text, piece);
                assert!(
                    !matches!(found, ChunkProgress::End(_)),
                    "{text:?} by {piece}"
                );
                assert_eq!(left, spoiled.unwrap_or(text), "{text:?} by {piece}");
            }
        }
    }
}
