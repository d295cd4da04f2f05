//! TLS in the process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore::auth::CertificateName;
use longshore::{CallContext, Config, tool};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::auth::{CI, bearer, with_keys};
use crate::support::{self, Running, Serve, Site, Stateless, Told, longshore, tls_file};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

fn server(asks_clients: bool) -> Running {
    server_with(asks_clients, |_| {})
}

fn server_with(asks_clients: bool, change: impl FnOnce(&mut Config)) -> Running {
    Serve::new()
        .tool(echo)
        .tls()
        .configured(|c| {
            c.http.tls.client_ca = asks_clients.then(|| tls_file("ca.crt"));
        })
        .configured(change)
        .start()
}

/// A client that trusts the authority, and shows a certificate or none.
fn client(shows: bool, protocol: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(tls_file("ca.crt")).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = if shows {
        let certificate =
            CertificateDer::from_pem_file(tls_file("client.crt")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(tls_file("client.key")).expect("a key");
        builder
            .with_client_auth_cert(vec![certificate], key)
            .expect("a pair")
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

/// Calls a tool over HTTP/1.1, and returns the whole response.
fn call(server: &Running, shows: bool) -> std::io::Result<String> {
    let text = Stateless::call("echo", json!({"message": "in private"}))
        .and("connection", "close")
        .text();
    exchange(server, shows, &text)
}

/// A request over HTTP/1.1, and everything that comes back.
fn exchange(server: &Running, shows: bool, text: &str) -> std::io::Result<String> {
    exchange_by(&client(shows, "http/1.1"), server, text).map(|(answer, _)| answer)
}

/// Calls with a client that may resume TLS sessions. Returns the kind of handshake too.
fn exchange_by(
    config: &Arc<ClientConfig>,
    server: &Running,
    text: &str,
) -> std::io::Result<(String, HandshakeKind)> {
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let socket = TcpStream::connect(server.address())?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(session, socket);
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let kind = stream.conn.handshake_kind().expect("shakes hands");
    Ok((answer, kind))
}

#[test]
fn calls_are_answered_over_tls() {
    let server = server(false);
    let answer = call(&server, false).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("in private"), "{answer}");
}

#[test]
fn sessions_with_client_certificates_are_not_resumed() {
    for (asks, second) in [(false, HandshakeKind::Resumed), (true, HandshakeKind::Full)] {
        let server = server(asks);
        let config = client(asks, "http/1.1");
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let text = Stateless::call("echo", json!({"message": "in private"}))
                .and("connection", "close")
                .text();
            let (answer, kind) = exchange_by(&config, &server, &text).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            kinds.push(kind);
        }
        assert_eq!(kinds, [HandshakeKind::Full, second], "certificates: {asks}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_agreed_on_in_the_handshake() {
    let server = server(false);
    let stream = tokio::net::TcpStream::connect(server.address())
        .await
        .expect("the server listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = tokio_rustls::TlsConnector::from(client(false, "h2"))
        .connect(name, stream)
        .await
        .expect("shakes hands");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    let text = Stateless::call("echo", json!({"message": "hi"})).text();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let mut request = Request::post("https://localhost/mcp");
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").expect("a field");
        if name != "host" {
            request = request.header(name, value);
        }
    }
    let request = request
        .body(Full::<Bytes>::from(body.to_owned()))
        .expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.into_body().collect().await.expect("a body");
    let body: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
    assert_eq!(body["result"]["content"][0]["text"], "hi");
}

#[test]
fn clients_are_asked_for_a_certificate_where_that_is_configured() {
    let server = server(true);
    let answer = call(&server, true).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(call(&server, false).is_err(), "it showed none");
}

/// Says who calls.
#[tool]
async fn whoami(context: &CallContext) -> String {
    let principal = context.principal();
    let groups: Vec<_> = principal.groups().collect();
    format!("{} {groups:?}", principal.name())
}

/// A server that asks for certificates, and tells who calls.
fn asking(change: impl FnOnce(&mut Config)) -> Running {
    Serve::new()
        .tool(whoami)
        .tls()
        .configured(|c| {
            c.http.tls.client_ca = Some(tls_file("ca.crt"));
        })
        .configured(change)
        .start()
}

/// Returns the caller's name as the server sees it, or the error.
fn who(server: &Running, shows: bool, headers: &[(&str, &str)]) -> String {
    let call = Stateless::call("whoami", json!({})).and("connection", "close");
    let call = headers
        .iter()
        .fold(call, |call, (name, value)| call.and(name, value));
    let answer = exchange(server, shows, &call.text()).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let body: Value = serde_json::from_str(body).expect("JSON");
    match body["result"]["content"][0]["text"].as_str() {
        Some(text) => text.to_owned(),
        None => head[9..12].to_owned(),
    }
}

#[test]
fn a_certificate_proves_its_holder() {
    let server = asking(|c| c.auth.certificate.name = Some(CertificateName::Uri));
    assert_eq!(
        who(&server, true, &[]),
        "cert:spiffe://example.org/client []"
    );
    let server = asking(|c| {
        c.auth.certificate.name = Some(CertificateName::CommonName);
        c.auth.certificate.names = vec!["another client".to_owned()];
    });
    assert_eq!(who(&server, true, &[]), "401");
}

#[test]
fn who_may_go_without_a_certificate_proves_itself_otherwise() {
    let server = asking(|c| {
        c.http.tls.client_optional = true;
        c.auth.certificate.name = Some(CertificateName::CommonName);
        with_keys(c);
    });
    assert_eq!(who(&server, true, &[]), "cert:the test client []");
    assert_eq!(who(&server, false, &[]), "401");
    let key = bearer(CI);
    let key = [("authorization", &*key)];
    assert_eq!(who(&server, false, &key), "key:ci []");
    // A credential in the request takes precedence over the certificate.
    assert_eq!(who(&server, true, &key), "key:ci []");
    assert_eq!(
        who(
            &server,
            true,
            &[("authorization", "Bearer nobody-knows-it")]
        ),
        "401"
    );
}

#[test]
fn a_proxy_with_a_certificate_may_name_the_user_from_wherever_it_is() {
    let server = |names: &str| {
        let names = vec![names.to_owned()];
        asking(|c| {
            c.auth.forwarded.user_header = Some("x-forwarded-user".to_owned());
            c.auth.forwarded.certificates = names;
        })
    };
    let alice = [("x-forwarded-user", "alice")];
    assert_eq!(
        who(&server("uri:spiffe://example.org/*"), true, &alice),
        "user:alice []"
    );
    // The same name of another kind does not match.
    for other in [
        "uri:spiffe://example.org/proxy",
        "dns:spiffe://example.org/*",
        "common_name:spiffe://example.org/*",
        "dns:*.example.invalid",
    ] {
        assert_eq!(who(&server(other), true, &alice), "401", "{other}");
    }
}

#[test]
fn a_name_of_a_proxys_certificate_says_which_kind_it_is() {
    let bind = |name: &str| {
        let mut config = Config::default();
        config.http.port = 0;
        config.http.tls.client_ca = Some("ca.crt".into());
        config.auth.forwarded.user_header = Some("x-user".to_owned());
        config.auth.forwarded.certificates = vec![name.to_owned()];
        let refused = crate::support::bind(longshore::App::new().config(config));
        refused.expect_err("refused").to_string()
    };
    for name in ["spiffe://example.org/*", "proxy.example.com", "uri:"] {
        let said = bind(name);
        assert!(
            said.contains(name) && said.contains("dns:proxy.example.com"),
            "{said}"
        );
    }
}

#[test]
fn certificates_that_nobody_is_asked_for_prove_nothing() {
    let bind = |change: fn(&mut Config)| {
        let mut config = Config::default();
        config.http.port = 0;
        change(&mut config);
        let error =
            crate::support::bind(longshore::App::new().config(config)).expect_err("refused");
        error.to_string()
    };
    for said in [
        bind(|c| c.auth.certificate.name = Some(CertificateName::Subject)),
        bind(|c| {
            c.auth.forwarded.user_header = Some("x-user".to_owned());
            c.auth.forwarded.certificates = vec!["*".to_owned()];
        }),
    ] {
        assert!(said.contains("http.tls.client_ca"), "{said}");
    }
}

#[test]
fn what_is_counted_says_that_clients_speak_tls() {
    let server = asking(|c| c.http.admin.port = Some(0));
    who(&server, true, &[]);
    let metrics = server.admin_page("/metrics").body;
    let line = metrics
        .lines()
        .find(|l| l.starts_with("http_server_request_duration_seconds_count"));
    assert!(
        line.is_some_and(|l| l.contains("url_scheme=\"https\"")),
        "{line:?}"
    );
}

#[test]
fn who_does_not_shake_hands_is_let_go_of() {
    let server = server_with(false, |c| c.http.tls.handshake_seconds = 2);
    let mut silent = server.connect();
    let mut clear = server.connect();
    clear.send(Stateless::call("echo", json!({"message": "in clear"})).text());
    clear.assert_ends();
    silent.assert_closed();
    let answer = call(&server, false).expect("an answer");
    assert!(answer.contains("in private"), "{answer}");
}

#[test]
fn auth_01_without_a_public_url_metadata_and_challenges_name_https() {
    let server = Serve::new()
        .tool(echo)
        .tls()
        .configured(|c| {
            c.auth.oauth.issuer = Some("https://id.example.com".to_owned());
            c.auth.oauth.audience = vec!["api".to_owned()];
            c.auth.oauth.jwks_url = Some("http://127.0.0.1:9/jwks".to_owned());
        })
        .start();
    for (path, url) in [
        (
            "/.well-known/oauth-protected-resource",
            "\"resource\":\"https://localhost:1/mcp\"",
        ),
        (
            "/mcp",
            "resource_metadata=\"https://localhost:1/.well-known/oauth-protected-resource/mcp\"",
        ),
    ] {
        let text = format!("GET {path} HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n");
        let answer = exchange(&server, false, &text).expect("an answer");
        assert!(answer.contains(url), "{answer}");
    }
}

#[test]
fn certificates_that_cannot_be_used_are_told_at_start() {
    let mut config = longshore::Config::default();
    config.http.port = 0;
    config.http.tls.certificate = Some(tls_file("server.crt"));
    let error = crate::support::bind(longshore::App::new().config(config.clone()));
    let error = error.expect_err("half of it").to_string();
    assert!(error.contains("http.tls.key"), "{error}");
    config.http.tls.key = Some(tls_file("client.key"));
    let error = crate::support::bind(longshore::App::new().config(config));
    let error = error.expect_err("another's key").to_string();
    assert!(error.contains("cannot be used together"), "{error}");
}

#[tokio::test]
async fn our_own_client_shows_a_certificate_if_it_has_one() {
    use longshore::net::{Client, ClientError, Guard, OutgoingRequest};

    let server = server(true);
    let url = format!("https://localhost:{}/livez", server.address().port());
    let url: url::Url = url.parse().expect("a URL");
    let pem = |name: &str| std::fs::read(tls_file(name)).expect("there");
    let builder = || {
        let client = Client::builder(Guard::public().trust(&url));
        client.roots(&pem("ca.crt")).expect("an authority")
    };
    let shows = builder()
        .identity(&pem("client.crt"), &pem("client.key"))
        .and_then(longshore::net::ClientBuilder::build)
        .expect("a client");
    let answer = shows.fetch(OutgoingRequest::get(url.clone())).await;
    assert_eq!(answer.expect("an answer").status, StatusCode::OK);
    let bare = builder().build().expect("a client");
    assert!(bare.fetch(OutgoingRequest::get(url.clone())).await.is_err());
    for (certificate, key) in [("client.key", "client.key"), ("client.crt", "client.crt")] {
        let refused = builder().identity(&pem(certificate), &pem(key));
        assert!(
            matches!(
                refused.err(),
                Some(ClientError::NoCertificate | ClientError::NoKey)
            ),
            "{certificate} {key}"
        );
    }
}

#[test]
fn the_health_check_asks_by_tls_where_that_is_what_is_served() {
    for asks_clients in [false, true] {
        let server = server(asks_clients);
        let port = server.address().port().to_string();
        let mut command = longshore(&["healthcheck", "--port", &port], &[]);
        command
            .env("LONGSHORE_HTTP__TLS__CERTIFICATE", tls_file("server.crt"))
            .env("LONGSHORE_HTTP__TLS__KEY", tls_file("server.key"));
        let (code, said) = support::said(&mut command);
        assert_eq!(code, Some(i32::from(asks_clients)), "{said}");
        let expected = match asks_clients {
            false => "\"ready\":true",
            true => "http.admin.port",
        };
        assert!(said.contains(expected), "{said}");
    }
}

/// RFC 8705, section 3.
#[test]
fn a_token_that_is_bound_to_a_certificate_counts_on_a_connection_that_shows_it() {
    /// SHA-256 of `client.crt` in DER.
    const CLIENT: &str = "-BBts-sqCSbuHfAHRd38uiHdj_gYTtHESQp1S8bvvPs";
    let issuer = Site::start(|_, asked| {
        let bound = match asked.field("token").as_deref() {
            Some("bound") => json!({"x5t#S256": CLIENT}),
            Some("of-another") => json!({"x5t#S256": CLIENT.to_ascii_lowercase()}),
            _ => json!({"jkt": "of-a-key"}),
        };
        let members = json!({"active": true, "sub": "42", "aud": "https://mcp.example.com/mcp", "cnf": bound});
        Told::json(200, members)
    });
    let url = issuer.url;
    let server = Serve::new()
        .tool(echo)
        .tls()
        .configured(|c| {
            c.http.tls.client_ca = Some(tls_file("ca.crt"));
            c.http.tls.client_optional = true;
            c.http.public_url = Some("https://mcp.example.com".to_owned());
            c.auth.oauth.issuer = Some(url.clone());
            c.auth.oauth.introspection.url = Some(format!("{url}/introspect"));
            c.auth.oauth.introspection.client_id = "longshore".to_owned();
            c.auth.oauth.introspection.client_secret = Some("secret".to_owned().into());
        })
        .start();
    for (token, shows, status, part) in [
        ("bound", true, "200", "in private"),
        ("bound", false, "401", "bound to a client certificate"),
        (
            "of-another",
            true,
            "401",
            "bound to another client certificate",
        ),
        ("of-a-key", true, "401", "DPoP"),
        // What was said of a token holds for each connection anew.
        ("bound", true, "200", "in private"),
    ] {
        let text = Stateless::call("echo", json!({"message": "in private"}))
            .and("authorization", &bearer(token))
            .and("connection", "close")
            .text();
        let answer = exchange(&server, shows, &text).expect("an answer");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{token}: {answer}"
        );
        assert!(answer.contains(part), "{token}: {answer}");
    }
    let metadata = "GET /.well-known/oauth-protected-resource HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let metadata = exchange(&server, false, metadata).expect("an answer");
    assert!(
        metadata.contains("\"tls_client_certificate_bound_access_tokens\":true"),
        "{metadata}"
    );
}
