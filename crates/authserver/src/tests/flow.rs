//! A client and a browser that go through a login step by step.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use url::Url;

use super::provider::FakeProvider;
use crate::auth::{
    AuthConfig, Authentication, Credentials, DisplayName, DpopVerifier, FacadeConfig, OAuthConfig,
    Principal, ServerFacts,
};
use crate::net::TrustedProxies;
use crate::seal::{KeyRing, SealConfig, SignedNonces};
use crate::state::{Memory, SharedState, State};
use crate::{AuthorizationServer, Parts};
use longshore_net::environment::unix_seconds;

pub(super) const CLIENT_REDIRECT: &str = "http://127.0.0.1:33418/callback";
pub(super) const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A server with its provider.
pub(super) struct Flow {
    pub(super) server: AuthorizationServer,
    pub(super) provider: FakeProvider,
    config: FacadeConfig,
    ring: Arc<KeyRing>,
    state: SharedState,
}

/// A consent page, as a browser has it.
pub(super) struct Page {
    pub(super) status: StatusCode,
    pub(super) html: String,
    pub(super) cookie: String,
    pub(super) headers: HeaderMap,
}

impl Page {
    /// The sealed form field.
    pub(super) fn form(&self) -> &str {
        let (_, rest) = self.html.split_once("name=form value=\"").expect("a form");
        rest.split('"').next().expect("a value")
    }
}

impl Flow {
    pub(super) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// A server that requires its nonces in DPoP proofs.
    pub(super) async fn with_nonces() -> Self {
        let mut flow = Self::start().await;
        let nonces = Arc::new(SignedNonces::new(Arc::clone(&flow.ring)));
        flow.server.dpop = DpopVerifier::new(flow.state.clone(), Some(nonces));
        flow
    }

    /// Memory that the entries of the shared state take, in bytes.
    pub(super) fn state_bytes(&self) -> usize {
        self.state.usage().iter().map(|usage| usage.bytes).sum()
    }

    pub(super) async fn with(change: impl FnOnce(&mut FacadeConfig)) -> Self {
        Self::of(Arc::new(Memory::new(1024 * 1024)), change).await
    }

    /// A server with another store.
    pub(super) async fn on(store: Arc<dyn State>) -> Self {
        Self::of(store, |_| {}).await
    }

    async fn of(store: Arc<dyn State>, change: impl FnOnce(&mut FacadeConfig)) -> Self {
        let provider = FakeProvider::start().await;
        let mut config = FacadeConfig {
            provider: Some(provider.issuer.clone()),
            client_id: Some("our-id".to_owned()),
            client_secret: Some("our-secret".to_owned().into()),
            scopes: vec!["files:read".to_owned()],
            ..FacadeConfig::default()
        };
        change(&mut config);
        let keys = vec!["k".repeat(32).into()];
        let ring = Arc::new(KeyRing::new(&SealConfig { keys }).expect("a key"));
        let state = SharedState::new(store, Duration::from_secs(1));
        Self {
            server: server(&config, &ring, &state),
            provider,
            config,
            ring,
            state,
        }
    }

    /// Another replica: the same keys and the same state.
    pub(super) fn replica(&self) -> Self {
        Self {
            server: server(&self.config, &self.ring, &self.state),
            provider: self.provider.clone(),
            config: self.config.clone(),
            ring: Arc::clone(&self.ring),
            state: self.state.clone(),
        }
    }

    pub(super) async fn send(&self, request: Request<Bytes>) -> (StatusCode, HeaderMap, String) {
        self.send_after(0, request).await
    }

    /// Sends a request to a server whose clock is so many seconds ahead.
    pub(super) async fn send_after(
        &self,
        seconds: u64,
        request: Request<Bytes>,
    ) -> (StatusCode, HeaderMap, String) {
        let path = request.uri().path().to_owned();
        let now = unix_seconds() + seconds;
        let response = self.server.respond_at(&path, request, now).await;
        let (head, body) = response.into_parts();
        #[expect(
            clippy::disallowed_methods,
            reason = "the body is that of this test's server"
        )]
        let body = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(body.to_vec()).expect("UTF-8");
        (head.status, head.headers, text)
    }

    pub(super) async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Bytes::new()).expect("a request");
        let (status, _, text) = self.send(request).await;
        (status, text)
    }

    pub(super) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> (StatusCode, Value) {
        let (status, _, text) = self.send(form(path, fields, None)).await;
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub(super) async fn register(&self) -> String {
        self.register_at("http://127.0.0.1/callback").await
    }

    pub(super) async fn register_at(&self, redirect_uri: &str) -> String {
        let body = json!({"client_name": "Editor", "redirect_uris": [redirect_uri]});
        let request = Request::post("/register").body(Bytes::from(body.to_string()));
        let (status, _, text) = self.send(request.expect("a request")).await;
        assert_eq!(status, StatusCode::CREATED, "{text}");
        let registered: Value = serde_json::from_str(&text).expect("JSON");
        registered["client_id"].as_str().expect("an id").to_owned()
    }

    /// Requests authorization; `changed` replaces parameters, and removes those with an empty value.
    pub(super) async fn authorize(&self, client: &str, changed: &[(&str, &str)]) -> Page {
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", CLIENT_REDIRECT),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("state", "client-state"),
            ("resource", "https://mcp.example.com/mcp"),
        ];
        for (name, value) in changed {
            fields.retain(|(known, _)| known != name);
            if !value.is_empty() {
                fields.push((name, value));
            }
        }
        let query = encoded(&fields);
        let request = Request::get(format!("/authorize?{query}")).body(Bytes::new());
        let (status, headers, html) = self.send(request.expect("a request")).await;
        let cookie = headers
            .get(SET_COOKIE)
            .map(|value| value.to_str().expect("ASCII"));
        let cookie = cookie
            .and_then(|cookie| cookie.split(';').next())
            .unwrap_or_default();
        Page {
            status,
            cookie: cookie.to_owned(),
            html,
            headers,
        }
    }

    /// Presses a button of the consent page; returns where the browser is sent.
    pub(super) async fn decide(&self, page: &Page, decision: &str) -> Url {
        let fields = [("form", page.form()), ("decision", decision)];
        let request = form("/oauth/consent", &fields, Some(&page.cookie));
        let (status, headers, text) = self.send(request).await;
        assert_eq!(status, StatusCode::SEE_OTHER, "{text}");
        location(&headers)
    }

    /// Logs in at the provider, and returns from there to the client.
    pub(super) async fn come_back(
        &self,
        page: &Page,
        provider: &Url,
        changed: &[(&str, &str)],
    ) -> Url {
        let (status, headers, text) = self.callback(page, provider, changed).await;
        assert_eq!(status, StatusCode::SEE_OTHER, "{text}");
        location(&headers)
    }

    /// Goes through a login whose ID token has other claims, and returns to the client.
    pub(super) async fn come_back_as(&self, client: &str, changed: Value) -> Url {
        let page = self.authorize(client, &[]).await;
        let provider = self.decide(&page, "allow").await;
        let nonce = query(&provider, "nonce").expect("a nonce");
        self.provider.next(&nonce, changed);
        let (status, headers, text) = self.callback_as_prepared(&page, &provider, &[]).await;
        assert_eq!(status, StatusCode::SEE_OTHER, "{text}");
        location(&headers)
    }

    pub(super) async fn callback(
        &self,
        page: &Page,
        provider: &Url,
        changed: &[(&str, &str)],
    ) -> (StatusCode, HeaderMap, String) {
        let nonce = query(provider, "nonce").expect("a nonce");
        self.provider.next(&nonce, json!({}));
        self.callback_as_prepared(page, provider, changed).await
    }

    /// Calls the callback with the ID token that the test has prepared at the provider.
    pub(super) async fn callback_as_prepared(
        &self,
        page: &Page,
        provider: &Url,
        changed: &[(&str, &str)],
    ) -> (StatusCode, HeaderMap, String) {
        let state = query(provider, "state").expect("a state");
        let mut fields = vec![
            ("code", "provider-code"),
            ("state", &state),
            ("iss", &self.provider.issuer),
        ];
        for (name, value) in changed {
            fields.retain(|(known, _)| known != name);
            if !value.is_empty() {
                fields.push((name, value));
            }
        }
        let request = Request::get(format!("/oauth/callback?{}", encoded(&fields)))
            .header(COOKIE, &page.cookie)
            .body(Bytes::new());
        self.send(request.expect("a request")).await
    }

    /// A whole login; returns the code.
    pub(super) async fn log_in(&self, client: &str) -> String {
        self.log_in_for(client, "").await
    }

    /// A login that requests scopes.
    pub(super) async fn log_in_for(&self, client: &str, scope: &str) -> String {
        let page = self.authorize(client, &[("scope", scope)]).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.html);
        let provider = self.decide(&page, "allow").await;
        assert!(provider.as_str().starts_with(&self.provider.issuer));
        let back = self.come_back(&page, &provider, &[]).await;
        assert_eq!(query(&back, "state").as_deref(), Some("client-state"));
        query(&back, "code").unwrap_or_else(|| panic!("no code: {back}"))
    }

    /// A client that has logged in, and its tokens.
    pub(super) async fn log_in_and_redeem(&self) -> (String, Value) {
        let client = self.register().await;
        let code = self.log_in(&client).await;
        let tokens = self.redeem(&client, &code, VERIFIER).await;
        (client, tokens.expect("tokens"))
    }

    pub(super) async fn redeem(
        &self,
        client: &str,
        code: &str,
        verifier: &str,
    ) -> Result<Value, Value> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("client_id", client),
            ("redirect_uri", CLIENT_REDIRECT),
            ("code_verifier", verifier),
        ];
        self.token(&fields).await
    }

    pub(super) async fn refresh(&self, client: &str, token: &Value) -> Result<Value, Value> {
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", token.as_str().expect("a token")),
            ("client_id", client),
        ];
        self.token(&fields).await
    }

    pub(super) async fn token(&self, fields: &[(&str, &str)]) -> Result<Value, Value> {
        match self.post("/token", fields).await {
            (StatusCode::OK, value) => Ok(value),
            (_, value) => Err(value),
        }
    }

    /// Claims of an access token, not verified.
    pub(super) fn claims_of(&self, token: &Value) -> Value {
        use base64::Engine as _;
        let part = token
            .as_str()
            .expect("a token")
            .split('.')
            .nth(1)
            .expect("claims");
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        serde_json::from_slice(&engine.decode(part).expect("base64")).expect("JSON")
    }

    /// The caller that a token proves at the MCP endpoint.
    pub(super) async fn principal_of(&self, token: &Value) -> Option<Arc<Principal>> {
        let config = AuthConfig {
            oauth: OAuthConfig {
                facade: self.config.clone(),
                ..OAuthConfig::default()
            },
            ..AuthConfig::default()
        };
        let place = ServerFacts {
            name: "test",
            public_url: Some("https://mcp.example.com/mcp"),
            trusted: &TrustedProxies::default(),
            endpoints: &[],
            serves_tls: false,
            asks_for_certificates: false,
        };
        let authentication = Authentication::new(&config, place, Vec::new()).expect("valid");
        authentication.hold(self.server.public_keys());
        let mut headers = HeaderMap::new();
        let bearer = format!("Bearer {}", token.as_str().expect("a token"));
        headers.insert(AUTHORIZATION, bearer.parse().expect("ASCII"));
        let shown = Credentials::read(&headers, None, None, unix_seconds());
        authentication.gate.admit_at(shown, None, None).await.ok()
    }
}

fn server(config: &FacadeConfig, ring: &Arc<KeyRing>, state: &SharedState) -> AuthorizationServer {
    AuthorizationServer::new(Parts {
        config: config.clone(),
        issuer: "https://mcp.example.com".to_owned(),
        name: DisplayName::new("Tools"),
        resources: vec![
            "https://mcp.example.com/mcp".to_owned(),
            "https://mcp.example.com/mcp/small".to_owned(),
        ],
        scopes: Vec::new(),
        ring: Arc::clone(ring),
        state: state.clone(),
        metrics: crate::telemetry::Metrics::default(),
        dpop: DpopVerifier::new(state.clone(), None),
        requires_dpop: false,
    })
    .expect("valid settings")
}

pub(super) fn form(path: &str, fields: &[(&str, &str)], cookie: Option<&str>) -> Request<Bytes> {
    encoded_form(path, encoded(fields), cookie)
}

pub(super) fn encoded_form(path: &str, body: String, cookie: Option<&str>) -> Request<Bytes> {
    let mut request = Request::post(path.parse::<Uri>().expect("a path"))
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some(cookie) = cookie {
        request = request.header(COOKIE, cookie);
    }
    request.body(Bytes::from(body)).expect("a request")
}

pub(super) fn encoded(fields: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    form.finish()
}

pub(super) fn query(url: &Url, name: &str) -> Option<String> {
    let found = url.query_pairs().find(|(known, _)| known == name);
    found.map(|(_, value)| value.into_owned())
}

fn location(headers: &HeaderMap) -> Url {
    let value = headers.get(LOCATION).expect("a redirect");
    value.to_str().expect("ASCII").parse().expect("a URL")
}
