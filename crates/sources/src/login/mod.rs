//! Login to a server: a user's consent in a browser yields a token that is stored.
//!
//! The flow is the authorization code grant with PKCE (OAuth 2.1), with a redirect to a port of this machine (RFC
//! 8252). The issuer is discovered by RFC 9728 and RFC 8414. Metadata of the server and its issuer is untrusted: only
//! public addresses are contacted, over `https`, unless the server itself is on this machine.

mod callback;
mod discovery;
mod flow;
mod kept;

pub(crate) use callback::Redirected;
pub use flow::{LoginRequest, log_in};
pub(crate) use flow::{Prepared, authorization_url, code_of, prepare, redeem, secret_text};
pub(crate) use kept::end_login;
pub use kept::{Known, log_out, log_out_user, logins};

use super::tokens::KeepError;
use crate::net::FetchError;

/// Reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("it does not ask who calls; there is nothing to log in to")]
    Open,
    #[error(
        "it does not say who gives tokens for it; ask whoever runs it for a token, and put that into LONGSHORE_TOKEN or into the configuration"
    )]
    NoMetadata,
    #[error("it says that it is {found:?}, which is another server")]
    OtherResource { found: String },
    #[error(
        "the issuer {0:?}, which gives tokens for it, publishes no metadata; name another with --issuer, or ask whoever runs the server for a token"
    )]
    NoIssuer(String),
    #[error(
        "it answers HTTP 401 without OAuth metadata (RFC 9728, RFC 8414), and registers no client at /register: it seems to \
         take a key or token that its operator gives out; put that into the variable LONGSHORE_TOKEN, or into `headers` of \
         the upstream's configuration"
    )]
    NoOAuth,
    #[error("{wanted:?} says that it is {found:?}")]
    OtherIssuer { found: String, wanted: String },
    #[error(
        "it names the issuer {issuer:?}, which would be sent the client secret on the server's word alone; name the issuer that \
         the client is registered with, by --issuer or by login_issuer"
    )]
    SecretWithoutIssuer { issuer: String },
    #[error("its issuer does not offer PKCE with S256, without which a login is not safe")]
    NoPkce,
    #[error("its issuer does not say where its {0} is")]
    NoEndpoint(&'static str),
    #[error(
        "its issuer registers no clients by itself: register one with the redirect URI {redirect}, and name it with --client-id (and a fixed --port)"
    )]
    NoClient { redirect: String },
    #[error("its issuer does not register this client: status {status}{}", of_problem(.problem))]
    NotRegistered { status: u16, problem: String },
    #[error("{url}: {problem}")]
    Document { url: url::Url, problem: String },
    #[error("cannot listen on port {port} of this machine: {source}")]
    Listen { port: u16, source: std::io::Error },
    #[error("nobody came back from the browser within {0} s")]
    Timeout(u64),
    #[error(
        "what came back is from another issuer than the one that was asked; nothing of it was used"
    )]
    MixedUp,
    #[error("the issuer says no: {0}")]
    Denied(String),
    #[error("the issuer sent no code")]
    NoCode,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Credentials(#[from] crate::source::credentials::CredentialError),
    #[error(
        "tokens are kept in memory (tokens.store), where nothing of this command's would be left: set tokens.store to file, or to state where there are replicas, or name a folder with --folder"
    )]
    InMemory,
    #[error("tokens cannot be read or kept in {place}: {source}")]
    Keep { place: String, source: KeepError },
    #[error("nobody is logged in")]
    NoLogin,
}

fn of_problem(problem: &str) -> String {
    match problem {
        "" => String::new(),
        problem => format!(" ({problem})"),
    }
}
