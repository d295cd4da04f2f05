//! Messages of a server during a call: progress, log messages and requests to the user.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use longshore_sources::client::{Listener, RpcError};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::super::terminal;
use super::options::Answers;
use super::text::clean;
use crate::net::Mutex;

/// Time after which a progress bar is drawn.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// Writes progress and log messages to standard error, and responds to elicitation as `--answer` says.
pub(super) struct Terminal {
    pub(super) people: bool,
    pub(super) answers: Option<Answers>,
    pub(super) begun: Instant,
    /// True while a progress bar is drawn.
    pub(super) has_bar: AtomicBool,
}

impl Terminal {
    /// Removes the progress bar, if one is drawn.
    fn clear(&self) {
        if self.has_bar.swap(false, Ordering::Relaxed) {
            // A failed write to standard error is ignored.
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Listener for Terminal {
    fn wants_progress(&self) -> bool {
        self.people
    }

    fn wants_log(&self) -> Option<&'static str> {
        self.people.then_some("debug")
    }

    fn question(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let params = params.as_deref().map_or("{}", RawValue::get);
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        let answer = match self.answers {
            Some(Answers::Ask) if method == "elicitation/create" => {
                self.clear();
                return Box::pin(asked_at_terminal(params));
            }
            Some(answers) if method == "elicitation/create" => Ok(answer_of(answers, &params)),
            _ => Err(RpcError::new(
                -32601,
                format!("no user can be asked: {method}"),
            )),
        };
        Box::pin(async { answer })
    }

    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if !self.people {
            return;
        }
        let line = progress_line(progress, total, &clean(message.unwrap_or_default()));
        let mut stderr = io::stderr();
        // A failed write to standard error is ignored.
        if !stderr.is_terminal() {
            let _ = writeln!(stderr, "{line}");
        } else if BAR_AFTER <= self.begun.elapsed() {
            self.has_bar.store(true, Ordering::Relaxed);
            // Without line breaks of the terminal, the next report replaces the whole line.
            let _ = write!(stderr, "\r\x1b[2K\x1b[?7l{line}\x1b[?7h");
            let _ = stderr.flush();
        }
    }

    fn log(&self, level: &str, _: Option<&str>, data: &Value) {
        if !self.people {
            return;
        }
        let said = data
            .as_str()
            .map_or_else(|| data.to_string(), str::to_owned);
        self.clear();
        let _ = writeln!(io::stderr(), "{}: {}", clean(level), clean(&said));
    }
}

/// Returns a progress report as a line, with a bar if the total is known.
fn progress_line(progress: f64, total: Option<f64>, message: &str) -> String {
    /// Cells of the bar, and characters of the message.
    const CELLS: usize = 20;
    const MESSAGE_MAX: usize = 40;
    let message: String = message
        .chars()
        .filter(|c| *c != '\n')
        .take(MESSAGE_MAX)
        .collect();
    let Some(total) = total.filter(|total| 0.0 < *total) else {
        return format!("{progress} {message}");
    };
    let share = (progress / total).clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of 20 cells"
    )]
    let full = (share * CELLS as f64).round() as usize;
    let bar: String = (0..CELLS)
        .map(|cell| if cell < full { '#' } else { '.' })
        .collect();
    format!("[{bar}] {progress} of {total} {message}")
}

/// Asks the user at the terminal. Several requests are asked one after the other.
async fn asked_at_terminal(params: Value) -> Result<Value, RpcError> {
    static TERMINAL: Mutex<()> = Mutex::new(());
    let failed = |problem: String| RpcError::new(-32603, format!("the terminal failed: {problem}"));
    let (answer, asked) = oneshot::channel();
    // The program ends without an answer if the call has ended, so the runtime must not wait for the user.
    let asking = thread::Builder::new().spawn(move || {
        let _turn = TERMINAL.lock();
        drop(answer.send(super::form::fill_in(&params, &mut terminal::User)));
    });
    asking.map_err(|error| failed(error.to_string()))?;
    let result = asked.await.map_err(|error| failed(error.to_string()))?;
    result.map_err(|error| failed(error.to_string()))
}

/// Builds the result of an elicitation without a user.
fn answer_of(answers: Answers, params: &Value) -> Value {
    let is_form = matches!(params["mode"].as_str(), None | Some("form"));
    if answers == Answers::Decline {
        return json!({"action": "decline"});
    }
    let schema = &params["requestedSchema"];
    let properties = schema["properties"].as_object();
    let content: Map<String, Value> = properties
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone())))
        .collect();
    let required = schema["required"].as_array().into_iter().flatten();
    let is_whole = required
        .filter_map(Value::as_str)
        .all(|name| content.contains_key(name));
    match is_form && is_whole {
        true => json!({"action": "accept", "content": content}),
        false => json!({"action": "cancel"}),
    }
}

#[cfg(test)]
mod tests {
    use super::progress_line;

    #[test]
    fn progress_is_a_bar_if_the_total_is_known() {
        let line = progress_line(5.0, Some(20.0), "row\n drawn");
        assert_eq!(line, "[#####...............] 5 of 20 row drawn");
        assert_eq!(progress_line(3.0, None, "rows"), "3 rows");
        assert_eq!(progress_line(9.0, Some(0.0), ""), "9 ");
        let over = progress_line(30.0, Some(20.0), "");
        assert!(over.starts_with("[####################]"), "{over}");
    }
}
