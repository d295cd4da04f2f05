//! Login to a server: a user's consent in a browser yields a token that is stored.
//!
//! The flow is the authorization code grant with PKCE (OAuth 2.1), with a redirect to a port of this machine (RFC
//! 8252). The issuer is discovered by RFC 9728 and RFC 8414. Metadata of the server and its issuer is untrusted: only
//! public addresses are contacted, over `https`, unless the server itself is on this machine.

mod callback;
mod discovery;
mod flow;
mod registrations;
mod token_admin;

pub(crate) use callback::Redirected;
pub(super) use discovery::{Issuer, cut, endpoint, issuer};
pub use flow::{LoginRequest, log_in};
pub(crate) use flow::{PreparedLogin, authorization_url, code_of, prepare, redeem, secret_text};
pub(crate) use registrations::Registrations;
pub(crate) use token_admin::end_login;
pub use token_admin::{StoredToken, log_out, log_out_user, logins};

use super::tokens::KeepError;
use crate::net::FetchError;

/// Reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error("it does not require authentication; no login is needed")]
    Open,
    #[error(
        "it does not name an issuer of tokens; ask its operator for a token, and put it into LONGSHORE_TOKEN or into the configuration"
    )]
    NoMetadata,
    #[error("its metadata is that of another server, {found:?}")]
    OtherResource { found: String },
    #[error(
        "its issuer {0:?} publishes no metadata; name another one with --issuer, or ask the operator of the server for a token"
    )]
    NoIssuer(String),
    #[error(
        "it requires authentication (HTTP 401), but has no OAuth metadata (RFC 9728, RFC 8414), and registers no client at /register. It probably needs an API key or token from its operator: put that into the variable LONGSHORE_TOKEN, or into `headers` of the upstream's configuration"
    )]
    NoOAuth,
    #[error("the metadata of {wanted:?} is that of another issuer, {found:?}")]
    OtherIssuer { found: String, wanted: String },
    #[error(
        "it names the issuer {issuer:?}, and the client secret is not sent to an issuer that only the server names; name the issuer of the client with --issuer or login_issuer"
    )]
    SecretWithoutIssuer { issuer: String },
    #[error("its issuer does not offer PKCE with S256, without which a login is not safe")]
    NoPkce,
    #[error("its issuer does not say where its {0} is")]
    NoEndpoint(&'static str),
    #[error(
        "its issuer does not register clients: register one with the redirect URI {redirect}, and name it with --client-id (and a fixed --port)"
    )]
    NoClient { redirect: String },
    #[error("its issuer does not register this client: status {status}{}", of_problem(.problem))]
    NotRegistered { status: u16, problem: String },
    #[error("{url}: {problem}")]
    Document { url: url::Url, problem: String },
    #[error("cannot listen on port {port} of this machine: {source}")]
    Listen { port: u16, source: std::io::Error },
    #[error("the login was not completed within {0} s; try again, with more time by --timeout")]
    Timeout(u64),
    #[error("the response is from another issuer than the one that was asked; it was discarded")]
    MixedUp,
    #[error("the issuer rejected the login: {0}")]
    Denied(String),
    #[error("the issuer sent no code")]
    NoCode,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Credentials(#[from] crate::source::credentials::CredentialError),
    #[error(
        "tokens.store is memory, so the token would be lost when this command ends: set tokens.store to file, or to state if there are replicas, or name a folder with --folder"
    )]
    InMemory,
    #[error("tokens cannot be read or stored in {place}: {source}")]
    Keep { place: String, source: KeepError },
    #[error("there is no login")]
    NoLogin,
}

fn of_problem(problem: &str) -> String {
    match problem {
        "" => String::new(),
        problem => format!(" ({problem})"),
    }
}
