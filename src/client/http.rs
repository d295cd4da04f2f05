//! A server that is reached over HTTP: a request for each message, answers as JSON or as event streams.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use url::Url;

use super::credentials::Sender;
use super::error::beginning;
use super::shared::{Send1, Shared};
use super::wire::{self, Incoming};
use super::{ClientError, LISTEN, Options, Params};
use crate::net::{Answer, Client as HttpClient, EventDecoder, Outgoing, Said};
use crate::protocol::Revision;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// How often a stream that broke is taken up again.
const RESUMPTIONS: usize = 5;
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

pub(super) struct Link {
    client: Sender,
    url: Url,
    /// What each request carries, credentials among it.
    headers: HeaderMap,
    session: RwLock<SessionState>,
    message_bytes: usize,
}

#[derive(Clone, Default)]
struct SessionState {
    id: Option<HeaderValue>,
    revision: Option<Revision>,
}

/// What one request is about, for the headers that mirror it.
#[derive(Clone, Copy, Default)]
pub(super) struct About<'a> {
    pub(super) method: &'a str,
    pub(super) name: Option<&'a str>,
    /// Arguments that headers repeat.
    pub(super) arguments: &'a [(HeaderName, String)],
}

impl Link {
    pub(super) fn new(client: HttpClient, url: Url, headers: HeaderMap, options: &Options) -> Self {
        Self {
            client: Sender::new(client, options.credentials.clone()),
            url,
            headers,
            session: RwLock::default(),
            message_bytes: options.message_bytes,
        }
    }

    pub(super) fn speak(&self, revision: Revision) {
        let mut session = self.session.write().unwrap_or_else(PoisonError::into_inner);
        session.revision = Some(revision);
    }

    pub(super) fn has_session(&self) -> bool {
        self.session().id.is_some()
    }

    fn session(&self) -> SessionState {
        self.session
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn outgoing(&self, method: Method, accept: &'static str) -> Outgoing {
        let session = self.session();
        let mut outgoing = Outgoing::new(method, self.url.clone());
        outgoing.headers = self.headers.clone();
        outgoing
            .headers
            .insert(ACCEPT, HeaderValue::from_static(accept));
        if let Some(id) = session.id {
            outgoing.headers.insert(SESSION, id);
        }
        // Revisions before that know no such header, and say nothing against it.
        if let Some(revision) = session.revision {
            outgoing
                .headers
                .insert(VERSION, HeaderValue::from_static(revision.as_str()));
        }
        outgoing
    }

    /// Sends a message; what comes back goes to whoever waits for it. `id` is the request's own, if it is one.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        message: Bytes,
        id: Option<u64>,
        about: About<'_>,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let mut outgoing = self.outgoing(Method::POST, "application/json, text/event-stream");
        outgoing
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self
            .session()
            .revision
            .is_some_and(|revision| !revision.has_sessions())
        {
            if let Ok(method) = HeaderValue::from_str(about.method) {
                outgoing.headers.insert(METHOD, method);
            }
            if let Some(name) = about.name {
                outgoing.headers.insert(NAME, mirrored(name));
            }
            for (header, value) in about.arguments {
                outgoing.headers.insert(header, mirrored(value));
            }
        }
        outgoing.body = message;
        let answer = self
            .client
            .open(outgoing)
            .await?
            .max_body(self.message_bytes);
        if about.method == "initialize"
            && answer.status.is_success()
            && let Some(session) = answer.headers.get(&SESSION)
        {
            let mut state = self.session.write().unwrap_or_else(PoisonError::into_inner);
            state.id = Some(session.clone());
        }
        self.take(answer, id, shared).await
    }

    async fn take(
        self: &Arc<Self>,
        answer: Answer,
        id: Option<u64>,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let status = answer.status;
        if status == StatusCode::UNAUTHORIZED {
            let challenge = answer.headers.get(WWW_AUTHENTICATE);
            return Err(ClientError::Unauthorized {
                challenge: challenge
                    .map(|value| beginning(value.as_bytes()))
                    .unwrap_or_default(),
            });
        }
        let kind = answer
            .headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let kind = kind
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        if status.is_success() && kind == "text/event-stream" {
            return match id {
                Some(id) => self.follow(answer, id, shared).await,
                // An answer to nothing is not waited for.
                None => Ok(()),
            };
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return match id {
                Some(_) => Err(ClientError::Protocol(format!(
                    "a request was answered by HTTP {status} and nothing else"
                ))),
                None => Ok(()),
            };
        }
        let had_session = self.has_session();
        let read = answer.read().await?;
        let send = self.sender(shared);
        if let Ok(messages) = wire::read(&read.body) {
            let mut answered = false;
            for message in messages {
                if status == StatusCode::NOT_FOUND
                    && had_session
                    && matches!(&message, Incoming::Answer { outcome: Err(error), .. } if error.code != -32601)
                {
                    return Err(ClientError::SessionEnded);
                }
                answered |= matches!(message, Incoming::Answer { .. });
                shared.take(message, id, &send);
            }
            if answered || status.is_success() {
                return Ok(());
            }
        }
        if status == StatusCode::NOT_FOUND && had_session {
            return Err(ClientError::SessionEnded);
        }
        if status.is_success() && id.is_none() {
            return Ok(());
        }
        if status.is_success() {
            return Err(ClientError::Protocol(format!(
                "an answer that is no message: {}",
                beginning(&read.body)
            )));
        }
        Err(ClientError::Status {
            status: status.as_u16(),
            said: beginning(&read.body),
        })
    }

    /// Reads a stream until it has brought the answer; takes it up again where it broke, if the server keeps what it
    /// said.
    async fn follow(
        self: &Arc<Self>,
        answer: Answer,
        id: u64,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let send = self.sender(shared);
        let mut answer = answer.max_body(usize::MAX);
        let mut decoder = EventDecoder::new(self.message_bytes);
        let mut retry = RETRY;
        let mut resumed = 0;
        loop {
            let ended = self
                .read_stream(
                    &mut answer,
                    &mut decoder,
                    &mut retry,
                    Some(id),
                    shared,
                    &send,
                )
                .await;
            if !shared.waits_for(id) {
                return Ok(());
            }
            if let Err(error @ ClientError::Protocol(_)) = ended {
                return Err(error);
            }
            let Some(last) = decoder
                .last_id()
                .and_then(|id| HeaderValue::from_str(id).ok())
            else {
                return Err(ended.err().unwrap_or_else(|| {
                    ClientError::Gone("its stream ended before the answer".to_owned())
                }));
            };
            if resumed == RESUMPTIONS {
                return Err(ClientError::Gone(
                    "its stream broke off too often".to_owned(),
                ));
            }
            resumed += 1;
            tokio::time::sleep(retry).await;
            let mut outgoing = self.outgoing(Method::GET, "text/event-stream");
            outgoing.headers.insert(LAST_EVENT, last);
            let next = self.client.open(outgoing).await?;
            if !next.status.is_success() {
                return Err(ClientError::Gone(format!(
                    "its stream broke off and cannot be resumed (HTTP {})",
                    next.status
                )));
            }
            answer = next.max_body(usize::MAX);
        }
    }

    async fn read_stream(
        &self,
        answer: &mut Answer,
        decoder: &mut EventDecoder,
        retry: &mut Duration,
        about: Option<u64>,
        shared: &Arc<Shared>,
        send: &Send1,
    ) -> Result<(), ClientError> {
        while let Some(bytes) = answer.chunk().await? {
            let said = decoder
                .push(&bytes)
                .map_err(|error| ClientError::Protocol(error.to_string()))?;
            for said in said {
                match said {
                    Said::Retry(milliseconds) => {
                        *retry = Duration::from_millis(milliseconds).min(RETRY_MAX);
                    }
                    Said::Event(event) if event.kind.is_empty() || event.kind == "message" => {
                        // An event to begin with may be empty.
                        for message in wire::read(event.data.as_bytes()).unwrap_or_default() {
                            shared.take(message, about, send);
                        }
                    }
                    Said::Event(_) => {}
                }
            }
            if about.is_some_and(|id| !shared.waits_for(id)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hears what the server says outside of answers, for as long as the connection lives.
    pub(super) async fn listen(self: Arc<Self>, shared: Arc<Shared>) {
        let send = self.sender(&shared);
        let mut decoder = EventDecoder::new(self.message_bytes);
        let mut retry = RETRY;
        let mut failures = 0_u32;
        let mut was_open = false;
        while !shared.is_closed() {
            let mut outgoing = self.outgoing(Method::GET, "text/event-stream");
            if let Some(last) = decoder
                .last_id()
                .and_then(|id| HeaderValue::from_str(id).ok())
            {
                outgoing.headers.insert(LAST_EVENT, last);
            }
            match self.client.open(outgoing).await {
                Ok(answer) if answer.status.is_success() => {
                    failures = 0;
                    was_open = true;
                    let mut answer = answer.max_body(usize::MAX);
                    // However it ends, it is opened again.
                    let _ = self
                        .read_stream(&mut answer, &mut decoder, &mut retry, None, &shared, &send)
                        .await;
                }
                // It has started anew, and does not know us any more. Some have no such stream, and say the same.
                Ok(answer) if answer.status == StatusCode::NOT_FOUND && was_open => {
                    // What is under way may have happened.
                    let why = "it does not know the session any more".to_owned();
                    shared.close(&ClientError::Gone(why));
                    return;
                }
                // It has no such stream.
                Ok(answer) if answer.status.is_client_error() => return,
                _ => failures += 1,
            }
            let pause =
                retry.max(Duration::from_millis(100)) * 2_u32.saturating_pow(failures.min(5));
            tokio::time::sleep(pause.min(RETRY_MAX)).await;
        }
    }

    /// The same for a server without sessions, which tells what `params` ask to be told.
    pub(super) async fn subscribe(self: Arc<Self>, params: Params, shared: Arc<Shared>) {
        let mut failures = 0_u32;
        loop {
            // Without a connection nothing is expected any more.
            let Ok(mut expected) = shared.expect(None) else {
                return;
            };
            let message = wire::request(expected.id, LISTEN, &params).into();
            let about = About {
                method: LISTEN,
                ..About::default()
            };
            let began = tokio::time::Instant::now();
            let ended = Box::pin(self.exchange(message, Some(expected.id), about, &shared)).await;
            if ended.is_ok() && matches!(expected.answer().await, Err(ClientError::Rpc(_))) {
                // It does not want to.
                return;
            }
            failures = match began.elapsed() < RETRY_MAX {
                true => failures + 1,
                false => 0,
            };
            let pause = RETRY * 2_u32.saturating_pow(failures.min(5));
            tokio::time::sleep(pause.min(RETRY_MAX)).await;
        }
    }

    /// Sends it in the background.
    pub(super) fn send_soon(self: &Arc<Self>, message: Bytes, shared: &Arc<Shared>) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(self.sender(shared)(message));
        }
    }

    fn sender(self: &Arc<Self>, shared: &Arc<Shared>) -> Send1 {
        let (link, shared) = (Arc::downgrade(self), Arc::downgrade(shared));
        Arc::new(move |message| {
            let (link, shared) = (link.upgrade(), shared.upgrade());
            Box::pin(async move {
                if let (Some(link), Some(shared)) = (link, shared)
                    && let Err(error) =
                        Box::pin(link.exchange(message, None, About::default(), &shared)).await
                {
                    tracing::debug!(%error, "an upstream server did not take an answer");
                }
            })
        })
    }

    /// Ends the session, where there is one. What the server says to that does not matter.
    pub(super) async fn stop(&self, grace: Duration) {
        if self.has_session() {
            let outgoing = self
                .outgoing(Method::DELETE, "application/json")
                .within(grace);
            let _ = self.client.open(outgoing).await;
        }
    }
}

/// A name or an argument as its header has it: as it is where that is possible, else in Base64 between marks (MH-06).
fn mirrored(name: &str) -> HeaderValue {
    use base64::Engine as _;
    let plain = name.bytes().all(|b| (0x20..0x7f).contains(&b))
        && name.trim() == name
        && !name.is_empty()
        && !name.starts_with("=?");
    let text = if plain {
        name.to_owned()
    } else {
        format!(
            "=?base64?{}?=",
            base64::engine::general_purpose::STANDARD.encode(name)
        )
    };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
