//! Telling clients that a task has changed: `notifications/tasks` on streams of `subscriptions/listen` that name it, and
//! `notifications/tasks/status` in the session that made it.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::record::{Ended, Form, Record, Status};
use super::{RELATED, Tasks};
use crate::auth::Principal;
use crate::server::Server;
use crate::state::StateError;

impl Tasks {
    /// A task as `tasks/get` shows it (TSK-04). `None` if what it gave is there no longer.
    pub(super) async fn shown(
        &self,
        record: &Record,
        form: Form,
    ) -> Result<Option<Map<String, Value>>, StateError> {
        let mut shown = record.shown(form);
        let is_settled = record.is_over() && record.status != Status::Cancelled;
        if form == Form::Core || !is_settled {
            return Ok(Some(shown));
        }
        match self.ended(record).await? {
            None => return Ok(None),
            Some(Ended::Result(result)) => drop(shown.insert("result".to_owned(), result)),
            Some(Ended::Error(error)) => {
                if let Some(message) = error["message"].as_str() {
                    shown.insert("statusMessage".to_owned(), message.into());
                }
                shown.insert("error".to_owned(), error);
            }
        }
        Ok(Some(shown))
    }
}

impl Server {
    /// What a caller is told of a task that has changed: everything that `tasks/get` would say. `None` if it is not the
    /// caller's. `subscription` is the JSON of the request that asked for it, in the stateless era (SUB-02).
    pub(in crate::server) async fn task_notice(
        &self,
        task: &str,
        caller: &Principal,
        subscription: Option<&str>,
    ) -> Option<Bytes> {
        let record = self.find_task(task, caller).await.ok()??;
        let form = match subscription {
            Some(_) => Form::Extension,
            None => Form::Core,
        };
        let shown = self.tasks.shown(&record, form).await.ok()??;
        let (method, meta) = match subscription {
            // The id is JSON already, and may be a number that is larger than any that there is here.
            Some(id) => (
                "notifications/tasks",
                format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#),
            ),
            // TKL-07.
            None => (
                "notifications/tasks/status",
                json!({RELATED: {"taskId": task}}).to_string(),
            ),
        };
        let shown = Value::from(shown).to_string();
        let members = shown.strip_prefix('{')?;
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"_meta":{meta},{members}}}"#
        );
        Some(message.into())
    }
}
