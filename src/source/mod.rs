//! Tools that need no code: HTTP calls, operations of an OpenAPI document, command lines and WebAssembly components, as
//! configuration describes them; and those that come with the program.
//!
//! A mistake in one of them keeps that one from being offered, and no other; see [`Refused`](crate::catalog::Refused).

mod argument;
mod artifact;
mod builtin;
mod command;
mod config;
mod credentials;
mod exchange;
mod gauge;
mod http;
mod login;
mod name;
mod openapi;
mod pattern;
#[cfg(feature = "cli")]
mod registry;
mod response;
mod template;
mod upstream;
mod wasm;

pub use self::http::{
    HttpSourceConfig, HttpTool, HttpToolConfig, PagesConfig, ReadAs, ResponseConfig,
};
pub use argument::{ArgumentConfig, ArgumentType};
pub(crate) use artifact::{ARTIFACT_OUTCOMES, ArtifactError, Artifacts};
pub use artifact::{Artifact, ArtifactConfig, ArtifactFuture, ArtifactStore, S3Config};
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
pub(crate) use credentials::SharedTokens;
pub use credentials::{AuthConfig, BasicConfig, NamedSecret, OAuthConfig};
pub(crate) use gauge::Gauge;
#[cfg(feature = "cli")]
pub(crate) use login::{LoginError, LoginRequest, existing_file, log_in, log_out};
pub use openapi::{OpenApiSourceConfig, OperationTool, Selection};
#[cfg(feature = "cli")]
pub(crate) use registry::{
    Entry, OFFICIAL as REGISTRY, Preference, Registry, RegistryError, Server, described, entry,
};
pub(crate) use upstream::{
    Naming, SEPARATOR, TIMEOUT_SECONDS, UpstreamGauge, UpstreamRules, UpstreamStates, Upstreams,
};
pub use upstream::{OnChange, OnDown, UpstreamConfig, UpstreamError, UpstreamNames};
pub use wasm::{ComponentLimits, ComponentSourceConfig, ComponentToolConfig, DirectoryConfig};
