//! Hooks of a reload: each applies changed settings to one part of the server.

use std::sync::Arc;

use super::error::AppError;
#[cfg(feature = "sources")]
use crate::auth::Authentication;
use crate::auth::{ApiKeys, DisplayName, Tokens};
use crate::config::Config;
use crate::server::Server;

/// Second phase of a hook, after all hooks have accepted the settings. It cannot fail.
pub(crate) type Commit = Box<dyn FnOnce() + Send>;

/// First phase: checks the settings and prepares the change. It changes nothing, because another hook can reject them.
pub type Hook = Box<dyn Fn(&Config) -> Result<Commit, AppError> + Send + Sync>;

/// Applies changed limits.
pub(super) fn limits_hook(server: &Arc<Server>) -> Hook {
    let server = Arc::clone(server);
    Box::new(move |config| {
        let (server, limits) = (Arc::clone(&server), config.limits.clone());
        Ok(Box::new(move || server.limits.take_on(&limits)))
    })
}

/// Applies changed API keys.
pub(super) fn keys_hook(keys: Option<Arc<ApiKeys>>) -> Hook {
    Box::new(move |config| match keys.clone() {
        Some(keys) => {
            let changed = keys.changed(&config.auth)?;
            Ok(Box::new(move || {
                if changed.is_empty() {
                    tracing::error!(
                        setting = "auth.api_keys",
                        "no API key is left: every API key is rejected (401) until one is added; make one with \
                         `longshore key new`. Without a key the server may not start again"
                    );
                }
                keys.take_on(changed);
            }))
        }
        None => {
            let are_wanted = !config.auth.api_keys.is_empty();
            Ok(Box::new(move || {
                if are_wanted {
                    tracing::warn!(
                        setting = "auth.api_keys",
                        "callers are asked for keys from the next start on, since they were not asked until now"
                    );
                }
            }))
        }
    })
}

/// Applies a changed title or name of the server to pages and metadata for people.
pub(super) fn name_hook(shown: DisplayName) -> Hook {
    Box::new(move |config| {
        let server = &config.server;
        let name = server.title.as_ref().unwrap_or(&server.name).clone();
        let shown = shown.clone();
        Ok(Box::new(move || shown.set(&name)))
    })
}

/// Applies changed `auth.implied_scopes` to access tokens. API keys apply them with their own hook.
pub(super) fn implied_scopes_hook(tokens: Option<Tokens>) -> Hook {
    Box::new(move |config| {
        let (tokens, implied) = (tokens.clone(), config.auth.implied_scopes.clone());
        Ok(Box::new(move || {
            if let Some(tokens) = tokens {
                tokens.set_implied_scopes(&implied);
            }
        }))
    })
}

/// Returns true if sources or upstream servers exchange the access tokens of callers.
#[cfg(feature = "sources")]
fn exchanges_tokens(config: &Config) -> bool {
    let mut sources = config.sources.iter();
    let mut upstreams = config.upstreams.values();
    sources.any(crate::source::SourceConfig::exchanges_tokens)
        || upstreams.any(|upstream| upstream.auth.exchanges_tokens())
}

/// Returns true if users log in to the API of a source or to an upstream server.
#[cfg(all(feature = "oauth", feature = "sources"))]
pub(super) fn has_user_logins(config: &Config) -> bool {
    let mut sources = config.sources.iter();
    let mut upstreams = config.upstreams.values();
    sources.any(crate::source::SourceConfig::has_user_logins)
        || upstreams.any(|upstream| upstream.auth.has_user_logins())
}

/// Keeps the access tokens of callers if the configuration exchanges them. The hook reports that it does so from the next
/// start on.
#[cfg(feature = "sources")]
pub(super) fn keep_exchanged_tokens(config: &Config, auth: &Authentication) -> Hook {
    let is_on = exchanges_tokens(config);
    if is_on {
        auth.keep_tokens();
    }
    Box::new(move |config| {
        let is_new = !is_on && exchanges_tokens(config);
        Ok(Box::new(move || {
            if is_new {
                tracing::warn!(
                    setting = "auth.on_behalf_of",
                    "access tokens of callers are exchanged from the next start on; restart the server"
                );
            }
        }))
    })
}
