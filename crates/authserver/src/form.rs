//! Parameters of requests, from the query or a form.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use url::form_urlencoded;

use super::error::OAuthError;

/// Maximum size of all parameters of one request together, in bytes.
pub(super) const PARAMETERS_MAX_BYTES: usize = 16 * 1024;
const PARAMETERS_MAX: usize = 64;

/// Parameters of one request. None is there twice (RFC 6749, section 3.1), and empty ones count as absent.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads a query or a form.
    ///
    /// # Errors
    ///
    /// A parameter that is there twice, or too many or too large ones.
    pub(super) fn read(encoded: &[u8]) -> Result<Self, OAuthError> {
        if PARAMETERS_MAX_BYTES < encoded.len() {
            return Err(OAuthError::invalid_request(
                "the parameters are longer than 16 KiB",
            ));
        }
        let mut found: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(encoded) {
            if PARAMETERS_MAX <= found.len() {
                return Err(OAuthError::invalid_request("more than 64 parameters"));
            }
            if found.iter().any(|(known, _)| *known == name) {
                return Err(OAuthError::invalid_request(
                    "a parameter appears more than once",
                ));
            }
            found.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(found))
    }

    /// Returns a parameter that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// Returns a parameter of limited length.
    ///
    /// # Errors
    ///
    /// It is longer than `max` bytes.
    pub(super) fn within(
        &self,
        name: &'static str,
        max: usize,
    ) -> Result<Option<&str>, OAuthError> {
        match self.get(name) {
            Some(value) if max < value.len() => Err(OAuthError::invalid_request(format!(
                "{name} is longer than {max} bytes"
            ))),
            value => Ok(value),
        }
    }

    /// Returns a required parameter of limited length.
    ///
    /// # Errors
    ///
    /// It is absent or longer than `max` bytes.
    pub(super) fn required(&self, name: &'static str, max: usize) -> Result<&str, OAuthError> {
        self.within(name, max)?
            .ok_or_else(|| OAuthError::invalid_request(format!("{name} is missing")))
    }
}

/// Reads the parameters of a query or a form. Empty ones are left out.
///
/// # Errors
///
/// A parameter that is there twice, or too many or too large ones.
pub fn read_parameters(encoded: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let read = Parameters::read(encoded).map_err(|error| error.description.into_owned())?;
    let filled = read.0.into_iter().filter(|(_, value)| !value.is_empty());
    Ok(filled.collect())
}

/// Checks that a body is a form.
pub(super) fn check_form(headers: &HeaderMap) -> Result<(), OAuthError> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default();
    match kind
        .trim()
        .eq_ignore_ascii_case("application/x-www-form-urlencoded")
    {
        true => Ok(()),
        false => Err(OAuthError::invalid_request(
            "the body must be application/x-www-form-urlencoded",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_is_there_twice_is_an_error() {
        let error = Parameters::read(b"state=a&state=b").expect_err("twice");
        assert_eq!(error.code, "invalid_request");
    }

    #[test]
    fn empty_parameters_count_as_absent() {
        let read = Parameters::read(b"state=&scope=a+b&x=%C3%A9").expect("a query");
        assert_eq!(read.get("state"), None);
        assert_eq!(read.get("scope"), Some("a b"));
        assert_eq!(read.get("x"), Some("\u{e9}"));
    }

    #[test]
    fn parameters_are_bounded() {
        let long = vec![b'a'; PARAMETERS_MAX_BYTES + 1];
        assert!(Parameters::read(&long).is_err());
        let many: String = (0..=PARAMETERS_MAX).map(|n| format!("{n}=1&")).collect();
        assert!(Parameters::read(many.as_bytes()).is_err());
        let read = Parameters::read(b"a=123").expect("a query");
        assert!(read.within("a", 2).is_err() && read.required("b", 2).is_err());
    }
}
