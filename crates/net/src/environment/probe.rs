//! Access to environment variables, files and the machine.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::Environment;

/// The environment as detectors and configuration see it.
///
/// Detectors use nothing else, so that tests can simulate any platform.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    variables: BTreeMap<String, String>,
    /// Names of variables whose values are not valid UTF-8.
    not_text: Vec<String>,
    files: Files,
    machine: Machine,
    standard_streams: StandardStreams,
    at_terminal: bool,
    host_name: Option<String>,
    /// Result of the detectors. Methods that change the probe discard it.
    environment: OnceLock<Box<Environment>>,
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

/// CPU cores and memory of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Cores that the process may run on, whatever share of their time it may use; 0 if unknown.
    pub cores: usize,
    /// Physical memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
}

/// Kind of the standard streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StandardStreams {
    /// Pipes or sockets: another program started this one, and may communicate with it.
    Pipes,
    /// A terminal, a file or nothing, on at least one of them.
    #[default]
    Other,
}

/// Maximum bytes read from a file.
const READ_MAX: u64 = 256 * 1024;

impl Probe {
    /// The real environment as it was at the first use. Variables that are not UTF-8 are omitted.
    ///
    /// It is read once, since that takes dozens of system calls.
    pub fn real() -> &'static Self {
        static REAL: OnceLock<Probe> = OnceLock::new();
        REAL.get_or_init(Self::read_again)
    }

    /// The real environment as it is now, for a reload: limits of a container can change.
    pub fn read_again() -> Self {
        let mut variables = BTreeMap::new();
        let mut not_text = Vec::new();
        for (name, value) in std::env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => drop(variables.insert(name, value)),
                (Ok(name), Err(_)) => not_text.push(name),
                (Err(_), _) => {}
            }
        }
        let probe = Self {
            variables,
            not_text,
            files: Files::Real,
            machine: Machine {
                cores: cores_of_machine(),
                memory_bytes: memory_built_in(),
            },
            standard_streams: real_streams(),
            at_terminal: std::io::IsTerminal::is_terminal(&std::io::stderr()),
            host_name: real_host_name(),
            environment: OnceLock::new(),
        };
        super::system::keep_cores(&probe.environment().system);
        probe
    }

    /// An environment with these variables and no files.
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

    /// Adds a file with this content and hides the real ones.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>, content: impl Into<String>) -> Self {
        self.environment = OnceLock::new();
        if let Files::Given(files) = &mut self.files {
            files.insert(path.into(), content.into());
        } else {
            self.files = Files::Given(BTreeMap::from([(path.into(), content.into())]));
        }
        self
    }

    /// Replaces the machine.
    #[must_use]
    pub fn with_machine(mut self, machine: Machine) -> Self {
        self.environment = OnceLock::new();
        self.machine = machine;
        self
    }

    /// Replaces the standard streams.
    #[must_use]
    pub fn with_standard_streams(mut self, streams: StandardStreams) -> Self {
        self.environment = OnceLock::new();
        self.standard_streams = streams;
        self
    }

    /// Declares standard error a terminal.
    #[must_use]
    pub fn at_terminal(mut self) -> Self {
        self.environment = OnceLock::new();
        self.at_terminal = true;
        self
    }

    /// Replaces the system's host name.
    #[must_use]
    pub fn with_host_name(mut self, name: impl Into<String>) -> Self {
        self.environment = OnceLock::new();
        self.host_name = Some(name.into());
        self
    }

    /// Returns the environment that the detectors find, which is kept from then on.
    pub fn environment(&self) -> &Environment {
        self.environment
            .get_or_init(|| Box::new(Environment::detect(self)))
    }

    /// Returns a variable. An empty value counts as absent.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns true if the variable is set, even to an empty value.
    pub fn is_set(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    /// Returns the variables with the prefix, sorted by name.
    pub fn variables<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables
            .iter()
            .filter(move |(name, value)| name.starts_with(prefix) && !value.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the names of variables whose values are not valid UTF-8. They count as not set.
    pub fn not_text(&self) -> impl Iterator<Item = &str> {
        self.not_text.iter().map(String::as_str)
    }

    /// Returns the machine.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns the kind of the standard streams.
    pub fn standard_streams(&self) -> StandardStreams {
        self.standard_streams
    }

    /// Returns the host name: `HOSTNAME`, or else that of the system.
    pub fn host_name(&self) -> Option<&str> {
        self.variable("HOSTNAME").or(self.host_name.as_deref())
    }

    /// Returns true if standard error is a terminal.
    pub fn is_at_terminal(&self) -> bool {
        self.at_terminal
    }

    /// A file's text, if it can be read; of a long one the beginning. Relative to the current directory.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        match &self.files {
            Files::Given(files) => files.get(Path::new(path)).cloned(),
            Files::Real => {
                // Files of the system have no length, and room for a few bytes would take several reads.
                let mut bytes = Vec::with_capacity(4096);
                let file = std::fs::File::open(path).ok()?;
                file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }

    /// Returns true if the file or folder exists.
    pub(super) fn exists(&self, path: &str) -> bool {
        match &self.files {
            Files::Given(files) => files.keys().any(|known| known.starts_with(path)),
            Files::Real => Path::new(path).exists(),
        }
    }
}

/// Counts them without the limit of a control group, which [`Environment::detect`] finds with its evidence.
fn cores_of_machine() -> usize {
    // Fails with more cores than fit the set of the C library.
    #[cfg(target_os = "linux")]
    if let Ok(cores) = rustix::thread::sched_getaffinity(None) {
        return cores.count() as usize;
    }
    std::thread::available_parallelism().map_or(0, usize::from)
}

#[cfg(target_os = "linux")]
fn memory_built_in() -> u64 {
    let info = rustix::system::sysinfo();
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

#[cfg(not(target_os = "linux"))]
fn memory_built_in() -> u64 {
    sysinfo::System::new().map_or(0, |mut system| {
        system.refresh_memory_specifics(sysinfo::MemoryRefreshKind::nothing().with_ram());
        system.total_memory()
    })
}

#[cfg(target_os = "linux")]
fn real_host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    is_host_name(&name).then_some(name)
}

#[cfg(not(target_os = "linux"))]
fn real_host_name() -> Option<String> {
    sysinfo::System::host_name().filter(|name| is_host_name(name))
}

/// Returns false for names that systems without a host name report.
fn is_host_name(name: &str) -> bool {
    !matches!(name, "" | "(none)" | "localhost")
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

    // Anything but a terminal may be a pipe. With a file or nothing, the server ends immediately.
    if std::io::stdin().is_terminal() || std::io::stdout().is_terminal() {
        StandardStreams::Other
    } else {
        StandardStreams::Pipes
    }
}
