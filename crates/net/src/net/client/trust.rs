//! CA certificates that all clients of the process trust in addition to the public ones.

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::ClientError;
use crate::net::lock::RwLock;

/// Clients are built in many places, and the private CAs of a network are the same for all of them.
static TRUSTED: RwLock<Vec<CertificateDer<'static>>> = RwLock::new(Vec::new());

/// Trusts CA certificates in PEM format, in addition to the public ones, for all outgoing TLS connections of this process.
///
/// The set belongs to the process, because trust in a private CA depends on the network that the process runs in, and
/// not on a single client. It applies to each [`Client`](super::Client) that is built later, unless
/// [`own_roots_only`](super::ClientBuilder::own_roots_only) is set. Certificates cannot be removed. The setting
/// `ca_file` calls this function before a server is built.
///
/// # Errors
///
/// The PEM data contains no certificate, or one that cannot be used. Then none of them is trusted.
pub fn trust_ca(pem: &[u8]) -> Result<(), ClientError> {
    let certificates = certificates(pem)?;
    add(&mut RootCertStore::empty(), &certificates)?;
    let mut trusted = TRUSTED.write();
    for certificate in certificates {
        if !trusted.contains(&certificate) {
            trusted.push(certificate);
        }
    }
    Ok(())
}

/// Parses certificates in PEM format, of which there must be one at least.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(ClientError::NoCertificate),
    }
}

/// Adds the certificates of [`trust_ca`] to the roots of a client.
pub(super) fn add_trusted(roots: &mut RootCertStore) -> Result<(), ClientError> {
    let trusted = TRUSTED.read();
    add(roots, &trusted)
}

fn add(
    roots: &mut RootCertStore,
    certificates: &[CertificateDer<'static>],
) -> Result<(), ClientError> {
    for certificate in certificates {
        roots
            .add(certificate.clone())
            .map_err(ClientError::Certificate)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
