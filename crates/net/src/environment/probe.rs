//! What can be looked at: environment variables, files, and the machine.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The environment, as detectors and the configuration see it.
///
/// Detectors see nothing else, so that they can be tried on any platform from anywhere.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    variables: BTreeMap<String, String>,
    files: Files,
    machine: Machine,
    standard_streams: StandardStreams,
    at_terminal: bool,
}

#[derive(Clone, Debug)]
enum Files {
    Real,
    Given(BTreeMap<PathBuf, String>),
}

impl Default for Files {
    fn default() -> Self {
        Self::Given(BTreeMap::new())
    }
}

/// The machine, as far as the process may use it at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Cores on which the process may run; 0 if nobody knows.
    pub cores: usize,
    /// Memory that is built in, in bytes; 0 if nobody knows.
    pub memory_bytes: u64,
}

/// What standard input and output are connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandardStreams {
    /// Both to pipes, or sockets: another program started this one, and may be talking to it.
    Pipes,
    /// At least one to something else: a terminal, a file, nothing.
    #[default]
    Other,
}

/// Bytes of a file that are looked at.
const READ_MAX: u64 = 256 * 1024;

impl Probe {
    /// The real environment of this process. Variables that are not UTF-8 are left out.
    pub fn real() -> Self {
        let utf8 = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(utf8).collect(),
            files: Files::Real,
            machine: Machine {
                cores: std::thread::available_parallelism().map_or(0, usize::from),
                memory_bytes: memory_built_in(),
            },
            standard_streams: real_streams(),
            at_terminal: std::io::IsTerminal::is_terminal(&std::io::stderr()),
        }
    }

    /// An environment of these variables and no files.
    pub fn of<K: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            ..Self::default()
        }
    }

    /// The same with a file that has this content, instead of the real ones.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>, content: impl Into<String>) -> Self {
        if let Files::Given(files) = &mut self.files {
            files.insert(path.into(), content.into());
        } else {
            self.files = Files::Given(BTreeMap::from([(path.into(), content.into())]));
        }
        self
    }

    /// The same on another machine.
    #[must_use]
    pub fn with_machine(mut self, machine: Machine) -> Self {
        self.machine = machine;
        self
    }

    /// The same with other standard streams.
    #[must_use]
    pub fn with_standard_streams(mut self, streams: StandardStreams) -> Self {
        self.standard_streams = streams;
        self
    }

    /// The same with somebody who reads standard error as it is written.
    #[must_use]
    pub fn at_terminal(mut self) -> Self {
        self.at_terminal = true;
        self
    }

    /// A variable's value; an empty one counts as absent.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether a variable is there, be it empty.
    pub fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// The variables whose names begin with `prefix`, in the order of their names.
    pub fn variables<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables
            .iter()
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The machine that the process runs on.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// What standard input and output are connected to.
    pub fn standard_streams(&self) -> StandardStreams {
        self.standard_streams
    }

    /// Whether standard error is a terminal.
    pub fn is_at_terminal(&self) -> bool {
        self.at_terminal
    }

    /// A file's text, if it can be read; of a long one the beginning. Relative to the current directory.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        match &self.files {
            Files::Given(files) => files.get(Path::new(path)).cloned(),
            Files::Real => {
                let mut bytes = Vec::new();
                let file = std::fs::File::open(path).ok()?;
                file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }

    /// Whether there is a file or a folder.
    pub(super) fn exists(&self, path: &str) -> bool {
        match &self.files {
            Files::Given(files) => files.keys().any(|known| known.starts_with(path)),
            Files::Real => Path::new(path).exists(),
        }
    }
}

fn memory_built_in() -> u64 {
    sysinfo::System::new().map_or(0, |mut system| {
        system.refresh_memory_specifics(sysinfo::MemoryRefreshKind::nothing().with_ram());
        system.total_memory()
    })
}

#[cfg(target_os = "linux")]
fn real_streams() -> StandardStreams {
    use std::os::unix::fs::FileTypeExt as _;

    let is_pipe = |path| {
        std::fs::metadata(path)
            .is_ok_and(|stream| stream.file_type().is_fifo() || stream.file_type().is_socket())
    };
    if is_pipe("/proc/self/fd/0") && is_pipe("/proc/self/fd/1") {
        StandardStreams::Pipes
    } else {
        StandardStreams::Other
    }
}

#[cfg(not(target_os = "linux"))]
fn real_streams() -> StandardStreams {
    use std::io::IsTerminal as _;

    // What is no terminal is a pipe often enough; a file or nothing ends at once, and with it the server.
    if std::io::stdin().is_terminal() || std::io::stdout().is_terminal() {
        StandardStreams::Other
    } else {
        StandardStreams::Pipes
    }
}
