//! Server descriptions of a registry (`server.json`). Unused members are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
pub(super) struct List {
    #[serde(default)]
    pub(super) servers: Vec<ListedServer>,
    #[serde(default)]
    pub(super) metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) next_cursor: Option<String>,
}

/// A server with the registry's own metadata.
#[derive(Debug, Deserialize)]
pub(super) struct ListedServer {
    server: Server,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

impl ListedServer {
    pub(super) fn into_server(self) -> Server {
        let status = &self.meta["io.modelcontextprotocol.registry/official"]["status"];
        Server {
            status: status.as_str().map(str::to_owned),
            ..self.server
        }
    }
}

/// A server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Server {
    pub name: String,
    pub description: String,
    pub version: String,
    pub(super) packages: Vec<Package>,
    pub(super) remotes: Vec<Remote>,
    /// `active`, `deprecated` or `deleted`.
    #[serde(skip)]
    pub status: Option<String>,
}

impl Server {
    /// Returns descriptions of the ways to reach the server.
    pub fn ways(&self) -> Vec<&str> {
        let remotes = self.remotes.iter().map(|_| "http");
        let packages = self.packages.iter();
        let mut ways: Vec<_> = remotes
            .chain(packages.map(|package| package.registry_type.as_str()))
            .collect();
        ways.dedup();
        ways
    }
}

/// A downloadable program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Package {
    pub(super) registry_type: String,
    pub(super) identifier: String,
    pub(super) version: String,
    pub(super) transport: Transport,
    /// SHA-256 of a downloadable bundle, in hexadecimal digits.
    pub(super) file_sha256: Option<String>,
    pub(super) runtime_arguments: Vec<Argument>,
    pub(super) package_arguments: Vec<Argument>,
    pub(super) environment_variables: Vec<Named>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Transport {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// A remote server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Remote {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) url: String,
    pub(super) headers: Vec<Named>,
    pub(super) variables: BTreeMap<String, Input>,
}

/// An environment variable or a header.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) input: Input,
}

/// A command line argument.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Argument {
    /// `positional` or `named`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) value_hint: String,
    #[serde(flatten)]
    pub(super) input: Input,
}

/// A value that the user has to supply, or that is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Input {
    pub(super) description: String,
    pub(super) is_required: bool,
    pub(super) is_secret: bool,
    pub(super) value: Option<String>,
    pub(super) default: Option<String>,
    pub(super) variables: BTreeMap<String, Input>,
}
