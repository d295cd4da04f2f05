//! What is known of a task, wherever it runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A task as the shared state keeps it, without its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::server) struct Record {
    pub(super) id: String,
    /// Whose it is: the principal's id.
    pub(super) owner: String,
    /// The tool that was called.
    pub(super) tool: String,
    /// In milliseconds of Unix time.
    pub(super) created: i64,
    pub(super) updated: i64,
    pub(super) ttl_ms: u64,
    pub(super) poll_ms: u64,
    pub(super) status: Status,
    /// What it wants to know of its client, by names that are never used twice.
    pub(super) requests: Map<String, Value>,
    /// Where the outcome is, once there is one.
    #[serde(default)]
    pub(super) kept: Kept,
    /// The replica that runs it; 0 where nobody has said so.
    #[serde(default)]
    pub(super) runner: u64,
    /// The session whose call it is, where its client is told of changes there: in 2025-11-25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Arc<str>>,
}

/// Where an outcome is in its task's log. Parts before it are those of an attempt to keep it that failed half way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The number of its first part.
    pub(super) first: u64,
    /// How many parts it has.
    pub(super) parts: u32,
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Status {
    /// It runs; it wants to know something if there are requests.
    Running,
    /// It has a result, of which the tool says that it failed or that it did not.
    Done {
        failed: bool,
    },
    /// It has a JSON-RPC error.
    Broken,
    Cancelled,
}

/// How a call ended: the member of a JSON-RPC answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ended {
    Result(Value),
    Error(Value),
}

/// Which of the two forms of tasks a client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The extension of 2026-07-28.
    Extension,
    /// What 2025-11-25 has.
    Core,
}

impl Record {
    pub(super) fn is_over(&self) -> bool {
        self.status != Status::Running
    }

    /// Ends it, with an outcome that is kept. `false` if it is over: then it stays what it is (TKL-02).
    pub(super) fn end(&mut self, status: Status, kept: Kept) -> bool {
        let runs = !self.is_over();
        if runs {
            self.status = status;
            self.requests.clear();
            self.kept = kept;
        }
        runs
    }

    /// Whether there is nothing to say of it but that it runs.
    pub(in crate::server) fn just_works(&self) -> bool {
        !self.is_over() && self.requests.is_empty()
    }

    /// The word on the wire. A tool that says that it failed has completed in the one form and failed in the other
    /// (TSK-05, TKL-08).
    fn word(&self, form: Form) -> &'static str {
        match (self.status, form) {
            (Status::Running, _) if self.requests.is_empty() => "working",
            (Status::Running, _) => "input_required",
            (Status::Done { failed: true }, Form::Core) | (Status::Broken, _) => "failed",
            (Status::Done { .. }, _) => "completed",
            (Status::Cancelled, _) => "cancelled",
        }
    }

    /// The task as a client reads it, without its outcome.
    pub(super) fn shown(&self, form: Form) -> Map<String, Value> {
        let mut shown = Map::new();
        let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        put("taskId", self.id.clone().into());
        put("status", self.word(form).into());
        put("createdAt", timestamp(self.created).into());
        put("lastUpdatedAt", timestamp(self.updated).into());
        match form {
            Form::Extension => {
                put("ttlMs", self.ttl_ms.into());
                put("pollIntervalMs", self.poll_ms.into());
                if !self.is_over() && !self.requests.is_empty() {
                    put("inputRequests", self.requests.clone().into());
                }
            }
            Form::Core => {
                put("ttl", self.ttl_ms.into());
                put("pollInterval", self.poll_ms.into());
            }
        }
        shown
    }
}

impl Ended {
    /// Reads the answer to a request.
    pub(super) fn of_answer(answer: &[u8]) -> Self {
        let mut answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        match answer["error"].take() {
            Value::Null => Self::Result(answer["result"].take()),
            error => Self::Error(error),
        }
    }

    pub(super) fn internal(message: &str) -> Self {
        Self::Error(json!({"code": -32603, "message": message}))
    }

    pub(super) fn status(&self) -> Status {
        match self {
            Self::Result(result) => Status::Done {
                failed: result["isError"] == true,
            },
            Self::Error(_) => Status::Broken,
        }
    }
}

/// ISO 8601, in UTC.
fn timestamp(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .unwrap_or_default()
        .to_string()
}

pub(super) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(status: Status) -> Record {
        Record {
            id: "x".to_owned(),
            owner: "ada".to_owned(),
            tool: "t".to_owned(),
            created: 1_785_580_200_000,
            updated: 1_785_580_200_250,
            ttl_ms: 3_600_000,
            poll_ms: 1000,
            status,
            requests: Map::new(),
            kept: Kept::default(),
            runner: 0,
            session: None,
        }
    }

    #[test]
    fn each_form_has_its_own_names() {
        let mut record = record(Status::Running);
        assert_eq!(
            Value::from(record.shown(Form::Extension)),
            json!({
                "taskId": "x", "status": "working", "createdAt": "2026-08-01T10:30:00Z",
                "lastUpdatedAt": "2026-08-01T10:30:00.25Z", "ttlMs": 3_600_000, "pollIntervalMs": 1000,
            })
        );
        let core = record.shown(Form::Core);
        assert_eq!(
            (&core["ttl"], &core["pollInterval"]),
            (&json!(3_600_000), &json!(1000))
        );
        record.requests.insert("name".to_owned(), json!({}));
        assert_eq!(
            record.shown(Form::Extension)["inputRequests"],
            json!({"name": {}})
        );
        assert_eq!(record.shown(Form::Core)["status"], "input_required");
    }

    #[test]
    fn tsk_05_tkl_08_a_tools_own_failure_is_told_differently() {
        let word = |status, form| record(status).word(form);
        let failed = Ended::of_answer(br#"{"result":{"content":[],"isError":true}}"#).status();
        assert_eq!(word(failed, Form::Extension), "completed");
        assert_eq!(word(failed, Form::Core), "failed");
        let error = Ended::of_answer(br#"{"error":{"code":-32603,"message":"x"}}"#).status();
        assert_eq!(word(error, Form::Extension), "failed");
        assert_eq!(word(error, Form::Core), "failed");
    }
}
