//! Tasks: calls that outlive their request.
//!
//! There are two dialects. In the extension of 2026-07-28, the server decides whether a call becomes a task, and
//! `tasks/get` returns its state and result. In 2025-11-25, the client decides, and `tasks/result` waits for the end.
//!
//! Both use the same implementation: a record in the shared state, written before its id is returned, and a runner
//! that drives the call. Messages to a task go through a log in the shared state, so any replica can handle a
//! request.

mod config;
mod list;
mod liveness;
mod inbox;
mod notifications;
mod record;
mod runner;
mod orphans;
mod store;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable, Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Map, Value, json};

pub use config::TaskConfig;
pub(crate) use store::Tasks;

use super::audit_record::TaskAuditRecord;
use super::dispatch::missing_name;
use super::inflight::{self, BoxedCall, CallOutcome, CatchUnwind};
use super::reply::{Refusal, Reply, begin};
use super::share::owner_of;
use super::tools::{internal_error, invalid_params};
use super::{Caller, MaybeReady, RequestContext, Server, call_stream, stateless};
use crate::auth::Principal;
use crate::catalog::{AskError, CallContext, Output, TASKS_EXTENSION, TaskSupport, ToolError};
use crate::limit::{Held, Limit, Turn};
use crate::net;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::state::StateError;
use record::{Record, StoredResult, TaskDialect, TaskResult, TaskStatus, now_ms};
use runner::Runner;

/// Key of the task id in the `_meta` of a message (TKL-07).
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// A call that may become a task.
pub(super) struct TaskCall {
    pub(super) call: CatchUnwind<Result<Output, ToolError>>,
    pub(super) context: Arc<CallContext>,
    pub(super) tool: String,
    /// True if the call becomes a task only when its tool says so.
    pub(super) later: bool,
    /// Delay after which the response becomes a stream, if the caller accepts one.
    pub(super) stream_after: Option<Duration>,
    /// True if the call is cancelled by request id, not by a disconnect.
    pub(super) runs_on: bool,
    pub(super) options: TaskOptions,
    /// Audit record of the end of the task.
    pub(super) audited: Option<TaskAuditRecord>,
}

/// Options of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskOptions {
    dialect: TaskDialect,
    /// Maximum duration of the task, and retention of its result.
    ttl: Duration,
    /// Maximum duration of the call before it becomes a task.
    timeout: Duration,
}

impl TaskOptions {
    /// How long the task may run.
    pub(super) fn lifetime(self) -> Duration {
        self.ttl
    }
}

impl Server {
    /// Returns the options if the call becomes a task (TSK-01, TSK-12, TKL-01).
    pub(super) fn task_options(
        &self,
        caller: Caller<'_>,
        support: TaskSupport,
        context: &CallContext,
        request: &Request<'_>,
        timeout: Duration,
    ) -> Result<Option<TaskOptions>, Reply> {
        let most = Duration::from_secs(self.tasks.config.ttl_seconds);
        let options = |dialect, ttl| {
            Ok(Some(TaskOptions {
                dialect,
                ttl,
                timeout,
            }))
        };
        if caller.revision.has_sessions() {
            let wish = request
                .params
                .rare()
                .task
                .filter(|_| caller.revision.has_core_tasks());
            let wish = wish.filter(|_| self.snapshot.load().offers(Method::TasksGet));
            return match (wish, support) {
                (None, TaskSupport::Required) => Err(task_mode_error(
                    request.id,
                    "this tool runs as a task only; say so with `task`",
                )),
                (None, _) => Ok(None),
                (Some(_), TaskSupport::Forbidden) => Err(task_mode_error(
                    request.id,
                    "this tool does not run as a task",
                )),
                (Some(wish), _) => {
                    let ttl =
                        read_ttl(wish).map_err(|problem| invalid_params(request.id, problem))?;
                    options(TaskDialect::Core, ttl.unwrap_or(most).min(most))
                }
            };
        }
        match support {
            TaskSupport::Forbidden => Ok(None),
            _ if context.asking.declares_tasks() => options(TaskDialect::Extension, most),
            TaskSupport::Required => Err(missing_extension(request.id)),
            TaskSupport::Optional => Ok(None),
        }
    }

    /// Starts a task after it got its concurrency permits. The response is its handle, or the result of a call that
    /// ended before it became a task.
    pub(super) fn begin_task(
        self: &Arc<Self>,
        id: &str,
        task: TaskCall,
        turn: Turn,
        conclude: impl FnOnce(&str, CallOutcome<Result<Output, ToolError>>) -> MaybeReady
        + Send
        + 'static,
    ) -> MaybeReady {
        let (server, id) = (Arc::clone(self), id.to_owned());
        let waits = task.later && task.options.dialect == TaskDialect::Extension;
        match waits {
            true => task.context.asking.may_become_task(),
            false => task.context.asking.become_task(task.options.ttl),
        }
        let (context, stream_after) = (Arc::clone(&task.context), task.stream_after);
        let runs_on = task.runs_on;
        let answer: BoxedCall<Reply> = Box::pin(async move {
            let mut task = task;
            let held = match turn.wait().await {
                Ok(held) => held,
                Err(refused) => return Reply::limited(Some(&id), refused),
            };
            if waits && let Some(outcome) = run_until_task(&mut task).await {
                return conclude(&id, outcome).reply().await;
            }
            // Spawned, so that a disconnect does not prevent the start of the task (TSK-13).
            let starting = net::spawn({
                let server = Arc::clone(&server);
                async move { server.start_task(task, held, conclude).await }
            });
            let Ok(started) = starting.await else {
                return internal_error(&id);
            };
            match started {
                Ok((record, dialect)) => server.created(&id, &record, dialect),
                Err(StartError::Full(limit)) => {
                    server.limits.hits.count(limit);
                    let setting = limit.setting();
                    let message = format!("too many tasks run ({setting}); wait for one to end");
                    let error = ErrorObject::new(ErrorCode::Http(429), message);
                    Reply::error(&id, &error.with_data(json!({ "setting": setting })))
                }
                Err(StartError::State(error @ (StateError::Full | StateError::Share))) => {
                    let setting = match error {
                        StateError::Share => "state.share_percent",
                        _ => "state.memory_bytes",
                    };
                    let message = format!("no task can begin now: {error}; wait for one to end");
                    let error = ErrorObject::new(ErrorCode::Http(429), message);
                    Reply::error(&id, &error.with_data(json!({ "setting": setting })))
                }
                Err(StartError::State(error)) => {
                    tracing::error!(%error, "a task cannot be created without the shared state");
                    state_unavailable(&id, "no task can begin now")
                }
            }
        });
        if !waits {
            return MaybeReady::Pending(answer);
        }
        // Until it becomes a task, the call can send messages and be cancelled like any other.
        let inflight = Arc::clone(&self.inflight);
        let answer = match runs_on {
            true => inflight.cancellable(&context, answer),
            false => answer,
        };
        MaybeReady::Pending(Box::pin(call_stream::stream_if_slow(
            answer,
            context,
            stream_after,
            inflight,
        )))
    }

    async fn start_task(
        self: &Arc<Self>,
        task: TaskCall,
        held: Held,
        conclude: impl FnOnce(&str, CallOutcome<Result<Output, ToolError>>) -> MaybeReady
        + Send
        + 'static,
    ) -> Result<(Record, TaskDialect), StartError> {
        let TaskCall {
            call,
            context,
            tool,
            options,
            mut audited,
            ..
        } = task;
        let owner = context.principal().id();
        let share = owner_of(context.principal(), context.address);
        let id = store::new_id();
        let place = self.tasks.enter(&id, owner).map_err(StartError::Full)?;
        let now = now_ms();
        let record = Record {
            id,
            owner: owner.to_owned(),
            tool,
            created: now,
            updated: now,
            ttl_ms: u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX),
            poll_ms: self.tasks.config.poll_interval_ms,
            status: TaskStatus::Running,
            requests: Map::new(),
            kept: StoredResult::default(),
            runner: self.tasks.replica,
            session: match options.dialect {
                TaskDialect::Core => context.session.clone(),
                TaskDialect::Extension => None,
            },
        };
        if self.lists_tasks(context.principal()) {
            let listed = self.tasks.enlist(&record, share.as_deref()).await;
            listed.map_err(StartError::State)?;
        }
        let noted = self.tasks.announce(&record, share.as_deref()).await;
        noted.map_err(StartError::State)?;
        let created = self.tasks.create(&record, share.as_deref()).await;
        created.map_err(StartError::State)?;
        context.asking.become_task(options.ttl);
        let (stop, stopped) = AbortHandle::new_pair();
        let call = Abortable::new(call, stopped);
        let runner = Runner {
            tasks: Arc::clone(&self.tasks),
            record: record.clone(),
            inflight: self.inflight.register(&context, stop),
            context,
            timeout: options.ttl,
            share,
            place,
            held,
        };
        if let Some(audited) = &mut audited {
            audited.begins();
        }
        // Spawned, so that a disconnect does not cancel the task (TSK-13). Shutdown waits for it.
        net::spawn(runner.run(call, |outcome| {
            let handled = conclude("0", outcome);
            if let (Some(audited), MaybeReady::Ready(reply)) = (audited, &handled) {
                audited.ends(reply);
            }
            match handled {
                MaybeReady::Ready(Reply::Response(answer)) => {
                    TaskResult::of_answer(&answer.to_bytes())
                }
                // Suspended calls cannot occur here: a task asks its client through its record.
                _ => TaskResult::internal("Internal error"),
            }
        }));
        Ok((record, options.dialect))
    }

    fn created(&self, id: &str, record: &Record, dialect: TaskDialect) -> Reply {
        match dialect {
            TaskDialect::Extension => self.task_result(id, "task", record.shown(dialect)),
            TaskDialect::Core => {
                let mut out = begin(id, 256);
                let task = Value::from(record.shown(dialect));
                out.extend_from_slice(format!(r#","result":{{"task":{task}}}}}"#).as_bytes());
                Reply::document(out)
            }
        }
    }

    /// A result of the extension's methods (TSK-02).
    fn task_result(&self, id: &str, kind: &str, mut members: Map<String, Value>) -> Reply {
        members.insert("resultType".to_owned(), kind.into());
        let meta = &self.snapshot.load().result_meta;
        let meta = serde_json::from_str(meta).unwrap_or_default();
        members.insert("_meta".to_owned(), meta);
        let mut out = begin(id, 512);
        out.extend_from_slice(br#","result":"#);
        out.extend_from_slice(Value::from(members).to_string().as_bytes());
        out.push(b'}');
        Reply::document(out)
    }

    /// Handles a method about one task.
    pub(super) fn task_method(
        self: &Arc<Self>,
        cx: &mut std::task::Context<'_>,
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
        let asking = self.asking(caller, request_context.body, &without_replay(request))?;
        if dialect == TaskDialect::Extension && !asking.declares_tasks() {
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
            server: Arc::clone(self),
            id: request.id.to_owned(),
            task: task.into_owned(),
            caller: Arc::clone(caller.principal),
            share: owner_of(caller.principal, caller.address),
            dialect,
        };
        let (limits, share, id) = (
            Arc::clone(&self.limits),
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
                // The request may take as long as the task, and forwards the client requests of the task.
                let options = self.options(
                    caller,
                    Some(Duration::from_secs(self.tasks.config.ttl_seconds)),
                );
                let context = caller.context(
                    request_context.headers,
                    request,
                    None,
                    asking,
                    options.timeout,
                );
                let conclude = move |outcome: CallOutcome<Reply>| {
                    MaybeReady::Ready(match outcome {
                        CallOutcome::Done(reply) => reply.counted(&limits, share, &id),
                        CallOutcome::Cancelled => Reply::Cancelled,
                        _ => internal_error(&id),
                    })
                };
                let start = |context| -> BoxedCall<Reply> { Box::pin(asked.result(context)) };
                self.execute(cx, request.id, start, context, options, conclude)
            }
        })
    }
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

/// Error at the start of a task.
enum StartError {
    /// The maximum number of tasks is reached.
    Full(Limit),
    State(StateError),
}

impl TaskRequest {
    async fn find(&self) -> Result<Record, Reply> {
        match self.server.find_task(&self.task, &self.caller).await {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(invalid_params(
                &self.id,
                "there is no such task, or no longer",
            )),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn broken(&self, error: &StateError) -> Reply {
        if let StateError::Full | StateError::Share = error {
            let message = format!("the task cannot be told now, and goes on: {error}");
            return Reply::error(&self.id, &ErrorObject::new(ErrorCode::Internal, message));
        }
        tracing::error!(%error, "a task cannot be looked at without the shared state");
        state_unavailable(&self.id, "the task cannot be looked at now, and goes on")
    }

    /// TSK-04: returns the state of the task without changing it.
    async fn get(self) -> Reply {
        let record = match self.find().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        match self.server.tasks.shown(&record, self.dialect).await {
            Ok(Some(shown)) if self.dialect == TaskDialect::Core => self.plain(&shown.into()),
            Ok(Some(shown)) => self.server.task_result(&self.id, "complete", shown),
            Ok(None) => internal_error(&self.id),
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
            Ok(None) => return invalid_params(&self.id, "there is no such task, or no longer"),
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
            TaskDialect::Extension => self.server.task_result(&self.id, "complete", Map::new()),
            TaskDialect::Core if was_running => self.plain(&record.shown(self.dialect).into()),
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
            .answer(&self.task, answers, Map::new(), self.share.as_deref())
            .await
        {
            Ok(()) => self.server.task_result(&self.id, "complete", Map::new()),
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
        let mut asked = HashMap::new();
        let mut answers = FuturesUnordered::new();
        loop {
            let record = match self.find().await {
                Ok(record) => record,
                Err(reply) => return reply,
            };
            if record.is_finished() {
                return self.outcome(&record).await;
            }
            for (name, request) in &record.requests {
                if asked.insert(name.clone(), ()).is_none() {
                    let related = json!({"taskId": self.task});
                    answers.push(ask(&context, name.clone(), request, related));
                }
            }
            // A change without an announcement is seen by the next poll.
            let change = async {
                let _ = tokio::time::timeout(POLL_INTERVAL, changes.next()).await;
            };
            let change = std::pin::pin!(change);
            let next = std::future::poll_fn(|cx| match answers.poll_next_unpin(cx) {
                Poll::Ready(Some(answered)) => Poll::Ready(answered),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            if let Either::Right(((name, answer), _)) = select(change, next).await {
                let (mut given, mut refused) = (Map::new(), Map::new());
                match answer {
                    Ok(answer) => drop(given.insert(name, answer)),
                    Err(AskError::Refused { code, message }) => {
                        refused.insert(name, json!({"code": code, "message": message}));
                    }
                    // Another client may still respond.
                    Err(_) => continue,
                }
                let share = self.share.as_deref();
                if let Err(error) = tasks.answer(&self.task, given, refused, share).await {
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
            Ok(Some(TaskResult::Result(mut result))) => {
                result["_meta"][RELATED_TASK] = json!({"taskId": self.task});
                self.plain(&result)
            }
            Ok(Some(TaskResult::Error(error))) => {
                let mut out = begin(&self.id, 256);
                out.extend_from_slice(format!(r#","error":{error}}}"#).as_bytes());
                Reply::document(out)
            }
            Ok(None) => internal_error(&self.id),
            Err(error) => self.broken(&error),
        }
    }

    fn plain(&self, result: &Value) -> Reply {
        let mut out = begin(&self.id, 512);
        out.extend_from_slice(format!(r#","result":{result}}}"#).as_bytes());
        Reply::document(out)
    }
}

/// Interval between reads of a record if no change is announced.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Sends a client request of a task.
fn ask(
    context: &Arc<CallContext>,
    name: String,
    request: &Value,
    related: Value,
) -> impl Future<Output = (String, Result<Value, AskError>)> + Send + use<> {
    let context = Arc::clone(context);
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    let mut params = request["params"].clone();
    params["_meta"][RELATED_TASK] = related;
    async move {
        let answer = context.ask(&method, params).await;
        (name, answer)
    }
}

impl Tasks {
    /// Delivers client responses to a task. Ignores those that it does not wait for.
    async fn answer(
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

/// Drives a call until it becomes a task. Returns the outcome if it ended before.
async fn run_until_task(task: &mut TaskCall) -> Option<CallOutcome<Result<Output, ToolError>>> {
    let TaskCall {
        call,
        context,
        options,
        ..
    } = task;
    let mut deadline = std::pin::pin!(tokio::time::sleep(options.timeout));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = Pin::new(&mut *call).poll(cx) {
            return Poll::Ready(Some(inflight::finish_replay(outcome, context)));
        }
        context.asking.driven_by(cx.waker());
        if context.asking.wants_to_be_task() {
            return Poll::Ready(None);
        }
        if let Some(interruption) = context.asking.interruption() {
            return Poll::Ready(Some(inflight::suspended(interruption, context)));
        }
        deadline.as_mut().poll(cx).map(|()| {
            context.outlet.cancel();
            Some(CallOutcome::TimedOut(options.timeout))
        })
    })
    .await
}

/// Parses `{"ttl": 60000}`, in milliseconds.
fn read_ttl(task: &str) -> Result<Option<Duration>, &'static str> {
    const PROBLEM: &str = "task is an object; its ttl is a number of milliseconds, at least 0";
    let task: Map<String, Value> = serde_json::from_str(task).map_err(|_| PROBLEM)?;
    match task.get("ttl") {
        None | Some(Value::Null) => Ok(None),
        Some(ttl) => match ttl.as_f64().filter(|ttl| 0.0 <= *ttl) {
            Some(ttl) => Ok(Some(Duration::from_millis(ttl as u64))),
            None => Err(PROBLEM),
        },
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

/// Error while the state is unavailable.
fn state_unavailable(id: &str, what: &str) -> Reply {
    let message = format!("{what}: the server cannot reach its state; try again later");
    Reply::error(id, &ErrorObject::new(ErrorCode::Internal, message))
}

/// TKL-01: error for a tool that cannot be called in this mode.
fn task_mode_error(id: &str, problem: &'static str) -> Reply {
    Reply::error(id, &ErrorObject::new(ErrorCode::MethodNotFound, problem))
}

/// TSK-09, TSK-12: the client has not declared the extension in this request.
fn missing_extension(id: &str) -> Reply {
    let mut message = String::from("Server requires the ");
    message.push_str(TASKS_EXTENSION);
    message.push_str(" extension");
    let error = ErrorObject::new(ErrorCode::MissingCapability, message);
    let data = json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}});
    Reply::refused(Refusal::Capability, Some(id), &error.with_data(data))
}
