//! Errors that stop the start, as `main` prints them.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::origins::SettingOrigins;
use crate::audit::AuditError;
use crate::auth::{AuthSetupError, PolicyError};
use crate::catalog::{CatalogError, RejectedItem};
use crate::config::{Config, ConfigError};
use crate::seal::KeyError;
use crate::source::{TokensError, ToolsetError, UpstreamError};
use crate::state::OpenStateError;
use crate::transport::http::{ServerCardError, TlsError};

/// Reason why there cannot be an endpoint beside `/mcp`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint /mcp/{name} cannot be: {problem}")]
pub struct EndpointError {
    name: String,
    problem: String,
}

impl EndpointError {
    pub(super) fn new(name: &str, problem: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            problem: problem.into(),
        }
    }
}

/// Reason why a server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tool, a resource or a prompt cannot be offered.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Tools, resources or prompts need values that the application does not provide.
    #[error(
        "values are missing that App::provide must add before the server starts: {}",
        .0.join("; ")
    )]
    Unprovided(
        /// Item that needs the value and its type, for each.
        Vec<String>,
    ),
    /// The authentication settings are invalid.
    #[error(transparent)]
    Auth(#[from] AuthSetupError),
    /// The authorization server cannot be built as it is configured.
    #[error("{0}")]
    AuthorizationServer(String),
    /// The access rules are invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The audit log cannot be opened.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A sealing key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Invalid server card.
    #[error(transparent)]
    ServerCard(#[from] ServerCardError),
    /// The shared state cannot be opened.
    #[error(transparent)]
    State(#[from] OpenStateError),
    /// The token store cannot be opened.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A toolset does not exist, or its settings are invalid.
    #[error(transparent)]
    Toolset(#[from] ToolsetError),
    /// An endpoint beside `/mcp` is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The settings of an upstream server are invalid, or a mandatory one is down.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Another server returned an error.
    #[error("{server}: {problem}")]
    Remote {
        /// URL of the server, or its name in the configuration.
        server: String,
        /// Reason.
        problem: String,
    },
    /// Arguments of a tool, prompt or command are invalid.
    #[error("the arguments cannot be used: {0}")]
    Arguments(String),
    /// A command cannot be carried out.
    #[error("{0}")]
    Refused(String),
    /// A custom method has an invalid name.
    #[error("method {name:?} cannot be the application's own: {problem}")]
    Method {
        /// Name of the method.
        name: String,
        /// Reason.
        problem: &'static str,
    },
    /// [`App::run`](super::App::run) was called within a runtime.
    #[error(
        "App::run creates a runtime, but was called inside one: make main a plain fn without #[tokio::main], or serve with App::serve().await"
    )]
    WithinRuntime,
    /// Sources or upstream servers are configured, and none has a valid item.
    #[error("the catalog cannot be built: {0}")]
    NothingOffered(RejectedItem),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// Address.
        address: SocketAddr,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// The Unix socket cannot be bound.
    #[error("cannot listen on {}", path.display())]
    BindFile {
        /// Path.
        path: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
    /// An error with the location of its setting.
    #[error("{place}: {error}")]
    At {
        /// File, line and column, or variable.
        place: String,
        /// Error.
        error: Box<Self>,
    },
    /// A function of [`App::on_start`](super::App::on_start) failed.
    #[error("a function of App::on_start failed")]
    OnStart(#[source] Box<dyn Error + Send + Sync>),
    /// A system call failed.
    #[error("the operating system refused a resource that the server needs")]
    Io(#[from] io::Error),
}

/// Result of `main`. An error is printed with all its causes, and the exit code is 1.
pub type Result<T = (), E = MainError> = std::result::Result<T, E>;

/// Error that `main` prints for a person. Every error converts into it, so that `?` works in `main`.
pub struct MainError(Box<dyn Error + Send + Sync>);

impl<E: Error + Send + Sync + 'static> From<E> for MainError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Debug for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for MainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut error: &(dyn Error + 'static) = &*self.0;
        while let Some(AppError::At {
            place,
            error: inner,
        }) = error.downcast_ref()
        {
            write!(f, "{place}: ")?;
            error = &**inner;
        }
        write!(f, "{error}")?;
        let known: Option<&AppError> = error.downcast_ref();
        let advice = known.and_then(AppError::advice);
        let code = known.and_then(AppError::code);
        let mut source = error.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        if let Some(advice) = advice {
            write!(f, "; {advice}")?;
        }
        match code {
            Some(code) => write!(f, " [{code}]"),
            None => Ok(()),
        }
    }
}

impl MainError {
    /// Returns true if the arguments of a command are invalid.
    #[doc(hidden)]
    pub fn is_of_arguments(&self) -> bool {
        matches!(self.0.downcast_ref(), Some(AppError::Arguments(_)))
    }
}

impl AppError {
    /// Returns the stable code of an error that stops the start, such as `LS-LISTEN-01`; `None` for errors of commands.
    pub fn code(&self) -> Option<&'static str> {
        Some(match self {
            Self::Config(error) => match error {
                ConfigError::Read { .. } => "LS-CONFIG-01",
                ConfigError::NotBuilt { .. } => "LS-CONFIG-02",
                ConfigError::Kind { .. } => "LS-CONFIG-03",
                ConfigError::File { .. } => "LS-CONFIG-04",
                ConfigError::Diagnostics(_) => "LS-CONFIG-05",
                ConfigError::Conflicts(_) => "LS-CONFIG-06",
            },
            Self::Auth(error) => match error {
                AuthSetupError::Read { .. } => "LS-AUTH-01",
                AuthSetupError::Line { .. } => "LS-AUTH-02",
                AuthSetupError::Key { .. } => "LS-AUTH-03",
                AuthSetupError::SharedKey { .. } => "LS-AUTH-04",
                AuthSetupError::NoKeys => "LS-AUTH-05",
                AuthSetupError::NotConfigured { .. } => "LS-AUTH-06",
                AuthSetupError::OAuth(_) => "LS-AUTH-07",
                _ => "LS-AUTH-08",
            },
            Self::AuthorizationServer(_) => "LS-AUTH-09",
            Self::Policy(_) => "LS-AUTH-10",
            Self::Catalog(_) => "LS-CATALOG-01",
            Self::Unprovided(_) => "LS-CATALOG-02",
            Self::NothingOffered(_) => "LS-CATALOG-03",
            Self::Method { .. } => "LS-CATALOG-04",
            Self::Endpoint(_) => "LS-CATALOG-05",
            Self::Audit(_) => "LS-AUDIT-01",
            Self::Key(_) => "LS-SEAL-01",
            Self::ServerCard(_) => "LS-CATALOG-06",
            Self::State(_) => "LS-STATE-01",
            Self::Tokens(_) => "LS-TOKENS-01",
            Self::Tls(_) => "LS-TLS-01",
            Self::Toolset(_) => "LS-SOURCE-01",
            Self::Upstream(_) => "LS-SOURCE-02",
            Self::Bind { .. } => "LS-LISTEN-01",
            Self::BindFile { .. } => "LS-LISTEN-02",
            Self::OnStart(_) => "LS-APP-01",
            Self::WithinRuntime => "LS-APP-02",
            Self::Io(_) => "LS-APP-03",
            Self::At { error, .. } => return error.code(),
            Self::Remote { .. } | Self::Arguments(_) | Self::Refused(_) => return None,
        })
    }

    /// Adds the location of the setting, if it is known.
    pub(super) fn located(self, origins: &SettingOrigins, config: &Config) -> Self {
        let setting = match &self {
            Self::Tls(TlsError::File { setting, .. }) => Some(*setting),
            Self::Audit(AuditError::Open { .. } | AuditError::NoFile { .. }) => Some("audit.file"),
            Self::BindFile { .. } => Some("http.unix_socket"),
            Self::Toolset(ToolsetError::Setting { setting, .. }) => Some(setting.as_str()),
            #[cfg(feature = "sources")]
            Self::Toolset(ToolsetError::Unknown { .. }) => Some("toolsets"),
            Self::Key(_) => Some("seal.keys"),
            Self::Policy(error) => Some(error.setting()),
            Self::State(OpenStateError::File { setting, .. }) => Some(*setting),
            Self::State(_) => Some("state.url"),
            Self::Auth(AuthSetupError::Key { .. }) => Some("auth.api_keys"),
            Self::Auth(AuthSetupError::Read { path, .. } | AuthSetupError::Line { path, .. }) => {
                let is_file = config.auth.api_keys_file.as_ref() == Some(path);
                Some(match is_file {
                    true => "auth.api_keys_file",
                    false => "auth.api_keys_dir",
                })
            }
            _ => None,
        };
        match setting.and_then(|setting| origins.of(setting)) {
            Some(place) => Self::At {
                place,
                error: Box::new(self),
            },
            None => self,
        }
    }

    /// Returns advice, unless the message contains it.
    fn advice(&self) -> Option<&'static str> {
        let source = match self {
            Self::Bind { source, .. } => source,
            Self::BindFile { .. } => {
                return Some(
                    "name another path with http.unix_socket (LONGSHORE_HTTP__UNIX_SOCKET), in a folder that this user may write",
                );
            }
            Self::Config(ConfigError::Read { .. }) => {
                return Some("name one that can be read with --config or LONGSHORE_CONFIG");
            }
            _ => return None,
        };
        match source.kind() {
            io::ErrorKind::AddrInUse => Some(
                "another program listens on this port: stop it, or choose another port with --port or LONGSHORE_PORT, or for operators with http.admin.port (0 selects a free one)",
            ),
            io::ErrorKind::AddrNotAvailable => Some(
                "this machine does not have this address: choose another one with --host or LONGSHORE_HOST (0.0.0.0 for all interfaces)",
            ),
            io::ErrorKind::PermissionDenied => Some(
                "ports below 1024 are for privileged processes: choose another with --port or LONGSHORE_PORT",
            ),
            _ => None,
        }
    }
}
