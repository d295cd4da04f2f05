//! `longshore healthcheck`: a health probe for images without a shell or `curl`.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustls::{AlertDescription, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use url::Url;

use super::client::check_no_password;
use super::doctor::examining;
use super::output::reachable;
use super::run;
use crate::net::{Client, Deadlines, Guard, OutgoingRequest, with_causes};
use crate::transport::http::HttpConfig;
use longshore_app::config::Flags;

/// Options of `healthcheck`.
#[derive(Debug, Args)]
pub(super) struct HealthcheckArgs {
    /// Read the server's address from this settings file, as `run` does [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Use this port [default: that of the settings]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Check liveness only, not readiness
    #[arg(long)]
    live: bool,

    /// Check the server at this URL, without reading settings
    #[arg(long, value_name = "URL", conflicts_with_all = ["config", "port", "live"])]
    url: Option<String>,
}

/// Timeout of the probe.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum size of the response.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Probes the server on this machine. Returns an error unless it is healthy.
pub(super) fn healthcheck(args: &HealthcheckArgs) -> Result<String, String> {
    if let Some(url) = &args.url {
        let parsed = Url::parse(url).map_err(|error| {
            format!("--url is {url:?}, which is not a valid URL: {error}; write it whole, such as http://127.0.0.1:3000/readyz")
        })?;
        check_no_password("--url", &parsed)?;
        run::trust_ca_of_variable().map_err(|error| error.to_string())?;
        return ask_elsewhere(&parsed);
    }
    let mut flags = Flags::default();
    flags.config = args.config.clone();
    flags.port = args.port;
    let config = &run::load(flags).map_err(|error| error.to_string())?.config;
    let path = if args.live { "/livez" } else { "/readyz" };
    let socket = config
        .http
        .unix_socket
        .as_ref()
        .filter(|_| args.port.is_none());
    let answer = match socket {
        Some(socket) => {
            let is_secure = config.http.tls.certificate.is_some();
            ask_at_file(socket.clone(), is_secure, path).map_err(|error| {
                format!(
                    "the server at {} does not respond: {error}",
                    socket.display()
                )
            })?
        }
        None => {
            let (address, is_secure) = place(&config.http, args.port);
            ask(address, is_secure, path).map_err(|error| {
                let advice = match wants_a_certificate(&error) {
                    true => "; it requires a client certificate: set an admin port (http.admin.port), which is then probed instead",
                    false => "",
                };
                format!("the server at {address} does not respond: {error}{advice}")
            })?
        }
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.trim().to_owned()),
        Some(status) => Err(format!(
            "the response of {path} is {status}: {}",
            body.trim()
        )),
        None => Err("the program that listens there does not respond over HTTP".to_owned()),
    }
}

/// Probes a server at a URL, like any client.
fn ask_elsewhere(url: &Url) -> Result<String, String> {
    let runtime = run::runtime().map_err(|error| error.to_string())?;
    let asked = runtime.block_on(async {
        let client = Client::builder(Guard::public().trust(url))
            .deadlines(Deadlines::total(PATIENCE))
            .max_body(ANSWER_BYTES_MAX as usize)
            .build()
            .map_err(|error| with_causes(&error))?;
        let fetched = client.fetch(OutgoingRequest::get(url.clone())).await;
        fetched.map_err(|error| with_causes(&error))
    });
    let answer = asked.map_err(|error| format!("the server at {url} does not respond: {error}"))?;
    let body = String::from_utf8_lossy(&answer.body).trim().to_owned();
    match answer.status.as_u16() {
        200 => Ok(body),
        status => Err(format!("the response of {url} is {status}: {body}")),
    }
}

/// Returns the address and whether it uses TLS. The admin port has no TLS. It is used if it is named, or if the
/// main port requires client certificates.
fn place(http: &HttpConfig, named: Option<u16>) -> (SocketAddr, bool) {
    let demands = http.tls.client_ca.is_some() && !http.tls.client_optional;
    let address = |host, port| SocketAddr::new(reachable(host), port);
    match http.admin.address(http.host) {
        Some(admin) if named.map_or(demands, |named| named == admin.port()) => {
            (address(admin.ip(), admin.port()), false)
        }
        _ => (
            address(http.host, http.port),
            http.tls.certificate.is_some(),
        ),
    }
}

/// Returns true if a Longshore server responds at the address.
pub(super) fn is_served(address: SocketAddr) -> bool {
    let address = SocketAddr::new(reachable(address.ip()), address.port());
    ask(address, false, "/livez").is_ok_and(|answer| {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        head.split(' ').nth(1) == Some("200") && body.contains("\"ok\":")
    })
}

/// Returns true if a program listens at a Unix socket, even if it accepts no connection.
#[cfg(unix)]
pub(super) fn is_listening(socket: &Path) -> bool {
    let socket = socket.to_owned();
    let connected = within(PATIENCE, || std::os::unix::net::UnixStream::connect(socket));
    connected.map_or_else(|error| error.kind() == io::ErrorKind::TimedOut, |_| true)
}

fn ask(address: SocketAddr, is_secure: bool, path: &'static str) -> io::Result<String> {
    within(PATIENCE, move || {
        let name = is_secure.then(|| ServerName::from(address.ip()));
        converse(
            TcpStream::connect(address)?,
            name,
            &address.to_string(),
            path,
        )
    })
}

#[cfg(unix)]
fn ask_at_file(socket: PathBuf, is_secure: bool, path: &'static str) -> io::Result<String> {
    within(PATIENCE, move || {
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let stream = std::os::unix::net::UnixStream::connect(socket)?;
        converse(stream, is_secure.then_some(name), "localhost", path)
    })
}

#[cfg(not(unix))]
fn ask_at_file(_: PathBuf, _: bool, _: &'static str) -> io::Result<String> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Runs a probe on a thread of its own, which is given up after this time: timeouts of a socket begin again with each byte, and
/// a Unix socket whose server accepts nothing has none.
fn within<T: Send + 'static>(
    patience: Duration,
    probe: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, answer) = mpsc::channel();
    thread::Builder::new().spawn(move || sender.send(probe()))?;
    answer.recv_timeout(patience).unwrap_or_else(|_| {
        let problem = format!("no response within {} s", patience.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, problem))
    })
}

/// Returns true if the server requires a client certificate.
fn wants_a_certificate(error: &io::Error) -> bool {
    let source = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(
        source,
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure
        ))
    )
}

/// Sends the request, over TLS if there is a name. The certificate's name is not checked: the server is on this machine, and the
/// probe sends nothing secret.
fn converse<S: io::Read + io::Write>(
    stream: S,
    name: Option<ServerName<'static>>,
    host: &str,
    path: &str,
) -> io::Result<String> {
    let Some(name) = name else {
        return exchange(stream, host, path);
    };
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let config = examining(&versions, false).map_err(io::Error::other)?;
    let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    exchange(StreamOwned::new(session, stream), host, path)
}

fn exchange(mut stream: impl io::Read + io::Write, host: &str, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    match stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer) {
        // A missing TLS close is accepted, because the response is complete.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_probe_that_does_not_end_is_given_up() {
        let probe = || -> io::Result<()> {
            loop {
                thread::park();
            }
        };
        let error = within(Duration::ZERO, probe).expect_err("no response");
        assert_eq!(error.to_string(), "no response within 0 s");
    }

    #[test]
    fn a_port_is_asked_in_the_way_that_it_speaks() {
        let of = |http, named| {
            let http = serde_json::from_value(http).expect("settings");
            let (address, is_secure) = place(&http, named);
            format!("{address} {is_secure}")
        };
        let plain = json!({"host": "0.0.0.0", "port": 8080, "admin": {"port": 9090}});
        assert_eq!(of(plain.clone(), None), "127.0.0.1:8080 false");
        assert_eq!(of(plain, Some(9090)), "127.0.0.1:9090 false");
        let tls = json!({"certificate": "tls.crt", "key": "tls.key"});
        let secure = json!({"port": 8443, "admin": {"port": 9090}, "tls": tls});
        assert_eq!(of(secure.clone(), None), "127.0.0.1:8443 true");
        assert_eq!(of(secure, Some(9090)), "127.0.0.1:9090 false");
        let mut mutual = json!({"port": 8443, "tls": tls});
        mutual["tls"]["client_ca"] = "clients.crt".into();
        assert_eq!(of(mutual.clone(), None), "127.0.0.1:8443 true");
        mutual["admin"] = json!({"port": 9090});
        assert_eq!(of(mutual.clone(), None), "127.0.0.1:9090 false");
        mutual["tls"]["client_optional"] = true.into();
        assert_eq!(of(mutual, None), "127.0.0.1:8443 true");
    }
}
