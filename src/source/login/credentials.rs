//! A login as what proves who calls: the token that is kept, and the next one when it ends.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::stored::{Login, Stamp, existing_file, lock};
use crate::net;
use crate::source::credentials::{CredentialError, bearer_value};

/// How old what is known of the file may be, before it is looked at again.
const LOOKS: Duration = Duration::from_secs(1);

/// The login for one server.
pub(in crate::source) struct LoggedIn {
    folder: PathBuf,
    server: Url,
    known: ArcSwapOption<Known>,
    /// What the server did not accept. Held by whoever looks at the file or gets another token.
    refused: Mutex<Option<String>>,
}

/// What is in the file.
struct Known {
    file: PathBuf,
    stamp: Stamp,
    login: Login,
    value: HeaderValue,
    looked: Instant,
}

impl LoggedIn {
    pub(in crate::source) fn new(folder: &Path, server: &Url) -> Self {
        Self {
            folder: folder.to_owned(),
            server: server.clone(),
            known: ArcSwapOption::empty(),
            refused: Mutex::default(),
        }
    }

    /// A token that is good for a while. Those who ask while one is being got wait for it.
    pub(in crate::source) async fn token(&self) -> Result<HeaderValue, CredentialError> {
        if let Some(known) = &*self.known.load()
            && known.looked.elapsed() < LOOKS
            && known.login.is_fresh(SystemTime::now())
        {
            return Ok(known.value.clone());
        }
        let mut refused = self.refused.lock().await;
        // Another process may have got a new one, or somebody may have logged in.
        let known = self.look().await?;
        if is_good(&known.login, refused.as_deref()) {
            return Ok(known.value.clone());
        }
        // Refresh tokens are often good for once: one process at a time gets another.
        let _lock = lock(&known.file).await;
        let known = self.read(known.file.clone()).await?;
        if is_good(&known.login, refused.as_deref()) {
            *refused = None;
            return Ok(known.value.clone());
        }
        let mut login = known.login.clone();
        match login.refresh().await {
            Ok(granted) => login.take(granted, SystemTime::now()),
            Err(CredentialError::Refused(_)) => {
                // A process that knows of no lock may have been faster.
                let now = self.read(known.file.clone()).await?;
                if now.login.access_token == login.access_token {
                    return Err(CredentialError::LoginEnded);
                }
                *refused = None;
                return Ok(now.value.clone());
            }
            Err(error) => return Err(error),
        }
        *refused = None;
        let value = value_of(&login)?;
        if let Err(error) = self.keep(known.file.clone(), login).await {
            tracing::warn!(file = %known.file.display(), %error, "a token cannot be kept: it is got anew for every request");
        }
        Ok(value)
    }

    /// The server did not accept a token. Tells whether there may be another.
    pub(in crate::source) async fn refused(&self, used: &str) -> bool {
        let mut refused = self.refused.lock().await;
        let known = match existing(&self.folder, &self.server).await {
            Ok(file) => self.read(file).await,
            Err(error) => Err(error),
        };
        let Ok(known) = known else {
            return false;
        };
        if known.login.access_token == used {
            // Nobody uses it any more without having looked here.
            self.known.store(None);
            *refused = Some(used.to_owned());
            return known.login.refresh_token.is_some();
        }
        true
    }

    /// What is in the file, which is read only if it has changed.
    async fn look(&self) -> Result<Arc<Known>, CredentialError> {
        let file = existing(&self.folder, &self.server).await?;
        if let Some(known) = self.known.load_full()
            && known.file == file
        {
            let asked = file.clone();
            let stamp = blocking(move || Stamp::of(&asked)).await?;
            if stamp == known.stamp {
                let known = Arc::new(Known {
                    file,
                    stamp,
                    login: known.login.clone(),
                    value: known.value.clone(),
                    looked: Instant::now(),
                });
                self.known.store(Some(Arc::clone(&known)));
                return Ok(known);
            }
        }
        self.read(file).await
    }

    async fn read(&self, file: PathBuf) -> Result<Arc<Known>, CredentialError> {
        let asked = file.clone();
        // What is written in between has another stamp.
        let (stamp, login) =
            blocking(move || Ok((Stamp::of(&asked)?, Login::read(&asked)?))).await?;
        self.remember(file, stamp, login)
    }

    /// Puts another login into the file.
    async fn keep(&self, file: PathBuf, login: Login) -> Result<(), CredentialError> {
        let (place, kept) = (file.clone(), login.clone());
        let written = move || {
            kept.write(&place)?;
            Stamp::of(&place)
        };
        let stamp = blocking(written).await?;
        self.remember(file, stamp, login).map(|_| ())
    }

    fn remember(
        &self,
        file: PathBuf,
        stamp: Stamp,
        login: Login,
    ) -> Result<Arc<Known>, CredentialError> {
        let known = Arc::new(Known {
            file,
            stamp,
            value: value_of(&login)?,
            login,
            looked: Instant::now(),
        });
        self.known.store(Some(Arc::clone(&known)));
        Ok(known)
    }
}

fn is_good(login: &Login, refused: Option<&str>) -> bool {
    refused != Some(&login.access_token) && login.is_fresh(SystemTime::now())
}

fn value_of(login: &Login) -> Result<HeaderValue, CredentialError> {
    bearer_value(&login.access_token).map_err(|_| CredentialError::NotText)
}

async fn existing(folder: &Path, server: &Url) -> Result<PathBuf, CredentialError> {
    let (folder, server) = (folder.to_owned(), server.clone());
    blocking(move || Ok(existing_file(&folder, &server))).await
}

/// Asks for a file where nobody waits for it but whoever asked.
async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, CredentialError> {
    let asked = net::spawn_blocking(ask).await;
    let asked = asked.unwrap_or_else(|_| Err(io::Error::other("this process is ending")));
    asked.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CredentialError::NoLogin,
        _ => CredentialError::File(error),
    })
}

impl fmt::Debug for LoggedIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoggedIn")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn login(token: &str) -> Login {
        serde_json::from_value(json!({
            "resource": "https://a.example/mcp", "issuer": "https://i.example",
            "token_endpoint": "https://i.example/token", "revocation_endpoint": null,
            "client_id": "c", "client_secret": null, "access_token": token,
            "expires": null, "refresh_token": null,
        }))
        .expect("a login")
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_read_once_and_again_when_it_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let server: Url = "https://a.example/mcp?tenant=1".parse().expect("a URL");
        let logged_in = LoggedIn::new(folder.path(), &server);
        assert!(matches!(
            logged_in.token().await,
            Err(CredentialError::NoLogin)
        ));

        let file = existing_file(folder.path(), &server);
        login("one").write(&file).expect("written");
        assert_eq!(logged_in.token().await.expect("a token"), "Bearer one");
        login("another").write(&file).expect("written");
        // What is known is good for a moment, without a look at the file.
        assert_eq!(logged_in.token().await.expect("a token"), "Bearer one");
        tokio::time::advance(LOOKS).await;
        assert_eq!(logged_in.token().await.expect("a token"), "Bearer another");
        // What the server does not accept is looked at again at once.
        login("a third").write(&file).expect("written");
        assert!(logged_in.refused("another").await);
        assert_eq!(logged_in.token().await.expect("a token"), "Bearer a third");
    }

    #[tokio::test]
    async fn whoever_waits_for_the_lock_uses_what_was_got_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let server: Url = "https://a.example/mcp".parse().expect("a URL");
        let file = existing_file(folder.path(), &server);
        let mut old = login("old");
        old.expires = Some(1);
        old.refresh_token = Some("once".to_owned());
        old.write(&file).expect("written");
        let held = lock(&file).await.expect("nobody has it");

        let waiting = tokio::spawn(async move {
            let logged_in = LoggedIn::new(folder.path(), &server);
            let token = logged_in.token().await;
            drop(folder);
            token
        });
        // Another process has it, which puts the next one there.
        login("next").write(&file).expect("written");
        drop(held);
        let token = waiting.await.expect("no panic").expect("a token");
        assert_eq!(token, "Bearer next");
    }
}
