//! A request to another server and its response, with retries, credentials and a bulkhead.

mod host;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use tokio::time::Instant;
use url::Url;

use self::host::{Host, Hosts};
use super::client_tls::ClientTlsConfig;
use super::credentials::{AuthConfig, CredentialError, Credentials, Means};
use super::limits::{RequestLimits, time_limit};
use super::media_type::is_json;
use super::parts::SourceParts;
use super::redact::{conceal, secrets_of_headers};
use super::response::media_type;
use crate::catalog::{CallContext, ToolError, UpstreamIdentity};
use crate::net::{
    Backoff, BulkheadStats, Client, Deadlines, EgressConfig, FetchError, FetchedResponse,
    OutgoingRequest, chance, with_causes,
};
use crate::protocol::scan::paired;
use crate::telemetry::{AttributeValue, ClientSpan, SpanEnd, SpanInfo};

/// Settings of a client.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClientSettings {
    /// Name of the source.
    pub(super) name: Box<str>,
    /// URLs of the API. The operator configured them, so they are trusted.
    pub(super) bases: Box<[Url]>,
    pub(super) egress: EgressConfig,
    pub(super) tls: ClientTlsConfig,
    pub(super) auth: AuthConfig,
    pub(super) limits: RequestLimits,
}

/// Client for one API, shared by all of its tools.
#[derive(Debug)]
pub(super) struct ApiClient {
    client: Client,
    hosts: Hosts,
    credentials: Credentials,
    retries: u32,
    timeout: Duration,
    retried: AtomicU64,
    name: Box<str>,
}

/// Reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiClientError {
    /// The concurrency limit of the source is reached.
    #[error("{source_name}: too many calls are under way; try again in a moment")]
    Full { source_name: Box<str> },
    /// The circuit breaker is open.
    #[error(
        "{source_name}: the circuit breaker of {host} is open after repeated failures{}; try again in {} s", of_last(.last), .wait.as_secs().max(1)
    )]
    Down {
        source_name: Box<str>,
        host: Box<str>,
        /// Reason of the latest failure; empty if unknown.
        last: Box<str>,
        wait: Duration,
    },
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl ApiClientError {
    /// Converts it to an error for the model. What concerns the caller is told to it even if errors are masked.
    fn into_tool_error(self, source_name: &str) -> ToolError {
        match self {
            Self::Credentials(error) if error.concerns_caller() => {
                ToolError::new(format!("{source_name}: {error}"))
            }
            error => error.into(),
        }
    }
}

fn of_last(last: &str) -> String {
    match last {
        "" => String::new(),
        last => format!(" (last: {last})"),
    }
}

/// Options of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOptions<'r> {
    /// Marks the request as idempotent.
    pub(super) repeatable: bool,
    /// Adds the source's credentials. Set only for origins that the configuration allows.
    pub(super) authenticated: bool,
    /// Statuses that are neither failures nor retried, whatever they usually mean.
    pub(super) accepted: &'r [u16],
}

impl RequestOptions<'_> {
    fn accepts(&self, status: StatusCode) -> bool {
        self.accepted.contains(&status.as_u16())
    }
}

/// The call that a request belongs to, and the API's route template for the path, if known.
#[derive(Clone, Copy)]
pub(super) struct CallRef<'c> {
    pub(super) context: &'c CallContext,
    pub(super) template: Option<&'c str>,
}

const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(200),
    max: Duration::from_secs(5),
};

impl ApiClient {
    /// Creates a client.
    ///
    /// # Errors
    ///
    /// Names the invalid setting and the problem.
    pub(super) fn new(
        settings: &ClientSettings,
        parts: &SourceParts,
    ) -> Result<Self, (&'static str, String)> {
        let ClientSettings {
            name,
            bases,
            egress,
            tls,
            auth,
            limits,
        } = settings;
        let guard = egress.guard().map_err(|e| ("egress", e.to_string()))?;
        let guard = bases.iter().fold(guard, |guard, base| guard.trust(base));
        for base in bases {
            guard
                .check_url(base)
                .map_err(|e| ("base_url", e.to_string()))?;
        }
        let means = Means {
            source: name,
            server: bases.first(),
            is_mcp: false,
            parts,
        };
        let credentials = Credentials::new(auth, means).map_err(|problem| ("auth", problem))?;
        let builder = Client::builder(guard)
            .deadlines(Deadlines::total(time_limit(limits.timeout_seconds)))
            .max_body(limits.response_bytes)
            .redirects(limits.redirects)
            .memory(parts.memory.clone());
        let builder = tls
            .apply_for(bases, builder)
            .map_err(|problem| ("tls", problem))?;
        let client = builder.build().map_err(|e| ("egress", e.to_string()))?;
        Ok(Self {
            client,
            hosts: Hosts::new(name, &limits.bulkhead),
            credentials,
            retries: limits.retries,
            timeout: time_limit(limits.timeout_seconds),
            retried: AtomicU64::new(0),
            name: name.clone(),
        })
    }

    /// Returns the client of a source. A client that is in use with the same settings is used again.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub(super) fn of_source(
        settings: ClientSettings,
        parts: &SourceParts,
    ) -> Result<Arc<Self>, (&'static str, String)> {
        let create = |settings: &ClientSettings| Self::new(settings, parts);
        parts.reuse.client(settings, create)
    }

    /// Returns the name of the source, and with whose identity requests are sent, for the audit log.
    pub(super) fn identity(&self) -> UpstreamIdentity<'_> {
        UpstreamIdentity {
            name: &self.name,
            identity: self.credentials.identity(),
        }
    }

    /// Returns the bulkhead statistics of all hosts together.
    pub(super) fn stats(&self) -> BulkheadStats {
        self.hosts.stats()
    }

    /// Returns the number of retries.
    pub(super) fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Sends a request as [`send`](Self::send) does. A user without a login at the API is asked for it first.
    pub(super) async fn send_for(
        &self,
        request: OutgoingRequest,
        options: RequestOptions<'_>,
        call: CallRef<'_>,
    ) -> Result<FetchedResponse, ToolError> {
        if options.authenticated
            && let Some(logins) = self.credentials.user_logins()
        {
            Box::pin(logins.ensure(call.context)).await?;
        }
        let sent = self.send(request, options, Some(call)).await;
        sent.map_err(|error| error.into_tool_error(&self.name))
    }

    /// Sends a request and reads its response.
    ///
    /// A request that is not idempotent is retried only if no part of it was sent, or if the other server reports
    /// that it did nothing. If `call` belongs to a trace, its context is propagated.
    pub(super) async fn send(
        &self,
        request: OutgoingRequest,
        options: RequestOptions<'_>,
        call: Option<CallRef<'_>>,
    ) -> Result<FetchedResponse, ApiClientError> {
        let host = self.hosts.of(&request.url);
        let sent = self.try_to_send(&host, request, options, call).await;
        let ended = sent.as_ref().map(|answer| answer.status);
        host.log_change(Fares::of(ended, options));
        sent
    }

    async fn try_to_send(
        &self,
        host: &Host,
        request: OutgoingRequest,
        options: RequestOptions<'_>,
        call: Option<CallRef<'_>>,
    ) -> Result<FetchedResponse, ApiClientError> {
        let caller = call.map(|call| call.context.principal());
        let deadline = Instant::now() + self.timeout;
        let mut failures = 0;
        let mut attempts = 0;
        let mut renewed = false;
        let mut last = None;
        loop {
            let mut attempt = request.clone();
            let left = deadline.saturating_duration_since(Instant::now());
            attempt.total = Some(left.max(Duration::from_millis(1)));
            let pass = match (host.bulkhead.enter().await, last.take()) {
                (Ok(pass), _) => pass,
                // The previous attempt's outcome says more than the lack of another attempt.
                (Err(_), Some(sent)) => return sent,
                (Err(error), None) => return Err(host.rejection(&error)),
            };
            if options.authenticated {
                // An issuer that is down says nothing about the server itself.
                self.credentials.apply(&mut attempt, caller).await?;
            }
            let hop = call.map_or_else(ClientSpan::default, |call| call.hop(&attempt, attempts));
            hop.add_to(&mut attempt.headers);
            attempts += 1;
            let mut sent = self.client.fetch(attempt.clone()).await;
            hop.ends(|| end_of(&sent));
            if let Ok(answer) = &mut sent {
                let secrets = self.credentials.secrets(&attempt);
                let configured = secrets_of_headers(&attempt.headers);
                conceal(secrets.into_iter().chain(configured), answer);
                let is_json = is_json(&media_type(&answer.headers));
                let replaced = match paired(&answer.body) {
                    Cow::Owned(body) if is_json => Some(body),
                    _ => None,
                };
                if let Some(body) = replaced {
                    answer.body = body.into();
                }
            }
            if let Ok(answer) = &sent
                && answer.status == StatusCode::UNAUTHORIZED
                && options.authenticated
                && !std::mem::replace(&mut renewed, true)
                && self
                    .credentials
                    .refused(&attempt, &answer.headers, caller)
                    .await
            {
                pass.succeeded();
                self.retried.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let (has_failed, may_retry) =
                judged(sent.as_ref().map(|answer| answer.status), options);
            if has_failed {
                host.note_failure(&sent);
            }
            failures += 1;
            let delay = (may_retry && failures <= self.retries)
                .then(|| self.delay(&sent, failures))
                .filter(|delay| is_before(*delay, deadline));
            match (has_failed, delay) {
                // All attempts of one call count as one failure; this one does not decide yet.
                (true, Some(_)) => drop(pass),
                (true, None) if sent.as_ref().is_err_and(FetchError::is_unreachable) => {
                    pass.unreachable();
                }
                (true, None) => pass.failed(),
                (false, _) => pass.succeeded(),
            }
            let Some(delay) = delay else {
                return Ok(sent?);
            };
            last = Some(sent.map_err(ApiClientError::from));
            tokio::time::sleep(delay).await;
            self.retried.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the delay before the next attempt: the one that the API asks for, else a backoff.
    fn delay(&self, sent: &Result<FetchedResponse, FetchError>, failures: u32) -> Duration {
        let answer = sent.as_ref().ok();
        let asked = answer.and_then(|answer| retry_after(&answer.headers, Timestamp::now()));
        asked.unwrap_or_else(|| BACKOFF.delay(failures, chance()))
    }
}

/// Returns whether an attempt failed through the server's fault, and whether another one can be made.
fn judged(sent: Result<StatusCode, &FetchError>, options: RequestOptions<'_>) -> (bool, bool) {
    match sent {
        Ok(status) if options.accepts(status) => (false, false),
        Ok(status) if is_unavailable(status) => (true, options.repeatable),
        Ok(status) => (false, status == StatusCode::TOO_MANY_REQUESTS),
        // A retry would use the same encoding, and other responses may be readable, so this counts as neither.
        Err(FetchError::Encoding { .. }) => (false, false),
        Err(error) if error.is_fault_of_server() => {
            (true, options.repeatable || !error.may_have_happened())
        }
        Err(_) => (false, false),
    }
}

/// Returns true if a delay ends before a deadline. The delay comes from another server and can be of any length.
fn is_before(delay: Duration, deadline: Instant) -> bool {
    let end = Instant::now().checked_add(delay);
    end.is_some_and(|end| end < deadline)
}

impl CallRef<'_> {
    /// Starts the span of one attempt; `resent` is the number of earlier ones. The span holds neither the whole URL
    /// nor headers, because they contain arguments and credentials.
    fn hop(self, request: &OutgoingRequest, resent: u16) -> ClientSpan {
        self.context.hop(|| {
            let OutgoingRequest { method, url, .. } = request;
            let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
                ("http.request.method", method.as_str().to_owned().into()),
                ("network.protocol.name", "http".into()),
                ("url.scheme", url.scheme().to_owned().into()),
            ];
            let host = url.host_str().map(|host| host.to_owned().into());
            attributes.extend(host.map(|host| ("server.address", host)));
            let port = url.port_or_known_default().map(AttributeValue::from);
            attributes.extend(port.map(|port| ("server.port", port)));
            let template = self.template.map(|template| template.to_owned().into());
            attributes.extend(template.map(|template| ("url.template", template)));
            if 0 < resent {
                attributes.push(("http.request.resend_count", resent.into()));
            }
            SpanInfo {
                name: match self.template {
                    Some(template) => format!("{method} {template}"),
                    None => method.to_string(),
                },
                attributes,
                error_type: None,
            }
        })
    }
}

/// Returns the span attributes of a finished attempt, as the HTTP semantic conventions define them.
fn end_of(sent: &Result<FetchedResponse, FetchError>) -> SpanEnd {
    match sent {
        Ok(answer) => {
            let status = answer.status;
            let failed = status.is_client_error() || status.is_server_error();
            SpanEnd {
                attributes: vec![("http.response.status_code", status.as_u16().into())],
                error_type: failed.then(|| status.as_str().to_owned().into()),
                message: None,
            }
        }
        Err(error) => SpanEnd {
            error_type: Some(error.kind().into()),
            message: Some(error.to_string()),
            ..SpanEnd::default()
        },
    }
}

/// Health of the other server as shown by one request, for the operator.
#[derive(Debug, PartialEq, Eq)]
enum Fares {
    Well,
    /// The server is down, or rejects the credentials; holds the reason.
    Badly(String),
    Unknown,
}

impl Fares {
    fn of(sent: Result<StatusCode, &ApiClientError>, options: RequestOptions<'_>) -> Self {
        match sent {
            Ok(status) if options.accepts(status) => Self::Well,
            Ok(status) if is_unavailable(status) || status == StatusCode::UNAUTHORIZED => {
                Self::Badly(format!("it responded with {status}"))
            }
            Ok(_) => Self::Well,
            Err(ApiClientError::Full { .. } | ApiClientError::Down { .. }) => Self::Unknown,
            Err(ApiClientError::Credentials(error)) if error.concerns_caller() => Self::Unknown,
            Err(ApiClientError::Fetch(error)) if !error.is_fault_of_server() => Self::Unknown,
            Err(error) => Self::Badly(with_causes(error)),
        }
    }
}

fn is_unavailable(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Parses `Retry-After`: a number of seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
