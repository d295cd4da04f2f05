//! Transport for one client over standard input and output.
//!
//! Standard output carries messages only (STD-02). The process ends soon after its input does (STD-04).

mod framing;
#[cfg(any(fuzzing, test, feature = "testing"))]
mod fuzz;

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
use tokio::sync::{Semaphore, mpsc};

use framing::Frame;
pub use framing::Framing;
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use fuzz::framing_holds;

use crate::auth::Principal;
use crate::environment::Conflicts;
use crate::limit::Limit;
use crate::net;
use crate::protocol::{ErrorCode, ErrorObject};
use crate::server::{EventData, EventSource, JsonResponse, Reply, Server, StdioPeer, WorkerState};
use crate::telemetry::RequestOrigin;

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

/// Serves until the input ends or `stop` completes. Then waits up to `patience` for calls in progress.
pub async fn serve(
    server: Arc<Server>,
    config: StdioConfig,
    stop: impl Future<Output = ()>,
    patience: Duration,
) -> io::Result<()> {
    let (frames, mut incoming) = mpsc::channel(16);
    let (answers, mut outgoing) = mpsc::channel::<JsonResponse>(CONCURRENT_MAX);
    // The first input bytes determine the framing, before any output.
    let framing = Arc::new(OnceLock::new());
    // Dedicated threads: a pending read from a pipe cannot be cancelled and must not keep the process alive.
    let settled = Arc::clone(&framing);
    thread::Builder::new()
        .name("longshore-stdin".to_owned())
        .spawn(move || read(&config, &settled, &frames))?;
    let writer = thread::Builder::new()
        .name("longshore-stdout".to_owned())
        .spawn(move || {
            while let Some(answer) = outgoing.blocking_recv() {
                let framing = framing.get().copied().unwrap_or(Framing::Newline);
                write(framing, &answer)?;
            }
            io::stdout().flush()
        })?;

    let principal = Arc::new(Principal::local());
    let peer = Arc::new(StdioPeer::default());
    let cells = server.telemetry().cells();
    let places = Arc::new(Semaphore::new(CONCURRENT_MAX));
    let mut stop = pin!(stop);
    let mut grace = GRACE;
    loop {
        let frame = tokio::select! {
            frame = incoming.recv() => frame,
            () = &mut stop => {
                grace = patience;
                None
            }
        };
        let Some(frame) = frame else {
            break;
        };
        let message = match frame {
            Frame::Message(message) => message,
            Frame::TooLarge => {
                server.limits.hits.count(Limit::StdioMessage);
                refuse(&answers, "the message is too large (stdio.message_bytes)").await;
                continue;
            }
            Frame::Broken(reason) => {
                refuse(&answers, reason).await;
                break;
            }
        };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            break;
        };
        let (server, principal) = (Arc::clone(&server), Arc::clone(&principal));
        let (peer, answers) = (Arc::clone(&peer), answers.clone());
        let cells = Arc::clone(&cells);
        net::spawn(async move {
            let worker = WorkerState::new(cells);
            let body = Bytes::from(message);
            let handled = poll_fn(|cx| {
                let by = (&worker, RequestOrigin::PIPE);
                Poll::Ready(server.handle_stdio(cx, by, &peer, &principal, &body))
            });
            let reply = handled.await.reply().await;
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
    }
    server.end_streams();
    // Pending requests still get a response if they complete quickly.
    let idle = places.acquire_many(CONCURRENT_MAX as u32);
    if tokio::time::timeout(grace, idle).await.is_err() {
        tracing::warn!(
            patience_s = grace.as_secs_f64(),
            "calls are still running at the end; they are dropped"
        );
        return Ok(());
    }
    drop(answers);
    match net::spawn_blocking(|| writer.join()).await {
        // The client closed its input before ours; this is not an error.
        Ok(Ok(Err(e))) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Ok(Ok(result)) => result,
        _ => Ok(()),
    }
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

async fn refuse(answers: &mpsc::Sender<JsonResponse>, reason: &'static str) {
    let error = ErrorObject::new(
        ErrorCode::InvalidRequest,
        format!("Invalid Request: {reason}"),
    );
    if let Reply::Response(answer) =
        Reply::refused(crate::server::RejectReason::Malformed, None, &error)
    {
        let _ = answers.send(answer).await;
    }
}
