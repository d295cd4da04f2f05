//! Response of another server, read within limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{CONTENT_ENCODING, LOCATION};
use http::{HeaderMap, StatusCode, Version};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use url::Url;

use super::client::{is_redirect, next_url};
use super::decompress::{DecompressError, Decompressor};
use super::pinned_client::PoolSlot;
use super::{FetchError, MemoryBudget, Phase};

/// Maximum time to drain the rest of an unwanted stream, and the maximum number of bytes to discard.
const REST: Duration = Duration::from_secs(1);
const REST_BYTES: usize = 64 * 1024;
/// Size from which a body counts as large.
const LARGE_BYTES: usize = 64 * 1024;
/// Pause until memory is tried again. It is measured a few times a second.
const MEMORY_PAUSE: Duration = Duration::from_millis(50);

/// A complete response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FetchedResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, decompressed.
    pub body: Bytes,
    /// Final URL, after redirects.
    pub url: Url,
}

/// Response whose head has arrived and whose body may still be arriving.
#[derive(Debug)]
#[non_exhaustive]
pub struct StreamingResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Final URL, after redirects.
    pub url: Url,
    /// HTTP version of the connection.
    pub(super) version: Version,
    pub(super) body: Incoming,
    pub(super) host: Arc<str>,
    pub(super) idle: Duration,
    /// When it has to be whole, and how long that was at first.
    pub(super) total: Option<(Instant, Duration)>,
    pub(super) max: usize,
    /// Memory for large bodies.
    pub(super) memory: MemoryBudget,
    pub(super) seen: usize,
    /// Pool slot that takes the connection back after the whole body was read.
    pub(super) place: Option<PoolSlot>,
}

impl StreamingResponse {
    /// Returns the next chunk of the body, as received; `None` at the end.
    ///
    /// # Errors
    ///
    /// The body is truncated, times out, or exceeds its limit.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let idle = Instant::now() + self.idle;
            let (deadline, phase, limit) = match self.total {
                Some((total, limit)) if total <= idle => (total, Phase::Total, limit),
                _ => (idle, Phase::Body, self.idle),
            };
            let frame =
                timeout_at(deadline, self.body.frame())
                    .await
                    .map_err(|_| FetchError::Timeout {
                        host: self.host.to_string(),
                        phase,
                        limit,
                    })?;
            let Some(frame) = frame else {
                if let Some(place) = self.place.take() {
                    place.leave();
                }
                return Ok(None);
            };
            let frame = frame.map_err(|error| FetchError::Broken {
                host: self.host.to_string(),
                source: Arc::new(error),
            })?;
            // Trailers are ignored.
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if data.is_empty() {
                continue;
            }
            self.seen = self.seen.saturating_add(data.len());
            if self.max < self.seen {
                return Err(self.too_large());
            }
            if LARGE_BYTES < self.seen {
                self.take_memory(data.len(), deadline).await?;
            }
            self.leave_if_ended();
            return Ok(Some(data));
        }
    }

    /// Begins another message of an endless body: only large messages take memory, not all of them together.
    #[doc(hidden)]
    pub fn begin_message(&mut self) {
        self.seen = 0;
    }

    /// Takes memory for a part of a large body, and waits for it until the deadline.
    async fn take_memory(&mut self, bytes: usize, deadline: Instant) -> Result<(), FetchError> {
        let bytes = bytes as u64;
        while !self.memory.take(bytes) {
            if !self.memory.has_room(bytes) || deadline <= Instant::now() {
                return Err(FetchError::Memory {
                    host: self.host.to_string(),
                });
            }
            sleep(MEMORY_PAUSE).await;
        }
        Ok(())
    }

    /// Returns the connection to the pool if no more data follows.
    pub(super) fn leave_if_ended(&mut self) {
        if self.body.is_end_stream()
            && let Some(place) = self.place.take()
        {
            place.leave();
        }
    }

    /// Releases a stream that is about to end. Its connection is reused if the end arrives soon.
    pub fn let_end(mut self) {
        self.max = self.seen.saturating_add(REST_BYTES);
        match self.chunk().now_or_never() {
            None | Some(Ok(Some(_))) => {}
            Some(Ok(None) | Err(_)) => return,
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(REST, async move {
                while let Ok(Some(_)) = self.chunk().await {}
            }));
        }
    }

    /// Returns the redirect target, for callers that check each step; the client's guard checks it on request. `None`
    /// if the response is not a redirect.
    ///
    /// # Errors
    ///
    /// The target is not a valid URL, or leads from `https` to another scheme.
    pub fn redirect(&self) -> Result<Option<Url>, FetchError> {
        let location = match self.headers.get(LOCATION) {
            Some(location) if is_redirect(self.status) => location,
            _ => return Ok(None),
        };
        let next = next_url(&self.url, location).map_err(|problem| FetchError::Redirect {
            host: self.host.to_string(),
            problem,
        })?;
        Ok(Some(next))
    }

    /// Sets the maximum body size in bytes, for unbounded streams.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max = bytes;
        self
    }

    /// Reads and decompresses the whole body.
    ///
    /// # Errors
    ///
    /// The body is truncated, times out, exceeds its limit, or does not match its encoding.
    pub async fn read(mut self) -> Result<FetchedResponse, FetchError> {
        if self.body.size_hint().lower() > self.max as u64 {
            return Err(self.too_large());
        }
        let body = match self.is_gzip()? {
            false => self.read_plain().await?,
            true => Box::pin(self.read_gzip()).await?,
        };
        Ok(FetchedResponse {
            status: self.status,
            headers: self.headers,
            body,
            url: self.url,
        })
    }

    /// Returns true if the body is compressed with gzip.
    fn is_gzip(&self) -> Result<bool, FetchError> {
        let mut values = self.headers.get_all(CONTENT_ENCODING).iter();
        let (first, second) = (values.next(), values.next());
        let coding = first.map_or("", |value| value.to_str().unwrap_or("?"));
        match (&*coding.trim().to_ascii_lowercase(), second) {
            ("" | "identity", None) => Ok(false),
            ("gzip" | "x-gzip", None) => Ok(true),
            _ => Err(FetchError::Encoding {
                host: self.host.to_string(),
            }),
        }
    }

    async fn read_plain(&mut self) -> Result<Bytes, FetchError> {
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        if self.body.is_end_stream() {
            return Ok(first);
        }
        let mut whole = first.to_vec();
        while let Some(data) = self.chunk().await? {
            whole.extend_from_slice(&data);
        }
        Ok(whole.into())
    }

    async fn read_gzip(&mut self) -> Result<Bytes, FetchError> {
        let Some(first) = self.chunk().await? else {
            // Response to HEAD, or an empty body.
            return Ok(Bytes::new());
        };
        let mut decompressor = Decompressor::new(self.max);
        let mut counted = 0;
        let mut next = Some(first);
        while let Some(data) = next {
            decompressor
                .push(&data)
                .map_err(|e| self.not_decompressed(&e))?;
            let grown = decompressor.decompressed() - counted;
            if LARGE_BYTES <= grown {
                counted += grown;
                let deadline = match self.total {
                    Some((total, _)) => total,
                    None => Instant::now() + self.idle,
                };
                self.take_memory(grown, deadline).await?;
            }
            next = self.chunk().await?;
        }
        decompressor.finish().map_err(|e| self.not_decompressed(&e))
    }

    fn not_decompressed(&self, error: &DecompressError) -> FetchError {
        match error {
            DecompressError::TooLarge => self.too_large(),
            DecompressError::Malformed => FetchError::Encoding {
                host: self.host.to_string(),
            },
        }
    }

    fn too_large(&self) -> FetchError {
        FetchError::TooLarge {
            host: self.host.to_string(),
            max: self.max,
        }
    }
}
