//! Handlers of `tasks/get`, `tasks/update`, `tasks/cancel` and `tasks/result`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::record::{Record, TaskDialect, TaskResult, TaskStatus};
use super::start::{extension_result, missing_extension, state_unavailable};
use super::store::Tasks;
use super::{RELATED_TASK, list, runner};
use crate::auth::Principal;
use crate::catalog::{CallContext, ClientRequestError};
use crate::limit::Limit;
use crate::protocol::message::{self, Request};
use crate::protocol::{ClientAbility, ErrorCode, ErrorObject, Method};
use crate::server::errors::{call_failed, check_scopes, invalid_params};
use crate::server::execute::{Call, PermitsNeeded};
use crate::server::inflight::BoxedCall;
use crate::server::parts::Server;
use crate::server::reply::{MaybeReady, Reply, begin};
use crate::server::request_context::RequestContext;
use crate::server::running_call::CallOutcome;
use crate::server::share::owner_of;
use crate::server::stateless;
use crate::server::stateless::missing_name;
use crate::state::StateError;

/// Handles a method about one task.
pub(crate) fn handle(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    method: Method,
    request_context: RequestContext<'_>,
) -> Result<MaybeReady, Reply> {
    let RequestContext {
        caller, request, ..
    } = request_context;
    let dialect = match caller.revision.has_sessions() {
        true => TaskDialect::Core,
        false => TaskDialect::Extension,
    };
    let first_round = without_replay(request);
    let replay = server.replay_session(
        caller,
        method.as_str(),
        request_context.body.bytes,
        &first_round,
    )?;
    if dialect == TaskDialect::Extension && !replay.declares_tasks() {
        return Err(missing_extension(request.id));
    }
    let Some(task) = request.params.rare().task_id.and_then(message::string) else {
        let problem = "taskId is required, a string: which task";
        return Err(missing_name(&request_context, problem));
    };
    if dialect == TaskDialect::Extension
        && let Some(mcp) = request_context.mcp()
    {
        stateless::check_task(request, &task, mcp)?;
    }
    let asked = TaskRequest {
        server: Arc::clone(server),
        id: request.id.to_owned(),
        task: task.into_owned(),
        caller: Arc::clone(caller.principal),
        share: owner_of(caller.principal, caller.address),
        dialect,
    };
    let (limits, share, id) = (
        Arc::clone(&server.limits),
        caller.share(),
        request.id.to_owned(),
    );
    Ok(match method {
        Method::TasksGet => MaybeReady::Pending(Box::pin(async move {
            asked.get().await.counted(&limits, share, &id)
        })),
        Method::TasksCancel => MaybeReady::Pending(Box::pin(asked.cancel())),
        Method::TasksUpdate => {
            let answers = request.params.rare().input_responses;
            let answers = answers.and_then(|text| serde_json::from_str(text).ok());
            let Some(answers) = answers else {
                return Err(invalid_params(request.id, "inputResponses is an object"));
            };
            MaybeReady::Pending(Box::pin(asked.update(answers)))
        }
        _ => {
            let Ok(waiting) = server.tasks.waiters.take(share) else {
                return Err(too_many_waiters(server, request.id));
            };
            // The request may take as long as the task, and forwards the client requests of the task.
            let options = server.calls.options(
                caller,
                Some(Duration::from_secs(server.tasks.config.ttl_seconds)),
            );
            let context = caller.context(
                request_context.headers,
                request,
                None,
                replay,
                options.timeout,
            );
            let task = asked.task.clone();
            let conclude = move |outcome: CallOutcome<Reply>| {
                MaybeReady::Ready(match outcome {
                    Ok(reply) => reply.counted(&limits, share, &id),
                    Err(failure) => {
                        call_failed(&id, ("request for the result of a task", &task), &failure)
                    }
                })
            };
            let call = Call {
                context: &context,
                options,
                permits: PermitsNeeded::None,
                start: |context| -> BoxedCall<Reply> {
                    Box::pin(async move {
                        let _waiting = waiting;
                        asked.result(context).await
                    })
                },
            };
            server.calls.execute(cx, call, conclude)
        }
    })
}

/// Rejects a request for a result because too many others wait for one.
#[cold]
fn too_many_waiters(server: &Server, id: &str) -> Reply {
    let limit = Limit::PrincipalTasks;
    server.limits.hits.count(limit);
    let setting = limit.setting();
    let message = format!(
        "too many requests wait for results of tasks: at most twice the number of tasks ({setting}, server.tasks.total); wait for one to end, or use tasks/get"
    );
    let error = ErrorObject::new(ErrorCode::Http(429), message);
    Reply::error(id, &error.with_data(json!({ "setting": setting })))
}

/// A request about a task.
struct TaskRequest {
    server: Arc<Server>,
    id: String,
    task: String,
    caller: Arc<Principal>,
    /// Owner that state entries are charged to.
    share: Option<String>,
    dialect: TaskDialect,
}

impl TaskRequest {
    async fn find(&self) -> Result<Record, Reply> {
        match list::find_task(&self.server, &self.task, &self.caller).await {
            Ok(record) => {
                let found = record.and_then(|record| {
                    let needed = list::scopes_of(&self.server, &record, &self.caller)?;
                    Some((record, needed))
                });
                let Some((record, needed)) = found else {
                    let message = "the task does not exist, or has expired";
                    return Err(invalid_params(&self.id, message));
                };
                check_scopes(&self.caller, &self.id, &needed)?;
                Ok(record)
            }
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &StateError) -> Reply {
        if let StateError::TooLarge { max, .. } = error {
            let problem = format!("a task takes up to {max} bytes of responses at once; send less");
            return invalid_params(&self.id, &problem);
        }
        if let StateError::Full | StateError::Share = error {
            let message = format!("the task goes on, but its state cannot be read now: {error}");
            return Reply::fail(&self.id, ErrorCode::Internal, message);
        }
        let streams = &self.server.streams;
        streams.report_failure(error, "a task cannot be read without the shared state");
        state_unavailable(&self.id, "the task cannot be read now; it continues")
    }

    /// TSK-04: returns the state of the task without changing it.
    async fn get(self) -> Reply {
        let record = match self.find().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        match self.server.tasks.shown(&record, self.dialect).await {
            Ok(Some(shown)) if self.dialect == TaskDialect::Core => Reply::result(&self.id, shown),
            Ok(Some(shown)) => extension_result(&self.server, &self.id, "complete", &shown),
            Ok(None) => self.lost(),
            Err(error) => self.broken(&error),
        }
    }

    /// TSK-07, TKL-04: a cancelled task stays cancelled.
    async fn cancel(self) -> Reply {
        if let Err(reply) = self.find().await {
            return reply;
        }
        let mut was_running = false;
        let change = |record: &mut Record| {
            was_running = runner::cancel(record);
            was_running
        };
        let tasks = &self.server.tasks;
        let record = match tasks.change(&self.task, change).await {
            Ok(Some(record)) => record,
            Ok(None) => return invalid_params(&self.id, "the task does not exist, or has expired"),
            Err(error) => return self.broken(&error),
        };
        // A repeated request sends the message again, since the first attempt may have failed.
        if record.status == TaskStatus::Cancelled
            && let Err(error) = tasks
                .send(&record, &json!({"cancel": true}), self.share.as_deref())
                .await
        {
            return self.broken(&error);
        }
        match self.dialect {
            TaskDialect::Extension => extension_result(&self.server, &self.id, "complete", "{}"),
            TaskDialect::Core if was_running => {
                Reply::result(&self.id, Value::from(record.shown(self.dialect)))
            }
            TaskDialect::Core => invalid_params(
                &self.id,
                "the task is over; it cannot be cancelled any more",
            ),
        }
    }

    /// TSK-07: accepts client responses, whether or not the task still waits for them.
    async fn update(self, answers: Map<String, Value>) -> Reply {
        if let Err(reply) = self.find().await {
            return reply;
        }
        match self
            .server
            .tasks
            .deliver(&self.task, answers, Map::new(), self.share.as_deref())
            .await
        {
            Ok(()) => extension_result(&self.server, &self.id, "complete", "{}"),
            Err(error) => self.broken(&error),
        }
    }

    /// TKL-03: waits for the end of the task and returns the response of its call.
    async fn result(self, context: Arc<CallContext>) -> Reply {
        // Checked before keys are derived from the untrusted id.
        if let Err(reply) = self.find().await {
            return reply;
        }
        let tasks = Arc::clone(&self.server.tasks);
        let mut changes = match tasks.changes(&self.task).await {
            Ok(changes) => changes,
            Err(error) => return self.broken(&error),
        };
        let mut asked = HashSet::new();
        let mut open = OpenQuestions::default();
        loop {
            let record = match self.find().await {
                Ok(record) => record,
                Err(reply) => return reply,
            };
            if record.is_finished() {
                return self.outcome(&record).await;
            }
            // What the tool or another client has settled is cancelled at this one.
            open.0
                .retain(|(name, _)| record.requests.contains_key(name));
            for (name, request) in &record.requests {
                // ELI-01
                if !takes(&context, request) {
                    continue;
                }
                if asked.insert(name.clone()) {
                    let related = json!({"taskId": self.task});
                    let answer = ask(&context, request, related);
                    open.0.push((name.clone(), Box::pin(answer)));
                }
            }
            // A change without an announcement is seen by the next poll.
            let change = async {
                let _ = tokio::time::timeout(POLL_INTERVAL, changes.next()).await;
            };
            let change = std::pin::pin!(change);
            let next = std::future::poll_fn(|cx| open.poll_answer(cx));
            if let Either::Right(((name, answer), _)) = select(change, next).await {
                let (mut given, mut refused) = (Map::new(), Map::new());
                match answer {
                    // A client without the method leaves the request to another one.
                    Err(ClientRequestError::Refused { code, .. })
                        if code == i64::from(ErrorCode::MethodNotFound.number()) =>
                    {
                        continue;
                    }
                    Ok(answer) => drop(given.insert(name.clone(), answer)),
                    Err(ClientRequestError::Refused { code, message }) => {
                        refused.insert(name.clone(), json!({"code": code, "message": message}));
                    }
                    // Another client may still respond.
                    Err(_) => continue,
                }
                let share = self.share.as_deref();
                let mut delivered = tasks.deliver(&self.task, given, refused, share).await;
                if let Err(StateError::TooLarge { max, .. }) = delivered {
                    // Nobody else responds to it, so the task would wait in vain.
                    let problem = format!("the response has more than {max} bytes");
                    let error = json!({"code": ErrorCode::Internal.number(), "message": problem});
                    let refused = Map::from_iter([(name, error)]);
                    delivered = tasks.deliver(&self.task, Map::new(), refused, share).await;
                }
                if let Err(error) = delivered {
                    return self.broken(&error);
                }
            }
        }
    }

    async fn outcome(&self, record: &Record) -> Reply {
        if record.status == TaskStatus::Cancelled {
            return invalid_params(&self.id, "the task was cancelled; it has no result");
        }
        match self.server.tasks.load_result(record).await {
            Ok(Some(TaskResult::Result(result))) => {
                let result = with_related(result.get(), &json!({"taskId": self.task}));
                Reply::result(&self.id, result)
            }
            Ok(Some(TaskResult::Error(error))) => {
                let mut out = begin(&self.id, 256);
                out.extend_from_slice(format!(r#","error":{error}}}"#).as_bytes());
                Reply::document(out)
            }
            Ok(None) => self.lost(),
            Err(error) => self.broken(&error),
        }
    }

    /// The task has ended, and its result was evicted or has expired.
    fn lost(&self) -> Reply {
        let message = "the result of the task is not stored any more: it has expired, or the state had no room for it (state.memory_bytes)";
        Reply::fail(&self.id, ErrorCode::Internal, message)
    }
}

/// Interval between reads of a record if no change is announced.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Returns true if the client has declared what a request of a task needs.
fn takes(context: &CallContext, request: &Value) -> bool {
    let params = &request["params"];
    let can = |ability| context.client_can(ability);
    match request["method"].as_str() {
        Some("elicitation/create") if params["mode"] == "url" => can(ClientAbility::ElicitationUrl),
        Some("elicitation/create") => can(ClientAbility::ElicitationForm),
        Some("sampling/createMessage") => {
            let has_tools = params.get("tools").is_some() || params.get("toolChoice").is_some();
            let context = params.get("includeContext");
            let has_context = context.is_some_and(|context| context != "none");
            can(ClientAbility::Sampling)
                && (!has_tools || can(ClientAbility::SamplingTools))
                && (!has_context || can(ClientAbility::SamplingContext))
        }
        Some("roots/list") => can(ClientAbility::Roots),
        _ => false,
    }
}

/// Client requests of a task that were sent, by their names. Dropping one cancels it at the client.
#[derive(Default)]
struct OpenQuestions(Vec<(String, BoxFuture<'static, Answer>)>);

type Answer = Result<Value, ClientRequestError>;

impl OpenQuestions {
    /// Polls for the next response.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<(String, Answer)> {
        let mut all = self.0.iter_mut().enumerate();
        let answered = all.find_map(|(position, (_, answer))| match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Some((position, answer)),
            Poll::Pending => None,
        });
        match answered {
            Some((position, answer)) => Poll::Ready((self.0.swap_remove(position).0, answer)),
            None => Poll::Pending,
        }
    }
}

/// Sends a client request of a task.
fn ask(
    context: &Arc<CallContext>,
    request: &Value,
    related: Value,
) -> impl Future<Output = Answer> + Send + use<> {
    let context = Arc::clone(context);
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    let params = related_params(&request["params"], related);
    async move { context.send_request(&method, params).await }
}

/// Adds the task to the `_meta` of a result, whose other members stay as they are.
fn with_related(result: &str, related: &Value) -> String {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(result).unwrap_or_default();
    let meta = members.get("_meta").map(|meta| meta.get());
    let meta = meta.and_then(|meta| serde_json::from_str(meta).ok());
    let mut meta: BTreeMap<&str, &RawValue> = meta.unwrap_or_default();
    meta.remove(RELATED_TASK);
    let mut text = format!(r#"{{"_meta":{{"{RELATED_TASK}":{related}"#);
    for (name, value) in meta {
        text.push_str(&format!(",{}:{value}", Value::from(name)));
    }
    text.push('}');
    for (name, value) in members.iter().filter(|(name, _)| *name != "_meta") {
        text.push_str(&format!(",{}:{value}", Value::from(name.as_str())));
    }
    text.push('}');
    text
}

/// Adds the task to the parameters of its client request. A request of an upstream can have anything in their place.
fn related_params(params: &Value, related: Value) -> Value {
    let mut params = params.as_object().cloned().unwrap_or_default();
    let meta = params.get("_meta").and_then(Value::as_object);
    let mut meta = meta.cloned().unwrap_or_default();
    meta.insert(RELATED_TASK.to_owned(), related);
    params.insert("_meta".to_owned(), meta.into());
    params.into()
}

impl Tasks {
    /// Delivers client responses to a task. Ignores responses without a pending request.
    async fn deliver(
        &self,
        id: &str,
        mut answers: Map<String, Value>,
        mut errors: Map<String, Value>,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let Some(record) = self.get(id).await?.filter(|record| !record.is_finished()) else {
            return Ok(());
        };
        answers.retain(|name, _| record.requests.contains_key(name));
        errors.retain(|name, _| record.requests.contains_key(name));
        let names: Vec<_> = answers.keys().chain(errors.keys()).cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        // The message is sent before the record changes. It may be sent twice, but a retry must still find the
        // request.
        let message = json!({"answers": answers, "errors": errors});
        self.send(&record, &message, share).await?;
        let change = |record: &mut Record| {
            let known = record.requests.len();
            record.requests.retain(|name, _| !names.contains(name));
            record.requests.len() < known
        };
        self.change(id, change).await.map(drop)
    }
}

/// Copies the request without the data of a replay.
fn without_replay<'a>(request: &Request<'a>) -> Request<'a> {
    Request {
        id: request.id,
        method: request.method.clone(),
        params: message::Params {
            meta: request.params.meta.clone(),
            ..message::Params::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_related_to_its_task_and_keeps_its_other_members() {
        let related = json!({"taskId": "1"});
        let number = "123456789012345678901234567890";
        for (result, meta) in [
            (
                format!(r#"{{"content":[],"structuredContent":{{"n":{number}}}}}"#),
                json!({}),
            ),
            (
                format!(r#"{{"structuredContent":{{"n":{number}}},"_meta":{{"a":1}}}}"#),
                json!({"a": 1}),
            ),
        ] {
            let mut expected = meta;
            expected[RELATED_TASK] = related.clone();
            let text = with_related(&result, &related);
            assert!(text.contains(number), "{text}");
            let read: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(read["_meta"], expected);
        }
    }

    #[test]
    fn params_of_any_shape_are_related_to_their_task() {
        let related = json!({"taskId": "1"});
        let only = json!({"_meta": {RELATED_TASK: related}});
        for params in [
            json!(null),
            json!("boom"),
            json!([1]),
            json!({"_meta": "boom"}),
        ] {
            assert_eq!(related_params(&params, related.clone()), only, "{params}");
        }
        let params = json!({"messages": [], "_meta": {"a": 1}});
        let expected = json!({"messages": [], "_meta": {"a": 1, RELATED_TASK: related}});
        assert_eq!(related_params(&params, related), expected);
    }
}
