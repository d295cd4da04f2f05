//! A login as what proves who calls: the token that is kept, and the next one when it ends.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use http::HeaderValue;
use tokio::sync::Mutex;
use url::Url;

use super::stored::{Login, file_of};
use crate::source::credentials::{CredentialError, bearer_value};

/// The login for one server.
pub(in crate::source) struct LoggedIn {
    file: PathBuf,
    /// What the server did not accept.
    refused: Mutex<Option<String>>,
}

impl LoggedIn {
    pub(in crate::source) fn new(folder: &Path, server: &Url) -> Self {
        Self {
            file: file_of(folder, server),
            refused: Mutex::default(),
        }
    }

    /// A token that is good for a while. Those who ask while one is being got wait for it.
    pub(in crate::source) async fn token(&self) -> Result<HeaderValue, CredentialError> {
        let mut refused = self.refused.lock().await;
        // Another process may have got a new one, or somebody may have logged in.
        let mut login = self.read()?;
        let is_refused = refused.as_ref() == Some(&login.access_token);
        if is_refused || !login.is_fresh(SystemTime::now()) {
            let granted = match login.refresh().await {
                Ok(granted) => Some(granted),
                Err(CredentialError::Refused(_)) => {
                    let now = self.read()?;
                    // Another process may have been faster, and refresh tokens are often good for once.
                    if now.access_token == login.access_token {
                        return Err(CredentialError::LoginEnded);
                    }
                    login = now;
                    None
                }
                Err(error) => return Err(error),
            };
            if let Some(granted) = granted {
                login.take(granted, SystemTime::now());
                if let Err(error) = login.write(&self.file) {
                    tracing::warn!(file = %self.file.display(), %error, "a token cannot be kept: it is got anew for every request");
                }
            }
            *refused = None;
        }
        bearer_value(&login.access_token).map_err(|_| CredentialError::NotText)
    }

    /// The server did not accept a token. Tells whether there may be another.
    pub(in crate::source) async fn refused(&self, used: &str) -> bool {
        let Ok(login) = self.read() else {
            return false;
        };
        let mut refused = self.refused.lock().await;
        if login.access_token == used {
            *refused = Some(used.to_owned());
            return login.refresh_token.is_some();
        }
        true
    }

    fn read(&self) -> Result<Login, CredentialError> {
        Login::read(&self.file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => CredentialError::NoLogin,
            _ => CredentialError::File(error),
        })
    }
}

impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoggedIn").field(&self.file).finish()
    }
}
