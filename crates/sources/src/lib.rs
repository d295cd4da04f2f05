//! Tools that need no code: HTTP calls, OpenAPI operations, command lines and WebAssembly components as described in
//! the configuration, and the built-in toolsets.
//!
//! An invalid item is rejected alone; the others are still offered. See [`Refused`](crate::catalog::Refused).

mod argument;
mod artifact;
#[path = "../../toolsets/src/lib.rs"]
mod builtin;
mod command;
mod conceal;
mod config;
mod credentials;
mod exchange;
mod gauge;
mod http;
#[cfg(feature = "cli")]
mod login;
mod name;
mod openapi;
mod pattern;
mod promise;
#[cfg(feature = "cli")]
mod registry;
mod response;
mod template;
#[cfg(test)]
mod testing;
mod tokens;
mod upstream;
mod wasm;

pub use self::http::{
    HttpSourceConfig, HttpTool, HttpToolConfig, PagesConfig, ReadAs, ResponseConfig,
};
pub use argument::{ArgumentConfig, ArgumentType};
pub(crate) use artifact::{ARTIFACT_OUTCOMES, ArtifactError, Artifacts};
pub use artifact::{Artifact, ArtifactConfig, ArtifactFuture, ArtifactStore, S3Config};
#[cfg(feature = "cli")]
pub(crate) use builtin::NAMES as TOOLSETS;
pub use builtin::{
    AuthorConfig, BuiltinConfig, DatabaseConfig, FetchConfig, FilesystemConfig, FilesystemLimits,
    GitConfig, GitLimits, MemoryConfig, QueryConfig, SqlConfig, SqlLimits, TimeConfig,
    ToolsetError,
};
pub(crate) use builtin::{Grounds, builtin};
pub use command::{
    CommandLimits, CommandOutput, CommandSourceConfig, CommandTool, CommandToolConfig,
};
#[cfg(feature = "cli")]
pub(crate) use command::{Discovery, discover};
pub(crate) use config::{Collected, offered, offered_at};
pub use config::{ExchangeLimits, SourceConfig};
pub use credentials::{AuthConfig, BasicConfig, NamedSecret, OAuthConfig};
pub(crate) use gauge::Gauge;
#[cfg(feature = "cli")]
pub(crate) use login::{Known, LoginError, LoginRequest, log_in, log_out, logins};
pub use openapi::{OpenApiSourceConfig, OperationTool, Selection};
#[cfg(feature = "cli")]
pub(crate) use registry::{
    Entry, OFFICIAL as REGISTRY, Preference, Registry, RegistryError, Server, described, entry,
};
pub(crate) use tokens::Tokens;
pub use tokens::{TokenStore, TokensConfig, TokensError};
#[cfg(feature = "cli")]
pub(crate) use tokens::{default_folder, has_login};
pub(crate) use upstream::{
    Naming, SEPARATOR, TIMEOUT_SECONDS, UpstreamGauge, UpstreamRules, UpstreamStates, Upstreams,
};
pub use upstream::{OnChange, OnDown, UpstreamConfig, UpstreamError, UpstreamNames};
pub use wasm::{ComponentLimits, ComponentSourceConfig, ComponentToolConfig, DirectoryConfig};
