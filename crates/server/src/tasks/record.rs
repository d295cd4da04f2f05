//! Record of a task.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// A task in the shared state, without its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(super) id: String,
    /// Id of the principal that owns the task.
    pub(super) owner: String,
    /// Name of the tool.
    pub(super) tool: String,
    /// Unix time in milliseconds.
    pub(super) created: i64,
    pub(super) updated: i64,
    pub(super) ttl_ms: u64,
    pub(super) poll_ms: u64,
    pub(super) status: TaskStatus,
    /// Pending client requests. Names are never reused.
    pub(super) requests: Map<String, Value>,
    /// Location of the result.
    #[serde(default)]
    pub(super) kept: StoredResult,
    /// Replica that runs the task; 0 in records of earlier versions.
    #[serde(default)]
    pub(super) runner: u64,
    /// Session that is notified of changes, in 2025-11-25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Arc<str>>,
    /// Scopes that the tool itself requires. They also hold once the tool is removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) scopes: Vec<String>,
}

/// Location of a result in its log. Earlier parts belong to a failed attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredResult {
    /// Number of the first part.
    pub(super) first: u64,
    /// Number of parts.
    pub(super) parts: u32,
}

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum TaskStatus {
    /// Running. With pending client requests, it waits for input.
    Running,
    /// Completed with a result, which may report a failure of the tool.
    Done {
        failed: bool,
    },
    /// Failed with a JSON-RPC error.
    Broken,
    Cancelled,
}

/// Result of the call: a member of a JSON-RPC response, as JSON text, which keeps all digits of its numbers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TaskResult {
    Result(Box<RawValue>),
    Error(Box<RawValue>),
}

/// Protocol form of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskDialect {
    /// The extension of 2026-07-28.
    Extension,
    /// The experimental tasks of 2025-11-25.
    Core,
}

impl Record {
    pub(super) fn is_finished(&self) -> bool {
        self.status != TaskStatus::Running
    }

    /// Ends the task. Returns false if it has ended before; then nothing changes (TKL-02).
    pub(super) fn end(&mut self, status: TaskStatus, kept: StoredResult) -> bool {
        let runs = !self.is_finished();
        if runs {
            self.status = status;
            self.requests.clear();
            self.kept = kept;
        }
        runs
    }

    /// Returns true if the task runs and waits for nothing.
    pub(crate) fn is_working(&self) -> bool {
        !self.is_finished() && self.requests.is_empty()
    }

    /// Status on the wire. A failure reported by the tool is `failed` in one dialect and `completed` in the other
    /// (TSK-05, TKL-08).
    fn word(&self, dialect: TaskDialect) -> &'static str {
        match (self.status, dialect) {
            (TaskStatus::Running, _) if self.requests.is_empty() => "working",
            (TaskStatus::Running, _) => "input_required",
            (TaskStatus::Done { failed: true }, TaskDialect::Core) | (TaskStatus::Broken, _) => {
                "failed"
            }
            (TaskStatus::Done { .. }, _) => "completed",
            (TaskStatus::Cancelled, _) => "cancelled",
        }
    }

    /// The task as JSON, without its result.
    pub(super) fn shown(&self, dialect: TaskDialect) -> Map<String, Value> {
        let mut shown = Map::new();
        let mut put = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        put("taskId", self.id.clone().into());
        put("status", self.word(dialect).into());
        put("createdAt", timestamp(self.created).into());
        put("lastUpdatedAt", timestamp(self.updated).into());
        match dialect {
            TaskDialect::Extension => {
                put("ttlMs", self.ttl_ms.into());
                put("pollIntervalMs", self.poll_ms.into());
                if !self.is_finished() && !self.requests.is_empty() {
                    put("inputRequests", self.requests.clone().into());
                }
            }
            TaskDialect::Core => {
                put("ttl", self.ttl_ms.into());
                put("pollInterval", self.poll_ms.into());
            }
        }
        shown
    }
}

impl TaskResult {
    /// Parses a JSON-RPC response.
    pub(super) fn of_answer(answer: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Answer {
            result: Option<Box<RawValue>>,
            error: Option<Box<RawValue>>,
        }
        match serde_json::from_slice(answer) {
            Ok(Answer {
                error: Some(error), ..
            }) => Self::Error(error),
            Ok(Answer {
                result: Some(result),
                ..
            }) => Self::Result(result),
            _ => Self::internal("Internal error"),
        }
    }

    pub(super) fn internal(message: &str) -> Self {
        let error = json!({"code": -32603, "message": message});
        Self::Error(to_raw_value(&error).unwrap_or_default())
    }

    pub(super) fn status(&self) -> TaskStatus {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Head {
            is_error: bool,
        }
        match self {
            Self::Result(result) => {
                let Head { is_error } = serde_json::from_str(result.get()).unwrap_or_default();
                TaskStatus::Done { failed: is_error }
            }
            Self::Error(_) => TaskStatus::Broken,
        }
    }
}

/// ISO 8601 in UTC.
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

    fn record(status: TaskStatus) -> Record {
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
            kept: StoredResult::default(),
            runner: 0,
            session: None,
            scopes: Vec::new(),
        }
    }

    #[test]
    fn each_form_has_its_own_names() {
        let mut record = record(TaskStatus::Running);
        assert_eq!(
            Value::from(record.shown(TaskDialect::Extension)),
            json!({
                "taskId": "x", "status": "working", "createdAt": "2026-08-01T10:30:00Z",
                "lastUpdatedAt": "2026-08-01T10:30:00.25Z", "ttlMs": 3_600_000, "pollIntervalMs": 1000,
            })
        );
        let core = record.shown(TaskDialect::Core);
        assert_eq!(
            (&core["ttl"], &core["pollInterval"]),
            (&json!(3_600_000), &json!(1000))
        );
        record.requests.insert("name".to_owned(), json!({}));
        assert_eq!(
            record.shown(TaskDialect::Extension)["inputRequests"],
            json!({"name": {}})
        );
        assert_eq!(record.shown(TaskDialect::Core)["status"], "input_required");
    }

    #[test]
    fn tsk_05_tkl_08_a_tools_own_failure_is_told_differently() {
        let word = |status, dialect| record(status).word(dialect);
        let failed = TaskResult::of_answer(br#"{"result":{"content":[],"isError":true}}"#).status();
        assert_eq!(word(failed, TaskDialect::Extension), "completed");
        assert_eq!(word(failed, TaskDialect::Core), "failed");
        let error = TaskResult::of_answer(br#"{"error":{"code":-32603,"message":"x"}}"#).status();
        assert_eq!(word(error, TaskDialect::Extension), "failed");
        assert_eq!(word(error, TaskDialect::Core), "failed");
    }

    #[test]
    fn a_result_keeps_all_digits_of_its_numbers() {
        let answer = br#"{"result":{"structuredContent":{"n":1e400}}}"#;
        let kept = serde_json::to_vec(&TaskResult::of_answer(answer)).expect("JSON");
        let TaskResult::Result(result) = serde_json::from_slice(&kept).expect("a result") else {
            panic!("a result");
        };
        assert_eq!(result.get(), r#"{"structuredContent":{"n":1e400}}"#);
    }
}
