//! Connection to a child process: one message on each line, with concurrent requests.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::shared::{Send1, Shared};
use super::{ClientError, Options, wire};
use crate::net::{self, AbortOnDrop, Program, SupervisedChild};

/// Capacity of the queue of outgoing messages.
const QUEUE: usize = 64;
/// Maximum number of queued bytes that are written together.
const LINES_BYTES: usize = 64 * 1024;
/// Time in which the last output of a child can still be read, and its exit status becomes known.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Maximum rate at which a child's standard error is logged, in bytes per second.
const COMPLAINTS: usize = 64 * 1024;

/// A child process and the tasks that communicate with it. Dropping this ends them all.
pub(super) struct Link {
    messages: mpsc::Sender<Bytes>,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// The task that writes to the child's input.
    writer: AbortOnDrop,
    _readers: [AbortOnDrop; 2],
    child: Mutex<Option<SupervisedChild>>,
    /// Number of lines that were not messages.
    garbage: Arc<AtomicU64>,
}

impl Link {
    pub(super) fn start(
        program: &Program,
        name: &str,
        options: &Options,
        shared: &Arc<Shared>,
    ) -> Result<Self, ClientError> {
        let mut child = program.start().map_err(|error| ClientError::Start {
            program: program.program.to_string_lossy().into_owned(),
            reason: match error.kind() {
                // A command line of a shell instead of a program.
                std::io::ErrorKind::NotFound
                    if program.program.to_string_lossy().contains(char::is_whitespace) =>
                {
                    "the program was not found; command is the program alone: write its arguments into args, one in each item"
                        .to_owned()
                }
                std::io::ErrorKind::NotFound => {
                    "the program was not found; install it, or check PATH".to_owned()
                }
                _ => error.to_string(),
            },
        })?;
        let (mut stdin, stdout, stderr) =
            match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
                (Some(stdin), Some(stdout), Some(stderr)) => (stdin, stdout, stderr),
                _ => {
                    return Err(ClientError::Gone(
                        "its streams could not be opened".to_owned(),
                    ));
                }
            };
        let (messages, mut queue) = mpsc::channel::<Bytes>(QUEUE);
        let (exited, exit) = watch::channel(None);
        let writer = {
            let (shared, exit) = (Arc::clone(shared), exit.clone());
            AbortOnDrop::spawn(async move {
                let mut lines = Vec::new();
                while let Some(message) = queue.recv().await {
                    lines.clear();
                    lines.shrink_to(LINES_BYTES);
                    add_line(&mut lines, &message);
                    while lines.len() < LINES_BYTES
                        && let Ok(message) = queue.try_recv()
                    {
                        add_line(&mut lines, &message);
                    }
                    let written = async {
                        stdin.write_all(&lines).await?;
                        stdin.flush().await
                    };
                    if written.await.is_err() {
                        // Its output can still hold responses.
                        sleep(LAST_WORDS).await;
                        return shared.close(&end(*exit.borrow(), "input"));
                    }
                }
            })
        };
        let garbage = Arc::<AtomicU64>::default();
        let reader = {
            let (name, shared, messages, garbage, max) = (
                name.to_owned(),
                Arc::clone(shared),
                messages.clone(),
                Arc::clone(&garbage),
                options.message_bytes,
            );
            let mut exit = exit.clone();
            AbortOnDrop::spawn(async move {
                let ended = read(stdout, &shared, messages, (&name, &garbage), max).await;
                if ended.is_ok() {
                    let _ = timeout(LAST_WORDS, exit.wait_for(Option::is_some)).await;
                }
                shared.close(&ended.err().unwrap_or_else(|| end(*exit.borrow(), "output")));
            })
        };
        let complaints = AbortOnDrop::spawn(log_complaints(stderr, name.to_owned()));
        let shared = Arc::clone(shared);
        let watched = child.watch(move |status| {
            exited.send_replace(status);
            // The last output is still read, unless another process keeps the pipe open.
            net::spawn(async move {
                sleep(LAST_WORDS).await;
                shared.close(&end(status, "output"));
            });
        });
        Ok(Self {
            messages,
            exit,
            writer,
            _readers: [reader, complaints],
            child: Mutex::new(Some(watched)),
            garbage,
        })
    }

    pub(super) async fn send(&self, message: Bytes) -> Result<(), ClientError> {
        self.messages
            .send(message)
            .await
            .map_err(|_| end(*self.exit.borrow(), "input"))
    }

    /// Returns a function that sends messages for as long as the child lives.
    pub(super) fn sender(&self) -> Send1 {
        sender(self.messages.clone())
    }

    /// Sends a message if there is room in the queue.
    pub(super) fn try_send(&self, message: Bytes) {
        let _ = self.messages.try_send(message);
    }

    pub(super) fn garbage(&self) -> u64 {
        self.garbage.load(Ordering::Relaxed)
    }

    /// Ends the child by closing its input, and finally by force.
    pub(super) async fn stop(&self, grace: Duration) {
        let child = self.child.lock().await.take();
        // The writer holds the child's input.
        self.writer.abort();
        if let Some(child) = child {
            child.stop(grace).await;
        }
    }
}

/// Returns the error for a child that has ended, or that has closed one of its streams.
fn end(status: Option<ExitStatus>, stream: &str) -> ClientError {
    ClientError::Gone(match status {
        Some(status) => format!("it has ended ({status})"),
        None => format!("it has closed its standard {stream}"),
    })
}

/// Appends a message as one line. Line breaks in JSON are only whitespace between tokens, but would end the message
/// here.
fn add_line(lines: &mut Vec<u8>, message: &[u8]) {
    lines.extend(message.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    }));
    lines.push(b'\n');
}

fn sender(messages: mpsc::Sender<Bytes>) -> Send1 {
    Arc::new(move |message| {
        let messages = messages.clone();
        Box::pin(async move {
            // Without a child, the message has no recipient.
            let _ = messages.send(message).await;
        })
    })
}

/// Reads lines until the output ends.
///
/// # Errors
///
/// The output cannot be read any further.
async fn read(
    stdout: impl AsyncRead + Unpin,
    shared: &Arc<Shared>,
    messages: mpsc::Sender<Bytes>,
    (name, garbage): (&str, &AtomicU64),
    max: usize,
) -> Result<(), ClientError> {
    let send = sender(messages);
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match read_line(&mut lines, &mut line, max).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(LineError::TooLong) => {
                let tail = skip_line(&mut lines, max.saturating_mul(SKIPPED)).await;
                let tail = tail.map_err(|error| ClientError::Gone(error.to_string()))?;
                let tail = tail.ok_or_else(|| {
                    ClientError::Protocol(format!("a line of more than {max} bytes"))
                })?;
                shared.has_skipped(id_in(&line, &tail), (name, max));
                // The buffer has reached its maximum size, so it is freed.
                line = Vec::new();
                continue;
            }
            Err(LineError::Io(error)) => return Err(ClientError::Gone(error.to_string())),
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match wire::read(&line) {
            Ok(incoming) => {
                for incoming in incoming {
                    shared.take(incoming, None, || Arc::clone(&send));
                }
            }
            // Some programs print greetings to standard output.
            Err(_) if garbage.fetch_add(1, Ordering::Relaxed) == 0 => {
                tracing::warn!(
                    upstream = name,
                    line = super::error::beginning(&line),
                    "an upstream server wrote lines to standard output that are not messages; they are ignored"
                );
            }
            Err(_) => {}
        }
    }
}

/// Maximum length of a skipped line, as a multiple of `message_bytes`. A longer one ends the program.
const SKIPPED: usize = 8;
/// Number of bytes kept from the end of a skipped line.
const TAIL: usize = 64;

/// Skips the rest of a line. Returns its last bytes; `None` if it is longer than `max`.
async fn skip_line(
    lines: &mut (impl AsyncBufReadExt + Unpin),
    max: usize,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut tail = Vec::new();
    let mut skipped = 0_usize;
    loop {
        let available = lines.fill_buf().await?;
        if available.is_empty() {
            return Ok(Some(tail));
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        let text = &available[..taken];
        tail.extend_from_slice(&text[text.len().saturating_sub(TAIL)..]);
        tail.drain(..tail.len().saturating_sub(TAIL));
        lines.consume(taken);
        if end.is_some() {
            return Ok(Some(tail));
        }
        skipped += taken;
        if max < skipped {
            return Ok(None);
        }
    }
}

/// Returns the ID of a response from its beginning and end, if either contains it. Members are read up to `result` or
/// `error`; a message without either is not a response.
pub(super) fn id_in(beginning: &[u8], tail: &[u8]) -> Option<u64> {
    const BEGINNING: usize = 256;
    let text = String::from_utf8_lossy(&beginning[..beginning.len().min(BEGINNING)]);
    let mut rest = text.trim_start().strip_prefix('{')?;
    let mut id = None;
    loop {
        let (key, behind) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        let value = behind.trim_start().strip_prefix(':')?.trim_start();
        if matches!(key, "result" | "error") {
            return id.or_else(|| id_at_end(tail));
        }
        let (value, behind) = match value.strip_prefix('"') {
            Some(quoted) => {
                let (value, behind) = quoted.split_once('"')?;
                (value, behind.trim_start().strip_prefix(',')?)
            }
            None => value.split_once(',')?,
        };
        match key {
            "id" => id = value.trim().parse().ok(),
            "jsonrpc" => {}
            _ => return None,
        }
        rest = behind;
    }
}

/// Returns the `id` at the end of an object, if it is the last member.
fn id_at_end(text: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    let members = text.trim_end().strip_suffix('}')?.trim_end();
    let (_, value) = members.rsplit_once("\"id\"")?;
    let value = value.trim_start().strip_prefix(':')?.trim();
    value.trim_matches('"').parse().ok()
}

enum LineError {
    TooLong,
    Io(std::io::Error),
}

async fn read_line(
    lines: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
    max: usize,
) -> Result<bool, LineError> {
    loop {
        let available = lines.fill_buf().await.map_err(LineError::Io)?;
        if available.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        if max < line.len() + taken {
            return Err(LineError::TooLong);
        }
        line.extend_from_slice(&available[..taken]);
        lines.consume(taken);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Logs a child's standard error, up to a maximum rate.
async fn log_complaints(stderr: impl AsyncRead + Unpin, name: String) {
    const LINE: usize = 8 * 1024;
    let mut lines = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut second = tokio::time::Instant::now();
    let mut logged = 0;
    loop {
        line.clear();
        let read = read_line(&mut lines, &mut line, LINE).await;
        let text = super::error::beginning(&line);
        match read {
            Ok(false) | Err(LineError::Io(_)) => return,
            Ok(true) | Err(LineError::TooLong) => {}
        }
        if second.elapsed() >= Duration::from_secs(1) {
            second = tokio::time::Instant::now();
            logged = 0;
        }
        logged += line.len();
        if logged <= COMPLAINTS && !text.is_empty() {
            tracing::info!(upstream = name, "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_however_it_was_written() {
        let mut lines = Vec::new();
        add_line(&mut lines, b"{\r\n  \"a\": \"b\\nc\"\n}");
        add_line(&mut lines, b"{}");
        assert_eq!(lines, b"{    \"a\": \"b\\nc\" }\n{}\n");
    }

    #[test]
    fn a_line_that_is_too_long_tells_whose_answer_it_is_by_its_beginning_or_its_end() {
        let x = "x".repeat(1000);
        for (line, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{x}"}}}}"#),
                Some(7),
            ),
            (format!(r#" {{ "id" : "7" , "result" : ["{x}"]}}"#), Some(7)),
            (
                format!(r#"{{"result":{{"id":5,"a":"{x}"}},"jsonrpc":"2.0","id":7}}"#),
                Some(7),
            ),
            (
                format!(r#"{{"result":{{"a":"{x}","b":{{"id":5}}}}}}"#),
                None,
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x","params":"{x}"}}"#),
                None,
            ),
            (format!(r#"{{"result":{{"a":"{x}"}},"id":"7" }}"#), Some(7)),
            (
                format!(r#"{{"method":"x","id":7,"params":{{"a":"{x}"}}}}"#),
                None,
            ),
            (x, None),
        ] {
            let (beginning, tail) = line.as_bytes().split_at(300);
            let tail = &tail[tail.len() - TAIL..];
            assert_eq!(id_in(beginning, tail), id, "{line:.100}");
        }
    }
}
