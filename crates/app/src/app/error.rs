//! Why a server cannot run, as `main` shows it to a person.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::compose::Places;
use super::mounts::EndpointError;
use crate::audit::AuditError;
use crate::auth::{AuthSetupError, PolicyError};
use crate::catalog::{CatalogError, Refused};
use crate::config::{Config, ConfigError};
use crate::seal::KeyError;
use crate::source::{TokensError, ToolsetError, UpstreamError};
use crate::state::OpenStateError;
use crate::transport::http::TlsError;

/// Why a server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tool, a resource or a prompt cannot be offered.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Tools, resources or prompts need values that the application does not provide.
    #[error(
        "values are missing that App::provide has to add before the server starts: {}",
        .0.join("; ")
    )]
    Unprovided(
        /// Of each, what needs it and its type.
        Vec<String>,
    ),
    /// Callers cannot be asked for a proof as it was configured.
    #[error(transparent)]
    Auth(#[from] AuthSetupError),
    /// The authorization server cannot be built as it is configured.
    #[error("{0}")]
    AuthorizationServer(String),
    /// The rules of who sees and uses what make no sense.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There can be no audit log as it was configured.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// A sealing key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The shared state cannot be opened.
    #[error(transparent)]
    State(#[from] OpenStateError),
    /// There is no place for tokens as it was configured.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no such toolset, or it cannot work with its settings.
    #[error(transparent)]
    Toolset(#[from] ToolsetError),
    /// An endpoint beside `/mcp` cannot be.
    #[error(transparent)]
    Mount(#[from] EndpointError),
    /// An upstream server is not what its configuration says.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// Another server did not do what it was asked to do.
    #[error("{server}: {problem}")]
    Remote {
        /// Its URL, or its name in the configuration.
        server: String,
        /// Why not.
        problem: String,
    },
    /// Arguments for a tool or a prompt are not what they should be.
    #[error("the arguments cannot be used: {0}")]
    Arguments(String),
    /// A command cannot do what it was told to do as things are.
    #[error("{0}")]
    Refused(String),
    /// A method of the application's own cannot be answered.
    #[error("method {name:?} cannot be the application's own: {problem}")]
    Method {
        /// Its name.
        name: String,
        /// Why not.
        problem: &'static str,
    },
    /// [`App::run`](super::App::run) was called where a runtime runs already.
    #[error(
        "App::run starts a runtime of its own, and there is one already: make main a plain fn without #[tokio::main], or \
         serve with App::bind and BoundServer::serve().await"
    )]
    WithinRuntime,
    /// Other servers or descriptions are configured, and none of them has anything to offer.
    #[error("nothing can be offered: {0}")]
    NothingOffered(Refused),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The socket in the file system cannot be listened on.
    #[error("cannot listen on {}", path.display())]
    BindFile {
        /// Which one.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A setting cannot be used, and where it was said.
    #[error("{place}: {error}")]
    At {
        /// The file, line and column, or the variable.
        place: String,
        /// What is wrong.
        error: Box<Self>,
    },
    /// The system refused something.
    #[error("the system refused what the server needs")]
    Io(#[from] io::Error),
}

/// What `main` returns: an error is printed with all its causes, and the exit code is 1.
pub type Result<T = (), E = MainError> = std::result::Result<T, E>;

/// An error as `main` shows it to a person. Every error becomes one, so that `?` works for what an application does before it
/// serves, such as connecting to a database.
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
        let mut source = error.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        match error.downcast_ref().and_then(AppError::advice) {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl AppError {
    /// Says where the setting was said that it is about, if that is known.
    pub(super) fn located(self, places: &Places, config: &Config) -> Self {
        let setting = match &self {
            Self::Tls(TlsError::File { setting, .. }) => Some(*setting),
            Self::Audit(AuditError::Open { .. } | AuditError::NoFile { .. }) => Some("audit.file"),
            Self::BindFile { .. } => Some("http.unix_socket"),
            Self::Toolset(ToolsetError::Setting { setting, .. }) => Some(setting.as_str()),
            Self::Auth(AuthSetupError::Read { path, .. } | AuthSetupError::Line { path, .. }) => {
                let is_file = config.auth.api_keys_file.as_ref() == Some(path);
                Some(match is_file {
                    true => "auth.api_keys_file",
                    false => "auth.api_keys_dir",
                })
            }
            _ => None,
        };
        match setting.and_then(|setting| places.of(setting)) {
            Some(place) => Self::At {
                place,
                error: Box::new(self),
            },
            None => self,
        }
    }

    /// What to do about it, where the error's own words do not say so.
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
                "another program has this port: stop it, or choose another with --port or LONGSHORE_PORT, or for operators with http.admin.port (0 takes one that is free)",
            ),
            io::ErrorKind::AddrNotAvailable => Some(
                "this machine has no such address: choose another with --host or LONGSHORE_HOST (0.0.0.0 is all it has)",
            ),
            io::ErrorKind::PermissionDenied => Some(
                "ports below 1024 are for privileged processes: choose another with --port or LONGSHORE_PORT",
            ),
            _ => None,
        }
    }
}
