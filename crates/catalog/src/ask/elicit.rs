//! Questions to the person behind the client.

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

use super::question::{Answer, Draft, Question, QuestionKind};
use super::{AskError, Form};
use crate::catalog::{CallContext, in_words, located, strict};
use crate::protocol::ClientAbility;

/// What a person has made of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elicited<T> {
    /// It was answered.
    Accepted(T),
    /// The person does not want to.
    Declined,
    /// The person has turned away from it.
    Cancelled,
}

impl<T> Elicited<T> {
    /// What was answered, if it was.
    pub fn accepted(self) -> Option<T> {
        match self {
            Self::Accepted(answer) => Some(answer),
            Self::Declined | Self::Cancelled => None,
        }
    }

    /// The word on the wire: `accept`, `decline` or `cancel`.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Accepted(_) => "accept",
            Self::Declined => "decline",
            Self::Cancelled => "cancel",
        }
    }

    /// Changes what was answered.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Elicited<U> {
        match self {
            Self::Accepted(answer) => Elicited::Accepted(change(answer)),
            Self::Declined => Elicited::Declined,
            Self::Cancelled => Elicited::Cancelled,
        }
    }
}

/// A form for a person to fill in, asked when it is awaited. See [`CallContext::elicit`].
#[derive(Debug)]
#[must_use = "a question is asked when it is awaited"]
pub struct Elicit<'c, T> {
    form: ElicitForm<'c>,
    _of: PhantomData<fn() -> T>,
}

/// A form that is no Rust type, asked when it is awaited. See [`CallContext::elicit_form`].
#[derive(Debug)]
#[must_use = "a question is asked when it is awaited"]
pub struct ElicitForm<'c> {
    question: Question<'c>,
    form: Option<Form>,
}

/// A page for a person to visit, asked for when it is awaited. See [`CallContext::elicit_url`].
#[derive(Debug)]
#[must_use = "a question is asked when it is awaited"]
pub struct ElicitUrl<'c> {
    question: Question<'c>,
    visit: Option<UrlElicitation>,
    /// What a client can be told that is refused instead of being asked.
    page: Option<Box<RequiredVisit>>,
    is_required: bool,
}

/// One visit of a page that a client was asked for: what it takes to tell that client when it is over, with
/// [`Announcer::visit_completed`](crate::Announcer::visit_completed).
///
/// Keep it with what the page belongs to, in whatever form; every replica can use it. It names a session, so it is
/// nothing to hand out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UrlElicitation {
    session: Arc<str>,
    id: Arc<str>,
}

impl UrlElicitation {
    /// The session that was asked.
    pub fn session(&self) -> &Arc<str> {
        &self.session
    }

    /// The `elicitationId` that its client knows.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn new(session: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        let (session, id) = (session.into(), id.into());
        Self { session, id }
    }
}

/// A visit without which a request cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredVisit {
    message: String,
    url: String,
    id: Arc<str>,
}

impl RequiredVisit {
    /// What the person is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// As `data` of the error has it (ELI-10).
    pub fn elicitation(&self) -> Value {
        json!({"mode": "url", "message": self.message, "url": self.url, "elicitationId": &*self.id})
    }
}

impl<T: JsonSchema + DeserializeOwned> Elicit<'_, T> {
    pub fn new(context: &CallContext, message: String) -> Elicit<'_, T> {
        let form = Form::of::<T>().map_err(|fault| AskError::InvalidQuestion(fault.to_string()));
        Elicit {
            form: ElicitForm::of(context, message, form),
            _of: PhantomData,
        }
    }
}

impl<T> Elicit<'_, T> {
    /// Gives the question a name of its own, of at most 128 bytes. Clients of 2026-07-28 see it, and may send the
    /// answer along before they are asked. Default: one is made up.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.form = self.form.named(name);
        self
    }
}

impl ElicitForm<'_> {
    pub fn new(context: &CallContext, message: String, form: Form) -> ElicitForm<'_> {
        ElicitForm::of(context, message, Ok(form))
    }

    fn of(context: &CallContext, message: String, form: Result<Form, AskError>) -> ElicitForm<'_> {
        let asking = &context.asking;
        let revision = asking.revision();
        let asked = asking
            .require(ClientAbility::ElicitationForm)
            .and(form)
            .and_then(|form| {
                let shown = form.shown_to(revision).map_err(AskError::Unsupported)?;
                let mut params = Map::new();
                if revision.has_rich_forms() {
                    params.insert("mode".to_owned(), "form".into());
                }
                params.insert("message".to_owned(), message.into());
                params.insert("requestedSchema".to_owned(), shown);
                Ok((form, Draft::new(QuestionKind::Elicitation, params.into())))
            });
        let (form, draft) = match asked {
            Ok((form, draft)) => (Some(form), Ok(draft)),
            Err(error) => (None, Err(error)),
        };
        ElicitForm {
            question: Question::new(asking, draft),
            form,
        }
    }

    /// Gives the question a name of its own, of at most 128 bytes. Clients of 2026-07-28 see it, and may send the
    /// answer along before they are asked. Default: one is made up.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.question.name(name.into());
        self
    }

    fn poll_as<T: DeserializeOwned>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Elicited<T>, AskError>> {
        self.question.poll(cx).map(|answer| {
            let answer = answer?;
            self.read(&answer)
                .map_err(|problem| self.question.refuse(&answer, problem))
        })
    }

    /// ELI-09: what was filled in fits the form.
    fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<Elicited<T>, String> {
        let content = match outcome(answer)? {
            Elicited::Accepted(content) => content,
            Elicited::Declined => return Ok(Elicited::Declined),
            Elicited::Cancelled => return Ok(Elicited::Cancelled),
        };
        let content = Value::Object(content.unwrap_or_default());
        if let Some(form) = &self.form {
            form.check(&content)?;
        }
        located::read(&content)
            .map(Elicited::Accepted)
            .map_err(|misfit| format!("content.{}: {}", misfit.path, misfit.cause))
    }
}

impl<'c> ElicitUrl<'c> {
    pub fn new(context: &'c CallContext, message: &str, url: &str) -> Self {
        let asking = &context.asking;
        let mut draft = asking
            .require(ClientAbility::ElicitationUrl)
            .and_then(|()| check_url(url).map_err(AskError::InvalidQuestion))
            .map(|()| {
                let params = json!({"mode": "url", "message": message, "url": url});
                Draft::new(QuestionKind::Elicitation, params)
            });
        let (mut visit, mut page) = (None, None);
        if let Ok(draft) = &mut draft
            && asking.revision().has_elicitation_ids()
        {
            let id: Arc<str> = URL_SAFE_NO_PAD
                .encode(crate::seal::random_bytes::<16>())
                .into();
            draft.drawn = Some(("elicitationId", (&*id).into()));
            visit = context
                .session
                .as_ref()
                .map(|session| UrlElicitation::new(Arc::clone(session), Arc::clone(&id)));
            page = Some(Box::new(RequiredVisit {
                message: message.to_owned(),
                url: url.to_owned(),
                id,
            }));
        }
        ElicitUrl {
            question: Question::new(asking, draft),
            visit,
            page,
            is_required: false,
        }
    }

    /// Says that nothing can be done without the visit. Then a client of 2025-11-25 is not asked while its request
    /// waits: the request ends with the error -32042, which names the page, and the client makes it again after the
    /// visit. Clients of 2026-07-28 are asked as without this, which comes to the same.
    ///
    /// So look first whether the visit is still needed.
    pub fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// What it takes to tell the client that the visit is over. `None` where clients cannot be told: in all revisions
    /// but 2025-11-25. In 2026-07-28 a client calls again, and finds out.
    pub fn visit(&self) -> Option<UrlElicitation> {
        self.visit.clone()
    }

    /// Gives the question a name of its own, of at most 128 bytes. Clients of 2026-07-28 see it, and may send the
    /// answer along before they are asked. Default: one is made up.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.question.name(name.into());
        self
    }
}

impl<T: DeserializeOwned> Future for Elicit<'_, T> {
    type Output = Result<Elicited<T>, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.form.poll_as(cx)
    }
}

impl Future for ElicitForm<'_> {
    type Output = Result<Elicited<Map<String, Value>>, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_as(cx)
    }
}

impl Future for ElicitUrl<'_> {
    type Output = Result<Elicited<()>, AskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_required
            && let Some(page) = self.page.take()
        {
            return Poll::Ready(Err(AskError::VisitRequired(page)));
        }
        self.question.poll(cx).map(|answer| {
            let answer = answer?;
            match outcome(&answer) {
                Ok(elicited) => Ok(elicited.map(drop)),
                Err(problem) => Err(self.question.refuse(&answer, problem)),
            }
        })
    }
}

/// What has become of it, and what was filled in.
fn outcome(answer: &Answer) -> Result<Elicited<Option<Map<String, Value>>>, String> {
    #[derive(Deserialize)]
    struct ElicitResult {
        action: Action,
        #[serde(default)]
        content: Option<Map<String, Value>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Action {
        Accept,
        Decline,
        Cancel,
    }
    let result: ElicitResult = strict::from_str(&answer.json)
        .map_err(|e| format!("not a valid result of elicitation/create: {}", in_words(&e)))?;
    Ok(match result.action {
        Action::Accept => Elicited::Accepted(result.content),
        Action::Decline => Elicited::Declined,
        Action::Cancel => Elicited::Cancelled,
    })
}

/// ELI-07, as far as a URL shows it.
fn check_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .ok_or("its URL begins with https://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("its URL is none".to_owned());
    }
    if host.contains('@') {
        return Err("its URL has credentials in it".to_owned());
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
