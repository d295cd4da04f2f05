//! Sessions of the HTTP+SSE transport of 2024-11-05.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::peer::StdioPeer;
use super::reply::{JsonResponse, MaybeReady, RejectReason, Reply};
use super::streams::EventData;
use crate::auth::Principal;
use crate::net::Mutex;
use crate::protocol::{ErrorCode, Revision};
use crate::seal::{KeyRing, Purpose};

/// Sessions of this process, by id.
#[derive(Debug, Default)]
pub(super) struct SseSessions(Mutex<HashMap<Box<str>, Arc<SseSession>>>);

/// State shared by a session and its stream.
pub(super) struct SseSession {
    /// Owner of the session.
    pub(super) principal: Arc<Principal>,
    pub(super) peer: StdioPeer,
    messages: mpsc::Sender<JsonResponse>,
    /// Permits of requests in progress. Closed when the session accepts no more requests.
    permits: Arc<Semaphore>,
    pub(super) is_evicted: AtomicBool,
    pub(super) waker: AtomicWaker,
}

/// Maximum number of queued messages of a session.
const WAITING_MAX: usize = 64;
/// Maximum number of concurrent requests of a session.
const CONCURRENT_MAX: usize = 64;
/// Time that a message waits for queue space before its session is evicted.
const SEND: Duration = Duration::from_secs(5);

impl SseSession {
    /// Creates a session. Also returns the queue of its messages.
    pub(super) fn new(
        principal: &Arc<Principal>,
        assumed: Revision,
    ) -> (Self, mpsc::Receiver<JsonResponse>) {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let session = Self {
            principal: Arc::clone(principal),
            peer: StdioPeer::for_http_sse(assumed),
            messages: sender,
            permits: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            is_evicted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        };
        (session, messages)
    }

    /// Returns a permit for a request, which its response releases.
    pub(super) fn begin_request(&self) -> Result<OwnedSemaphorePermit, Reply> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|error| match error {
            TryAcquireError::NoPermits => Reply::refuse(
                RejectReason::TooManyStreams,
                None,
                ErrorCode::Http(429),
                format!("Too many requests of this session are in progress: the maximum is {CONCURRENT_MAX}"),
            ),
            TryAcquireError::Closed => Reply::refuse(
                RejectReason::SessionUnknown,
                None,
                ErrorCode::Http(404),
                "The session ends after its requests in progress; open its event stream again",
            ),
        })
    }

    /// Stops accepting requests.
    pub(super) fn close(&self) {
        self.permits.close();
    }

    /// Returns true if no request is in progress, and none will be.
    pub(super) fn is_finished(&self) -> bool {
        self.permits.is_closed() && self.permits.available_permits() == CONCURRENT_MAX
    }

    /// Sends a response, and the messages before it, to the stream. Returns false if there was no space in time.
    pub(super) async fn respond(
        &self,
        handled: MaybeReady,
        permit: Option<OwnedSemaphorePermit>,
    ) -> bool {
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
        drop(permit);
        if self.is_finished() {
            self.waker.wake();
        }
        sent
    }

    async fn send(&self, answer: JsonResponse) -> bool {
        let sent = tokio::time::timeout(SEND, self.messages.send(answer)).await;
        // A closed stream needs no eviction.
        sent.is_ok()
    }
}

/// Contents of a signed session id: any replica can verify the owner, and clients cannot forge one.
pub(super) struct SseSessionId {
    pub(super) replica: u64,
    pub(super) number: [u8; 16],
    pub(super) owner: [u8; 16],
}

const SESSION_ID_KIND: &str = "legacy session 1";

impl SseSessionId {
    pub(super) fn sign(&self, keys: &KeyRing, endpoint: &str) -> String {
        let mut text = self.replica.to_be_bytes().to_vec();
        text.extend_from_slice(&self.number);
        text.extend_from_slice(&self.owner);
        let kind = SESSION_ID_KIND;
        keys.sign(Purpose { kind, endpoint }, &text)
    }

    pub(super) fn read(id: &str, keys: &KeyRing, endpoint: &str) -> Option<Self> {
        let kind = SESSION_ID_KIND;
        let text = keys.verify(Purpose { kind, endpoint }, id.as_bytes())?;
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
    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<SseSession>>> {
        self.0.lock()
    }
}

impl fmt::Debug for SseSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseSession")
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}
