//! Tokens that somebody's consent gave, kept in a file that nobody else may read.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::net::{self, Client, Deadlines, Guard, Outgoing};
use crate::source::credentials::{CredentialError, basic_value, read_answer, write_secret};

/// What is kept of one login: a token, how to get the next, and from whom. Nothing in it is ever sent to another issuer
/// than the one that gave it, nor to another server than the one it is for.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// The server that it is for, as it names itself: the `resource` of RFC 8707.
    pub(crate) resource: String,
    /// Who gave it.
    pub(crate) issuer: String,
    pub(super) token_endpoint: String,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    /// The secret goes into the form, and not into a header.
    #[serde(default)]
    pub(super) secret_in_form: bool,
    pub(super) access_token: String,
    /// When it ends, in seconds since 1970; `None` where the issuer did not say.
    pub(super) expires: Option<u64>,
    pub(super) refresh_token: Option<String>,
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    /// Networks that the issuer may be in though they are not public.
    #[serde(default)]
    pub(super) networks: Vec<IpNet>,
}

impl fmt::Debug for Login {
    /// Leaves out tokens and secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("resource", &self.resource)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// What an issuer answers.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) access_token: String,
    #[serde(default)]
    pub(super) token_type: String,
    pub(super) expires_in: Option<f64>,
    pub(super) refresh_token: Option<String>,
    pub(super) scope: Option<String>,
}

const FILE_BYTES: u64 = 256 * 1024;
const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_BYTES: usize = 64 * 1024;
/// So long before it ends a token is got anew.
const MARGIN: u64 = 30;

/// The file of the login for a server. Servers that differ in the query of their URLs are different ones.
pub(crate) fn file_of(folder: &Path, server: &Url) -> PathBuf {
    let mut server = server.clone();
    server.set_fragment(None);
    if server.query() == Some("") {
        server.set_query(None);
    }
    let text = server.as_str().trim_end_matches('/');
    let digest = Sha256::digest(text);
    let digest = HEXLOWER.encode(&digest[..8]);
    let host = server.host_str().unwrap_or("server");
    let host: String = host
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                c
            } else {
                '_'
            }
        })
        .collect();
    folder.join(format!("{host}-{digest}.login"))
}

/// The file that the login for a server is in. It may be of a time when queries did not count.
pub(crate) fn existing_file(folder: &Path, server: &Url) -> PathBuf {
    let file = file_of(folder, server);
    if server.query().is_none() || file.exists() {
        return file;
    }
    let mut plain = server.clone();
    plain.set_query(None);
    let old = file_of(folder, &plain);
    match old.exists() {
        true => old,
        false => file,
    }
}

/// What tells whether a file is the one that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    number: u64,
}

impl Stamp {
    pub(super) fn of(file: &Path) -> io::Result<Self> {
        let found = std::fs::metadata(file)?;
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(&found);
        #[cfg(not(unix))]
        let number = 0;
        Ok(Self {
            modified: found.modified().ok(),
            bytes: found.len(),
            number,
        })
    }
}

/// How long whoever changes a login waits for others who do.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Holds the lock of a login until it is dropped: on a file beside it, which stays. `None` where there are no locks, as in a
/// folder that cannot be written to, or where whoever has it does not let go of it; nothing better can be done then
/// than to go on.
pub(super) async fn lock(login: &Path) -> Option<std::fs::File> {
    let file = login.with_extension("lock");
    let open = move || {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(file)
    };
    let lock = net::spawn_blocking(open).await.ok()?.ok()?;
    let deadline = tokio::time::Instant::now() + LOCK_PATIENCE;
    while tokio::time::Instant::now() < deadline {
        match lock.try_lock() {
            Ok(()) => return Some(lock),
            Err(std::fs::TryLockError::WouldBlock) => tokio::time::sleep(LOCK_PAUSE).await,
            Err(std::fs::TryLockError::Error(_)) => return None,
        }
    }
    None
}

impl Login {
    /// # Errors
    ///
    /// There is none, or the file is no login.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        std::fs::File::open(file)?
            .take(FILE_BYTES)
            .read_to_end(&mut text)?;
        // What is wrong may be told with the text, which nobody is to see.
        serde_json::from_slice(&text)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no login"))
    }

    /// Puts it into a file that nobody else may read, in the place of what was there.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        if let Some(folder) = file.parent() {
            let mut builder = std::fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.recursive(true).create(folder)?;
        }
        let text = serde_json::to_string_pretty(self)?;
        write_secret(file, &text)
    }

    /// Whether the token is good for a while.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.expires.is_none_or(|expires| now + MARGIN < expires)
    }

    /// Takes over what the issuer gave.
    pub(super) fn take(&mut self, granted: Granted, now: SystemTime) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let life = granted
            .expires_in
            .filter(|seconds| seconds.is_finite() && 0.0 <= *seconds)
            .map(|seconds| seconds.min(1e9) as u64);
        self.access_token = granted.access_token;
        self.expires = life.map(|life| now + life);
        if granted.refresh_token.is_some() {
            self.refresh_token = granted.refresh_token;
        }
        if let Some(scope) = granted.scope {
            self.scopes = scope.split_whitespace().map(str::to_owned).collect();
        }
    }

    /// Another token, for the refresh token (RFC 6749, 6).
    pub(super) async fn refresh(&self) -> Result<Granted, CredentialError> {
        let refresh = self.refresh_token.as_deref();
        let refresh = refresh.ok_or(CredentialError::LoginEnded)?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        self.ask(&self.token_endpoint, &fields).await
    }

    /// Sends a form to the issuer, with what proves who we are and which server it is about.
    pub(super) async fn ask(
        &self,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<Granted, CredentialError> {
        let answer = self.send(endpoint, fields).await?;
        let granted: Granted = read_answer(&answer)?;
        let is_bearer = granted.token_type.eq_ignore_ascii_case("bearer");
        if !is_bearer && !granted.token_type.is_empty() {
            return Err(CredentialError::NoToken);
        }
        Ok(granted)
    }

    pub(super) async fn send(
        &self,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<crate::net::Fetched, CredentialError> {
        let request = self.request(endpoint, fields)?;
        let server: Option<Url> = self.resource.parse().ok();
        let client = client(&self.networks, server.as_ref())?;
        Ok(client.fetch(request).await?)
    }

    fn request(
        &self,
        endpoint: &str,
        fields: &[(&str, &str)],
    ) -> Result<Outgoing, CredentialError> {
        let endpoint: Url = endpoint.parse().map_err(|_| CredentialError::NoToken)?;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        form.append_pair("resource", &self.resource);
        let mut proof = None;
        match &self.client_secret {
            Some(secret) if !self.secret_in_form => {
                // RFC 6749, 2.3.1: both are form-encoded before they become a name and a password.
                let encode = |text: &str| {
                    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
                };
                let value = basic_value(&encode(&self.client_id), &encode(secret));
                proof = Some(value.map_err(|_| CredentialError::NotText)?);
            }
            secret => {
                form.append_pair("client_id", &self.client_id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", secret);
                }
            }
        }
        let mut request =
            Outgoing::post(endpoint, "application/x-www-form-urlencoded", form.finish()).header(
                http::header::ACCEPT,
                http::HeaderValue::from_static("application/json"),
            );
        if let Some(proof) = proof {
            request = request.header(http::header::AUTHORIZATION, proof);
        }
        Ok(request)
    }
}

/// Whether a URL is of this machine, as in development, where `http` will do.
fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// A client for addresses that strangers may have named: public ones over `https`, and others only as far as whoever
/// logs in has said. The server itself was named by them; where that is on this machine, so may its issuer be.
pub(super) fn client(networks: &[IpNet], server: Option<&Url>) -> Result<Client, CredentialError> {
    let guard = match server {
        Some(server) if is_here(server) => Guard::public().allow_loopback(),
        Some(server) => Guard::public().https_only().trust(server),
        None => Guard::public().https_only(),
    };
    let guard = networks
        .iter()
        .fold(guard, |guard, network| guard.allow_network(*network));
    Client::builder(guard)
        .deadlines(Deadlines::total(ISSUER_TIMEOUT))
        .max_body(ANSWER_BYTES)
        .idle_connections(0)
        .build()
        .map_err(|error| CredentialError::Client(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_differ_in_their_query_have_files_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = |text: &str| Url::parse(text).expect("a URL");
        let file = |text: &str| file_of(folder.path(), &url(text));
        let plain = file("https://a.example/mcp");
        assert_eq!(plain, file("https://a.example/mcp/"));
        assert_eq!(plain, file("https://a.example/mcp?"));
        assert_eq!(plain, file("https://a.example/mcp#part"));
        let one = file("https://a.example/mcp?tenant=1");
        assert_ne!(plain, one);
        assert_ne!(one, file("https://a.example/mcp?tenant=2"));

        // One of a time when that was not so is used until there is a newer one.
        let server = url("https://a.example/mcp?tenant=1");
        assert_eq!(existing_file(folder.path(), &server), one);
        std::fs::write(&plain, "{}").expect("written");
        assert_eq!(existing_file(folder.path(), &server), plain);
        std::fs::write(&one, "{}").expect("written");
        assert_eq!(existing_file(folder.path(), &server), one);
    }
}
