use super::{HEAD, is_spoiled, watched};

#[test]
fn a_body_is_a_body_whatever_stands_in_it() {
    let inner = "\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    let length = inner.len();
    let both = format!("{HEAD}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
    let text = format!("{HEAD}Content-Length: {length}\r\n\r\n{inner}");
    for cut in 0..text.len() {
        assert!(!is_spoiled(&text, &[cut]), "at {cut}");
    }
    assert!(!is_spoiled(&text, &vec![1; text.len()]), "byte by byte");
    let chunked =
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{inner}\r\n0\r\n\r\n");
    for cut in 0..chunked.len() {
        assert!(!is_spoiled(&chunked, &[cut]), "chunked, at {cut}");
    }
    for cut in 0..text.len() {
        assert!(
            is_spoiled(&format!("{text}{both}"), &[cut]),
            "behind it, at {cut}"
        );
    }
}

#[test]
fn lengths_in_a_body_without_a_length_hide_nothing() {
    let inner = "a\r\ncontent-length: 999999\r\n\r\n";
    let both = format!("{HEAD}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunked = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n");
    let text = format!("{chunked}{:x}\r\n{inner}\r\n0\r\n\r\n{both}", inner.len());
    for cut in 0..text.len() {
        assert!(is_spoiled(&text, &[cut]), "at {cut}");
    }
}

#[test]
fn what_comes_along_behind_a_request_is_seen() {
    let one = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
    assert!(!watched(&one, &[]).1);
    for more in ["P", HEAD, &format!("{HEAD}Content-Length: 5\r\n")] {
        let text = format!("{one}{more}");
        for cut in 0..one.len() {
            assert!(watched(&text, &[cut]).1, "{more:?} at {cut}");
        }
    }
    assert!(!watched(&format!("{one}{one}"), &[]).1);
    let chunked = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(!watched(&format!("{one}{chunked}"), &[]).1);
    assert!(watched(&format!("{chunked}P"), &[]).1);
}

#[test]
fn heads_behind_a_request_in_chunks_are_looked_at_like_the_first() {
    let chunked = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n");
    let one = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
    let text = format!("{chunked}{one}{chunked}{one}");
    for cut in 0..text.len() {
        assert!(!is_spoiled(&text, &[cut]), "at {cut}");
    }
    assert!(!is_spoiled(&text, &vec![1; text.len()]), "byte by byte");
    let bare = one.replacen("\r\n", "\n", 1);
    for text in [
        format!("{chunked}{bare}"),
        format!("{one}{chunked}{bare}"),
        format!("{chunked}{one}{bare}"),
    ] {
        for cut in 0..text.len() {
            assert!(is_spoiled(&text, &[cut]), "{text:?} at {cut}");
        }
        assert!(is_spoiled(&text, &vec![1; text.len()]), "byte by byte");
    }
}
