//! The program itself.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::{Child, ChildStderr, Command, Stdio};

use super::{Connection, until};

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

/// A child process that is killed when this is dropped.
pub(crate) struct KillOnDrop(pub(crate) Child);

impl KillOnDrop {
    /// Sends it a signal, such as `TERM`.
    #[track_caller]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("there is kill").success());
    }

    /// Waits until it ends. Returns its exit code, if it was not killed by a signal.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        until(|| self.0.try_wait().expect("a status")).code()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for KillOnDrop {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KillOnDrop {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// The program while it serves over HTTP.
pub(crate) struct Served {
    pub(crate) process: KillOnDrop,
    pub(crate) address: SocketAddr,
    /// Its output after the address, which nobody reads.
    _log: BufReader<ChildStderr>,
}

impl Served {
    /// Starts it by a command, and waits until it serves.
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let process = KillOnDrop(child);
        let address = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).expect("text"), 0, "it ended");
            if let Some((_, rest)) = line.split_once("http://") {
                let address = rest.split("/mcp").next().unwrap_or_default();
                break address.parse().expect("an address");
            }
        };
        let served = Self {
            process,
            address,
            _log: log,
        };
        // The banner precedes serving, and only a serving program handles signals.
        let live = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
        assert_eq!(served.connect().send(live).receive().status, 200);
        served
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::new(TcpStream::connect(self.address).expect("it listens"))
    }
}
