//! The program itself.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

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

/// Runs a command to its end. Returns its exit code, standard output and standard error.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// Runs a command to its end. Returns its exit code, and everything that it printed.
#[track_caller]
pub(crate) fn said(command: &mut Command) -> (Option<i32>, String) {
    let (code, stdout, stderr) = run(command);
    (code, stdout + &stderr)
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
    /// Address; unspecified until it serves.
    pub(crate) address: SocketAddr,
    /// Output until it served.
    pub(crate) greeting: String,
    /// Output after that, which stays unread unless a test reads it.
    output: BufReader<PipeReader>,
}

impl Served {
    /// Starts it by a command, and waits until it serves.
    #[track_caller]
    pub(crate) fn start(command: Command) -> Self {
        let mut served = Self::spawn(command);
        served.wait_until_served();
        served
    }

    /// Starts it by a command.
    #[track_caller]
    pub(crate) fn spawn(mut command: Command) -> Self {
        let (output, writer) = std::io::pipe().expect("a pipe");
        let child = command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().expect("a pipe"))
            .stderr(writer)
            .spawn()
            .expect("it starts");
        Self {
            process: KillOnDrop(child),
            address: (Ipv4Addr::UNSPECIFIED, 0).into(),
            greeting: String::new(),
            output: BufReader::new(output),
        }
    }

    /// Waits until it serves, for the first time or after a restart.
    #[track_caller]
    pub(crate) fn wait_until_served(&mut self) {
        let is_address = |line: &str| {
            line.contains("http://") && (line.contains(" serves ") || line.contains("serving"))
        };
        self.greeting = self.read_until(is_address);
        let line = self.greeting.lines().last().unwrap_or_default();
        let (_, rest) = line.split_once("http://").expect("an address");
        let address = rest.split("/mcp").next().unwrap_or_default();
        self.address = address.parse().expect("an address");
        // The banner precedes serving, and only a serving program handles signals.
        let live = self.ask("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert!(live.starts_with("HTTP/1.1 200"), "{live}");
    }

    /// Returns the next line that it prints with this part.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        let read = self.read_until(|line| line.contains(part));
        read.lines().last().unwrap_or_default().to_owned()
    }

    /// Reads all that it prints until it ends, beside the test. Returns that and the greeting.
    pub(crate) fn read_to_end(&mut self) -> JoinHandle<String> {
        let mut output = self.output.get_ref().try_clone().expect("a pipe");
        let mut read = [self.greeting.as_bytes(), self.output.buffer()].concat();
        std::thread::spawn(move || {
            output.read_to_end(&mut read).expect("output");
            String::from_utf8_lossy(&read).into_owned()
        })
    }

    #[track_caller]
    fn read_until(&mut self, is_last: impl Fn(&str) -> bool) -> String {
        let mut read = String::new();
        loop {
            let begin = read.len();
            let length = self.output.read_line(&mut read).expect("UTF-8");
            assert_ne!(length, 0, "it ended: {read}");
            if is_last(&read[begin..]) {
                return read;
            }
        }
    }

    /// Sends a request over its own connection, and returns the whole response.
    #[track_caller]
    pub(crate) fn ask(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a socket");
        let text = text.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        stream.write_all(text.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::new(TcpStream::connect(self.address).expect("it listens"))
    }
}
