//! The metadata document and the challenges, by request.

use super::*;

fn resource(public: Option<&str>) -> Resource {
    Resource {
        issuers: vec!["https://id.example.com".to_owned()],
        scopes: vec!["mcp".to_owned()],
        public: public.map(|url| PublicUrl::parse(url).expect("a URL")),
        trusted: TrustedProxies::from_iter(["10.0.0.0/8".parse().expect("a network")]),
        serves_tls: false,
        metadata_url: None,
        checks_certificates: false,
        dpop_algorithms: &[],
        requires_dpop: false,
        name: DisplayName::new("test"),
        endpoints: vec![("files".into(), vec!["files:read".to_owned()])],
    }
}

fn reported(
    resource: &Resource,
    path: &'static str,
    peer: [u8; 4],
    headers: &[(&'static str, &'static str)],
) -> Option<(String, String)> {
    let mut map = HeaderMap::new();
    map.insert(HOST, HeaderValue::from_static("inner:8080"));
    for (name, value) in headers {
        map.insert(*name, HeaderValue::from_static(value));
    }
    let uri = Uri::from_static(path);
    let seen = RequestTarget {
        headers: &map,
        uri: &uri,
        peer: Some(IpAddr::from(peer)),
    };
    let document: serde_json::Value =
        serde_json::from_slice(&resource.document(seen)?).expect("JSON");
    let challenge = resource
        .challenge(seen, &AuthError::Missing, &[])
        .expect("a challenge");
    let challenge = challenge.to_str().expect("ASCII");
    let url = challenge
        .split("resource_metadata=\"")
        .nth(1)
        .expect("a URL");
    Some((
        document["resource"].as_str().expect("a text").to_owned(),
        url.trim_end_matches('"').to_owned(),
    ))
}

/// A request whose client is not known.
fn target<'r>(headers: &'r HeaderMap, uri: &'r Uri) -> RequestTarget<'r> {
    RequestTarget {
        headers,
        uri,
        peer: None,
    }
}

#[test]
fn auth_01_the_document_is_at_both_places_and_names_the_endpoint() {
    const PLAIN: [u8; 4] = [192, 0, 2, 1];
    const PROXY: [u8; 4] = [10, 0, 0, 1];
    let root = "/.well-known/oauth-protected-resource";
    let inner = "/.well-known/oauth-protected-resource/mcp";
    let deep = "/.well-known/oauth-protected-resource/tools/mcp";
    let public = resource(Some("https://mcp.example.com"));
    let prefixed = resource(Some("https://example.com/tools/"));
    let endpoint = resource(Some("https://EXAMPLE.com:443/tools/mcp"));
    let derived = resource(None);
    let https = [
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "mcp.example.com"),
    ];
    let forwarded = [(
        "forwarded",
        "for=1.2.3.4;proto=https;host=\"mcp.example.com\", for=x",
    )];
    let with_prefix = [
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "example.com"),
        ("x-forwarded-prefix", "/tools"),
    ];
    // The origin, and what is in front of the endpoint.
    let (own, below) = (
        ("https://mcp.example.com", ""),
        ("https://example.com", "/tools"),
    );
    let inside = ("http://inner:8080", "");
    for (resource, path, peer, headers, expected) in [
        (&public, root, PLAIN, &[][..], Some(own)),
        (&public, inner, PLAIN, &https, Some(own)),
        (&public, deep, PLAIN, &[], None),
        (&prefixed, root, PLAIN, &[], Some(below)),
        (&prefixed, deep, PLAIN, &[], Some(below)),
        (&endpoint, deep, PLAIN, &[], Some(below)),
        (&derived, root, PLAIN, &[], Some(inside)),
        // Only proxies that are trusted may say otherwise.
        (&derived, root, PLAIN, &https, Some(inside)),
        (&derived, inner, PROXY, &https, Some(own)),
        (&derived, inner, PROXY, &forwarded, Some(own)),
        (&derived, inner, PROXY, &with_prefix, Some(below)),
    ] {
        let expected = expected.map(|(origin, prefix)| {
            let document = format!("{origin}/.well-known/oauth-protected-resource{prefix}/mcp");
            (format!("{origin}{prefix}/mcp"), document)
        });
        let found = reported(resource, path, peer, headers);
        assert_eq!(found, expected, "{path} {headers:?}");
    }
}

#[test]
fn auth_01_the_scheme_is_that_of_the_listener_unless_a_trusted_proxy_names_one() {
    let tls = Resource {
        serves_tls: true,
        ..resource(None)
    };
    let path = "/.well-known/oauth-protected-resource";
    let (plain, proxy) = ([192, 0, 2, 1], [10, 0, 0, 1]);
    let http = [("x-forwarded-proto", "http")];
    for (peer, headers, scheme) in [
        (plain, &[][..], "https"),
        (plain, &http, "https"),
        (proxy, &[], "https"),
        (proxy, &http, "http"),
    ] {
        let expected = Some((
            format!("{scheme}://inner:8080/mcp"),
            format!("{scheme}://inner:8080{path}/mcp"),
        ));
        assert_eq!(reported(&tls, path, peer, headers), expected);
    }
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("inner:8080"));
    let uri = Uri::from_static("/mcp?a");
    let url = tls.url_of(target(&headers, &uri));
    assert_eq!(url.as_deref(), Some("https://inner:8080/mcp"), "DPoP");
}

#[test]
fn auth_01_each_endpoint_has_a_document_of_its_own() {
    let public = resource(Some("https://example.com/tools"));
    for (path, resource, metadata) in [
        (
            "/.well-known/oauth-protected-resource/mcp/files",
            "https://example.com/tools/mcp/files",
            "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
        ),
        (
            "/.well-known/oauth-protected-resource/tools/mcp/files/",
            "https://example.com/tools/mcp/files",
            "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
        ),
    ] {
        let found = reported(&public, path, [192, 0, 2, 1], &[]);
        assert_eq!(found, Some((resource.to_owned(), metadata.to_owned())));
    }
    let unknown = "/.well-known/oauth-protected-resource/mcp/other";
    assert_eq!(reported(&public, unknown, [192, 0, 2, 1], &[]), None);
    for path in ["/mcp/files", "/tools/mcp/files"] {
        let (headers, uri) = (HeaderMap::new(), Uri::from_static(path));
        let seen = target(&headers, &uri);
        let challenge = public.challenge(seen, &AuthError::Missing, &[]);
        assert_eq!(
            challenge.expect("a challenge"),
            "Bearer scope=\"mcp files:read\", \
             resource_metadata=\"https://example.com/.well-known/oauth-protected-resource/tools/mcp/files\""
        );
    }
}

#[test]
fn what_is_no_url_of_a_server_is_none() {
    for text in [
        "mcp.example.com",
        "ftp://a",
        "https://a?b",
        "https://a#b",
        "https://u@a",
        "https://u:80@a:80",
        "https://a:65536",
        "https://a:x",
        "https://a\"b",
        "https://a/b\"c",
        "https://a/b\\c",
        "https://a/../b",
        "https://[::x]",
        "https://a b",
        "https://",
        "",
    ] {
        assert_eq!(PublicUrl::parse(text), None, "{text}");
    }
}

#[test]
fn urls_of_a_server_that_differ_in_writing_are_one() {
    for (text, expected) in [
        ("HTTP://A.example:80/", "http://a.example/mcp"),
        ("https://a.example:443/mcp", "https://a.example/mcp"),
        (
            "https://a.example:8443/x/mcp/",
            "https://a.example:8443/x/mcp",
        ),
        ("http://[0:0::1]:3000", "http://[::1]:3000/mcp"),
        ("http://127.0.0.1:", "http://127.0.0.1/mcp"),
    ] {
        let url = PublicUrl::parse(text).map(|url| url.endpoint());
        assert_eq!(url.as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn auth_09_a_challenge_names_every_scope_and_quotes_nothing_that_ends_it() {
    let resource = resource(Some("https://a.example"));
    let (headers, uri) = (HeaderMap::new(), Uri::from_static("/mcp"));
    let seen = target(&headers, &uri);
    let reported = |error: &AuthError| {
        let value = resource.challenge(seen, error, &[]).expect("a challenge");
        value.to_str().expect("ASCII").to_owned()
    };
    let required = resource.with_scopes(&["files:read", "mcp", "files:write"].map(str::to_owned));
    assert_eq!(
        reported(&AuthError::InsufficientScope { required }),
        "Bearer error=\"insufficient_scope\", error_description=\"the credential lacks a scope that is needed: mcp files:read files:write\", \
         scope=\"mcp files:read files:write\", resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\""
    );
    assert_eq!(
        reported(&AuthError::Invalid("a \"b\" \\ \u{e9} c".into())),
        "Bearer error=\"invalid_token\", error_description=\"a b   c\", scope=\"mcp\", \
         resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\""
    );
    assert_eq!(
        resource.challenge(seen, &AuthError::Unavailable("x".into()), &[]),
        None
    );
}

#[test]
fn auth_09_a_challenge_at_an_endpoint_names_its_scopes_too() {
    let resource = resource(Some("https://a.example"));
    let (headers, uri) = (HeaderMap::new(), Uri::from_static("/mcp/files"));
    let seen = target(&headers, &uri);
    let needed = ["files:write".to_owned()];
    let required = resource.required_at(seen, &needed);
    assert_eq!(required, ["mcp", "files:read", "files:write"]);
    let error = AuthError::InsufficientScope { required };
    let challenge = resource.challenge(seen, &error, &needed);
    let challenge = challenge.expect("a challenge");
    let challenge = challenge.to_str().expect("ASCII");
    assert!(challenge.contains(r#"needed: mcp files:read files:write""#));
    assert!(challenge.contains(r#"scope="mcp files:read files:write""#));
}
