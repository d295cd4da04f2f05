//! Audit records.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::telemetry::{Record, TraceContext};

longshore_protocol::named_enum! {
    /// Kind of event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Event {
        /// The audit log starts.
        Start = "start",
        /// The audit log ends.
        Stop = "stop",
        /// A call or change, or any request if all are recorded.
        Call = "call",
        /// A task has finished after its request.
        Task = "task",
        /// A request was rejected.
        Refusal = "refusal",
        /// The access policy changed.
        Policy = "policy",
    }
    pub fn as_str;
    pub const ALL;
}

longshore_protocol::named_enum! {
    /// Outcome of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Outcome {
        Ok = "ok",
        /// The tool returned an error result.
        ToolError = "tool_error",
        /// The request was valid but failed.
        Error = "error",
        /// The caller lacks permission.
        Denied = "denied",
        /// A rate or concurrency limit was exceeded.
        Limited = "limited",
        /// The request was rejected for another reason.
        Refused = "refused",
        /// The request timed out.
        TimedOut = "timeout",
        /// The client cancelled the request.
        Cancelled = "cancelled",
        /// The request continues as a task.
        Started = "started",
    }
    pub fn as_str;
}

longshore_protocol::named_enum! {
    /// Kind of a request's subject.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SubjectKind {
        Tool = "tool",
        Resource = "resource",
        Prompt = "prompt",
        Task = "task",
    }
    fn as_str;
}

/// Subject of a request, by the name that the client sent.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: SubjectKind,
    pub name: Box<str>,
}

/// Names are client input of any length.
const NAME_MAX_BYTES: usize = 1024;

impl Subject {
    pub fn new(kind: SubjectKind, name: &str) -> Self {
        Self {
            kind,
            name: short(name).into(),
        }
    }
}

/// A record under construction.
#[derive(Clone, Debug)]
pub struct Entry {
    pub event: Event,
    pub time: SystemTime,
    pub outcome: Option<Outcome>,
    pub endpoint: Option<Box<str>>,
    pub method: Option<Box<str>>,
    pub subject: Option<Subject>,
    /// Tool through which the subject was called, such as `call_tool`.
    pub via: Option<Box<str>>,
    pub principal: Option<Arc<Principal>>,
    pub client: Option<IpAddr>,
    pub session: Option<Arc<str>>,
    /// Name of the policy rule that decided.
    pub rule: Option<Box<str>>,
    /// Reason of the outcome: a keyword, or the setting of a limit.
    pub reason: Option<Cow<'static, str>>,
    /// JSON-RPC error code.
    pub code: Option<i32>,
    pub elapsed: Option<Duration>,
    pub trace: Option<TraceContext>,
    pub arguments: Option<Value>,
    more: Vec<(&'static str, Value)>,
}

impl Entry {
    pub fn new(event: Event) -> Self {
        Self {
            event,
            time: SystemTime::now(),
            outcome: None,
            endpoint: None,
            method: None,
            subject: None,
            via: None,
            principal: None,
            client: None,
            session: None,
            rule: None,
            reason: None,
            code: None,
            elapsed: None,
            trace: None,
            arguments: None,
            more: Vec::new(),
        }
    }

    /// Adds an optional field.
    pub fn saying(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.more.push((name, value.into()));
        self
    }

    /// Serializes the record as one object, without a line end.
    pub(super) fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            object.extend(value.map(|value| (name.to_owned(), value)));
        };
        let text = |text: Option<&str>| text.map(Value::from);
        put("time", Some(stamp(self.time).into()));
        put("event", Some(self.event.as_str().into()));
        put("outcome", text(self.outcome.map(Outcome::as_str)));
        if let Some(principal) = &self.principal {
            put("principal", Some(principal.name().into()));
            put("principal_kind", Some(principal.kind().as_str().into()));
            put("client_id", text(principal.client().map(short)));
            let actors: Vec<Value> = principal
                .actors()
                .map(|actor| short(actor).into())
                .collect();
            put("actors", (!actors.is_empty()).then(|| actors.into()));
        }
        let client = self.client.map(|client| client.to_canonical().to_string());
        put("client", client.map(Value::from));
        put("endpoint", text(self.endpoint.as_deref()));
        put("method", text(self.method.as_deref()));
        if let Some(subject) = &self.subject {
            put(subject.kind.as_str(), Some((*subject.name).into()));
        }
        put("via", text(self.via.as_deref()));
        put("rule", text(self.rule.as_deref()));
        put("reason", text(self.reason.as_deref()));
        put("code", self.code.map(Value::from));
        // Microsecond precision keeps the number short.
        let ms = |elapsed: Duration| (elapsed.as_secs_f64() * 1e6).round() / 1e3;
        put("duration_ms", self.elapsed.map(ms).map(Value::from));
        put("session", text(self.session.as_deref()));
        put("trace_id", self.trace.map(|trace| trace.trace_id().into()));
        put("span_id", self.trace.map(|trace| trace.span_id().into()));
        put("arguments", self.arguments.clone());
        for (name, value) in &self.more {
            put(name, Some(value.clone()));
        }
        Value::Object(object)
    }

    /// Converts the record for a collector.
    pub(super) fn to_record(&self) -> Record {
        let mut fields = Vec::new();
        if let Value::Object(object) = self.to_json() {
            for (name, value) in object {
                if matches!(&*name, "time" | "trace_id" | "span_id") {
                    continue;
                }
                let text = match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                fields.push((Cow::Owned(name), text));
            }
        }
        Record {
            time: self.time,
            level: tracing::Level::INFO,
            target: Cow::Borrowed("longshore::audit"),
            message: "audit".to_owned(),
            fields,
            trace: self.trace,
        }
    }
}

fn short(name: &str) -> &str {
    longshore_protocol::prefix(name, NAME_MAX_BYTES)
}

fn stamp(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => "unknown time".to_owned(),
    }
}
