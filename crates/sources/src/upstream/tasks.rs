//! Calls of tools that an upstream runs only as tasks. The local call waits for the result, whether or not it is a
//! task itself.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::call_error::CallError;
use super::connection::{Upstream, report};
use super::forwarding::Relay;
use super::line::Line;
use crate::catalog::TASKS_EXTENSION;
use crate::client::{
    ClientError, ClientRequest, INTERNAL_ERROR, Listener, MISSING_CAPABILITY, Params, RpcError,
};
use crate::net::{Backoff, chance};

/// Default polling interval for a task.
const POLL: Duration = Duration::from_secs(1);
/// Bounds of the polling interval that an upstream can request.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(30);
/// Backoff of requests about a running task that failed.
const RETRY: Backoff = Backoff {
    base: Duration::from_millis(500),
    max: Duration::from_secs(10),
};
/// Timeout for cancelling a task.
const CANCELS: Duration = Duration::from_secs(5);

/// Returns true if an upstream of 2026-07-28 rejected a call because it runs only as a task.
pub(super) fn is_task_only(error: &CallError) -> bool {
    let CallError::Client(ClientError::Rpc(error)) = error else {
        return false;
    };
    let required = error
        .data
        .as_ref()
        .map(|data| &data["requiredCapabilities"]);
    error.code == MISSING_CAPABILITY
        && required.is_some_and(|required| required["extensions"][TASKS_EXTENSION].is_object())
}

/// Calls a tool as a task, and waits for its result. The call has one permit, from its first request to the end of
/// the task.
pub(super) async fn call(
    upstream: &Arc<Upstream>,
    line: &Arc<Line>,
    params: &Params,
    relay: &Arc<Relay>,
    repeatable: bool,
) -> Result<Box<RawValue>, CallError> {
    let pass = upstream.enter().await?;
    let answered = call_admitted(upstream, line, params, relay, repeatable).await;
    report(pass, line, answered.as_ref().err());
    answered
}

async fn call_admitted(
    upstream: &Arc<Upstream>,
    line: &Arc<Line>,
    params: &Params,
    relay: &Arc<Relay>,
    repeatable: bool,
) -> Result<Box<RawValue>, CallError> {
    let connected = upstream.connected(line).await.map_err(CallError::Apart)?;
    let (client, server) = (&connected.client, connected.client.server());
    if !server.revision.has_sessions() {
        let declared = |params| client.declaring(params, TASKS_EXTENSION, Some(&**relay));
        let (params, plain) = (declared(params.clone()), declared(Params::new()));
        drop(connected);
        return in_extension(upstream, line, (params, plain), relay, repeatable).await;
    }
    // Without this capability, a tool's task support has no effect.
    let runs_tasks = server
        .capabilities
        .get("tasks")
        .is_some_and(|tasks| tasks["requests"]["tools"]["call"].is_object());
    drop(connected);
    if !runs_tasks {
        return upstream
            .request_admitted(line, "tools/call", params, Some(relay.clone()), repeatable)
            .await;
    }
    in_core(upstream, line, params, relay, repeatable).await
}

/// Uses tasks of 2025-11-25.
async fn in_core(
    upstream: &Arc<Upstream>,
    line: &Arc<Line>,
    params: &Params,
    relay: &Arc<Relay>,
    repeatable: bool,
) -> Result<Box<RawValue>, CallError> {
    #[derive(Deserialize)]
    struct Created {
        task: Option<Named>,
    }
    let ttl = u64::try_from(upstream.config.timeout().as_millis()).unwrap_or(u64::MAX);
    let params = params.clone().with("task", json!({ "ttl": ttl }));
    let created = upstream
        .request_admitted(line, "tools/call", &params, Some(relay.clone()), repeatable)
        .await?;
    let Ok(Created { task: Some(task) }) = serde_json::from_str(created.get()) else {
        return Ok(created);
    };
    let mut begun = RunningTask::new(upstream, line, task.task_id.clone());
    let params = Params::new().with("taskId", task.task_id);
    let deadline = Instant::now() + upstream.config.timeout();
    let relay = Some(relay.clone() as Arc<dyn Listener>);
    let result = persist(upstream, line, "tasks/result", &params, relay, deadline).await;
    if matches!(&result, Ok(_) | Err(CallError::Client(ClientError::Rpc(_)))) {
        begun.has_ended();
    }
    result
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    task_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    #[serde(default)]
    status: String,
    status_message: Option<String>,
    poll_interval_ms: Option<u64>,
    #[serde(default)]
    input_requests: Map<String, Value>,
    result: Option<Box<RawValue>>,
    error: Option<RpcError>,
}

/// Uses tasks of the extension in 2026-07-28. `plain` declares the extension as `params` does, and nothing else.
async fn in_extension(
    upstream: &Arc<Upstream>,
    line: &Arc<Line>,
    (params, plain): (Params, Params),
    relay: &Arc<Relay>,
    repeatable: bool,
) -> Result<Box<RawValue>, CallError> {
    let created = upstream
        .request_admitted(line, "tools/call", &params, Some(relay.clone()), repeatable)
        .await?;
    let kind: Value = serde_json::from_str(created.get()).unwrap_or_default();
    let (Some("task"), Some(id)) = (kind["resultType"].as_str(), kind["taskId"].as_str()) else {
        return Ok(created);
    };
    let mut begun = RunningTask::new(upstream, line, id.to_owned());
    let get = plain.with("taskId", id);
    let mut deadline = Instant::now() + upstream.config.timeout();
    let mut pause = pause_of(kind["pollIntervalMs"].as_u64());
    let mut questions = OpenQuestions::default();
    loop {
        if let Some(answers) = questions.wait(pause).await? {
            // The time that the user took is not the upstream's.
            deadline += questions.take_time();
            let update = get.clone().with("inputResponses", Value::Object(answers));
            persist(upstream, line, "tasks/update", &update, None, deadline).await?;
            continue;
        }
        let said = persist(upstream, line, "tasks/get", &get, None, deadline).await?;
        let task: Task = serde_json::from_str(said.get()).map_err(|error| {
            ClientError::Protocol(format!("invalid response to tasks/get: {error}"))
        })?;
        pause = pause_of(task.poll_interval_ms);
        let failed = |otherwise: &str| {
            let message = task.status_message.clone();
            let message = message.unwrap_or_else(|| otherwise.to_owned());
            CallError::Client(RpcError::new(INTERNAL_ERROR, message).into())
        };
        match task.status.as_str() {
            "completed" => {
                begun.has_ended();
                return task.result.ok_or_else(|| failed("the task has no result"));
            }
            "failed" => {
                begun.has_ended();
                return Err(match task.error {
                    Some(error) => CallError::Client(error.into()),
                    None => failed("the task failed"),
                });
            }
            "cancelled" => {
                begun.has_ended();
                return Err(failed("the task was cancelled"));
            }
            _ => {}
        }
        questions.update(task.input_requests, relay)?;
        deadline += questions.take_time();
    }
}

/// Client requests of a task that wait for the caller's client, by their names. Dropping one cancels it at the client.
#[derive(Default)]
struct OpenQuestions {
    open: Vec<(String, BoxFuture<'static, Result<Value, RpcError>>)>,
    /// Responses that wait until no request is open, since they are sent together.
    answers: Map<String, Value>,
    /// Names of all requests. The extension reuses none.
    known: HashSet<String>,
    /// Time from which the wait for responses has not been counted.
    since: Option<Instant>,
}

impl OpenQuestions {
    /// Passes on the new ones of a task's requests, and drops those that the task does not wait for any more.
    fn update(&mut self, requests: Map<String, Value>, relay: &Relay) -> Result<(), ClientError> {
        let known = &mut self.known;
        self.open.retain(|(name, _)| {
            let is_open = requests.contains_key(name);
            if !is_open {
                // It is passed on again if the task has it again.
                known.remove(name);
            }
            is_open
        });
        self.answers.retain(|name, _| requests.contains_key(name));
        for (name, request) in requests {
            if !self.known.insert(name.clone()) {
                continue;
            }
            let ClientRequest { method, params } = ClientRequest::read(&request)?;
            let answer = relay.named_question(name.clone(), method, params);
            self.open.push((name, answer));
        }
        if !self.open.is_empty() {
            self.since.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Waits for a time, or until there are responses to all open requests. Returns the responses then.
    async fn wait(&mut self, pause: Duration) -> Result<Option<Map<String, Value>>, ClientError> {
        let mut end = std::pin::pin!(sleep(pause));
        poll_fn(|cx| {
            let mut failed = None;
            let answers = &mut self.answers;
            self.open.retain_mut(|(name, answer)| {
                let Poll::Ready(answer) = answer.as_mut().poll(cx) else {
                    return true;
                };
                match answer {
                    Ok(answer) => drop(answers.insert(name.clone(), answer)),
                    Err(error) => failed = Some(ClientError::Unanswered(error)),
                }
                false
            });
            if let Some(error) = failed {
                return Poll::Ready(Err(error));
            }
            if self.open.is_empty() && !self.answers.is_empty() {
                return Poll::Ready(Ok(Some(std::mem::take(&mut self.answers))));
            }
            end.as_mut().poll(cx).map(|()| Ok(None))
        })
        .await
    }

    /// Returns the time spent waiting for responses since the last call of this.
    fn take_time(&mut self) -> Duration {
        let now = Instant::now();
        let since = std::mem::replace(&mut self.since, (!self.open.is_empty()).then_some(now));
        since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// Makes a request about a running task until the upstream responds to it, or until the deadline. A request that
/// fails does not end the task.
async fn persist(
    upstream: &Upstream,
    line: &Arc<Line>,
    method: &'static str,
    params: &Params,
    listener: Option<Arc<dyn Listener>>,
    deadline: Instant,
) -> Result<Box<RawValue>, CallError> {
    let mut failures = 0;
    loop {
        let asked = upstream.request_admitted(line, method, params, listener.clone(), true);
        let error = match asked.await {
            Err(CallError::Client(error) | CallError::Apart(error))
                if !matches!(error, ClientError::Rpc(_)) && !error.concerns_caller() =>
            {
                error
            }
            answered => return answered,
        };
        failures += 1;
        let next = Instant::now() + RETRY.delay(failures, chance());
        if deadline <= next {
            return Err(error.into());
        }
        sleep_until(next).await;
    }
}

fn pause_of(milliseconds: Option<u64>) -> Duration {
    milliseconds.map_or(POLL, |milliseconds| {
        Duration::from_millis(milliseconds).clamp(POLL_MIN, POLL_MAX)
    })
}

/// A running task of an upstream, cancelled on drop.
struct RunningTask {
    upstream: Arc<Upstream>,
    line: Arc<Line>,
    id: Option<String>,
}

impl RunningTask {
    fn new(upstream: &Arc<Upstream>, line: &Arc<Line>, id: String) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            line: Arc::clone(line),
            id: Some(id),
        }
    }

    fn has_ended(&mut self) {
        self.id = None;
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else {
            return;
        };
        let Some(connected) = self.line.usable() else {
            return;
        };
        self.upstream.in_background(async move {
            let client = &connected.client;
            let mut params = Params::new().with("taskId", id);
            if !client.server().revision.has_sessions() {
                params = client.declaring(params, TASKS_EXTENSION, None);
            }
            let cancelled = client.request("tasks/cancel", params, None, Some(CANCELS));
            if let Err(error) = cancelled.await {
                tracing::debug!(%error, "a task of an upstream server was not cancelled");
            }
        });
    }
}
