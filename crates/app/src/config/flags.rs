//! Settings from the command line.

use std::path::PathBuf;

use serde_json::Value;

use super::Transport;

/// Settings from the command line, which override all others.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Flags {
    /// The file to read.
    pub config: Option<PathBuf>,
    /// `http.host`.
    pub host: Option<String>,
    /// `http.port`.
    pub port: Option<u16>,
    /// `http.workers`.
    pub workers: Option<usize>,
    /// `transport`.
    pub transport: Option<Transport>,
    /// `toolsets`; empty means not given.
    pub toolsets: Vec<String>,
    /// `http.insecure`.
    pub insecure: bool,
    /// `http.playground`.
    pub playground: bool,
    /// Default of `toolsets` if neither toolsets nor sources nor upstreams are configured.
    pub toolsets_otherwise: Vec<String>,
    /// True if the application adds an authentication method of its own.
    pub proved: bool,
}

pub(super) fn flag_values(flags: &Flags) -> Vec<(&'static str, &'static str, Value)> {
    let mut values = Vec::new();
    if let Some(host) = &flags.host {
        values.push(("http.host", "host", host.clone().into()));
    }
    if let Some(port) = flags.port {
        values.push(("http.port", "port", port.into()));
    }
    if let Some(workers) = flags.workers {
        values.push(("http.workers", "workers", workers.into()));
    }
    if let Some(transport) = flags.transport {
        let name = match transport {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
        };
        values.push(("transport", "transport", name.into()));
    }
    if !flags.toolsets.is_empty() {
        values.push(("toolsets", "toolset", flags.toolsets.clone().into()));
    }
    if flags.insecure {
        values.push(("http.insecure", "insecure", true.into()));
    }
    if flags.playground {
        values.push(("http.playground", "inspect", true.into()));
    }
    values
}
