//! A server with nearly every setting, used to measure a cold start.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::process::Server;
use crate::target::Target;
use crate::wire::Post;
use crate::workload::{Workload, post};

const CERTIFICATE: &str = include_str!("../../../tests/it/tls/server.crt");
const KEY: &str = include_str!("../../../tests/it/tls/server.key");
const AUTHORITY: &str = include_str!("../../../tests/it/tls/ca.crt");
const API_KEY: &str = "lsk_a-key-that-nobody-else-has-00000";

/// TLS, API keys, rules, limits, sealing keys, metrics, traces and logs to a collector that is not there, a port for
/// operators, four toolsets and two HTTP tools.
const SETTINGS: &str = r#"
toolsets: [demo, time, filesystem, memory]
http:
  tls: { certificate: FOLDER/server.crt, key: FOLDER/server.key }
  admin: { host: 127.0.0.1, port: 0 }
auth:
  api_keys:
    - { name: alice, keys: [API_KEY], groups: [staff] }
    - { name: bob, keys: ["sha256:0000000000000000000000000000000000000000000000000000000000000000"] }
policy:
  rules:
    - { effect: allow, groups: [staff], tools: ["*"] }
    - { effect: allow, tools: ["echo", "get_*"] }
    - { effect: deny, principals: ["key:bob"], tools: ["*_file"] }
limits:
  address: { per_second: 1000 }
  server: { per_second: 10000 }
  tools: { forecast: { per_second: 10, calls: 4 } }
seal:
  keys: ["0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"]
telemetry:
  metrics: "on"
  endpoint: http://127.0.0.1:9
  sample: 0.01
builtin:
  filesystem: { directories: ["FOLDER"] }
  memory: { file: FOLDER/memory.jsonl }
sources:
  - name: weather
    http:
      base_url: https://api.example.com/v1
      tools:
        - name: forecast
          description: The weather of the next days.
          arguments:
            city: { description: Name of a city, min_length: 1 }
            days: { type: integer, minimum: 1, maximum: 7, default: 3 }
          url: "/forecast/{{ city }}?days={{ days }}"
        - name: report
          description: Tells the station what somebody has seen.
          method: POST
          url: /reports
          arguments:
            text: { description: What was seen, max_length: 1000 }
"#;

/// The settings in a temporary folder, removed on drop, and the data that a client needs.
#[derive(Debug)]
pub(super) struct Full {
    folder: TempDir,
    client: Arc<ClientConfig>,
}

impl Full {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().to_str().ok_or("an odd temporary folder")?;
        let settings = SETTINGS.replace("FOLDER", path).replace("API_KEY", API_KEY);
        let key = folder.path().join("server.key");
        fs::write(&key, KEY)?;
        #[cfg(unix)]
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        fs::write(folder.path().join("server.crt"), CERTIFICATE)?;
        fs::write(folder.path().join("longshore.yaml"), settings)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(AUTHORITY.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            folder,
            client: Arc::new(client),
        })
    }

    /// The file with the settings.
    pub(super) fn settings(&self) -> PathBuf {
        self.folder.path().join("longshore.yaml")
    }

    /// Connects as soon as possible, and makes one call.
    pub(super) fn call(&self, server: &mut Server) -> Result<(), Box<dyn Error>> {
        let stream = loop {
            match TcpStream::connect(server.address()) {
                Ok(stream) => break stream,
                Err(_) => server.check_alive()?,
            }
            std::thread::yield_now();
        };
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name)?;
        let mut stream = StreamOwned::new(connection, stream);
        let call = post(
            Workload::CallStateless,
            &Target::mcp(server.address()),
            1,
            None,
        );
        stream.write_all(&with_key(call).to_http1())?;
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while !is_whole(&answer) {
            match stream.read(&mut part)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                some => answer.extend_from_slice(&part[..some]),
            }
        }
        let text = String::from_utf8_lossy(&answer);
        let is_good = text.starts_with("HTTP/1.1 200 ") && text.contains(r#""isError":false"#);
        is_good
            .then_some(())
            .ok_or_else(|| format!("the response is: {text}").into())
    }
}

fn with_key(mut post: Post) -> Post {
    post.headers
        .push(("authorization", format!("Bearer {API_KEY}")));
    post
}

/// Returns true if a response is complete, according to its declared length.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| length <= body.len())
}
