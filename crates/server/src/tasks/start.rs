//! Start of a task: from `tools/call` to the runner.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use serde_json::{Map, Value, json};

use super::record::{Record, StoredResult, TaskDialect, TaskResult, TaskStatus, now_ms};
use super::runner::Runner;
use super::{list, store};
use crate::catalog::{CallContext, Output, TASKS_EXTENSION, TaskSupport, ToolError};
use crate::limit::{CallPermits, Limit, PermitRequest};
use crate::net;
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::server::audit_record::{TaskAuditRecord, audit_task, audit_unavailable};
use crate::server::errors::{internal_error, invalid_params};
use crate::server::execute::Respond as _;
use crate::server::inflight::BoxedCall;
use crate::server::parts::Server;
use crate::server::reply::{MaybeReady, RejectReason, Reply, begin};
use crate::server::request_context::Caller;
use crate::server::running_call::{CallFailure, CatchUnwind, OnDisconnect};
use crate::server::share::owner_of;
use crate::server::tools::{PreparedCall, ToolOutcome};
use crate::server::{call_stream, running_call};
use crate::state::StateError;

/// Runs a call as a task, if the client or the tool asks for that.
///
/// # Errors
///
/// The response, if the call became a task or failed.
#[cold]
pub(crate) fn call_as_task<'g>(
    server: &Arc<Server>,
    caller: Caller<'_>,
    request: &Request<'_>,
    prepared: PreparedCall<'g>,
) -> Result<PreparedCall<'g>, MaybeReady> {
    let entry = prepared.writer.entry;
    let definition = entry.tool.definition();
    let (context, timeout) = (&prepared.context, prepared.options.timeout);
    let options = task_options(server, caller, definition.task, context, request, timeout)
        .map_err(MaybeReady::Ready)?;
    let Some(options) = options else {
        return Ok(prepared);
    };
    let PreparedCall {
        writer,
        arguments,
        mut context,
        options: on_its_own,
        limits,
    } = prepared;
    // The result of a task is stored, not sent.
    let owner = writer.into_owned();
    if !definition.deferred_task
        && let Some(context) = Arc::get_mut(&mut context)
    {
        context.timeout = Some(options.ttl);
    }
    let audited = audit_task(server, caller, &owner.name, definition.deferred_task)
        .map_err(|_| MaybeReady::Ready(audit_unavailable(request.id)))?;
    let start = |context| entry.tool.call(context, arguments);
    let Some(call) = running_call::prepare(start, &context) else {
        return Err(owner.respond(Err(CallFailure::Panicked)));
    };
    let task = TaskCall {
        audited,
        call,
        tool: owner.name.clone(),
        scopes: definition.scopes.clone(),
        later: definition.deferred_task,
        stream_after: on_its_own.stream_after,
        runs_on: on_its_own.on_disconnect == OnDisconnect::RunOn,
        context,
        options,
    };
    let turn = server
        .limits
        .turn(caller.principal, caller.address, limits.as_deref());
    let conclude = move |id: &str, outcome: ToolOutcome| {
        let mut owner = owner;
        owner.id = id.to_owned();
        owner.respond(outcome)
    };
    Err(begin_task(server, request.id, task, turn, conclude))
}

/// A call that may become a task.
struct TaskCall {
    call: CatchUnwind<Result<Output, ToolError>>,
    context: Arc<CallContext>,
    tool: String,
    /// Scopes that the tool requires.
    scopes: Vec<String>,
    /// True if the call becomes a task only when its tool says so.
    later: bool,
    /// Delay after which the response becomes a stream, if the caller accepts one.
    stream_after: Option<Duration>,
    /// True if the call is cancelled by request id, not by a disconnect.
    runs_on: bool,
    options: TaskOptions,
    /// Audit record of the end of the task.
    audited: Option<TaskAuditRecord>,
}

/// Options of a task.
#[derive(Clone, Copy, Debug)]
struct TaskOptions {
    dialect: TaskDialect,
    /// Maximum duration of the task, and retention of its result.
    ttl: Duration,
    /// Maximum duration of the call before it becomes a task.
    timeout: Duration,
}

/// Error at the start of a task.
enum StartError {
    /// The maximum number of tasks is reached.
    Full(Limit),
    State(StateError),
}

/// Returns the options if the call becomes a task (TSK-01, TSK-12, TKL-01).
fn task_options(
    server: &Server,
    caller: Caller<'_>,
    support: TaskSupport,
    context: &CallContext,
    request: &Request<'_>,
    timeout: Duration,
) -> Result<Option<TaskOptions>, Reply> {
    let most = Duration::from_secs(server.tasks.config.ttl_seconds);
    let options = |dialect, ttl| {
        Ok(Some(TaskOptions {
            dialect,
            ttl,
            timeout,
        }))
    };
    if caller.revision.has_sessions() {
        // Some clients write null for what they do not set.
        let wish = request
            .params
            .rare()
            .task
            .filter(|task| *task != "null" && caller.revision.has_core_tasks());
        let wish = wish.filter(|_| server.snapshots.load().offers(Method::TasksGet));
        return match (wish, support) {
            (None, TaskSupport::Required) => Err(task_mode_error(
                request.id,
                match caller.revision.has_core_tasks() {
                    true => {
                        "this tool runs as a task only, and the request has no `task`; use a client that supports tasks"
                    }
                    false => {
                        "this tool runs as a task only; use protocol version 2025-11-25 or later"
                    }
                },
            )),
            (None, _) => Ok(None),
            (Some(_), TaskSupport::Forbidden) => Err(task_mode_error(
                request.id,
                "this tool does not run as a task",
            )),
            (Some(wish), _) => {
                let ttl = read_ttl(wish).map_err(|problem| invalid_params(request.id, problem))?;
                options(TaskDialect::Core, ttl.unwrap_or(most).min(most))
            }
        };
    }
    match support {
        TaskSupport::Forbidden => Ok(None),
        _ if context.replay.declares_tasks() => options(TaskDialect::Extension, most),
        // A REST call is not one of the protocol.
        TaskSupport::Required if context.replay.stateless_request().is_none() => {
            let message = "this tool runs as a task only; call it over MCP";
            let error = ErrorObject::new(ErrorCode::Http(422), message);
            Err(Reply::error(request.id, &error))
        }
        TaskSupport::Required => Err(missing_extension(request.id)),
        TaskSupport::Optional => Ok(None),
    }
}

/// Starts a task after it got its concurrency permits. The response is its handle, or the result of a call that
/// ended before it became a task.
fn begin_task(
    server: &Arc<Server>,
    id: &str,
    task: TaskCall,
    turn: PermitRequest,
    conclude: impl FnOnce(&str, ToolOutcome) -> MaybeReady + Send + 'static,
) -> MaybeReady {
    let inflight = Arc::clone(&server.calls.inflight);
    let (server, id) = (Arc::clone(server), id.to_owned());
    let waits = task.later && task.options.dialect == TaskDialect::Extension;
    match waits {
        true => task.context.replay.task().allow(),
        false => task.context.replay.task().start(task.options.ttl),
    }
    let (context, stream_after) = (Arc::clone(&task.context), task.stream_after);
    let runs_on = task.runs_on;
    let (queue, has_own_wait) = (Arc::clone(&inflight), runs_on && !waits);
    let answer: BoxedCall<Reply> = Box::pin(async move {
        let mut task = task;
        let held = match has_own_wait {
            // CAN-01: there is no task yet that `tasks/cancel` could cancel.
            true => match queue.wait_in_queue(&task.context, turn.wait()).await {
                Ok(held) => held,
                Err(reply) => return reply,
            },
            false => turn.wait().await,
        };
        let held = match held {
            Ok(held) => held,
            Err(refused) => return Reply::limited(Some(&id), refused),
        };
        if waits && let Some(outcome) = run_until_task(&mut task).await {
            return conclude(&id, outcome).reply().await;
        }
        // Spawned, so that a disconnect does not prevent the start of the task (TSK-13).
        let starting = net::spawn({
            let server = Arc::clone(&server);
            async move { start_task(&server, task, held, conclude).await }
        });
        let Ok(started) = starting.await else {
            return internal_error(&id);
        };
        match started {
            Ok((record, dialect)) => creation_result(&server, &id, &record, dialect),
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
                let failed = "a task cannot be created without the shared state";
                server.streams.report_failure(&error, failed);
                state_unavailable(&id, "no task can begin now")
            }
        }
    });
    if !waits {
        return MaybeReady::Pending(answer);
    }
    // Until it becomes a task, the call can send messages and be cancelled like any other.
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
    server: &Arc<Server>,
    task: TaskCall,
    held: CallPermits,
    conclude: impl FnOnce(&str, ToolOutcome) -> MaybeReady + Send + 'static,
) -> Result<(Record, TaskDialect), StartError> {
    let TaskCall {
        call,
        context,
        tool,
        scopes,
        options,
        mut audited,
        ..
    } = task;
    let owner = context.principal().id();
    let share = owner_of(context.principal(), context.address);
    let id = store::new_id();
    let place = server.tasks.enter(&id, context.share);
    let place = place.map_err(StartError::Full)?;
    let now = now_ms();
    let record = Record {
        id,
        owner: owner.to_owned(),
        tool,
        created: now,
        updated: now,
        ttl_ms: u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX),
        poll_ms: server.tasks.config.poll_interval_ms,
        status: TaskStatus::Running,
        requests: Map::new(),
        kept: StoredResult::default(),
        runner: server.tasks.replica,
        session: match options.dialect {
            TaskDialect::Core => context.session.clone(),
            TaskDialect::Extension => None,
        },
        scopes,
    };
    if list::lists_tasks(server, context.principal()) {
        let listed = server.tasks.enlist(&record, share.as_deref()).await;
        listed.map_err(StartError::State)?;
    }
    let noted = server.tasks.announce(&record, share.as_deref()).await;
    noted.map_err(StartError::State)?;
    let created = server.tasks.create(&record, share.as_deref()).await;
    created.map_err(StartError::State)?;
    context.replay.task().start(options.ttl);
    let (stop, stopped) = AbortHandle::new_pair();
    let call = Abortable::new(call, stopped);
    let runner = Runner {
        tasks: Arc::clone(&server.tasks),
        record: record.clone(),
        inflight: server.calls.inflight.register(&context, stop),
        context,
        timeout: options.ttl,
        share,
        place,
    };
    if let Some(audited) = &mut audited {
        audited.begins();
    }
    // Spawned, so that a disconnect does not cancel the task (TSK-13). Shutdown waits for it.
    net::spawn(runner.run(call, held, |outcome| {
        let handled = conclude("0", outcome);
        if let (Some(audited), MaybeReady::Ready(reply)) = (audited, &handled) {
            audited.ends(reply);
        }
        match handled {
            MaybeReady::Ready(Reply::Response(answer)) => TaskResult::of_answer(&answer.to_bytes()),
            // Suspended calls cannot occur here: a task asks its client through its record.
            _ => TaskResult::internal("Internal error"),
        }
    }));
    Ok((record, options.dialect))
}

fn creation_result(server: &Server, id: &str, record: &Record, dialect: TaskDialect) -> Reply {
    match dialect {
        TaskDialect::Extension => {
            let task = Value::from(record.shown(dialect)).to_string();
            extension_result(server, id, "task", &task)
        }
        TaskDialect::Core => {
            let task = Value::from(record.shown(dialect));
            Reply::result(id, json!({ "task": task }))
        }
    }
}

/// A result of the extension's methods (TSK-02), with the members of a JSON object.
pub(super) fn extension_result(server: &Server, id: &str, kind: &str, object: &str) -> Reply {
    let members = object.strip_prefix('{').unwrap_or_default();
    let members = members.strip_suffix('}').unwrap_or_default();
    let mut out = begin(id, members.len() + 512);
    out.extend_from_slice(br#","result":{"#);
    out.extend_from_slice(members.as_bytes());
    if !members.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(format!(r#""resultType":"{kind}","_meta":"#).as_bytes());
    out.extend_from_slice(server.snapshots.load().result_meta.as_bytes());
    out.extend_from_slice(b"}}");
    Reply::document(out)
}

/// Drives a call until it becomes a task. Returns the outcome if it ended before.
async fn run_until_task(task: &mut TaskCall) -> Option<ToolOutcome> {
    let TaskCall {
        call,
        context,
        options,
        ..
    } = task;
    let mut deadline = std::pin::pin!(tokio::time::sleep(options.timeout));
    let _ = context.deadline.set(deadline.deadline());
    std::future::poll_fn(|cx| {
        if let Poll::Ready(outcome) = Pin::new(&mut *call).poll(cx) {
            return Poll::Ready(Some(running_call::finish_replay(outcome, context)));
        }
        context.replay.set_driver(cx.waker());
        if context.replay.task().is_requested() {
            return Poll::Ready(None);
        }
        if let Some(suspension) = context.replay.suspension() {
            return Poll::Ready(Some(running_call::suspended(suspension, context)));
        }
        deadline.as_mut().poll(cx).map(|()| {
            context.outlet.cancel();
            Some(Err(CallFailure::TimedOut(options.timeout)))
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

/// Error while the state is unavailable.
pub(super) fn state_unavailable(id: &str, what: &str) -> Reply {
    let message = format!("{what}: the server cannot reach its state; try again later");
    Reply::fail(id, ErrorCode::Internal, message)
}

/// TKL-01: error for a tool that cannot be called in this mode.
fn task_mode_error(id: &str, problem: &'static str) -> Reply {
    Reply::fail(id, ErrorCode::MethodNotFound, problem)
}

/// TSK-09, TSK-12: the client has not declared the extension in this request.
pub(super) fn missing_extension(id: &str) -> Reply {
    let mut message = String::from("Server requires the ");
    message.push_str(TASKS_EXTENSION);
    message.push_str(" extension");
    let error = ErrorObject::new(ErrorCode::MissingCapability, message);
    let data = json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}});
    Reply::refused(RejectReason::Capability, Some(id), &error.with_data(data))
}
