//! Requirements of each protocol version, over real sockets. Tests are named after the rules that they cover.

mod batches;
mod lifecycles;
mod headers;
mod listings;
mod order;
mod results;
mod sessions;

/// The revisions that begin with a handshake, from old to new.
const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Codes of JSON-RPC and of the specification.
const PARSE: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;
