//! Reasons why a page is not available.

use std::time::Duration;

use http::StatusCode;

use super::URL_BYTES_MAX;
use crate::net::{FetchError, Phase};

/// Reason why a page is not available. The messages are for the caller.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum PageError {
    #[error(
        "{url:?} is not an http or https URL; write it whole, for example https://example.com/page"
    )]
    Url { url: String },
    #[error("the URL has {bytes} bytes; it may have {URL_BYTES_MAX}")]
    LongUrl { bytes: usize },
    #[error("Failed to fetch {url}: {source}{}", advice(.source))]
    Fetch { url: String, source: FetchError },
    #[error("Failed to fetch {url} - status code {}", status.as_u16())]
    Status { url: String, status: StatusCode },
    #[error("Failed to fetch {url}: it redirects further than {max} times")]
    Redirects { url: String, max: usize },
    #[error("Failed to fetch {url}: it is {what} of {bytes} bytes, not text")]
    NoText {
        url: String,
        what: String,
        bytes: usize,
    },
    #[error("Failed to fetch robots.txt {robots}, without which this page is left alone: {source}")]
    Robots { robots: String, source: FetchError },
    #[error(
        "{robots} responds with status {}, so programs may not fetch from this site automatically; the user can fetch the page with the prompt \"fetch\"", status.as_u16()
    )]
    Closed { robots: String, status: StatusCode },
    #[error(
        "The robots.txt of this site ({robots}) asks programs not to fetch this page automatically: <url>{url}</url> <useragent>{agent}</useragent>. Tell the user that the page was not fetched; they can fetch it with the prompt \"fetch\""
    )]
    Disallowed {
        robots: String,
        url: String,
        agent: String,
    },
    #[error("other pages are being fetched; try again later")]
    Busy,
    /// The conversion did not run or did not end. The problem says what to do.
    #[error("Failed to convert {url} to text: {problem}")]
    Conversion { url: String, problem: String },
    #[error(
        "Failed to fetch {url}: fetching it and converting it to text took longer than {} s (builtin.fetch.timeout_seconds); try again later, or fetch a shorter page", limit.as_secs()
    )]
    Slow { url: String, limit: Duration },
}

impl PageError {
    /// Returns the setting whose limit was hit, if any.
    pub(super) fn limit(&self) -> Option<&'static str> {
        match self {
            Self::Redirects { .. } => Some("redirects"),
            Self::Busy => Some("concurrency"),
            Self::Slow { .. } => Some("timeout_seconds"),
            Self::Fetch { source, .. } | Self::Robots { source, .. } => match source {
                FetchError::TooLarge { .. } => Some("response_bytes"),
                FetchError::Timeout {
                    phase: Phase::Total,
                    ..
                } => Some("timeout_seconds"),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Returns what to do about a page that could not be fetched.
fn advice(error: &FetchError) -> &'static str {
    match error {
        FetchError::TooLarge { .. } => " (builtin.fetch.response_bytes); fetch a smaller page",
        FetchError::Timeout { .. } => "; try again later",
        _ => "",
    }
}
