//! Chunk framing of a body (RFC 9112 section 7.1).

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
    LastLf,
    End,
}

/// A chunked body that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    state: ChunkState,
    /// Size of the chunk while it is parsed, then its remaining bytes.
    left: u64,
}

/// Result of reading on in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkProgress {
    /// The body continues after these bytes.
    On,
    /// The body ended; the next request begins at this offset.
    End(usize),
    /// The framing is invalid.
    Broken,
}

impl Default for Chunks {
    fn default() -> Self {
        Self {
            state: ChunkState::Size { has_digits: false },
            left: 0,
        }
    }
}

impl Chunks {
    /// Reads on.
    pub(super) fn read(&mut self, bytes: &[u8]) -> ChunkProgress {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == ChunkState::Data {
                let here = bytes.len() - at;
                let skipped = usize::try_from(self.left).map_or(here, |left| left.min(here));
                self.left -= skipped as u64;
                at += skipped;
                if self.left == 0 {
                    self.state = ChunkState::DataCr;
                }
                continue;
            }
            let Some(next) = self.next(bytes[at]) else {
                return ChunkProgress::Broken;
            };
            self.state = next;
            at += 1;
            if next == ChunkState::End {
                return ChunkProgress::End(at);
            }
        }
        ChunkProgress::On
    }

    /// The state after a byte; `None` if it must not stand there.
    fn next(&mut self, byte: u8) -> Option<ChunkState> {
        use ChunkState as State;
        Some(match (self.state, byte) {
            (State::Size { .. }, digit @ (b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')) => {
                let digit = (digit as char).to_digit(16).unwrap_or_default();
                self.left = self.left.checked_mul(16)? | u64::from(digit);
                State::Size { has_digits: true }
            }
            (State::Size { has_digits: true } | State::Blank, b' ' | b'\t') => State::Blank,
            (State::Size { has_digits: true } | State::Blank, b';') => State::Extension,
            (State::Size { has_digits: true } | State::Blank | State::Extension, b'\r') => {
                State::SizeLf
            }
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => State::Extension,
            (State::SizeLf, b'\n') if self.left == 0 => State::Trailer,
            (State::SizeLf, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { has_digits: false },
            (State::Trailer, b'\r') => State::LastLf,
            (State::TrailerLine, b'\r') => State::TrailerLf,
            (State::Trailer | State::TrailerLine, byte) if byte != b'\n' => State::TrailerLine,
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::LastLf, b'\n') => State::End,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result for a body that arrives in pieces of a length; the offset counts from its beginning.
    fn read(text: &str, piece: usize) -> ChunkProgress {
        let mut chunks = Chunks::default();
        let mut at = 0;
        for piece in text.as_bytes().chunks(piece) {
            match chunks.read(piece) {
                ChunkProgress::On => at += piece.len(),
                ChunkProgress::End(end) => return ChunkProgress::End(at + end),
                ChunkProgress::Broken => return ChunkProgress::Broken,
            }
        }
        ChunkProgress::On
    }

    #[test]
    fn bodies_end_with_their_last_chunk() {
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
                let end = ChunkProgress::End(body.len());
                assert_eq!(read(&text, piece), end, "{body:?} by {piece}");
            }
        }
    }

    #[test]
    fn invalid_framing_is_found_even_if_hyper_accepts_it() {
        for text in [
            "\r\n",
            "x",
            "3\n",
            "-3\r\n",
            "3\r\nabcd",
            "3\r\nabc\n0",
            "3 3\r\n",
            "11111111111111111\r\n",
            "3;a\u{0}b\r\n",
            "3;a\u{7f}b\r\n",
            "3;a\nb\r\n",
            "0\r\nx: y\n\r\n",
            "0\r\nx: y\n\n",
            "0\r\nx: y\nz: a\r\n\r\n",
            "0\r\n\n\n",
            "0\r\n\nX",
            "0\r\n\rX",
            "0\r\nx: y\rX",
        ] {
            for piece in 1..=text.len() {
                assert_eq!(
                    read(text, piece),
                    ChunkProgress::Broken,
                    "{text:?} by {piece}"
                );
            }
        }
    }
}
