//! Requests for tokens, and their responses.

use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::error::{CredentialError, Rejection};
use super::header_value::basic_value;
use crate::environment::read_text_file;
use crate::net::{Client, Deadlines, FetchedResponse, Guard, OutgoingRequest};

/// Parses an issuer's response to a token request.
pub(crate) fn read_answer<T: serde::de::DeserializeOwned>(
    answer: &FetchedResponse,
) -> Result<T, CredentialError> {
    match Rejection::of(answer) {
        Some(rejection) => Err(CredentialError::Refused(rejection)),
        None => serde_json::from_slice(&answer.body).map_err(|_| CredentialError::NoToken),
    }
}

/// Returns the form of a token request with the client's authentication: its ID and, if there is one, its secret. The
/// secret goes into a header unless the issuer expects it in the form.
pub(crate) fn token_request(
    endpoint: Url,
    mut form: Serializer<'_, String>,
    (id, secret, in_form): (&str, Option<&str>, bool),
) -> Result<OutgoingRequest, CredentialError> {
    let mut proof = None;
    match secret {
        Some(secret) if !in_form => {
            // RFC 6749, 2.3.1: ID and secret are form-encoded before they become a user name and a password.
            let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let value = basic_value(&encode(id), &encode(secret));
            proof = Some(value.map_err(|_| CredentialError::NotText)?);
        }
        secret => {
            form.append_pair("client_id", id);
            if let Some(secret) = secret {
                form.append_pair("client_secret", secret);
            }
        }
    }
    let request =
        OutgoingRequest::post(endpoint, "application/x-www-form-urlencoded", form.finish()).header(
            http::header::ACCEPT,
            HeaderValue::from_static("application/json"),
        );
    Ok(match proof {
        Some(proof) => request.header(AUTHORIZATION, proof),
        None => request,
    })
}

/// Timeout of requests to an issuer of tokens.
pub(super) const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds the client for requests to an issuer of tokens.
///
/// # Errors
///
/// The client cannot be built.
pub(crate) fn issuer_client(guard: Guard) -> Result<Client, CredentialError> {
    Client::builder(guard)
        .deadlines(Deadlines::total(ISSUER_TIMEOUT))
        // A POST over a kept connection that the issuer has closed could not be repeated.
        .idle_connections(0)
        .max_body(TOKEN_BYTES)
        .build()
        .map_err(|error| CredentialError::Client(error.to_string()))
}

/// Checks a configured `token_url`. Returns it with the client for it.
///
/// # Errors
///
/// Names the setting and the problem.
pub(super) fn token_endpoint(token_url: &str) -> Result<(Url, Client), String> {
    let of = |problem: String| format!("token_url: {problem}");
    let url: Url = token_url
        .parse()
        .map_err(|_| of(format!("{token_url:?} is not a URL")))?;
    let guard = Guard::public().trust(&url);
    guard
        .check_url(&url)
        .map_err(|error| of(error.to_string()))?;
    let client = issuer_client(guard).map_err(|error| of(error.to_string()))?;
    Ok((url, client))
}

/// Maximum size of a token file, or of a response of an issuer, in bytes.
const TOKEN_BYTES: usize = 64 * 1024;

/// Returns the first line of a small file.
pub(crate) fn read_token(path: &std::path::Path) -> std::io::Result<String> {
    let text = read_text_file(path, TOKEN_BYTES as u64)?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "the file is empty",
        ));
    }
    Ok(token.to_owned())
}
