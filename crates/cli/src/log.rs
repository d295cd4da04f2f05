//! Log output: lines on standard error, as text or JSON, and records for a collector.
//!
//! Logging never blocks: lines go through a bounded queue to a writer thread. Lines beyond the queue's capacity are
//! dropped, counted and reported later.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::telemetry::{
    Record, TraceContext, current_trace, is_misleading, legible_json, send_record,
};

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Human-readable text.
    Text { colour: bool },
    /// A JSON object per line.
    Json,
}

/// Maximum number of queued lines.
const LINES_MAX: usize = 4096;

/// Formats events as lines.
pub(super) struct Lines {
    format: Format,
    /// Maximum length of a line, in bytes.
    line_bytes: usize,
    queue: Queue,
}

impl Lines {
    /// Creates a queue with a thread that writes to this writer.
    pub(super) fn to(
        format: Format,
        line_bytes: usize,
        writer: impl Write + Send + 'static,
    ) -> Self {
        Self {
            format,
            line_bytes,
            queue: Queue::start(format, line_bytes, writer),
        }
    }

    pub(super) fn queue(&self) -> Queue {
        self.queue.clone()
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = Line {
            time: SystemTime::now(),
            level: *metadata.level(),
            target: metadata.target(),
            trace: current_trace(),
            fields,
        };
        let (line_written, is_cut) = line.write(self.format, self.line_bytes);
        if is_cut {
            self.queue.cut.fetch_add(1, Ordering::Relaxed);
        }
        self.queue.push(line_written);
        if !is_of_exporter(metadata.target()) {
            send_record(|| line.into_record(self.line_bytes));
        }
    }
}

/// Returns true for messages of the exporter and of the HTTP and TLS libraries that it uses. They are not exported,
/// because each export would cause another.
fn is_of_exporter(target: &str) -> bool {
    const LIBRARIES: [&str; 7] = [
        "h2",
        "hyper",
        "hyper_util",
        "opentelemetry",
        "rustls",
        "tonic",
        "tower",
    ];
    let library = target.split("::").next().unwrap_or_default();
    LIBRARIES.contains(&library) || target.starts_with("longshore_core::telemetry")
}

struct Line {
    time: SystemTime,
    level: Level,
    target: &'static str,
    trace: Option<TraceContext>,
    fields: Fields,
}

/// Fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string does not fail.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others
                .push((field.name(), format!("{value:?}").into()));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.others.push((field.name(), value.into()));
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.others.push((field.name(), value.into()));
    }
}

fn stamp(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => "unknown time".to_owned(),
    }
}

impl Line {
    /// Formats the line within the maximum length. Returns true if it was cut.
    fn write(&self, format: Format, line_bytes: usize) -> (Vec<u8>, bool) {
        match format {
            Format::Text { colour } => self.text(colour, line_bytes),
            Format::Json => self.json(line_bytes),
        }
    }

    fn text(&self, colour: bool, line_bytes: usize) -> (Vec<u8>, bool) {
        let (begin, end) = match (colour, self.level) {
            (false, _) => ("", ""),
            (true, Level::ERROR) => ("\x1b[31m", "\x1b[0m"),
            (true, Level::WARN) => ("\x1b[33m", "\x1b[0m"),
            (true, Level::INFO) => ("\x1b[32m", "\x1b[0m"),
            (true, _) => ("\x1b[2m", "\x1b[0m"),
        };
        let level = self.level;
        let mut line = format!("{} {begin}{level:>5}{end} ", stamp(self.time));
        push_printable(&mut line, &self.fields.message);
        for (name, value) in &self.fields.others {
            let _ = write!(line, " {name}=");
            match value {
                Value::String(text) if !text.contains(' ') => push_printable(&mut line, text),
                value => push_printable(&mut line, &value.to_string()),
            }
        }
        if let Some(trace) = self.trace {
            let _ = write!(line, " trace_id={}", trace.trace_id());
        }
        let is_cut = line_bytes <= line.len();
        line.truncate(longshore_protocol::floor_char_boundary(
            &line,
            line_bytes - 1,
        ));
        line.push('\n');
        (line.into_bytes(), is_cut)
    }

    fn json(&self, line_bytes: usize) -> (Vec<u8>, bool) {
        let mut object = Map::new();
        object.insert("timestamp".to_owned(), stamp(self.time).into());
        object.insert("level".to_owned(), self.level.as_str().into());
        object.insert("message".to_owned(), self.fields.message.as_str().into());
        for (name, value) in &self.fields.others {
            // Standard field names take precedence.
            object.entry(*name).or_insert_with(|| value.clone());
        }
        object.insert("target".to_owned(), self.target.into());
        if let Some(trace) = self.trace {
            object.insert("trace_id".to_owned(), trace.trace_id().into());
            object.insert("span_id".to_owned(), trace.span_id().into());
        }
        let written = |object: &Map<String, Value>| {
            let line = serde_json::to_string(object).unwrap_or_default();
            legible_json(&line).into_owned().into_bytes()
        };
        let mut line = written(&object);
        let is_cut = line_bytes <= line.len();
        if is_cut {
            // A cut line is still a valid object.
            let message = &self.fields.message;
            let message = longshore_protocol::prefix(message, line_bytes / 8);
            object.retain(|name, _| {
                ["timestamp", "level", "target", "trace_id", "span_id"].contains(&name.as_str())
            });
            object.insert("message".to_owned(), message.into());
            object.insert("truncated".to_owned(), true.into());
            line = written(&object);
        }
        line.push(b'\n');
        (line, is_cut)
    }

    /// Converts the line for a collector. The message and each field have at most this length.
    fn into_record(self, most: usize) -> Record {
        let cut = |mut text: String| {
            text.truncate(longshore_protocol::floor_char_boundary(&text, most));
            text
        };
        let text = |value: Value| match value {
            Value::String(text) => cut(text),
            value => cut(value.to_string()),
        };
        let fields = self.fields.others.into_iter();
        Record {
            time: self.time,
            level: self.level,
            target: Cow::Borrowed(self.target),
            message: cut(self.fields.message),
            fields: fields
                .map(|(name, value)| (Cow::Borrowed(name), text(value)))
                .collect(),
            trace: self.trace,
        }
    }
}

/// Appends text without control characters, because client input must not move the cursor or begin a line.
fn push_printable(line: &mut String, text: &str) {
    for c in text.chars() {
        if is_misleading(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
}

/// Queue of lines for the writer thread.
#[derive(Clone)]
pub(super) struct Queue {
    lines: Sender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
    /// Number of cut lines.
    cut: Arc<AtomicU64>,
    written: Arc<Written>,
}

/// Number of queued and of written lines.
#[derive(Default)]
struct Written {
    /// Number of lines in the queue. The channel has no bound of its own: one with a bound allocates all its room at the start.
    waiting: AtomicUsize,
    given: AtomicU64,
    count: Mutex<u64>,
    changed: Condvar,
}

/// Log queue of this process.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Registers the queue for [`flush`].
pub(super) fn is_ours(queue: Queue) {
    let _ = QUEUE.set(queue);
}

/// Waits until all queued lines are written, with a short timeout.
pub(super) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(Duration::from_millis(200));
    }
}

/// Returns the number of dropped lines.
pub(super) fn dropped() -> u64 {
    QUEUE
        .get()
        .map_or(0, |queue| queue.dropped.load(Ordering::Relaxed))
}

/// Returns the number of cut lines.
pub(super) fn cut() -> u64 {
    QUEUE
        .get()
        .map_or(0, |queue| queue.cut.load(Ordering::Relaxed))
}

impl Queue {
    fn start(format: Format, line_bytes: usize, writer: impl Write + Send + 'static) -> Self {
        let (lines, inbox) = channel();
        let queue = Self {
            lines,
            dropped: Arc::default(),
            cut: Arc::default(),
            written: Arc::default(),
        };
        let (dropped, written) = (Arc::clone(&queue.dropped), Arc::clone(&queue.written));
        let thread = std::thread::Builder::new().name("longshore-log".to_owned());
        // Without the thread, all lines are dropped.
        let _ = thread.spawn(move || {
            write_lines((format, line_bytes), writer, &inbox, &dropped, &written);
        });
        queue
    }

    fn push(&self, line: Vec<u8>) {
        let Written { waiting, given, .. } = &*self.written;
        let has_room = waiting.fetch_add(1, Ordering::AcqRel) < LINES_MAX;
        if has_room && self.lines.send(line).is_ok() {
            given.fetch_add(1, Ordering::AcqRel);
        } else {
            waiting.fetch_sub(1, Ordering::AcqRel);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, within: Duration) {
        let given = self.written.given.load(Ordering::Acquire);
        let count = self
            .written
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let behind = |count: &mut u64| *count < given;
        let _ = self
            .written
            .changed
            .wait_timeout_while(count, within, behind);
    }
}

fn write_lines(
    (format, line_bytes): (Format, usize),
    mut writer: impl Write,
    inbox: &Receiver<Vec<u8>>,
    dropped: &AtomicU64,
    written: &Written,
) {
    let mut reported = 0;
    let mut is_torn = false;
    loop {
        let line = match inbox.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Some(line) = line {
            written.waiting.fetch_sub(1, Ordering::AcqRel);
            // The reader may have closed the pipe, or the disk is full.
            if write_line(&mut writer, &line, &mut is_torn).is_err() {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
            *written.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            written.changed.notify_all();
        }
        let now = dropped.load(Ordering::Relaxed);
        if reported < now {
            let line = Line {
                time: SystemTime::now(),
                level: Level::WARN,
                target: module_path!(),
                trace: None,
                fields: Fields {
                    message: "log lines were dropped, because standard error was blocked or could not be written"
                        .to_owned(),
                    others: vec![("lines", (now - reported).into())],
                },
            };
            let line = line.write(format, line_bytes).0;
            if write_line(&mut writer, &line, &mut is_torn).is_ok() {
                reported = now;
            }
        }
    }
}

/// Writes a line. A line that was written in part before gets an end first.
fn write_line(writer: &mut impl Write, line: &[u8], is_torn: &mut bool) -> io::Result<()> {
    if *is_torn {
        writer.write_all(b"\n")?;
        *is_torn = false;
    }
    let mut rest = line;
    while !rest.is_empty() {
        match writer.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => {
                rest = &rest[bytes..];
                *is_torn = !rest.is_empty();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const LINE_BYTES: usize = 1024;

    /// What is written arrives here; nothing is taken as long as the lock is held.
    struct Pipe(Sender<Vec<u8>>, Arc<Mutex<()>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _open = self.1.lock().expect("not poisoned");
            let _ = self.0.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, cut: u64, log: impl FnOnce()) -> Vec<String> {
        let (sender, lines) = channel();
        let layer = Lines::to(format, LINE_BYTES, Pipe(sender, Arc::default()));
        let queue = layer.queue();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, log);
        queue.flush(Duration::from_secs(20));
        assert_eq!(queue.cut.load(Ordering::Relaxed), cut);
        let texts = lines
            .try_iter()
            .map(|line| String::from_utf8(line).expect("UTF-8"));
        texts.collect()
    }

    #[test]
    fn programs_get_an_object_for_each_line_with_the_trace_it_belongs_to() {
        let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let lines = logged(Format::Json, 0, || {
            let _entered = trace.map(crate::telemetry::enter_trace);
            tracing::info!(tool = "add", took = 3, level = "mine", "a call\nended");
        });
        let line: Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert!(lines[0].ends_with("}\n"));
        assert_eq!(
            (&line["level"], &line["message"]),
            (&"INFO".into(), &"a call\nended".into())
        );
        assert_eq!((&line["tool"], &line["took"]), (&"add".into(), &3.into()));
        assert_eq!(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(line["span_id"], "b7ad6b7169203331");
        assert!(line["timestamp"].as_str().is_some_and(|t| t.ends_with('Z')));
    }

    #[test]
    fn people_get_text_that_no_stranger_can_break_out_of() {
        let lines = logged(Format::Text { colour: false }, 0, || {
            tracing::warn!(name = "a\x1b[2J\nb", "odd");
            tracing::warn!(name = "a\u{202e}b\u{2028}c\u{9b}2J\u{feff}", "odd");
        });
        for (line, expected) in lines.iter().zip([
            " WARN odd name=a\\u{1b}[2J\\nb\n",
            " WARN odd name=a\\u{202e}b\\u{2028}c\\u{9b}2J\\u{feff}\n",
        ]) {
            assert!(line.contains(expected), "{line:?}");
        }
        let lines = logged(Format::Json, 0, || {
            tracing::warn!(name = "a\u{202e}b", "odd");
        });
        assert!(lines[0].contains(r#""name":"a\u202eb""#), "{}", lines[0]);
    }

    #[test]
    fn what_an_export_causes_is_not_exported() {
        for target in [
            "longshore_core::telemetry::otlp::send",
            "hyper_util::client::legacy::pool",
            "h2",
        ] {
            assert!(is_of_exporter(target), "{target}");
        }
        for target in ["longshore_core::limit", "longshore_http", "hyperactive"] {
            assert!(!is_of_exporter(target), "{target}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_stay_what_they_are() {
        for format in [Format::Json, Format::Text { colour: false }] {
            let lines = logged(format, 1, || {
                tracing::info!(much = "ü".repeat(LINE_BYTES), "{}", "ü".repeat(LINE_BYTES));
            });
            assert_eq!(lines.len(), 1);
            assert!(lines[0].len() <= LINE_BYTES && LINE_BYTES / 16 <= lines[0].len());
            assert!(lines[0].ends_with('\n'));
            if format == Format::Json {
                let line: Value = serde_json::from_str(&lines[0]).expect("JSON");
                assert_eq!(line["truncated"], true);
            }
        }
    }

    /// A file on a disk with room for some bytes.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..taken]);
            self.1 -= taken;
            match taken {
                0 => Err(io::ErrorKind::StorageFull.into()),
                taken => Ok(taken),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_has_torn_gets_an_end() {
        let (mut disk, mut is_torn) = (Disk(Vec::new(), 6), false);
        assert!(write_line(&mut disk, b"one\n", &mut is_torn).is_ok());
        assert!(write_line(&mut disk, b"two\n", &mut is_torn).is_err());
        assert!(write_line(&mut disk, b"three\n", &mut is_torn).is_err());
        disk.1 = 100;
        assert!(write_line(&mut disk, b"four\n", &mut is_torn).is_ok());
        assert!(write_line(&mut disk, b"five\n", &mut is_torn).is_ok());
        assert_eq!(disk.0, b"one\ntw\nfour\nfive\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let layer = Lines::to(Format::Json, LINE_BYTES, Disk(Vec::new(), 10));
        let queue = layer.queue();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                tracing::info!("no room");
            }
        });
        queue.flush(Duration::from_secs(20));
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn who_logs_does_not_wait_for_who_reads_and_what_is_lost_is_counted() {
        let (sender, lines) = channel();
        let blocked = Arc::new(Mutex::new(()));
        let held = blocked.lock().expect("not poisoned");
        let layer = Lines::to(Format::Json, LINE_BYTES, Pipe(sender, Arc::clone(&blocked)));
        let queue = layer.queue();
        let subscriber = tracing_subscriber::registry().with(layer);
        let sent = LINES_MAX as u64 + 100;
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..sent {
                tracing::info!("nobody listens");
            }
        });
        let dropped = queue.dropped.load(Ordering::Relaxed);
        // One may be in the writer's hands.
        assert!((99..=100).contains(&dropped), "{dropped}");
        drop(held);
        queue.flush(Duration::from_secs(20));
        let texts: Vec<_> = (0..=sent - dropped)
            .filter_map(|_| lines.recv_timeout(Duration::from_secs(20)).ok())
            .map(|line| String::from_utf8(line).expect("UTF-8"))
            .collect();
        let reported = texts.iter().filter(|line| line.contains("were dropped"));
        assert_eq!(reported.count(), 1);
    }
}
