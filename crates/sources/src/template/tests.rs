use super::environment::LENIENT;
use super::*;
use serde_json::json;

fn render(
    source: &str,
    place: EscapeContext,
    arguments: &serde_json::Value,
) -> Result<String, String> {
    let arguments = arguments.as_object().expect("an object");
    let template = Template::new(source, place, None)?;
    let rendered = template.render(&context(arguments, &Principal::new("ann")));
    rendered.map_err(|error| error.to_string())
}

#[test]
fn how_to_write_an_argument_with_a_dash_is_named() {
    let template = Template::new(
        "{{ no-name }}",
        EscapeContext::Query,
        Some(&["a", "no-name"]),
    );
    let problem = template.expect_err("there is no such argument");
    let expected = r#"for no-name, write arguments["no-name"]"#;
    assert!(problem.ends_with(expected), "{problem}");
    let other = Template::new("{{ name }}", EscapeContext::Query, Some(&["no-name"]));
    let problem = other.expect_err("there is no such argument");
    assert!(problem.ends_with("; there is no-name"), "{problem}");
}

#[test]
fn values_in_paths_stay_within_their_segment() {
    let path = |value: serde_json::Value| {
        render(
            "/users/{{ id }}/x",
            EscapeContext::Path,
            &json!({"id": value}),
        )
    };
    for (value, expected) in [
        (json!("ann"), "/users/ann/x"),
        (json!(7), "/users/7/x"),
        (json!(true), "/users/true/x"),
        (json!("a b"), "/users/a%20b/x"),
        (json!("a/b"), "/users/a%2Fb/x"),
        (json!("a?b#c"), "/users/a%3Fb%23c/x"),
        (json!("a%2fb"), "/users/a%252fb/x"),
        (json!("a.b"), "/users/a%2Eb/x"),
        (json!("@:;=&+$,"), "/users/%40%3A%3B%3D%26%2B%24%2C/x"),
        (json!("{{ 7*7 }}"), "/users/%7B%7B%207%2A7%20%7D%7D/x"),
        (json!("é"), "/users/%C3%A9/x"),
        (json!("\\"), "/users/%5C/x"),
        (json!("..."), "/users/%2E%2E%2E/x"),
    ] {
        assert_eq!(path(value.clone()).as_deref(), Ok(expected), "{value}");
    }
    for value in [
        json!(""),
        json!("."),
        json!(".."),
        json!("../admin"),
        json!("a/../b"),
        json!("..\\b"),
        json!("a\\.."),
        json!("a\nb"),
        json!("\0"),
        json!(null),
        json!([1]),
        json!({"a": 1}),
    ] {
        assert!(path(value.clone()).is_err(), "{value}");
    }
    assert!(render("/users/{{ id }}", EscapeContext::Path, &json!({})).is_err());
    assert_eq!(
        render("/a?b={{ q }}", EscapeContext::Query, &json!({"q": "x&y=z"})).as_deref(),
        Ok("/a?b=x%26y%3Dz")
    );
}

#[test]
fn values_in_json_are_json() {
    let arguments = json!({"text": "a\"b\n</script>", "list": [1, "x"], "caller": "eve"});
    let rendered = render(
        r#"{"a": {{ text }}, "b": {{ list }}}"#,
        EscapeContext::Json,
        &arguments,
    )
    .expect("renders");
    let parsed: serde_json::Value = serde_json::from_str(&rendered).expect("JSON");
    assert_eq!(parsed, json!({"a": "a\"b\n</script>", "b": [1, "x"]}));
}

#[test]
fn a_lone_placeholder_keeps_its_type_and_may_stand_for_nothing() {
    let arguments =
        json!({"n": 7, "f": 1.5, "b": false, "l": [1, 2], "o": {"a": 1}, "s": "x", "null": null});
    let context = context(
        arguments.as_object().expect("an object"),
        &Principal::new("ann"),
    );
    let value = |source: &str| {
        Template::new(source, EscapeContext::Text, None)
            .expect(source)
            .value(&context)
    };
    for (source, expected) in [
        ("{{ n }}", Some(json!(7))),
        ("{{f}}", Some(json!(1.5))),
        (" {{ b }} ", Some(json!(false))),
        ("{{ l }}", Some(json!([1, 2]))),
        ("{{ o.a }}", Some(json!(1))),
        ("{{ s | upper }}", Some(json!("X"))),
        ("{{ none_such }}", None),
        ("{{ null }}", None),
        ("n={{ n }}", Some(json!("n=7"))),
        ("{% if none_such %}x{% endif %}", None),
        ("{% if s %}x{% endif %}", Some(json!("x"))),
        ("{{ caller.name }}", Some(json!("ann"))),
        ("", Some(json!(""))),
    ] {
        assert_eq!(value(source), Ok(expected), "{source}");
    }
    assert!(value("n={{ none_such }}").is_err());
    let texts = Template::new("{{ l }}", EscapeContext::Text, None)
        .expect("a template")
        .texts(&context);
    assert_eq!(texts, Ok(vec!["1".to_owned(), "2".to_owned()]));
    assert!(
        Template::new("{{ o }}", EscapeContext::Text, None)
            .expect("a template")
            .text(&context)
            .is_err()
    );
}

#[test]
fn a_missing_fact_about_the_caller_is_an_error_and_is_named() {
    let arguments = json!({"n": 7, "none": null});
    let context = context(
        arguments.as_object().expect("an object"),
        &Principal::new("ann"),
    );
    let value = |source: &str| {
        Template::new(source, EscapeContext::Text, None)
            .expect(source)
            .value(&context)
    };
    let fact = |name: &str| Err(TemplateError::MissingFact(name.to_owned()));
    let unnamed = "a fact that it needs";
    for (source, name) in [
        ("{{ caller.subject }}", "caller.subject"),
        ("{{ caller.subject | upper }}", "caller.subject"),
        ("{{ caller.claims.tenant }}", "caller.claims.tenant"),
        ("{{ 'u-' ~ caller.subject }}", "caller.subject"),
        ("{{ caller.subject | join(',') }}", "caller.subject"),
        ("{{ caller.claims.a.b }}", "caller.claims.a.b"),
        ("{{ caller.claims['urn:tenant'] }}", unnamed),
        ("{{ owner | default(caller.subject) }}", "caller.subject"),
        ("u-{{ caller.subject }}", "caller.subject"),
        (
            "{{ caller.name }}/{{ caller.claims.tenant }}",
            "caller.claims.tenant",
        ),
        ("u-{{ owner | default(caller.subject) }}", "caller.subject"),
        (
            "{% if n %}{{ caller.subject }}{% endif %}",
            "caller.subject",
        ),
    ] {
        assert_eq!(value(source), fact(name), "{source}");
    }
    for filter in LENIENT {
        let arguments = match filter {
            "batch" | "slice" => "(2)",
            "map" => "(attribute='a')",
            _ => "",
        };
        let source = format!("{{{{ caller.subject | {filter}{arguments} }}}}");
        assert_eq!(value(&source), fact("caller.subject"), "{source}");
    }
    for (source, expected) in [
        ("{{ caller.groups | join(',') }}", Some(json!(""))),
        ("{{ [n, 8] | join(caller.name) }}", Some(json!("7ann8"))),
        (
            "{{ [n, 8] | map('string') | join('-') if caller.name }}",
            Some(json!("7-8")),
        ),
        ("{{ caller.subject | default(\"\") }}", Some(json!(""))),
        ("{{ caller.subject | default(n) }}", Some(json!(7))),
        (
            "{% if caller.subject %}{{ caller.subject }}{% endif %}",
            None,
        ),
        (
            "{{ n if caller.subject else caller.name }}",
            Some(json!("ann")),
        ),
        ("{{ owner if caller.name }}", None),
        ("{{ none if caller.name }}", None),
    ] {
        assert_eq!(value(source), Ok(expected), "{source}");
    }
    // It is the argument that is missing.
    assert!(matches!(
        value("{{ caller.name }}/{{ owner }}"),
        Err(TemplateError::Invalid(_))
    ));
}

#[test]
fn mistakes_are_found_when_a_template_is_read() {
    let message = Template::new("/{{ citty }}", EscapeContext::Path, Some(&["city", "days"]))
        .expect_err("refused");
    assert!(
        message.contains("citty") && message.contains("city, days"),
        "{message}"
    );
    for broken in [
        "{{ a",
        "{% if a %}",
        "{% endfor %}",
        "{{ a | nonesuch }}x{{",
    ] {
        assert!(
            Template::new(broken, EscapeContext::Text, None).is_err(),
            "{broken}"
        );
    }
    assert!(
        Template::new(
            "{% for a in arguments %}{{ a }}{% endfor %}",
            EscapeContext::Text,
            Some(&[])
        )
        .is_ok()
    );
}

#[test]
fn templates_end() {
    let endless = "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}";
    assert_eq!(
        render(endless, EscapeContext::Text, &json!({})).expect_err("too much"),
        "it is too much work"
    );
}

#[test]
fn a_missing_argument_is_named() {
    for (source, arguments, expected) in [
        ("n={{ n }}", json!({}), "n has no value; send the argument"),
        (
            "{{ a }} {{ o.b.c }}",
            json!({"a": 1, "o": {"b": {}}}),
            "o.b.c has no value; send the argument",
        ),
        (
            "{{ n }}!",
            json!({"n": null}),
            "n has no value; send the argument",
        ),
        (
            "x {{ caller.claims.email }}",
            json!({}),
            "this tool uses your identity, and your credentials do not contain caller.claims.email",
        ),
    ] {
        let problem = render(source, EscapeContext::Text, &arguments);
        assert_eq!(problem.expect_err("missing"), expected);
    }
}

#[test]
fn integers_are_written_without_a_fraction_wherever_they_are() {
    let arguments = json!({"n": 3.0, "f": 1.5, "list": [1e2], "o": {"n": -0.0}, "huge": 1e300});
    for (source, expected) in [
        ("{{ n }} {{ arguments.n }}", "3 3"),
        ("{{ f }} {{ list }} {{ o }}", r#"1.5 [100] {"n":0}"#),
    ] {
        let rendered = render(source, EscapeContext::Text, &arguments);
        assert_eq!(rendered.as_deref(), Ok(expected));
    }
    for (number, digits) in [
        (json!(1e16), "10000000000000000"),
        (json!(-1e18), "-1000000000000000000"),
        (json!(1.2e19), "12000000000000000000"),
        (json!(1e20), "100000000000000000000"),
        (json!(1e22), "10000000000000000000000"),
    ] {
        assert_eq!(plain(&number).as_deref(), Ok(digits));
        let rendered = render("{{ n }}!", EscapeContext::Text, &json!({ "n": number }));
        assert_eq!(rendered, Ok(format!("{digits}!")));
    }
    assert_eq!(plain(&json!(2.0)).as_deref(), Ok("2"));
}
