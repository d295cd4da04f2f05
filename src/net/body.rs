//! The one body type, and reading one within bounds.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

/// The body of a request or a response, as `tower` layers see it.
///
/// Most hold their bytes already; those read from a socket do not. Layers that wrap bodies in a type of their
/// own turn it back into this one with [`Body::new`].
pub struct Body(Kind);

enum Kind {
    /// Up to two pieces of bytes, sent one after the other without copying them together.
    Pieces(Bytes, Bytes),
    Incoming(hyper::body::Incoming),
    Other(Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>),
}

/// Why a body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self::pieces(Bytes::new(), Bytes::new())
    }

    /// Wraps any other body.
    pub fn new<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        use http_body_util::BodyExt as _;
        Self(Kind::Other(Box::pin(body.map_err(Into::into))))
    }

    pub(crate) fn pieces(first: Bytes, second: Bytes) -> Self {
        Self(Kind::Pieces(first, second))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::pieces(bytes, Bytes::new())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::from(Bytes::from(text))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::from(Bytes::from_static(text.as_bytes()))
    }
}

impl From<hyper::body::Incoming> for Body {
    fn from(body: hyper::body::Incoming) -> Self {
        Self(Kind::Incoming(body))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Pieces(first, second) => {
                let mut piece = std::mem::take(first);
                if piece.is_empty() {
                    piece = std::mem::take(second);
                }
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Kind::Incoming(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Kind::Other(body) => body.as_mut().poll_frame(cx),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Pieces(first, second) => first.is_empty() && second.is_empty(),
            Kind::Incoming(body) => body.is_end_stream(),
            Kind::Other(body) => body.is_end_stream(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pieces(first, second) => {
                SizeHint::with_exact((first.len() + second.len()) as u64)
            }
            Kind::Incoming(body) => body.size_hint(),
            Kind::Other(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("size", &self.size_hint())
            .finish()
    }
}

/// Why a body could not be read whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the body is larger than {max} bytes")]
    TooLarge { max: usize },
    #[error("the body broke off")]
    Broken(#[source] BodyError),
}

/// Reads a body of at most `max` bytes. A body of one frame, as most are, is not copied; room is made for what
/// has arrived, not for what was announced.
#[inline]
pub(crate) async fn read_capped(body: &mut Body, max: usize) -> Result<Bytes, ReadError> {
    if body.size_hint().lower() > max as u64 {
        return Err(ReadError::TooLarge { max });
    }
    let Some(first) = next_data(body).await? else {
        return Ok(Bytes::new());
    };
    if first.len() > max {
        return Err(ReadError::TooLarge { max });
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    read_rest(body, first, max).await
}

async fn read_rest(body: &mut Body, first: Bytes, max: usize) -> Result<Bytes, ReadError> {
    /// More than this is not set aside on an announcement alone.
    const TRUSTED_BYTES: u64 = 128 * 1024;
    let announced = body.size_hint().lower().min(TRUSTED_BYTES);
    let mut whole = Vec::with_capacity(first.len() + announced as usize);
    whole.extend_from_slice(&first);
    while let Some(data) = next_data(body).await? {
        if whole.len() + data.len() > max {
            return Err(ReadError::TooLarge { max });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

#[inline]
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, ReadError> {
    loop {
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Err(e)) => return Err(ReadError::Broken(e)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers say nothing that matters here.
                Err(_) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;

    fn frames(frames: &'static [&'static str]) -> Body {
        let frames = frames
            .iter()
            .map(|f| Ok::<_, BodyError>(Frame::data(Bytes::from_static(f.as_bytes()))));
        Body::new(StreamBody::new(futures_util::stream::iter(frames)))
    }

    #[tokio::test]
    async fn reads_bodies_up_to_the_limit_and_not_beyond() {
        async fn read(mut body: Body, max: usize) -> Result<Bytes, String> {
            read_capped(&mut body, max).await.map_err(|e| e.to_string())
        }
        let too_large = Err("the body is larger than 5 bytes".to_owned());
        assert_eq!(
            read(frames(&["ab", "", "cde"]), 5).await,
            Ok("abcde".into())
        );
        assert_eq!(read(frames(&["ab", "cdef"]), 5).await, too_large);
        assert_eq!(read(frames(&["abcdef"]), 5).await, too_large);
        assert_eq!(read(Body::from("abcdef"), 5).await, too_large);
        assert_eq!(read(Body::empty(), 5).await, Ok(Bytes::new()));
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_not_copied() {
        let bytes = Bytes::from_static(b"abc");
        let read = read_capped(&mut Body::from(bytes.clone()), 5)
            .await
            .expect("small");
        assert_eq!(read.as_ptr(), bytes.as_ptr());
        let broken = [Err::<Frame<Bytes>, BodyError>("reset".into())];
        let mut broken = Body::new(StreamBody::new(futures_util::stream::iter(broken)));
        assert!(matches!(
            read_capped(&mut broken, 5).await,
            Err(ReadError::Broken(_))
        ));
    }
}
