//! Audit records of requests.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::parts::Server;
use super::reply::{RejectReason, Reply};
use super::request_context::Caller;
use super::snapshot::Snapshot;
use super::{completion, resources, search, visibility};
use crate::audit::{Audit, AuditFull, Entry, Event, Outcome, QueueSlot, Subject, SubjectKind};
use crate::auth::{Access, Decision, Kind, Principal, PrincipalKind, Target};
use crate::catalog::Tool;
use crate::limit::LimitExceeded;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::telemetry::{
    OperationOutcome, Reason, RequestObserver, RequestOrigin, RequestResult, RequestScope,
    trace_of_headers, trace_of_meta,
};

/// Audit record of a request in progress.
struct RequestAuditRecord {
    audit: Arc<Audit>,
    entry: Entry,
    ticket: Option<QueueSlot>,
    /// True if the request is recorded with any outcome.
    always: bool,
    /// True if the policy allows the caller to see the target.
    allowed: bool,
}

/// Audit record of a call that outlives its response.
pub(super) struct TaskAuditRecord {
    audit: Arc<Audit>,
    /// `None` after it was written.
    entry: Option<Entry>,
    ticket: Option<QueueSlot>,
    started: Instant,
    /// True after the call has become a task.
    begun: bool,
}

/// Starts the audit record of a request. A request that must be recorded and cannot be is barred.
#[cold]
pub(super) fn audit_request<'a>(
    server: &Server,
    audit: &Arc<Audit>,
    watch: RequestScope<'a>,
    principal: &Arc<Principal>,
    seen: RequestOrigin<'_>,
    request: &Request<'_>,
) -> RequestScope<'a> {
    let method = Method::parse(&request.method);
    let calls = match method {
        Some(method) => calls_something(method),
        None => server.methods.contains_key(&*request.method),
    };
    let always = calls || audit.records_all_methods();
    let (ticket, barred) = match calls.then(|| audit.ticket()) {
        None => (None, false),
        Some(Ok(ticket)) => (ticket, false),
        Some(Err(_)) => (None, true),
    };
    let snapshot = server.snapshots.load();
    let mut subject = method.and_then(|method| subject(method, request));
    let mut json = request.params.arguments.filter(|_| calls);
    // The subject is the tool that runs, even if it is called through `call_tool`.
    let mut via = None;
    if let Some(subject) = subject.as_mut()
        && subject.kind == SubjectKind::Tool
        && snapshot.catalog.tool(&subject.name).is_none()
        && let Some((name, inner)) = search::called_tool(&subject.name, json)
    {
        via = Some(std::mem::replace(subject, Subject::new(SubjectKind::Tool, &name)).name);
        json = inner;
    }
    let decision = subject
        .as_ref()
        .zip(method)
        .and_then(|(subject, method)| decision(&snapshot, principal, (method, subject), request));
    let arguments = json.and_then(|json| {
        // Parsers disagree on which of two members with one name counts. The call is rejected, and its arguments
        // are omitted.
        if request.params.repeated_argument(Some(json)).is_some() {
            return audit.omitted(json);
        }
        let tool = subject
            .as_ref()
            .filter(|subject| subject.kind == SubjectKind::Tool)
            .and_then(|subject| snapshot.catalog.tool(&subject.name));
        // Secret arguments are known only after the tool is.
        let mut starting = snapshot.catalog.starting.iter();
        if tool.is_none()
            && let Some(subject) = &subject
            && subject.kind == SubjectKind::Tool
            && starting.any(|source| source.may_offer(&subject.name))
        {
            return audit.omitted(json);
        }
        audit.arguments(json, tool.map(|tool| &tool.tool.definition().input_schema))
    });
    let reached = subject
        .as_ref()
        .filter(|subject| subject.kind == SubjectKind::Tool)
        .and_then(|subject| snapshot.catalog.tool(&subject.name));
    let mut entry = entry_of(Event::Call, reached.map(|tool| &*tool.tool));
    entry.endpoint = Some(server.endpoint.clone());
    entry.principal = Some(Arc::clone(principal));
    entry.client = seen.peer.map(|peer| peer.address);
    entry.trace = watch
        .context()
        .or_else(|| trace_of_meta(&request.params.meta))
        .or_else(|| seen.headers.and_then(trace_of_headers));
    entry.arguments = arguments;
    entry.subject = subject;
    entry.via = via;
    // Unknown method names are untrusted and are not recorded.
    entry.method = match method {
        Some(method) => Some(method.as_str().into()),
        None if calls => Some((*request.method).into()),
        None => Some("_OTHER".into()),
    };
    let allowed = decision.as_ref().is_none_or(|decision| decision.allowed);
    entry.rule = decision.and_then(|decision| decision.rule).map(Into::into);
    let watch = watch.witnessed_by(Box::new(RequestAuditRecord {
        audit: Arc::clone(audit),
        entry,
        ticket,
        always,
        allowed,
    }));
    if barred { watch.bar() } else { watch }
}

/// Records a message of a batch that exceeds a rate limit, like a request of its own that does.
#[cold]
pub(super) fn audit_limited(server: &Server, caller: Caller<'_>, refused: LimitExceeded) {
    let Some(audit) = &server.audit else { return };
    let mut entry = Entry::new(Event::Refusal);
    entry.outcome = Some(Outcome::Limited);
    entry.reason = Some(refused.limit.setting().into());
    entry.endpoint = Some(server.endpoint.clone());
    entry.principal = Some(Arc::clone(caller.principal));
    entry.client = caller.address;
    entry.session = caller.session.cloned();
    audit.note_stranger(entry);
}

/// Starts the audit record of a task. `later` is true if the call may still end with its request. Returns `None` if
/// there is no audit log.
///
/// # Errors
///
/// The record cannot be stored, and the task must not begin without it.
pub(super) fn audit_task(
    server: &Server,
    caller: Caller<'_>,
    tool: &str,
    later: bool,
) -> Result<Option<TaskAuditRecord>, AuditFull> {
    let Some(audit) = &server.audit else {
        return Ok(None);
    };
    let ticket = audit.ticket()?;
    if let Some(watch) = caller.watch.filter(|_| !later) {
        watch.goes_on();
    }
    let snapshot = server.snapshots.load();
    let reached = snapshot.catalog.tool(tool);
    let mut entry = entry_of(Event::Task, reached.map(|tool| &*tool.tool));
    entry.endpoint = Some(server.endpoint.clone());
    entry.principal = Some(Arc::clone(caller.principal));
    entry.client = caller.address;
    entry.session = caller.session.cloned();
    entry.subject = Some(Subject::new(SubjectKind::Tool, tool));
    entry.trace = caller.watch.and_then(RequestScope::context);
    Ok(Some(TaskAuditRecord {
        audit: Arc::clone(audit),
        entry: Some(entry),
        ticket,
        started: Instant::now(),
        begun: false,
    }))
}

/// Returns an entry that names the server behind a tool, and with whose identity it is called.
fn entry_of(event: Event, tool: Option<&dyn Tool>) -> Entry {
    let entry = Entry::new(event);
    match tool.and_then(Tool::upstream) {
        Some(upstream) => entry
            .saying("upstream", upstream.name)
            .saying("upstream_identity", upstream.identity),
        None => entry,
    }
}

/// Error for a request that must be recorded and cannot be.
#[cold]
pub(super) fn audit_unavailable(id: &str) -> Reply {
    let message =
        "Calls must be recorded in the audit log, which cannot be written now; try again later";
    let error = ErrorObject::new(ErrorCode::Http(503), message);
    let data = serde_json::json!({"retryAfterMs": 2000, "setting": "audit.required"});
    Reply::refused(RejectReason::Unrecorded, Some(id), &error.with_data(data))
}

impl RequestObserver for RequestAuditRecord {
    fn ends(self: Box<Self>, ended: RequestResult) {
        let Self {
            audit,
            mut entry,
            ticket,
            always,
            allowed,
        } = *self;
        let is_refusal = matches!(
            ended.reason,
            Some(
                Reason::Limit(_)
                    | Reason::Scope
                    | Reason::SessionUnknown
                    | Reason::Streams
                    | Reason::Audit
            )
        );
        if !always && !is_refusal && allowed {
            return;
        }
        let outcome = outcome(&ended, allowed);
        entry.outcome = Some(outcome);
        entry.reason = match ended.reason {
            _ if !allowed && outcome == Outcome::Denied => Some("policy".into()),
            reason => reason.map(|reason| reason.as_str().into()),
        };
        entry.code = code(ended.verdict);
        entry.elapsed = Some(ended.elapsed);
        entry.session = ended.session;
        if !always {
            entry.event = Event::Refusal;
        }
        // Callers over a rate limit have no bound of their own.
        let is_known = outcome == Outcome::Denied
            && entry
                .principal
                .as_ref()
                .is_some_and(|principal| principal.kind() != PrincipalKind::Anonymous);
        match ticket {
            Some(ticket) => ticket.fill(entry),
            None if always || is_known => audit.note(entry),
            None => audit.note_stranger(entry),
        }
    }
}

impl TaskAuditRecord {
    /// Marks the call as a task.
    pub(super) fn begins(&mut self) {
        self.begun = true;
    }

    /// Records the end of the call.
    pub(super) fn ends(mut self, reply: &Reply) {
        let ended = RequestResult {
            verdict: reply.verdict(),
            reason: reply.reason(),
            elapsed: self.started.elapsed(),
            session: None,
            goes_on: false,
        };
        self.put(outcome(&ended, true), Some(&ended));
    }

    fn put(&mut self, outcome: Outcome, ended: Option<&RequestResult>) {
        let Some(mut entry) = self.entry.take() else {
            return;
        };
        entry.outcome = Some(outcome);
        entry.elapsed = Some(self.started.elapsed());
        if let Some(ended) = ended {
            entry.reason = ended.reason.map(|reason| reason.as_str().into());
            entry.code = code(ended.verdict);
        }
        match self.ticket.take() {
            Some(ticket) => ticket.fill(entry),
            None => self.audit.note(entry),
        }
    }
}

impl Drop for TaskAuditRecord {
    fn drop(&mut self) {
        if self.begun {
            self.put(Outcome::Cancelled, None);
        }
    }
}

fn outcome(ended: &RequestResult, allowed: bool) -> Outcome {
    match (ended.verdict, ended.reason) {
        (OperationOutcome::Cancelled, _) => Outcome::Cancelled,
        (_, Some(Reason::Limit(_))) => Outcome::Limited,
        (_, Some(Reason::Scope)) => Outcome::Denied,
        (OperationOutcome::Error(_), _) if !allowed => Outcome::Denied,
        (_, Some(Reason::TimedOut)) => Outcome::TimedOut,
        (_, Some(_)) => Outcome::Refused,
        (OperationOutcome::Done, None) if ended.goes_on => Outcome::Started,
        (OperationOutcome::Done, None) => Outcome::Ok,
        (OperationOutcome::ToolError, None) => Outcome::ToolError,
        (OperationOutcome::Error(_) | OperationOutcome::Other, None) => Outcome::Error,
    }
}

fn code(verdict: OperationOutcome) -> Option<i32> {
    match verdict {
        OperationOutcome::Error(code) => Some(code),
        _ => None,
    }
}

/// Returns true if the method calls, reads or changes something. Other methods only list or describe.
fn calls_something(method: Method) -> bool {
    match method {
        Method::ToolsCall
        | Method::PromptsGet
        | Method::ResourcesRead
        | Method::ResourcesSubscribe
        | Method::ResourcesUnsubscribe
        | Method::SkillsGet
        | Method::DirectoryRead
        | Method::TasksUpdate
        | Method::TasksCancel => true,
        Method::Initialize
        | Method::Ping
        | Method::Discover
        | Method::SetLogLevel
        | Method::Listen
        | Method::ToolsList
        | Method::PromptsList
        | Method::ResourcesList
        | Method::TemplatesList
        | Method::Complete
        | Method::TasksGet
        | Method::TasksList
        | Method::TasksResult
        | Method::SkillsList => false,
    }
}

/// Target of a request.
fn subject(method: Method, request: &Request<'_>) -> Option<Subject> {
    let params = &request.params;
    let (kind, name) = match method {
        Method::ToolsCall => (SubjectKind::Tool, params.name),
        Method::PromptsGet => (SubjectKind::Prompt, params.name),
        Method::ResourcesRead
        | Method::ResourcesSubscribe
        | Method::ResourcesUnsubscribe
        | Method::SkillsGet
        | Method::DirectoryRead => (SubjectKind::Resource, params.uri),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
            (SubjectKind::Task, params.rare().task_id)
        }
        Method::Complete => return completion::subject(request),
        _ => return None,
    };
    Some(Subject::new(kind, &message::string(name?)?))
}

/// Policy decision about the target.
fn decision(
    snapshot: &Snapshot,
    principal: &Principal,
    (method, subject): (Method, &Subject),
    request: &Request<'_>,
) -> Option<Decision> {
    let policy = &snapshot.policy_view.as_ref()?.policy;
    let class = policy.class_of(principal);
    let name = &*subject.name;
    match subject.kind {
        SubjectKind::Tool => {
            let entry = snapshot.catalog.tool(name)?;
            Some(policy.decide(
                &class,
                visibility::tool_target(policy, entry.tool.definition()),
            ))
        }
        SubjectKind::Prompt => {
            let target = Target {
                kind: Kind::Prompt,
                name,
                access: Access::Read,
            };
            snapshot.catalog.prompts.position(name)?;
            Some(policy.decide(&class, target))
        }
        SubjectKind::Resource if method == Method::Complete => {
            let target = Target {
                kind: Kind::Resource,
                name,
                access: Access::Read,
            };
            snapshot.catalog.templates.position(name)?;
            Some(policy.decide(&class, target))
        }
        // The name of the subject may be cut.
        SubjectKind::Resource => {
            let uri = message::string(request.params.uri?)?;
            match method {
                Method::ResourcesRead => resources::decide_read(snapshot, principal, &uri),
                _ => Some(policy.decide_uri(&class, &uri)),
            }
        }
        SubjectKind::Task => None,
    }
}

impl fmt::Debug for RequestAuditRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestAuditRecord")
    }
}
