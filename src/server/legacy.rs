//! Sessions of the transport of 2024-11-05: a stream that stays open, and messages that are posted beside it.
//!
//! A session lives as long as its stream, in this process. Its answers wait in a bounded queue; if nobody takes them
//! within five seconds the session is evicted.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::streams::{Part, Parts, Said, StandingPlace};
use super::{Answer, Handled, Local, Refusal, Reply, Server, StdioPeer};
use crate::auth::Principal;
use crate::protocol::ErrorCode;
use crate::seal::random_bytes;
use crate::telemetry::Seen;

/// The sessions of one process, by their ids.
#[derive(Debug, Default)]
pub(super) struct LegacySessions(Mutex<HashMap<Box<str>, Arc<LegacySession>>>);

/// What one session and its stream share.
struct LegacySession {
    /// Whom it belongs to.
    principal: Box<str>,
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
/// How long a message waits for room before its session is evicted.
const SEND: Duration = Duration::from_secs(5);

/// What is left to do for a message that was posted: it is answered on the stream.
pub(crate) type Posted = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Server {
    /// Opens a session, and the stream that it lives on; `now` in seconds of Unix time. `path` is where its client posts messages (SSE24-01).
    pub(crate) fn open_legacy(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        now: u64,
        path: &str,
    ) -> Result<Box<dyn Parts>, Reply> {
        let place = self.streams.place_for(principal)?;
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let id = format!("{:032x}", u128::from_ne_bytes(random_bytes()));
        let session = Arc::new(LegacySession {
            principal: principal.id().into(),
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
            ends_at: Instant::now() + self.streams.life_for(principal, now),
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
        let session = session
            .filter(|session| *session.principal == *principal.id())
            .ok_or_else(|| {
                Reply::refuse(
                    Refusal::SessionUnknown,
                    None,
                    ErrorCode::Http(404),
                    "Session not found: it ends with its event stream; open one again",
                )
            })?;
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
            let message = answer.map(|answer| {
                if answer.rest.is_empty() {
                    answer.head
                } else {
                    [answer.head, answer.rest].concat().into()
                }
            });
            return Poll::Ready(message.map(|message| Part::event("message", message)));
        }
        if self.standing.is_none() {
            self.standing = self.server.stdio_stream(&self.session.peer);
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
            self.server.inflight.cancel_all(&session.log_name);
        }
    }
}
