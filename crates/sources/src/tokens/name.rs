//! Names of stored grants.

use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use url::Url;

use crate::seal::digest;

/// Identifies the server or API of a grant. It is also a file name: host, digest and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(String);

const LOGIN: &str = "login";
const TOKEN: &str = "token";
const USER: &str = "user";
/// Number of digest bytes in a name.
const DIGEST_BYTES: usize = 16;

impl Name {
    /// Returns the name for a login at a server. URLs with different queries name different servers.
    pub(crate) fn of_login(server: &Url) -> Self {
        let mut server = server.clone();
        server.set_fragment(None);
        if server.query() == Some("") {
            server.set_query(None);
        }
        let text = server.as_str().trim_end_matches('/');
        Self::new(server.host_str(), &[text.as_bytes()], LOGIN)
    }

    /// Returns the name for a configured refresh token: of one issuer, client, resource and initial token.
    pub(crate) fn of_token(issuer: &Url, client: &str, resource: &str, first: &str) -> Self {
        let parts = [issuer.as_str(), client, resource, first].map(str::as_bytes);
        Self::new(issuer.host_str(), &parts, TOKEN)
    }

    /// Returns the name for a user's own login at the API of a source.
    pub(crate) fn of_user(source: &str, host: &str, user: &str) -> Self {
        let parts = [source.as_bytes(), host.as_bytes(), user.as_bytes()];
        Self::new(Some(host), &parts, USER)
    }

    fn new(host: Option<&str>, parts: &[&[u8]], kind: &str) -> Self {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let host = host.unwrap_or("server").chars();
        let host: String = host.map(|c| if is_plain(c) { c } else { '_' }).collect();
        let digest = HEXLOWER.encode(&digest(parts)[..DIGEST_BYTES]);
        Self(format!("{host}-{digest}.{kind}"))
    }

    /// Parses a name.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (stem, kind) = text.rsplit_once('.')?;
        let (_, digest) = stem.rsplit_once('-')?;
        let is_name = matches!(kind, LOGIN | TOKEN | USER)
            && digest.len() == 2 * DIGEST_BYTES
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        is_name.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for a login, which a user can repeat.
    pub(crate) fn is_of_login(&self) -> bool {
        self.0.ends_with(LOGIN)
    }

    /// Returns true for a user's own login.
    pub(crate) fn is_of_user(&self) -> bool {
        self.0.ends_with(USER)
    }

    pub(super) fn file(&self, folder: &Path) -> PathBuf {
        folder.join(&self.0)
    }
}
