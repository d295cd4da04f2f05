//! Settings of the HTTP transport.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::host::is_host;
use super::server_card::ServerCardConfig;
use super::tls::TlsConfig;
use crate::auth::PublicUrl;
use crate::environment::{Conflicts, without_user};
use crate::net::TrustedProxies;

/// Listening and serving over HTTP.
///
/// ```toml
/// [http]
/// host = "0.0.0.0"
/// port = 8080
/// allowed_hosts = ["mcp.example.com"]
/// allowed_origins = ["https://app.example.com"]
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// IP address to listen on.
    #[serde(deserialize_with = "crate::environment::address")]
    pub host: IpAddr,
    /// Port to listen on; 0 chooses a free one.
    pub port: u16,
    /// Path of a Unix socket to listen on, instead of host and port. Its clients count as 127.0.0.1. The socket of a
    /// server that has exited is removed.
    #[schemars(extend("x-path" = "file"))]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the socket, as the digits of `chmod`.
    pub unix_socket_mode: SocketMode,
    /// Number of worker threads, up to 1024. If unset: one per core, but at most one for each 32 MiB of memory.
    pub workers: Option<usize>,
    /// Maximum number of threads for blocking tools, over all workers; each worker has at least one. Further calls
    /// wait.
    pub blocking_threads: usize,
    /// Allow other listen addresses than loopback without authentication.
    pub insecure: bool,
    /// Allowed `Host` values, such as `mcp.example.com` or `mcp.example.com:8080`; without a port, any port. The host
    /// of `public_url` is always allowed, and pages that this server serves under these names may call it. If empty:
    /// the loopback names on loopback, else all hosts.
    #[serde(deserialize_with = "crate::environment::list")]
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call the server and read responses (CORS), such as `https://app.example.com`, or
    /// `http://localhost:5173` for another port of this machine. The origin of `public_url`, and pages that this
    /// server serves under an IP address, `localhost` or a name of `allowed_hosts`, are always allowed. On loopback,
    /// pages from loopback are not rejected but cannot read responses. Other clients than browsers send no origin and
    /// are not affected.
    #[serde(deserialize_with = "crate::environment::list")]
    pub allowed_origins: Vec<String>,
    /// Public URL of the server, such as `https://mcp.example.com`, with the path that a proxy adds. If unset:
    /// derived from each request.
    pub public_url: Option<String>,
    /// Networks of proxies whose forwarding headers are trusted, such as `10.0.0.0/8`.
    pub trusted_proxies: TrustedProxies,
    /// Reject `Accept` headers without both `application/json` and `text/event-stream`, which the specification
    /// requires of clients. If false, every `Accept` header is served.
    pub strict_accept: bool,
    /// Serve the transport of 2024-11-05 too: `/sse`, also at `/mcp/sse`, and `/messages`. Its sessions live in one
    /// process: several replicas need `state.url`, or a balancer that keeps a client with one. Default: false.
    pub legacy_sse: bool,
    /// Accept responses to client requests at `/mcp/respond` too, for some older clients.
    pub respond_alias: bool,
    /// The admin port.
    pub admin: AdminConfig,
    /// Send the header `Server-Timing` with the milliseconds until the response began, under the name `longshore`.
    pub server_timing: bool,
    /// Serve tools as REST at `/tools`, and their description at `/openapi.json`.
    pub rest: bool,
    /// Serve the playground at `/`, a page to try tools, resources and prompts. If unset: true on loopback without a
    /// `public_url`, else false.
    pub playground: Option<bool>,
    /// Server card: a public description of the server, after a draft of the specification.
    pub server_card: ServerCardConfig,
    /// Compress responses of 1024 bytes and more with gzip, except event streams. Leave this off if tools return
    /// secrets together with client input, because response lengths then reveal the secret (BREACH). Proxies usually
    /// compress as well.
    pub compression: bool,
    /// TLS.
    pub tls: TlsConfig,
    /// Limits.
    pub limits: HttpLimits,
}

/// Permissions of a Unix socket: the digits of `chmod`.
#[derive(Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct SocketMode(#[schemars(with = "String")] pub u32);

impl Default for SocketMode {
    fn default() -> Self {
        Self(0o660)
    }
}

impl fmt::Debug for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o}", self.0)
    }
}

impl Serialize for SocketMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:o}", self.0))
    }
}

impl<'de> Deserialize<'de> for SocketMode {
    /// A number is taken for the digits that it is written with.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Digits {
            Text(String),
            Number(u32),
        }
        let digits = match Digits::deserialize(deserializer) {
            Ok(Digits::Text(text)) => text,
            Ok(Digits::Number(number)) => number.to_string(),
            Err(_) => String::new(),
        };
        match u32::from_str_radix(&digits, 8) {
            Ok(mode) if mode <= 0o777 => Ok(Self(mode)),
            _ => Err(D::Error::custom(
                "write the octal digits of chmod, such as \"660\" or \"600\"",
            )),
        }
    }
}

/// Admin port with `/metrics`, `/health/detailed` and the other health pages, without authentication.
///
/// ```toml
/// [http.admin]
/// port = 9090
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// IP address to listen on. If unset: `http.host`.
    pub host: Option<IpAddr>,
    /// Port to listen on; 0 chooses a free one. If unset, there is no admin port.
    pub port: Option<u16>,
}

impl AdminConfig {
    /// Address of the admin port, if enabled; `host` is the host of the main port.
    pub fn address(&self, host: IpAddr) -> Option<SocketAddr> {
        let port = self.port?;
        Some(SocketAddr::new(self.host.unwrap_or(host), port))
    }
}

/// Connection, size and time limits.
///
/// Time limits are enforced by a sweep once a second, so they take effect up to a second late. Time in which the process did
/// not run, as on platforms that freeze it between requests, does not count.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpLimits {
    /// Maximum number of connections. Beyond it, the longest idle ones are closed; without idle ones, new connections
    /// wait in the backlog. The process's limit of open files, less 512, applies too.
    pub connections: usize,
    /// Maximum number of connections of one address (for IPv6, of a /64 network); 0 for no limit. Beyond it, the
    /// address's longest idle ones are closed, or else the new ones. If unset: 1024 for public addresses; private
    /// ones may be load balancers.
    pub connections_per_address: Option<usize>,
    /// Maximum length of a request target, in bytes. Beyond it: 414.
    pub target_bytes: usize,
    /// Maximum size of the request line and header fields, in bytes, at most 64 KiB. Beyond it: 431.
    pub header_bytes: usize,
    /// Maximum number of header fields of a request, 16 to 100. Beyond it: 431.
    pub header_fields: usize,
    /// Maximum size of a request body, in bytes. Beyond it: 413.
    pub body_bytes: usize,
    /// Time in which a request head, or the preface of an HTTP/2 connection, must arrive, in seconds.
    pub header_seconds: u32,
    /// Time in which a request body must arrive once its client is authenticated, in seconds. Beyond it: 408.
    pub body_seconds: u32,
    /// Minimum rate of a request body after its first five seconds, in bytes per second. Below it: 408.
    pub body_bytes_per_second: u32,
    /// Maximum idle time of a connection, in seconds.
    pub idle_seconds: u32,
    /// Maximum time in which a client makes no room for more of a response, in seconds. It makes room by reading some 64 KiB.
    pub write_stall_seconds: u32,
    /// Maximum age of a connection, in seconds, randomised by a tenth. It is closed after its current response; on
    /// HTTP/2, no further streams are accepted.
    pub connection_seconds: u32,
    /// Maximum number of requests of a connection.
    pub connection_requests: u32,
    /// Maximum number of concurrent streams of an HTTP/2 connection.
    pub http2_streams: u32,
    /// Maximum number of streams that a client resets before they are processed, on one HTTP/2 connection, at most
    /// 1000. Beyond it, the connection is closed.
    pub http2_resets: u32,
    /// Maximum number of streams that a client resets per second, on one HTTP/2 connection. Beyond it, the connection
    /// is closed.
    pub http2_resets_per_second: u32,
    /// Maximum number of HTTP/2 control frames per second on one connection: PRIORITY, SETTINGS, PING and unknown
    /// types; at least 100. Beyond it, the connection is closed.
    pub http2_control_frames_per_second: u32,
    /// Interval after which a silent HTTP/2 client gets a PING, and timeout of its response, in seconds.
    pub http2_ping_seconds: u32,
}

/// Maximum number of worker threads.
const WORKERS_MAX: usize = 1024;
/// Size of hyper's buffer for an incomplete request head.
pub(super) const HEADER_BYTES_MAX: usize = 64 * 1024;

impl HttpConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        self.validate_names(conflicts);
        for network in self.trusted_proxies.too_wide() {
            conflicts.add(
                format!(
                    "http.trusted_proxies has {network}, so that every client could claim another address or user"
                ),
                "list only the networks of your proxies, such as 10.0.0.0/8",
            );
        }
        conflicts.nonzero([
            ("http.workers", self.workers.unwrap_or(1) as u64),
            ("http.blocking_threads", self.blocking_threads as u64),
            (
                "http.tls.handshake_seconds",
                self.tls.handshake_seconds.into(),
            ),
        ]);
        if let Some(workers) = self.workers.filter(|workers| WORKERS_MAX < *workers) {
            conflicts.add(
                format!("http.workers is {workers}"),
                "set it to at most 1024; the default, one for each core, is best",
            );
        }
        self.limits.validate(conflicts);
        self.validate_admin(conflicts);
        if self.tls.client_optional && self.tls.client_ca.is_none() {
            conflicts.add(
                "http.tls.client_optional is set, and http.tls.client_ca is not: no client would be asked for a certificate",
                "name the file with the CA certificates of clients, or leave it out",
            );
        }
    }

    /// Reports invalid names under which clients reach the server.
    fn validate_names(&self, conflicts: &mut Conflicts) {
        if let Some(url) = &self.public_url
            && PublicUrl::parse(url).is_none()
        {
            conflicts.add(
                format!(
                    "http.public_url is {:?}, which is not the URL of a server",
                    without_user(url)
                ),
                "write it as clients do, without a query, a fragment or a user name: https://mcp.example.com",
            );
        }
        for host in self.allowed_hosts.iter().filter(|host| !is_host(host)) {
            conflicts.add(
                format!("http.allowed_hosts has {host:?}, which is not a host"),
                "write it as a client does in Host, without scheme or path: mcp.example.com or mcp.example.com:8080",
            );
        }
        for origin in &self.allowed_origins {
            let host = origin.split_once("://").map(|(_, host)| host);
            if !host.is_some_and(is_host) {
                conflicts.add(
                    format!("http.allowed_origins has {origin:?}, which is not an origin"),
                    "write it as a browser does: https://app.example.com, without a path or a slash at the end",
                );
            }
        }
    }

    /// Reports an admin listener that would have no address of its own.
    fn validate_admin(&self, conflicts: &mut Conflicts) {
        let (port, host) = (self.admin.port, self.admin.host);
        if let Some(port) = port
            && port == self.port
            && port != 0
            && host.is_none_or(|host| {
                host == self.host || host.is_unspecified() || self.host.is_unspecified()
            })
        {
            conflicts.add(
                format!("http.admin.port is {port}, which clients have already"),
                "use another admin port, or remove the setting",
            );
        }
        if host.is_some() && port.is_none() {
            conflicts.add(
                "http.admin.host is set, and http.admin.port is not: nothing would listen there",
                "name the admin port too, or leave the host out",
            );
        }
    }
}

impl HttpLimits {
    fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.within([
            (
                "http.limits.header_fields",
                self.header_fields as u64,
                16..=100,
            ),
            (
                "http.limits.http2_resets",
                self.http2_resets.into(),
                1..=1000,
            ),
            (
                "http.limits.http2_resets_per_second",
                self.http2_resets_per_second.into(),
                1..=1_000_000,
            ),
            (
                "http.limits.http2_control_frames_per_second",
                self.http2_control_frames_per_second.into(),
                100..=1_000_000,
            ),
        ]);
        conflicts.nonzero([
            ("http.limits.connections", self.connections as u64),
            (
                "http.limits.http2_ping_seconds",
                self.http2_ping_seconds.into(),
            ),
            ("http.limits.target_bytes", self.target_bytes as u64),
            ("http.limits.header_bytes", self.header_bytes as u64),
            ("http.limits.body_bytes", self.body_bytes as u64),
            ("http.limits.header_seconds", self.header_seconds.into()),
            ("http.limits.body_seconds", self.body_seconds.into()),
            ("http.limits.idle_seconds", self.idle_seconds.into()),
            (
                "http.limits.write_stall_seconds",
                self.write_stall_seconds.into(),
            ),
            (
                "http.limits.connection_seconds",
                self.connection_seconds.into(),
            ),
            (
                "http.limits.connection_requests",
                self.connection_requests.into(),
            ),
            ("http.limits.http2_streams", self.http2_streams.into()),
        ]);
        if HEADER_BYTES_MAX < self.header_bytes {
            conflicts.add(
                format!("http.limits.header_bytes is {}", self.header_bytes),
                "set it to at most 65536, the size of the buffer for request heads",
            );
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 3000,
            unix_socket: None,
            unix_socket_mode: SocketMode::default(),
            workers: None,
            blocking_threads: 128,
            insecure: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            public_url: None,
            trusted_proxies: TrustedProxies::default(),
            strict_accept: false,
            legacy_sse: false,
            respond_alias: false,
            admin: AdminConfig::default(),
            server_card: ServerCardConfig::default(),
            server_timing: false,
            rest: true,
            playground: None,
            compression: false,
            tls: TlsConfig::default(),
            limits: HttpLimits::default(),
        }
    }
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_address: None,
            target_bytes: 8 * 1024,
            header_bytes: 32 * 1024,
            header_fields: 100,
            body_bytes: 4 * 1024 * 1024,
            header_seconds: 10,
            body_seconds: 30,
            body_bytes_per_second: 1024,
            idle_seconds: 75,
            write_stall_seconds: 30,
            connection_seconds: 3600,
            connection_requests: 10_000,
            http2_streams: 100,
            http2_resets: 20,
            http2_resets_per_second: 500,
            http2_control_frames_per_second: 10_000,
            http2_ping_seconds: 20,
        }
    }
}
