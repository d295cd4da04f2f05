//! Prompts at the terminal, on standard error. Standard output is for data.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

#[cfg(unix)]
use crate::net::Mutex;

/// Maximum length of an input line, in bytes.
const ANSWER_BYTES: u64 = 16 * 1024;

/// Returns true if a user can be prompted.
pub(super) fn has_person() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a yes-or-no question. Any other input means no.
pub(super) fn confirm(question: &str) -> io::Result<bool> {
    write!(io::stderr(), "{question} [y/N] ")?;
    let answer = line()?;
    Ok(matches!(&*answer.trim().to_ascii_lowercase(), "y" | "yes"))
}

/// Reads a line without echo.
pub(super) fn secret(prompt: &str) -> io::Result<String> {
    write!(io::stderr(), "{prompt} (not shown): ")?;
    let silence = Silence::begin();
    let answer = line();
    drop(silence);
    // The line break was not echoed either.
    writeln!(io::stderr())?;
    Ok(answer?.trim().to_owned())
}

/// The user at the terminal.
pub(super) struct User;

impl super::client::Person for User {
    fn print(&mut self, text: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{text}")
    }

    fn ask(&mut self, prompt: &str) -> io::Result<Option<String>> {
        write!(io::stderr(), "{prompt}")?;
        let answer = line()?;
        Ok((!answer.is_empty()).then_some(answer))
    }
}

fn line() -> io::Result<String> {
    let mut answer = String::new();
    io::Read::take(io::stdin().lock(), ANSWER_BYTES).read_line(&mut answer)?;
    Ok(answer)
}

/// Turns the echo of the terminal off, until it is dropped.
struct Silence;

/// State of the terminal while its echo is off.
#[cfg(unix)]
static ECHOING: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Turns the echo of the terminal on again, if it is off.
pub(super) fn restore() {
    #[cfg(unix)]
    if let Some(before) = ECHOING.lock().take() {
        use rustix::termios::{OptionalActions, tcsetattr};
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

#[cfg(unix)]
impl Silence {
    fn begin() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin()).ok();
        ECHOING.lock().clone_from(&before);
        if let Some(mut silent) = before {
            silent.local_modes.remove(LocalModes::ECHO);
            // A failure only means that the input is visible.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &silent);
        }
        Self
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        restore();
    }
}

#[cfg(not(unix))]
impl Silence {
    fn begin() -> Self {
        Self
    }
}
