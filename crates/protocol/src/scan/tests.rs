use std::borrow::Cow;

use super::*;
use proptest::prelude::*;

fn accepts(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.value().and_then(|_| scanner.end()).is_ok()
}

fn refusal(text: &str) -> ScanError {
    let mut scanner = Scanner::new(text);
    scanner
        .value()
        .and_then(|_| scanner.end())
        .expect_err("should be refused")
}

#[test]
fn accepts_what_json_allows() {
    for text in [
        "{}",
        "[]",
        " [ ] ",
        "0",
        "-0",
        "10",
        "1.5e-7",
        "1E400",
        "true",
        "null",
        r#""""#,
        r#"{"a":{"b":[1,2,{"c":null}]},"d":""}"#,
        "[[],{},[[]]]",
        "\"\u{1F600}\"",
        r#""\ud83d\ude00 \n\/\\""#,
        "[1 , 2\n,\t3\r]",
        "\"\u{7f}\"",
    ] {
        assert!(accepts(text), "{text}");
    }
}

#[test]
fn refuses_what_json_does_not_allow() {
    for text in [
        "",
        " ",
        "{",
        "[",
        "]",
        "}",
        "[1,]",
        "{,}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1,}"#,
        "[1 2]",
        r#"{"a":1 "b":2}"#,
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "NaN",
        "Infinity",
        "-Infinity",
        "nul",
        "True",
        r#"""#,
        r#""\x""#,
        r#""\u12""#,
        r#""\u12g4""#,
        "\"\n\"",
        "\"\t\"",
        "'a'",
        "{a:1}",
        "{1:1}",
        "[1}",
        r#"{"a":1]"#,
        "1 2",
        "[]]",
        "\u{feff}[]",
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00""#,
        r#""\ud800\n""#,
        "/**/1",
        "[1,,2]",
        "\u{b}1",
    ] {
        assert!(!accepts(text), "{text}");
    }
}

#[test]
fn says_where_and_why() {
    assert_eq!(
        refusal(r#"{"a": tru}"#),
        ScanError {
            reason: "expected a value",
            at: 6
        }
    );
    assert_eq!(
        refusal("[1 2]"),
        ScanError {
            reason: "expected a comma or a closing bracket",
            at: 3
        }
    );
}

#[test]
fn bounds_depth_without_recursion() {
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(accepts(&nested(64)));
    assert_eq!(refusal(&nested(65)).reason, "nested too deeply");
    assert_eq!(refusal(&"[".repeat(1_000_000)).reason, "nested too deeply");
    assert_eq!(
        refusal(&r#"{"a":"#.repeat(20_000)).reason,
        "nested too deeply"
    );
}

#[test]
fn bounds_members_of_one_object() {
    let object = |members: usize| {
        let list: Vec<_> = (0..members).map(|n| format!("\"{n}\":0")).collect();
        format!("{{{}}}", list.join(","))
    };
    assert!(accepts(&object(10_000)));
    assert_eq!(
        refusal(&object(10_001)).reason,
        "an object has too many members"
    );
    // Siblings are counted apart from one another.
    assert!(accepts(&format!("[{},{}]", object(6_000), object(6_000))));
}

#[test]
fn values_in_arrays_and_objects_are_counted() {
    let accepts = |text: &str, values: u32| {
        let mut scanner = Scanner::within(text, Bounds::new(DEPTH_MAX, MEMBERS_MAX, values));
        let read = scanner.value().and_then(|_| scanner.end());
        assert_eq!(
            read.is_err(),
            scanner.exceeded() == Some(Excess::Values),
            "{text}"
        );
        read.is_ok()
    };
    for (text, values) in [
        ("[1,[2,3],{}]", 6),
        (r#"{"a":{"b":[1]}}"#, 4),
        ("[]", 1),
        ("7", 0),
    ] {
        assert!(accepts(text, values), "{text}");
        assert!(values == 0 || !accepts(text, values - 1), "{text}");
    }
}

#[test]
fn bounds_may_be_narrower() {
    let refused = |text: &str| {
        let mut scanner = Scanner::within(text, Bounds::new(3, 2, u32::MAX));
        let read = scanner.value().and_then(|_| scanner.end());
        assert_eq!(read.is_err(), scanner.exceeded().is_some(), "{text}");
        scanner.exceeded()
    };
    for (text, exceeded) in [
        ("[[[1]]]", None),
        ("[[[[]]]]", Some(Excess::Depth)),
        (r#"{"a":{"a":{"a":1}},"b":[]}"#, None),
        (r#"{"a":{"a":{"a":{}}}}"#, Some(Excess::Depth)),
        (r#"[{"a":1,"b":2},{"a":1,"b":2}]"#, None),
        (r#"{"a":{"a":1,"b":2,"c":3}}"#, Some(Excess::Members)),
    ] {
        assert_eq!(refused(text), exceeded, "{text}");
    }
}

#[test]
fn finds_the_end_of_strings_of_any_length() {
    for length in (0..200).chain(500..1_100).chain(2_500..2_700) {
        for special in ['"', '\\', '\n', '\u{1f}'] {
            let text = "a".repeat(length) + &special.to_string() + &"b".repeat(70);
            assert_eq!(plain_prefix(text.as_bytes()), length, "{special:?}");
        }
        assert_eq!(plain_prefix("\u{e9}".repeat(length).as_bytes()), 2 * length);
    }
    for byte in 0..=u8::MAX {
        let mut text = [b'a'; 4_000];
        text[2_000] = byte;
        let end = if is_special(byte) { 2_000 } else { text.len() };
        assert_eq!(plain_prefix(&text), end, "{byte:#x}");
    }
}

#[test]
fn unescapes() {
    let mut scanner = Scanner::new(r#""a\u0062\n\ud83d\ude00""#);
    let string = scanner.string().expect("a string");
    assert_eq!(string.unescape(), "ab\n\u{1F600}");
}

proptest! {
    #[test]
    fn agrees_with_serde_json_on_anything_like_json(
        text in r#"[\[\]{},:"\\u0-9a-f\-.eE+ tnl]{0,24}"#
    ) {
        // Numbers beyond f64 are well formed, and none of the scanner's business.
        let serde = match serde_json::from_str::<serde_json::Value>(&text) {
            Err(e) if e.to_string().contains("number out of range") => return Ok(()),
            other => other.is_ok(),
        };
        prop_assert_eq!(accepts(&text), serde);
    }

    #[test]
    fn agrees_with_serde_json_on_strings(text in r#"[\x00-\x7f\u{e9}\u{1F600}]{0,80}"#) {
        let quoted = format!("\"{text}\"");
        prop_assert_eq!(accepts(&quoted), serde_json::from_str::<serde_json::Value>(&quoted).is_ok());
        let good = serde_json::to_string(&text).expect("a string");
        let mut scanner = Scanner::new(&good);
        prop_assert_eq!(scanner.string().expect("valid").unescape(), text);
    }
}

/// Contents of a string with escapes, over several blocks, some of them invalid.
fn raw_string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        10 => "[a-z ]{0,40}",
        4 => r#"\\["\\/bfnrt]"#,
        2 => "\\\\{2,9}",
        1 => r"\\u(00[0-9a-fA-F]{2}|ud83d|d83d\\ude00|D800|20ac)",
        1 => "[\u{e9}\u{20ac}\u{1F600}]{1,9}",
    ];
    let odd = prop_oneof![
        20 => Just(String::new()),
        1 => r#"\\[xu0]|["\\]|\\u12|[\x00-\x1f]"#,
    ];
    (
        prop::collection::vec(piece, 0..40),
        odd,
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut pieces, odd, place)| {
            pieces.insert(place.index(pieces.len() + 1), odd);
            pieces.concat()
        })
}

proptest! {
    #[test]
    fn agrees_with_serde_json_on_long_strings_with_escapes(raw in raw_string()) {
        let quoted = format!("\"{raw}\"");
        let text = serde_json::from_str::<String>(&quoted).ok();
        prop_assert_eq!(accepts(&quoted), text.is_some());
        let document = format!("[{quoted},\"{}\"]", "b".repeat(200));
        let mut scanner = Scanner::new(&document);
        scanner.expect(b'[', "").expect("an array");
        // An invalid string must not cause a panic; any result is allowed.
        let read = scanner.scanned_string().map(|string| string.text().map(Cow::into_owned));
        if let Some(text) = text {
            prop_assert_eq!(read, Ok(Some(text.clone())));
            prop_assert_eq!(scanner.at(), 1 + quoted.len());
            let mut scanner = Scanner::new(&document);
            scanner.expect(b'[', "").expect("an array");
            prop_assert_eq!(scanner.string().expect("valid").unescape(), text);
            prop_assert_eq!(scanner.at(), 1 + quoted.len());
        }
    }
}

#[test]
fn the_path_of_a_member_that_appears_twice_is_found() {
    for (document, path) in [
        (r#"{"a":1,"a":2}"#, Some("a")),
        (r#"{"a":1,"\u0061":2}"#, Some("a")),
        (r#"{"a":{"b":[0,{"c":1,"d":2,"c":3}]}}"#, Some("a.b[1].c")),
        (r#"[[{"":1,"":2}]]"#, Some("[0][0].")),
        (r#"{"a":{"x":1},"b":{"x":1},"x":[{"x":1},{"x":1}]}"#, None),
        ("[]", None),
    ] {
        assert_eq!(repeated_member(document).as_deref(), path, "{document}");
    }
    let members = |last: &str| {
        let members: Vec<_> = (0..100).map(|n| format!("\"m{n}\":0")).collect();
        format!("{{{},\"{last}\":0}}", members.join(","))
    };
    assert_eq!(repeated_member(&members("m7")).as_deref(), Some("m7"));
    assert_eq!(repeated_member(&members("m99")).as_deref(), Some("m99"));
    assert_eq!(repeated_member(&members("m100")), None);
}

/// A document with many names that are alike.
fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof!["0|true|null|1e400", "\"[ab]{0,2}\""];
    leaf.prop_recursive(8, 60, 5, |value| {
        let name = prop_oneof!["[ab]{0,3}", Just("\\u0061".to_owned())];
        prop_oneof![
            prop::collection::vec(value.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name, value), 0..5).prop_map(|members| {
                let members = members.iter();
                let members = members.map(|(name, value)| format!("\"{name}\":{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_not_noted_has_no_member_twice(document in document()) {
        let (text, repeats) = Scanner::new(&document).value_with_names().expect("JSON");
        prop_assert_eq!(text, &*document);
        prop_assert!(repeats || repeated_member(&document).is_none(), "{}", document);
    }
}
