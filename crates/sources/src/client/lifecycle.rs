//! Detection of a server's lifecycle: modern (2026-07-28, metadata on each request) or legacy (an `initialize` handshake).

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::wire::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use super::{ClientError, RpcError};
use crate::net::Mutex;
use crate::protocol::{Implementation, Revision};

/// Protocol lifecycle that a connection begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Lifecycle {
    /// `server/discover` first, and `initialize` if the server turns out to be a legacy one.
    #[default]
    Auto,
    /// `server/discover` only: revision 2026-07-28.
    Modern,
    /// `initialize` only: revisions up to 2025-11-25.
    Legacy,
}

impl Lifecycle {
    /// Returns the name of the setting's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }
}

/// Cached lifecycle of a server. Clones share it, so that later connections to the same server skip the probe.
#[derive(Clone, Debug, Default)]
pub struct LifecycleCache(Arc<Mutex<Option<DetectedLifecycle>>>);

/// Lifecycle and transport of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetectedLifecycle {
    Modern,
    Legacy,
    /// Legacy, over HTTP+SSE of 2024-11-05.
    HttpSse,
}

impl LifecycleCache {
    pub(super) fn get(&self) -> Option<DetectedLifecycle> {
        *self.0.lock()
    }

    pub(super) fn set(&self, lifecycle: DetectedLifecycle) {
        *self.0.lock() = Some(lifecycle);
    }

    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }
}

/// Returns true if a legacy server does not send this code.
pub(super) fn is_modern(code: i64) -> bool {
    matches!(
        code,
        HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION
    )
}

/// The result of `server/discover`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Discovered {
    pub(super) supported_versions: Vec<String>,
    #[serde(default)]
    pub(super) capabilities: Map<String, Value>,
    pub(super) instructions: Option<String>,
    /// Member in which drafts of the revision had the server's implementation.
    pub(super) server_info: Option<Implementation>,
    #[serde(default, rename = "_meta")]
    pub(super) meta: Map<String, Value>,
}

/// Conclusion about the server from the outcome of `server/discover`.
#[derive(Debug)]
pub(super) enum DiscoveryOutcome {
    /// The server speaks 2026-07-28.
    Modern(Box<Discovered>),
    /// The server is modern and rejected the request's version, but supports it.
    Again,
    /// The server needs `initialize`.
    Legacy {
        /// The newest version that both support, if the server named any.
        revision: Option<Revision>,
        /// True if the server's response was conclusive. Otherwise the failure may have been temporary.
        is_certain: bool,
    },
    /// The server did not respond in time.
    Silent,
    /// Neither lifecycle is worth an attempt: credentials are missing, or the server is unreachable or overloaded.
    Failed(ClientError),
}

/// Decides by the outcome of `server/discover` which lifecycle a server has.
///
/// Legacy servers respond to an unknown request in arbitrary ways. Every outcome therefore counts as legacy, unless
/// it is modern or is unrelated to the request.
pub(super) fn judge(outcome: Result<Box<RawValue>, ClientError>) -> DiscoveryOutcome {
    let legacy = |is_certain| DiscoveryOutcome::Legacy {
        revision: None,
        is_certain,
    };
    match outcome {
        Ok(result) => match serde_json::from_str::<Discovered>(result.get()) {
            Ok(discovered) => {
                let versions = discovered.supported_versions.clone();
                match choose(&versions) {
                    Choice::Modern => DiscoveryOutcome::Modern(Box::new(discovered)),
                    Choice::Legacy(revision) => DiscoveryOutcome::Legacy {
                        revision: Some(revision),
                        is_certain: true,
                    },
                    Choice::None => DiscoveryOutcome::Failed(no_common(&versions)),
                }
            }
            Err(_) => legacy(true),
        },
        Err(ClientError::Rpc(error)) if error.code == UNSUPPORTED_VERSION => {
            let versions = supported(&error);
            match choose(&versions) {
                Choice::Modern => DiscoveryOutcome::Again,
                Choice::Legacy(revision) => DiscoveryOutcome::Legacy {
                    revision: Some(revision),
                    is_certain: true,
                },
                Choice::None if versions.is_empty() => DiscoveryOutcome::Failed(error.into()),
                Choice::None => DiscoveryOutcome::Failed(no_common(&versions)),
            }
        }
        Err(ClientError::Rpc(error)) if is_modern(error.code) => {
            DiscoveryOutcome::Failed(error.into())
        }
        Err(ClientError::Rpc(error)) => match error.status {
            Some(status) if is_about_something_else(status) => {
                DiscoveryOutcome::Failed(error.into())
            }
            status => legacy(status.is_none_or(|status| status < 500)),
        },
        Err(ClientError::Status { status, said }) if is_about_something_else(status) => {
            DiscoveryOutcome::Failed(ClientError::Status { status, said })
        }
        Err(ClientError::Status { status, .. }) => legacy(status < 500),
        Err(ClientError::Timeout(_)) => DiscoveryOutcome::Silent,
        // An empty or unreadable response to a request that the server did not understand.
        Err(
            ClientError::Protocol(_)
            | ClientError::TooLarge { .. }
            | ClientError::RevisionRefused { .. },
        ) => legacy(true),
        // The server may have been about to restart.
        Err(ClientError::Gone(_) | ClientError::SessionEnded) => legacy(false),
        Err(ClientError::Http(error)) if error.may_have_happened() => legacy(false),
        Err(error) => DiscoveryOutcome::Failed(error),
    }
}

/// Returns true for statuses that `initialize` would get too: payment, proxy, timeout, rate limit, and
/// unavailability.
fn is_about_something_else(status: u16) -> bool {
    matches!(
        status,
        300..=399 | 401 | 402 | 407 | 408 | 421 | 425 | 429 | 502..=504
    )
}

/// Returns true for an error that a proxy, or a server that restarts or is overloaded, responds with for a while.
pub(crate) fn is_temporary(error: &RpcError) -> bool {
    error
        .status
        .is_some_and(|status| status == 500 || is_about_something_else(status))
}

enum Choice {
    Modern,
    Legacy(Revision),
    None,
}

fn choose(versions: &[String]) -> Choice {
    let known = versions
        .iter()
        .filter_map(|version| Revision::parse(version));
    match known.max() {
        Some(revision) if revision.has_sessions() => Choice::Legacy(revision),
        Some(_) => Choice::Modern,
        None => Choice::None,
    }
}

fn no_common(versions: &[String]) -> ClientError {
    ClientError::Protocol(format!("it speaks only revisions {versions:?}"))
}

/// The versions in an `UnsupportedProtocolVersionError`.
fn supported(error: &RpcError) -> Vec<String> {
    let versions = error.data.as_ref().map(|data| &data["supported"]);
    let versions = versions.and_then(Value::as_array).into_iter().flatten();
    let versions = versions.filter_map(Value::as_str);
    versions.map(str::to_owned).collect()
}

/// Returns true if the outcome of `initialize` suggests that the server has left its cached lifecycle.
pub(super) fn refutes_legacy(error: &ClientError) -> bool {
    match error {
        ClientError::Rpc(RpcError { status, .. }) => {
            status.is_none_or(|status| !is_about_something_else(status))
        }
        ClientError::Status { status, .. } => !is_about_something_else(*status),
        ClientError::Protocol(_)
        | ClientError::RevisionRefused { .. }
        | ClientError::SessionEnded => true,
        _ => false,
    }
}

/// Returns true if a rejected `initialize` suggests a server of HTTP+SSE, which has its stream at the same URL.
pub(super) fn may_be_http_sse(error: &ClientError) -> bool {
    let status = match error {
        ClientError::Rpc(error) if is_modern(error.code) => return false,
        ClientError::Rpc(error) => error.status,
        ClientError::Status { status, .. } => Some(*status),
        _ => None,
    };
    matches!(status, Some(400 | 404 | 405 | 406 | 415))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rpc(code: i64, status: Option<u16>, data: Option<Value>) -> ClientError {
        let mut error = RpcError::new(code, "no");
        error.status = status;
        error.data = data;
        error.into()
    }

    fn result(value: &Value) -> Result<Box<RawValue>, ClientError> {
        Ok(RawValue::from_string(value.to_string()).expect("JSON"))
    }

    /// In one word.
    fn reported(outcome: Result<Box<RawValue>, ClientError>) -> String {
        match judge(outcome) {
            DiscoveryOutcome::Modern(_) => "modern".to_owned(),
            DiscoveryOutcome::Again => "again".to_owned(),
            DiscoveryOutcome::Legacy {
                revision: Some(revision),
                ..
            } => format!("legacy {revision}"),
            DiscoveryOutcome::Legacy { is_certain, .. } => match is_certain {
                true => "legacy".to_owned(),
                false => "legacy?".to_owned(),
            },
            DiscoveryOutcome::Silent => "silent".to_owned(),
            DiscoveryOutcome::Failed(error) => format!("failed: {error}"),
        }
    }

    #[test]
    fn results_of_server_discover_are_judged_by_the_versions_in_them() {
        for (value, expected) in [
            (
                json!({"supportedVersions": ["2025-11-25", "2026-07-28"]}),
                "modern",
            ),
            (
                json!({"supportedVersions": ["2025-06-18", "2025-11-25"]}),
                "legacy 2025-11-25",
            ),
            (
                json!({"supportedVersions": ["2030-01-01"]}),
                "failed: it does not speak MCP: it speaks only revisions [\"2030-01-01\"]",
            ),
            // A legacy server that answers whatever it is asked.
            (json!({}), "legacy"),
            (
                json!({"protocolVersion": "2024-11-05", "capabilities": {}}),
                "legacy",
            ),
            (json!([1]), "legacy"),
        ] {
            assert_eq!(reported(result(&value)), expected, "{value}");
        }
    }

    #[test]
    fn a_modern_error_is_no_reason_to_fall_back() {
        let versions = |versions: Value| Some(json!({"supported": versions, "requested": "x"}));
        for (data, expected) in [
            (versions(json!(["2026-07-28"])), "again"),
            (
                versions(json!(["2025-06-18", "2030-01-01"])),
                "legacy 2025-06-18",
            ),
            (
                versions(json!(["2030-01-01"])),
                "failed: it does not speak MCP: it speaks only revisions [\"2030-01-01\"]",
            ),
            (None, "failed: no (-32022)"),
        ] {
            assert_eq!(reported(Err(rpc(-32022, Some(400), data))), expected);
        }
        assert_eq!(
            reported(Err(rpc(-32020, Some(400), None))),
            "failed: no (-32020)"
        );
        assert_eq!(
            reported(Err(rpc(-32021, Some(400), None))),
            "failed: no (-32021)"
        );
    }

    #[test]
    fn old_servers_are_recognized_however_they_answer() {
        for code in [-32600, -32601, -32602, -32603, -32000, -32002, 0, 1] {
            for status in [None, Some(200), Some(400), Some(404), Some(405)] {
                assert_eq!(reported(Err(rpc(code, status, None))), "legacy", "{code}");
            }
        }
        let status = |status| {
            reported(Err(ClientError::Status {
                status,
                said: String::new(),
            }))
        };
        for legacy in [400, 403, 404, 405, 406, 410, 415, 422] {
            assert_eq!(status(legacy), "legacy", "{legacy}");
        }
        for unsure in [500, 501] {
            assert_eq!(status(unsure), "legacy?", "{unsure}");
        }
        for other in [301, 407, 429, 502, 503, 504] {
            assert!(status(other).starts_with("failed: "), "{other}");
        }
        let unauthorized = ClientError::Unauthorized {
            challenge: String::new(),
        };
        assert!(reported(Err(unauthorized)).starts_with("failed: "));
        let silent = ClientError::Timeout(std::time::Duration::from_secs(1));
        assert_eq!(reported(Err(silent)), "silent");
        assert_eq!(
            reported(Err(ClientError::Protocol("202".to_owned()))),
            "legacy"
        );
        assert_eq!(reported(Err(ClientError::Gone("x".to_owned()))), "legacy?");
    }

    #[test]
    fn an_error_of_a_server_that_restarts_is_temporary() {
        let is_temporary = |status| {
            let ClientError::Rpc(error) = rpc(-32000, status, None) else {
                unreachable!();
            };
            is_temporary(&error)
        };
        for status in [429, 500, 502, 503, 504] {
            assert!(is_temporary(Some(status)), "{status}");
        }
        for status in [None, Some(400), Some(404), Some(501)] {
            assert!(!is_temporary(status), "{status:?}");
        }
    }

    #[test]
    fn http_sse_is_tried_where_the_url_has_no_such_method() {
        for status in [400, 404, 405] {
            assert!(may_be_http_sse(&rpc(-32600, Some(status), None)));
            assert!(!may_be_http_sse(&rpc(-32022, Some(status), None)));
        }
        assert!(!may_be_http_sse(&rpc(-32601, Some(200), None)));
        assert!(!may_be_http_sse(&rpc(-32601, None, None)));
    }
}
