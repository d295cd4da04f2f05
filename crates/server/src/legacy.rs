//! Sessions of the transport of 2024-11-05: a stream that stays open, and messages that are posted beside it.
//!
//! A session lives as long as its stream, in this process. Its answers wait in a bounded queue; if nobody takes them
//! within five seconds the session is evicted. A message that is posted to another replica is passed on to the one that
//! has the stream, if they share a state.

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

use super::streams::{Part, Parts, Said, StandingPlace, Word};
use super::{Answer, Handled, Local, Refusal, Reply, Server, StdioPeer};
use crate::auth::Principal;
use crate::protocol::ErrorCode;
use crate::protocol::message::Payload;
use crate::seal::{KeyRing, Purpose, random_bytes, short_digest};
use crate::telemetry::Seen;

/// The sessions of one process, by their ids.
#[derive(Debug, Default)]
pub(super) struct LegacySessions(Mutex<HashMap<Box<str>, Arc<LegacySession>>>);

/// What one session and its stream share.
struct LegacySession {
    /// Whom it belongs to.
    principal: Arc<Principal>,
    peer: StdioPeer,
    messages: mpsc::Sender<Answer>,
    places: Arc<Semaphore>,
    is_evicted: AtomicBool,
    waker: AtomicWaker,
}

/// Messages that wait to be taken.
const WAITING_MAX: usize = 64;
/// Requests that are answered at once.
const CONCURRENT_MAX: usize = 64;
/// How large a message may be that is passed on to another replica.
const PASSED_ON_BYTES: usize = 30 * 1024;
/// How long a message waits for room before its session is evicted.
const SEND: Duration = Duration::from_secs(5);

/// What is left to do for a message that was posted: it is answered on the stream.
pub(crate) type Posted = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Server {
    /// Opens a session, and the stream that it lives on. `path` is where its client posts messages (SSE24-01).
    pub(crate) fn open_legacy(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
        path: &str,
    ) -> Result<Box<dyn Parts>, Reply> {
        let place = self.streams.place_for(principal, address)?;
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let id = LegacyId {
            replica: self.replica,
            number: random_bytes(),
            owner: short_digest(&[principal.id().as_bytes()]),
        };
        let id = id.sign(&self.keys, &self.mount);
        let session = Arc::new(LegacySession {
            principal: Arc::clone(principal),
            peer: StdioPeer::of_sessions(),
            messages: sender,
            places: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let first = Part::event("endpoint", format!("{path}?sessionId={id}").into());
        let id: Box<str> = id.into();
        self.legacy.all().insert(id.clone(), Arc::clone(&session));
        Ok(Box::new(LegacyStream {
            ends_at: Instant::now() + self.streams.life_for(principal),
            server: Arc::clone(self),
            id,
            session,
            place,
            messages,
            standing: None,
            first: Some(first),
        }))
    }

    /// Takes a message for a session. What it is answered with comes on the session's stream; only what is no message
    /// at all is refused here.
    pub(crate) fn post_legacy(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&Local, Seen<'_>),
        principal: &Arc<Principal>,
        id: &str,
        body: &Bytes,
    ) -> Result<Posted, Reply> {
        let session = self.legacy.all().get(id).cloned();
        let session = session.filter(|session| session.principal == *principal);
        let Some(session) = session else {
            return self.pass_on(principal, id, body);
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
        if let Handled::Now(Reply::Answer(answer)) = &handled
            && answer.refusal == Some(Refusal::Malformed)
            && let Handled::Now(refusal) = handled
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

    /// Takes a message for a session that is not here: for the replica that has its stream.
    #[cold]
    fn pass_on(&self, principal: &Principal, id: &str, body: &Bytes) -> Result<Posted, Reply> {
        let unknown = |message| {
            let code = ErrorCode::Http(404);
            Reply::refuse(Refusal::SessionUnknown, None, code, message)
        };
        let owner = short_digest(&[principal.id().as_bytes()]);
        let to = LegacyId::read(id, &self.keys, &self.mount)
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
            return Err(self.not_a_message(&problem));
        }
        let message = std::str::from_utf8(body).ok();
        let Some(message) = message.filter(|text| text.len() <= PASSED_ON_BYTES) else {
            return Err(unknown(
                "the message is too large to be passed on to the replica that has the event stream; send what belongs \
                 to a stream to the same replica",
            ));
        };
        self.streams.say(Word::Posted {
            to,
            session: id.to_owned(),
            principal: principal.id().into(),
            message: message.to_owned(),
        });
        Ok(Box::pin(std::future::ready(())))
    }

    /// A message of a session that is here, posted to another replica.
    pub(super) fn posted_elsewhere(self: &Arc<Self>, id: &str, principal: &str, message: String) {
        let session = self.legacy.all().get(id).cloned();
        let Some(session) = session.filter(|session| *session.principal.id() == *principal) else {
            return;
        };
        let local = Local::new(self.telemetry().cells());
        let (server, id, body) = (Arc::clone(self), id.to_owned(), Bytes::from(message));
        tokio::spawn(async move {
            let posted = std::future::poll_fn(|cx| {
                let principal = &session.principal;
                let by = (&local, Seen::default());
                Poll::Ready(server.post_legacy(cx, by, principal, &id, &body))
            });
            if let Ok(posted) = posted.await {
                posted.await;
            }
        });
    }

    /// Ends a session that nobody reads.
    fn evict(&self, id: &str, session: &LegacySession) {
        if self.legacy.all().remove(id).is_some() {
            tracing::info!("a session of 2024-11-05 was evicted: nobody took its messages");
        }
        session.is_evicted.store(true, Ordering::Release);
        session.waker.wake();
    }
}

impl LegacySession {
    /// Puts an answer, and what comes before it, on the stream. Says whether there was room in time.
    async fn answer(&self, handled: Handled, place: OwnedSemaphorePermit) -> bool {
        let sent = match handled.reply().await {
            Reply::Answer(answer) => self.send(answer).await,
            Reply::Stream(mut stream) => {
                let mut sent = true;
                while sent && let Some(part) = std::future::poll_fn(|cx| stream.poll_next(cx)).await
                {
                    sent = match part.said {
                        Said::Answer(answer) => self.send(answer).await,
                        Said::Message(message) => self.send(Answer::of(message)).await,
                        Said::Nothing => true,
                    };
                }
                sent
            }
            Reply::Accepted | Reply::Cancelled => true,
        };
        drop(place);
        sent
    }

    async fn send(&self, answer: Answer) -> bool {
        let sent = tokio::time::timeout(SEND, self.messages.send(answer)).await;
        // One whose stream is gone is no case for eviction any more.
        sent.is_ok()
    }
}

/// What the id of a session says, signed; so that every replica knows whose it is, and nobody makes one up.
struct LegacyId {
    replica: u64,
    number: [u8; 16],
    owner: [u8; 16],
}

const LEGACY_ID: &str = "legacy session 1";

impl LegacyId {
    fn sign(&self, keys: &KeyRing, mount: &str) -> String {
        let mut text = self.replica.to_be_bytes().to_vec();
        text.extend_from_slice(&self.number);
        text.extend_from_slice(&self.owner);
        let kind = LEGACY_ID;
        keys.sign(Purpose { kind, mount }, &text)
    }

    fn read(id: &str, keys: &KeyRing, mount: &str) -> Option<Self> {
        let kind = LEGACY_ID;
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

impl LegacySessions {
    fn all(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<LegacySession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LegacySession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LegacySession")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// The stream that a session lives on.
struct LegacyStream {
    server: Arc<Server>,
    id: Box<str>,
    session: Arc<LegacySession>,
    place: StandingPlace,
    messages: mpsc::Receiver<Answer>,
    /// What the session hears outside of answers, once it has begun.
    standing: Option<Box<dyn Parts>>,
    first: Option<Part>,
    ends_at: Instant,
}

impl Parts for LegacyStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
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
            let message = answer.as_ref().map(Answer::whole);
            return Poll::Ready(message.map(|message| Part::event("message", message)));
        }
        if self.standing.is_none() {
            self.standing = self
                .server
                .stdio_stream(&self.session.peer, &self.session.principal);
        }
        let Some(standing) = &mut self.standing else {
            return Poll::Pending;
        };
        standing.poll_next(cx).map(|part| {
            part.and_then(|part| match part.said {
                Said::Message(message) => Some(Part::event("message", message)),
                Said::Answer(_) | Said::Nothing => None,
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

impl Drop for LegacyStream {
    /// The session ends with its stream, and with it what nobody will hear of.
    fn drop(&mut self) {
        self.server.legacy.all().remove(&self.id);
        if let Some(session) = self.session.peer.session() {
            self.server.end_work_of(&session.log_name);
            self.server.streams.forget_session(&session.log_name);
            self.server.inflight.cancel_all(&session.log_name);
        }
    }
}
