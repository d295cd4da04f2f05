//! Message framing on standard input and output.

use std::io::{self, BufRead, Read as _, Write};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::message::Ends;

/// Message framing on a byte stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Framing {
    /// Detected from the first bytes of the input.
    #[default]
    Auto,
    /// One message per line, as the specification requires (STD-01).
    Newline,
    /// A header `Content-Length`, as language servers have it.
    ContentLength,
}

/// A frame of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Message(Vec<u8>),
    /// Larger than allowed; only the beginning and the end were kept.
    TooLarge(Ends),
    /// An invalid frame. The start of the next one is unknown.
    Broken(&'static str),
}

impl Frame {
    /// Size of the message.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::TooLarge(_) | Self::Broken(_) => 0,
        }
    }
}

/// Maximum number and length of header lines.
const HEADER_LINES_MAX: usize = 16;
const HEADER_LINE_MAX: usize = 1024;

const LENGTH: &[u8] = b"content-length:";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Framing {
    /// Detects the framing from the first bytes, which stay unread except for leading whitespace.
    pub fn settle(self, input: &mut impl BufRead) -> io::Result<Self> {
        if self != Self::Auto {
            return Ok(self);
        }
        loop {
            let beginning = input.fill_buf()?;
            let blank = beginning
                .iter()
                .take_while(|b| b.is_ascii_whitespace())
                .count();
            let first = beginning.get(blank).copied();
            let ended = beginning.is_empty();
            input.consume(blank);
            match first {
                // One letter is sufficient: JSON never begins with a C.
                Some(b'c' | b'C') => return Ok(Self::ContentLength),
                Some(_) => return Ok(Self::Newline),
                None if ended => return Ok(Self::Newline),
                None => {}
            }
        }
    }

    /// Reads one message of at most `max` bytes. Returns `None` at the end of the input.
    pub fn read(self, input: &mut impl BufRead, max: usize) -> io::Result<Option<Frame>> {
        match self {
            Self::Auto | Self::Newline => read_line_frame(input, max),
            Self::ContentLength => read_length_frame(input, max),
        }
    }

    /// Writes one message. Compact JSON contains no line breaks.
    pub fn write(self, output: &mut impl Write, pieces: &[&[u8]]) -> io::Result<()> {
        if self == Self::ContentLength {
            let length: usize = pieces.iter().map(|piece| piece.len()).sum();
            write!(output, "Content-Length: {length}\r\n\r\n")?;
        }
        for piece in pieces {
            output.write_all(piece)?;
        }
        if self != Self::ContentLength {
            output.write_all(b"\n")?;
        }
        output.flush()
    }
}

fn read_line_frame(input: &mut impl BufRead, max: usize) -> io::Result<Option<Frame>> {
    loop {
        match read_line(input, max)? {
            None => return Ok(None),
            Some(Ok(mut line)) => {
                // .NET writes a byte order mark before the first message.
                if line.starts_with(BYTE_ORDER_MARK) {
                    line.drain(..BYTE_ORDER_MARK.len());
                }
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(Frame::Message(line)));
                }
            }
            Some(Err(ends)) => return Ok(Some(Frame::TooLarge(ends))),
        }
    }
}

fn read_length_frame(input: &mut impl BufRead, max: usize) -> io::Result<Option<Frame>> {
    let mut length = None;
    for _ in 0..HEADER_LINES_MAX {
        let line = match read_line(input, HEADER_LINE_MAX)? {
            None => return Ok(None),
            Some(Err(_)) => return Ok(Some(Frame::Broken("a header line is too long"))),
            Some(Ok(line)) => line,
        };
        let line = line.trim_ascii();
        if line.is_empty() {
            // Blank lines before the header are ignored.
            let Some(length) = length else { continue };
            return read_exactly(input, length, max);
        }
        if line.len() >= LENGTH.len() && line[..LENGTH.len()].eq_ignore_ascii_case(LENGTH) {
            let digits = line[LENGTH.len()..].trim_ascii();
            let number = digits
                .iter()
                .all(u8::is_ascii_digit)
                .then(|| std::str::from_utf8(digits).ok()?.parse::<u64>().ok())
                .flatten();
            match (number, length) {
                (Some(number), None) => length = Some(number),
                _ => return Ok(Some(Frame::Broken("Content-Length is not one number"))),
            }
        } else if !line.contains(&b':') {
            return Ok(Some(Frame::Broken("expected a Content-Length header")));
        }
    }
    Ok(Some(Frame::Broken("the header has too many lines")))
}

fn read_exactly(input: &mut impl BufRead, length: u64, max: usize) -> io::Result<Option<Frame>> {
    if length > max as u64 {
        let mut ends = Ends::default();
        let skipped = io::copy(&mut input.take(length), &mut ends)?;
        return Ok((skipped == length).then_some(Frame::TooLarge(ends)));
    }
    let mut message = Vec::new();
    input.take(length).read_to_end(&mut message)?;
    Ok((message.len() as u64 == length).then_some(Frame::Message(message)))
}

/// Reads a line without its terminator. Returns `None` at the end of the input.
///
/// Of a line longer than `max`, only the ends are returned; at most `max` bytes are buffered.
fn read_line(input: &mut impl BufRead, max: usize) -> io::Result<Option<Result<Vec<u8>, Ends>>> {
    let mut line = Ok(Vec::new());
    let mut any = false;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if available.is_empty() {
            return Ok(any.then_some(line));
        }
        any = true;
        let end = available.iter().position(|b| *b == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        match &mut line {
            Ok(whole) if whole.len() + part.len() > max => {
                let mut ends = Ends::default();
                ends.add(whole);
                ends.add(part);
                line = Err(ends);
            }
            Ok(whole) => whole.extend_from_slice(part),
            Err(ends) => ends.add(part),
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    /// Reads everything through a buffer of a given size, so that frames come in parts.
    fn read_all(text: &[u8], max: usize, buffer: usize) -> (Framing, Vec<Frame>) {
        let mut input = BufReader::with_capacity(buffer, text);
        let framing = Framing::Auto.settle(&mut input).expect("no I/O errors");
        let mut frames = Vec::new();
        while let Some(frame) = framing.read(&mut input, max).expect("no I/O errors") {
            let broken = matches!(frame, Frame::Broken(_));
            frames.push(frame);
            if broken {
                break;
            }
        }
        (framing, frames)
    }

    fn messages(texts: &[&str]) -> Vec<Frame> {
        texts
            .iter()
            .map(|t| Frame::Message(t.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_byte_order_mark_before_the_first_message_is_ignored() {
        for buffer in [1, 3, 4096] {
            let read = read_all("\u{feff}{\"a\":1}\n{\"b\":2}\n".as_bytes(), 100, buffer);
            let expected = messages(&[r#"{"a":1}"#, r#"{"b":2}"#]);
            assert_eq!(read, (Framing::Newline, expected));
        }
    }

    #[test]
    fn std_01_lines_are_messages() {
        for buffer in [1, 3, 4096] {
            let read = read_all(b"\n {\"a\":1}\r\n\n{\"b\":2}\n{\"c\"", 100, buffer);
            assert_eq!(read.0, Framing::Newline);
            let texts = read.1.iter().map(|frame| match frame {
                Frame::Message(text) => text.trim_ascii().escape_ascii().to_string(),
                other => panic!("{other:?}"),
            });
            assert_eq!(
                texts.collect::<Vec<_>>(),
                [r#"{\"a\":1}"#, r#"{\"b\":2}"#, r#"{\"c\""#]
            );
        }
        assert_eq!(read_all(b"", 100, 10).1, []);
        assert_eq!(read_all(b"\n \n", 100, 10).1, []);
    }

    #[test]
    fn content_length_is_recognised_by_the_first_bytes() {
        for buffer in [1, 7, 4096] {
            let text =
                b"Content-Length: 7\r\n\r\n{\"a\":1}content-length:2\r\nContent-Type: x\r\n\r\n{}";
            let read = read_all(text, 100, buffer);
            assert_eq!(read.0, Framing::ContentLength);
            assert_eq!(read.1, messages(&["{\"a\":1}", "{}"]));
        }
    }

    #[test]
    fn what_is_too_large_is_read_over_and_not_kept() {
        let line = format!("{}\n{{}}\n", "x".repeat(1000));
        let rest = Frame::Message(b"{}".to_vec());
        assert!(
            matches!(&read_all(line.as_bytes(), 100, 64).1[..], [Frame::TooLarge(_), last] if *last == rest)
        );
        let framed = format!(
            "Content-Length: 1000\r\n\r\n{}Content-Length: 2\r\n\r\n{{}}",
            "x".repeat(1000)
        );
        assert!(
            matches!(&read_all(framed.as_bytes(), 100, 64).1[..], [Frame::TooLarge(_), last] if *last == rest)
        );
    }

    #[test]
    fn broken_headers_are_told() {
        for text in [
            "Content-Length: x\r\n\r\n{}",
            "Content-Length: -1\r\n\r\n",
            "Content-Length: \r\n\r\n",
            "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
            "C\r\n\r\n",
            "Content-Length: 99999999999999999999\r\n\r\n",
        ] {
            assert!(
                matches!(read_all(text.as_bytes(), 100, 64).1[..], [Frame::Broken(_)]),
                "{text:?}"
            );
        }
        let long = format!("C: {}\r\n", "x".repeat(2000));
        assert!(matches!(
            read_all(long.as_bytes(), 100, 64).1[..],
            [Frame::Broken(_)]
        ));
        assert!(matches!(
            read_all("C: x\r\n".repeat(17).as_bytes(), 100, 64).1[..],
            [Frame::Broken(_)]
        ));
        // Half a message at the end of the input is no message.
        assert_eq!(read_all(b"Content-Length: 10\r\n\r\n{}", 100, 64).1, []);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(texts in prop::collection::vec("[ -~]{1,40}", 0..8), by_length: bool) {
            let texts: Vec<String> = texts.iter().map(|t| format!("{{{t}}}")).collect();
            let framing = if by_length { Framing::ContentLength } else { Framing::Newline };
            let mut written = Vec::new();
            for text in &texts {
                let (a, b) = text.as_bytes().split_at(1);
                framing.write(&mut written, &[a, b]).expect("no I/O errors");
            }
            let (_, frames) = read_all(&written, 100, 5);
            let expected: Vec<_> = texts.iter().map(|t| Frame::Message(t.clone().into_bytes())).collect();
            prop_assert_eq!(frames, expected);
        }

        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read_all(&bytes, 50, 7);
        }
    }
}
