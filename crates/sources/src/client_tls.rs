//! TLS of the connections to one API or upstream server.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::net::{ClientBuilder, with_causes};

/// TLS of the connections to the server: additional CA certificates, and the client certificate (mutual TLS).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsConfig {
    /// File with CA certificates in PEM form that this server's certificate may be signed by, in addition to the public
    /// ones and those of `ca_file`.
    #[schemars(extend("x-path" = "file"))]
    pub ca: Option<PathBuf>,
    /// File with the client certificate and its chain, in PEM. If unset, no client certificate is sent.
    ///
    /// It is sent only to the configured server, not to the targets of redirects. When the files change, new connections use the
    /// new certificate after at most ten seconds.
    #[schemars(extend("x-path" = "file"))]
    pub certificate: Option<PathBuf>,
    /// File with the client certificate's private key, in PEM.
    #[schemars(extend("x-path" = "file"))]
    pub key: Option<PathBuf>,
}

impl ClientTlsConfig {
    /// Returns true if a setting is set.
    pub(super) fn is_some(&self) -> bool {
        *self != Self::default()
    }

    /// Applies the settings to a client for the configured `servers`.
    ///
    /// # Errors
    ///
    /// Same as [`apply`](Self::apply), and if none of the servers is reached over TLS.
    pub(super) fn apply_for(
        &self,
        servers: &[Url],
        builder: ClientBuilder,
    ) -> Result<ClientBuilder, String> {
        let is_used = servers.is_empty() || servers.iter().any(|url| url.scheme() == "https");
        if self.is_some() && !is_used {
            let url = &servers[0];
            return Err(format!(
                "{url} is not reached over TLS; write https://, or remove tls"
            ));
        }
        self.apply(builder)
    }

    /// Applies the settings to a client.
    ///
    /// # Errors
    ///
    /// Names the invalid setting and the problem.
    pub(super) fn apply(&self, builder: ClientBuilder) -> Result<ClientBuilder, String> {
        let mut builder = builder;
        if let Some(path) = &self.ca {
            let added = match std::fs::read(path) {
                Ok(pem) => builder.roots(&pem).map_err(|error| with_causes(&error)),
                Err(error) => Err(format!("it cannot be read: {error}")),
            };
            builder = added.map_err(|problem| format!("ca: {}: {problem}", path.display()))?;
        }
        match (&self.certificate, &self.key) {
            (None, None) => Ok(builder),
            (Some(certificate), Some(key)) => {
                let added = builder.identity_files(certificate, key);
                added.map_err(|error| {
                    let (certificate, key) = (certificate.display(), key.display());
                    let problem = with_causes(&error);
                    format!("certificate {certificate} and key {key}: {problem}")
                })
            }
            _ => Err("certificate and key: set both or neither".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::net::{Client, Guard};

    fn file(name: &str) -> Option<PathBuf> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/tls");
        Some(folder.join(name))
    }

    #[test]
    fn a_setting_that_cannot_be_used_is_named_with_the_problem() {
        let applied = |ca, certificate, key| {
            let config = ClientTlsConfig {
                ca,
                certificate,
                key,
            };
            let applied = config.apply(Client::builder(Guard::public()));
            applied.map(drop)
        };
        let all = applied(file("ca.crt"), file("client.crt"), file("client.key"));
        assert_eq!(all, Ok(()));
        assert_eq!(applied(None, None, None), Ok(()));
        for (ca, certificate, key, start, end) in [
            (
                "client.key",
                "client.crt",
                "client.key",
                "ca: ",
                "client.key: it contains no certificate in PEM form",
            ),
            (
                "nowhere",
                "client.crt",
                "client.key",
                "ca: ",
                "nowhere: it cannot be read: No such file or directory (os error 2)",
            ),
            (
                "ca.crt",
                "nowhere",
                "client.key",
                "certificate ",
                "nowhere cannot be read: No such file or directory (os error 2)",
            ),
            (
                "ca.crt",
                "client.crt",
                "client.crt",
                "certificate ",
                "it contains no private key in PEM form",
            ),
            (
                "ca.crt",
                "client.crt",
                "server.key",
                "certificate ",
                "KeyMismatch",
            ),
        ] {
            let problem = applied(file(ca), file(certificate), file(key)).expect_err(start);
            assert!(problem.starts_with(start), "{problem}");
            assert!(problem.ends_with(end), "{problem}");
        }
        let builder = Client::builder(Guard::public());
        let config = ClientTlsConfig {
            ca: file("ca.crt"),
            ..ClientTlsConfig::default()
        };
        let plain = ["http://api.example.com".parse().expect("a URL")];
        let unused = config.apply_for(&plain, builder).map(drop);
        assert!(unused.is_err_and(|problem| problem.contains("not reached over TLS")));
        let half = applied(None, file("client.crt"), None);
        assert_eq!(
            half,
            Err("certificate and key: set both or neither".to_owned())
        );
    }
}
