use proptest::prelude::*;

use super::*;

fn template(text: &str) -> UriTemplate {
    match UriTemplate::parse(text) {
        Ok(template) => template,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Values as `name=value`, or `no match`.
fn matched(text: &str, uri: &str) -> String {
    match template(text).matches(uri) {
        None => "no match".to_owned(),
        Some(values) => {
            let values: Vec<_> = values.iter().map(|(n, v)| format!("{n}={v}")).collect();
            values.join(" ")
        }
    }
}

#[test]
fn matches_the_examples_of_the_documentation() {
    for (text, uri, values) in [
        (
            "git://repo/{branch}/file",
            "git://repo/main/file",
            "branch=main",
        ),
        (
            "git://repo/{branch}/file",
            "git://repo/fix%2F7/file",
            "branch=fix/7",
        ),
        (
            "git://repo/{branch}/file",
            "git://repo/a/b/file",
            "no match",
        ),
        ("git://repo/{branch}/file", "git://repo//file", "no match"),
        (
            "git://repo/{branch}/file",
            "git://repo/main/files",
            "no match",
        ),
        ("git://repo/{branch}/file", "git://repo/main", "no match"),
        ("file:///{+path}", "file:///a/b.txt", "path=a/b.txt"),
        ("file:///{+path}", "file:///", "no match"),
        ("file:///{path*}", "file:///a/b.txt", "path=a/b.txt"),
        ("file:///{path*}", "file:///a%2Fb.txt", "path=a/b.txt"),
        ("x://{path*}/{id}/raw", "x://a/b/c/7/raw", "path=a/b/c id=7"),
        ("x://{name}.json", "x://a.b.json", "name=a.b"),
        ("x://{name}.json", "x://.json", "no match"),
        ("x://{+path}/{id}/raw", "x://a/b/c/7/raw", "path=a/b/c id=7"),
        ("x://{+path}/{id}/raw", "x://7/raw", "no match"),
        ("x://{+path}{?line}", "x://a/b?line=3", "path=a/b line=3"),
        ("x://{+path}{?line}", "x://a/b", "path=a/b"),
        ("x://{lon},{lat}", "x://8.5,-47", "lon=8.5 lat=-47"),
        ("x://{lon,lat}", "x://8.5,-47", "lon=8.5 lat=-47"),
        ("x://{a}:{b}", "x://one:two:three", "a=one b=two:three"),
        ("x://q{?q,page}", "x://q?page=2&q=a%20b", "q=a b page=2"),
        ("x://q{?q,page}", "x://q?q=", "q="),
        ("x://q{?q,page}", "x://q?q", "q="),
        ("x://q{?q,page}", "x://q?q=1&q=2", "no match"),
        ("x://q{?q,page}", "x://q?other=1", "no match"),
        ("x://q{?q,page}", "x://q?", "no match"),
        ("x://q{?q}{&page}", "x://q?q=1&page=2", "q=1 page=2"),
        ("x://q?fixed=1{&page}", "x://q?fixed=1&page=2", "page=2"),
        ("x://a{/b,c}", "x://a/1/2", "b=1 c=2"),
        ("x://a{/b,c}", "x://a/1", "b=1"),
        ("x://a{/b,c}", "x://a/1/2/3", "no match"),
        ("x://{a}/b{/c*}", "x://1/b/2/3.rs", "a=1 c=2/3.rs"),
        ("x://{a}/b{/c*}", "x://1/b", "a=1"),
        ("x://{a}/b{/c*}", "x://1/b/", "a=1 c="),
        ("x://{a}/b{/c*}", "x://1/b/2%2F3%3F", "a=1 c=2/3?"),
        ("x://{a}/b{/c*}", "x://1/bc", "no match"),
        ("x://{a}/b{/c*}", "x://1/b/2?d", "no match"),
        ("x://a{/b*}{?c}", "x://a/1/2?c=3", "b=1/2 c=3"),
        ("x://a{.ext}", "x://a.tar.gz", "ext=tar.gz"),
        ("x://a{;v,w}", "x://a;w=2;v", "v= w=2"),
        ("x://a{#part}", "x://a#one/two,three", "part=one/two,three"),
        ("x://a{/b}{?c}{#d}", "x://a/1?c=2#3", "b=1 c=2 d=3"),
        ("x://a{/b}{?c}{#d}", "x://a#3", "d=3"),
        (
            "weather://{city}",
            "weather://S\u{e3}o%20Paulo",
            "city=S\u{e3}o Paulo",
        ),
        ("x://fixed", "x://fixed", ""),
        ("x://fixed", "x://fixed/", "no match"),
    ] {
        assert_eq!(matched(text, uri), values, "{text} {uri}");
    }
}

#[test]
fn bad_percent_encoding_matches_nothing() {
    for uri in ["x://%", "x://%4", "x://%zz", "x://%ff", "x://a%+1"] {
        assert_eq!(matched("x://{a}", uri), "no match", "{uri}");
    }
    assert_eq!(matched("x://{a}", "x://%e2%82%ac"), "a=\u{20ac}");
}

#[test]
fn ambiguous_templates_are_refused_by_variable() {
    for (text, variable) in [
        ("x://{a}{b}", "a"),
        ("x://{a}-{b}", "a"),
        ("x://{+a}/{+b}", "a"),
        ("x://{+a,b}", "a"),
        ("x://{a*}/{b*}", "a"),
        ("x://{a}{.ext}", "a"),
        ("x://y{.a,b}", "b"),
        ("x://y{/a}/end", "a"),
        ("x://y{/a}{b}", "a"),
        ("x://y{/a*}/end", "a"),
        ("x://y{/a*}{.b}", "a"),
        ("x://y{?a}/end", "a"),
        ("x://y{#a,b}", "b"),
        ("x://y{#a}{?b}", "a"),
        ("x://{+a}/y{?b}", "a"),
    ] {
        match UriTemplate::parse(text) {
            Err(TemplateError::Ambiguous { name }) => assert_eq!(name, variable, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_is_no_template_is_refused_with_a_reason() {
    for (text, reason) in [
        ("x://{a", "the brace at byte 4 has no counterpart"),
        ("x://a}", "the brace at byte 5 has no counterpart"),
        ("x://{a{b}}", "the brace at byte 4 has no counterpart"),
        ("x://{}", "`{}` is not an expression: it names no variable"),
        (
            "x://{a,}",
            "`{a,}` is not an expression: the names of variables have letters, digits, `_` and single dots",
        ),
        (
            "x://y{?a*}",
            "`{?a*}` is not an expression: modifiers other than `{a*}` and `{/a*}` are not supported",
        ),
        (
            "x://y{/a,b*}",
            "`{/a,b*}` is not an expression: modifiers other than `{a*}` and `{/a*}` are not supported",
        ),
        (
            "x://{a**}",
            "`{a**}` is not an expression: modifiers other than `{a*}` and `{/a*}` are not supported",
        ),
        (
            "x://{a:3}",
            "`{a:3}` is not an expression: modifiers other than `{a*}` and `{/a*}` are not supported",
        ),
        (
            "x://{=a}",
            "`{=a}` is not an expression: its first character is reserved by RFC 6570",
        ),
        ("x://{a}/{a}", "the variable `a` appears twice"),
        ("x://a b", "' ' at byte 5 must be percent-encoded in a URI"),
        ("x://%4", "'%' at byte 4 must be percent-encoded in a URI"),
        (
            "x://\u{e9}",
            "'\u{e9}' at byte 4 must be percent-encoded in a URI",
        ),
    ] {
        let error = UriTemplate::parse(text).expect_err(text);
        assert_eq!(error.to_string(), reason, "{text}");
    }
    let long = format!("x://{}", "a".repeat(URI_MAX_BYTES));
    assert_eq!(
        UriTemplate::parse(&long).err(),
        Some(TemplateError::TooLong)
    );
}

#[test]
fn expands_as_in_the_rfc() {
    // Section 1.2 and 3.2, levels 1 to 3.
    let value = |name: &str| match name {
        "var" => Some("value"),
        "hello" => Some("Hello World!"),
        "path" => Some("/foo/bar"),
        "empty" => Some(""),
        "x" => Some("1024"),
        "y" => Some("768"),
        "half" => Some("50%"),
        "done" => Some("50%25"),
        _ => None,
    };
    for (text, uri) in [
        ("a:{var}", "a:value"),
        ("a:{hello}", "a:Hello%20World%21"),
        ("a:{half}", "a:50%25"),
        ("a:O{empty}X", "a:OX"),
        ("a:{+hello}", "a:Hello%20World!"),
        ("a:{+path}/here", "a:/foo/bar/here"),
        ("a:{+half}", "a:50%25"),
        ("a:{+done}", "a:50%25"),
        ("a:X{#var}", "a:X#value"),
        ("a:X{#hello}", "a:X#Hello%20World!"),
        ("a:map?{x,y}", "a:map?1024,768"),
        ("a:X{.var}", "a:X.value"),
        ("a:{/var}", "a:/value"),
        ("a:{/var,x}/", ""),
        ("a:{/var,x}", "a:/value/1024"),
        ("a:{/hello*}", "a:/Hello%20World%21"),
        ("a:b{/path*}", "a:b//foo/bar"),
        ("a:{/none*}", "a:"),
        ("a:{;x,y}", "a:;x=1024;y=768"),
        ("a:{;x,y,empty}", "a:;x=1024;y=768;empty"),
        ("a:{?x,y,empty}", "a:?x=1024&y=768&empty="),
        ("a:{?x,none,y}", "a:?x=1024&y=768"),
        ("a:?fixed=yes{&x}", "a:?fixed=yes&x=1024"),
        ("a:{&x,y,empty}", "a:&x=1024&y=768&empty="),
    ] {
        match UriTemplate::parse(text) {
            Ok(template) => assert_eq!(template.expand(value), uri, "{text}"),
            Err(_) => assert_eq!(uri, "", "{text}"),
        }
    }
}

#[test]
fn templates_that_match_the_same_are_alike() {
    let alike = |a, b| template(a).matches_the_same_as(&template(b));
    assert!(alike("x://{a}/y", "x://{b}/y"));
    assert!(!alike("x://{a}/y", "x://{+b}/y"));
    assert!(!alike("x://{a}/y", "x://{a}/z"));
    assert!(!alike("x://y{?a}", "x://y{?b}"));
    assert!(alike("x://y{/a}", "x://y{/b}"));
}

#[test]
fn res_04_uris_are_checked() {
    for uri in ["file:///a", "a+b-c.d:x", "urn:x", "x://\u{e9}"] {
        assert_eq!(fault_of_uri(uri), None, "{uri}");
    }
    let long = format!("x://{}", "a".repeat(URI_MAX_BYTES));
    for uri in [
        "",
        "/etc/passwd",
        "a b:c",
        ":x",
        "1a:x",
        "x://a b",
        "x://a\0",
        "x://{id}",
        &long,
    ] {
        assert!(fault_of_uri(uri).is_some(), "{uri}");
    }
}

/// Cost is counted in characters read; quadratic work would not end.
#[test]
fn fifty_thousand_commas_and_long_uris_stay_linear() {
    let commas = format!("x://{{{}}}", ",".repeat(50_000));
    assert_eq!(
        UriTemplate::parse(&commas).err(),
        Some(TemplateError::TooLong)
    );
    let commas = format!("x://{{{}}}", ",".repeat(URI_MAX_BYTES - 6));
    assert!(UriTemplate::parse(&commas).is_err());
    let names: Vec<_> = (0..64).map(|i| format!("v{i}")).collect();
    for text in [
        format!("x://{{{}}}", names.join(",")),
        format!("x://{{?{}}}", names.join(",")),
        format!("x://{{/{}}}", names.join(",")),
        "x://{+a}/{b}/{c}/{d}".to_owned(),
    ] {
        let template = template(&text);
        for filler in [",", "/", "?", "&", "&v1=", "%", "%41", "a", ";"] {
            let uri: String = "x://"
                .chars()
                .chain(filler.chars().cycle())
                .take(URI_MAX_BYTES)
                .collect();
            for _ in 0..200 {
                template.matches(&uri);
            }
            assert_eq!(
                template.matches(&format!("{uri}{filler}")),
                None,
                "over the bound"
            );
        }
    }
}

/// A template of random shape: operators, how many variables each has, and the literals between them.
fn any_parts() -> impl Strategy<Value = (String, Vec<(&'static str, usize, String)>)> {
    let operator = proptest::sample::select(vec!["", "+", "#", ".", "/", ";", "?", "&"]);
    let part = (operator, 1_usize..3, "[a-z/:.,=-]{0,3}");
    (
        "[a-z]{1,3}:[a-z/]{0,3}",
        proptest::collection::vec(part, 0..5),
    )
}

fn text_of(start: &str, parts: &[(&str, usize, String)]) -> String {
    let mut text = start.to_owned();
    let mut next = 0;
    for (operator, count, literal) in parts {
        let names: Vec<_> = (next..next + count).map(|i| format!("v{i}")).collect();
        next += count;
        text += &format!("{{{operator}{}}}{literal}", names.join(","));
    }
    text
}

proptest! {
    /// Property: a template matches its own expansions and returns the values.
    #[test]
    fn what_was_expanded_matches(
        (start, parts) in any_parts(),
        values in proptest::collection::vec("[a-z0-9 /.%,&=\u{e9}-]{1,6}", 10),
        given in proptest::collection::vec(any::<bool>(), 10),
    ) {
        let text = text_of(&start, &parts);
        let Ok(template) = UriTemplate::parse(&text) else { return Ok(()) };
        let mut expected = Vec::new();
        let mut next = 0;
        for (operator, count, _) in &parts {
            // Of an unnamed list the first values are given, or none.
            let mut is_given = true;
            for i in next..next + count {
                is_given = match *operator {
                    "" | "+" => true,
                    ";" | "?" | "&" => given[i],
                    _ => is_given && given[i],
                };
                // These leave a percent sign as it is, if it looks like an encoded character.
                let is_verbatim = matches!(*operator, "+" | "#");
                let value = if is_verbatim { values[i].replace('%', "_") } else { values[i].clone() };
                if is_given {
                    expected.push((format!("v{i}"), value));
                }
            }
            next += count;
        }
        let uri = template.expand(|name| {
            expected.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        });
        let found = template.matches(&uri).map(|found| {
            found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Vec<_>>()
        });
        prop_assert_eq!(found, Some(expected), "{} {}", text, uri);
    }

    /// Property: matching is unambiguous. The values found expand to a text with the same reading.
    #[test]
    fn what_matches_reads_back(
        (start, parts) in any_parts(),
        tail in "[a-z0-9/.,;?&=#v-]{0,20}",
    ) {
        let text = text_of(&start, &parts);
        let Ok(template) = UriTemplate::parse(&text) else { return Ok(()) };
        if let Some(found) = template.matches(&format!("{start}{tail}")) {
            let uri = template.expand(|name| {
                found.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
            });
            prop_assert_eq!(template.matches(&uri), Some(found), "{} {}", text, uri);
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "[ -~\u{e9}]{0,60}", uri in "[ -~\u{e9}]{0,60}") {
        if let Ok(template) = UriTemplate::parse(&text) {
            template.matches(&uri);
        }
        let _ = fault_of_uri(&uri);
    }
}

#[test]
fn what_a_uri_may_not_have_is_encoded() {
    for (uri, encoded) in [
        ("file:///a%20b", "file:///a%20b"),
        ("file:///ü", "file:///ü"),
        ("file:///a b<c>\n", "file:///a%20b%3Cc%3E%0A"),
        ("x:\u{85}", "x:%C2%85"),
    ] {
        assert_eq!(encoded_uri(uri), encoded);
        assert_eq!(fault_of_uri(encoded), None);
    }
}
