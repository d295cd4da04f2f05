//! Fuzz target for framing: compares reads of different sizes.

use std::io::BufReader;

use super::framing::{Frame, Framing};
use crate::protocol::message::Ends;

/// Maximum size of a message.
const MAX: usize = 64;

/// Reads an input in chunks of several sizes.
///
/// # Panics
///
/// If the chunk size changes the result, if lines are not messages, or if a message changes when it is written and
/// read.
pub fn framing_holds(input: &[u8]) {
    let (framing, frames) = read(Framing::Auto, input, 8192);
    for pieces in [1, 2, 7] {
        assert_eq!(
            read(Framing::Auto, input, pieces),
            (framing, frames.clone())
        );
    }
    for forced in [Framing::Newline, Framing::ContentLength] {
        assert_eq!(read(forced, input, 1), read(forced, input, 8192));
    }
    assert_eq!(read(Framing::Newline, input, 3).1, lines(input));
    let first = input.trim_ascii_start().first();
    assert_eq!(
        framing == Framing::ContentLength,
        first.is_some_and(|b| b.eq_ignore_ascii_case(&b'c'))
    );
    let messages: Vec<_> = frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Message(message) => Some(message),
            Frame::TooLarge(_) | Frame::Broken(_) => None,
        })
        .collect();
    assert!(
        messages.iter().all(|m| m.len() <= MAX),
        "a message is too large"
    );
    let mut written = Vec::new();
    for message in &messages {
        let (one, other) = message.split_at(message.len() / 2);
        let done = framing.write(&mut written, &[one, other]);
        assert!(done.is_ok(), "memory takes everything");
    }
    let again: Vec<_> = messages.into_iter().cloned().map(Frame::Message).collect();
    assert_eq!(read(framing, &written, 5).1, again);
}

fn read(framing: Framing, input: &[u8], pieces: usize) -> (Framing, Vec<Frame>) {
    let mut input = BufReader::with_capacity(pieces, input);
    let Ok(framing) = framing.settle(&mut input) else {
        unreachable!("memory can be read");
    };
    let mut frames = Vec::new();
    loop {
        match framing.read(&mut input, MAX) {
            Ok(Some(frame)) => {
                let broken = matches!(frame, Frame::Broken(_));
                frames.push(frame);
                if broken {
                    return (framing, frames);
                }
            }
            Ok(None) => return (framing, frames),
            Err(_) => unreachable!("memory can be read"),
        }
    }
}

fn lines(input: &[u8]) -> Vec<Frame> {
    let lines = input.split(|b| *b == b'\n');
    lines
        .filter_map(|line| match line {
            line if MAX < line.len() => {
                let mut ends = Ends::default();
                ends.add(line);
                Some(Frame::TooLarge(ends))
            }
            line if line.trim_ascii().is_empty() => None,
            line => Some(Frame::Message(line.to_vec())),
        })
        .collect()
}
