use std::sync::Arc;

use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::net::testing::response;
use crate::net::{Client, FetchError, FetchedResponse, Guard, OutgoingRequest, with_causes};

async fn fetch(client: &Client, url: &str) -> Result<FetchedResponse, FetchError> {
    let url = url.parse().expect("a URL");
    client.fetch(OutgoingRequest::get(url)).await
}

// The only test of this program that trusts a CA, since that lasts as long as the process.
#[tokio::test]
async fn a_server_of_a_private_ca_is_reached_by_clients_that_are_built_after_it_is_trusted() {
    let port = serve_tls().await;
    let target = format!("https://localhost:{port}/");
    let builder = || Client::builder(Guard::public().allow_loopback());
    let before = builder().build().expect("a client");
    let error = fetch(&before, &target).await.expect_err("not trusted");
    assert_eq!(
        with_causes(&error),
        "no TLS connection to localhost could be established: invalid peer certificate: UnknownIssuer"
    );

    let ca = pem("ca.crt");
    assert!(trust_ca(b"").is_err());
    trust_ca(&ca).expect("a certificate");
    trust_ca(&ca).expect("the same certificate");
    let after = builder().build().expect("a client");
    let response = fetch(&after, &target).await.expect("trusted");
    assert_eq!(response.status, 200);
    let own = builder().own_roots_only();
    let alone = own.build().expect("a client");
    assert!(fetch(&alone, &target).await.is_err());
    let own = builder().own_roots_only().roots(&ca).expect("a root");
    let with_root = own.build().expect("a client");
    assert!(fetch(&with_root, &target).await.is_ok());
}

/// A file of the test certificates.
fn pem(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/tls");
    std::fs::read(format!("{folder}/{name}")).expect("a file of the repository")
}

/// Starts an HTTPS server for `localhost` with a certificate of the test CA. Returns its port.
async fn serve_tls() -> u16 {
    let chain = CertificateDer::pem_slice_iter(&pem("server.crt")).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("a chain"), key)
        .expect("a pair");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else {
                continue;
            };
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(&response("200 OK", b"hello")).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}
