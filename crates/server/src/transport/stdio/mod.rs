//! Transport for one client over standard input and output.
//!
//! Standard output carries messages only (STD-02). The process ends soon after its input does (STD-04).

mod framing;
#[cfg(any(fuzzing, test, feature = "testing"))]
mod fuzz;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use framing::Frame;
pub use framing::Framing;
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use fuzz::framing_holds;

use crate::auth::Principal;
use crate::environment::Conflicts;
use crate::limit::Limit;
use crate::net;
use crate::protocol::message::{Message, Payload};
use crate::protocol::{ErrorCode, ErrorObject};
use crate::server::{EventData, EventSource, JsonResponse, Reply, Server, StdioPeer, WorkerState};
use crate::telemetry::{RequestOrigin, WorkerCounters};

/// Serving over standard input and output.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StdioConfig {
    /// Message framing: `auto`, `newline` or `content-length`. `auto` detects it from the first bytes of the input.
    pub framing: Framing,
    /// Maximum size of a message, in bytes.
    pub message_bytes: usize,
}

impl StdioConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([("stdio.message_bytes", self.message_bytes as u64)]);
    }
}

impl Default for StdioConfig {
    fn default() -> Self {
        Self {
            framing: Framing::Auto,
            message_bytes: 4 * 1024 * 1024,
        }
    }
}

/// Maximum number of concurrent requests.
const CONCURRENT_MAX: usize = 256;
/// Time for calls to complete after the input has ended.
const GRACE: Duration = Duration::from_secs(2);
/// Time for the last response to be written, beyond the time for calls.
const LAST_WRITE: Duration = Duration::from_millis(200);

/// Serves until the input ends, `stop` completes, or the client reads no more. Then waits for calls in progress: up to `patience`
/// after `stop`, for a short time otherwise.
pub async fn serve(
    server: Arc<Server>,
    config: StdioConfig,
    stop: impl Future<Output = ()>,
    patience: Duration,
) -> io::Result<()> {
    let (frames, incoming) = mpsc::channel(16);
    let (answers, mut outgoing) = mpsc::channel::<JsonResponse>(CONCURRENT_MAX);
    let waiting = WaitingFrames::new(config.message_bytes);
    // The first input bytes determine the framing, before any output.
    let framing = Arc::new(OnceLock::new());
    // Dedicated threads: a pending read or write of a pipe cannot be cancelled and must not keep the process alive.
    let settled = Arc::clone(&framing);
    thread::Builder::new()
        .name("longshore-stdin".to_owned())
        .spawn(move || read(&config, &settled, &frames))?;
    let (written, mut writing) = oneshot::channel();
    thread::Builder::new()
        .name("longshore-stdout".to_owned())
        .spawn(move || drop(written.send(write_all(&framing, &mut outgoing))))?;

    let calls = Calls::new(server, answers);
    let mut stop = pin!(stop);
    let is_stopped = tokio::select! {
        () = calls.take(incoming, waiting) => false,
        () = &mut stop => true,
        result = &mut writing => return end_of(result),
    };
    calls.server.end_streams();
    calls.server.fail_client_requests();
    // Pending requests still get a response if they complete quickly.
    let grace = if is_stopped { patience } else { GRACE };
    let mut deadline = Instant::now() + grace;
    if timeout_at(deadline, calls.end()).await.is_err() {
        tracing::warn!(
            patience_s = grace.as_secs_f64(),
            "calls are still running at the end; they are dropped"
        );
        return Ok(());
    }
    if !is_stopped {
        // Like any program, it waits for a slow reader of its output.
        tokio::select! {
            result = &mut writing => return end_of(result),
            () = &mut stop => deadline = Instant::now() + patience,
        }
    }
    match timeout_at(deadline + LAST_WRITE, writing).await {
        Ok(result) => end_of(result),
        Err(_) => {
            tracing::warn!("the client does not read standard output; responses are dropped");
            Ok(())
        }
    }
}

/// Returns the result of serving, from the result of the thread that writes.
fn end_of(written: Result<io::Result<()>, oneshot::error::RecvError>) -> io::Result<()> {
    match written {
        // The client closed its input before ours; this is not an error.
        Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Ok(result) => result,
        Err(_) => Ok(()),
    }
}

/// Requests in progress.
struct Calls {
    server: Arc<Server>,
    peer: Arc<StdioPeer>,
    principal: Arc<Principal>,
    cells: Arc<WorkerCounters>,
    /// A permit for each request.
    places: Arc<Semaphore>,
    answers: mpsc::Sender<JsonResponse>,
}

impl Calls {
    fn new(server: Arc<Server>, answers: mpsc::Sender<JsonResponse>) -> Self {
        Self {
            peer: Arc::default(),
            principal: Arc::new(Principal::local()),
            cells: server.telemetry().cells(),
            places: Arc::new(Semaphore::new(CONCURRENT_MAX)),
            server,
            answers,
        }
    }

    /// Handles messages until the input ends.
    ///
    /// Requests beyond the maximum wait. Meanwhile responses and notifications are handled, because the requests in progress may
    /// depend on them.
    async fn take(&self, mut incoming: mpsc::Receiver<Frame>, mut waiting: WaitingFrames) {
        let mut has_ended = false;
        while !(has_ended && waiting.is_empty()) {
            let frame = tokio::select! {
                biased;
                Ok(place) = Arc::clone(&self.places).acquire_owned(), if !waiting.is_empty() => {
                    if let Some(frame) = waiting.pop() {
                        self.start(frame, Some(place)).await;
                    }
                    continue;
                }
                frame = incoming.recv(), if !has_ended && waiting.has_room() => frame,
                // STD-04: no client reads the responses of calls that take longer.
                () = tokio::time::sleep(GRACE), if has_ended => {
                    tracing::warn!(
                        requests = waiting.frames.len(),
                        "requests that wait for others are dropped, since the input has ended"
                    );
                    return;
                }
            };
            let Some(frame) = frame else {
                has_ended = true;
                continue;
            };
            // The start of the next frame is unknown.
            has_ended = matches!(frame, Frame::Broken(_));
            let place = match waiting.is_empty() {
                true => Arc::clone(&self.places).try_acquire_owned().ok(),
                false => None,
            };
            if place.is_some() {
                self.start(frame, place).await;
                continue;
            }
            match self.kind_of(&frame) {
                FrameKind::Request => waiting.push(frame),
                FrameKind::Notification => {
                    self.start(frame.clone(), None).await;
                    // The request that it cancels may be waiting.
                    waiting.push(frame);
                }
                FrameKind::Response => self.start(frame, None).await,
            }
        }
    }

    fn kind_of(&self, frame: &Frame) -> FrameKind {
        let Frame::Message(message) = frame else {
            return FrameKind::Request;
        };
        match Payload::within(message, self.server.bounds) {
            Ok(Payload::Single(Message::Notification(_))) => FrameKind::Notification,
            Ok(Payload::Single(Message::Response(_))) => FrameKind::Response,
            _ => FrameKind::Request,
        }
    }

    /// Handles a frame on a task of its own. Returns once this has begun, so that messages are handled in their order.
    async fn start(&self, frame: Frame, place: Option<OwnedSemaphorePermit>) {
        let (server, principal) = (Arc::clone(&self.server), Arc::clone(&self.principal));
        let (peer, answers) = (Arc::clone(&self.peer), self.answers.clone());
        let cells = Arc::clone(&self.cells);
        let (begun, beginning) = oneshot::channel::<()>();
        net::spawn(async move {
            let worker = WorkerState::new(cells);
            let reply = match frame {
                Frame::Message(message) => {
                    let body = Bytes::from(message);
                    let handled = poll_fn(|cx| {
                        let by = (&worker, RequestOrigin::PIPE);
                        Poll::Ready(server.handle_stdio(cx, by, &peer, &principal, &body))
                    });
                    let handled = handled.await;
                    drop(begun);
                    handled.reply().await
                }
                Frame::TooLarge(ends) => {
                    server.limits.hits.count(Limit::StdioMessage);
                    let id = ends.request_id(true);
                    refusal(
                        id.as_deref(),
                        "the message is too large (stdio.message_bytes)",
                    )
                }
                Frame::Broken(reason) => refusal(None, reason),
            };
            match reply {
                Reply::Response(answer) => drop(answers.send(answer).await),
                Reply::Stream(stream) => send_parts(stream, &answers).await,
                Reply::Accepted | Reply::Cancelled => {}
            }
            drop(place);
            if let Some(stream) = server.stdio_notifications(&peer, &principal) {
                send_parts(stream, &answers).await;
            }
        });
        // It is closed, never sent to.
        let _ = beginning.await;
    }

    /// Waits until all requests have their responses.
    async fn end(self) {
        let _ = self.places.acquire_many(CONCURRENT_MAX as u32).await;
    }
}

/// Kind of a frame, while the maximum number of requests is in progress.
enum FrameKind {
    Request,
    Notification,
    /// A response to a request of the server.
    Response,
}

/// Frames of requests that wait for others to complete. Their number and bytes are bounded.
struct WaitingFrames {
    frames: VecDeque<Frame>,
    bytes: usize,
    bytes_max: usize,
}

impl WaitingFrames {
    fn new(bytes_max: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    fn has_room(&self) -> bool {
        self.frames.len() < CONCURRENT_MAX && self.bytes < self.bytes_max
    }

    fn push(&mut self, frame: Frame) {
        self.bytes += frame.bytes();
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.bytes();
        Some(frame)
    }
}

/// Writes responses until there are no senders.
fn write_all(
    framing: &OnceLock<Framing>,
    outgoing: &mut mpsc::Receiver<JsonResponse>,
) -> io::Result<()> {
    while let Some(answer) = outgoing.blocking_recv() {
        let framing = framing.get().copied().unwrap_or(Framing::Newline);
        write(framing, &answer)?;
    }
    io::stdout().flush()
}

fn read(config: &StdioConfig, settled: &OnceLock<Framing>, frames: &mpsc::Sender<Frame>) {
    let mut input = io::stdin().lock();
    let framing = match config.framing.settle(&mut input) {
        Ok(framing) => *settled.get_or_init(|| framing),
        Err(error) => {
            tracing::error!(%error, "standard input cannot be read");
            return;
        }
    };
    loop {
        match framing.read(&mut input, config.message_bytes) {
            Ok(Some(frame)) => {
                if frames.blocking_send(frame).is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "standard input cannot be read");
                return;
            }
        }
    }
}

fn write(framing: Framing, answer: &JsonResponse) -> io::Result<()> {
    let pieces: Vec<&[u8]> = answer.pieces().map(|piece| &**piece).collect();
    framing.write(&mut io::stdout().lock(), &pieces)
}

/// Sends the parts of a call's response and its final result.
async fn send_parts(mut stream: Box<dyn EventSource>, answers: &mpsc::Sender<JsonResponse>) {
    while let Some(event) = poll_fn(|cx| stream.poll_next(cx)).await {
        let answer = match event.data {
            EventData::Response(answer) => answer,
            EventData::Message(message) => JsonResponse::new(message),
            EventData::Empty => continue,
        };
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

fn refusal(id: Option<&str>, reason: &'static str) -> Reply {
    let error = ErrorObject::new(
        ErrorCode::InvalidRequest,
        format!("Invalid Request: {reason}"),
    );
    Reply::refused(crate::server::RejectReason::Malformed, id, &error)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::catalog::{Catalog, Definition, IntoTool as _, ToolError, tool_fn};
    use crate::limit::{LimitConfig, Limits};
    use crate::server::ServerParts;
    use crate::telemetry::Metrics;

    #[tokio::test(start_paused = true)]
    async fn std_04_requests_that_wait_for_others_do_not_hold_up_the_end() {
        let hang = |_, _: Map<String, Value>| std::future::pending::<Result<String, ToolError>>();
        let tool = tool_fn(Definition::new("hang"), hang).into_tool();
        let unlimited = LimitConfig {
            calls: Some(0),
            calls_per_principal: 0,
            ..LimitConfig::default()
        };
        let server = Server::new(ServerParts {
            limits: Limits::new(&unlimited, &Metrics::default()).into(),
            ..crate::server::tests::of(Catalog::new([tool]).expect("a good tool"))
        });
        let (answers, _outgoing) = mpsc::channel(CONCURRENT_MAX);
        let calls = Calls::new(Arc::new(server), answers);
        let (frames, incoming) = mpsc::channel(CONCURRENT_MAX + 2);
        let send = |id: usize, method: &str, params: Value| {
            let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            let frame = Frame::Message(request.to_string().into_bytes());
            frames.try_send(frame).expect("room");
        };
        send(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
        for id in 1..=CONCURRENT_MAX + 1 {
            send(id, "tools/call", json!({"name": "hang"}));
        }
        drop(frames);
        let begun = Instant::now();
        calls.take(incoming, WaitingFrames::new(1 << 20)).await;
        assert!(begun.elapsed() < 2 * GRACE);
    }
}
