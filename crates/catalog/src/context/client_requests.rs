//! What a tool asks of the user, the client's model and the client.

use std::future::poll_fn;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::elicit::{Elicit, ElicitForm, ElicitUrl, Form};
use super::super::replay::{self, ClientRequestError};
use super::super::sample::{Roots, Sample};
use super::CallContext;
use crate::protocol::{ClientAbility, SamplingRequest};

impl CallContext {
    /// Returns true if the client has declared an ability.
    pub fn client_can(&self, ability: ClientAbility) -> bool {
        self.replay.client_can(ability)
    }

    /// Checks that the client has declared an ability. Call it before side effects.
    ///
    /// # Errors
    ///
    /// The client has not declared it. With `?`, the call fails with the error -32021 in 2026-07-28, and with a tool
    /// error in other versions.
    pub fn require(&self, ability: ClientAbility) -> Result<(), ClientRequestError> {
        self.replay.require(ability)
    }

    /// Asks the user to fill in a form, whose fields are those of `T`; see [`Form::of`].
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
    /// Do not ask for passwords or tokens: clients can read the fields. A form with a field of such a name is rejected.
    /// Use [`elicit_url`](Self::elicit_url) instead.
    ///
    /// # Replay
    ///
    /// Up to 2025-11-25 the call waits for the response; the time does not count towards its timeout. In 2026-07-28 the
    /// call ends with the request. The client then calls again with the response, and the tool **runs again from its
    /// beginning**, possibly on another replica. Earlier requests return their recorded responses immediately.
    /// [`progress`](Self::progress) and [`log`](Self::log) are muted until the tool has caught up.
    ///
    /// So a tool must make the same requests when it runs again. Side effects before a request happen again after it,
    /// unless they are in a [`step`](Self::step). Other futures of the tool are dropped when the call ends. A tool that
    /// makes a different request fails with an internal error.
    ///
    /// Concurrent requests, for example with `tokio::join!`, reach a client of 2026-07-28 together.
    ///
    /// # Errors
    ///
    /// See [`ClientRequestError`].
    pub fn elicit<T: JsonSchema + DeserializeOwned>(
        &self,
        message: impl Into<String>,
    ) -> Elicit<'_, T> {
        Elicit::new(&self.replay, message.into())
    }

    /// Asks the user to fill in a form that is built at run time. See [`elicit`](Self::elicit).
    ///
    /// # Errors
    ///
    /// See [`ClientRequestError`].
    pub fn elicit_form(&self, message: impl Into<String>, form: Form) -> ElicitForm<'_> {
        ElicitForm::new(&self.replay, message.into(), form)
    }

    /// Asks the user to visit a page, for data that the client must not see, such as credentials.
    ///
    /// `Accepted` only means that the user has agreed to the visit. The page has to check that its visitor is the user
    /// of this call; the URL alone must not grant access. Never return credentials that were entered there, and never
    /// log them to the client.
    ///
    /// To notify clients of 2025-11-25 when the user has finished, store
    /// [`elicitation`](ElicitUrl::elicitation) with the data of the page.
    ///
    /// ```
    /// use longshore::{Announcer, CallContext, ToolError, UrlElicitation, tool};
    ///
    /// # async fn begin_flow() -> Result<String, ToolError> { Ok("7f3a".to_owned()) }
    /// # fn store(_flow: &str, _elicitation: Option<UrlElicitation>) {}
    /// # fn load(_flow: &str) -> Option<UrlElicitation> { None }
    /// /// Connects an account.
    /// #[tool]
    /// async fn connect(context: &CallContext) -> Result<String, ToolError> {
    ///     let flow = context.step("flow", begin_flow()).await?;
    ///     let page = format!("https://accounts.example/connect?flow={flow}");
    ///     let request = context.elicit_url("Connect your account.", page);
    ///     store(&flow, request.elicitation());
    ///     Ok(request.await?.action().to_owned())
    /// }
    ///
    /// /// Called by the page when the account is connected.
    /// fn connected(announcer: &Announcer, flow: &str) {
    ///     if let Some(elicitation) = load(flow) {
    ///         announcer.elicitation_completed(&elicitation);
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`ClientRequestError`].
    pub fn elicit_url(&self, message: impl Into<String>, url: impl Into<String>) -> ElicitUrl<'_> {
        let (message, url) = (message.into(), url.into());
        ElicitUrl::new(&self.replay, self.session.as_ref(), &message, &url)
    }

    /// Requests a message of the client's model. The tool is replayed as with [`elicit`](Self::elicit).
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
    /// See [`ClientRequestError`].
    pub fn sample(&self, request: &SamplingRequest) -> Sample<'_> {
        Sample::new(&self.replay, request)
    }

    /// Requests the client's roots. They are hints: do not use them for authorization.
    ///
    /// # Errors
    ///
    /// See [`ClientRequestError`].
    pub fn roots(&self) -> Roots<'_> {
        Roots::new(&self.replay)
    }

    /// Makes the call a task, which outlives its request. For tools with
    /// [`deferred_task`](crate::Definition::deferred_task).
    ///
    /// Requests before it behave as in any call; requests after it wait in the task for their responses. Returns
    /// immediately if the client does not support tasks, or the call is a task already.
    pub async fn begin_task(&self) {
        poll_fn(|cx| self.replay.poll_begin_task(cx.waker())).await;
    }

    /// Sends a request of the protocol as it is. Capabilities are not checked.
    pub async fn send_request(
        &self,
        method: &str,
        params: Value,
    ) -> Result<Value, ClientRequestError> {
        replay::send_named(&self.replay, None, method, params).await
    }
}
