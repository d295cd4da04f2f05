//! The writer thread of the audit log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Sink;
use super::config::{AuditConfig, AuditError};
use super::queue::Queue;
use super::record::Event;
use crate::telemetry::{legible_json, send_record};

/// Delay before a failed write is retried.
const AGAIN: Duration = Duration::from_millis(500);

/// Writes the queue to all sinks.
pub(super) struct Writer {
    queue: Arc<Queue>,
    sinks: Vec<SinkBuffer>,
    otlp: bool,
    is_logged: bool,
}

/// A sink, and the bytes it has not accepted yet.
struct SinkBuffer {
    sink: Box<dyn Sink>,
    name: String,
    bytes: Vec<u8>,
    /// Number of bytes already written.
    taken: usize,
}

impl Writer {
    pub(super) fn open(config: &AuditConfig, queue: Arc<Queue>) -> Result<Self, AuditError> {
        let mut sinks: Vec<(String, Box<dyn Sink>)> = Vec::new();
        if let Some(path) = &config.file {
            let file = NamedFile::open(path)?;
            sinks.push((path.display().to_string(), Box::new(file)));
        }
        if config.stderr {
            sinks.push(("standard error".to_owned(), Box::new(StandardError)));
        }
        Ok(Self::to(queue, sinks, config.otlp))
    }

    pub(super) fn to(queue: Arc<Queue>, sinks: Vec<(String, Box<dyn Sink>)>, otlp: bool) -> Self {
        let place = |(name, sink)| SinkBuffer {
            sink,
            name,
            bytes: Vec::new(),
            taken: 0,
        };
        Self {
            queue,
            sinks: sinks.into_iter().map(place).collect(),
            otlp,
            is_logged: false,
        }
    }

    /// Writes until the queue is closed.
    pub(super) fn run(mut self) {
        // Events of the records in the buffer.
        let mut pending = Vec::new();
        loop {
            let is_free = pending.is_empty();
            let patience = if is_free {
                Duration::from_secs(60)
            } else {
                AGAIN
            };
            let work = self.queue.take(patience, is_free);
            if work.reopens {
                self.reopen();
            }
            for entry in &work.entries {
                pending.push(entry.event);
                let line = entry.to_json().to_string();
                let line = legible_json(&line);
                for place in &mut self.sinks {
                    place.bytes.extend_from_slice(line.as_bytes());
                    place.bytes.push(b'\n');
                }
                if self.otlp {
                    send_record(|| entry.to_record());
                }
            }
            if !pending.is_empty() && self.write(&pending) {
                pending.clear();
            }
            if work.stops {
                return;
            }
        }
    }

    /// Writes the buffer. Returns false if its records must be written again.
    fn write(&mut self, pending: &[Event]) -> bool {
        let mut failed = None;
        for place in &mut self.sinks {
            if let Err(error) = place.write() {
                failed.get_or_insert((place.name.clone(), error));
            }
        }
        let Some((name, error)) = failed else {
            if std::mem::take(&mut self.is_logged) {
                tracing::info!("the audit log is written again");
            }
            self.queue.wrote(pending);
            return true;
        };
        let required = self.queue.is_required();
        if !std::mem::replace(&mut self.is_logged, true) {
            let meanwhile = if required {
                "calls are rejected until it can be written (audit.required)"
            } else {
                "records are lost until it can, and counted"
            };
            tracing::error!(%error, place = name, "the audit log cannot be written; {meanwhile}");
        }
        if required {
            self.queue.stuck();
            return false;
        }
        for place in &mut self.sinks {
            place.give_up();
        }
        self.queue.lost(pending.len());
        true
    }

    fn reopen(&mut self) {
        for place in &mut self.sinks {
            match place.sink.reopen() {
                Ok(is_empty) => place.begin_line_anew(is_empty),
                Err(error) => {
                    tracing::error!(%error, place = place.name, "the audit log cannot be opened again; it goes on where it was");
                }
            }
        }
    }
}

impl SinkBuffer {
    fn write(&mut self) -> io::Result<()> {
        if self.taken < self.bytes.len() && self.sink.is_deleted() {
            let is_empty = self.sink.reopen()?;
            self.begin_line_anew(is_empty);
            tracing::warn!(
                place = self.name,
                "the file of the audit log was deleted, with the records in it; it is created again"
            );
        }
        while self.taken < self.bytes.len() {
            match self.sink.write(&self.bytes[self.taken..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.taken += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.taken = 0;
        Ok(())
    }

    /// Drops pending bytes, but ends a partially written line, so that the next line is complete.
    fn give_up(&mut self) {
        let is_torn = self.written_of_line() > 0 || self.owes_line_end();
        self.bytes.clear();
        self.taken = 0;
        if is_torn {
            self.bytes.push(b'\n');
        }
    }

    /// Restarts a line that was partially written before the sink was reopened. If the sink is not empty, it may be the
    /// same one, so the torn line gets an end.
    fn begin_line_anew(&mut self, is_empty: bool) {
        let is_torn = self.written_of_line() > 0 || self.owes_line_end();
        let start = self.taken - self.written_of_line() + usize::from(self.owes_line_end());
        self.bytes.drain(..start);
        self.taken = 0;
        if is_torn && !is_empty {
            self.bytes.insert(0, b'\n');
        }
    }

    /// Number of bytes that were written of the current line.
    fn written_of_line(&self) -> usize {
        let taken = self.bytes[..self.taken].iter();
        taken.rev().take_while(|b| **b != b'\n').count()
    }

    /// Returns true if the end of a torn line is still to be written. Records do not begin with a line end.
    fn owes_line_end(&self) -> bool {
        self.taken == 0 && self.bytes.first() == Some(&b'\n')
    }
}

/// A file, reopened by name.
pub(super) struct NamedFile {
    path: PathBuf,
    file: File,
    /// False for file systems that do not count links.
    has_links: bool,
}

impl NamedFile {
    pub(super) fn open(path: &Path) -> Result<Self, AuditError> {
        if is_none(path) {
            return Err(AuditError::NoFile { path: path.into() });
        }
        let path = path.to_owned();
        match open(&path) {
            Ok(file) => Ok(Self {
                path,
                has_links: has_links(&file),
                file,
            }),
            Err(source) => Err(AuditError::Open { path, source }),
        }
    }
}

/// Returns true for what is no file. Opening a pipe would block until it has a reader.
fn is_none(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.is_dir() || is_pipe(&it))
}

/// Returns true unless the file was deleted.
#[cfg(unix)]
fn has_links(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().map_or(true, |file| file.nlink() != 0)
}

#[cfg(not(unix))]
fn has_links(_: &File) -> bool {
    true
}

#[cfg(unix)]
fn is_pipe(file: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    file.file_type().is_fifo()
}

#[cfg(not(unix))]
fn is_pipe(_: &std::fs::Metadata) -> bool {
    false
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Sink for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn reopen(&mut self) -> io::Result<bool> {
        if is_none(&self.path) {
            return Err(io::Error::other("it is a folder or a named pipe"));
        }
        self.file = open(&self.path)?;
        self.has_links = has_links(&self.file);
        Ok(self.file.metadata()?.len() == 0)
    }

    fn is_deleted(&self) -> bool {
        self.has_links && !has_links(&self.file)
    }
}

struct StandardError;

impl Sink for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Writes whole lines, so that log lines do not interleave.
        let mut stderr = io::stderr().lock();
        stderr.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn reopen(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}
