//! What a verified client certificate says of its holder.

#[cfg(feature = "tls")]
mod x509;

#[cfg(feature = "tls")]
pub use x509::CertificateValidity;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::NamePatterns;

/// Identity data of a client certificate.
///
/// Present only if this server terminates TLS and requests certificates, and the certificate was verified with
/// `http.tls.client_ca`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    subject: Box<str>,
    common_name: Option<Box<str>>,
    units: Vec<Box<str>>,
    dns: Vec<Box<str>>,
    uris: Vec<Box<str>>,
    emails: Vec<Box<str>>,
    fingerprint: Box<str>,
}

/// Part of a certificate that names its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CertificateName {
    /// The subject's common name.
    CommonName,
    /// The subject in the format of RFC 4514.
    Subject,
    /// The first URI in the alternative names, as in SPIFFE.
    Uri,
    /// The first DNS name in the alternative names.
    Dns,
    /// The first e-mail address in the alternative names.
    Email,
    /// The SHA-256 of the certificate in 64 hexadecimal digits.
    Fingerprint,
}

impl ClientCertificate {
    /// Returns the subject in the format of RFC 4514.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the common name, if there is exactly one.
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// Returns the organizational units of the subject.
    pub fn units(&self) -> impl Iterator<Item = &str> {
        self.units.iter().map(|unit| &**unit)
    }

    /// Returns the DNS names in the alternative names.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.dns.iter().map(|name| &**name)
    }

    /// Returns the URIs in the alternative names.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.uris.iter().map(|uri| &**uri)
    }

    /// Returns the e-mail addresses in the alternative names.
    pub fn emails(&self) -> impl Iterator<Item = &str> {
        self.emails.iter().map(|email| &**email)
    }

    /// The SHA-256 of the certificate in 64 hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns the name of this kind.
    pub(super) fn name(&self, kind: CertificateName) -> Option<&str> {
        match kind {
            CertificateName::CommonName => self.common_name(),
            CertificateName::Subject => Some(self.subject()).filter(|s| !s.is_empty()),
            CertificateName::Uri => self.uris().next(),
            CertificateName::Dns => self.dns_names().next(),
            CertificateName::Email => self.emails().next(),
            CertificateName::Fingerprint => Some(&self.fingerprint),
        }
    }

    /// Returns true if a name of this kind matches.
    pub(super) fn has(&self, kind: CertificateName, names: &NamePatterns) -> bool {
        let any = |all: &[Box<str>]| all.iter().any(|name| names.is_match(name));
        match kind {
            CertificateName::Uri => any(&self.uris),
            CertificateName::Dns => any(&self.dns),
            CertificateName::Email => any(&self.emails),
            CertificateName::CommonName
            | CertificateName::Subject
            | CertificateName::Fingerprint => {
                self.name(kind).is_some_and(|name| names.is_match(name))
            }
        }
    }
}

impl CertificateName {
    pub(super) const ALL: [(&'static str, Self); 6] = [
        ("uri", Self::Uri),
        ("dns", Self::Dns),
        ("email", Self::Email),
        ("common_name", Self::CommonName),
        ("subject", Self::Subject),
        ("fingerprint", Self::Fingerprint),
    ];
}
