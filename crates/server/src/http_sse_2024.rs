//! Sessions of the HTTP+SSE transport of 2024-11-05: one open event stream, and messages posted beside it.
//!
//! A session lives in this process as long as its stream. Its responses wait in a bounded queue. A session whose
//! client reads nothing for five seconds is evicted. A message posted to another replica is forwarded to the replica
//! with the stream, if they share state.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::streams::{BusMessage, EventData, EventSource, StreamEvent, StreamSlot};
use super::{JsonResponse, MaybeReady, Refusal, Reply, Server, StdioPeer, WorkerState};
use crate::auth::Principal;
use crate::protocol::ErrorCode;
use crate::protocol::message::Payload;
use crate::seal::{KeyRing, Purpose, random_bytes, short_digest};
use crate::telemetry::Seen;

/// Sessions of this process, by id.
#[derive(Debug, Default)]
pub(super) struct SseSessions(Mutex<HashMap<Box<str>, Arc<SseSession>>>);

/// State shared by a session and its stream.
struct SseSession {
    /// Owner of the session.
    principal: Arc<Principal>,
    peer: StdioPeer,
    messages: mpsc::Sender<JsonResponse>,
    places: Arc<Semaphore>,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
}

/// Maximum number of queued messages of a session.
const WAITING_MAX: usize = 64;
/// Maximum number of concurrent requests of a session.
const CONCURRENT_MAX: usize = 64;
/// Maximum size of a message forwarded to another replica, in bytes.
const FORWARD_BYTES_MAX: usize = 30 * 1024;
/// Time that a message waits for queue space before its session is evicted.
const SEND: Duration = Duration::from_secs(5);

/// Work that remains after a message was posted: it sends the response to the stream.
pub(crate) type Posted = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Server {
    /// Opens a session and its stream. `path` is the path to which the client posts messages (SSE24-01).
    pub fn open_sse_session(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
        path: &str,
    ) -> Result<Box<dyn EventSource>, Reply> {
        let place = self.streams.slot_for(principal, address)?;
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let id = SseSessionId {
            replica: self.replica,
            number: random_bytes(),
            owner: short_digest(&[principal.id().as_bytes()]),
        };
        let id = id.sign(&self.keys, &self.mount);
        let session = Arc::new(SseSession {
            principal: Arc::clone(principal),
            peer: StdioPeer::for_http_sse(),
            messages: sender,
            places: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let first = StreamEvent::event("endpoint", format!("{path}?sessionId={id}").into());
        let id: Box<str> = id.into();
        self.legacy.all().insert(id.clone(), Arc::clone(&session));
        Ok(Box::new(SseSessionStream {
            ends_at: Instant::now() + self.streams.max_age_for(principal),
            server: Arc::clone(self),
            id,
            session,
            place,
            messages,
            standing: None,
            first: Some(first),
        }))
    }

    /// Handles a message posted to a session. The response goes to the session's stream; only malformed messages are
    /// rejected here.
    pub fn post_sse_message(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, Seen<'_>),
        principal: &Arc<Principal>,
        id: &str,
        body: &Bytes,
    ) -> Result<Posted, Reply> {
        let session = self.legacy.all().get(id).cloned();
        let session = session.filter(|session| session.principal == *principal);
        let Some(session) = session else {
            return self.forward_to_owner(principal, id, body);
        };
        let place = Arc::clone(&session.places).try_acquire_owned();
        let place = place.map_err(|_| {
            Reply::refuse(
                Refusal::TooManyStreams,
                None,
                ErrorCode::Http(429),
                "Too many requests of this session wait for their answers",
            )
        })?;
        let handled = self.handle_stdio(cx, by, &session.peer, principal, body);
        if let MaybeReady::Ready(Reply::Response(answer)) = &handled
            && answer.refusal == Some(Refusal::Malformed)
            && let MaybeReady::Ready(refusal) = handled
        {
            return Err(refusal);
        }
        let server = Arc::clone(self);
        let id: Box<str> = id.into();
        Ok(Box::pin(async move {
            if !session.answer(handled, place).await {
                server.evict(&id, &session);
            }
        }))
    }

    /// Forwards a message to the replica that has the session's stream.
    #[cold]
    fn forward_to_owner(
        &self,
        principal: &Principal,
        id: &str,
        body: &Bytes,
    ) -> Result<Posted, Reply> {
        let unknown = |message| {
            let code = ErrorCode::Http(404);
            Reply::refuse(Refusal::SessionUnknown, None, code, message)
        };
        let owner = short_digest(&[principal.id().as_bytes()]);
        let to = SseSessionId::read(id, &self.keys, &self.mount)
            .filter(|id| id.owner == owner && id.replica != self.replica)
            .map(|id| id.replica)
            .ok_or_else(|| {
                unknown("Session not found: it ends with its event stream; open one again")
            })?;
        if !self.reaches_others {
            return Err(unknown(
                "Session not found here: another process has its event stream, and replicas share no state; give them \
                 one, or send what belongs to a stream to the same replica",
            ));
        }
        if let Err(problem) = Payload::within(body, self.bounds) {
            return Err(self.malformed_message(&problem));
        }
        let message = std::str::from_utf8(body).ok();
        let Some(message) = message.filter(|text| text.len() <= FORWARD_BYTES_MAX) else {
            return Err(unknown(
                "the message is too large to be passed on to the replica that has the event stream; send what belongs \
                 to a stream to the same replica",
            ));
        };
        self.streams.broadcast(BusMessage::Posted {
            to,
            session: id.to_owned(),
            principal: principal.id().into(),
            message: message.to_owned(),
        });
        Ok(Box::pin(std::future::ready(())))
    }

    /// Handles a message that was posted to another replica for a session of this one.
    pub(super) fn receive_forwarded(self: &Arc<Self>, id: &str, principal: &str, message: String) {
        let session = self.legacy.all().get(id).cloned();
        let Some(session) = session.filter(|session| *session.principal.id() == *principal) else {
            return;
        };
        let worker = WorkerState::new(self.telemetry().cells());
        let (server, id, body) = (Arc::clone(self), id.to_owned(), Bytes::from(message));
        tokio::spawn(async move {
            let posted = std::future::poll_fn(|cx| {
                let principal = &session.principal;
                let by = (&worker, Seen::default());
                Poll::Ready(server.post_sse_message(cx, by, principal, &id, &body))
            });
            if let Ok(posted) = posted.await {
                posted.await;
            }
        });
    }

    /// Ends a session whose client does not read.
    fn evict(&self, id: &str, session: &SseSession) {
        if self.legacy.all().remove(id).is_some() {
            tracing::info!("a session of 2024-11-05 was evicted: nobody took its messages");
        }
        session.is_evicted.store(true, Ordering::Release);
        session.waker.wake();
    }
}

impl SseSession {
    /// Sends a response, and the messages before it, to the stream. Returns false if there was no space in time.
    async fn answer(&self, handled: MaybeReady, place: OwnedSemaphorePermit) -> bool {
        let sent = match handled.reply().await {
            Reply::Response(answer) => self.send(answer).await,
            Reply::Stream(mut stream) => {
                let mut sent = true;
                while sent
                    && let Some(event) = std::future::poll_fn(|cx| stream.poll_next(cx)).await
                {
                    sent = match event.data {
                        EventData::Response(answer) => self.send(answer).await,
                        EventData::Message(message) => self.send(JsonResponse::new(message)).await,
                        EventData::Empty => true,
                    };
                }
                sent
            }
            Reply::Accepted | Reply::Cancelled => true,
        };
        drop(place);
        sent
    }

    async fn send(&self, answer: JsonResponse) -> bool {
        let sent = tokio::time::timeout(SEND, self.messages.send(answer)).await;
        // A closed stream needs no eviction.
        sent.is_ok()
    }
}

/// Contents of a signed session id: any replica can verify the owner, and clients cannot forge one.
struct SseSessionId {
    replica: u64,
    number: [u8; 16],
    owner: [u8; 16],
}

const SESSION_ID_KIND: &str = "legacy session 1";

impl SseSessionId {
    fn sign(&self, keys: &KeyRing, mount: &str) -> String {
        let mut text = self.replica.to_be_bytes().to_vec();
        text.extend_from_slice(&self.number);
        text.extend_from_slice(&self.owner);
        let kind = SESSION_ID_KIND;
        keys.sign(Purpose { kind, mount }, &text)
    }

    fn read(id: &str, keys: &KeyRing, mount: &str) -> Option<Self> {
        let kind = SESSION_ID_KIND;
        let text = keys.verify(Purpose { kind, mount }, id.as_bytes())?;
        let (replica, rest) = text.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        Some(Self {
            replica: u64::from_be_bytes(*replica),
            number: *number,
            owner: rest.try_into().ok()?,
        })
    }
}

impl SseSessions {
    fn all(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<SseSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SseSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseSession")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Event stream of a session.
struct SseSessionStream {
    server: Arc<Server>,
    id: Box<str>,
    session: Arc<SseSession>,
    place: StreamSlot,
    messages: mpsc::Receiver<JsonResponse>,
    /// Notifications of the session, after `initialize`.
    standing: Option<Box<dyn EventSource>>,
    first: Option<StreamEvent>,
    ends_at: Instant,
}

impl EventSource for SseSessionStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        self.session.waker.register(cx.waker());
        if self.session.is_evicted.load(Ordering::Acquire)
            || self.place.is_ended(cx)
            || self.ends_at <= Instant::now()
        {
            return Poll::Ready(None);
        }
        if let Poll::Ready(answer) = self.messages.poll_recv(cx) {
            let message = answer.as_ref().map(JsonResponse::to_bytes);
            return Poll::Ready(message.map(|message| StreamEvent::event("message", message)));
        }
        if self.standing.is_none() {
            self.standing = self
                .server
                .stdio_notifications(&self.session.peer, &self.session.principal);
        }
        let Some(standing) = &mut self.standing else {
            return Poll::Pending;
        };
        standing.poll_next(cx).map(|event| {
            event.and_then(|event| match event.data {
                EventData::Message(message) => Some(StreamEvent::event("message", message)),
                EventData::Response(_) | EventData::Empty => None,
            })
        })
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.ends_at)
    }

    fn is_standing(&self) -> bool {
        true
    }
}

impl Drop for SseSessionStream {
    /// The session ends with its stream, and with it the work whose result has no reader.
    fn drop(&mut self) {
        self.server.legacy.all().remove(&self.id);
        if let Some(session) = self.session.peer.session() {
            self.server.close_session_work(&session.log_name);
            self.server.streams.remove_session_state(&session.log_name);
            self.server.inflight.cancel_all(&session.log_name);
        }
    }
}
