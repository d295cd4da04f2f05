mod again;
mod bodies;
mod fields;
mod lines;

use proptest::prelude::*;

use super::*;

/// Remaining text of input that arrives in pieces, and whether more arrived than the latest request. Bytes after the
/// first head arrive during its response.
fn watched(text: &str, cuts: &[usize]) -> (String, bool) {
    let mut watch = FramingGuard::default();
    let begins = text.len() - text.trim_start_matches(['\r', '\n']).len();
    let head_end = text[begins..].find("\r\n\r\n").map(|at| begins + at + 4);
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    for cut in cuts.iter().chain([&usize::MAX]) {
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        let mut piece = piece.to_vec();
        let at = match out.len() {
            0 => BytePosition::Beginning,
            at if head_end.is_none_or(|end| at < end) => BytePosition::Head,
            _ => BytePosition::Body,
        };
        watch.inspect(&mut piece, at);
        out.extend(piece);
        rest = after;
    }
    (String::from_utf8_lossy(&out).into_owned(), watch.has_more())
}

fn is_spoiled(text: &str, cuts: &[usize]) -> bool {
    watched(text, cuts).0 != text
}

const HEAD: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n";

proptest! {
    #[test]
    fn pieces_do_not_matter(
        lines in prop::collection::vec(
            prop::sample::select(vec![
                "Content-Length: 3\r\n", "transfer-encoding: chunked\r\n", "\r\n", "x: y\r\n",
                "abc", "Content-", "Length:", "-bcdefg:",
            ]),
            0..12,
        ),
        cuts in prop::collection::vec(0_usize..20, 0..20),
    ) {
        let text = format!("GET / HTTP/1.1\r\n{}", lines.concat());
        let (whole, pieces) = (is_spoiled(&text, &[]), is_spoiled(&text, &cuts));
        prop_assert!(pieces || !whole);
        // Invalid chunks may cause their line to be inspected twice.
        if !text.contains("chunked") {
            prop_assert_eq!(pieces, whole);
        }
    }
}
