//! Decoding of a response body to text.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

use super::html;
use crate::source::media_type::{self, essence, parameter};

/// Number of bytes in which a page's own encoding declaration is searched, as in browsers.
const PRESCAN_BYTES: usize = 1024;

/// Decodes a body. The encoding comes from its byte order mark, else its content type, else the own declaration of an
/// HTML page. Otherwise it is UTF-8 if it is JSON or valid UTF-8, else Windows-1252.
pub(super) fn text(body: &[u8], content_type: &str) -> String {
    let said =
        parameter(content_type, "charset").and_then(|label| Encoding::for_label(label.as_bytes()));
    let essence = essence(content_type);
    let of_content = || match &*essence {
        "" | "text/html" | "application/xhtml+xml" => of_page(body),
        json if json.ends_with("/json") || json.ends_with("+json") => Some(UTF_8),
        _ => None,
    };
    let encoding = said.or_else(of_content).unwrap_or_else(|| {
        if std::str::from_utf8(body).is_ok() {
            UTF_8
        } else {
            WINDOWS_1252
        }
    });
    encoding.decode(body).0.into_owned()
}

/// Returns true for a text body: its content type is textual, or is inconclusive and the bytes look like text.
pub(super) fn is_text(body: &[u8], content_type: &str) -> bool {
    let essence = essence(content_type);
    let is_named = !essence.is_empty() && media_type::is_text(&essence);
    let looks_so = || {
        let start = &body[..body.len().min(PRESCAN_BYTES)];
        !start.contains(&0) && std::str::from_utf8(body).is_ok()
    };
    is_named || parameter(content_type, "charset").is_some() || looks_so()
}

/// Returns the encoding that a page declares for itself.
fn of_page(body: &[u8]) -> Option<&'static Encoding> {
    let start = &body[..body.len().min(PRESCAN_BYTES)];
    let (start, _) = WINDOWS_1252.decode_without_bom_handling(start);
    let encoding = Encoding::for_label(html::charset(&start)?.as_bytes())?;
    // The declaration was readable as ASCII, so the page is not in UTF-16.
    Some(if encoding.is_ascii_compatible() {
        encoding
    } else {
        UTF_8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_is_said_of_them() {
        for (body, content_type, expected) in [
            (&b"caf\xc3\xa9"[..], "text/plain", "café"),
            (b"caf\xe9", "text/plain", "café"),
            (b"caf\xe9", "text/plain; charset=ISO-8859-1", "café"),
            (b"caf\xe9", "text/plain; Charset=\"latin1\"", "café"),
            (b"\x93\xfa\x96{", "text/plain;charset=shift_jis", "日本"),
            (b"\xef\xbb\xbfa", "text/plain; charset=latin1", "a"),
            (b"\xff\xfea\0", "text/html", "a"),
            (
                b"<meta charset='koi8-r'>\xc1",
                "text/html",
                "<meta charset='koi8-r'>а",
            ),
            (
                b"<meta http-equiv=content-type content=\"text/html; charset=koi8-r\">\xc1",
                "",
                "<meta http-equiv=content-type content=\"text/html; charset=koi8-r\">а",
            ),
            (
                b"<meta charset=utf-16>\xc3\xa9",
                "",
                "<meta charset=utf-16>é",
            ),
            (
                b"<meta charset=koi8-r>\xc1",
                "text/plain",
                "<meta charset=koi8-r>\u{c1}",
            ),
            (
                b"{\"a\":\"<meta charset=koi8-r>caf\xc3\xa9\"}",
                "application/json",
                "{\"a\":\"<meta charset=koi8-r>café\"}",
            ),
            (
                b"\"caf\xe9\"",
                "application/problem+json",
                "\"caf\u{fffd}\"",
            ),
            (b"\xff", "text/plain; charset=utf-8", "\u{fffd}"),
            (b"a", "text/plain; charset=no-such-thing", "a"),
        ] {
            assert_eq!(text(body, content_type), expected, "{content_type}");
        }
    }

    #[test]
    fn what_is_no_text_is_told_from_what_is() {
        for (body, content_type) in [
            (&b"{}"[..], "application/json"),
            (b"{}", "application/problem+json; charset=utf-8"),
            (b"<a/>", "image/svg+xml"),
            (b"\xff", "text/csv"),
            (b"plain", "application/octet-stream"),
            (b"plain", ""),
            (b"\xff", "application/x-own; charset=latin1"),
        ] {
            assert!(is_text(body, content_type), "{content_type}");
        }
        for (body, content_type) in [
            (&b"\x89PNG\r\n\x1a\n\0"[..], "image/png"),
            (b"%PDF-1.7\n\xe2\xe3", "application/pdf"),
            (b"a\0b", ""),
            (b"PK\x03\x04\xff", "application/zip"),
        ] {
            assert!(!is_text(body, content_type), "{content_type}");
        }
    }
}
