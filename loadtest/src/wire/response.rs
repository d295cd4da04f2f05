//! Bytes of an HTTP/1.1 response, as they come, to its status and body.
//!
//! Only what a well-behaved server sends to a client without pipelining: a known length or chunks,
//! and nothing after the end. Everything else is an error and never a guess, because a generator
//! that is lenient counts failures as answers.

/// Reason why bytes cannot be parsed as a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("the status line is not one of HTTP/1.1")]
    StatusLine,
    #[error("a header line has no colon, or a length is not a number")]
    Header,
    #[error("neither a length nor chunks: the end of the body cannot be known")]
    NoLength,
    #[error("a chunk does not begin with its size or end with a line break")]
    Chunk,
    #[error("there are bytes after the end of the response")]
    Trailing,
    #[error("the response is longer than {} bytes", super::MAX_BODY)]
    TooLong,
}

/// A response while it is read. One buffer serves all responses of a connection.
#[derive(Debug)]
pub(crate) struct Response {
    buffer: Vec<u8>,
    filled: usize,
    stage: Stage,
    head: Head,
    decoded: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The head has not ended yet.
    Head,
    /// The body ends at this offset of the buffer.
    Sized { end: usize },
    /// The next chunk begins at this offset; what came before it is in `decoded`.
    Chunked { next: usize },
}

#[derive(Clone, Debug, Default)]
struct Head {
    length: usize,
    status: u16,
    body_length: Option<usize>,
    chunked: bool,
    closes: bool,
    session: Option<std::ops::Range<usize>>,
}

impl Response {
    /// With room for a usual answer.
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; 16 << 10],
            filled: 0,
            stage: Stage::Head,
            head: Head::default(),
            decoded: Vec::new(),
        }
    }

    /// Forgets the last response; keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
        self.head.closes = false;
        self.stage = Stage::Head;
        self.decoded.clear();
    }

    /// Returns the buffer for the next bytes from the socket. It is never empty.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Takes note of `count` more bytes in what [`spare`](Self::spare) gave. True when the response is whole.
    pub(crate) fn advance(&mut self, count: usize) -> Result<bool, Malformed> {
        self.filled += count;
        if self.filled > super::MAX_BODY {
            return Err(Malformed::TooLong);
        }
        if let Stage::Head = self.stage {
            let Some(head) = Head::parse(&self.buffer[..self.filled])? else {
                return Ok(false);
            };
            self.stage = head.stage()?;
            self.head = head;
            // A long body is read in as few pieces as the kernel gives.
            if let Stage::Sized { end } = self.stage
                && self.buffer.len() <= end
                && end < super::MAX_BODY
            {
                self.buffer.resize(end + 1, 0);
            }
        }
        match self.stage {
            Stage::Sized { end } if end < self.filled => Err(Malformed::Trailing),
            Stage::Sized { end } => Ok(end == self.filled),
            Stage::Chunked { .. } => self.take_chunks(),
            Stage::Head => Ok(false),
        }
    }

    /// The status of a whole response.
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    /// The `Mcp-Session-Id` of a whole response.
    pub(crate) fn session(&self) -> Option<&[u8]> {
        self.buffer.get(self.head.session.clone()?)
    }

    /// Returns true if the server closes the connection after a complete response.
    pub(crate) fn closes(&self) -> bool {
        self.head.closes
    }

    /// The body of a whole response.
    pub(crate) fn body(&self) -> &[u8] {
        match self.stage {
            Stage::Chunked { .. } => &self.decoded,
            _ => &self.buffer[self.head.length..self.filled],
        }
    }

    fn take_chunks(&mut self) -> Result<bool, Malformed> {
        while let Stage::Chunked { next } = self.stage {
            let rest = &self.buffer[next..self.filled];
            let Some((line, line_length)) = first_line(rest) else {
                return Ok(false);
            };
            let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
            let size = hexadecimal(digits.trim_ascii()).ok_or(Malformed::Chunk)?;
            // The last chunk is empty, and so are the trailers of every server we drive.
            let Some(after) = rest.get(line_length + size..line_length + size + 2) else {
                return Ok(false);
            };
            if after != b"\r\n" {
                return Err(Malformed::Chunk);
            }
            self.decoded
                .extend_from_slice(&rest[line_length..line_length + size]);
            let next = next + line_length + size + 2;
            self.stage = Stage::Chunked { next };
            if size == 0 {
                return if next == self.filled {
                    Ok(true)
                } else {
                    Err(Malformed::Trailing)
                };
            }
        }
        Ok(false)
    }
}

impl Head {
    /// Parses the head at the start of `bytes`. Returns `None` until it is complete.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some((status_line, mut offset)) = first_line(bytes) else {
            return Ok(None);
        };
        let mut head = Self {
            status: status_of(status_line).ok_or(Malformed::StatusLine)?,
            ..Self::default()
        };
        while let Some((line, length)) = first_line(&bytes[offset..]) {
            if line.is_empty() {
                head.length = offset + length;
                return Ok(Some(head));
            }
            head.take_header(line, offset)?;
            offset += length;
        }
        Ok(None)
    }

    fn take_header(&mut self, line: &[u8], offset: usize) -> Result<(), Malformed> {
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .ok_or(Malformed::Header)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        // Names of other lengths are not compared at all.
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.closes = value.trim_ascii().eq_ignore_ascii_case(b"close");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.body_length = Some(decimal(value.trim_ascii()).ok_or(Malformed::Header)?);
            }
            14 if name.eq_ignore_ascii_case(b"mcp-session-id") => {
                let start = offset + colon + 1 + (value.len() - value.trim_ascii_start().len());
                self.session = Some(start..start + value.trim_ascii().len());
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
        Ok(())
    }

    fn stage(&self) -> Result<Stage, Malformed> {
        match (self.body_length, self.chunked) {
            (_, true) => Ok(Stage::Chunked { next: self.length }),
            (Some(length), false) => {
                let end = self.length.checked_add(length).ok_or(Malformed::TooLong)?;
                if end > super::MAX_BODY {
                    Err(Malformed::TooLong)
                } else {
                    Ok(Stage::Sized { end })
                }
            }
            (None, false) if matches!(self.status, 204 | 304) => {
                Ok(Stage::Sized { end: self.length })
            }
            (None, false) => Err(Malformed::NoLength),
        }
    }
}

/// The first line without its line break, and its length with it.
fn first_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn status_of(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.1 ")?;
    let status = decimal(rest.get(..3)?)?;
    matches!(rest.get(3), None | Some(b' ')).then_some(u16::try_from(status).ok()?)
}

fn decimal(digits: &[u8]) -> Option<usize> {
    number(digits, 10)
}

fn hexadecimal(digits: &[u8]) -> Option<usize> {
    number(digits, 16)
}

fn number(digits: &[u8], radix: u32) -> Option<usize> {
    // Ten digits are more than any length that is read here, and never overflow.
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0usize, |sum, &digit| {
        Some(sum * radix as usize + char::from(digit).to_digit(radix)? as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Seen {
        status: u16,
        body: Vec<u8>,
        session: Option<Vec<u8>>,
    }

    /// Feeds `bytes` in pieces of at most `step`; `None` if the response is not whole then.
    fn read(bytes: &[u8], step: usize) -> Result<Option<Seen>, Malformed> {
        let mut response = Response::new();
        let mut whole = false;
        for piece in bytes.chunks(step) {
            let mut rest = piece;
            while !rest.is_empty() {
                let spare = response.spare();
                let count = rest.len().min(spare.len());
                spare[..count].copy_from_slice(&rest[..count]);
                whole = response.advance(count)?;
                rest = &rest[count..];
            }
        }
        Ok(whole.then(|| Seen {
            status: response.status(),
            body: response.body().to_vec(),
            session: response.session().map(<[u8]>::to_vec),
        }))
    }

    #[test]
    fn a_response_is_the_same_however_it_is_cut() {
        let long = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{}",
            "x".repeat(100_000)
        );
        let seen = |status, body: &str, session: Option<&str>| Seen {
            status,
            body: body.as_bytes().to_vec(),
            session: session.map(|id| id.as_bytes().to_vec()),
        };
        let cases = [
            (
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
                seen(200, "{}", None),
            ),
            (
                "HTTP/1.1 202 Accepted\r\nContent-Length:0\r\n\r\n",
                seen(202, "", None),
            ),
            (
                "HTTP/1.1 204 No Content\r\nserver: x\r\n\r\n",
                seen(204, "", None),
            ),
            (
                "HTTP/1.1 200\r\nMcp-Session-Id:  abc.def \r\nContent-Length: 1\r\n\r\n1",
                seen(200, "1", Some("abc.def")),
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\n\r\n",
                seen(200, "hello!", None),
            ),
            (
                "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
                seen(404, "0123456789", None),
            ),
            (&long, seen(200, &"x".repeat(100_000), None)),
        ];
        for (bytes, expected) in cases {
            for step in [1, 2, 3, 7, 16, 1000, usize::MAX] {
                let found = read(bytes.as_bytes(), step)
                    .expect("well formed")
                    .expect("whole");
                assert_eq!(found, expected, "in steps of {step}");
            }
        }
    }

    #[test]
    fn an_unfinished_response_is_waited_for() {
        let whole: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        for end in 1..whole.len() {
            assert_eq!(read(&whole[..end], 4), Ok(None), "{end} bytes");
        }
        let sized: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        for end in 1..sized.len() {
            assert_eq!(read(&sized[..end], 4), Ok(None), "{end} bytes");
        }
    }

    #[test]
    fn anything_doubtful_is_an_error() {
        let cases: [(&[u8], Malformed); 10] = [
            (b"HTTP/1.0 200 OK\r\n", Malformed::StatusLine),
            (b"HTTP/1.1 20 OK\r\n", Malformed::StatusLine),
            (b"HTTP/1.1 2000 OK\r\n", Malformed::StatusLine),
            (b"HTTP/1.1 200 OK\r\nno colon\r\n", Malformed::Header),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 1x\r\n",
                Malformed::Header,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\n", Malformed::NoLength),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
                Malformed::Trailing,
            ),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n",
                Malformed::TooLong,
            ),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
                Malformed::Chunk,
            ),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd",
                Malformed::Chunk,
            ),
        ];
        for (bytes, error) in cases {
            assert_eq!(
                read(bytes, usize::MAX),
                Err(error),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn the_buffer_serves_the_next_response() {
        let mut response = Response::new();
        for body in [&b"first"[..], b"2nd"] {
            response.clear();
            let bytes = [
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(),
                body,
            ]
            .concat();
            response.spare()[..bytes.len()].copy_from_slice(&bytes);
            assert_eq!(response.advance(bytes.len()), Ok(true));
            assert_eq!(response.body(), body);
        }
    }
}
