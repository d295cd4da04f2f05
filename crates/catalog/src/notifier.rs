//! Messages of a running call to its caller, before the response.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep_until};

use super::LogLevel;
use crate::net::Mutex;
use crate::protocol::push_string;

/// Messages of one call that wait to be sent, in order.
///
/// It never makes a tool wait: what a slow reader leaves no room for is dropped, the answer never.
#[derive(Debug, Default)]
pub struct Notifier {
    wanted: NotifyOptions,
    cancelled: AtomicBool,
    /// A message was queued.
    spoke: AtomicBool,
    /// The reader should detach and resume later.
    release_connection: AtomicBool,
    /// Created by the first message or reader: most calls have neither.
    queue: OnceLock<Box<Mutex<Queue>>>,
}

/// Messages that the caller requested.
#[derive(Debug, Default)]
pub struct NotifyOptions {
    /// JSON text of the token that progress is reported under.
    pub progress_token: Option<Box<str>>,
    /// True if progress notifications have messages in the caller's revision.
    pub progress_messages: bool,
    /// The least level of log messages.
    pub log_level: Option<LogLevel>,
    /// Limits of the queue.
    pub room: QueueLimits,
}

/// Maximum size of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    pub messages: u32,
    pub bytes: u32,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            messages: 256,
            bytes: 1024 * 1024,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Bytes>,
    bytes: usize,
    waker: Option<Waker>,
    progress: Option<LastProgress>,
    /// Log messages since the second in which the first of them came.
    logged: Option<(u32, Instant)>,
    dropped: Dropped,
    /// True once the response is there.
    is_closed: bool,
}

/// The last progress that was reported.
#[derive(Debug)]
struct LastProgress {
    value: f64,
    /// Time of the last report that was sent.
    sent: Instant,
    /// The newest report that followed too soon. It is sent after the pause, or before the next message or the response.
    held: Option<HeldReport>,
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct HeldReport {
    progress: f64,
    total: Option<f64>,
    message: String,
}

/// Number of messages dropped by each limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub messages: u64,
    pub bytes: u64,
}

/// Reports of progress come at most this often (PROG-02).
const PROGRESS_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of log messages in one second.
const LOGS_PER_SECOND: u32 = 200;

impl Notifier {
    pub fn new(wanted: NotifyOptions) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Resets the state for the next call.
    #[inline]
    pub fn vacate(&mut self) {
        let Self {
            wanted,
            cancelled,
            spoke,
            release_connection,
            queue,
        } = self;
        wanted.progress_token = None;
        *cancelled.get_mut() = false;
        *spoke.get_mut() = false;
        *release_connection.get_mut() = false;
        drop(queue.take());
    }

    /// Sets the messages that the caller of a new call has requested.
    #[inline]
    pub fn request(&mut self, wanted: NotifyOptions) {
        self.wanted = wanted;
    }

    /// Returns true if the caller requested progress.
    pub fn wants_progress(&self) -> bool {
        self.wanted.progress_token.is_some()
    }

    /// Reports progress (PROG-01), if the caller requested it and the value has increased. Of reports that follow too soon, the
    /// newest is sent after a pause.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: &str) -> bool {
        let Some(token) = &self.wanted.progress_token else {
            return false;
        };
        if !progress.is_finite() || total.is_some_and(|total| !total.is_finite()) {
            return false;
        }
        let now = Instant::now();
        let is_end = total.is_some_and(|total| total <= progress);
        let mut queue = self.queue();
        let is_closed = queue.is_closed;
        match &mut queue.progress {
            _ if is_closed => return false,
            Some(last) if progress <= last.value => return false,
            Some(last) if now.duration_since(last.sent) < PROGRESS_PAUSE && !is_end => {
                last.value = progress;
                let is_first = last.held.is_none();
                let held = last.held.get_or_insert_with(|| HeldReport {
                    progress,
                    total,
                    message: String::new(),
                });
                (held.progress, held.total) = (progress, total);
                held.message.clear();
                held.message.push_str(message);
                // A reader that waits learns of the first one, and then of the end of the pause.
                if is_first {
                    queue.wake();
                }
                return false;
            }
            _ => {}
        }
        queue.progress = Some(LastProgress {
            value: progress,
            sent: now,
            held: None,
            pause: None,
        });
        queue.push(
            self.report(token, progress, total, message),
            self.wanted.room,
        );
        self.spoke.store(true, Ordering::Release);
        true
    }

    fn report(&self, token: &str, progress: f64, total: Option<f64>, message: &str) -> Bytes {
        let mut out =
            br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#
                .to_vec();
        out.extend_from_slice(token.as_bytes());
        out.extend_from_slice(format!(r#","progress":{progress}"#).as_bytes());
        if let Some(total) = total {
            out.extend_from_slice(format!(r#","total":{total}"#).as_bytes());
        }
        if self.wanted.progress_messages && !message.is_empty() {
            out.extend_from_slice(br#","message":"#);
            push_string(&mut out, message);
        }
        out.extend_from_slice(b"}}");
        out.into()
    }

    /// Takes the report that waits for the end of its pause.
    fn take_held(&self, queue: &mut Queue) -> Option<Bytes> {
        let held = queue.progress.as_mut()?.held.take()?;
        let token = self.wanted.progress_token.as_ref()?;
        Some(self.report(token, held.progress, held.total, &held.message))
    }

    /// Queues the report that waits for the end of its pause, before a message that follows it.
    fn release_held(&self, queue: &mut Queue) {
        if let Some(report) = self.take_held(queue) {
            queue.push(report, self.wanted.room);
        }
    }

    /// Sends a log message, if the caller wants messages of its level (LOG-02).
    pub fn log<T: Serialize + ?Sized>(&self, level: LogLevel, data: &T) -> bool {
        self.log_as(None, level, data)
    }

    /// Sends a log message like [`log`](Self::log), with the name of its logger.
    pub fn log_as<T: Serialize + ?Sized>(
        &self,
        logger: Option<&str>,
        level: LogLevel,
        data: &T,
    ) -> bool {
        if self.wanted.log_level.is_none_or(|least| level < least) {
            return false;
        }
        let Ok(data) = serde_json::to_string(data) else {
            return false;
        };
        let mut queue = self.queue();
        let now = Instant::now();
        let (count, since) = match queue.logged {
            Some((count, since)) if now.duration_since(since) < Duration::from_secs(1) => {
                (count, since)
            }
            _ => (0, now),
        };
        if LOGS_PER_SECOND <= count || queue.is_closed {
            return false;
        }
        queue.logged = Some((count + 1, since));
        self.release_held(&mut queue);
        let mut out =
            br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":""#.to_vec();
        out.extend_from_slice(level.as_str().as_bytes());
        out.push(b'"');
        if let Some(logger) = logger {
            out.extend_from_slice(br#","logger":"#);
            push_string(&mut out, logger);
        }
        out.extend_from_slice(br#","data":"#);
        out.extend_from_slice(data.as_bytes());
        out.extend_from_slice(b"}}");
        queue.push(out.into(), self.wanted.room);
        self.spoke.store(true, Ordering::Release);
        true
    }

    /// Sends a message that must not be lost: a client request, or its cancellation. Other limits bound their number.
    pub fn send_message(&self, message: Vec<u8>) {
        let mut queue = self.queue();
        self.release_held(&mut queue);
        queue.keep(message.into());
        drop(queue);
        self.spoke.store(true, Ordering::Release);
    }

    /// The least level of log messages that the caller wants.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.wanted.log_level
    }

    /// Polls for the next message. If none is queued, `cx` is woken by the next one.
    pub fn next(&self, cx: &mut Context<'_>) -> Option<Bytes> {
        let mut queue = self.queue();
        if let Some(message) = queue.messages.pop_front() {
            queue.bytes -= message.len();
            return Some(message);
        }
        if queue.progress.as_mut().is_some_and(|last| last.is_due(cx)) {
            return self.take_held(&mut queue);
        }
        queue.listen(cx);
        None
    }

    /// Ends the messages, since the response is there: a tool that cannot be stopped may send more. Returns the report of progress
    /// that waits for the end of its pause, unless the call was cancelled.
    pub fn close(&self) -> Option<Bytes> {
        let mut queue = self.queue();
        queue.is_closed = true;
        let held = self.take_held(&mut queue);
        held.filter(|_| !self.is_cancelled())
    }

    /// Returns true if a message is queued. Otherwise `cx` is woken by the next one.
    pub fn has_messages(&self, cx: &Context<'_>) -> bool {
        let mut queue = self.queue();
        let has = !queue.messages.is_empty();
        if !has {
            queue.listen(cx);
        }
        has
    }

    /// Returns true if no message was sent yet.
    #[inline]
    pub fn is_silent(&self) -> bool {
        !self.spoke.load(Ordering::Acquire)
    }

    /// Returns and resets the number of dropped messages.
    pub fn take_dropped(&self) -> Dropped {
        match self.queue.get() {
            Some(_) => std::mem::take(&mut self.queue().dropped),
            None => Dropped::default(),
        }
    }

    /// Asks a reader that can resume to detach now.
    pub fn release_connection(&self) {
        self.release_connection.store(true, Ordering::Release);
        self.spoke.store(true, Ordering::Release);
        self.queue().wake();
    }

    pub fn is_let_go(&self) -> bool {
        self.release_connection.load(Ordering::Acquire)
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        let queue = self.queue.get_or_init(Box::default);
        queue.lock()
    }
}

impl LastProgress {
    /// Returns true if a report is held and its pause is over.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        if self.held.is_none() {
            return false;
        }
        let over = self.sent + PROGRESS_PAUSE;
        let pause = self
            .pause
            .get_or_insert_with(|| Box::pin(sleep_until(over)));
        if pause.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.sent = Instant::now();
        self.pause = None;
        true
    }
}

impl Queue {
    fn push(&mut self, message: Bytes, room: QueueLimits) {
        if room.messages as usize <= self.messages.len() {
            self.dropped.messages += 1;
            return;
        }
        if (room.bytes as usize) < self.bytes + message.len() {
            self.dropped.bytes += 1;
            return;
        }
        self.keep(message);
    }

    fn keep(&mut self, message: Bytes) {
        self.bytes += message.len();
        self.messages.push_back(message);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn listen(&mut self, cx: &Context<'_>) {
        self.waker = Some(cx.waker().clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Poll, Waker};

    fn outlet(log_level: Option<LogLevel>) -> Notifier {
        Notifier::new(NotifyOptions {
            progress_token: Some("\"t\"".into()),
            progress_messages: true,
            log_level,
            room: QueueLimits::default(),
        })
    }

    fn said(outlet: &Notifier) -> Vec<String> {
        let mut cx = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| outlet.next(&mut cx))
            .map(|message| String::from_utf8_lossy(&message).into_owned())
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn prog_01_progress_only_grows() {
        let outlet = outlet(None);
        for progress in [1.0, 1.0, 0.5, f64::NAN, 2.5] {
            outlet.progress(progress, Some(10.0), "");
            tokio::time::advance(PROGRESS_PAUSE).await;
        }
        assert_eq!(
            said(&outlet),
            [1.0, 2.5].map(|p| format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"t","progress":{p},"total":10}}}}"#
            ))
        );
        assert!(!Notifier::default().progress(1.0, None, ""), "nobody asked");
    }

    #[tokio::test(start_paused = true)]
    async fn prog_02_progress_is_thinned_out_but_its_end_is_told() {
        let outlet = outlet(None);
        for step in 0..=100 {
            outlet.progress(f64::from(step), Some(100.0), "going \"on\"");
        }
        let said = said(&outlet);
        assert_eq!(said.len(), 2);
        assert!(
            said[1].ends_with(r#""progress":100,"total":100,"message":"going \"on\""}}"#),
            "{}",
            said[1]
        );
        assert_eq!(outlet.close(), None, "an older report");
    }

    #[tokio::test(start_paused = true)]
    async fn prog_02_the_newest_report_is_sent_after_the_pause_or_before_the_response() {
        let outlet = outlet(None);
        let next = || async {
            let message = std::future::poll_fn(|cx| match outlet.next(cx) {
                Some(message) => Poll::Ready(message),
                None => Poll::Pending,
            });
            let message = message.await;
            let message: serde_json::Value = serde_json::from_slice(&message).expect("JSON");
            message["params"]["progress"].as_f64().expect("progress")
        };
        let begun = Instant::now();
        for step in [1.0, 2.0, 3.0, 2.5] {
            outlet.progress(step, None, "");
        }
        assert_eq!(next().await, 1.0);
        assert_eq!(next().await, 3.0);
        assert_eq!(begun.elapsed(), PROGRESS_PAUSE);
        let (later, ()) = tokio::join!(next(), async {
            outlet.progress(4.0, None, "");
        });
        assert_eq!(later, 4.0, "the reader that waited is woken");
        assert_eq!(begun.elapsed(), 2 * PROGRESS_PAUSE);
        outlet.progress(5.0, None, "");
        outlet.send_message(br#"{"params":{"progress":0}}"#.to_vec());
        assert_eq!(next().await, 5.0, "it was reported before the message");
        assert_eq!(next().await, 0.0);
        outlet.progress(6.0, None, "");
        let held = outlet.close().expect("a report");
        assert!(held.ends_with(br#""progress":6}}"#), "{held:?}");
        assert!(
            !outlet.progress(7.0, Some(7.0), ""),
            "the response is there"
        );
        assert_eq!(outlet.close(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn log_02_messages_are_sent_at_the_level_asked_for_and_above() {
        let outlet = outlet(Some(LogLevel::Warning));
        assert!(!outlet.log(LogLevel::Notice, "quiet"));
        assert!(outlet.log(LogLevel::Error, &serde_json::json!({"why": "because"})));
        assert_eq!(
            said(&outlet),
            [
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"why":"because"}}}"#
            ]
        );
        assert!(!Notifier::default().log(LogLevel::Emergency, "unasked"));
        assert!(outlet.log_as(Some("a\"b"), LogLevel::Error, "x"));
        assert_eq!(
            said(&outlet),
            [
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"a\"b","data":"x"}}"#
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_slow_costs_bounded_memory() {
        let outlet = outlet(Some(LogLevel::Debug));
        for _ in 0..10 {
            for _ in 0..1000 {
                outlet.log(LogLevel::Info, &"x".repeat(100));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let room = QueueLimits::default();
        assert_eq!(said(&outlet).len(), room.messages as usize);
        let dropped = outlet.take_dropped();
        assert_eq!((dropped.messages, dropped.bytes), (2000 - 256, 0));
        assert!(outlet.log(LogLevel::Info, "room again"));
        outlet.log(LogLevel::Info, &"x".repeat(room.bytes as usize));
        assert_eq!(said(&outlet).len(), 1);
        let dropped = outlet.take_dropped();
        assert_eq!((dropped.messages, dropped.bytes), (0, 1));
        assert_eq!(outlet.take_dropped(), Dropped::default());
    }
}
