//! Encodings of files in a working tree, as the attribute `working-tree-encoding` names them. The repository has UTF-8.

use encoding_rs::Encoding;

/// An encoding other than UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileEncoding {
    /// The library reads UTF-16, but does not write it.
    Utf16 {
        order: ByteOrder,
        mark: Mark,
    },
    Other(&'static Encoding),
    /// Nothing is known about it.
    Unknown,
}

/// Byte order in which UTF-16 is written, and read unless a byte order mark says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

/// Byte order mark of UTF-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Required,
    Forbidden,
}

const MARK: char = '\u{feff}';

impl FileEncoding {
    /// Returns the encoding of a name; `None` for UTF-8, and for no name.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let short = upper.strip_prefix(b"UTF").unwrap_or_default();
        let utf16 = |order, mark| Self::Utf16 { order, mark };
        let found = match short.strip_prefix(b"-").unwrap_or(short) {
            // Most programs expect this order.
            b"16" | b"16LE-BOM" => utf16(ByteOrder::Little, Mark::Required),
            b"16BE-BOM" => utf16(ByteOrder::Big, Mark::Required),
            b"16LE" => utf16(ByteOrder::Little, Mark::Forbidden),
            b"16BE" => utf16(ByteOrder::Big, Mark::Forbidden),
            _ => match Encoding::for_label(name) {
                Some(known) if known.output_encoding() == known => Self::Other(known),
                _ => Self::Unknown,
            },
        };
        let is_other = !name.is_empty() && found != Self::Other(encoding_rs::UTF_8);
        is_other.then_some(found)
    }

    /// Decodes a file to UTF-8. Returns `None` if it is not in this encoding.
    pub(super) fn decode(self, bytes: &[u8]) -> Option<String> {
        match self {
            Self::Utf16 { order, mark } => utf16(bytes, order, mark),
            Self::Other(encoding) => {
                let text = encoding.decode_without_bom_handling_and_without_replacement(bytes)?;
                Some(text.into_owned())
            }
            Self::Unknown => None,
        }
    }

    /// Encodes UTF-8 for a file. Returns `None` if it is not UTF-8, or has characters that the encoding lacks.
    pub(super) fn encode(self, text: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(text).ok()?;
        match self {
            Self::Utf16 { order, mark } => {
                let marked = (mark == Mark::Required).then_some(MARK);
                let mut units = [0; 2];
                let mut bytes = Vec::with_capacity(text.len() * 2 + 2);
                for c in marked.into_iter().chain(text.chars()) {
                    for unit in c.encode_utf16(&mut units) {
                        bytes.extend(match order {
                            ByteOrder::Little => unit.to_le_bytes(),
                            ByteOrder::Big => unit.to_be_bytes(),
                        });
                    }
                }
                Some(bytes)
            }
            Self::Other(encoding) => {
                let (bytes, _, has_errors) = encoding.encode(text);
                (!has_errors).then(|| bytes.into_owned())
            }
            Self::Unknown => None,
        }
    }

    /// Returns true if a file can be written again from what `decode` returned for it. UTF-16 can, apart from its byte order.
    pub(super) fn is_lossless(self, bytes: &[u8], decoded: &str) -> bool {
        match self {
            Self::Utf16 { .. } => true,
            _ => self.encode(decoded.as_bytes()).as_deref() == Some(bytes),
        }
    }
}

fn utf16(bytes: &[u8], order: ByteOrder, mark: Mark) -> Option<String> {
    let (marked, rest) = match bytes {
        [0xff, 0xfe, rest @ ..] => (Some(ByteOrder::Little), rest),
        [0xfe, 0xff, rest @ ..] => (Some(ByteOrder::Big), rest),
        _ => (None, bytes),
    };
    if marked.is_some() != (mark == Mark::Required) || !rest.len().is_multiple_of(2) {
        return None;
    }
    let order = marked.unwrap_or(order);
    let units = rest.chunks_exact(2).map(|pair| {
        let pair = [pair[0], pair[1]];
        match order {
            ByteOrder::Little => u16::from_le_bytes(pair),
            ByteOrder::Big => u16::from_be_bytes(pair),
        }
    });
    char::decode_utf16(units).collect::<Result<_, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_decoded_and_encoded_again() {
        for (name, bytes, text) in [
            ("UTF-16", &b"\xff\xfeh\0\xe9\0"[..], "h\u{e9}"),
            ("utf16", b"\xff\xfe\x3d\xd8\x00\xde", "\u{1f600}"),
            ("UTF-16LE-BOM", b"\xff\xfeh\0", "h"),
            ("UTF-16BE-BOM", b"\xfe\xff\0h", "h"),
            ("UTF-16LE", b"h\0", "h"),
            ("utf-16be", b"\0h", "h"),
            ("UTF-16", b"\xff\xfe", ""),
            ("windows-1252", b"\x80", "\u{20ac}"),
            ("SHIFT-JIS", b"\x93\xfa\x96{", "\u{65e5}\u{672c}"),
        ] {
            let encoding = FileEncoding::of(name.as_bytes()).expect(name);
            assert_eq!(encoding.decode(bytes).as_deref(), Some(text), "{name}");
            assert_eq!(
                encoding.encode(text.as_bytes()).as_deref(),
                Some(bytes),
                "{name}"
            );
            assert!(encoding.is_lossless(bytes, text), "{name}");
        }
        let utf16 = FileEncoding::of(b"UTF-16").expect("an encoding");
        assert_eq!(utf16.decode(b"\xfe\xff\0h").as_deref(), Some("h"));
    }

    #[test]
    fn what_is_not_in_the_encoding_is_not_converted() {
        for name in ["UTF-8", "utf8", ""] {
            assert_eq!(FileEncoding::of(name.as_bytes()), None, "{name}");
        }
        for name in ["UTF-32", "CP437", "replacement", "nothing"] {
            let encoding = FileEncoding::of(name.as_bytes());
            assert_eq!(encoding, Some(FileEncoding::Unknown), "{name}");
        }
        for (name, bytes) in [
            ("UTF-16", &b"h\0"[..]),
            ("UTF-16LE", b"\xff\xfeh\0"),
            ("UTF-16LE", b"h\0\0"),
            ("UTF-16LE", b"\x00\xd8h\0"),
            ("SHIFT-JIS", b"\xff\xff"),
            ("UTF-32", b"h\0\0\0"),
        ] {
            let encoding = FileEncoding::of(name.as_bytes()).expect(name);
            assert_eq!(encoding.decode(bytes), None, "{name}");
        }
        let latin = FileEncoding::of(b"ISO-8859-2").expect("an encoding");
        assert_eq!(latin.encode("\u{65e5}".as_bytes()), None);
        assert_eq!(latin.encode(b"\xff"), None);
    }
}
