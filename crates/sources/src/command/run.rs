//! Runs a program in isolation and within limits, and kills everything that it leaves behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::{Instant, timeout_at};

use super::config::{CommandLimits, CommandSourceConfig};
use crate::net::child::{self, Group, Limits};
use crate::source::limits::time_limit;

/// An installed program with its run options.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    directory: PathBuf,
    environment: BTreeMap<OsString, OsString>,
    limits: CommandLimits,
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct RunResult {
    /// Exit code; `None` if a signal ended the program.
    pub(super) code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    /// Beginning of standard error.
    pub(super) stderr: Vec<u8>,
}

/// Reason why a command did not end by itself. The messages are for the model and contain no path.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("the command cannot be started")]
    Spawn {
        #[source]
        source: std::io::Error,
    },
    /// The system limits the size of an argument, and of all of them together.
    #[error("the arguments are too long for a command line; send shorter ones")]
    TooLong,
    #[error("the command took longer than {} s and was ended", limit.as_secs())]
    Timeout { limit: Duration },
    #[error("the command wrote more than {max} bytes and was ended; ask for less")]
    TooMuch { max: usize },
    #[error("the output of the command could not be read")]
    Broken {
        #[source]
        source: std::io::Error,
    },
}

/// Maximum number of bytes of standard error that are kept.
const STDERR_BYTES: usize = 64 * 1024;
/// Time after the program's end in which the rest of its output can arrive.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Program {
    /// # Errors
    ///
    /// The program is not installed, or there is no such directory.
    pub(super) fn new(source: &CommandSourceConfig, name: &str) -> Result<Self, String> {
        let mut environment = BTreeMap::new();
        let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        environment.insert(
            "PATH".into(),
            own("PATH").unwrap_or_else(|| DEFAULT_PATH.into()),
        );
        environment.insert("LANG".into(), "C.UTF-8".into());
        for name in &source.inherit {
            check_variable(name).map_err(|problem| format!("inherit: {problem}"))?;
            if let Some(value) = own(name) {
                environment.insert(name.into(), value);
            }
        }
        for (name, value) in &source.environment {
            check_variable(name).map_err(|problem| format!("environment: {problem}"))?;
            if value.expose().contains('\0') {
                return Err(format!("environment.{name}: its value has a NUL"));
            }
            environment.insert(name.into(), value.expose().into());
        }
        let directory = source
            .directory
            .clone()
            .unwrap_or_else(|| PathBuf::from("/"));
        if !directory.is_dir() {
            return Err(format!(
                "directory: {} does not exist, or is not a folder",
                directory.display()
            ));
        }
        let search = environment
            .get(&OsString::from("PATH"))
            .cloned()
            .unwrap_or_default();
        let path = find(name, &search).ok_or_else(|| match name.contains(char::is_whitespace) {
            // A command line of a shell instead of a program.
            true => format!(
                "argv[0]: there is no program {name:?}; write the program and each argument as an item of its own: [ls, -l]"
            ),
            false => {
                format!("argv[0]: {name:?} is not installed; install it, or write its whole path")
            }
        })?;
        Ok(Self {
            path,
            directory,
            environment,
            limits: source.limits.clone(),
        })
    }

    /// Runs the program with `variables` in addition to the fixed ones. Dropping the future kills the program and
    /// everything it started.
    pub(super) async fn run(
        &self,
        arguments: &[String],
        stdin: Option<Vec<u8>>,
        variables: BTreeMap<String, String>,
    ) -> Result<RunResult, RunError> {
        let limit = time_limit(self.limits.timeout_seconds);
        let deadline = Instant::now() + limit;
        let mut command = Command::new(&self.path);
        command
            .args(arguments)
            .current_dir(&self.directory)
            .env_clear()
            .envs(variables)
            .envs(&self.environment)
            .stdin(if stdin.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let limits = Limits {
            memory_bytes: self.limits.memory_bytes,
            processes: self.limits.processes,
            open_files: self.limits.open_files,
        };
        let group = Group::prepare(&mut command, limits.beside_others().await);
        let mut running = command.spawn().map_err(|source| match source.kind() {
            std::io::ErrorKind::ArgumentListTooLong => RunError::TooLong,
            _ => RunError::Spawn { source },
        })?;
        let group = group.started(running.id());
        let (out, err, input) = (
            running.stdout.take(),
            running.stderr.take(),
            running.stdin.take(),
        );

        let max = self.limits.output_bytes;
        let too_much = || RunError::TooMuch { max };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let writing = async {
            if let (Some(mut input), Some(bytes)) = (input, stdin) {
                // A program that closes its input early does not need the rest.
                let _ = input.write_all(&bytes).await;
            }
        };
        let mut reading = Box::pin(async {
            let complaint = async {
                let _ = read_some(err, STDERR_BYTES, &mut stderr).await;
                Ok(())
            };
            // An output that is too large ends the run, while standard error is still open.
            tokio::try_join!(read_all(out, max, &mut stdout), complaint).map(drop)
        });
        tokio::pin!(writing);
        let mut written = false;
        let mut read = None;
        let status = loop {
            tokio::select! {
                () = &mut writing, if !written => written = true,
                done = &mut reading, if read.is_none() => {
                    // The output is too large, so the rest of the run is useless.
                    if let Err(error) = &done && error.kind() == std::io::ErrorKind::FileTooLarge {
                        return Err(too_much());
                    }
                    read = Some(done);
                }
                status = timeout_at(deadline, running.wait()) => break status,
            }
        };
        let status = status
            .map_err(|_| RunError::Timeout { limit })?
            .map_err(|source| RunError::Broken { source })?;
        // Descendants would keep the output open, and must not outlive the program.
        group.end();
        let read = match read {
            Some(read) => read,
            // A descendant outside of the process group can still hold the output open. The program itself has ended,
            // and its own output is complete.
            None => timeout_at(Instant::now() + LAST_OUTPUT, &mut reading)
                .await
                .unwrap_or(Ok(())),
        };
        drop(reading);
        read.map_err(|source| match source.kind() {
            std::io::ErrorKind::FileTooLarge => too_much(),
            _ => RunError::Broken { source },
        })?;
        Ok(RunResult {
            code: status.code(),
            stdout,
            stderr,
        })
    }
}

/// Reads to the end. Returns an error if there are more than `max` bytes.
async fn read_all(
    from: Option<impl AsyncRead + Unpin>,
    max: usize,
    bytes: &mut Vec<u8>,
) -> std::io::Result<()> {
    if let Some(from) = from {
        let limit = (max as u64).saturating_add(1);
        from.take(limit).read_to_end(bytes).await?;
    }
    if max < bytes.len() {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

/// Keeps the beginning of a stream and discards the rest, so that the writer does not block.
async fn read_some(
    from: Option<impl AsyncRead + Unpin>,
    max: usize,
    bytes: &mut Vec<u8>,
) -> std::io::Result<()> {
    if let Some(mut from) = from {
        (&mut from).take(max as u64).read_to_end(bytes).await?;
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    }
    Ok(())
}

fn check_variable(name: &str) -> Result<(), String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(format!("{name:?} is not a valid variable name"));
    }
    if child::decides_what_is_loaded(name) {
        return Err(format!(
            "{name} determines which code a program loads; it is not passed on"
        ));
    }
    Ok(())
}

/// Finds a program: a path is used as it is, a name is looked up in the search path.
fn find(name: &str, search: &OsString) -> Option<PathBuf> {
    if name.contains('/') {
        return is_program(Path::new(name))
            .then(|| std::path::absolute(name).unwrap_or_else(|_| name.into()));
    }
    std::env::split_paths(search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
