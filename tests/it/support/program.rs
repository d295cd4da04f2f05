//! The program itself.

use std::process::{Command, Stdio};

/// The program with nothing in its environment but these variables.
pub(crate) fn longshore(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    command
}
