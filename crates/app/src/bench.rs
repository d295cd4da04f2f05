//! Parts of the server for benchmarks. Not part of the public API: anything here may change at any time.

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::pin::Pin;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use serde_json::Map;

use crate::app::{App, AppError};
use crate::catalog::Arguments;
use crate::limit::{LimitConfig, Limits, RateConfig};
use crate::net::Body;
use crate::protocol::message::{Message, Payload};
use crate::protocol::{ClientCapabilities, Revision};
use crate::seal::{KeyRing, OpenedSessions, Purpose, Session, SessionIssue};
use crate::telemetry::Metrics;
use crate::transport::http::{HttpConfig, InProcess};

/// Server that handles requests as its workers do, without sockets and without hyper.
#[derive(Debug)]
pub struct Pipeline(InProcess);

/// A request as hyper hands it over.
#[derive(Debug)]
pub struct HandedOver {
    head: Parts,
    body: Body,
}

impl From<Request<Bytes>> for HandedOver {
    fn from(request: Request<Bytes>) -> Self {
        let (head, body) = request.map(Body::from).into_parts();
        Self { head, body }
    }
}

/// A response as hyper gets it.
#[derive(Debug)]
pub struct Unread(Response<Body>);

/// Body of a response in its pieces, and the session that it opens.
#[derive(Debug, Default)]
pub struct Answered {
    /// First piece, specific to the request.
    pub head: Bytes,
    /// Second piece, shared by responses.
    pub rest: Bytes,
    /// Further pieces.
    pub more: Vec<Bytes>,
    /// The value of `Mcp-Session-Id`.
    pub session: Option<HeaderValue>,
}

impl Pipeline {
    /// Creates the server of an application.
    ///
    /// # Errors
    ///
    /// Invalid tools or settings.
    pub fn new(app: App) -> Result<Self, AppError> {
        Self::with_keys(app, None)
    }

    /// Creates a server with the keys of its issuer, which are not fetched.
    ///
    /// # Errors
    ///
    /// Invalid tools or settings.
    pub fn with_keys(app: App, keys: Option<&str>) -> Result<Self, AppError> {
        let mut config = HttpConfig::default();
        config.limits.connection_requests = u32::MAX;
        let (server, gate) = app.guarded_server(keys)?;
        Ok(Self(InProcess::new(server, gate, config)))
    }

    /// Handles one request.
    #[inline]
    pub async fn respond(&self, request: HandedOver) -> Unread {
        Unread(self.0.serve(request.head, request.body).await)
    }
}

impl Unread {
    /// Reads the whole body.
    pub async fn read(self) -> Answered {
        let Self(mut response) = self;
        let body = response.body_mut();
        let (head, rest) = (frame(body).await, frame(body).await);
        let mut more = Vec::new();
        while !body.is_end_stream() {
            more.push(frame(body).await);
        }
        Answered {
            head,
            rest,
            more,
            session: response.headers_mut().remove("mcp-session-id"),
        }
    }
}

async fn frame(body: &mut Body) -> Bytes {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
    let frame = frame.and_then(Result::ok);
    frame
        .and_then(|frame| frame.into_data().ok())
        .unwrap_or_default()
}

/// Function that computes the digest of a token, and returns its first byte.
pub type TokenDigest = fn(&[u8]) -> u8;

#[cfg(feature = "sources")]
pub use crate::source::bench::CachedExchange;

/// Digests for the cache of verified tokens: SHA-256, which is used, and SHA-512/256 for comparison.
pub fn token_digests() -> [(&'static str, TokenDigest); 2] {
    use aws_lc_rs::digest::{SHA256, SHA512_256, digest};

    fn first(bytes: &[u8]) -> u8 {
        bytes.first().copied().unwrap_or_default()
    }
    [
        ("SHA-256", |token| first(digest(&SHA256, token).as_ref())),
        ("SHA-512/256", |token| {
            first(digest(&SHA512_256, token).as_ref())
        }),
    ]
}

/// Rate limit buckets, one for each address.
#[derive(Debug)]
pub struct Buckets(Limits);

impl Buckets {
    /// All of them have been asked once. None is ever empty.
    pub fn new(addresses: u32) -> Self {
        let rate = RateConfig {
            per_second: 1e9,
            burst: 0,
        };
        let config = LimitConfig {
            address: rate,
            buckets: addresses as usize,
            ..LimitConfig::default()
        };
        let buckets = Self(Limits::new(&config, &Metrics::default()));
        for address in 0..addresses {
            assert!(buckets.take(address), "a bucket is empty");
        }
        buckets
    }

    /// Takes a request of an address. Returns true if it is within the limit.
    pub fn take(&self, address: u32) -> bool {
        self.0.arrive(Ipv4Addr::from_bits(address).into()).is_ok()
    }
}

/// Reads an envelope, and says how long method, name and arguments of the request are.
pub fn scan(body: &[u8]) -> Option<usize> {
    match Payload::read(body) {
        Ok(Payload::Single(Message::Request(request))) => {
            let params = &request.params;
            let lengths = [params.name, params.arguments].map(|text| text.map_or(0, str::len));
            Some(request.id.len() + request.method.len() + lengths.iter().sum::<usize>())
        }
        _ => None,
    }
}

/// Appends a text as the inside of a JSON string.
pub fn escape(out: &mut Vec<u8>, text: &str) {
    crate::protocol::push_escaped(out, text);
}

/// Creates arguments from the text of an object.
pub fn arguments(object: Bytes) -> Arguments {
    Arguments::from_checked(object)
}

/// Parses an object with `simd-json`, regardless of its size.
pub fn tree_by_simd_json(object: &[u8]) -> Option<Map<String, serde_json::Value>> {
    crate::catalog::tree_by_simd_json(object)
}

/// A key ring, a session and a cursor of it.
#[derive(Debug)]
pub struct Seals {
    keys: KeyRing,
    opened: OpenedSessions,
    session: String,
    cursor: String,
}

const ENDPOINT: &str = "mcp";
const CURSOR: Purpose<'_> = Purpose {
    kind: "tools cursor 1",
    endpoint: ENDPOINT,
};

impl Default for Seals {
    fn default() -> Self {
        let keys = KeyRing::random();
        Self {
            opened: OpenedSessions::default(),
            session: session().seal(&keys, ENDPOINT),
            cursor: keys.sign(CURSOR, b"1000 lookup_record_01000"),
            keys,
        }
    }
}

impl Seals {
    /// Makes a session and seals it, as `initialize` does.
    pub fn seal(&self) -> String {
        session().seal(&self.keys, ENDPOINT)
    }

    /// Opens the session by decrypting its id.
    pub fn open(&self) -> bool {
        Session::open(&self.keys, ENDPOINT, self.session.as_bytes()).is_some()
    }

    /// Looks up the session in the cache of decrypted IDs.
    pub fn open_again(&mut self) -> bool {
        let id = self.session.as_bytes();
        self.opened.get(&self.keys, ENDPOINT, id).is_some()
    }

    /// Checks the cursor.
    pub fn verify(&self) -> bool {
        self.keys.verify(CURSOR, self.cursor.as_bytes()).is_some()
    }
}

fn session() -> Session {
    Session::begin(SessionIssue {
        revision: Revision::V2025_06_18,
        capabilities: ClientCapabilities::from_bits(0),
        client_name: "a client",
        client_version: "1.2.3",
        principal: "",
        replica: 1,
        now: 1_800_000_000,
        life: 24 * 60 * 60,
    })
}
