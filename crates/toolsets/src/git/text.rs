//! Output text with a size limit, and paths quoted as in Git.

use std::borrow::Cow;

use gix::bstr::{BStr, ByteSlice};

use super::encoding::FileEncoding;
use super::repository::OpenRepository;
use crate::source::builtin::Stop;

/// A text that grows up to a limit.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    max: usize,
    is_cut: bool,
    /// Notified if the text is cut.
    stop: Stop,
}

impl Text {
    pub(super) fn new(max: usize, stop: Stop) -> Self {
        Self {
            bytes: Vec::new(),
            max,
            is_cut: false,
            stop,
        }
    }

    /// Creates a text with the configured size limit.
    pub(super) fn of(place: &OpenRepository<'_>) -> Self {
        Self::new(place.limits().output_bytes, place.stop.clone())
    }

    /// Appends as much as fits.
    pub(super) fn push(&mut self, more: impl AsRef<[u8]>) {
        if self.is_cut {
            return;
        }
        let more = more.as_ref();
        let room = self.max - self.bytes.len();
        self.is_cut = room < more.len();
        self.bytes.extend_from_slice(&more[..more.len().min(room)]);
    }

    /// Appends a line.
    pub(super) fn line(&mut self, line: impl AsRef<[u8]>) {
        self.push(line);
        self.push("\n");
    }

    /// Returns true if the limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.is_cut
    }

    /// Returns the text. If it was cut, its last line says so. Invalid UTF-8 becomes U+FFFD.
    pub(super) fn finish(self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        if self.is_cut {
            self.stop.hit("output_bytes");
            text.push_str(&format!(
                "\n[cut: only the first {} bytes are shown]",
                self.max
            ));
        }
        text
    }
}

/// Returns text of a commit in UTF-8, if the commit names another encoding.
pub(super) fn recoded<'t>(text: &'t [u8], encoding: Option<&BStr>) -> Cow<'t, [u8]> {
    let encoding = encoding.and_then(|name| FileEncoding::of(name.as_bytes()));
    match encoding.and_then(|encoding| encoding.decode(text)) {
        Some(decoded) => Cow::Owned(decoded.into_bytes()),
        None => Cow::Borrowed(text),
    }
}

/// Quotes a path as Git does, if it contains characters that could be misread.
pub(super) fn quoted(path: &BStr) -> String {
    with_prefix("", path)
}

/// Quotes a path with `a/` or `b/` before it, inside the quotes.
pub(super) fn with_prefix(prefix: &str, path: &BStr) -> String {
    let is_plain = path
        .iter()
        .all(|byte| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\'));
    if is_plain {
        return format!("{prefix}{}", path.to_str_lossy());
    }
    let mut text = format!("\"{prefix}");
    for byte in path.iter() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            0x20..0x7f => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\{other:03o}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_its_limit_and_says_so() {
        let mut text = Text::new(4, Stop::never());
        text.push("ab");
        text.push("cd");
        assert!(!text.is_full());
        text.push("e");
        text.push("f");
        assert!(text.is_full());
        let text = text.finish();
        assert!(text.starts_with("abcd\n[cut: "), "{text}");
        let mut whole = Text::new(5, Stop::never());
        whole.line("ab\u{fc}");
        assert_eq!(whole.finish(), "ab\u{fc}\n");
    }

    #[test]
    fn paths_are_quoted_where_they_would_be_misread() {
        for (path, shown) in [
            ("a b/c", "a b/c"),
            ("a\"b", r#""a\"b""#),
            ("a\\b", r#""a\\b""#),
            ("a\nb", r#""a\nb""#),
            ("\u{fc}", r#""\303\274""#),
            ("\x1b[31m", r#""\033[31m""#),
        ] {
            assert_eq!(quoted(path.into()), shown);
        }
        assert_eq!(with_prefix("a/", "\u{fc}".into()), r#""a/\303\274""#);
    }
}
