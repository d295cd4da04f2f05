//! A server as a child process: started, awaited, and killed when it is dropped.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::sleep;

/// Reason why a server could not be started or pinned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    #[error(
        "`taskset` is needed to keep server and generator on different cores, and it cannot be run (package util-linux)"
    )]
    NoTaskset(#[source] io::Error),
    #[error("`taskset` could not move this process to core {core}")]
    Pin { core: usize },
    #[error("could not start {command}")]
    Spawn {
        command: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "{command} ended ({status}) before it accepted a connection; run it by hand to see what it says"
    )]
    Ended {
        command: String,
        status: std::process::ExitStatus,
    },
    #[error("{command} accepted no connection on {address} within {within:?}")]
    NotReady {
        command: String,
        address: SocketAddr,
        within: Duration,
    },
    #[error("{command} could not be told to stop")]
    NotTold {
        command: String,
        #[source]
        source: io::Error,
    },
    #[error("{command} did not stop within {STOPPED_WITHIN:?}")]
    NotStopped { command: String },
    #[error("no free loopback port")]
    NoPort(#[source] io::Error),
}

/// Options for starting a server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Command line prefix before the program, such as `taskset -c 0`.
    before: Vec<OsString>,
    ready_within: Duration,
    port: u16,
}

impl Launch {
    /// `program` on a loopback port that is free now. The arguments are built with that port.
    pub(crate) fn new<A: Into<OsString>>(
        program: &Path,
        arguments: impl FnOnce(u16) -> Vec<A>,
    ) -> Result<Self, ServerError> {
        let port = free_port().map_err(ServerError::NoPort)?;
        let arguments = arguments(port).into_iter().map(Into::into).collect();
        Ok(Self {
            program: program.to_owned(),
            arguments,
            before: Vec::new(),
            ready_within: READY_WITHIN,
            port,
        })
    }

    /// Keeps the server on one core.
    pub(crate) fn on_core(self, core: usize) -> Self {
        self.after(["taskset", "-c", &core.to_string()])
    }

    /// Starts it through another program, which replaces itself by it or runs it in its own process, and gives
    /// it more time to start.
    pub(crate) fn through<W: Into<OsString>>(self, words: impl IntoIterator<Item = W>) -> Self {
        self.after(words).slow_to_start()
    }

    /// Gives it more time to start.
    pub(crate) fn slow_to_start(self) -> Self {
        Self {
            ready_within: READY_WITHIN_SLOWLY,
            ..self
        }
    }

    fn after<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.before.extend(words.into_iter().map(Into::into));
        self
    }

    /// Returns the address on which the server will listen.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Starts it, without waiting until it listens.
    pub(crate) fn spawn(self) -> Result<Server, ServerError> {
        // The prefix command replaces itself by the program, so the child's PID is the server's.
        let mut command = match self.before.split_first() {
            Some((first, more)) => {
                let mut command = Command::new(first);
                command.args(more).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|source| ServerError::Spawn {
            command: self.to_string(),
            source,
        })?;
        Ok(Server {
            child,
            launch: self,
        })
    }

    /// Starts it, and waits until it accepts connections.
    pub(crate) async fn start(self) -> Result<Server, ServerError> {
        let mut server = self.spawn()?;
        server.ready().await?;
        Ok(server)
    }
}

impl std::fmt::Display for Launch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "`{}", self.program.display())?;
        for argument in &self.arguments {
            write!(out, " {}", argument.to_string_lossy())?;
        }
        out.write_str("`")
    }
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    launch: Launch,
}

impl Server {
    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address on which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.launch.address()
    }

    /// An error if the process is gone.
    pub(crate) fn check_alive(&mut self) -> Result<(), ServerError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ServerError::Ended {
                command: self.launch.to_string(),
                status,
            }),
            _ => Ok(()),
        }
    }

    /// Asks it to stop, and waits until it has: for servers that leave something behind when they end.
    pub(crate) async fn stop(mut self) -> Result<(), ServerError> {
        let pid = self.pid().to_string();
        let reported = Command::new("kill").args(["-TERM", &pid]).status();
        reported.map_err(|source| ServerError::NotTold {
            command: self.launch.to_string(),
            source,
        })?;
        let since = Instant::now();
        while self.check_alive().is_ok() {
            if since.elapsed() > STOPPED_WITHIN {
                return Err(ServerError::NotStopped {
                    command: self.launch.to_string(),
                });
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn ready(&mut self) -> Result<(), ServerError> {
        let since = Instant::now();
        while TcpStream::connect(self.address()).await.is_err() {
            self.check_alive()?;
            if since.elapsed() > self.launch.ready_within {
                return Err(ServerError::NotReady {
                    command: self.launch.to_string(),
                    address: self.address(),
                    within: self.launch.ready_within,
                });
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either may fail only because the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An error unless `taskset` can be run.
pub(crate) fn require_taskset() -> Result<(), ServerError> {
    taskset(&["--version".to_owned()]).map(drop)
}

/// Keeps this process, and threads it starts later, on one core.
pub(crate) fn pin_this_process(core: usize) -> Result<(), ServerError> {
    let arguments = [
        "-a",
        "-c",
        "-p",
        &core.to_string(),
        &std::process::id().to_string(),
    ]
    .map(str::to_owned);
    if taskset(&arguments)? {
        Ok(())
    } else {
        Err(ServerError::Pin { core })
    }
}

fn taskset(arguments: &[String]) -> Result<bool, ServerError> {
    let status = Command::new("taskset")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status
        .map(|status| status.success())
        .map_err(ServerError::NoTaskset)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

const READY_WITHIN: Duration = Duration::from_secs(10);
const READY_WITHIN_SLOWLY: Duration = Duration::from_secs(120);
const STOPPED_WITHIN: Duration = Duration::from_secs(60);
