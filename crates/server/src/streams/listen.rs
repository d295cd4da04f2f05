//! Handler of `subscriptions/listen` in the stateless lifecycle, and notifications of sessions over stdio.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::event::StreamEvent;
use super::mailbox::{Filter, Owner};
use super::notification_stream::{ListenContext, NotificationStream, StreamKind};
use super::registration::Registration;
use super::subscriber::Subscriber;
use crate::auth::Principal;
use crate::catalog::RequestId;
use crate::limit::Limit;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, fault_of_uri};
use crate::seal::Session;
use crate::server::errors::{check_scopes, internal_error, invalid_params};
use crate::server::inflight::canonical;
use crate::server::parts::Server;
use crate::server::reply::{MaybeReady, RejectReason, Reply, begin};
use crate::server::request_context::Caller;
use crate::server::tasks;

/// Subscriptions that the client requests.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequestedFilter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Option<Vec<String>>,
    task_ids: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ListenParams<'a> {
    #[serde(borrow)]
    notifications: &'a RawValue,
}

/// Extension of `taskIds`.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Opens a stream with the requested notifications (SUB-01 to SUB-06).
pub(crate) fn listen(
    server: &Arc<Server>,
    caller: Caller<'_>,
    over_http: bool,
    request: &Request<'_>,
) -> Result<MaybeReady, Reply> {
    if caller.stream_after.is_none() {
        return Err(Reply::refuse(
            RejectReason::NotAcceptable,
            Some(request.id),
            ErrorCode::Http(406),
            "the response to subscriptions/listen is an event stream: Accept must allow text/event-stream",
        ));
    }
    let params = request.params.object.unwrap_or("{}");
    let filter = read_filter(params)
        .map_err(|problem| invalid_params(request.id, &format!("notifications: {problem}")))?;
    if filter.task_ids.is_some() && !declares_tasks(request) {
        // SUB-07
        let error = ErrorObject::new(
            ErrorCode::MissingCapability,
            "taskIds belong to an extension that the client does not declare",
        );
        let missing = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
        return Err(Reply::refused(
            RejectReason::Capability,
            Some(request.id),
            &error.with_data(missing),
        ));
    }
    let (wants, accepted) = accept_filter(server, &filter, caller.principal, request.id)?;
    let asked_tasks = Arc::clone(&wants.tasks);
    let owner = Owner {
        request: (!over_http).then(|| canonical(RequestId::from_json(request.id))),
        ..server.streams.owner(caller.principal, caller.address)
    };
    let place = server
        .streams
        .enter(owner, wants)
        .map_err(|too_many| too_many.reply(Some(request.id)))?;
    let listening = ListenRequest {
        server: Arc::clone(server),
        principal: Arc::clone(caller.principal),
        id: request.id.into(),
        over_http,
        place,
        accepted,
    };
    if asked_tasks.is_empty() {
        return Ok(MaybeReady::Ready(listening.begin()));
    }
    Ok(MaybeReady::Pending(Box::pin(
        listening.with_tasks(filter.task_ids.unwrap_or_default()),
    )))
}

/// Accepted part of the filter (SUB-03), for the mailbox and for the client.
fn accept_filter(
    server: &Server,
    filter: &RequestedFilter,
    principal: &Principal,
    id: &str,
) -> Result<(Filter, Map<String, Value>), Reply> {
    let snapshot = server.snapshots.load();
    let max = server.config.streams.subscriptions;
    let too_many = |what: &str| {
        server.limits.hits.count(Limit::Subscriptions);
        let problem =
            format!("at most {max} {what} can be subscribed to (server.streams.subscriptions)");
        Err(invalid_params(id, &problem))
    };
    let has_resources = snapshot.catalog.has_resources();
    let mut accepted = Map::new();
    let mut flag = |name: &str, asked: bool, offered: bool| {
        let honours = asked && offered;
        if honours {
            accepted.insert(name.to_owned(), true.into());
        }
        honours
    };
    let mut wants = Filter {
        tools: flag("toolsListChanged", filter.tools_list_changed, true),
        prompts: flag(
            "promptsListChanged",
            filter.prompts_list_changed,
            snapshot.catalog.has_prompts(),
        ),
        resources: flag(
            "resourcesListChanged",
            filter.resources_list_changed,
            has_resources,
        ),
        ..Filter::default()
    };
    if let Some(asked) = filter
        .resource_subscriptions
        .as_ref()
        .filter(|_| has_resources)
    {
        let mut uris = HashSet::new();
        let mut shown = Vec::new();
        for uri in asked {
            if let Some(fault) = fault_of_uri(uri) {
                return Err(invalid_params(
                    id,
                    &format!("resourceSubscriptions: {fault}"),
                ));
            }
            // A URI that the caller does not see must look unknown.
            let Some(needed) = snapshot.scopes_to_subscribe(principal, uri) else {
                continue;
            };
            check_scopes(principal, id, &needed)?;
            if uris.insert(Arc::from(uri.as_str())) {
                shown.push(uri.as_str());
            }
        }
        if max < uris.len() {
            return too_many("resources");
        }
        accepted.insert("resourceSubscriptions".to_owned(), json!(shown));
        wants.uris = Arc::new(uris);
    }
    if let Some(asked) = &filter.task_ids
        && snapshot.offers(Method::TasksGet)
    {
        let tasks: HashSet<Arc<str>> = asked.iter().map(|id| Arc::from(id.as_str())).collect();
        if max < tasks.len() {
            return too_many("tasks");
        }
        wants.tasks = Arc::new(tasks);
    }
    Ok((wants, accepted))
}

/// Response to the request, sent at the end of the stream.
fn final_response(server: &Server, id: &str) -> bytes::Bytes {
    let server_info = &server.snapshots.load().server_info;
    let mut out = begin(id, 256);
    out.extend_from_slice(
        br#","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"#,
    );
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(
        format!(r#","io.modelcontextprotocol/serverInfo":{server_info}}}}}}}"#).as_bytes(),
    );
    out.into()
}

/// Notification stream of a session over stdio.
pub(crate) fn session_notifications(
    server: &Arc<Server>,
    session: &Session,
    principal: &Arc<Principal>,
) -> Option<Box<dyn super::EventSource>> {
    let owner = Owner {
        session: Some(Arc::clone(&session.log_name)),
        ..Owner::default()
    };
    let place = server.streams.enter(owner, Filter::all_lists()).ok()?;
    let subscriber = Subscriber::new(server, principal);
    Some(Box::new(NotificationStream::new(
        place,
        subscriber,
        StreamKind::Plain,
        None,
    )))
}

/// A `subscriptions/listen` request whose stream is not open yet.
struct ListenRequest {
    server: Arc<Server>,
    principal: Arc<Principal>,
    /// JSON-RPC id of the request.
    id: Box<str>,
    over_http: bool,
    place: Registration,
    accepted: Map<String, Value>,
}

impl ListenRequest {
    /// Keeps the tasks of the caller. The mailbox subscribes to them already, so no change is missed.
    async fn with_tasks(mut self, asked: Vec<String>) -> Reply {
        let mut found = HashSet::new();
        let mut shown = Vec::new();
        let mut changed = Vec::new();
        for id in asked {
            let task: Arc<str> = id.into();
            if found.contains(&task) {
                continue;
            }
            match tasks::find_task(&self.server, &task, &self.principal).await {
                Ok(Some(record)) if tasks::may_use(&self.server, &record, &self.principal) => {
                    shown.push(Value::from(&*task));
                    if !record.is_working() {
                        changed.push(Arc::clone(&task));
                    }
                    found.insert(task);
                }
                Ok(_) => {}
                Err(error) => {
                    let failed = "tasks cannot be subscribed to without the shared state";
                    self.server.streams.report_failure(&error, failed);
                    return internal_error(&self.id);
                }
            }
        }
        if !shown.is_empty() {
            self.accepted.insert("taskIds".to_owned(), shown.into());
        }
        self.place.mailbox.set_tasks(Arc::new(found));
        // The client may have missed the end of a task that it learned of before.
        for task in changed {
            self.place.mailbox.deliver_task(&task, None);
        }
        self.begin()
    }

    fn begin(self) -> Reply {
        let Self {
            server,
            principal,
            id,
            over_http,
            place,
            accepted,
        } = self;
        let acknowledged = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": accepted},
        });
        let first = StreamEvent::message(with_subscription(acknowledged, &id).into());
        let kind = StreamKind::Listen(ListenContext {
            result: final_response(&server, &id),
            id,
            sends_cancelled: !over_http,
        });
        let subscriber = Subscriber::new(&server, &principal);
        let standing = NotificationStream::new(place, subscriber, kind, Some(first));
        Reply::Stream(Box::new(if over_http {
            standing.with_max_age(server.streams.max_age_for(&principal))
        } else {
            standing
        }))
    }
}

impl Filter {
    /// Filter of every session (LIST-03).
    pub(super) fn all_lists() -> Self {
        Self {
            tools: true,
            prompts: true,
            resources: true,
            ..Self::default()
        }
    }
}

fn read_filter(params: &str) -> Result<RequestedFilter, String> {
    let params: ListenParams<'_> = serde_json::from_str(params)
        .map_err(|_| "is required: an object that selects notifications".to_owned())?;
    let filter = params.notifications.get();
    if !message::is_object(filter) {
        return Err("must be an object that selects notifications".to_owned());
    }
    serde_json::from_str(filter).map_err(|e| e.to_string())
}

fn declares_tasks(request: &Request<'_>) -> bool {
    #[derive(Deserialize)]
    struct Capabilities {
        #[serde(default)]
        extensions: Map<String, Value>,
    }
    let declared = request.params.meta.client_capabilities.unwrap_or("{}");
    serde_json::from_str::<Capabilities>(declared)
        .is_ok_and(|declared| declared.extensions.contains_key(TASKS))
}

/// Adds the request id to the `_meta` of a message, as the text that was received.
fn with_subscription(mut message: Value, id: &str) -> String {
    // The id is JSON text; as a number it may exceed the range of any type here.
    const MARK: &str = "\u{1}id\u{1}";
    message["params"]["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": MARK});
    let mark = Value::from(MARK).to_string();
    message.to_string().replacen(&mark, id, 1)
}
