//! Handler of `tasks/list` in 2025-11-25, which lists the caller's tasks (TKL-06).

use std::sync::Arc;

use serde_json::{Value, json};

use super::record::{Record, TaskDialect};
use crate::auth::{ItemKind, Kind, Principal, PrincipalKind, Target};
use crate::protocol::message::Request;
use crate::seal::Purpose;
use crate::server::errors::{internal_error, invalid_params, method_not_found, read_params};
use crate::server::lists::{ListParams, UNKNOWN_CURSOR};
use crate::server::parts::Server;
use crate::server::reply::{MaybeReady, Reply};
use crate::server::request_context::Caller;
use crate::state::StateError;

/// Maximum size of a page, because each task is looked up separately.
const PAGE_MAX: usize = 100;
const CURSOR: &str = "tasks cursor 1";

/// Returns true if the caller can list tasks. Anonymous callers would see each other's tasks, and so would stdio
/// clients of several processes with a shared state.
pub(crate) fn lists_tasks(server: &Server, principal: &Principal) -> bool {
    match principal.kind() {
        PrincipalKind::Anonymous => false,
        PrincipalKind::Local => !server.streams.is_shared(),
        _ => true,
    }
}

/// Finds a task that belongs to the caller (TSK-10) and whose tool the caller sees.
pub(crate) async fn find_task(
    server: &Server,
    id: &str,
    caller: &Principal,
) -> Result<Option<Record>, StateError> {
    let record = server.tasks.find(id, caller.id()).await?;
    match record.filter(|record| sees_tool_of(server, record, caller)) {
        Some(record) => server.tasks.fail_orphan(record).await,
        None => Ok(None),
    }
}

/// Returns true if the caller has the scopes that the tool of a task requires.
pub(crate) fn may_use(server: &Server, record: &Record, caller: &Principal) -> bool {
    let scopes = scopes_of(server, record, caller);
    scopes.is_some_and(|scopes| scopes.iter().all(|scope| caller.has_scope(scope)))
}

fn sees_tool_of(server: &Server, record: &Record, caller: &Principal) -> bool {
    scopes_of(server, record, caller).is_some()
}

/// Returns the scopes that the tool of a task requires, or `None` if the caller does not see the tool.
pub(super) fn scopes_of(
    server: &Server,
    record: &Record,
    caller: &Principal,
) -> Option<Vec<String>> {
    let snapshot = server.snapshots.load();
    let tools = &snapshot.catalog.tools;
    let entry = snapshot.catalog.tool(&record.tool);
    match &snapshot.policy_view {
        // The tool was removed, or its upstream is down. The rules decide by its name.
        Some(view) if entry.is_none() => {
            let policy = &view.policy;
            let target = Target {
                kind: Kind::Tool,
                name: &record.tool,
                access: policy.classify(&record.tool, Some(true)).access,
            };
            let decision = policy.decide(&policy.class_of(caller), target);
            let mut scopes = decision.allowed.then_some(decision.requires)?;
            scopes.extend_from_slice(&record.scopes);
            Some(scopes)
        }
        _ => {
            if !snapshot.sees_key(caller, ItemKind::Tools, tools, &record.tool) {
                return None;
            }
            let own = entry.map(|entry| entry.tool.definition().scopes.clone());
            let mut scopes = own.unwrap_or_else(|| record.scopes.clone());
            let rules = snapshot.required_scopes(caller, ItemKind::Tools, tools, &record.tool);
            scopes.extend(rules.iter().flat_map(|scopes| scopes.iter().cloned()));
            Some(scopes)
        }
    }
}

pub(crate) fn list_tasks(
    server: &Arc<Server>,
    caller: Caller<'_>,
    request: &Request<'_>,
) -> Result<MaybeReady, Reply> {
    if !lists_tasks(server, caller.principal) {
        return Err(method_not_found(request));
    }
    let ListParams { cursor } = read_params(request)?;
    let after = match cursor {
        None => 0,
        Some(cursor) => read_cursor(server, &cursor, caller.principal)
            .ok_or_else(|| invalid_params(request.id, UNKNOWN_CURSOR))?,
    };
    let (server, id) = (Arc::clone(server), request.id.to_owned());
    let caller = Arc::clone(caller.principal);
    Ok(MaybeReady::Pending(Box::pin(async move {
        match page_of_tasks(&server, &caller, after).await {
            Ok(page) => Reply::result(&id, page),
            Err(error) => {
                let failed = "tasks cannot be listed without the shared state";
                server.streams.report_failure(&error, failed);
                internal_error(&id)
            }
        }
    })))
}

async fn page_of_tasks(
    server: &Server,
    caller: &Principal,
    after: u64,
) -> Result<Value, StateError> {
    let max = server.config.page_size.clamp(1, PAGE_MAX);
    let (records, next) = server.tasks.list(caller.id(), after, max).await?;
    let seen = records.iter().filter(|r| sees_tool_of(server, r, caller));
    let tasks: Vec<Value> = seen.map(|r| r.shown(TaskDialect::Core).into()).collect();
    let mut page = json!({ "tasks": tasks });
    if let Some(next) = next {
        page["nextCursor"] = write_cursor(server, next, caller).into();
    }
    Ok(page)
}

/// Cursors are bound to the caller.
fn write_cursor(server: &Server, after: u64, caller: &Principal) -> String {
    let text = format!("{after} {}", caller.id());
    server.keys.sign(cursor_purpose(server), text.as_bytes())
}

fn read_cursor(server: &Server, cursor: &str, caller: &Principal) -> Option<u64> {
    let text = server
        .keys
        .verify(cursor_purpose(server), cursor.as_bytes())?;
    let (after, of) = std::str::from_utf8(&text).ok()?.split_once(' ')?;
    (of == caller.id()).then(|| after.parse().ok())?
}

fn cursor_purpose(server: &Server) -> Purpose<'_> {
    Purpose {
        kind: CURSOR,
        endpoint: &server.endpoint,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Map;

    use super::*;
    use crate::net::ShareKey;
    use crate::server::tasks::record::{StoredResult, TaskStatus, now_ms};
    use crate::server::tests::replica_of;
    use crate::state::SharedState;

    #[tokio::test(start_paused = true)]
    async fn a_task_whose_process_is_gone_has_failed() {
        let state = SharedState::default();
        let [one, other] = [(); 2].map(|()| replica_of(state.clone()));
        let ada = Principal::new("ada");
        let record = Record {
            id: "0".repeat(32),
            owner: ada.id().to_owned(),
            tool: "t".to_owned(),
            created: now_ms(),
            updated: now_ms(),
            ttl_ms: 600_000,
            poll_ms: 1000,
            status: TaskStatus::Running,
            requests: Map::new(),
            kept: StoredResult::default(),
            runner: one.tasks.replica,
            session: None,
            scopes: Vec::new(),
        };
        let place = one
            .tasks
            .enter(&record.id, ShareKey::NONE)
            .expect("a place");
        one.tasks.announce(&record, None).await.expect("noted");
        one.tasks.create(&record, None).await.expect("created");
        let seen = async |server: &Arc<Server>| {
            let found = find_task(server, &record.id, &ada).await.expect("a state");
            found.expect("the task")
        };
        for server in [&one, &other] {
            assert_eq!(seen(server).await.status, TaskStatus::Running);
        }
        // What it said of itself is over.
        let life = format!("task-runner/mcp/{:016x}", one.tasks.replica);
        assert!(state.remove(&life).await.expect("a state"));
        assert_eq!(
            seen(&one).await.status,
            TaskStatus::Running,
            "it knows better"
        );
        // It may be the state that was away, and the process is about to say so again.
        assert_eq!(seen(&other).await.status, TaskStatus::Running);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(seen(&other).await.status, TaskStatus::Running);
        one.tasks.liveness.heartbeat_tasks().await.expect("said");
        assert_eq!(seen(&other).await.status, TaskStatus::Running);
        assert!(state.remove(&life).await.expect("a state"));
        assert_eq!(seen(&other).await.status, TaskStatus::Running);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(seen(&other).await.status, TaskStatus::Running);
        tokio::time::advance(Duration::from_secs(5)).await;
        let failed = seen(&other).await;
        assert_eq!(failed.status, TaskStatus::Broken);
        let shown = other.tasks.shown(&failed, TaskDialect::Extension).await;
        let shown = shown.expect("a state").expect("an outcome");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(shown["error"]["code"], -32603);
        // And stays so, whatever comes of it.
        let late = one.tasks.change(&record.id, |record| {
            record.end(TaskStatus::Done { failed: false }, StoredResult::default())
        });
        let late = late.await.expect("a state").expect("the task");
        assert_eq!(late.status, TaskStatus::Broken);
        drop(place);
    }
}
