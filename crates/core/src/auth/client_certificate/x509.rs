//! X.509 certificate parser (RFC 5280; feature `tls`).

use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATIONAL_UNIT_NAME};
use x509_cert::der::{Decode as _, Tag, Tagged as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::ClientCertificate;
use crate::digest::sha256_hex;

impl ClientCertificate {
    /// Parses a certificate. Returns `None` if it is invalid.
    pub fn read(der: &[u8]) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?.tbs_certificate;
        let subject = &certificate.subject;
        let attributes = || subject.0.iter().flat_map(|names| names.0.iter());
        let of = |wanted: ObjectIdentifier| {
            attributes()
                .filter(move |attribute| attribute.oid == wanted)
                .filter_map(text)
        };
        let (mut dns, mut uris, mut emails) = (Vec::new(), Vec::new(), Vec::new());
        // Unreadable names must not be treated as absent ones.
        if let Some((_, names)) = certificate.get::<SubjectAltName>().ok()? {
            for name in names.0 {
                match name {
                    GeneralName::DnsName(name) => dns.push(name.as_str().into()),
                    GeneralName::UniformResourceIdentifier(uri) => uris.push(uri.as_str().into()),
                    GeneralName::Rfc822Name(email) => emails.push(email.as_str().into()),
                    _ => {}
                }
            }
        }
        Some(Self {
            subject: subject.to_string().into(),
            // Several common names are ambiguous.
            common_name: only(of(COMMON_NAME)),
            units: of(ORGANIZATIONAL_UNIT_NAME).collect(),
            dns,
            uris,
            emails,
            fingerprint: sha256_hex(der).into(),
        })
    }
}

/// Validity of a certificate: Unix times in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    pub not_before: u64,
    pub not_after: u64,
}

impl CertificateValidity {
    /// Parses a certificate. Returns `None` if it is invalid.
    pub fn read(der: &[u8]) -> Option<Self> {
        let validity = Certificate::from_der(der).ok()?.tbs_certificate.validity;
        Some(Self {
            not_before: validity.not_before.to_unix_duration().as_secs(),
            not_after: validity.not_after.to_unix_duration().as_secs(),
        })
    }

    /// Time by which the certificate should have been renewed: two weeks before its expiry, or after two thirds of a
    /// shorter life.
    pub fn renewal(&self) -> u64 {
        let lifetime = self.not_after.saturating_sub(self.not_before);
        self.not_after
            .saturating_sub((lifetime / 3).min(14 * 24 * 60 * 60))
    }
}

fn only(mut names: impl Iterator<Item = Box<str>>) -> Option<Box<str>> {
    let first = names.next()?;
    names.next().is_none().then_some(first)
}

/// Returns the text of an attribute, if it has a string type.
fn text(attribute: &AttributeTypeAndValue) -> Option<Box<str>> {
    let value = &attribute.value;
    let text = match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str(),
        _ => return None,
    };
    Some(text.into())
}
