//! Tasks: calls that outlive their request.
//!
//! There are two forms of them. 2026-07-28 has an extension, in which the server decides whether a call becomes a task,
//! and `tasks/get` tells everything. 2025-11-25 has experimental ones, in which the client decides, and `tasks/result`
//! waits for the end. Both are the same tasks here: a record in the state that replicas share, written before its id is
//! given out, and somebody who runs the call. Whatever is said to a task reaches it by letters in that state, so that
//! any replica can be asked.

mod config;
mod lists;
mod lives;
mod mail;
mod notices;
mod record;
mod runner;
mod runners;
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

use super::audited::TaskDraft;
use super::call::{self, BoxedCall, Guarded, Outcome};
use super::dispatch::unnamed;
use super::reply::{Refusal, Reply, begin};
use super::share::owner_of;
use super::tools::{internal_error, invalid_params};
use super::{Caller, Handled, Incoming, Server, stateless, stream};
use crate::auth::Principal;
use crate::catalog::{AskError, CallContext, Output, TASKS_EXTENSION, TaskSupport, ToolError};
use crate::limit::{Held, Limit, Turn};
use crate::net;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::state::StateError;
use record::{Ended, Form, Kept, Record, Status, now_ms};
use runner::Runner;

/// Which task a message is about, in its `_meta` (TKL-07).
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A call that may become a task.
pub(super) struct TaskCall {
    pub(super) call: Guarded<Result<Output, ToolError>>,
    pub(super) context: Arc<CallContext>,
    pub(super) tool: String,
    /// Whether it is one only when it says so.
    pub(super) later: bool,
    /// After which time an answer becomes a stream, if it may.
    pub(super) stream_after: Option<Duration>,
    /// Whether it is cancelled by its id, and not by closing a connection.
    pub(super) runs_on: bool,
    pub(super) terms: TaskTerms,
    /// What will be recorded of its end.
    pub(super) audited: Option<TaskDraft>,
}

/// How a task is to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskTerms {
    form: Form,
    /// How long it may run, and is kept.
    ttl: Duration,
    /// How long the call may take before it becomes a task.
    timeout: Duration,
}

impl Server {
    /// Whether a call becomes a task. `None` if it is answered as every other (TSK-01, TSK-12, TKL-01).
    pub(super) fn task_terms(
        &self,
        caller: Caller<'_>,
        support: TaskSupport,
        context: &CallContext,
        request: &Request<'_>,
        timeout: Duration,
    ) -> Result<Option<TaskTerms>, Reply> {
        let most = Duration::from_secs(self.tasks.config.ttl_seconds);
        let terms = |form, ttl| Ok(Some(TaskTerms { form, ttl, timeout }));
        if caller.revision.has_sessions() {
            let wish = request
                .params
                .rare()
                .task
                .filter(|_| caller.revision.has_core_tasks());
            let wish = wish.filter(|_| self.generation.load().offers(Method::TasksGet));
            return match (wish, support) {
                (None, TaskSupport::Required) => Err(not_so(
                    request.id,
                    "this tool runs as a task only; say so with `task`",
                )),
                (None, _) => Ok(None),
                (Some(_), TaskSupport::Forbidden) => {
                    Err(not_so(request.id, "this tool does not run as a task"))
                }
                (Some(wish), _) => {
                    let ttl =
                        read_ttl(wish).map_err(|problem| invalid_params(request.id, problem))?;
                    terms(Form::Core, ttl.unwrap_or(most).min(most))
                }
            };
        }
        match support {
            TaskSupport::Forbidden => Ok(None),
            _ if context.asking.declares_tasks() => terms(Form::Extension, most),
            TaskSupport::Required => Err(missing_tasks(request.id)),
            TaskSupport::Optional => Ok(None),
        }
    }

    /// Begins a task, which takes its places among the calls, and answers with its handle, or with how the call ended before it became one.
    pub(super) fn begin_task(
        self: &Arc<Self>,
        id: &str,
        task: TaskCall,
        turn: Turn,
        conclude: impl FnOnce(&str, Outcome<Result<Output, ToolError>>) -> Handled + Send + 'static,
    ) -> Handled {
        let (server, id) = (Arc::clone(self), id.to_owned());
        let waits = task.later && task.terms.form == Form::Extension;
        match waits {
            true => task.context.asking.may_become_task(),
            false => task.context.asking.become_task(task.terms.ttl),
        }
        let (context, stream_after) = (Arc::clone(&task.context), task.stream_after);
        let runs_on = task.runs_on;
        let answer: BoxedCall<Reply> = Box::pin(async move {
            let mut task = task;
            let held = match turn.wait().await {
                Ok(held) => held,
                Err(refused) => return Reply::limited(Some(&id), refused),
            };
            if waits && let Some(outcome) = until_it_is_one(&mut task).await {
                return conclude(&id, outcome).reply().await;
            }
            // Whoever closes the connection now does not keep the task from beginning (TSK-13).
            let starting = net::spawn({
                let server = Arc::clone(&server);
                async move { server.start_task(task, held, conclude).await }
            });
            let Ok(started) = starting.await else {
                return internal_error(&id);
            };
            match started {
                Ok((record, form)) => server.created(&id, &record, form),
                Err(Refused::Full(limit)) => {
                    server.limits.hits.count(limit);
                    let setting = limit.setting();
                    let message = format!("too many tasks run ({setting}); wait for one to end");
                    let error = ErrorObject::new(ErrorCode::Http(429), message);
                    Reply::error(&id, &error.with_data(json!({ "setting": setting })))
                }
                Err(Refused::State(error @ (StateError::Full | StateError::Share))) => {
                    let setting = match error {
                        StateError::Share => "state.share_percent",
                        _ => "state.memory_bytes",
                    };
                    let message = format!("no task can begin now: {error}; wait for one to end");
                    let error = ErrorObject::new(ErrorCode::Http(429), message);
                    Reply::error(&id, &error.with_data(json!({ "setting": setting })))
                }
                Err(Refused::State(error)) => {
                    tracing::error!(%error, "a task cannot be created without the shared state");
                    away(&id, "no task can begin now")
                }
            }
        });
        if !waits {
            return Handled::Later(answer);
        }
        // Until it is a task, it is a call like others: it says what they say, and is cancelled like them.
        let inflight = Arc::clone(&self.inflight);
        let answer = match runs_on {
            true => inflight.cancellable(&context, answer),
            false => answer,
        };
        Handled::Later(Box::pin(stream::or_streams(
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
        conclude: impl FnOnce(&str, Outcome<Result<Output, ToolError>>) -> Handled + Send + 'static,
    ) -> Result<(Record, Form), Refused> {
        let TaskCall {
            call,
            context,
            tool,
            terms,
            mut audited,
            ..
        } = task;
        let owner = context.principal().id();
        let share = owner_of(context.principal(), context.address);
        let id = store::new_id();
        let place = self.tasks.enter(&id, owner).map_err(Refused::Full)?;
        let now = now_ms();
        let record = Record {
            id,
            owner: owner.to_owned(),
            tool,
            created: now,
            updated: now,
            ttl_ms: u64::try_from(terms.ttl.as_millis()).unwrap_or(u64::MAX),
            poll_ms: self.tasks.config.poll_interval_ms,
            status: Status::Running,
            requests: Map::new(),
            kept: Kept::default(),
            runner: self.tasks.replica,
            session: match terms.form {
                Form::Core => context.session.clone(),
                Form::Extension => None,
            },
        };
        if self.lists_tasks(context.principal()) {
            let listed = self.tasks.enlist(&record, share.as_deref()).await;
            listed.map_err(Refused::State)?;
        }
        let noted = self.tasks.begins(&record, share.as_deref()).await;
        noted.map_err(Refused::State)?;
        let created = self.tasks.create(&record, share.as_deref()).await;
        created.map_err(Refused::State)?;
        context.asking.become_task(terms.ttl);
        let (stop, stopped) = AbortHandle::new_pair();
        let call = Abortable::new(call, stopped);
        let runner = Runner {
            tasks: Arc::clone(&self.tasks),
            record: record.clone(),
            inflight: self.inflight.enter(&context, stop),
            context,
            timeout: terms.ttl,
            share,
            place,
            held,
        };
        if let Some(audited) = &mut audited {
            audited.begins();
        }
        // Whoever closes the connection does not cancel it (TSK-13). A server that stops waits for it.
        net::spawn(runner.run(call, |outcome| {
            let handled = conclude("0", outcome);
            if let (Some(audited), Handled::Now(reply)) = (audited, &handled) {
                audited.ends(reply);
            }
            match handled {
                Handled::Now(Reply::Answer(answer)) => Ended::of_answer(&answer.whole()),
                // What only a request has that can begin anew.
                _ => Ended::internal("Internal error"),
            }
        }));
        Ok((record, terms.form))
    }

    fn created(&self, id: &str, record: &Record, form: Form) -> Reply {
        match form {
            Form::Extension => self.task_result(id, "task", record.shown(form)),
            Form::Core => {
                let mut out = begin(id, 256);
                let task = Value::from(record.shown(form));
                out.extend_from_slice(format!(r#","result":{{"task":{task}}}}}"#).as_bytes());
                Reply::document(out)
            }
        }
    }

    /// A result of the extension's methods (TSK-02).
    fn task_result(&self, id: &str, kind: &str, mut members: Map<String, Value>) -> Reply {
        members.insert("resultType".to_owned(), kind.into());
        let meta = &self.generation.load().result_meta;
        let meta = serde_json::from_str(meta).unwrap_or_default();
        members.insert("_meta".to_owned(), meta);
        let mut out = begin(id, 512);
        out.extend_from_slice(br#","result":"#);
        out.extend_from_slice(Value::from(members).to_string().as_bytes());
        out.push(b'}');
        Reply::document(out)
    }

    /// A method about one task.
    pub(super) fn task_method(
        self: &Arc<Self>,
        cx: &mut std::task::Context<'_>,
        method: Method,
        incoming: Incoming<'_>,
    ) -> Result<Handled, Reply> {
        let Incoming {
            caller, request, ..
        } = incoming;
        let form = match caller.revision.has_sessions() {
            true => Form::Core,
            false => Form::Extension,
        };
        let asking = self.asking(caller, incoming.body, &without_rounds(request))?;
        if form == Form::Extension && !asking.declares_tasks() {
            return Err(missing_tasks(request.id));
        }
        let Some(task) = request.params.rare().task_id.and_then(message::string) else {
            let problem = "taskId is required, a string: which task";
            return Err(unnamed(&incoming, problem));
        };
        if form == Form::Extension
            && let Some(mcp) = incoming.mcp()
        {
            stateless::check_task(request, &task, mcp)?;
        }
        let asked = Asked {
            server: Arc::clone(self),
            id: request.id.to_owned(),
            task: task.into_owned(),
            caller: Arc::clone(caller.principal),
            share: owner_of(caller.principal, caller.address),
            form,
        };
        let (limits, share, id) = (
            Arc::clone(&self.limits),
            caller.share(),
            request.id.to_owned(),
        );
        Ok(match method {
            Method::TasksGet => Handled::Later(Box::pin(async move {
                asked.get().await.counted(&limits, share, &id)
            })),
            Method::TasksCancel => Handled::Later(Box::pin(asked.cancel())),
            Method::TasksUpdate => {
                let answers = request.params.rare().input_responses;
                let answers = answers.and_then(|text| serde_json::from_str(text).ok());
                let Some(answers) = answers else {
                    return Err(invalid_params(request.id, "inputResponses is an object"));
                };
                Handled::Later(Box::pin(asked.update(answers)))
            }
            _ => {
                // It may take as long as the task, and asks what that wants to know.
                let terms = self.terms(
                    caller,
                    Some(Duration::from_secs(self.tasks.config.ttl_seconds)),
                );
                let context = caller.context(incoming.headers, request, None, asking);
                let conclude = move |outcome: Outcome<Reply>| {
                    Handled::Now(match outcome {
                        Outcome::Done(reply) => reply.counted(&limits, share, &id),
                        Outcome::Cancelled => Reply::Cancelled,
                        _ => internal_error(&id),
                    })
                };
                let start = |context| -> BoxedCall<Reply> { Box::pin(asked.result(context)) };
                self.run(cx, request.id, start, context, terms, conclude)
            }
        })
    }
}

/// A request about a task.
struct Asked {
    server: Arc<Server>,
    id: String,
    task: String,
    caller: Arc<Principal>,
    /// Whose share of the state it takes.
    share: Option<String>,
    form: Form,
}

/// Why a task cannot begin.
enum Refused {
    /// There are as many as there may be.
    Full(Limit),
    State(StateError),
}

impl Asked {
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
        away(&self.id, "the task cannot be looked at now, and goes on")
    }

    /// TSK-04: everything there is to know. It changes nothing.
    async fn get(self) -> Reply {
        let record = match self.find().await {
            Ok(record) => record,
            Err(reply) => return reply,
        };
        match self.server.tasks.shown(&record, self.form).await {
            Ok(Some(shown)) if self.form == Form::Core => self.plain(&shown.into()),
            Ok(Some(shown)) => self.server.task_result(&self.id, "complete", shown),
            Ok(None) => internal_error(&self.id),
            Err(error) => self.broken(&error),
        }
    }

    /// TSK-07, TKL-04: what is cancelled stays cancelled.
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
        // Once more, if it is asked for once more: the letter may not have been sent.
        if record.status == Status::Cancelled
            && let Err(error) = tasks
                .tell(&record, &json!({"cancel": true}), self.share.as_deref())
                .await
        {
            return self.broken(&error);
        }
        match self.form {
            Form::Extension => self.server.task_result(&self.id, "complete", Map::new()),
            Form::Core if was_running => self.plain(&record.shown(self.form).into()),
            Form::Core => invalid_params(
                &self.id,
                "the task is over; it cannot be cancelled any more",
            ),
        }
    }

    /// TSK-07: answers are taken, whether or not anybody waits for them.
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

    /// TKL-03: waits for the end, and is then what the call would have been answered with.
    async fn result(self, context: Arc<CallContext>) -> Reply {
        // Before anything is named after what a stranger says.
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
            if record.is_over() {
                return self.outcome(&record).await;
            }
            for (name, request) in &record.requests {
                if asked.insert(name.clone(), ()).is_none() {
                    let related = json!({"taskId": self.task});
                    answers.push(ask(&context, name.clone(), request, related));
                }
            }
            // A change that nobody heard of is seen a little later.
            let change = async {
                let _ = tokio::time::timeout(LOOK_AGAIN, changes.next()).await;
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
                    // Whoever comes next may be asked.
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
        if record.status == Status::Cancelled {
            return invalid_params(&self.id, "the task was cancelled; it has no result");
        }
        match self.server.tasks.ended(record).await {
            Ok(Some(Ended::Result(mut result))) => {
                result["_meta"][RELATED] = json!({"taskId": self.task});
                self.plain(&result)
            }
            Ok(Some(Ended::Error(error))) => {
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

/// How often a record is looked at if nobody tells of a change.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Asks the client what a task wants to know.
fn ask(
    context: &Arc<CallContext>,
    name: String,
    request: &Value,
    related: Value,
) -> impl Future<Output = (String, Result<Value, AskError>)> + Send + use<> {
    let context = Arc::clone(context);
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    let mut params = request["params"].clone();
    params["_meta"][RELATED] = related;
    async move {
        let answer = context.ask(&method, params).await;
        (name, answer)
    }
}

impl Tasks {
    /// Takes answers to a task. Those that nobody waits for are nothing.
    async fn answer(
        &self,
        id: &str,
        mut answers: Map<String, Value>,
        mut errors: Map<String, Value>,
        share: Option<&str>,
    ) -> Result<(), StateError> {
        let Some(record) = self.known(id).await?.filter(|record| !record.is_over()) else {
            return Ok(());
        };
        answers.retain(|name, _| record.requests.contains_key(name));
        errors.retain(|name, _| record.requests.contains_key(name));
        let names: Vec<_> = answers.keys().chain(errors.keys()).cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        // First the letter: it may be sent twice, and whoever sends it again after a failure has to find the question.
        let letter = json!({"answers": answers, "errors": errors});
        self.tell(&record, &letter, share).await?;
        let change = |record: &mut Record| {
            let known = record.requests.len();
            record.requests.retain(|name, _| !names.contains(name));
            record.requests.len() < known
        };
        self.change(id, change).await.map(drop)
    }
}

/// Runs a call until it says that it is a task. `Some` if it ended before.
async fn until_it_is_one(task: &mut TaskCall) -> Option<Outcome<Result<Output, ToolError>>> {
    let TaskCall {
        call,
        context,
        terms,
        ..
    } = task;
    let mut deadline = std::pin::pin!(tokio::time::sleep(terms.timeout));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = Pin::new(&mut *call).poll(cx) {
            return Poll::Ready(Some(call::settled(outcome, context)));
        }
        context.asking.driven_by(cx.waker());
        if context.asking.wants_to_be_task() {
            return Poll::Ready(None);
        }
        if let Some(interruption) = context.asking.interruption() {
            return Poll::Ready(Some(call::interrupted(interruption, context)));
        }
        deadline.as_mut().poll(cx).map(|()| {
            context.outlet.cancel();
            Some(Outcome::TimedOut(terms.timeout))
        })
    })
    .await
}

/// `{"ttl": 60000}`, in milliseconds.
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

/// The request, without what would begin a call anew.
fn without_rounds<'a>(request: &Request<'a>) -> Request<'a> {
    Request {
        id: request.id,
        method: request.method.clone(),
        params: message::Params {
            meta: request.params.meta.clone(),
            ..message::Params::default()
        },
    }
}

/// What is answered while the state cannot be used.
fn away(id: &str, what: &str) -> Reply {
    let message = format!("{what}: the server cannot reach its state; try again later");
    Reply::error(id, &ErrorObject::new(ErrorCode::Internal, message))
}

/// TKL-01: the tool is there, but not in this way.
fn not_so(id: &str, problem: &'static str) -> Reply {
    Reply::error(id, &ErrorObject::new(ErrorCode::MethodNotFound, problem))
}

/// TSK-09, TSK-12: the client has not declared the extension on this request.
fn missing_tasks(id: &str) -> Reply {
    let mut message = String::from("Server requires the ");
    message.push_str(TASKS_EXTENSION);
    message.push_str(" extension");
    let error = ErrorObject::new(ErrorCode::MissingCapability, message);
    let data = json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}});
    Reply::refused(Refusal::Capability, Some(id), &error.with_data(data))
}
