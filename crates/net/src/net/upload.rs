//! Request body over HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body as HttpBody, Frame, SizeHint};

/// Maximum size of request trailers in bytes, as over HTTP/1. Clients rarely send any.
const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// Body of an HTTP/2 stream, including its trailers.
#[derive(Debug)]
pub struct Upload {
    stream: RecvStream,
    /// Remaining bytes, if the head declares a length. h2 enforces that length.
    left: Option<u64>,
    /// True if only trailers can follow.
    read: bool,
}

impl Upload {
    /// The body of a request with these headers.
    #[inline]
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let length = headers.get(CONTENT_LENGTH);
        Self {
            stream,
            left: length.and_then(|length| length.to_str().ok()?.parse().ok()),
            read: false,
        }
    }
}

/// The size of header fields, in bytes.
#[cold]
fn size(fields: &HeaderMap) -> usize {
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len());
    sizes.sum()
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = h2::Error;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let upload = &mut *self;
        if !upload.read {
            match ready!(upload.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Returns the flow-control window. An error here is also reported for the whole stream.
                    let _ = upload.stream.flow_control().release_capacity(data.len());
                    if let Some(left) = &mut upload.left {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // The client skips the rest of the body and waits for the response (RFC 9113 section 8.1).
                Some(Err(error)) if error.reason() == Some(Reason::NO_ERROR) => {
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => upload.read = true,
            }
        }
        Poll::Ready(match ready!(upload.stream.poll_trailers(cx)) {
            Ok(Some(trailers)) if TRAILER_BYTES_MAX < size(&trailers) => {
                Some(Err(Reason::ENHANCE_YOUR_CALM.into()))
            }
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Err(error) => Some(Err(error)),
        })
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
