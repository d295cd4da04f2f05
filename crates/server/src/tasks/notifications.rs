//! Task notifications: `notifications/tasks` on `subscriptions/listen` streams, and `notifications/tasks/status` in
//! the session that started the task.

use bytes::Bytes;
use serde_json::{Value, json};

use super::list;
use super::record::{Record, TaskDialect, TaskResult, TaskStatus};
use super::{RELATED_TASK, Tasks};
use crate::auth::Principal;
use crate::server::parts::Server;
use crate::state::StateError;

impl Tasks {
    /// A task as in `tasks/get` (TSK-04), as the text of a JSON object. Returns `None` if its result has expired.
    pub(super) async fn shown(
        &self,
        record: &Record,
        dialect: TaskDialect,
    ) -> Result<Option<String>, StateError> {
        let mut shown = record.shown(dialect);
        let is_settled = record.is_finished() && record.status != TaskStatus::Cancelled;
        if dialect == TaskDialect::Core || !is_settled {
            return Ok(Some(Value::from(shown).to_string()));
        }
        let (name, outcome) = match self.load_result(record).await? {
            None => return Ok(None),
            Some(TaskResult::Result(result)) => ("result", result),
            Some(TaskResult::Error(error)) => {
                let read: Value = serde_json::from_str(error.get()).unwrap_or_default();
                if let Some(message) = read["message"].as_str() {
                    shown.insert("statusMessage".to_owned(), message.into());
                }
                ("error", error)
            }
        };
        let mut shown = Value::from(shown).to_string();
        shown.pop();
        shown.push_str(&format!(r#","{name}":{outcome}}}"#));
        Ok(Some(shown))
    }
}

/// Notification of a changed task, with the same content as `tasks/get`. Returns `None` if the task does not
/// belong to the caller, or its tool requires a scope that the caller lacks.
///
/// `subscription` is the JSON-RPC id of the subscribing request, in the stateless lifecycle (SUB-02).
pub(crate) async fn task_notice(
    server: &Server,
    task: &str,
    caller: &Principal,
    subscription: Option<&str>,
) -> Result<Option<Bytes>, StateError> {
    let record = list::find_task(server, task, caller).await?;
    let Some(record) = record.filter(|record| list::may_use(server, record, caller)) else {
        return Ok(None);
    };
    let dialect = match subscription {
        Some(_) => TaskDialect::Extension,
        None => TaskDialect::Core,
    };
    let Some(shown) = server.tasks.shown(&record, dialect).await? else {
        return Ok(None);
    };
    let (method, meta) = match subscription {
        // The id is JSON text; as a number it may exceed the range of any type here.
        Some(id) => (
            "notifications/tasks",
            format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#),
        ),
        // TKL-07.
        None => (
            "notifications/tasks/status",
            json!({RELATED_TASK: {"taskId": task}}).to_string(),
        ),
    };
    let members = shown.strip_prefix('{').unwrap_or_default();
    let message =
        format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{meta},{members}}}"#);
    Ok(Some(message.into()))
}
