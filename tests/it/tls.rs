//! TLS in the process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore::tool;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::support::{Running, Serve, Stateless};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// A file of `tests/it/tls`.
fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls")).join(name)
}

fn server(asks_clients: bool) -> Running {
    Serve::new()
        .tool(echo)
        .configured(|c| {
            c.http.tls.certificate = Some(file("server.crt"));
            c.http.tls.key = Some(file("server.key"));
            c.http.tls.client_authorities = asks_clients.then(|| file("ca.crt"));
            c.http.tls.handshake_seconds = 1;
        })
        .start()
}

/// A client that trusts the authority, and shows a certificate or none.
fn client(shows: bool, protocol: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(file("ca.crt")).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = if shows {
        let certificate = CertificateDer::from_pem_file(file("client.crt")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(file("client.key")).expect("a key");
        builder
            .with_client_auth_cert(vec![certificate], key)
            .expect("a pair")
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

/// One call over HTTP/1.1, and everything that comes back.
fn call(server: &Running, shows: bool) -> std::io::Result<String> {
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(client(shows, "http/1.1"), name).expect("a client");
    let socket = TcpStream::connect(server.address())?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
    let mut stream = StreamOwned::new(session, socket);
    let text = Stateless::call("echo", json!({"message": "in private"}))
        .and("connection", "close")
        .text();
    stream.write_all(text.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn calls_are_answered_over_tls() {
    let server = server(false);
    let answer = call(&server, false).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("in private"), "{answer}");
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

#[test]
fn who_does_not_shake_hands_is_let_go_of() {
    let server = server(false);
    let mut silent = server.connect();
    let mut clear = server.connect();
    clear.send(Stateless::call("echo", json!({"message": "in clear"})).text());
    clear.assert_ends();
    silent.assert_closed();
    assert!(call(&server, false).is_ok());
}

#[test]
fn certificates_that_cannot_be_used_are_told_at_start() {
    let mut config = longshore::Config::default();
    config.http.port = 0;
    config.http.tls.certificate = Some(file("server.crt"));
    let error = longshore::App::new().config(config.clone()).bind();
    let error = error.expect_err("half of it").to_string();
    assert!(error.contains("http.tls.key"), "{error}");
    config.http.tls.key = Some(file("client.key"));
    let error = longshore::App::new().config(config).bind();
    let error = error.expect_err("another's key").to_string();
    assert!(error.contains("cannot be used together"), "{error}");
}

#[tokio::test]
async fn our_own_client_shows_a_certificate_if_it_has_one() {
    use longshore::net::{Client, ClientError, Guard, Outgoing};

    let server = server(true);
    let url = format!("https://localhost:{}/livez", server.address().port());
    let url: url::Url = url.parse().expect("a URL");
    let pem = |name: &str| std::fs::read(file(name)).expect("there");
    let builder = || {
        let client = Client::builder(Guard::public().trust(&url));
        client.roots(&pem("ca.crt")).expect("an authority")
    };
    let shows = builder()
        .identity(&pem("client.crt"), &pem("client.key"))
        .and_then(longshore::net::ClientBuilder::build)
        .expect("a client");
    let answer = shows.fetch(Outgoing::get(url.clone())).await;
    assert_eq!(answer.expect("an answer").status, StatusCode::OK);
    let bare = builder().build().expect("a client");
    assert!(bare.fetch(Outgoing::get(url.clone())).await.is_err());
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
