//! File reading.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

use rustix::fs::Stat;

use super::handle;
use super::refusal::PathRejection;
use super::resolved_path::{FollowMode, ResolvedPath};
use super::roots::Roots;
use crate::catalog::ToolError;
use crate::source::builtin::Stop;

/// Number of bytes read between two checks for a stop.
const PIECE: usize = 256 * 1024;

/// Opens a regular file, and returns it with its location.
pub(super) fn open<'r>(
    roots: &'r Roots,
    path: &str,
) -> Result<(ResolvedPath<'r>, File, Stat), ToolError> {
    let open = || {
        let spot = ResolvedPath::find(roots, path, FollowMode::Follow)?;
        // Devices are not even opened.
        match handle::kind(spot.found()?) {
            rustix::fs::FileType::RegularFile => {}
            rustix::fs::FileType::Directory => return Err(PathRejection::IsDirectory),
            _ => return Err(PathRejection::NotRegular),
        }
        let (file, stat) = handle::open_file(spot.dir(), spot.name())?;
        Ok((spot, file, stat))
    };
    open().map_err(|refusal: PathRejection| refusal.at(path))
}

/// Reads a whole file.
///
/// # Errors
///
/// The file cannot be read, or is larger than `max` bytes.
pub(super) fn all(
    file: &mut File,
    path: &str,
    max: usize,
    stop: &Stop,
) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    loop {
        stop.check()?;
        // Reads one byte more than allowed, to detect a larger file.
        let room = max.saturating_add(1).saturating_sub(bytes.len()).min(PIECE);
        let read = piece(file, &mut bytes, room).map_err(|e| PathRejection::from(e).at(path))?;
        if max < bytes.len() {
            return Err(too_large(path, max, stop));
        }
        if read == 0 {
            return Ok(bytes);
        }
    }
}

/// Returns the first lines, without the last line end.
pub(super) fn head(
    file: &mut File,
    path: &str,
    lines: usize,
    max: usize,
    stop: &Stop,
) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    let mut seen = 0;
    let mut lines_seen = 0;
    loop {
        stop.check()?;
        let read = piece(file, &mut bytes, PIECE).map_err(|e| PathRejection::from(e).at(path))?;
        let mut end = None;
        for position in memchr::memchr_iter(b'\n', &bytes[seen..]) {
            lines_seen += 1;
            if lines_seen == lines {
                end = Some(seen + position);
                break;
            }
        }
        bytes.truncate(end.unwrap_or(bytes.len()));
        if max < bytes.len() {
            return Err(too_large(path, max, stop));
        }
        if lines_seen == lines || read == 0 {
            if lines_seen < lines && bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            return Ok(bytes);
        }
        seen = bytes.len();
    }
}

/// Returns the last lines. A final line end is kept and does not start a further line.
pub(super) fn tail(
    file: &mut File,
    path: &str,
    lines: usize,
    max: usize,
    stop: &Stop,
) -> Result<Vec<u8>, ToolError> {
    let system = |e: io::Error| PathRejection::from(e).at(path);
    let mut begin = file.seek(SeekFrom::End(0)).map_err(system)?;
    // The blocks are read backwards, so the order is reversed at the end.
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut total = 0;
    let mut ends = 0;
    let mut is_last = true;
    while 0 < begin {
        stop.check()?;
        let length = begin.min(PIECE as u64);
        begin -= length;
        file.seek(SeekFrom::Start(begin)).map_err(system)?;
        let mut bytes = Vec::new();
        let mut part = Read::by_ref(file).take(length);
        part.read_to_end(&mut bytes).map_err(system)?;
        let within = match (is_last, bytes.split_last()) {
            (true, Some((b'\n', before))) => before,
            _ => &bytes,
        };
        is_last = false;
        let mut cut = None;
        for position in memchr::memrchr_iter(b'\n', within) {
            ends += 1;
            if ends == lines {
                cut = Some(position + 1);
                break;
            }
        }
        if let Some(cut) = cut {
            bytes.drain(..cut);
        }
        total += bytes.len();
        if max < total {
            return Err(too_large(path, max, stop));
        }
        pieces.push(bytes);
        if cut.is_some() {
            break;
        }
    }
    pieces.reverse();
    Ok(pieces.concat())
}

/// Reads on, up to `room` bytes.
fn piece(file: &mut File, bytes: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    file.take(room as u64).read_to_end(bytes)
}

fn too_large(path: &str, max: usize, stop: &Stop) -> ToolError {
    stop.hit("bytes");
    let path = super::refusal::shortened(path);
    ToolError::new(format!(
        "{path} is too large: this call may read at most {max} bytes more (builtin.filesystem.limits.bytes); read its beginning with head, or its end with tail"
    ))
}

/// Returns the media type for a file extension.
pub(super) fn media_type(name: &str) -> &'static str {
    let ending = name
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref() {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("bmp") => "image/bmp",
        Some("svg") => "image/svg+xml",
        Some("mp3") => "audio/mpeg",
        Some("wav") => "audio/wav",
        Some("ogg") => "audio/ogg",
        Some("flac") => "audio/flac",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(content).expect("written");
        file.seek(SeekFrom::Start(0)).expect("at the beginning");
        file
    }

    fn text(bytes: Result<Vec<u8>, ToolError>) -> String {
        String::from_utf8(bytes.expect("read")).expect("UTF-8")
    }

    #[test]
    fn the_first_and_the_last_lines_are_read() {
        let stop = Stop::never();
        for (content, lines, first, last) in [
            ("a\nb\nc\n", 2, "a\nb", "b\nc\n"),
            ("a\nb\nc", 2, "a\nb", "b\nc"),
            ("a\nb\nc\n", 1, "a", "c\n"),
            ("a\nb\nc\n", 3, "a\nb\nc", "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc", "a\nb\nc\n"),
            ("a\r\nb\r\n", 1, "a\r", "b\r\n"),
            ("\n\n\n", 2, "\n", "\n\n"),
            ("", 3, "", ""),
            ("one", 1, "one", "one"),
        ] {
            let name = "x";
            assert_eq!(
                text(head(&mut file(content.as_bytes()), name, lines, 100, &stop)),
                first,
                "{content:?}"
            );
            assert_eq!(
                text(tail(&mut file(content.as_bytes()), name, lines, 100, &stop)),
                last,
                "{content:?}"
            );
        }
    }

    #[test]
    fn lines_are_found_across_pieces() {
        let stop = Stop::never();
        let line = format!("{}\n", "x".repeat(999));
        let content = line.repeat(1000);
        let max = content.len();
        let read = text(head(&mut file(content.as_bytes()), "x", 700, max, &stop));
        assert_eq!(read, line.repeat(700).trim_end());
        let read = text(tail(&mut file(content.as_bytes()), "x", 700, max, &stop));
        assert_eq!(read, line.repeat(700));
    }

    #[test]
    fn no_more_is_read_than_may_be() {
        let stop = Stop::never();
        let content = vec![b'x'; 100];
        assert_eq!(
            all(&mut file(&content), "x", 100, &stop)
                .expect("just enough")
                .len(),
            100
        );
        let whole = all(&mut file(&content), "x", usize::MAX, &stop);
        assert_eq!(whole.expect("no limit").len(), 100);
        for refused in [
            all(&mut file(&content), "x", 99, &stop),
            head(&mut file(&content), "x", 1, 99, &stop),
            tail(&mut file(&content), "x", 1, 99, &stop),
        ] {
            let error = refused.expect_err("too much");
            assert!(error.message().contains("builtin.filesystem.limits.bytes"));
        }
        // What is not asked for does not count.
        let mut long = content.clone();
        long.extend(b"\nshort");
        assert_eq!(
            tail(&mut file(&long), "x", 1, 10, &stop).expect("short"),
            b"short"
        );
    }
}
