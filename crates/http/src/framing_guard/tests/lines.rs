use super::{HEAD, is_spoiled};

#[test]
fn lines_of_a_head_that_end_with_a_line_feed_alone_are_spoiled() {
    let whole = format!("{HEAD}Content-Length: 3\r\n\r\nabc");
    let mut heads: Vec<String> = whole
        .match_indices("\r\n")
        .map(|(at, _)| format!("{}{}", &whole[..at], &whole[at + 1..]))
        .collect();
    heads.push(whole.replace("\r\n", "\n"));
    heads.push(format!("\n{whole}"));
    heads.push(format!("\r\n\n{whole}"));
    heads.push(format!("\r\n\r\n{}", heads[1]));
    for text in &heads {
        for cut in 0..text.find("abc").expect("a body") {
            assert!(is_spoiled(text, &[cut]), "{text:?} at {cut}");
        }
        assert!(
            is_spoiled(text, &vec![1; text.len()]),
            "{text:?} byte by byte"
        );
    }
    // Behind a request whose end is known.
    for text in &heads {
        assert!(is_spoiled(&format!("{whole}{text}"), &[]), "{text:?}");
    }
}

#[test]
fn line_feeds_of_bodies_are_left_alone() {
    for text in [
        format!("{HEAD}Content-Length: 4\r\n\r\n{{\n\n}}"),
        format!("\r\n{HEAD}Content-Length: 4\r\n\r\n{{\n\n}}{HEAD}\r\n"),
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n4\r\n{{\n\n}}\r\n0\r\n\r\n"),
        format!("{HEAD}Content-Length: 2\r\n\r\n\n\n{HEAD}Content-Length: 1\r\n\r\n\n"),
    ] {
        for cut in 0..text.len() {
            assert!(!is_spoiled(&text, &[cut]), "{text:?} at {cut}");
        }
        assert!(!is_spoiled(&text, &vec![1; text.len()]), "{text:?}");
    }
}
