//! What a record says.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use crate::auth::Principal;
use crate::telemetry::{Record, TraceContext};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Records are written from now on.
    Start,
    /// No further ones are.
    Stop,
    /// A request was answered that calls or changes something, or all of them are recorded.
    Call,
    /// A call came to its end that had outlived its request.
    Task,
    /// A request was turned away.
    Refusal,
    /// Other rules are in force.
    Policy,
}

impl Event {
    pub const ALL: [Self; 6] = [
        Self::Start,
        Self::Stop,
        Self::Call,
        Self::Task,
        Self::Refusal,
        Self::Policy,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Call => "call",
            Self::Task => "task",
            Self::Refusal => "refusal",
            Self::Policy => "policy",
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    /// The tool says that it has failed.
    ToolError,
    /// It was understood, and could not be answered.
    Error,
    /// Who asked may not do that.
    Denied,
    /// Asked too often, or too much at once.
    Limited,
    /// It was not done, for another reason.
    Refused,
    /// It took too long.
    TimedOut,
    /// Nobody wanted the answer any more.
    Cancelled,
    /// It goes on as a task.
    Started,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Limited => "limited",
            Self::Refused => "refused",
            Self::TimedOut => "timeout",
            Self::Cancelled => "cancelled",
            Self::Started => "started",
        }
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    Tool,
    Resource,
    Prompt,
    Task,
}

impl SubjectKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Prompt => "prompt",
            Self::Task => "task",
        }
    }
}

/// What a request is about, by the name that the caller has written.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: SubjectKind,
    pub name: Box<str>,
}

/// Names are a stranger's text.
const NAME_MAX_BYTES: usize = 1024;

impl Subject {
    pub fn new(kind: SubjectKind, name: &str) -> Self {
        Self {
            kind,
            name: cut(name, NAME_MAX_BYTES).into(),
        }
    }
}

/// One record while it is put together.
#[derive(Clone, Debug)]
pub struct Entry {
    pub event: Event,
    pub time: SystemTime,
    pub outcome: Option<Outcome>,
    pub mount: Option<Box<str>>,
    pub method: Option<Box<str>>,
    pub subject: Option<Subject>,
    /// The tool by way of which the subject was called, such as `call_tool`.
    pub via: Option<Box<str>>,
    pub principal: Option<Arc<Principal>>,
    pub client: Option<IpAddr>,
    pub session: Option<Arc<str>>,
    /// The rule of the policy that decided.
    pub rule: Option<Box<str>>,
    /// Why it ended as it did, in a word: a reason, or the setting of a limit.
    pub reason: Option<Cow<'static, str>>,
    /// Of a JSON-RPC error.
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
            mount: None,
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

    /// Adds something that few records say.
    pub fn saying(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.more.push((name, value.into()));
        self
    }

    /// One object, without the line end.
    pub(super) fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| {
            object.insert(name.to_owned(), value);
        };
        put("time", stamp(self.time).into());
        put("event", self.event.as_str().into());
        if let Some(outcome) = self.outcome {
            put("outcome", outcome.as_str().into());
        }
        if let Some(principal) = &self.principal {
            put("principal", principal.name().into());
            put("principal_kind", principal.kind().as_str().into());
        }
        if let Some(client) = self.client {
            put("client", client.to_canonical().to_string().into());
        }
        if let Some(mount) = &self.mount {
            put("mount", (**mount).into());
        }
        if let Some(method) = &self.method {
            put("method", (**method).into());
        }
        if let Some(subject) = &self.subject {
            put(subject.kind.as_str(), (*subject.name).into());
        }
        if let Some(via) = &self.via {
            put("via", (**via).into());
        }
        if let Some(rule) = &self.rule {
            put("rule", (**rule).into());
        }
        if let Some(reason) = &self.reason {
            put("reason", (**reason).into());
        }
        if let Some(code) = self.code {
            put("code", code.into());
        }
        if let Some(elapsed) = self.elapsed {
            // Microseconds are enough, and keep the number short.
            let ms = (elapsed.as_secs_f64() * 1e6).round() / 1e3;
            put("duration_ms", ms.into());
        }
        if let Some(session) = &self.session {
            put("session", (**session).into());
        }
        if let Some(trace) = self.trace {
            put("trace_id", trace.trace_id().into());
            put("span_id", trace.span_id().into());
        }
        if let Some(arguments) = &self.arguments {
            put("arguments", arguments.clone());
        }
        for (name, value) in &self.more {
            put(name, value.clone());
        }
        Value::Object(object)
    }

    /// The same for a collector.
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

/// A stranger's text, cut.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

fn stamp(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => "unknown time".to_owned(),
    }
}
