//! Digest of the settings of an upstream server that its lists depend on.

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use serde_json::json;

use super::config::UpstreamConfig;
use crate::client::Lifecycle;
use crate::seal::digest;
use crate::source::credentials::AuthConfig;
use crate::source::identity::ForwardConfig;

impl UpstreamConfig {
    /// Returns a digest of the settings that the lists depend on, which does not reveal secrets.
    pub(super) fn fingerprint(&self) -> String {
        let mut parts: Vec<Cow<'_, str>> = Vec::new();
        let texts = [&self.command, &self.url].into_iter().flatten();
        parts.extend(texts.chain(&self.args).map(Cow::from));
        for (name, value) in self.env.iter().chain(&self.headers) {
            parts.extend([Cow::from(name), value.expose().into()]);
        }
        let cwd = self.cwd.as_ref();
        parts.push(cwd.map_or_else(Cow::default, |cwd| cwd.display().to_string().into()));
        if self.protocol != Lifecycle::Auto {
            parts.push(self.protocol.as_str().into());
        }
        if self.tls.is_some() {
            parts.push(json!(self.tls).to_string().into());
        }
        if self.forward != ForwardConfig::default() {
            parts.push(json!(self.forward).to_string().into());
        }
        for (setting, auth) in [("auth", &self.auth), ("listing_auth", &self.listing_auth)] {
            if *auth == AuthConfig::default() {
                continue;
            }
            parts.push(setting.into());
            // Secrets are masked in it.
            parts.push(json!(auth).to_string().into());
            let secrets = [
                auth.bearer.as_ref(),
                auth.basic.as_ref().map(|basic| &basic.password),
                auth.header.as_ref().map(|header| &header.value),
                auth.query.as_ref().map(|query| &query.value),
                auth.oauth
                    .as_ref()
                    .and_then(|oauth| oauth.refresh_token.as_ref()),
            ];
            let secrets = secrets.into_iter().flatten();
            parts.extend(secrets.map(|secret| Cow::from(secret.expose())));
        }
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
        HEXLOWER.encode(&digest(&parts))
    }
}
