//! Connection to a server, with its credentials.

mod hints;

use std::time::Duration;

use longshore_app::config::Config;
use longshore_sources::client::{Client, ClientError, Lifecycle, Options, Target};
use serde_json::{Map, json};
use tokio::runtime::Runtime;
use url::Url;

use super::server::{TOKEN, at_mcp, at_url, find};
use super::{Answers, Failure, ServerArgs, clean, of_server, shell_word};
use crate::app::{AppError, tokens};
use crate::cli::login::log_in_at;
use crate::cli::run::runtime;
use crate::cli::{output, terminal};
use crate::environment::Probe;
use crate::net::{FetchError, challenge_parameter, with_causes};
use crate::source::{LoginError, Tokens, UpstreamConfig, default_folder, has_login, logins};
use hints::hint;

/// Credential for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credential {
    None,
    /// The variable `LONGSHORE_TOKEN`.
    Variable,
    /// A token entered at the prompt.
    Typed,
    /// A token of `longshore login`.
    Login,
    /// Headers or `auth` in the configuration.
    Configured,
}

/// A server and its credential.
pub(super) struct Access {
    upstream: UpstreamConfig,
    tokens: Tokens,
    credential: Credential,
    /// True if it was given by URL.
    is_url: bool,
}

impl Access {
    fn of(server: &ServerArgs) -> Result<Self, Failure> {
        let (upstream, config) = find(&server.server, server.config.clone())?;
        Self::with(upstream, config.as_ref(), server)
    }

    fn with(
        mut upstream: UpstreamConfig,
        config: Option<&Config>,
        server: &ServerArgs,
    ) -> Result<Self, Failure> {
        let is_url = config.is_none();
        if is_url {
            upstream.timeout_seconds = Some(server.timeout);
        }
        let is_configured = !upstream.headers.is_empty() || upstream.auth.is_some();
        let login = use_login(&mut upstream);
        let credential = match (&login, is_configured) {
            (Some(_), _) => Credential::Login,
            (None, false) => Credential::None,
            (None, true) if upstream.auth.login => Credential::Login,
            (None, true) if is_url => Credential::Variable,
            (None, true) => Credential::Configured,
        };
        let tokens = match (login, config) {
            (Some(tokens), _) => tokens,
            (None, Some(config)) => tokens(config)?,
            (None, None) => Tokens::default(),
        };
        Ok(Self {
            upstream,
            tokens,
            credential,
            is_url,
        })
    }

    /// Returns the same server at another URL, or with an entered token.
    fn changed(
        &self,
        url: &str,
        token: Option<&str>,
        server: &ServerArgs,
    ) -> Result<Self, Failure> {
        let of_variable = super::server::token(Probe::real());
        let upstream = at_url(url.to_owned(), token.or(of_variable));
        let mut access = Self::with(upstream, None, server)?;
        if token.is_some() {
            access.credential = Credential::Typed;
        }
        Ok(access)
    }

    fn url(&self) -> Option<Url> {
        self.upstream.url.as_deref()?.parse().ok()
    }

    /// Returns `/mcp` of a server that was given without a path.
    fn at_mcp(&self) -> Option<Url> {
        at_mcp(&self.url().filter(|_| self.is_url)?)
    }

    /// What a connection needs.
    fn connection(
        &self,
        server: &ServerArgs,
        answers: Option<Answers>,
    ) -> Result<(Target, Options), AppError> {
        let name = &server.server;
        let target = self
            .upstream
            .target(name)
            .map_err(|error| match self.is_url {
                true => AppError::Remote {
                    server: name.clone(),
                    problem: error.into_problem(),
                },
                false => error.into(),
            })?;
        let credentials = self.upstream.proof(name, &self.tokens)?;
        let limit = Duration::from_secs(server.timeout);
        let mut capabilities = Map::new();
        if let Some(answers) = answers {
            let elicitation = match answers {
                Answers::Ask => json!({"form": {}, "url": {}}),
                Answers::AcceptDefaults | Answers::Decline => json!({"form": {}}),
            };
            capabilities.insert("elicitation".to_owned(), elicitation);
        }
        let options = Options {
            name: name.clone(),
            capabilities,
            lifecycle: server
                .protocol
                .map_or(self.upstream.protocol, Lifecycle::from),
            connect_timeout: limit,
            request_timeout: limit,
            message_bytes: self.upstream.message_bytes,
            credentials,
            ..Options::default()
        };
        Ok((target, options))
    }

    /// Offers a login, or a prompt for a token if the server has no login. Returns `None` if the user declines.
    fn offer(&self, server: &ServerArgs, challenge: &str) -> Result<Option<Self>, Failure> {
        let Some(url) = self.url() else {
            return Ok(None);
        };
        let what = self.refused(challenge);
        output::remark(&format!("{}: {what}", server.server));
        if !terminal::confirm("Log in now?").map_err(AppError::from)? {
            return Ok(None);
        }
        let done = match self.is_url {
            true => log_in_at(url.as_str(), None),
            false => log_in_at(&server.server, server.config.clone()),
        };
        match done? {
            Ok(()) if self.is_url => self.changed(url.as_str(), None, server).map(Some),
            Ok(()) => Self::of(server).map(Some),
            Err(LoginError::NoOAuth | LoginError::NoMetadata) if self.is_url => {
                output::remark(&format!(
                    "{url} has no login: it publishes no OAuth metadata. It may need an API key or another token."
                ));
                if let Some(hint) = hint(&url) {
                    output::remark(&format!("Tokens are made at {hint}"));
                }
                let token = terminal::secret("Token").map_err(AppError::from)?;
                if token.is_empty() {
                    return Ok(None);
                }
                output::remark(&format!(
                    "The token is not stored; every command reads the variable {TOKEN}."
                ));
                self.changed(url.as_str(), Some(&token), server).map(Some)
            }
            Err(error) => Err(of_server(&server.server, with_causes(&error))),
        }
    }

    /// Explains an HTTP 401, depending on the credential that was sent.
    fn refused(&self, challenge: &str) -> String {
        let said = challenge_parameter(challenge, "error_description")
            .or_else(|| challenge_parameter(challenge, "error"))
            .map_or_else(String::new, |said| format!(": {}", clean(&said)));
        let sent = match self.credential {
            Credential::None => return "the server asks for credentials (HTTP 401)".to_owned(),
            Credential::Variable => "the token in the variable LONGSHORE_TOKEN",
            Credential::Typed => "this token",
            Credential::Login => "the token of the last login",
            Credential::Configured => "the credentials that the configuration has for it",
        };
        format!("the server rejects {sent} (HTTP 401{said})")
    }

    /// Formats an error with advice.
    pub(super) fn failure(&self, server: &ServerArgs, error: &ClientError) -> Failure {
        let name = match self.url().filter(|_| self.is_url) {
            Some(url) => url.to_string(),
            None => server.server.clone(),
        };
        let mut login = format!("longshore login {}", shell_word(&name));
        if let Some(file) = server.config.as_deref().filter(|_| !self.is_url) {
            login.push_str(&format!(
                " --config {}",
                shell_word(&file.to_string_lossy())
            ));
        }
        let problem = match error {
            ClientError::Unauthorized { challenge } => {
                // Without metadata the server probably has API keys only.
                let has_login = challenge_parameter(challenge, "resource_metadata").is_some();
                let advice = match self.credential {
                    Credential::None if self.is_url && has_login => {
                        format!("log in with `{login}`, or put a token into the variable {TOKEN}")
                    }
                    Credential::None if self.is_url => {
                        format!(
                            "put a token or an API key into the variable {TOKEN}, or try `{login}`"
                        )
                    }
                    Credential::None => format!(
                        "log in with `{login}`, or give the upstream headers or auth in the configuration"
                    ),
                    Credential::Variable if !has_login => "put another one into it".to_owned(),
                    Credential::Variable => {
                        format!("put another token into it, or unset it and log in with `{login}`")
                    }
                    Credential::Typed if !has_login => "try another".to_owned(),
                    Credential::Typed => format!("try another, or log in with `{login}`"),
                    Credential::Login => format!("log in again with `{login}`"),
                    Credential::Configured => {
                        "correct the upstream's headers or auth in the configuration".to_owned()
                    }
                };
                format!("{}; {advice}", self.refused(challenge))
            }
            ClientError::InsufficientScope { scope } => {
                let scopes: Vec<String> = scope.split_whitespace().map(clean).collect();
                let lacks = match &scopes[..] {
                    [] => "lacks a scope".to_owned(),
                    scopes => format!("lacks the scope {}", scopes.join(" ")),
                };
                let advice = match self.credential {
                    Credential::Login => {
                        let mut all = self.scopes_of_login();
                        all.extend(scopes);
                        all.sort_unstable();
                        all.dedup();
                        let wanted: String = all
                            .iter()
                            .map(|scope| format!(" --scope {}", shell_word(scope)))
                            .collect();
                        format!("log in again with `{login}{wanted}`")
                    }
                    _ => "use a token that has it".to_owned(),
                };
                format!("the token {lacks} (HTTP 403 insufficient_scope); {advice}")
            }
            ClientError::Http(FetchError::Connect { .. }) => {
                format!(
                    "{}; start the server, or correct its URL",
                    with_causes(error)
                )
            }
            ClientError::Http(FetchError::Resolve { .. }) => {
                format!("{}; correct its URL, or check the DNS", with_causes(error))
            }
            ClientError::Gone(problem) if self.upstream.command.is_some() => format!(
                "{problem}; check its command, args and env (what it writes to standard error is shown above)"
            ),
            ClientError::Status {
                status: 404 | 405, ..
            } => format!(
                "{}; give the URL of the MCP endpoint, which often ends in /mcp",
                with_causes(error)
            ),
            error => with_causes(error),
        };
        of_server(&server.server, problem)
    }

    /// Returns the scopes of the stored login.
    fn scopes_of_login(&self) -> Vec<String> {
        let Some(url) = self.url() else {
            return Vec::new();
        };
        let known = runtime().map(|runtime| runtime.block_on(logins(&self.tokens)));
        let Ok(Ok(known)) = known else {
            return Vec::new();
        };
        let mut known = known.into_iter();
        known
            .find(|known| known.is_login && known.server == url.as_str())
            .map_or_else(Vec::new, |known| known.scopes)
    }
}

/// Connects to the server. The user may be asked to log in; a URL without a path is also tried at `/mcp`.
pub(super) fn connected(
    runtime: &Runtime,
    server: &ServerArgs,
    answers: Option<Answers>,
) -> Result<(Client, Access), Failure> {
    let (upstream, config) = find(&server.server, server.config.clone())?;
    if let (None, Some(config)) = (&upstream.url, &config) {
        output::show_programs(&config.log)?;
    }
    let _entered = runtime.enter();
    let mut access = Access::with(upstream, config.as_ref(), server)?;
    let mut may_ask = !server.json && terminal::has_person();
    let mut is_second = false;
    loop {
        let (target, options) = access.connection(server, answers)?;
        let error = match runtime.block_on(Client::connect(target, options)) {
            Ok(client) => return Ok((client, access)),
            Err(error) => error,
        };
        if let Some(url) = access.at_mcp()
            && is_no_endpoint(&error)
        {
            output::remark(&format!(
                "there is no MCP endpoint at {}/; trying {url}",
                server.server.trim_end_matches('/')
            ));
            let other = access.changed(url.as_str(), None, server)?;
            is_second = true;
            access = other;
            continue;
        }
        if let ClientError::Unauthorized { challenge } = &error
            && may_ask
            && matches!(access.credential, Credential::None | Credential::Login)
        {
            may_ask = false;
            if let Some(changed) = access.offer(server, challenge)? {
                access = changed;
                continue;
            }
        }
        if is_second && is_no_endpoint(&error) && !matches!(error, ClientError::Unauthorized { .. })
        {
            let root = server.server.trim_end_matches('/');
            return Err(of_server(
                &server.server,
                format!(
                    "no MCP endpoint at {root}/ or {root}/mcp ({}); give the whole URL",
                    with_causes(&error)
                ),
            ));
        }
        return Err(access.failure(server, &error));
    }
}

/// Connects without a message or a question to the user. Programs are not started.
pub(super) fn connected_silently(runtime: &Runtime, server: &ServerArgs) -> Option<Client> {
    let _entered = runtime.enter();
    let connect = |access: &Access| {
        let (target, options) = access.connection(server, None).ok()?;
        runtime.block_on(Client::connect(target, options)).ok()
    };
    let access = Access::of(server).ok()?;
    access.upstream.url.as_ref()?;
    connect(&access).or_else(|| {
        let url = access.at_mcp()?;
        connect(&access.changed(url.as_str(), None, server).ok()?)
    })
}

/// Returns true if the peer responds but may not be an MCP server.
fn is_no_endpoint(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Status { .. }
            | ClientError::Protocol(_)
            | ClientError::Rpc(_)
            | ClientError::Unauthorized { .. }
    )
}

/// Uses a stored login if no other credential is configured. Returns its store.
fn use_login(config: &mut UpstreamConfig) -> Option<Tokens> {
    let has_other = config
        .headers
        .keys()
        .any(|name| name.eq_ignore_ascii_case("authorization"));
    if has_other || config.auth.is_some() {
        return None;
    }
    let url = config.url.as_deref()?.parse().ok()?;
    let folder = default_folder(Probe::real()).filter(|folder| has_login(folder, &url))?;
    config.auth.login = true;
    Some(Tokens::in_folder(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_hosts_below_a_domain() {
        let of = |url: &str| hint(&url.parse().expect("a URL"));
        assert!(of("https://mcp.sentry.dev/mcp").is_some_and(|page| page.contains("sentry")));
        assert!(of("https://github.com/x").is_some());
        assert_eq!(of("https://notgithub.com/mcp"), None);
        assert_eq!(of("http://127.0.0.1:3000/mcp"), None);
    }
}
