//! The setting `ca_file`: CA certificates of a private CA.

use std::path::Path;

use super::{ConfigError, Conflict};
use crate::net::{Client, ClientError, Guard, trust_ca, with_causes};

/// Trusts the CA certificates in the file of the setting `ca_file`, if it is set. Must precede the first client.
///
/// # Errors
///
/// The file cannot be read, or contains no certificate.
pub fn trust_ca_file(path: Option<&Path>) -> Result<(), ConfigError> {
    read(path, trust_ca)
}

/// Checks the file of the setting `ca_file`, if it is set, and trusts nothing.
///
/// # Errors
///
/// As for [`trust_ca_file`].
pub(crate) fn check_ca_file(path: Option<&Path>) -> Result<(), ConfigError> {
    read(path, |pem| {
        let client = Client::builder(Guard::public()).roots(pem)?;
        client.build().map(drop)
    })
}

fn read(
    path: Option<&Path>,
    take: impl FnOnce(&[u8]) -> Result<(), ClientError>,
) -> Result<(), ConfigError> {
    let Some(path) = path else {
        return Ok(());
    };
    let taken = std::fs::read(path)
        .map_err(|error| format!("it cannot be read: {error}"))
        .and_then(|pem| take(&pem).map_err(|error| with_causes(&error)));
    taken.map_err(|problem| {
        ConfigError::Conflicts(vec![Conflict {
            problem: format!("ca_file: {}: {problem}", path.display()),
            advice: "name a file with CA certificates in PEM form that this user can read, or remove the setting (LONGSHORE_CA_FILE)"
                .to_owned(),
        }])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_an_error_with_setting_and_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        let problem = || {
            trust_ca_file(Some(&path))
                .expect_err("rejected")
                .to_string()
        };
        let start = format!("ca_file: {}: ", path.display());

        let missing = problem();
        assert!(
            missing.starts_with(&format!("{start}it cannot be read: ")),
            "{missing}"
        );
        for text in [
            "",
            "hello",
            "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
        ] {
            std::fs::write(&path, text).expect("written");
            let empty = problem();
            let expected = format!(
                "{start}it contains no certificate in PEM form; name a file with CA certificates"
            );
            assert!(empty.starts_with(&expected), "{text:?}: {empty}");
        }
        assert!(trust_ca_file(None).is_ok());
    }
}
