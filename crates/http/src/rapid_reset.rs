//! Rate of stream resets and of frames without payload on an HTTP/2 connection.
//!
//! hyper and h2 count streams that are reset before they are accepted. A reset shortly after that costs as much and is
//! not counted (CVE-2023-44487). This module therefore follows the frame headers and counts RST_STREAM frames (RFC 9113
//! section 6.4).
//!
//! It also counts frames that carry nothing for a request: PRIORITY, SETTINGS, PING and unknown types. They are
//! legitimate occasionally; in large numbers they only cost CPU time (RFC 9113 section 10.5).

/// Length of the client connection preface, in bytes (RFC 9113 section 3.4).
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The header of a frame: length, type, flags, stream.
const HEADER_BYTES: usize = 9;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// Follows the frames of one connection.
#[derive(Debug)]
pub(super) struct ResetGuard {
    /// More than that in a second are too many.
    limit: u32,
    /// Maximum number per second of frames that carry nothing for a request.
    frames: u32,
    second: u32,
    /// Number in the current second.
    count: u32,
    /// Frames that carry nothing for a request, in that second.
    idle: u32,
    /// Bytes until the next header.
    skip: usize,
    /// Bytes of a frame header that arrived in parts.
    header: [u8; HEADER_BYTES],
    begun: usize,
}

/// Result of inspecting some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResetCount {
    /// Number of streams that they reset.
    pub(super) count: u32,
    /// True if resets exceed the limit of this second.
    pub(super) too_many: bool,
    /// True if frames that carry nothing for a request exceed the limit of this second.
    pub(super) too_idle: bool,
}

/// Frames that are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    resets: u32,
    idle: u32,
}

impl ResetGuard {
    /// Creates a watch with limits per second: `limit` resets, and `frames` that carry nothing for a request.
    pub(super) fn new(limit: u32, frames: u32) -> Self {
        Self {
            limit,
            frames,
            second: 0,
            count: 0,
            idle: 0,
            skip: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            begun: 0,
        }
    }

    /// Follows what came next, in the second `now`.
    #[inline]
    pub(super) fn inspect(&mut self, bytes: &[u8], now: u32) -> ResetCount {
        let Counts {
            resets: count,
            idle,
        } = self.follow(bytes);
        if count == 0 && idle == 0 {
            return ResetCount::default();
        }
        if self.second != now {
            (self.second, self.count, self.idle) = (now, 0, 0);
        }
        self.count = self.count.saturating_add(count);
        self.idle = self.idle.saturating_add(idle);
        ResetCount {
            count,
            too_many: count != 0 && self.limit < self.count,
            too_idle: self.frames < self.idle,
        }
    }

    /// Bytes that belong to the frame that has begun to come.
    pub(super) fn rest_of_frame(&self) -> usize {
        self.skip
    }

    fn follow(&mut self, mut bytes: &[u8]) -> Counts {
        let mut count = Counts::default();
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return count;
            }
            // Fast path: the header is mostly complete.
            let header = match bytes.split_first_chunk::<HEADER_BYTES>() {
                Some((header, rest)) if self.begun == 0 => {
                    bytes = rest;
                    header
                }
                _ => {
                    let part = (HEADER_BYTES - self.begun).min(bytes.len());
                    self.header[self.begun..self.begun + part].copy_from_slice(&bytes[..part]);
                    self.begun += part;
                    bytes = &bytes[part..];
                    if self.begun < HEADER_BYTES {
                        return count;
                    }
                    self.begun = 0;
                    &self.header
                }
            };
            self.skip = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let kind = header[3];
            count.resets += u32::from(kind == RST_STREAM);
            count.idle +=
                u32::from(matches!(kind, PRIORITY | SETTINGS | PING) || CONTINUATION < kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// HEADERS and RST_STREAM, so many times; payloads look like frames themselves.
    fn streams(count: usize) -> Vec<u8> {
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        sent.extend(frame(4, b""));
        for _ in 0..count {
            sent.extend(frame(1, &frame(RST_STREAM, &[3; 4])));
            sent.extend(frame(RST_STREAM, &8_u32.to_be_bytes()));
        }
        sent
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let sent = streams(7);
        for size in 1..=sent.len() {
            let mut watch = ResetGuard::new(100, 100);
            let seen = sent.chunks(size).map(|part| watch.inspect(part, 1).count);
            assert_eq!(seen.sum::<u32>(), 7, "{size}");
            assert_eq!(watch.rest_of_frame(), 0);
        }
        let mut watch = ResetGuard::new(100, 100);
        watch.inspect(&streams(0), 1);
        watch.inspect(&frame(0, b"data")[..10], 1);
        assert_eq!(watch.rest_of_frame(), 3);
    }

    #[test]
    fn so_many_in_a_second_and_not_one_more() {
        let mut watch = ResetGuard::new(5, 100);
        assert!(!watch.inspect(&streams(5), 1).too_many);
        let one = frame(RST_STREAM, &[0; 4]);
        assert!(!watch.inspect(&one, 2).too_many, "another second");
        for _ in 0..4 {
            assert!(!watch.inspect(&one, 2).too_many);
        }
        // What takes nothing back is told of nothing.
        assert!(!watch.inspect(&frame(0, b"data"), 2).too_many);
        assert!(watch.inspect(&one, 2).too_many);
    }

    #[test]
    fn frames_that_are_for_nothing_are_bounded() {
        for kind in [PRIORITY, SETTINGS, PING, 0x55] {
            let mut watch = ResetGuard::new(5, 100);
            watch.inspect(&streams(0), 1);
            let one = frame(kind, &[0; 5]);
            for _ in 0..99 {
                assert!(!watch.inspect(&one, 1).too_idle);
            }
            assert!(watch.inspect(&one, 1).too_idle, "{kind}");
            assert!(!watch.inspect(&one, 2).too_idle, "another second");
        }
        let mut watch = ResetGuard::new(5, 100);
        watch.inspect(&streams(0), 1);
        for _ in 0..1000 {
            assert!(!watch.inspect(&frame(0, b"data"), 1).too_idle);
        }
    }
}
