//! A message in, a reply out. No sockets here.
//!
//! `http.rs` and `stdio.rs` decide for each message which of the two lifecycles it belongs to (`handshake.rs` up to
//! 2025-11-25, `stateless.rs` for 2026-07-28), and hand what both agree on to
//! one dispatcher. Everything after that is shared.

mod audited;
mod batch;
mod call;
mod completion;
mod config;
mod content;
mod generation;
mod handshake;
mod http;
mod kept;
mod legacy;
mod lists;
mod local;
mod logging;
mod method;
mod mirror;
mod mount;
mod plain;
mod prompts;
mod questions;
mod reply;
mod resources;
mod rounds;
mod search;
mod seen;
mod skills;
mod stateless;
mod stdio;
mod stream;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;
mod watched;

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use ::http::HeaderMap;
use arc_swap::ArcSwap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use call::next_heartbeat;
pub use config::{BatchPolicy, ServerConfig, ValidationErrors};
pub(crate) use http::HttpHead;
pub(crate) use local::Local;
pub use method::{MethodFuture, MethodHandler};
pub(crate) use mirror::{McpHeaders, VersionHeader};
#[cfg(any(fuzzing, test))]
pub(crate) use mirror::{Mirrored, read as read_mirrored};
pub use mount::MountConfig;
pub(crate) use mount::{Chosen, fault_of_mount};
pub use questions::{QuestionConfig, QuestionCounts};
pub(crate) use reply::{Answer, Refusal, Reply, limited};
pub use search::SearchConfig;
pub(crate) use search::VERBS as SEARCH_VERBS;
pub(crate) use stdio::StdioPeer;
use stream::CallStream;
pub use streams::StreamsConfig;
pub(crate) use streams::{Part, Parts, Said};
pub use tasks::TaskConfig;

use crate::audit::Audit;
use crate::auth::{Policy, Principal};
use crate::catalog::{
    Announcer, Asking, CallContext, Catalog, Client, LogLevel, Outlet, Refused, RequestId, Wanted,
};
use crate::limit::Limits;
use crate::protocol::message::{self, Malformed, MalformedKind, Notification, Request, Response};
use crate::protocol::{ClientCapabilities, ErrorCode, ErrorObject, Method, Revision};
use crate::seal::{KeyRing, Revoked};
use crate::state::SharedState;
use crate::telemetry::{
    Counter, Gauge, OPEN_STREAMS, SESSION_DURATION, SESSIONS_OPENED, TOOLS, Telemetry, Timing,
    Watch,
};
use call::{BoxedCall, Inflight, OnDisconnect, Outcome, Resumption, Step, Terms};
pub(crate) use generation::Changes;
use generation::Generation;
use legacy::LegacySessions;
use logging::Levels;
use questions::{Heard, Questions};
use reply::begin;
use rounds::Reach;
use streams::{Streams, Word};
use tasks::Tasks;
use watched::Operations;

/// One MCP server: a catalog, and what it takes to answer for it.
pub(crate) struct Server {
    generation: ArcSwap<Generation>,
    config: ServerConfig,
    keys: Arc<KeyRing>,
    revoked: Revoked,
    methods: HashMap<String, Arc<dyn MethodHandler>>,
    /// The name of the endpoint; bound into everything that is sealed.
    mount: Box<str>,
    /// How many tools there are.
    tools: Gauge,
    /// Names this process in the sessions that it issues.
    replica: u64,
    inflight: Arc<Inflight>,
    /// How long a client with a session has to answer a question.
    question_timeout: Duration,
    levels: Levels,
    pub(crate) limits: Arc<Limits>,
    streams: Arc<Streams>,
    legacy: LegacySessions,
    announcer: Announcer,
    tasks: Arc<Tasks>,
    /// Whether other replicas can be reached by way of the state.
    reaches_others: bool,
    telemetry: Telemetry,
    operations: Operations,
    /// Sessions that were opened, by revision.
    sessions_opened: [Counter; Revision::ALL.len()],
    session_life: Timing,
    pub(crate) state: SharedState,
    /// Who is told what happens, if anybody is.
    pub(crate) audit: Option<Arc<Audit>>,
}

/// A generation that is complete and not served yet.
#[derive(Debug)]
pub(crate) struct Prepared(Generation);

/// What a server shares with its application and with other replicas.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) state: SharedState,
    /// Whether other replicas may have the same state.
    pub(crate) is_shared: bool,
    pub(crate) announcer: Announcer,
    /// The name of the endpoint, if it is another than `/mcp`.
    pub(crate) mount: Option<Box<str>>,
}

/// What the endpoint at `/mcp` is called where it is sealed in.
pub(crate) const MAIN: &str = "mcp";

/// What comes of a message.
pub(crate) enum Handled {
    /// The usual case: nothing had to wait.
    Now(Reply),
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Who sent a request, once its lifecycle has settled that.
#[derive(Clone, Copy, Debug)]
struct Caller<'a> {
    principal: &'a Arc<Principal>,
    revision: Revision,
    /// The session's name for logs.
    session: Option<&'a Arc<str>>,
    on_disconnect: OnDisconnect,
    /// After how long an answer becomes a stream; `None` if the caller takes none.
    stream_after: Option<Duration>,
    /// Whether it can come back to a stream that broke off.
    resumption: Resumption,
    /// What the client can do, if it has a session; in the stateless era the request says it.
    capabilities: ClientCapabilities,
    /// Whether the client can be asked something.
    reach: Reach,
    /// Seconds of Unix time.
    now: u64,
    /// Who watches, if anybody does.
    watch: Option<&'a Watch<'a>>,
}

impl Caller<'_> {
    /// What a tool, a resource or a prompt may ask about the request, and how it is heard.
    #[inline]
    fn context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        log_level: Option<LogLevel>,
        asking: Asking,
    ) -> Arc<CallContext> {
        let (trace, carried) = self.trace(request);
        Arc::new(CallContext {
            trace,
            carried,
            principal: Arc::clone(self.principal),
            session: self.session.cloned(),
            request_id: RequestId::from_json(request.id),
            headers: headers.map(|headers| std::mem::take(headers.all)),
            outlet: Outlet::new(Wanted {
                progress_token: progress_token(request),
                progress_messages: self.revision.has_annotations(),
                log_level,
            }),
            asking,
        })
    }
}

/// The token that the caller wants progress reported under, as JSON text.
fn progress_token(request: &Request<'_>) -> Option<Box<str>> {
    let token = request.params.meta.progress_token?;
    message::is_id(token).then(|| token.into())
}

/// The headers of an HTTP request.
struct Headers<'a> {
    /// Those that the protocol gives a meaning to; `None` where no message came that they could belong to.
    mcp: Option<&'a McpHeaders>,
    /// All of them; a call takes them along.
    all: &'a mut HeaderMap,
}

/// What is known of who is let in, and of what they may.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    pub(crate) policy: Option<Policy>,
    /// Whether callers have to say who they are.
    pub(crate) proved: bool,
}

impl Server {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is another room's, and there is one caller"
    )]
    pub(crate) fn new(
        config: ServerConfig,
        keys: impl Into<Arc<KeyRing>>,
        shared: Shared,
        mut catalog: Catalog,
        methods: HashMap<String, Arc<dyn MethodHandler>>,
        telemetry: Telemetry,
        admission: Admission,
        limits: impl Into<Arc<Limits>>,
        audit: Option<Arc<Audit>>,
    ) -> Self {
        let metrics = &telemetry.metrics;
        catalog.count_in(metrics);
        let operations = Operations::new(metrics, &methods);
        let sessions_opened = Revision::ALL.map(|revision| {
            let labels = [("mcp.protocol.version", revision.as_str())];
            match revision.has_sessions() {
                true => metrics.counter(&SESSIONS_OPENED, &labels),
                false => Counter::default(),
            }
        });
        let session_life = metrics.timing(&SESSION_DURATION, &[("network.protocol.name", "http")]);
        let labels: Vec<_> = shared.mount.iter().map(|name| ("mount", &**name)).collect();
        let tools = metrics.gauge(&TOOLS, &labels);
        tools.set(i64::try_from(catalog.len()).unwrap_or(i64::MAX));
        telemetry.mark_secret(catalog.secret_arguments());
        let generation = Generation::new(catalog, &config, admission);
        let mount = match &shared.mount {
            None => MAIN.to_owned(),
            // No name of an endpoint has a colon in it.
            Some(name) => format!("{MAIN}:{name}"),
        };
        let mount = mount.as_str();
        let replica = u64::from_ne_bytes(crate::seal::random_bytes());
        let questions = config.questions.clone();
        let question_timeout = Duration::from_secs(questions.timeout_seconds);
        let open_streams = metrics.gauge(&OPEN_STREAMS, &[]);
        let inflight = Arc::new(Inflight::new(questions, replica, open_streams));
        Questions::show(&inflight, metrics, &labels);
        let streams = Arc::new(Streams::new(
            config.streams.clone(),
            shared.state.clone(),
            mount,
            Arc::clone(&inflight),
        ));
        Streams::show(&streams, metrics, &labels);
        let tasks = Tasks::new(
            shared.state.clone(),
            config.tasks.clone(),
            mount,
            Arc::clone(&streams),
            replica,
        );
        tasks.show(metrics, &labels);
        Self {
            generation: ArcSwap::from_pointee(generation),
            config,
            keys: keys.into(),
            revoked: Revoked::default(),
            methods,
            mount: mount.into(),
            tools,
            replica,
            question_timeout,
            inflight,
            levels: Levels::default(),
            limits: limits.into(),
            streams,
            legacy: LegacySessions::default(),
            announcer: shared.announcer,
            state: shared.state,
            tasks,
            reaches_others: shared.is_shared,
            telemetry,
            operations,
            sessions_opened,
            session_life,
            audit,
        }
    }

    /// What would be served with another catalog and other settings. Of the settings only those count that are live.
    pub(crate) fn prepare(
        &self,
        mut catalog: Catalog,
        config: &ServerConfig,
        admission: Admission,
    ) -> Prepared {
        catalog.count_in(&self.telemetry.metrics);
        Prepared(Generation::new(catalog, config, admission))
    }

    /// Serves what was prepared, from the next request on. Those that are under way end as they began.
    pub(crate) fn install(&self, prepared: Prepared) -> Changes {
        let generation = Arc::new(prepared.0);
        let secrets = generation.catalog.secret_arguments();
        self.telemetry.mark_secret(secrets);
        self.tools
            .set(i64::try_from(generation.catalog.len()).unwrap_or(i64::MAX));
        let before = self.generation.swap(Arc::clone(&generation));
        generation.changes(&before)
    }

    /// Waits until no call is left that outlives its request.
    pub(crate) async fn idle(&self) {
        self.inflight.idle().await;
    }

    /// Ends the calls that still run; their callers are told that the server stops.
    pub(crate) fn stop_calls(&self) {
        self.inflight.stop();
    }

    /// What has become of the questions that were asked.
    pub(crate) fn question_counts(&self) -> QuestionCounts {
        self.inflight.questions.counts()
    }

    /// What is watched of this server.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// What is served now.
    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// What is configured and not offered.
    pub(crate) fn refusals(&self) -> Vec<Refused> {
        self.generation.load().catalog.refused().to_vec()
    }

    /// What is configured and not offered: of each the source and the place. What is wrong with it is in the log.
    pub(crate) fn refused(&self) -> Vec<serde_json::Value> {
        let generation = self.generation.load();
        let refused = generation.catalog.refused().iter();
        refused
            .map(|refused| serde_json::json!({"source": refused.source, "place": refused.place}))
            .collect()
    }

    /// What is configured and cannot be offered, with the reasons, for whoever runs the server.
    #[cfg(feature = "cli")]
    pub(crate) fn problems(&self) -> Vec<String> {
        let generation = self.generation.load();
        let refused = generation.catalog.refused().iter();
        refused.map(ToString::to_string).collect()
    }

    /// How many tools there are.
    pub(crate) fn tool_count(&self) -> usize {
        self.generation.load().catalog.len()
    }

    /// A request within a session.
    #[inline]
    fn session_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        caller: Caller<'_>,
        headers: Option<Headers<'_>>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Handled {
        match Method::parse(&request.method).filter(|method| method.is_in(caller.revision)) {
            Some(method) => self.dispatch(cx, method, caller, headers, body, request),
            None => self
                .other_method(cx, caller, headers, request)
                .unwrap_or_else(|| Handled::Now(method_not_found(request))),
        }
    }

    /// A request that stands alone.
    #[inline]
    fn stateless_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        caller: Caller<'_>,
        headers: Option<Headers<'_>>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Handled {
        let mcp = headers.as_ref().and_then(|headers| headers.mcp);
        match stateless::check_envelope(request, mcp) {
            // A call's level is looked at after its name.
            Ok(method) if method != Method::ToolsCall => match stateless::log_level(request) {
                Ok(_) => self.dispatch(cx, method, caller, headers, body, request),
                Err(refusal) => Handled::Now(refusal),
            },
            Ok(method) => self.dispatch(cx, method, caller, headers, body, request),
            Err(refusal) if is_unknown_method(&refusal) => self
                .other_method(cx, caller, headers, request)
                .unwrap_or(Handled::Now(refusal)),
            Err(refusal) => Handled::Now(refusal),
        }
    }

    /// A notification of a client's; `session` is where its ids mean something.
    fn notified(&self, session: &str, notification: &Notification<'_>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        // CAN-01: a malformed one is ignored.
        if notification.method == "notifications/cancelled"
            && let Some(params) = notification.params.object
            && let Ok(cancelled) = serde_json::from_str::<Cancelled<'_>>(params)
        {
            let request = cancelled.request_id.get();
            if self.inflight.cancel(session, request) {
                return;
            }
            if session == call::STDIO {
                self.streams.cancel(request);
            } else {
                self.streams.say(Word::Cancelled {
                    session: session.into(),
                    request: request.to_owned(),
                });
            }
        }
    }

    /// An answer of a client's to a question; `session` is where it was asked.
    fn answered(&self, session: &str, principal: &Principal, response: &Response<'_>) -> Reply {
        match self
            .inflight
            .questions
            .hear(session, principal.id(), response)
        {
            Heard::Here => Reply::Accepted,
            Heard::Elsewhere(to) => {
                let (Some(id), outcome) = (response.id, response.outcome) else {
                    return Reply::Accepted;
                };
                let size = outcome.map_or_else(str::len, str::len);
                if self.reaches_others && size <= ANSWER_ELSEWHERE_BYTES {
                    self.streams.say(Word::Answered {
                        to,
                        session: session.into(),
                        principal: principal.id().into(),
                        id: id.to_owned(),
                        outcome: outcome.map(str::to_owned).map_err(str::to_owned),
                    });
                    return Reply::Accepted;
                }
                let message = if self.reaches_others {
                    "this is the answer to a question that another replica has asked, and it is too large to be \
                    passed on; send the requests of a session to the same replica"
                } else {
                    "this is the answer to a question that another process has asked, and replicas share no state \
                    (App::state); give them one, or send the requests of a session to the same replica"
                };
                let error = ErrorObject::new(ErrorCode::Http(409), message);
                let error = error.with_data(serde_json::json!({"setting": "state"}));
                Reply::refused(Refusal::AskedElsewhere, None, &error)
            }
        }
    }

    /// After how long an answer becomes a stream.
    fn stream_after(&self) -> Duration {
        Duration::from_secs(self.config.stream_after_seconds)
    }

    /// What both lifecycles end in.
    #[inline]
    fn dispatch(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        method: Method,
        caller: Caller<'_>,
        headers: Option<Headers<'_>>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Handled {
        caller.names(self.operations.of(method));
        if caller.is_barred() {
            return Handled::Now(audited::unrecorded(request.id));
        }
        Handled::Now(match method {
            Method::ToolsCall => return self.call_tool(cx, caller, headers, body, request),
            Method::ToolsList => self.list_tools(caller, request),
            Method::Ping => Reply::fixed(request.id, br#","result":{}}"#),
            Method::Discover => Reply::fixed(request.id, &self.generation.load().discovered),
            Method::SetLogLevel => self.set_log_level(caller, request),
            // A session has begun already, and over HTTP each handshake begins one of its own.
            Method::Initialize => Reply::error(
                request.id,
                &ErrorObject::new(ErrorCode::InvalidRequest, "initialize was answered already"),
            ),
            other => return self.dispatch_further(cx, other, caller, headers, body, request),
        })
    }

    /// The methods of what need not be there.
    fn dispatch_further(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        method: Method,
        caller: Caller<'_>,
        headers: Option<Headers<'_>>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Handled {
        if method == Method::Listen {
            let over_http = headers.is_some();
            let listening = self.listen(caller, over_http, request);
            return listening.unwrap_or_else(Handled::Now);
        }
        if !self.generation.load().offers(method) {
            return Handled::Now(if caller.revision.has_sessions() {
                method_not_found(request)
            } else {
                stateless::unknown_method(request)
            });
        }
        let handled = match method {
            Method::ResourcesList => Ok(Handled::Now(self.list_resources(caller, request))),
            Method::TemplatesList => Ok(Handled::Now(self.list_templates(caller, request))),
            Method::ResourcesRead => self.read_resource(cx, caller, headers, body, request),
            Method::ResourcesSubscribe => self.change_subscription(caller, request, true),
            Method::ResourcesUnsubscribe => self.change_subscription(caller, request, false),
            Method::PromptsList => Ok(Handled::Now(self.list_prompts(caller, request))),
            Method::PromptsGet => self.get_prompt(cx, caller, headers, body, request),
            Method::Complete => self.complete(cx, caller, headers, request),
            Method::TasksList => self.list_tasks(caller, request),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult => {
                self.task_method(cx, method, caller, headers, body, request)
            }
            Method::SkillsList => Ok(Handled::Now(self.list_skills(caller, request))),
            Method::SkillsGet => Ok(Handled::Now(self.get_skill(caller, request))),
            Method::DirectoryRead => Ok(Handled::Now(self.read_directory(caller, request))),
            Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::SetLogLevel
            | Method::Listen
            | Method::ToolsList
            | Method::ToolsCall => unreachable!("dispatched before"),
        };
        handled.unwrap_or_else(Handled::Now)
    }

    /// Checks a request that names something, as far as headers and `_meta` go (MH-05, LOG-03), before the name is
    /// looked up. Returns from which level on the caller wants to be sent log messages.
    #[inline]
    fn check_named(
        &self,
        caller: Caller<'_>,
        headers: Option<&Headers<'_>>,
        request: &Request<'_>,
        name: &str,
    ) -> Result<Option<LogLevel>, Reply> {
        if caller.revision.has_sessions() {
            return Ok(caller.session.map(|session| self.levels.get(session)));
        }
        if let Some(mcp) = headers.and_then(|headers| headers.mcp) {
            stateless::check_name(request, name, mcp)?;
        }
        stateless::log_level(request)
    }

    /// How a call of the caller's is to be run; `timeout` is what was asked for.
    #[inline]
    fn terms(&self, caller: Caller<'_>, timeout: Option<Duration>) -> Terms {
        Terms {
            timeout: timeout.unwrap_or(Duration::from_secs(self.config.call_timeout_seconds)),
            on_disconnect: caller.on_disconnect,
            stream_after: caller.stream_after,
            resumption: caller.resumption,
        }
    }

    /// What it takes to take a stream up again, for callers who can.
    #[inline]
    fn resumption_of(&self, terms: Terms) -> Option<Arc<Streams>> {
        (terms.resumption != Resumption::No).then(|| Arc::clone(&self.streams))
    }

    /// The server stops: streams are ended, each in the way that has its client come back elsewhere.
    pub(crate) fn end_streams(&self) {
        self.streams.stop();
    }

    /// Runs what somebody has written for this server, and answers with what comes of it.
    #[expect(clippy::too_many_arguments, reason = "each is another matter")]
    fn run<T: Send + 'static>(
        &self,
        cx: &mut Context<'_>,
        caller: Caller<'_>,
        id: &str,
        start: impl FnOnce(Arc<CallContext>) -> BoxedCall<T>,
        context: Arc<CallContext>,
        terms: Terms,
        conclude: impl FnOnce(Outcome<T>) -> Handled + Send + 'static,
    ) -> Handled {
        let has_room = self.limits.has_room(caller.principal, None);
        let begun = if has_room {
            call::begin(cx, start, &context, terms)
        } else {
            call::prepared(start, &context)
        };
        let begun = match begun {
            Ok(Step::Done(outcome)) => return conclude(outcome),
            begun => begun,
        };
        let inflight = Arc::clone(&self.inflight);
        let turn = self.limits.turn(caller.principal, None);
        let id = id.to_owned();
        let streams = self.resumption_of(terms);
        Handled::Later(Box::pin(async move {
            let step = match begun {
                Ok(step) => step,
                Err(call) => {
                    let held = if has_room {
                        Ok(turn.take())
                    } else {
                        turn.wait().await
                    };
                    match held {
                        Ok(held) => call::wait(call, &context, terms, &inflight, held).await,
                        Err(refused) => return Reply::limited(Some(&id), refused),
                    }
                }
            };
            match step {
                Step::Done(outcome) => conclude(outcome).reply().await,
                Step::Streams(running) => {
                    let hold = inflight.stream();
                    let stream = CallStream::new(running, context, conclude, hold);
                    in_parts(stream, streams, terms)
                }
            }
        }))
    }

    /// A method of the application's own. `None` if there is none of the name.
    fn other_method(
        &self,
        cx: &mut Context<'_>,
        caller: Caller<'_>,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
    ) -> Option<Handled> {
        // The specification's own stay what they are, also in revisions that do not have them.
        if Method::parse(&request.method).is_some() {
            return None;
        }
        let handler = Arc::clone(self.methods.get(&*request.method)?);
        if caller.is_barred() {
            return Some(Handled::Now(audited::unrecorded(request.id)));
        }
        let params = request.params.object.unwrap_or("{}");
        let params = match serde_json::from_str::<Map<String, Value>>(params) {
            Ok(params) => Value::Object(params),
            Err(e) => {
                return Some(Handled::Now(tools::invalid_params(
                    request.id,
                    &e.to_string(),
                )));
            }
        };
        let (trace, carried) = caller.trace(request);
        let context = Arc::new(CallContext {
            trace,
            carried,
            principal: Arc::clone(caller.principal),
            session: caller.session.cloned(),
            request_id: RequestId::from_json(request.id),
            headers: headers.map(|headers| std::mem::take(headers.all)),
            outlet: Outlet::default(),
            asking: Asking::new(Client::Nobody(NOT_HERE)),
        });
        let server_info = caller
            .revision
            .has_result_type()
            .then(|| self.generation.load().server_info.clone());
        let (id, name) = (request.id.to_owned(), request.method.to_string());
        let start = move |context| handler.call(context, params);
        let conclude = move |outcome| {
            Handled::Now(match outcome {
                Outcome::Done(Ok(Value::Object(result))) => other_result(&id, result, server_info),
                Outcome::Done(Ok(_)) => {
                    tracing::error!(method = %name, "a method is at fault: its result is no object");
                    tools::internal_error(&id)
                }
                Outcome::Done(Err(error)) => Reply::error(&id, &error),
                Outcome::TimedOut(limit) => {
                    let seconds = limit.as_secs_f64();
                    tracing::warn!(method = %name, limit_s = seconds, "a method ran out of time");
                    let message = format!("the method did not answer within {seconds} s");
                    Reply::error(&id, &ErrorObject::new(ErrorCode::Internal, message))
                }
                Outcome::Panicked => {
                    tracing::error!(method = %name, "a method panicked; its request failed, nothing else is affected");
                    tools::internal_error(&id)
                }
                Outcome::Stopped => tools::stopped(&id),
                // It has nobody to ask.
                Outcome::Interrupted(_) => tools::internal_error(&id),
                Outcome::Cancelled => Reply::Cancelled,
            })
        };
        let terms = self.terms(caller, None);
        Some(self.run(cx, caller, request.id, start, context, terms, conclude))
    }
}

/// An answer that has something to say before its end.
fn in_parts(stream: CallStream, streams: Option<Arc<Streams>>, terms: Terms) -> Reply {
    Reply::Stream(match streams {
        Some(streams) => streams.resumable(stream, terms),
        None => Box::new(stream),
    })
}
/// How large an answer may be that is passed on to the replica that asked.
const ANSWER_ELSEWHERE_BYTES: usize = 30 * 1024;

/// What has no way to ask: the specification has questions for calls, readings and prompts only (MRTR-01).
const NOT_HERE: &str = "only tools, resources and prompts can ask";

/// `server_info` is there in the stateless era, whose results say more than their own.
fn other_result(id: &str, mut result: Map<String, Value>, server_info: Option<Value>) -> Reply {
    if let Some(server_info) = server_info {
        result.entry("resultType").or_insert("complete".into());
        let meta = result.entry("_meta").or_insert_with(|| Map::new().into());
        if let Value::Object(meta) = meta {
            meta.entry(generation::SERVER_INFO).or_insert(server_info);
        }
    }
    let mut out = begin(id, 128);
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(Value::Object(result).to_string().as_bytes());
    out.push(b'}');
    Reply::document(out)
}

impl Handled {
    /// The reply, once there is one.
    pub(crate) async fn reply(self) -> Reply {
        match self {
            Self::Now(reply) => reply,
            Self::Later(reply) => reply.await,
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("mount", &self.mount)
            .finish_non_exhaustive()
    }
}

fn is_unknown_method(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Answer(Answer {
            refusal: Some(Refusal::Method),
            ..
        })
    )
}

/// A method that does not exist, within a session.
fn method_not_found(request: &Request<'_>) -> Reply {
    let message = format!("Method not found: {}", truncated(&request.method));
    Reply::error(
        request.id,
        &ErrorObject::new(ErrorCode::MethodNotFound, message),
    )
}

fn malformed(message: &'static str) -> Reply {
    Reply::refuse(Refusal::Malformed, None, ErrorCode::InvalidRequest, message)
}

fn not_a_message(problem: &Malformed<'_>) -> Reply {
    let (code, name) = match problem.kind {
        MalformedKind::Parse => (ErrorCode::Parse, "Parse error"),
        MalformedKind::Invalid => (ErrorCode::InvalidRequest, "Invalid Request"),
    };
    let message = format!("{name}: {}", problem.reason);
    Reply::refuse(Refusal::Malformed, problem.id, code, message)
}

/// A stranger's text, cut to what fits into an error message.
pub(crate) fn truncated(text: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 200;
    if text.len() <= MAX_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}...",
        &text[..text.floor_char_boundary(MAX_BYTES)]
    ))
}
