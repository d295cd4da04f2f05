//! What a tool may ask about the call that it serves, and say while it runs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::ask::{
    self, AskError, Asking, Elicit, ElicitForm, ElicitUrl, Form, Once, Roots, Sample, StepError,
};
use super::outlet::Outlet;
use crate::auth::Principal;
use crate::net::ShareKey;
use crate::protocol::{ClientAbility, SamplingRequest};
use crate::telemetry::{Asked, Hop, Onward, TraceContext};

/// One call, as its tool sees it: who asks, and under which ids.
///
/// It looks the same whatever revision of the protocol the caller speaks.
pub struct CallContext {
    pub principal: Arc<Principal>,
    /// The share of what callers use together that is its caller's.
    pub share: ShareKey,
    /// The client's address, over HTTP.
    pub address: Option<IpAddr>,
    pub session: Option<Arc<str>>,
    pub request_id: RequestId,
    /// `_meta` as it came in, if it has members that the protocol gives no meaning to.
    pub meta: Option<Box<str>>,
    pub headers: Option<HeaderMap>,
    /// Values that layers of the application have put into the HTTP request.
    pub extensions: Option<Arc<Extensions>>,
    /// How long it may run. `None` without a limit.
    pub timeout: Option<Duration>,
    pub outlet: Outlet,
    pub asking: Asking,
    /// Where it belongs in a trace, and what of that is passed on.
    pub onward: Onward,
}

impl CallContext {
    /// A call that nobody made, for unit tests of a tool: an anonymous caller, no session, no headers.
    ///
    /// ```
    /// use longshore::CallContext;
    ///
    /// assert_eq!(CallContext::for_test().principal().name(), "anonymous");
    /// ```
    pub fn for_test() -> Self {
        Self {
            principal: Arc::new(Principal::anonymous()),
            share: ShareKey::NONE,
            address: None,
            session: None,
            request_id: RequestId::from_json("1"),
            meta: None,
            headers: None,
            extensions: None,
            timeout: None,
            outlet: Outlet::default(),
            asking: Asking::default(),
            onward: Onward::default(),
        }
    }

    /// The same call made by somebody, for unit tests of a tool that asks who calls.
    ///
    /// ```
    /// use longshore::CallContext;
    /// use longshore::auth::Principal;
    ///
    /// let context = CallContext::for_test().with_principal(Principal::new("ada"));
    /// assert_eq!(context.principal().name(), "ada");
    /// ```
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = Arc::new(principal);
        self
    }

    /// The same call with a header, for unit tests of a tool that reads it.
    ///
    /// # Panics
    ///
    /// The name has letters in upper case, or is not a valid name.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: HeaderValue) -> Self {
        let headers = self.headers.get_or_insert_default();
        headers.insert(HeaderName::from_static(name), value);
        self
    }

    /// The same call with a value that a layer would have set, for unit tests of a tool that takes an
    /// [`Extension`](crate::extract::Extension).
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        let extensions = self.extensions.get_or_insert_default();
        Arc::make_mut(extensions).insert(value);
        self
    }

    /// Who is calling.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// A name for the caller's session that is safe to log. `None` where there are no sessions: in the
    /// stateless era, where nothing ties one request to the next.
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The JSON-RPC id of the request.
    pub fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// A member of the request's `_meta` that the protocol gives no meaning to, such as `com.example/tenant`. `None` if it is
    /// not there, or not a `T`.
    ///
    /// Whoever calls may write there what they like: it is no proof of anything.
    ///
    /// ```
    /// # use longshore::CallContext;
    /// # let context = CallContext::for_test();
    /// let tenant: Option<String> = context.meta("com.example/tenant");
    /// ```
    pub fn meta<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        // They are there only if others are, and what they say is told otherwise.
        if key.starts_with("io.modelcontextprotocol/") || key == "progressToken" {
            return None;
        }
        let members: HashMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(self.meta.as_deref()?).ok()?;
        serde_json::from_str(members.get(key)?.get()).ok()
    }

    /// Headers of the HTTP request. `None` over standard input and output.
    ///
    /// They hold the caller's credentials: do not log them, and do not pass them on.
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.headers.as_ref()
    }

    /// A value that a layer of the application ([`App::layer`](crate::App::layer)) has put into the extensions of the
    /// HTTP request. `None` if none has, and over standard input and output.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.extensions.as_ref()?.get()
    }

    /// Tells the caller how far the call has come: `progress` of `total`, and what is being done.
    ///
    /// Does nothing if the caller did not ask to be told.
    /// Reports have to grow: one that is not more than the last is left out, and so are those that come within 20 ms
    /// of one another, save the one that reaches `total`.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        if !self.asking.is_muted() && self.outlet.progress(progress, total, message) {
            // Lets it be sent before the tool goes on.
            tokio::task::yield_now().await;
        }
    }

    /// Whether the caller has asked to be told how far the call has come.
    pub fn wants_progress(&self) -> bool {
        self.outlet.wants_progress()
    }

    /// Does so from where nothing can be awaited.
    pub fn report_progress(&self, progress: f64, total: Option<f64>, message: &str) {
        self.outlet.progress(progress, total, message);
    }

    /// Sends a log message from where nothing can be awaited.
    pub fn send_log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        self.outlet.log(level, data);
    }

    /// Sends a log message to the caller, if it asked for messages of this level.
    ///
    /// At most 200 a second are sent. They must not hold credentials or personal data.
    pub async fn log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) {
        if !self.asking.is_muted() && self.outlet.log(level, data) {
            tokio::task::yield_now().await;
        }
    }

    /// Lets the client hang up: the event stream of this call's answer is ended, the call goes on, and the client comes
    /// back for the rest of it by itself. For calls that take long, so that nobody keeps a connection open for them.
    ///
    /// Only clients of 2025-11-25 over HTTP can be sent away like that; for all others this does nothing.
    pub async fn release_connection(&self) {
        // Nobody else could come back.
        if self.asking.revision().can_resume_streams() {
            self.outlet.release_connection();
            tokio::task::yield_now().await;
        }
    }

    /// Whether the client has declared that it can do something that it could be asked for.
    pub fn client_can(&self, ability: ClientAbility) -> bool {
        self.asking.client_can(ability)
    }

    /// Makes sure that the client has declared that it can do something, before anything is done.
    ///
    /// # Errors
    ///
    /// It has not. With `?` that is the error -32021 in 2026-07-28, and a failure of the tool before that.
    pub fn require(&self, ability: ClientAbility) -> Result<(), AskError> {
        self.asking.require(ability)
    }

    /// Asks the person behind the client to fill in a form, whose fields are those of `T`; see [`Form::of`].
    ///
    /// ```
    /// use longshore::{CallContext, Elicited, JsonSchema, ToolError, tool};
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Booking {
    ///     /// How many people will come.
    ///     #[schemars(range(min = 1, max = 12))]
    ///     people: u8,
    ///     window_seat: Option<bool>,
    /// }
    ///
    /// /// Books a table.
    /// #[tool]
    /// async fn book(context: &CallContext, day: String) -> Result<String, ToolError> {
    ///     match context.elicit::<Booking>(format!("A table on {day}?")).await? {
    ///         Elicited::Accepted(booking) => Ok(format!("A table for {} on {day}.", booking.people)),
    ///         Elicited::Declined | Elicited::Cancelled => Ok("No table then.".to_owned()),
    ///     }
    /// }
    /// ```
    ///
    /// Do not ask for passwords, tokens or the like: clients see what is filled in. A form with a field of such a name
    /// is refused. Show a page instead, with [`elicit_url`](Self::elicit_url).
    ///
    /// # What happens meanwhile
    ///
    /// Clients with a session, up to 2025-11-25, are asked on the stream of the call's answer, and the call waits; the
    /// time counts as none of its own. In 2026-07-28 the call ends with the question. With the answer the client
    /// calls again, and the tool **runs again from its beginning**, on whichever replica. Each question that has been
    /// answered is answered at once then, and [`progress`](Self::progress) and [`log`](Self::log) say nothing until
    /// the tool has caught up.
    ///
    /// So a tool has to ask the same as before when it runs again, and what it does before a question is done again
    /// after it, unless it is a [`step`](Self::step). Whatever else is going on when a question is asked is dropped.
    /// A tool that asks something else fails with an internal error.
    ///
    /// Questions that are asked at the same time, for example by `tokio::join!`, reach a client of 2026-07-28
    /// together.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn elicit<T: JsonSchema + DeserializeOwned>(
        &self,
        message: impl Into<String>,
    ) -> Elicit<'_, T> {
        Elicit::new(self, message.into())
    }

    /// [`elicit`](Self::elicit) for forms that are no Rust type.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn elicit_form(&self, message: impl Into<String>, form: Form) -> ElicitForm<'_> {
        ElicitForm::new(self, message.into(), form)
    }

    /// Asks the person behind the client to visit a page, where something can be done that the client must not see.
    ///
    /// That it was accepted says only that the person has agreed to visit it. Whoever serves the page has to make
    /// sure that it is visited by the person whom this call is for, and the URL must not let anybody in by itself.
    /// Credentials that are handed over there are the server's to keep: never return them, or log them to the client.
    ///
    /// When the page is done with, clients of 2025-11-25 can be told: keep [`visit`](ElicitUrl::visit) with what the
    /// page belongs to.
    ///
    /// ```
    /// use longshore::{Announcer, CallContext, ToolError, UrlElicitation, tool};
    ///
    /// # async fn begin_flow() -> Result<String, ToolError> { Ok("7f3a".to_owned()) }
    /// # fn remember(_flow: &str, _visit: Option<UrlElicitation>) {}
    /// # fn recall(_flow: &str) -> Option<UrlElicitation> { None }
    /// /// Connects an account.
    /// #[tool]
    /// async fn connect(context: &CallContext) -> Result<String, ToolError> {
    ///     let flow = context.step("flow", begin_flow()).await?;
    ///     let page = format!("https://accounts.example/connect?flow={flow}");
    ///     let question = context.elicit_url("Connect your account.", page);
    ///     remember(&flow, question.visit());
    ///     Ok(question.await?.action().to_owned())
    /// }
    ///
    /// /// Called by the page, once the account is connected.
    /// fn connected(announcer: &Announcer, flow: &str) {
    ///     if let Some(visit) = recall(flow) {
    ///         announcer.visit_completed(&visit);
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn elicit_url(&self, message: impl Into<String>, url: impl Into<String>) -> ElicitUrl<'_> {
        ElicitUrl::new(self, &message.into(), &url.into())
    }

    /// Asks the client's model for a message. What [`elicit`](Self::elicit) says of when the tool runs again holds
    /// here too.
    ///
    /// ```
    /// use longshore::{CallContext, SamplingRequest, ToolError, tool};
    ///
    /// /// Puts a text into a few words.
    /// #[tool(read_only)]
    /// async fn summary(context: &CallContext, text: String) -> Result<String, ToolError> {
    ///     let request = SamplingRequest::new(text, 200).system("Say it in one sentence.");
    ///     Ok(context.sample(&request).await?.text())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn sample(&self, request: &SamplingRequest) -> Sample<'_> {
        Sample::new(self, request)
    }

    /// Asks the client in which places it works. They are hints: never take them for what a caller may see.
    ///
    /// # Errors
    ///
    /// See [`AskError`].
    pub fn roots(&self) -> Roots<'_> {
        Roots::new(self)
    }

    /// Says that what follows is a task, which outlives this request; for tools whose definition says that they
    /// [begin later](crate::Definition::deferred_task). What the tool asks before it is asked as in any call, what it
    /// asks after it waits in the task for its answer. Returns at once where there are no tasks, or the call is one
    /// already.
    pub async fn begin_task(&self) {
        poll_fn(|cx| self.asking.poll_begin_task(cx.waker())).await;
    }

    /// Asks something in the words of the protocol, whatever the client has declared.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, AskError> {
        ask::ask(&self.asking, method, params).await
    }

    /// Does something that is not to be done again when the tool runs again after a question.
    ///
    /// ```
    /// use longshore::{CallContext, ToolError, tool};
    ///
    /// async fn reserve(room: &str) -> Result<u64, ToolError> {
    /// #   let _ = room;
    ///     Ok(17)
    /// }
    ///
    /// # #[derive(serde::Deserialize, longshore::JsonSchema)] struct Guest { name: String }
    /// /// Reserves a room, then asks for whom.
    /// #[tool]
    /// async fn book(context: &CallContext, room: String) -> Result<String, ToolError> {
    ///     let number = context.step("reserve", reserve(&room)).await?;
    ///     let guest = context.elicit::<Guest>("Who will stay?").await?.accepted();
    ///     let name = guest.map_or("nobody".to_owned(), |guest| guest.name);
    ///     Ok(format!("reservation {number} for {name}"))
    /// }
    /// ```
    ///
    /// What it gives is kept with the answers, and returned at once from then on. Steps of the same name are told
    /// apart by their order. A failure is not kept, and fails the call as usual. While a step is being taken the call
    /// does not end with a question.
    ///
    /// # What it does not guarantee
    ///
    /// What is kept travels through the client, sealed. A client that sends an old state again gets a second future
    /// for its call, in which everything that came after that state is done again; one that begins from the
    /// beginning does everything again. And if the server dies after the step and before its answer is out, nobody
    /// knows of the step. So it is done *at least once*, and never twice along one line of answers. Where that is not
    /// enough, make the effect idempotent, for example under a key that was drawn in a step before, or take
    /// [`step_once`](Self::step_once).
    ///
    /// Together with the answers, up to 64 KiB travel that way; more, up to 1 MiB, is kept in the state that replicas
    /// share, and then any replica that does not share it turns the client away. Up to 2025-11-25 a tool does not run again, and a step is
    /// just done.
    ///
    /// # Errors
    ///
    /// What the effect fails with, or that its result cannot be kept.
    pub async fn step<T, E, F>(&self, name: &str, effect: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<StepError>,
        F: Future<Output = Result<T, E>>,
    {
        ask::step(&self.asking, name, Once::AtLeast, effect).await
    }

    /// A [`step`](Self::step) that is done *at most once*, whatever states a client sends again.
    ///
    /// Before it is done, that is noted in the state that replicas share. A call that comes to it from the same answers
    /// a second time fails with [`StepError::TakenBefore`], also if the effect failed the first time or the server died
    /// in it. A client that begins from the beginning makes a new call, which is none of the first one's business.
    ///
    /// It is as good as the store: one in memory ([`State`](crate::state::State)) knows of one process, and forgets when
    /// that ends. If the store cannot be reached the step is not done.
    ///
    /// # Errors
    ///
    /// As for [`step`](Self::step), and that it was done before or that this cannot be found out.
    pub async fn step_once<T, E, F>(&self, name: &str, effect: F) -> Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<StepError>,
        F: Future<Output = Result<T, E>>,
    {
        ask::step(&self.asking, name, Once::AtMost, effect).await
    }

    /// From which level on the caller wants log messages; `None` if it wants none. For tools whose messages are costly
    /// to make.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.outlet.log_level()
    }

    /// Where the call belongs in a trace: the place of its own span, or what the caller said where nothing is traced
    /// here. See [`propagate`](Self::propagate).
    pub fn trace(&self) -> Option<TraceContext> {
        self.onward.place(self.headers.as_ref())
    }

    /// Adds the call's trace context to the headers of a request to another server: `traceparent`, and `tracestate` and
    /// `baggage` as the caller said them. `OTEL_PROPAGATORS` says which of them are passed on.
    ///
    /// Baggage goes to whoever is asked; leave it out where callers must not be quoted, by removing `baggage`.
    pub fn propagate(&self, headers: &mut HeaderMap) {
        self.onward.add_to(self.headers.as_ref(), headers);
    }

    /// `traceparent` and `tracestate` for what works on the call itself, as far as there are any.
    pub fn traced(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.onward.here(self.headers.as_ref())
    }

    /// Begins a request to another server. `asked` says what its span tells, if there is one.
    pub fn hop(&self, asked: impl FnOnce() -> Asked) -> Hop {
        self.onward.hop(self.headers.as_ref(), asked)
    }

    /// Whether the call has been cancelled or has run out of time. The tool's future is dropped at its next `await`
    /// anyway; this is for tools that block, or compute for long without one.
    pub fn is_cancelled(&self) -> bool {
        self.outlet.is_cancelled()
    }
}

impl fmt::Debug for CallContext {
    /// Leaves the headers out: they hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("principal", &self.principal)
            .field("session", &self.session)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// The id of a JSON-RPC request, as the JSON text that it came in: `7`, or `"a-7"` with its quotes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestId(IdText);

/// Nearly all ids are numbers, which need no memory of their own.
#[derive(Clone, PartialEq, Eq, Hash)]
enum IdText {
    /// Whatever fits, and nothing else.
    Short {
        length: u8,
        bytes: [u8; SHORT_BYTES],
    },
    Long(Box<str>),
}

const SHORT_BYTES: usize = 22;

impl RequestId {
    #[inline]
    pub fn from_json(text: &str) -> Self {
        if SHORT_BYTES < text.len() {
            return Self(IdText::Long(text.into()));
        }
        let mut bytes = [0; SHORT_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self(IdText::Short {
            length: text.len() as u8,
            bytes,
        })
    }

    /// The id as JSON text.
    pub fn as_json(&self) -> &str {
        match &self.0 {
            IdText::Long(text) => text,
            IdText::Short { length, bytes } => {
                std::str::from_utf8(&bytes[..usize::from(*length)]).unwrap_or_default()
            }
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

/// How much a log message matters, by RFC 5424, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum LogLevel {
    /// Detail for whoever hunts a fault.
    Debug,
    /// An ordinary event.
    Info,
    /// An ordinary event worth noticing.
    Notice,
    /// Something that may become an error.
    Warning,
    /// Something failed.
    Error,
    /// A component failed.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Reads the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_length_are_told_as_they_came() {
        for length in 0..2 * SHORT_BYTES {
            let text = format!("\"{}\"", "\u{e9}".repeat(length));
            let id = RequestId::from_json(&text);
            assert_eq!(id.as_json(), text);
            assert_eq!(id, RequestId::from_json(&text));
            assert_ne!(id, RequestId::from_json(&format!("{text} ")));
        }
        assert_eq!(RequestId::from_json("7").to_string(), "7");
        assert!(
            size_of::<RequestId>() <= 24,
            "no larger than a pointer, a length and a little"
        );
    }
}
