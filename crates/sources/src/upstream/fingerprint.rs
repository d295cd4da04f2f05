//! Digest of the settings of an upstream server that its lists depend on.

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use serde_json::json;

use super::config::UpstreamConfig;
use crate::client::Lifecycle;
use crate::source::credentials::AuthConfig;
use crate::source::identity::ForwardConfig;

impl UpstreamConfig {
    /// Returns a digest of the settings that the lists depend on, which does not reveal secrets.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Context::new(&SHA256);
        let mut take = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for text in [&self.command, &self.url].into_iter().flatten() {
            take(text);
        }
        self.args.iter().for_each(|text| take(text));
        for (name, value) in self.env.iter().chain(&self.headers) {
            take(name);
            take(value.expose());
        }
        take(
            &self
                .cwd
                .as_ref()
                .map_or_else(String::new, |cwd| cwd.display().to_string()),
        );
        if self.protocol != Lifecycle::Auto {
            take(self.protocol.as_str());
        }
        if self.tls.is_some() {
            take(&json!(self.tls).to_string());
        }
        if self.forward != ForwardConfig::default() {
            take(&json!(self.forward).to_string());
        }
        for (setting, auth) in [("auth", &self.auth), ("listing_auth", &self.listing_auth)] {
            if *auth == AuthConfig::default() {
                continue;
            }
            take(setting);
            // Secrets are masked in it.
            take(&json!(auth).to_string());
            let secrets = [
                auth.bearer.as_ref(),
                auth.basic.as_ref().map(|basic| &basic.password),
                auth.header.as_ref().map(|header| &header.value),
                auth.query.as_ref().map(|query| &query.value),
                auth.oauth
                    .as_ref()
                    .and_then(|oauth| oauth.refresh_token.as_ref()),
            ];
            secrets
                .into_iter()
                .flatten()
                .for_each(|secret| take(secret.expose()));
        }
        HEXLOWER.encode(hash.finish().as_ref())
    }
}
