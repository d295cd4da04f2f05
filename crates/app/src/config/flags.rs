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

/// Returns the flags that are given: the setting, the name of the flag, and the value.
pub(super) fn flag_values(
    flags: &Flags,
) -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    let on = |is_given: bool| is_given.then_some(Value::Bool(true));
    let transport = flags.transport.map(|transport| match transport {
        Transport::Http => "http",
        Transport::Stdio => "stdio",
    });
    let toolsets = Some(&flags.toolsets).filter(|toolsets| !toolsets.is_empty());
    let all = [
        ("http.host", "host", flags.host.clone().map(Value::from)),
        ("http.port", "port", flags.port.map(Value::from)),
        ("http.workers", "workers", flags.workers.map(Value::from)),
        ("transport", "transport", transport.map(Value::from)),
        ("toolsets", "toolset", toolsets.cloned().map(Value::from)),
        ("http.insecure", "insecure", on(flags.insecure)),
        ("http.playground", "inspect", on(flags.playground)),
    ];
    all.into_iter()
        .filter_map(|(setting, flag, value)| Some((setting, flag, value?)))
}
