//! `subscriptions/listen` of the stateless era, and what a session hears over standard input and output.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ear::Ear;
use super::feed::{Owner, Wants};
use super::part::Part;
use super::standing::{Listen, Manner, Standing};
use super::{Place, TooMany};
use crate::auth::Principal;
use crate::catalog::RequestId;
use crate::limit::Limit;
use crate::protocol::message::{self, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, fault_of_uri};
use crate::seal::Session;
use crate::server::reply::{Refusal, Reply, begin};
use crate::server::tools::{internal_error, invalid_params};
use crate::server::{Caller, Handled, Server};

/// What a client asks to be told.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
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

/// The extension that task ids belong to.
const TASKS: &str = "io.modelcontextprotocol/tasks";

impl Server {
    /// Opens a stream that tells what was asked for, and nothing else (SUB-01 to SUB-06).
    pub(in crate::server) fn listen(
        self: &Arc<Self>,
        caller: Caller<'_>,
        over_http: bool,
        request: &Request<'_>,
    ) -> Result<Handled, Reply> {
        if caller.stream_after.is_none() {
            return Err(Reply::refuse(
                Refusal::NotAcceptable,
                Some(request.id),
                ErrorCode::Http(406),
                "subscriptions/listen is answered by an event stream: Accept must allow text/event-stream",
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
                Refusal::Capability,
                Some(request.id),
                &error.with_data(missing),
            ));
        }
        let (wants, honoured) = self.honoured(&filter, caller.principal, request.id)?;
        let asked_tasks = Arc::clone(&wants.tasks);
        let owner = Owner {
            request: (!over_http).then(|| RequestId::from_json(request.id)),
            ..self.streams.owner(caller.principal, caller.address)
        };
        let place = self
            .streams
            .enter(owner, wants)
            .map_err(|too_many| too_many.reply(Some(request.id)))?;
        let listening = Listening {
            server: Arc::clone(self),
            principal: Arc::clone(caller.principal),
            id: request.id.into(),
            over_http,
            place,
            honoured,
        };
        if asked_tasks.is_empty() {
            return Ok(Handled::Now(listening.begin()));
        }
        Ok(Handled::Later(Box::pin(
            listening.with_tasks(filter.task_ids.unwrap_or_default()),
        )))
    }

    /// What of a filter is honoured (SUB-03): for feeds, and for the client.
    fn honoured(
        &self,
        filter: &Filter,
        principal: &Principal,
        id: &str,
    ) -> Result<(Wants, Map<String, Value>), Reply> {
        let generation = self.generation.load();
        let max = self.config.streams.subscriptions;
        let too_many = |what: &str| {
            self.limits.hits.count(Limit::Subscriptions);
            let problem =
                format!("at most {max} {what} can be subscribed to (server.streams.subscriptions)");
            Err(invalid_params(id, &problem))
        };
        let has_resources = generation.catalog.has_resources();
        let mut honoured = Map::new();
        let mut flag = |name: &str, asked: bool, offered: bool| {
            let honours = asked && offered;
            if honours {
                honoured.insert(name.to_owned(), true.into());
            }
            honours
        };
        let mut wants = Wants {
            tools: flag("toolsListChanged", filter.tools_list_changed, true),
            prompts: flag(
                "promptsListChanged",
                filter.prompts_list_changed,
                generation.catalog.prompts.len() > 0,
            ),
            resources: flag(
                "resourcesListChanged",
                filter.resources_list_changed,
                has_resources,
            ),
            ..Wants::default()
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
                // What may not be read is not told of either.
                if generation.sees_uri(principal, uri) && uris.insert(Arc::from(uri.as_str())) {
                    shown.push(uri.as_str());
                }
            }
            if max < uris.len() {
                return too_many("resources");
            }
            honoured.insert("resourceSubscriptions".to_owned(), json!(shown));
            wants.uris = Arc::new(uris);
        }
        if let Some(asked) = &filter.task_ids
            && generation.offers(Method::TasksGet)
        {
            let tasks: HashSet<Arc<str>> = asked.iter().map(|id| Arc::from(id.as_str())).collect();
            if max < tasks.len() {
                return too_many("tasks");
            }
            wants.tasks = Arc::new(tasks);
        }
        Ok((wants, honoured))
    }

    /// The answer to a request to listen, which comes when it ends.
    fn listened(&self, id: &str) -> bytes::Bytes {
        let server_info = &self.generation.load().server_info;
        let mut out = begin(id, 256);
        out.extend_from_slice(br#","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"#);
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(
            format!(r#","io.modelcontextprotocol/serverInfo":{server_info}}}}}}}"#).as_bytes(),
        );
        out.into()
    }

    /// What the session of a process's one client hears, outside of answers.
    pub(in crate::server) fn standing_for(
        self: &Arc<Self>,
        session: &Session,
        principal: &Arc<Principal>,
    ) -> Option<Box<dyn super::Parts>> {
        let owner = Owner {
            session: Some(Arc::clone(&session.log_name)),
            ..Owner::default()
        };
        let place = self.streams.enter(owner, Wants::all_lists()).ok()?;
        let ear = Ear::new(self, principal);
        Some(Box::new(Standing::new(place, ear, Manner::Plain, None)))
    }
}

/// A stream of `subscriptions/listen` about to begin.
struct Listening {
    server: Arc<Server>,
    principal: Arc<Principal>,
    /// The request's id as JSON.
    id: Box<str>,
    over_http: bool,
    place: Place,
    honoured: Map<String, Value>,
}

impl Listening {
    /// Finds out which of the tasks are the caller's. They are listened for already; so nothing is missed that happens
    /// to them meanwhile.
    async fn with_tasks(mut self, asked: Vec<String>) -> Reply {
        let mut found = HashSet::new();
        let mut shown = Vec::new();
        let mut has_something_to_tell = Vec::new();
        for id in asked {
            let task: Arc<str> = id.into();
            if found.contains(&task) {
                continue;
            }
            match self.server.find_task(&task, &self.principal).await {
                Ok(Some(record)) => {
                    shown.push(Value::from(&*task));
                    if !record.just_works() {
                        has_something_to_tell.push(Arc::clone(&task));
                    }
                    found.insert(task);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "tasks cannot be subscribed to without the shared state");
                    return internal_error(&self.id);
                }
            }
        }
        if !shown.is_empty() {
            self.honoured.insert("taskIds".to_owned(), shown.into());
        }
        self.place.feed.follow_tasks(Arc::new(found));
        // Whoever learnt of a task before it began to listen may have missed its end.
        for task in has_something_to_tell {
            self.place.feed.tell_task(&task, None);
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
            honoured,
        } = self;
        let acknowledged = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": honoured},
        });
        let first = Part::message(with_subscription(acknowledged, &id).into());
        let manner = Manner::Listen(Listen {
            result: server.listened(&id),
            id,
            tells_end: !over_http,
        });
        let ear = Ear::new(&server, &principal);
        let standing = Standing::new(place, ear, manner, Some(first));
        Reply::Stream(Box::new(if over_http {
            standing.for_life(server.streams.life_for(&principal))
        } else {
            standing
        }))
    }
}

impl Wants {
    /// What every session is told (LIST-03).
    pub(super) fn all_lists() -> Self {
        Self {
            tools: true,
            prompts: true,
            resources: true,
            ..Self::default()
        }
    }
}

impl TooMany {
    pub(super) fn reply(self, id: Option<&str>) -> Reply {
        let Self { max, setting } = self;
        let message = format!("Too many streams are open: there may be {max}");
        let error = ErrorObject::new(ErrorCode::Http(429), message);
        Reply::refused(
            Refusal::TooManyStreams,
            id,
            &error.with_data(json!({ "setting": setting })),
        )
    }
}

fn read_filter(params: &str) -> Result<Filter, String> {
    let params: ListenParams<'_> = serde_json::from_str(params)
        .map_err(|_| "is required, an object: what to be told of".to_owned())?;
    let filter = params.notifications.get();
    if !message::is_object(filter) {
        return Err("is an object: what to be told of".to_owned());
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

/// Puts a request's id into a message's `_meta`, as the text that it came in.
fn with_subscription(mut message: Value, id: &str) -> String {
    // An id is JSON already; as a number it may be larger than any that there is here.
    const MARK: &str = "\u{1}id\u{1}";
    message["params"]["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": MARK});
    let mark = Value::from(MARK).to_string();
    message.to_string().replacen(&mark, id, 1)
}
