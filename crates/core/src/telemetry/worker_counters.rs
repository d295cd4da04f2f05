//! Request counters of one worker. Workers do not share them, so counting causes no cache contention.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::histogram::{self, Distribution, Histogram};
use super::operation_ids::{OPERATIONS_MAX, OTHER, OperationId};
use crate::net::Mutex;
use crate::protocol::{ErrorCode, Revision};

/// Counters of one worker, allocated on first use.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Requests of the protocol that are being answered.
    in_flight: AtomicI64,
    /// HTTP requests in progress.
    active_requests: AtomicI64,
    /// By operation; empty if nothing is to be counted.
    operations: Cells<Box<OperationCells>>,
    /// By route, method and version of HTTP, then by status.
    http: Cells<Cells<Box<Histogram>>>,
}

/// Cells that are filled on first use.
type Cells<T> = Box<[OnceLock<T>]>;

/// The transport that carries a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CountedTransport {
    /// HTTP/1.0 over TCP.
    Http10,
    /// HTTP/1.1 over TCP.
    #[default]
    Http11,
    /// HTTP/2 over TCP.
    Http2,
    /// Standard input and output.
    Pipe,
}

impl CountedTransport {
    pub const ALL: [Self; 4] = [Self::Http10, Self::Http11, Self::Http2, Self::Pipe];

    #[inline]
    pub fn of(version: http::Version) -> Self {
        match version {
            http::Version::HTTP_2 => Self::Http2,
            http::Version::HTTP_10 => Self::Http10,
            _ => Self::Http11,
        }
    }

    /// Returns the HTTP version, or `None` for stdio.
    pub(crate) fn http_version(self) -> Option<&'static str> {
        match self {
            Self::Http10 => Some("1.0"),
            Self::Http11 => Some("1.1"),
            Self::Http2 => Some("2"),
            Self::Pipe => None,
        }
    }

    pub fn transport(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Http10 | Self::Http11 | Self::Http2 => "tcp",
        }
    }
}

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OperationOutcome {
    #[default]
    Done,
    /// A result with `isError`.
    ToolError,
    /// A JSON-RPC error with this code.
    Error(i32),
    /// The client cancelled the request.
    Cancelled,
    /// More kinds of failure than are counted separately.
    Other,
}

impl OperationOutcome {
    /// The value of `error.type`.
    pub fn error_type(self) -> Option<String> {
        match self {
            Self::Done => None,
            Self::ToolError => Some("tool_error".to_owned()),
            Self::Error(code) => Some(code.to_string()),
            Self::Cancelled => Some("cancelled".to_owned()),
            Self::Other => Some(OTHER.to_owned()),
        }
    }

    /// Returns true for a code that neither the protocol nor this server defines.
    fn is_made_up(self) -> bool {
        let is_known = |code| KNOWN_CODES.iter().any(|known| known.number() == code);
        matches!(self, Self::Error(code) if !is_known(code))
    }

    /// Returns the value of `rpc.response.status_code`, which is the code of a JSON-RPC error.
    pub fn status_code(self) -> Option<String> {
        match self {
            Self::Error(code) => Some(code.to_string()),
            Self::Done | Self::ToolError | Self::Cancelled | Self::Other => None,
        }
    }
}

/// Labels of an operation's outcome, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationKey {
    /// `None` if no protocol version was negotiated.
    pub revision: Option<Revision>,
    pub wire: CountedTransport,
    pub verdict: OperationOutcome,
}

const REVISIONS: usize = Revision::ALL.len() + 1;
const WIRES: usize = CountedTransport::ALL.len();
/// Maximum number of distinct failures of one operation whose code an application made up.
const OWN_CODES_MAX: usize = 64;

/// Codes of the protocol and of this server.
const KNOWN_CODES: [ErrorCode; 20] = [
    ErrorCode::Parse,
    ErrorCode::InvalidRequest,
    ErrorCode::MethodNotFound,
    ErrorCode::InvalidParams,
    ErrorCode::Internal,
    ErrorCode::ResourceNotFound,
    ErrorCode::UrlElicitationRequired,
    ErrorCode::HeaderMismatch,
    ErrorCode::MissingCapability,
    ErrorCode::UnsupportedProtocolVersion,
    ErrorCode::Http(400),
    ErrorCode::Http(401),
    ErrorCode::Http(403),
    ErrorCode::Http(404),
    ErrorCode::Http(406),
    ErrorCode::Http(409),
    ErrorCode::Http(422),
    ErrorCode::Http(429),
    ErrorCode::Http(500),
    ErrorCode::Http(503),
];

#[derive(Debug)]
struct OperationCells {
    done: [OnceLock<Box<Histogram>>; REVISIONS * WIRES],
    /// Failures are rare, so a lock on them is not contended.
    failed: Mutex<Vec<(OperationKey, Box<Histogram>)>>,
}

/// Route label of an HTTP request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Route {
    /// No route matched, or routing did not take place.
    #[default]
    None,
    /// The MCP endpoint.
    Mcp,
    /// Tools as REST endpoints.
    Rest,
    /// Health, metrics and other operator pages.
    Operators,
}

impl Route {
    const ALL: [Self; 4] = [Self::None, Self::Mcp, Self::Rest, Self::Operators];

    /// Returns the value of `http.route`.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Mcp => Some("/mcp"),
            Self::Rest => Some("/tools"),
            Self::Operators => Some("/health"),
        }
    }
}

const HTTP_METHODS: [&str; 8] = [
    "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH", "_OTHER",
];
const STATUS_MIN: u16 = 100;
const STATUSES: usize = 500;

/// Labels of an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HttpKey {
    pub route: Route,
    method: u8,
    pub wire: CountedTransport,
    pub status: u16,
}

impl HttpKey {
    #[inline]
    pub fn new(route: Route, method: &http::Method, wire: CountedTransport, status: u16) -> Self {
        let known = HTTP_METHODS.iter().position(|m| *m == method.as_str());
        Self {
            route,
            method: known.unwrap_or(HTTP_METHODS.len() - 1) as u8,
            wire,
            status,
        }
    }

    #[inline]
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub fn method(self) -> &'static str {
        HTTP_METHODS[usize::from(self.method)]
    }

    #[inline]
    fn index(self) -> usize {
        (self.route as usize * HTTP_METHODS.len() + usize::from(self.method)) * WIRES
            + self.wire as usize
    }
}

fn empty<T>(count: usize) -> Cells<T> {
    (0..count).map(|_| OnceLock::new()).collect()
}

impl WorkerCounters {
    /// Cells that count.
    pub(super) fn counting() -> Self {
        Self {
            operations: empty(OPERATIONS_MAX),
            http: empty(Route::ALL.len() * HTTP_METHODS.len() * WIRES),
            ..Self::idle()
        }
    }

    /// Creates counters that discard everything.
    pub(super) fn idle() -> Self {
        Self {
            in_flight: AtomicI64::new(0),
            active_requests: AtomicI64::new(0),
            operations: Box::default(),
            http: Box::default(),
        }
    }

    #[inline]
    pub(crate) fn operation_begins(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// Removes one of two entries of the same operation.
    pub(crate) fn operation_replaced(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    #[inline]
    pub(crate) fn operation_ends(&self, id: OperationId, key: OperationKey, elapsed: Duration) {
        self.in_flight.fetch_sub(1, Relaxed);
        let Some(cell) = self.operations.get(id.index()) else {
            return;
        };
        let cells = cell.get_or_init(Default::default);
        if key.verdict == OperationOutcome::Done {
            let histogram = &cells.done[place(key)];
            histogram
                .get_or_init(Default::default)
                .record(histogram::OPERATION, elapsed);
        } else {
            cells.failed(key, elapsed);
        }
    }

    #[inline]
    pub(crate) fn http_begins(&self) {
        self.active_requests.fetch_add(1, Relaxed);
    }

    /// Records the response head. `None` means that no response will be sent.
    #[inline]
    pub(crate) fn http_ends(&self, answered: Option<(HttpKey, Duration)>) {
        self.active_requests.fetch_sub(1, Relaxed);
        let Some((key, elapsed)) = answered else {
            return;
        };
        let Some(cells) = self.http.get(key.index()) else {
            return;
        };
        let by_status = cells.get_or_init(|| empty(STATUSES));
        let status = usize::from(key.status.saturating_sub(STATUS_MIN)).min(STATUSES - 1);
        by_status[status]
            .get_or_init(Default::default)
            .record(histogram::HTTP, elapsed);
    }

    pub(super) fn in_flight(&self) -> i64 {
        self.in_flight.load(Relaxed)
    }

    pub(super) fn active_requests(&self) -> i64 {
        self.active_requests.load(Relaxed)
    }

    /// Calls `see` for each operation counter.
    pub(super) fn operations(&self, mut see: impl FnMut(usize, OperationKey, Distribution)) {
        for (id, cells) in self.operations.iter().enumerate() {
            let Some(cells) = cells.get() else { continue };
            for (place, histogram) in cells.done.iter().enumerate() {
                let Some(histogram) = histogram.get() else {
                    continue;
                };
                let key = OperationKey {
                    revision: Revision::ALL.get(place / WIRES).copied(),
                    wire: CountedTransport::ALL[place % WIRES],
                    verdict: OperationOutcome::Done,
                };
                see(id, key, histogram.read(histogram::OPERATION));
            }
            for (key, histogram) in &*cells.failed.lock() {
                see(id, *key, histogram.read(histogram::OPERATION));
            }
        }
    }

    /// Calls `see` for each HTTP counter.
    pub(super) fn http(&self, mut see: impl FnMut(HttpKey, Distribution)) {
        for (index, by_status) in self.http.iter().enumerate() {
            let Some(by_status) = by_status.get() else {
                continue;
            };
            for (status, histogram) in by_status.iter().enumerate() {
                let Some(histogram) = histogram.get() else {
                    continue;
                };
                let key = HttpKey {
                    route: Route::ALL[index / WIRES / HTTP_METHODS.len()],
                    method: (index / WIRES % HTTP_METHODS.len()) as u8,
                    wire: CountedTransport::ALL[index % WIRES],
                    status: STATUS_MIN + status as u16,
                };
                see(key, histogram.read(histogram::HTTP));
            }
        }
    }
}

/// Counter slot of a success.
#[inline]
fn place(key: OperationKey) -> usize {
    let revision = key.revision.map_or(REVISIONS - 1, |r| r as usize);
    revision * WIRES + key.wire as usize
}

impl Default for OperationCells {
    fn default() -> Self {
        Self {
            done: [const { OnceLock::new() }; REVISIONS * WIRES],
            failed: Mutex::default(),
        }
    }
}

impl OperationCells {
    #[cold]
    fn failed(&self, key: OperationKey, elapsed: Duration) {
        let mut failed = self.failed.lock();
        let of = |key| failed.iter().find(|(known, _)| *known == key);
        let mut known = of(key);
        let mut key = key;
        if known.is_none() && key.verdict.is_made_up() {
            let made_up = failed.iter().filter(|(key, _)| key.verdict.is_made_up());
            if OWN_CODES_MAX <= made_up.count() {
                key = OperationKey {
                    revision: None,
                    wire: CountedTransport::default(),
                    verdict: OperationOutcome::Other,
                };
                known = of(key);
            }
        }
        match known {
            Some((_, histogram)) => histogram.record(histogram::OPERATION, elapsed),
            None => {
                let histogram = Box::<Histogram>::default();
                histogram.record(histogram::OPERATION, elapsed);
                failed.push((key, histogram));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: OperationKey = OperationKey {
        revision: Some(Revision::V2025_06_18),
        wire: CountedTransport::Http2,
        verdict: OperationOutcome::Done,
    };

    #[test]
    fn what_was_counted_is_read_under_its_key() {
        let cells = WorkerCounters::counting();
        let failed = OperationKey {
            verdict: OperationOutcome::Error(-32602),
            revision: None,
            ..KEY
        };
        for key in [KEY, KEY, failed] {
            cells.operation_begins();
            assert_eq!(cells.in_flight(), 1);
            cells.operation_ends(OperationId::OTHER, key, Duration::from_millis(1));
        }
        let mut seen = Vec::new();
        cells.operations(|id, key, distribution| seen.push((id, key, distribution.count())));
        assert_eq!(seen, [(0, KEY, 2), (0, failed, 1)]);
        assert_eq!(cells.in_flight(), 0);
    }

    #[test]
    fn http_requests_are_told_apart_by_route_method_version_and_status() {
        let cells = WorkerCounters::counting();
        let key = |route, method, status| {
            let method = http::Method::from_bytes(method).expect("a method");
            HttpKey::new(route, &method, CountedTransport::Http11, status)
        };
        let keys = [
            key(Route::None, b"BREW", 418),
            key(Route::Mcp, b"POST", 200),
            key(Route::Operators, b"GET", 503),
        ];
        for key in keys {
            cells.http_begins();
            cells.http_ends(Some((key, Duration::from_millis(1))));
        }
        cells.http_begins();
        cells.http_ends(None);
        let mut seen = Vec::new();
        cells.http(|key, distribution| seen.push((key, distribution.count())));
        assert_eq!(seen, keys.map(|key| (key, 1)));
        assert_eq!(seen[0].0.method(), "_OTHER");
        assert_eq!(cells.active_requests(), 0);
    }

    #[test]
    fn codes_that_differ_without_end_are_bounded_and_displace_no_other_failure() {
        let cells = WorkerCounters::counting();
        let made_up = (1_000..2_000).map(OperationOutcome::Error);
        let known = [
            OperationOutcome::ToolError,
            OperationOutcome::Cancelled,
            OperationOutcome::Error(-32602),
            OperationOutcome::Error(503),
        ];
        for verdict in made_up.chain(known) {
            cells.operation_begins();
            cells.operation_ends(
                OperationId::OTHER,
                OperationKey { verdict, ..KEY },
                Duration::ZERO,
            );
        }
        let mut seen = Vec::new();
        cells.operations(|_, key, distribution| seen.push((key.verdict, distribution.count())));
        let others = 1_000 - OWN_CODES_MAX as u64;
        assert_eq!(seen[OWN_CODES_MAX], (OperationOutcome::Other, others));
        let known = known.map(|verdict| (verdict, 1));
        assert_eq!(seen[OWN_CODES_MAX + 1..], known);
    }
}
