//! Tokens under several settings: endpoints, the own authorization server, implied scopes, introspection.

use super::*;
use crate::auth::AuthError;

const OWN: &str = "https://mcp.example.com";

fn facade(config: &mut OAuthConfig) {
    config.facade = FacadeConfig {
        provider: Some("https://provider.example.com".to_owned()),
        client_id: Some("id".to_owned()),
        client_secret: Some("secret".to_owned().into()),
        ..FacadeConfig::default()
    };
}

fn endpoint(name: &str, configured: &[&str]) -> EndpointAudiences {
    EndpointAudiences {
        name: name.into(),
        configured: configured.iter().map(ToString::to_string).collect(),
        derived: vec![format!("{RESOURCE}/{name}"), format!("{RESOURCE}/{name}/")],
    }
}

/// Endpoints that a token is valid for; `-` is `/mcp`.
fn valid_for(tokens: &Tokens, token: &str) -> String {
    let AuthOutcome::Proven(principal) = judged(tokens, token) else {
        return String::new();
    };
    let all = ["", "files", "orders"].into_iter();
    let all = all.filter(|endpoint| principal.is_for(endpoint));
    let all: Vec<_> = all
        .map(|name| if name.is_empty() { "-" } else { name })
        .collect();
    all.join(" ")
}

/// No other issuer exchanges them, so none may see them.
#[test]
fn tokens_of_the_own_server_are_not_kept_for_an_exchange() {
    let signer = Signer::ed25519("1");
    let tokens = tokens(facade);
    tokens.keep_tokens();
    for issuer in &tokens.0.issuers {
        issuer.hold(&set_of(&[&signer]));
    }
    let kept = |issuer: &str| {
        let mut claims = claims();
        claims["iss"] = issuer.into();
        let principal = principal(judged(&tokens, &signer.token(&claims)));
        principal.access_token().is_some()
    };
    assert!(kept(ISSUER));
    assert!(!kept(OWN));
}

/// RFC 8707: a token is for the resource that its audience names.
#[test]
fn auth_05_the_own_server_issues_tokens_for_one_endpoint_whatever_audience_others_have() {
    for (audience, of_issuer) in [("", ""), ("api://x", ""), ("", "api://x")] {
        let signer = Signer::ed25519("1");
        let tokens = tokens(|config| {
            facade(config);
            let set = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            config.audience.extend(set(audience));
            config.issuer = None;
            config.issuers = vec![IssuerConfig {
                issuer: ISSUER.to_owned(),
                audience: set(of_issuer).into_iter().collect(),
                ..IssuerConfig::default()
            }];
        });
        let tokens =
            tokens.with_endpoints(vec![endpoint("files", &[]), endpoint("orders", &["urn:o"])]);
        for issuer in &tokens.0.issuers {
            issuer.hold(&set_of(&[&signer]));
        }
        let token = |issuer: &str, audience: &str| {
            let mut claims = claims();
            claims["iss"] = issuer.into();
            claims["aud"] = audience.into();
            valid_for(&tokens, &signer.token(&claims))
        };
        let at = |name: &str| format!("{RESOURCE}/{name}");
        assert_eq!(token(OWN, RESOURCE), "-");
        assert_eq!(token(OWN, &at("files")), "files");
        assert_eq!(token(OWN, &at("files/")), "files");
        assert_eq!(token(OWN, &at("orders")), "orders");
        assert_eq!(token(OWN, "api://x"), "");
        assert_eq!(token(OWN, "urn:o"), "");
        // An issuer with an audience of its own does not tell endpoints apart.
        let named = !(audience.is_empty() && of_issuer.is_empty());
        let expected = if named { "- files" } else { "" };
        assert_eq!(token(ISSUER, "api://x"), expected);
        let expected = if named { "" } else { "files" };
        assert_eq!(token(ISSUER, &at("files")), expected);
        assert_eq!(token(ISSUER, "urn:o"), "orders");
    }
}

#[test]
fn names_of_users_of_the_own_server_have_its_host_and_path_and_no_issuer_has_the_same() {
    let with = |public: &str, issuer: &str| {
        let mut config = OAuthConfig {
            issuer: Some(issuer.to_owned()),
            ..OAuthConfig::default()
        };
        facade(&mut config);
        Tokens::new(&config, &Implied::default(), Some(public))
    };
    let tokens = with(
        "https://example.com:8443/tools/mcp",
        "https://example.com:8443",
    );
    let tokens = tokens.expect("two names");
    let names: Vec<_> = tokens
        .0
        .issuers
        .iter()
        .map(|issuer| &*issuer.name)
        .collect();
    assert_eq!(names, ["example.com:8443/tools", "example.com:8443"]);
    let same = with("https://example.com/mcp", "https://example.com/");
    assert!(
        matches!(same, Err(OAuthSetupError::Twice { .. })),
        "{same:?}"
    );
}

#[test]
fn a_name_or_key_url_of_an_issuer_that_cannot_be_used_is_told_with_its_setting() {
    let problem = |issuer: serde_json::Value| {
        let mut issuer = issuer;
        issuer["issuer"] = "https://b.example".into();
        let config = serde_json::json!({"issuer": "https://a.example", "issuers": [issuer]});
        let config: OAuthConfig = serde_json::from_value(config).expect("sound");
        let tokens = Tokens::new(&config, &Implied::default(), Some("https://c.example/mcp"));
        tokens.err().map(|error| error.to_string())
    };
    for name in ["a#b", "a.example"] {
        let said = problem(serde_json::json!({ "name": name }));
        let expected = format!(
            "auth.oauth.issuers[0].name is {name:?}; write a name without # that no other issuer has"
        );
        assert_eq!(said, Some(expected));
    }
    let said = problem(serde_json::json!({"jwks_url": "http://b.example"})).expect("not https");
    assert!(
        said.starts_with("auth.oauth.issuers[0].jwks_url is "),
        "{said}"
    );
    assert_eq!(problem(serde_json::json!({"name": "b"})), None);
}

#[test]
fn auth_10_changed_implied_scopes_hold_for_tokens_that_were_verified_before() {
    let signer = Signer::ed25519("1");
    let changes = Epoch::default();
    let tokens = tokens(|_| {}).noting(&changes);
    tokens.0.issuers[0].hold(&set_of(&[&signer]));
    let token = signer.token(&claims());
    let has = |scope: &str| principal(judged(&tokens, &token)).has_scope(scope);
    assert!(has("mcp") && !has("files:write"));
    let before = changes.count();
    let implied = |list: &[&str]| {
        let list = list.iter().map(ToString::to_string).collect();
        BTreeMap::from([("mcp".to_owned(), list)])
    };
    tokens.set_implied_scopes(&implied(&["files:write"]));
    assert!(has("files:write"));
    assert_eq!(
        changes.count(),
        before + 1,
        "connections forget what they remember"
    );
    tokens.set_implied_scopes(&implied(&["files:write"]));
    assert_eq!(changes.count(), before + 1, "nothing has changed");
    tokens.set_implied_scopes(&implied(&[]));
    assert!(!has("files:write"));
}

/// RFC 7662: the issuer judges its tokens, whatever form they have.
#[test]
fn tokens_that_only_the_issuer_can_read_are_introspected_whatever_they_look_like() {
    let signer = Signer::ed25519("1");
    let tokens = tokens(|config| {
        config.introspection = IntrospectionConfig {
            url: Some("https://id.example.com/introspect".to_owned()),
            client_id: "id".to_owned(),
            client_secret: Some("secret".to_owned().into()),
            ..IntrospectionConfig::default()
        };
    });
    let mut foreign = claims();
    foreign["iss"] = "https://other.example.com".into();
    let mut unnamed = claims();
    unnamed.as_object_mut().expect("an object").remove("iss");
    let own = claims().to_string();
    let introspected = Some("later");
    for (token, expected) in [
        ("opaque".to_owned(), introspected),
        ("opaque.with.dots".to_owned(), introspected),
        (signer.token(&claims()), introspected),
        (signer.token_of(r#"{"alg":"HS512"}"#, &own), introspected),
        (
            signer.token_of(r#"{"alg":"ES512","typ":"x"}"#, &own),
            introspected,
        ),
        (signer.token_of("no header", &own), introspected),
        (signer.token(&unnamed), introspected),
        (
            signer.token(&foreign),
            Some("the token is of another issuer"),
        ),
        ("lsk_a.b.c".to_owned(), Some("the token is malformed")),
        ("lsk_abc".to_owned(), Some("absent")),
    ] {
        assert_eq!(
            fault(judged(&tokens, &token)).as_deref(),
            expected,
            "{token}"
        );
    }
    let long = "a".repeat(token::TOKEN_MAX_BYTES + 1);
    assert!(matches!(
        judged(&tokens, &long),
        AuthOutcome::Absent | AuthOutcome::Refused(AuthError::TooLong(_))
    ));
}

#[test]
fn an_error_in_a_url_does_not_repeat_its_password() {
    for text in [
        "https://me:pa55word@id.example.com",
        "https://me:pa55/word@id.example.com/x@y",
        "https://pa55word@id.example.com",
        "me:pa55word@id.example.com",
    ] {
        let issuer = issuer_url("auth.oauth.issuer", text).expect_err(text);
        let keys = url("auth.oauth.jwks_url", text).expect_err(text);
        for error in [issuer, keys] {
            let error = format!("{error} {error:?}");
            assert!(
                !error.contains("pa55") && !error.contains("word@"),
                "{error}"
            );
        }
    }
    let wrong = "http://id.example.com/a?b";
    let error = issuer_url("auth.oauth.issuer", wrong).expect_err("http");
    assert!(error.to_string().contains(wrong), "{error}");
}
