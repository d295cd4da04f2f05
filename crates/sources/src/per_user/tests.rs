use super::*;
use crate::seal::KeyRing;
use crate::source::login::LoginError;
use serde_json::json;

fn accounts(recognized: RecognizedUsers) -> Accounts {
    let ring = Arc::new(KeyRing::random());
    Accounts::new(&ring, "https://mcp.example.com".to_owned(), recognized)
}

fn everybody() -> RecognizedUsers {
    RecognizedUsers {
        issuer: Some("https://mcp.example.com".to_owned()),
        keys: true,
        everybody: true,
    }
}

fn fixed() -> serde_json::Value {
    json!({
        "authorize_url": "https://id.example.com/authorize", "token_url": "https://id.example.com/token",
        "client_id": "longshore",
    })
}

fn made(
    config: &serde_json::Value,
    is_mcp: bool,
    accounts: &Accounts,
) -> Result<Arc<UserLogins>, String> {
    let config = serde_json::from_value(config.clone()).expect("settings");
    let server = Url::parse("https://api.example.com/v1").expect("a URL");
    let tokens = Tokens::default();
    UserLogins::new("files", &config, (Some(&server), is_mcp), &tokens, accounts)
}

fn refused(config: &serde_json::Value, is_mcp: bool) -> String {
    made(config, is_mcp, &accounts(everybody())).expect_err("refused")
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let without = |name: &str| {
        let mut changed = fixed();
        changed.as_object_mut().expect("an object").remove(name);
        changed
    };
    let with = |name: &str, value: &str| {
        let mut changed = fixed();
        changed[name] = value.into();
        changed
    };
    for (config, is_mcp, part) in [
        (
            without("token_url"),
            false,
            "only one of authorize_url and token_url",
        ),
        (
            without("client_id"),
            false,
            "per_user.client_id: it is not set",
        ),
        (
            without("client_id"),
            true,
            "per_user.client_id: it is not set",
        ),
        (
            with("issuer", "https://id.example.com"),
            false,
            "per_user.issuer: authorize_url",
        ),
        (
            with("token_url", "nowhere"),
            false,
            "per_user.token_url: \"nowhere\" is not a URL",
        ),
        (
            json!({"client_id": "a"}),
            false,
            "per_user.issuer: it is not set",
        ),
        (
            json!({"client_id": "a", "client_secret": "b"}),
            true,
            "per_user.client_secret: ",
        ),
    ] {
        let problem = refused(&config, is_mcp);
        assert!(problem.contains(part), "{config}: {problem}");
    }
    assert!(made(&json!({}), true, &accounts(everybody())).is_ok());
    let without_url = made(&fixed(), false, &Accounts::default());
    assert!(
        without_url
            .expect_err("refused")
            .contains("http.public_url")
    );
    let nobody = made(&fixed(), false, &accounts(RecognizedUsers::default()));
    assert!(nobody.expect_err("refused").contains("auth.oauth.facade"));
}

#[test]
fn callers_are_asked_who_can_be_recognized_in_a_browser() {
    let keys_only = RecognizedUsers {
        keys: true,
        ..RecognizedUsers::default()
    };
    let all = accounts(everybody());
    let (all_logins, some) = (made(&fixed(), false, &all), accounts(keys_only));
    let (all_logins, some_logins) = (all_logins.expect("made"), made(&fixed(), false, &some));
    let some_logins = some_logins.expect("made");
    assert!(all_logins.invitation_of(&Principal::anonymous()).is_ok());
    assert!(all_logins.invitation_of(&Principal::local()).is_ok());
    for unknown in [
        Principal::anonymous(),
        Principal::local(),
        Principal::new("custom"),
    ] {
        let asked = some_logins.invitation_of(&unknown);
        assert!(matches!(asked, Err(CredentialError::NotRecognized(_))));
    }
}

/// A reload that is rejected drops what it made, and one that removes a source drops its logins.
#[test]
fn logins_are_registered_for_as_long_as_they_are_served() {
    let accounts = accounts(everybody());
    assert!(!accounts.are_any());
    let of = |client: &str| {
        let mut config = fixed();
        config["client_id"] = client.into();
        made(&config, false, &accounts).expect("made")
    };
    let client = || {
        let inner = accounts.0.as_ref().expect("a page");
        let found = inner
            .of("files")
            .map(|logins| logins.config.client_id.clone());
        found.ok().flatten()
    };
    let served = of("one");
    let rejected = of("two");
    drop(rejected);
    assert_eq!(client().as_deref(), Some("one"));
    let next = of("three");
    assert_eq!(client().as_deref(), Some("three"));
    drop(served);
    assert!(accounts.are_any());
    drop(next);
    assert!(!accounts.are_any());
    assert_eq!(client(), None);
}

#[tokio::test]
async fn without_a_configured_issuer_a_response_is_of_the_host_of_the_endpoints() {
    let accounts = accounts(everybody());
    let logins = made(&fixed(), false, &accounts).expect("made");
    let invitation = logins.invitation_of(&Principal::local()).expect("a user");
    let begun = accounts.begin(&invitation, |_| true).await.expect("a page");
    for (iss, is_own) in [
        ("https://id.example.com", true),
        ("https://id.example.com/login/oauth", true),
        ("https://id.example.com:8443/login/oauth", false),
        ("https://evil.example/login/oauth", false),
        ("nobody", false),
    ] {
        // No code: what follows the check of the issuer.
        let response = BTreeMap::from([
            ("state".to_owned(), begun.id.clone()),
            ("iss".to_owned(), iss.to_owned()),
        ]);
        let finished = accounts.finish(&response, Some(&begun.state), unix_seconds());
        let finished = finished.await;
        let expected = match is_own {
            true => LoginError::NoCode,
            false => LoginError::MixedUp,
        };
        let error = finished.expect_err("refused");
        assert_eq!(error.to_string(), expected.to_string(), "{iss}");
    }
}

#[test]
fn problems_on_the_page_name_settings_and_no_options_of_a_command() {
    let redirect = "https://mcp.example.com/connect/callback".to_owned();
    for error in [
        LoginError::NoMetadata,
        LoginError::NoOAuth,
        LoginError::NoIssuer("https://id.example.com".to_owned()),
        LoginError::NoClient { redirect },
    ] {
        let text = AccountError::Login(error).to_string();
        assert!(text.contains("auth.per_user"), "{text}");
        assert!(
            !text.contains("--") && !text.contains("LONGSHORE"),
            "{text}"
        );
    }
}

#[test]
fn a_link_opens_until_it_expires_and_at_its_server_only() {
    let accounts = accounts(everybody());
    let logins = made(&fixed(), false, &accounts).expect("made");
    let invitation = logins.invitation_of(&Principal::local()).expect("a user");
    let needed = logins.needed(&invitation);
    let link = needed
        .url
        .strip_prefix("https://mcp.example.com/connect?link=");
    let link = link.expect("a link");
    let now = unix_seconds();
    assert_eq!(accounts.invitation(link, now), Some(invitation));
    assert_eq!(
        accounts.invitation(link, now + INVITATION_SECONDS + 1),
        None
    );
    assert_eq!(accounts.invitation(&link[1..], now), None);
    let other = self::accounts(everybody());
    assert_eq!(other.invitation(link, now), None, "other keys");
}

#[tokio::test]
async fn a_state_is_not_a_link_and_a_link_not_a_state() {
    let accounts = accounts(everybody());
    let logins = made(&fixed(), false, &accounts).expect("made");
    let invitation = logins.invitation_of(&Principal::local()).expect("a user");
    let begun = accounts.begin(&invitation, |_| true).await.expect("a page");
    let id = begun.page.query_pairs().find(|(name, _)| name == "state");
    // Issuers limit its length, some to 500 bytes.
    assert_eq!(id.expect("a state").1, begun.id);
    assert_eq!(begun.id.len(), 43);
    let other = accounts.begin(&invitation, |_| true).await.expect("a page");
    let now = unix_seconds();
    assert_eq!(accounts.invitation(&begun.state, now), None);
    let needed = logins.needed(&invitation);
    let link = needed.url.rsplit('=').next().expect("a link").to_owned();
    for (state, now, expected) in [
        (Some(&link), now, AccountError::Expired),
        (None, now, AccountError::OtherBrowser),
        (Some(&other.state), now, AccountError::OtherBrowser),
        (Some(&begun.state), begun.expires, AccountError::Expired),
    ] {
        let response = BTreeMap::from([
            ("state".to_owned(), begun.id.clone()),
            ("code".to_owned(), "a".to_owned()),
        ]);
        let state = state.map(String::as_str);
        let finished = accounts.finish(&response, state, now).await;
        assert_eq!(
            finished.expect_err("refused").to_string(),
            expected.to_string()
        );
    }
}
