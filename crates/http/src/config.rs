//! Settings of the HTTP transport.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::host_guard::is_host;
use super::tls::TlsConfig;
use crate::auth::PublicUrl;
use crate::environment::Conflicts;
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
    /// Address to listen on. Default: 127.0.0.1.
    #[serde(deserialize_with = "crate::environment::address")]
    pub host: IpAddr,
    /// Port to listen on; 0 takes any that is free. Default: 3000.
    pub port: u16,
    /// Path of a socket in the file system to listen on, instead of host and port. Callers over it count as coming from
    /// 127.0.0.1. What a server that is gone left there is removed. Default: none.
    #[schemars(extend("x-path" = "file"))]
    pub unix_socket: Option<PathBuf>,
    /// Who may connect to that socket, as the digits of `chmod`. Default: "660", its owner and group.
    pub unix_socket_mode: SocketMode,
    /// Threads that serve connections. Default: one for each core. Where there is little
    /// memory fewer: one for each 32 MiB.
    pub workers: Option<usize>,
    /// Threads for tools that block, over all workers; each has one at least. Further ones wait for their turn. Default: 128.
    pub blocking_threads: usize,
    /// Listen on other addresses than loopback although nothing proves who calls. Default: false.
    pub insecure: bool,
    /// Values of `Host` to answer to, such as `mcp.example.com` or `mcp.example.com:8080`; without a port,
    /// any port. That of `public_url` is one of them. Pages that this server serves under these names may call it. Default: on
    /// loopback its own names, elsewhere all.
    #[serde(deserialize_with = "crate::environment::list")]
    pub allowed_hosts: Vec<String>,
    /// Web origins whose pages may call and read the answers (CORS), such as `https://app.example.com`; also `http://localhost:5173` for a
    /// page of another port of this machine. Default: on loopback pages from loopback are not refused; everywhere those of `public_url`, and those that
    /// this server serves under an IP address, `localhost` or a name of `allowed_hosts`; none of another origin reads an answer. Clients that are no browsers send no origin and are not affected.
    #[serde(deserialize_with = "crate::environment::list")]
    pub allowed_origins: Vec<String>,
    /// The URL under which clients reach this server, such as `https://mcp.example.com`; with a path, if a proxy adds
    /// one. Default: what each request says of itself.
    pub public_url: Option<String>,
    /// Networks of the proxies in front, such as `10.0.0.0/8`, whose word about where a request came from counts.
    /// Default: none.
    pub trusted_proxies: TrustedProxies,
    /// Refuse `Accept` headers without both `application/json` and `text/event-stream`, as the specification
    /// words it for clients. Default: false, whatever is accepted is answered.
    pub strict_accept: bool,
    /// Serve the transport of 2024-11-05 too: `/sse`, also at `/mcp/sse`, and `/messages`. Its sessions live in one
    /// process, so several replicas need a balancer that keeps a client with one. Default: false.
    pub legacy_sse: bool,
    /// Take answers to questions at `/mcp/respond` too, where some clients of before send them. Default: false.
    pub respond_alias: bool,
    /// A port for operators.
    pub admin: AdminConfig,
    /// Say in the header `Server-Timing` of each answer how many milliseconds the server took until it began, under the
    /// name `longshore`. Default: false.
    pub server_timing: bool,
    /// Serve tools at `/tools` and their description at `/openapi.json`, for those who speak no MCP. Default: true.
    pub rest: bool,
    /// Serve a page at `/` on which a person tries tools, resources and prompts in a browser. Default: on loopback without a
    /// `public_url`, elsewhere not.
    pub playground: Option<bool>,
    /// Compress answers of 1024 bytes and more for clients that take gzip; never event streams. Who can have a secret and
    /// a text of their own answered together, again and again, can guess the secret by the length (BREACH): leave it off
    /// where tools return such. Default: false, since whatever stands in front does it as well.
    pub compression: bool,
    /// TLS.
    pub tls: TlsConfig,
    /// Limits.
    pub limits: HttpLimits,
}

/// Who may connect to a socket in the file system: the digits of `chmod`.
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
                "it has to be the digits of chmod, such as \"660\" or \"600\"",
            )),
        }
    }
}

/// A port of its own for whoever runs the server: `/metrics`, `/health/detailed` and the other health pages, open to
/// all who reach it.
///
/// ```toml
/// [http.admin]
/// port = 9090
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminConfig {
    /// IP address to listen on. Default: that of `http.host`.
    pub host: Option<IpAddr>,
    /// Port to listen on; 0 takes any that is free. Default: none, there is no such port.
    pub port: Option<u16>,
}

impl AdminConfig {
    /// Address of the admin port, if enabled; `host` is the host of the main port.
    pub fn address(&self, host: IpAddr) -> Option<SocketAddr> {
        let port = self.port?;
        Some(SocketAddr::new(self.host.unwrap_or(host), port))
    }
}

/// How much and how long.
///
/// Times are kept by a sweep of one second: what takes longer is ended at most a second late.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpLimits {
    /// Connections at once; for more, those that have been idle for longest are closed, and if there are none, they
    /// wait in the backlog. Default: 20000, or what the process may open less 512.
    pub connections: usize,
    /// Connections at once from one address (of IPv6: from 64 bits of it); 0 for no limit. For more, those of the address
    /// that have been idle for longest are closed, and if there are none, the new ones. Default: 1024 for public addresses;
    /// others may be a balancer, and have this limit only if it is written down.
    pub connections_per_address: Option<usize>,
    /// Bytes of a request's target. Default: 8 KiB; beyond: 414.
    pub target_bytes: usize,
    /// Bytes of request line and header fields, at most 64 KiB. Default: 32 KiB; beyond: 431.
    pub header_bytes: usize,
    /// Header fields of a request, 100 at most; at least 16. Default: 100; beyond: 431.
    pub header_fields: usize,
    /// Bytes of a body. Default: 4 MiB; beyond: 413.
    pub body_bytes: usize,
    /// Seconds in which a request's head has to arrive. Default: 10.
    pub header_seconds: u32,
    /// Seconds in which a body has to arrive. Default: 30; beyond: 408.
    pub body_seconds: u32,
    /// Bytes a second that a body has to arrive with after its first five seconds, be it over HTTP/1.1 or HTTP/2. Default: 1024; below: 408.
    pub body_bytes_per_second: u32,
    /// Seconds that a connection may do nothing. Default: 75.
    pub idle_seconds: u32,
    /// Seconds that a client may take nothing of an answer. Default: 30.
    pub write_stall_seconds: u32,
    /// Seconds after which a connection is closed once its answer is sent; a tenth more or less is drawn for
    /// each. On HTTP/2 no further streams are taken then. Default: 3600.
    pub connection_seconds: u32,
    /// Requests after which a connection is closed. Default: 10000.
    pub connection_requests: u32,
    /// Streams at once on one HTTP/2 connection. Default: 100.
    pub http2_streams: u32,
    /// Streams of one HTTP/2 connection that its client has taken back before anybody has looked at them, 1000 at most;
    /// beyond, it is told to calm down, and the connection ends. Default: 20.
    pub http2_resets: u32,
    /// Streams of one HTTP/2 connection that its client takes back in a second, be they answered or not; beyond, it is told
    /// to calm down, and the connection ends. Default: 500.
    pub http2_resets_per_second: u32,
    /// Maximum number of frames in a second, on one HTTP/2 connection, that carry nothing for a request: PRIORITY, SETTINGS,
    /// PING, and those of unknown types. The connection of a client that sends more is closed. Default: 10000.
    pub http2_control_frames_per_second: u32,
    /// Seconds after which an HTTP/2 client that says nothing is asked for a sign of life, and seconds that it has to
    /// give one. Default: 20.
    pub http2_ping_seconds: u32,
}

/// Maximum number of worker threads.
const WORKERS_MAX: usize = 1024;
/// Size of hyper's buffer for an incomplete request head.
const HEADER_BYTES_MAX: usize = 64 * 1024;

impl HttpConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        self.validate_names(conflicts);
        for network in self.trusted_proxies.too_wide() {
            conflicts.add(
                format!(
                    "http.trusted_proxies has {network}, so that anybody could say where a request came from, and who sent it"
                ),
                "name the networks that your proxies have for themselves, such as 10.0.0.0/8",
            );
        }
        conflicts.nonzero([
            ("http.workers", self.workers.unwrap_or(1) as u64),
            ("http.blocking_threads", self.blocking_threads as u64),
        ]);
        if let Some(workers) = self.workers.filter(|workers| WORKERS_MAX < *workers) {
            conflicts.add(
                format!("http.workers is {workers}"),
                "give it at most 1024; one for each core is best, which is the default",
            );
        }
        self.limits.validate(conflicts);
        self.validate_admin(conflicts);
        if self.tls.client_optional && self.tls.client_ca.is_none() {
            conflicts.add(
                "http.tls.client_optional is set, and http.tls.client_ca is not: nobody would be asked for a certificate",
                "name the file with the authorities of clients' certificates, or leave it out",
            );
        }
    }

    /// Reports invalid names under which clients reach the server.
    fn validate_names(&self, conflicts: &mut Conflicts) {
        if let Some(url) = &self.public_url
            && PublicUrl::parse(url).is_none()
        {
            conflicts.add(
                format!("http.public_url is {url:?}, which is not the URL of a server"),
                "write it as clients do, without a query or a fragment: https://mcp.example.com",
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
                "give operators a port of their own, or leave it out",
            );
        }
        if host.is_some() && port.is_none() {
            conflicts.add(
                "http.admin.host is set, and http.admin.port is not: nothing would listen there",
                "name the port for operators too, or leave the host out",
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
                "give it at most 65536, which is what is kept of a request while its head arrives",
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
