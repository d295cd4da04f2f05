//! Elicitation requests to the user of the client.

mod form;
mod secret;

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use form::{Form, FormError};
pub(crate) use secret::names_a_secret;

use super::replay::{
    ClientRequest, ClientRequestError, ReplaySession, RequestDraft, RequestKind,
    RequiredElicitation, Response, named_request,
};
use crate::catalog::arguments::by_tree;
use crate::catalog::{in_words, strict};
use crate::protocol::{ClientAbility, object_or_empty_list};

/// A user's response to an elicitation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elicited<T> {
    /// The user has responded.
    Accepted(T),
    /// The user has declined.
    Declined,
    /// The user has dismissed the request.
    Cancelled,
}

impl<T> Elicited<T> {
    /// Returns the response, if the user has accepted.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accepted(content) => Some(content),
            Self::Declined | Self::Cancelled => None,
        }
    }

    /// The action on the wire: `accept`, `decline` or `cancel`.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Accepted(_) => "accept",
            Self::Declined => "decline",
            Self::Cancelled => "cancel",
        }
    }

    /// Converts the response, if the user has accepted.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Elicited<U> {
        match self {
            Self::Accepted(content) => Elicited::Accepted(convert(content)),
            Self::Declined => Elicited::Declined,
            Self::Cancelled => Elicited::Cancelled,
        }
    }
}

/// An elicitation request whose form is a Rust type. See [`CallContext::elicit`](crate::CallContext::elicit).
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct Elicit<'c, T> {
    form: ElicitForm<'c>,
    _content: PhantomData<fn() -> T>,
}

/// An elicitation request with a form built at run time. See
/// [`CallContext::elicit_form`](crate::CallContext::elicit_form).
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct ElicitForm<'c> {
    request: ClientRequest<'c>,
    form: Option<Form>,
}

/// A request that the user visits a page. See [`CallContext::elicit_url`](crate::CallContext::elicit_url).
#[derive(Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct ElicitUrl<'c> {
    request: ClientRequest<'c>,
    elicitation: Option<UrlElicitation>,
    /// Data of the error -32042, for clients whose protocol version has it.
    error: Option<Box<RequiredElicitation>>,
    is_required: bool,
}

/// Identifies a URL elicitation, so that its client can be notified when the user has finished.
///
/// See [`Announcer::elicitation_completed`](crate::Announcer::elicitation_completed). Serialize it together with the
/// page's own data; every replica can use it. It contains a session ID, so do not disclose it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UrlElicitation {
    session: Arc<str>,
    id: Arc<str>,
}

impl UrlElicitation {
    pub fn new(session: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        let (session, id) = (session.into(), id.into());
        Self { session, id }
    }

    /// Returns the ID of the session that was sent the request.
    pub fn session(&self) -> &Arc<str> {
        &self.session
    }

    /// Returns the `elicitationId` that the client knows.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl<T: JsonSchema + DeserializeOwned> Elicit<'_, T> {
    pub fn new(session: &ReplaySession, message: String) -> Elicit<'_, T> {
        let form = Form::of::<T>();
        let form = form.map_err(|error| ClientRequestError::InvalidRequest(error.to_string()));
        Elicit {
            form: ElicitForm::with(session, message, form),
            _content: PhantomData,
        }
    }
}

impl<T> Elicit<'_, T> {
    /// Names the request, in at most 128 bytes. Default: a generated name.
    ///
    /// Clients of 2026-07-28 see the name, and may send the response together with the first call.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.form = self.form.named(name);
        self
    }
}

impl<'c> ElicitForm<'c> {
    named_request! { request }

    pub fn new(session: &'c ReplaySession, message: String, form: Form) -> Self {
        Self::with(session, message, Ok(form))
    }

    fn with(
        session: &'c ReplaySession,
        message: String,
        form: Result<Form, ClientRequestError>,
    ) -> Self {
        let (form, draft) = match form_draft(session, message, form) {
            Ok((form, draft)) => (Some(form), Ok(draft)),
            Err(error) => (None, Err(error)),
        };
        Self {
            request: ClientRequest::new(session, draft),
            form,
        }
    }

    fn poll_as<T: DeserializeOwned>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Elicited<T>, ClientRequestError>> {
        self.request.poll(cx).map(|response| {
            let response = response?;
            self.read(&response)
                .map_err(|problem| self.request.reject(&response, problem))
        })
    }

    /// Reads a response, whose content has to match the form (ELI-09).
    fn read<T: DeserializeOwned>(&self, response: &Response) -> Result<Elicited<T>, String> {
        let content = match read_result(response)? {
            Elicited::Accepted(content) => content,
            Elicited::Declined => return Ok(Elicited::Declined),
            Elicited::Cancelled => return Ok(Elicited::Cancelled),
        };
        let mut content = Value::Object(content.unwrap_or_default());
        if let Some(form) = &self.form {
            form.check(&mut content)?;
        }
        by_tree(&content)
            .map(Elicited::Accepted)
            .map_err(|misfit| format!("content.{}: {}", misfit.path, in_words(&misfit.cause)))
    }
}

fn form_draft(
    session: &ReplaySession,
    message: String,
    form: Result<Form, ClientRequestError>,
) -> Result<(Form, RequestDraft), ClientRequestError> {
    session.require(ClientAbility::ElicitationForm)?;
    let form = form?;
    let revision = session.revision();
    let schema = form
        .schema_for(revision)
        .map_err(ClientRequestError::Unsupported)?;
    let mut params = Map::new();
    if revision.has_rich_forms() {
        params.insert("mode".to_owned(), "form".into());
    }
    params.insert("message".to_owned(), message.into());
    params.insert("requestedSchema".to_owned(), schema);
    let draft = RequestDraft::new(RequestKind::Elicitation, params.into());
    Ok((form, draft))
}

impl<'c> ElicitUrl<'c> {
    named_request! { request }

    /// Creates the request. `session_id` names the MCP session of the call, if it has one.
    pub fn new(
        session: &'c ReplaySession,
        session_id: Option<&Arc<str>>,
        message: &str,
        url: &str,
    ) -> Self {
        let mut draft = session
            .require(ClientAbility::ElicitationUrl)
            .and_then(|()| check_url(url).map_err(ClientRequestError::InvalidRequest))
            .map(|()| {
                let params = json!({"mode": "url", "message": message, "url": url});
                RequestDraft::new(RequestKind::Elicitation, params)
            });
        let (mut elicitation, mut error) = (None, None);
        if let Ok(draft) = &mut draft
            && session.revision().has_elicitation_ids()
        {
            let id = URL_SAFE_NO_PAD.encode(crate::seal::random_bytes::<16>());
            let id: Arc<str> = id.into();
            draft.set_volatile("elicitationId", (&*id).into());
            elicitation = session_id
                .map(|session_id| UrlElicitation::new(Arc::clone(session_id), Arc::clone(&id)));
            let required = RequiredElicitation::new(message.to_owned(), url.to_owned(), id);
            error = Some(Box::new(required));
        }
        Self {
            request: ClientRequest::new(session, draft),
            elicitation,
            error,
            is_required: false,
        }
    }

    /// Ends the request of a client of 2025-11-25 instead of waiting for the user.
    ///
    /// The client gets the error -32042, which names the page, and sends the request again after the visit. So check
    /// first that the visit is still needed. Clients of other versions are sent the request as without this.
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Returns the identity of the elicitation, to notify the client when the user has finished.
    ///
    /// `None` unless the client speaks 2025-11-25: other versions have no such notification. In 2026-07-28 the
    /// client calls again instead.
    pub fn elicitation(&self) -> Option<UrlElicitation> {
        self.elicitation.clone()
    }
}

impl<T: DeserializeOwned> Future for Elicit<'_, T> {
    type Output = Result<Elicited<T>, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.form.poll_as(cx)
    }
}

impl Future for ElicitForm<'_> {
    type Output = Result<Elicited<Map<String, Value>>, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_as(cx)
    }
}

impl Future for ElicitUrl<'_> {
    type Output = Result<Elicited<()>, ClientRequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_required
            && let Some(error) = self.error.take()
        {
            return Poll::Ready(Err(ClientRequestError::UrlElicitationRequired(error)));
        }
        self.request.poll(cx).map(|response| {
            let response = response?;
            match read_result(&response) {
                Ok(elicited) => Ok(elicited.map(drop)),
                Err(problem) => Err(self.request.reject(&response, problem)),
            }
        })
    }
}

/// Reads the action, and the content as it was sent.
fn read_result(response: &Response) -> Result<Elicited<Option<Map<String, Value>>>, String> {
    #[derive(Deserialize)]
    struct ElicitResult {
        action: Action,
        #[serde(default, deserialize_with = "object_or_empty_list")]
        content: Option<Map<String, Value>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Action {
        Accept,
        Decline,
        Cancel,
    }
    let result: ElicitResult = strict::from_str(&response.json)
        .map_err(|e| format!("not a valid result of elicitation/create: {}", in_words(&e)))?;
    Ok(match result.action {
        Action::Accept => Elicited::Accepted(result.content),
        Action::Decline => Elicited::Declined,
        Action::Cancel => Elicited::Cancelled,
    })
}

/// Rejects URLs that no client should open, or that contain credentials (ELI-07).
fn check_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .ok_or("its URL must begin with https://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("its URL is not valid".to_owned());
    }
    if host.contains('@') {
        return Err("its URL contains credentials".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eli_07_urls_hold_no_credentials() {
        for good in [
            "https://example.com/connect?x=1",
            "http://localhost:8080/a@b",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        for bad in [
            "javascript:alert(1)",
            "https://",
            "https://user:secret@example.com/",
            "https://example.com/ x",
            "/connect",
        ] {
            assert!(check_url(bad).is_err(), "{bad}");
        }
    }
}
