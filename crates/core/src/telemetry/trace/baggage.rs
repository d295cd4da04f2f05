//! Baggage and trace state, which are passed on.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{CARRIED_MAX_BYTES, tracestate_of_headers};
use crate::protocol::message::{self, Params};

/// `tracestate` and baggage, which are passed on unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baggage {
    pub tracestate: Option<Box<str>>,
    pub(crate) baggage: Option<Box<str>>,
}

/// Propagation formats that are read from callers and passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagation {
    pub(crate) trace_context: bool,
    pub(crate) baggage: bool,
}

impl Default for Propagation {
    fn default() -> Self {
        Self {
            trace_context: true,
            baggage: true,
        }
    }
}

impl Propagation {
    /// Warning for an unknown name in `OTEL_PROPAGATORS`.
    pub const UNKNOWN: &str =
        "but only tracecontext, baggage and none are supported; it is ignored";

    /// Parses `OTEL_PROPAGATORS`, and calls `doubt` for unknown names. Default: both formats.
    pub fn read(list: Option<&str>, mut doubt: impl FnMut(&str)) -> Self {
        let Some(list) = list else {
            return Self::default();
        };
        let mut propagation = Self {
            trace_context: false,
            baggage: false,
        };
        for word in list.to_ascii_lowercase().split(',').map(str::trim) {
            match word {
                "tracecontext" => propagation.trace_context = true,
                "baggage" => propagation.baggage = true,
                "none" | "" => {}
                other => doubt(other),
            }
        }
        propagation
    }
}

impl Baggage {
    /// The trace context of `_meta`. It is parsed separately, since hardly any request has it.
    pub fn of(params: &Params<'_>, propagation: Propagation) -> Option<Box<Self>> {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow, rename = "_meta")]
            meta: Inner<'a>,
        }
        #[derive(Deserialize)]
        struct Inner<'a> {
            #[serde(borrow, default)]
            tracestate: Option<&'a RawValue>,
            #[serde(borrow, default)]
            baggage: Option<&'a RawValue>,
        }
        let Outer { meta } = serde_json::from_str(params.object?).ok()?;
        let text = |json: Option<&RawValue>| {
            let text = message::string(json?.get())?;
            (text.len() <= CARRIED_MAX_BYTES).then(|| text.into())
        };
        let carried = Self {
            tracestate: text(meta.tracestate.filter(|_| propagation.trace_context)),
            baggage: text(meta.baggage.filter(|_| propagation.baggage)),
        };
        (carried != Self::default()).then(|| Box::new(carried))
    }
}

/// Returns the `tracestate` from where the trace context came from.
pub(super) fn tracestate(
    propagation: Propagation,
    params: &Params<'_>,
    in_meta: bool,
    headers: Option<&HeaderMap>,
) -> Option<Box<str>> {
    if in_meta {
        let wanted = Propagation {
            baggage: false,
            ..propagation
        };
        return Baggage::of(params, wanted)?.tracestate;
    }
    let header = tracestate_of_headers(headers?)?;
    (propagation.trace_context && header.len() <= CARRIED_MAX_BYTES).then(|| header.into())
}
