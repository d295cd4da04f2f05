//! Connection to a server over HTTP: each message is a request, and responses are JSON or event streams.

mod subscription;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use url::Url;

use super::credentials::Sender;
use super::error::{beginning, of_what};
use super::event_stream::{is_event_stream, next_items};
use super::lifecycle;
use super::shared::{Send1, Shared};
use super::wire::{self, Incoming};
use super::{ClientError, Options};
use crate::net::{
    self, Client as HttpClient, EventDecoder, FetchError, OutgoingRequest, PinnedClient, SseItem,
    StreamingResponse,
};
use crate::protocol::Revision;
use crate::source::redact::{conceal, conceal_in_headers, secrets_of};
pub(super) use subscription::Subscription;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Maximum number of resumptions of a broken stream without a new event.
const RESUMPTIONS: usize = 5;
const RESUMPTION_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Time after which a stream counts as broken if nothing arrives, because its connection may be lost.
const QUIET_MAX: Duration = Duration::from_secs(1800);
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time in which the session of a dropped connection is ended.
const ENDS: Duration = Duration::from_secs(5);

pub(super) struct Link {
    client: Sender,
    lane: PinnedClient,
    session: ArcSwap<Session>,
    /// True if the session has ended.
    has_ended: AtomicBool,
    message_bytes: usize,
}

/// State negotiated with the server.
#[derive(Clone)]
struct Session {
    id: Option<HeaderValue>,
    revision: Option<Revision>,
    /// Headers of each posted message, including credentials.
    headers: HeaderMap,
}

/// Properties of a request that headers mirror.
#[derive(Clone, Copy, Default)]
pub(super) struct HeaderInfo<'a> {
    pub(super) method: &'a str,
    pub(super) name: Option<&'a str>,
    /// Arguments to mirror in headers.
    pub(super) arguments: &'a [(HeaderName, String)],
    /// The request's `_meta`, whose trace context is mirrored in headers.
    pub(super) meta: Option<&'a Map<String, Value>>,
}

/// Trace context keys that are mirrored in headers, for intermediaries and for servers that trace only their HTTP
/// requests.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

impl Link {
    pub(super) fn new(
        client: HttpClient,
        url: Url,
        headers: HeaderMap,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let lane = PinnedClient::new(client.clone(), url)?;
        let mut headers = lane.headers(headers);
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self {
            client: Sender::new(client, options.credentials.clone()),
            lane,
            session: ArcSwap::from_pointee(Session {
                id: None,
                revision: None,
                headers,
            }),
            has_ended: AtomicBool::new(false),
            message_bytes: options.message_bytes,
        })
    }

    /// Sets the protocol version of later requests; `None` before a handshake.
    pub(super) fn speak(&self, revision: Option<Revision>) {
        self.session.rcu(|session| {
            let mut session = Session::clone(session);
            session.revision = revision;
            match revision {
                // Earlier versions do not define this header, but tolerate it.
                Some(revision) => {
                    let version = HeaderValue::from_static(revision.as_str());
                    session.headers.insert(VERSION, version);
                }
                None => drop(session.headers.remove(VERSION)),
            }
            session
        });
    }

    fn begin_session(&self, id: &HeaderValue) {
        self.session.rcu(|session| {
            let mut session = Session::clone(session);
            session.headers.insert(SESSION, id.clone());
            session.id = Some(id.clone());
            session
        });
    }

    pub(super) fn has_session(&self) -> bool {
        self.session.load().id.is_some()
    }

    /// Creates a request without a message.
    fn outgoing(&self, method: Method, accept: &'static str) -> OutgoingRequest {
        let mut outgoing = OutgoingRequest::new(method, self.lane.url().clone());
        outgoing.headers = self.session.load().headers.clone();
        outgoing.headers.remove(CONTENT_TYPE);
        outgoing
            .headers
            .insert(ACCEPT, HeaderValue::from_static(accept));
        outgoing
    }

    /// Sends a message, and routes what comes back to its recipients. `id` is the ID of a request.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        message: Bytes,
        id: Option<u64>,
        about: HeaderInfo<'_>,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let headers = self.headers_of(&about);
        let (answer, mut secrets) = self.client.post(&self.lane, headers, message).await?;
        let mut answer = answer.max_body(self.message_bytes);
        if !answer.status.is_success() {
            secrets.extend(secrets_of(&self.session.load().headers, self.lane.url()));
            conceal_in_headers(secrets.iter().map(Cow::from), &mut answer.headers);
        }
        if about.method == "initialize"
            && answer.status.is_success()
            && let Some(session) = answer.headers.get(&SESSION)
        {
            self.begin_session(session);
        }
        let taken = self.take((answer, secrets), id, shared).await;
        if matches!(taken, Err(ClientError::SessionEnded)) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        taken
    }

    fn headers_of(&self, about: &HeaderInfo<'_>) -> HeaderMap {
        let session = self.session.load();
        let mut headers = session.headers.clone();
        if session
            .revision
            .is_some_and(|revision| !revision.has_sessions())
        {
            if let Ok(method) = HeaderValue::from_str(about.method) {
                headers.insert(METHOD, method);
            }
            if let Some(name) = about.name {
                headers.insert(NAME, mirrored(name));
            }
            for (header, value) in about.arguments {
                headers.insert(header, mirrored(value));
            }
        }
        for name in TRACE {
            let said = about.meta.and_then(|meta| meta.get(name)?.as_str());
            if let Some(value) = said.and_then(|text| HeaderValue::from_str(text).ok()) {
                headers.insert(name, value);
            }
        }
        headers
    }

    /// Takes the response to a message. `secrets` are those that an error response may echo.
    async fn take(
        self: &Arc<Self>,
        (answer, secrets): (StreamingResponse, Vec<String>),
        id: Option<u64>,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let status = answer.status;
        self.client.check(&answer).await?;
        if is_event_stream(&answer) {
            return match id {
                Some(id) => Box::pin(self.follow(answer, id, shared)).await,
                // Only requests have a response.
                None => Ok(()),
            };
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return match id {
                Some(_) => Err(ClientError::Protocol(format!(
                    "it responded to a request with HTTP {status} and no message"
                ))),
                None => Ok(()),
            };
        }
        let had_session = self.has_session();
        let mut read = answer.read().await?;
        // A successful response is not changed: there are no secrets then.
        conceal(secrets.into_iter().map(Cow::from), &mut read);
        if let Ok(messages) = wire::read(&read.body) {
            let mut answered = false;
            for mut message in messages {
                if let Incoming::Answer {
                    id: of,
                    is_json_rpc,
                    outcome: Err(error),
                } = &mut message
                    && !status.is_success()
                {
                    error.status = Some(status.as_u16());
                    if !*is_json_rpc && of.is_none() {
                        error.message = without_mcp(status, &error.message);
                    }
                    if status == StatusCode::NOT_FOUND && had_session && error.code != -32601 {
                        return Err(ClientError::SessionEnded);
                    }
                    if self.is_of_another_era(status, Some(error.code), *of == id) {
                        return Err(refused_by_era(error.clone().into()));
                    }
                }
                answered |= matches!(message, Incoming::Answer { .. });
                shared.take(message, id, || self.sender(shared));
            }
            // Only a stream can bring the response later.
            if id.is_some_and(|id| shared.waits_for(id)) && (answered || status.is_success()) {
                return Err(ClientError::Protocol(format!(
                    "it responded to a request with a message that is not the response: {}",
                    beginning(&read.body)
                )));
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
                "it responded with something that is not a JSON-RPC message: {}",
                beginning(&read.body)
            )));
        }
        let refused = ClientError::Status {
            status: status.as_u16(),
            said: beginning(&read.body),
        };
        match id.is_some() && self.is_of_another_era(status, None, false) {
            true => Err(refused_by_era(refused)),
            false => Err(refused),
        }
    }

    /// Returns true if a server of this connection's lifecycle does not send such an error. `code` is that of the JSON-RPC
    /// error in the body; `is_answer` is true if its ID is that of the request.
    fn is_of_another_era(&self, status: StatusCode, code: Option<i64>, is_answer: bool) -> bool {
        let Some(revision) = self.session.load().revision else {
            return false;
        };
        if revision.has_sessions() {
            return status == StatusCode::BAD_REQUEST && code.is_some_and(lifecycle::is_modern);
        }
        // Legacy servers report a missing session, an unsupported version or an unknown path. A modern server
        // responds to the request's ID.
        matches!(status.as_u16(), 400 | 404 | 405 | 406 | 410 | 415)
            && !is_answer
            && !code.is_some_and(|code| lifecycle::is_modern(code) || code == -32601)
    }

    /// Reads a stream until the response arrives. Resumes a broken stream if the server supports that.
    async fn follow(
        self: &Arc<Self>,
        answer: StreamingResponse,
        id: u64,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let mut answer = answer.max_body(usize::MAX);
        let mut decoder = EventDecoder::new(self.message_bytes);
        let mut retry = RETRY;
        let mut resumed = 0;
        let mut before: Option<HeaderValue> = None;
        loop {
            let ended = self
                .read_stream(&mut answer, &mut decoder, &mut retry, Some(id), shared)
                .await;
            if !shared.waits_for(id) {
                answer.let_end();
                return Ok(());
            }
            if let Err(error @ (ClientError::Protocol(_) | ClientError::TooLarge { .. })) = ended {
                return Err(error);
            }
            let Some(last) = decoder
                .last_id()
                .and_then(|id| HeaderValue::from_str(id).ok())
            else {
                return Err(ended.err().unwrap_or_else(|| {
                    ClientError::Gone("the event stream ended before the response".to_owned())
                }));
            };
            // The server has sent something, so the request's timeout bounds the rest.
            if before
                .replace(last.clone())
                .is_none_or(|before| before != last)
            {
                resumed = 0;
            }
            answer = loop {
                if resumed == RESUMPTIONS {
                    return Err(ClientError::Gone(
                        "its stream broke off too often".to_owned(),
                    ));
                }
                resumed += 1;
                tokio::time::sleep(retry.max(RESUMPTION_PAUSE_MIN)).await;
                let mut outgoing = self.outgoing(Method::GET, "text/event-stream");
                outgoing.headers.insert(LAST_EVENT, last.clone());
                // The server may have executed the request, whatever happens here.
                let problem = match self.client.open(outgoing).await {
                    Ok(next) if is_event_stream(&next) => break next.max_body(usize::MAX),
                    Ok(next) if matches!(next.status.as_u16(), 429 | 502..=504) => continue,
                    Err(error) if error.is_unreachable() => continue,
                    Ok(next) => format!("HTTP {}", next.status),
                    Err(error) => error.to_string(),
                };
                return Err(ClientError::Gone(format!(
                    "its stream broke off and cannot be resumed ({problem})"
                )));
            };
            decoder.restart();
        }
    }

    async fn read_stream(
        self: &Arc<Self>,
        answer: &mut StreamingResponse,
        decoder: &mut EventDecoder,
        retry: &mut Duration,
        about: Option<u64>,
        shared: &Arc<Shared>,
    ) -> Result<(), ClientError> {
        let mut heard = Instant::now();
        let max = self.message_bytes;
        loop {
            let items = match next_items(answer, decoder, max).await {
                Ok(Some(items)) => items,
                Ok(None) => return Ok(()),
                Err(ClientError::Http(FetchError::Timeout { .. }))
                    if may_be_quiet(about, heard, shared) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            heard = Instant::now();
            for item in items {
                match item {
                    SseItem::Retry(milliseconds) => {
                        *retry = Duration::from_millis(milliseconds).min(RETRY_MAX);
                    }
                    SseItem::Event(event) if event.kind.is_empty() || event.kind == "message" => {
                        // The first event can be empty.
                        for message in wire::read(event.data.as_bytes()).unwrap_or_default() {
                            shared.take(message, about, || self.sender(shared));
                        }
                    }
                    SseItem::Event(_) | SseItem::TooLong { .. } => {}
                }
            }
            if about.is_some_and(|id| !shared.waits_for(id)) {
                return Ok(());
            }
        }
    }

    /// Returns a function that sends messages for as long as the connection exists.
    pub(super) fn sender(self: &Arc<Self>, shared: &Arc<Shared>) -> Send1 {
        let (link, shared) = (Arc::downgrade(self), Arc::downgrade(shared));
        Arc::new(move |message| {
            let (link, shared) = (link.upgrade(), shared.upgrade());
            Box::pin(async move {
                if let (Some(link), Some(shared)) = (link, shared)
                    && let Err(error) =
                        Box::pin(link.exchange(message, None, HeaderInfo::default(), &shared)).await
                {
                    tracing::debug!(%error, "an upstream server did not accept a response");
                }
            })
        })
    }

    /// Ends the session, if there still is one. The response is ignored.
    pub(super) fn end_session(
        &self,
        grace: Duration,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if !self.has_session() || self.has_ended.swap(true, Ordering::Relaxed) {
            return None;
        }
        let outgoing = self.outgoing(Method::DELETE, "application/json");
        let client = self.client.clone();
        Some(async move {
            let _ = timeout(grace, client.open(outgoing)).await;
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current()
            && let Some(ending) = self.end_session(ENDS)
        {
            net::spawn_on(&runtime, ending);
        }
    }
}

/// Returns true if a stream may send nothing for longer than the idle deadline: while a client request of its request
/// is open, and otherwise for a long time. Requests have timeouts of their own, and subscriptions can be quiet.
fn may_be_quiet(about: Option<u64>, heard: Instant, shared: &Shared) -> bool {
    heard.elapsed() < QUIET_MAX || about.is_some() && shared.is_asking(about)
}

/// Describes an error in JSON that is not a message of MCP.
fn without_mcp(status: StatusCode, said: &str) -> String {
    let advice = match status.as_u16() {
        404 | 405 | 410 => {
            "; the server may not speak MCP at this URL: check the URL, whose path is often /mcp"
        }
        _ => "",
    };
    format!("HTTP {}{}{advice}", status.as_u16(), of_what(said))
}

fn refused_by_era(said: ClientError) -> ClientError {
    ClientError::RevisionRefused {
        said: Box::new(said),
    }
}

/// Encodes a name or an argument for its header: unchanged where that is possible, else in marked Base64 (MH-06).
fn mirrored(name: &str) -> HeaderValue {
    use base64::Engine as _;
    let plain = name.bytes().all(|b| (0x20..0x7f).contains(&b))
        && name.trim() == name
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_may_be_quiet_for_a_long_time() {
        let shared = Shared::new(None);
        let heard = Instant::now();
        for about in [None, Some(1)] {
            assert!(may_be_quiet(about, heard, &shared));
        }
        tokio::time::advance(QUIET_MAX).await;
        for about in [None, Some(1)] {
            assert!(!may_be_quiet(about, heard, &shared));
        }
    }
}
