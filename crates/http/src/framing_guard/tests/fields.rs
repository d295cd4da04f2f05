use super::{HEAD, is_spoiled};

#[test]
fn heads_with_both_fields_are_spoiled_in_whatever_order_and_case() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 3\r\n",
        "TRANSFER-ENCODING:chunked\r\nX: y\r\nCONTENT-LENGTH:3\r\n",
        "content-length: 3\ntransfer-encoding: chunked\n",
        "content-length: 0\r\nx-filler: a-bcdefg:-bcdefghi:\r\ntransfer-encoding: x\r\n",
    ] {
        let text = format!("{HEAD}{fields}\r\n0\r\n\r\n");
        for cut in 0..text.len() {
            assert!(is_spoiled(&text, &[cut]), "{fields:?} at {cut}");
        }
        let each = vec![1; text.len()];
        assert!(is_spoiled(&text, &each), "{fields:?} byte by byte");
    }
}

#[test]
fn everything_else_is_left_as_it_is() {
    let long = "-bcdefg:-bcdefghi:\n".repeat(100);
    for text in [
        format!(
            "{HEAD}Content-Length: 3\r\n\r\nabc{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HEAD}Content-Length: 0\r\n\r\n"),
        format!("{HEAD}Content-Length: 3\r\nX-Transfer-Encoding: chunked\r\n\r\nabc"),
        format!("{HEAD}X: content-length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("{HEAD}Content-Lengths: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("{HEAD}Content-Length: 1900\r\n\r\n{long}"),
        "no HTTP at all".to_owned(),
    ] {
        for cut in 0..text.len() {
            assert!(!is_spoiled(&text, &[cut]), "{text:?} at {cut}");
        }
        assert!(!is_spoiled(&text, &vec![1; text.len()]));
    }
}
