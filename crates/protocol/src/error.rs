//! JSON-RPC errors: codes and the error object.

use std::borrow::Cow;

use serde_json::Value;

use super::push_string;

/// JSON-RPC error code.
///
/// Codes from -32768 to -32000 belong to JSON-RPC and MCP; the others are ours and equal to an HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorCode {
    /// -32700: not JSON.
    Parse,
    /// -32600: JSON, but not a JSON-RPC message.
    InvalidRequest,
    /// -32601: no such method here.
    MethodNotFound,
    /// -32602: parameters that the method cannot take, or an unknown tool.
    InvalidParams,
    /// -32603: the server's own fault.
    Internal,
    /// -32002: nothing is at that URI (before 2026-07-28).
    ResourceNotFound,
    /// -32042: a page has to be visited first; `data` says which (2025-11-25).
    UrlElicitationRequired,
    /// -32020: a header is missing, malformed, or says something else than the body (2026-07-28).
    HeaderMismatch,
    /// -32021: the client has not declared a capability that the request needs (2026-07-28).
    MissingCapability,
    /// -32022: a protocol version that is not served (2026-07-28).
    UnsupportedProtocolVersion,
    /// A refusal below the protocol: the code is the HTTP status.
    Http(u16),
    /// A code of the application's own, outside of the range that JSON-RPC reserves.
    Application(i32),
}

impl ErrorCode {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::ResourceNotFound => -32002,
            Self::UrlElicitationRequired => -32042,
            Self::HeaderMismatch => -32020,
            Self::MissingCapability => -32021,
            Self::UnsupportedProtocolVersion => -32022,
            Self::Http(status) => i32::from(status),
            Self::Application(code) => code,
        }
    }
}

/// A JSON-RPC error, without the id of the request that it answers.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorObject {
    /// Code for programs.
    pub code: ErrorCode,
    /// Message for people.
    pub message: Cow<'static, str>,
    /// More for programs, as the code demands.
    pub data: Option<Value>,
}

impl ErrorObject {
    /// A code and a message.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Adds `data`.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Writes the whole message: `id` is JSON text, and left out where it could not be read.
    pub fn write(&self, out: &mut Vec<u8>, id: Option<&str>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","#);
        if let Some(id) = id {
            out.extend_from_slice(br#""id":"#);
            out.extend_from_slice(id.as_bytes());
            out.push(b',');
        }
        out.extend_from_slice(br#""error":{"code":"#);
        out.extend_from_slice(self.code.number().to_string().as_bytes());
        out.extend_from_slice(br#","message":"#);
        push_string(out, &self.message);
        if let Some(data) = &self.data {
            out.extend_from_slice(br#","data":"#);
            out.extend_from_slice(data.to_string().as_bytes());
        }
        out.extend_from_slice(b"}}");
    }
}
