//! A Redis server of a test's own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::{becomes, free_port};

/// A server on a port of its own, ended when it is dropped.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    folder: TempDir,
    options: Vec<String>,
}

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

impl RedisServer {
    /// Starts one. `None`, loudly, if this machine has no such program.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts the server with further command-line options.
    pub(crate) fn start_with(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        Self::begin(folder, options, free_port())
    }

    /// A sentinel that watches a master of this name, which is down when it is silent for half a second.
    pub(crate) fn start_sentinel(name: &str, master: &Self) -> Option<Self> {
        Self::start_sentinel_with(name, master.port, "")
    }

    /// Starts a sentinel of a master on this port, with further configuration lines.
    pub(crate) fn start_sentinel_with(name: &str, port: u16, lines: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "{lines}\n\
             sentinel monitor {name} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n"
        );
        std::fs::write(&file, text).expect("written");
        let file = file.to_str().expect("UTF-8").to_owned();
        Self::begin(folder, vec![file, "--sentinel".to_owned()], free_port())
    }

    fn begin(folder: TempDir, options: Vec<String>, port: u16) -> Option<Self> {
        let Some(child) = spawn(port, &folder, &options) else {
            // Past what the harness captures of tests that pass.
            let _ = std::io::stderr().write_all(
                b"SKIPPED: there is neither redis-server nor valkey-server on this machine\n",
            );
            return None;
        };
        let server = Self {
            child,
            port,
            folder,
            options,
        };
        server.wait();
        Some(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it, as a crash would.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts the server on the same port, with its saved data.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(self.port, &self.folder, &self.options).expect("it was there before");
        self.wait();
    }

    /// Suspends the server.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(status.expect("kill").success());
    }

    /// Waits until it responds.
    fn wait(&self) {
        becomes(|| {
            let answer = self.try_say(&["PING"]);
            answer.is_some_and(|answer| answer == ["PONG"])
        });
    }

    /// Sends a command, and returns the lines of its answer without lengths.
    pub(crate) fn say(&self, command: &[&str]) -> Vec<String> {
        self.try_say(command).expect("an answer")
    }

    /// Returns the number of elements in the response to a command.
    pub(crate) fn count_of(&self, command: &[&str]) -> Option<usize> {
        let first = self.ask(command)?.next()?;
        first.strip_prefix('*')?.parse().ok()
    }

    fn ask(&self, command: &[&str]) -> Option<impl Iterator<Item = String> + use<>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .ok()?;
        let mut text = format!("*{}\r\n", command.len());
        for word in command {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(text.as_bytes()).ok()?;
        Some(BufReader::new(stream).lines().map_while(Result::ok))
    }

    fn try_say(&self, command: &[&str]) -> Option<Vec<String>> {
        let mut lines = self.ask(command)?;
        let first = lines.next()?;
        let (kind, rest) = first.split_at(1);
        Some(match kind {
            "*" => {
                let count = rest.parse().ok()?;
                // Each is a length, then what it is the length of.
                lines.skip(1).step_by(2).take(count).collect()
            }
            "$" => lines.take(1).collect(),
            _ => vec![rest.to_owned()],
        })
    }
}

fn spawn(port: u16, folder: &TempDir, options: &[String]) -> Option<Child> {
    // A configuration file has to come first.
    let (file, options) = match options.split_first() {
        Some((first, rest)) if !first.starts_with("--") => (Some(first), rest),
        _ => (None, options),
    };
    let is_sentinel = options.iter().any(|option| option == "--sentinel");
    PROGRAMS.into_iter().find_map(|program| {
        let mut command = Command::new(program);
        command
            .args(file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        if !is_sentinel {
            command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        }
        command
            .arg("--dir")
            .arg(folder.path())
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()
    })
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}
