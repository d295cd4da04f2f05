//! The one body type, and reading one within bounds.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::upload::Upload;
use super::waker_filter::take_quietly;

/// The body of a request or a response, as `tower` layers see it.
///
/// Most hold their bytes already; those read from a socket do not. Layers that wrap bodies in a type of their
/// own turn it back into this one with [`Body::new`].
pub struct Body(Kind);

enum Kind {
    /// Up to two pieces of bytes, sent one after the other without copying them together.
    Pieces(Bytes, Bytes),
    /// An own piece followed by shared pieces, with the number already sent.
    Shared(Bytes, Arc<[Bytes]>, usize),
    Incoming(hyper::body::Incoming),
    Upload(Upload),
    Other(Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>),
}

/// Bytes shared by many responses, in one piece or several.
#[derive(Clone, Debug)]
pub enum SharedBytes {
    One(Bytes),
    /// None of them is empty.
    Several(Arc<[Bytes]>),
}

impl SharedBytes {
    /// Pieces in order.
    #[inline]
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Several(pieces) => pieces,
        }
    }

    /// Total size in bytes.
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }
}

impl Default for SharedBytes {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl From<Bytes> for SharedBytes {
    fn from(bytes: Bytes) -> Self {
        Self::One(bytes)
    }
}

/// Error that ended a body early.
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

    /// All of it, if that is one piece that is here already.
    ///
    /// # Errors
    ///
    /// The body, if it is not.
    #[inline]
    pub fn into_piece(self) -> Result<Bytes, Self> {
        match self.0 {
            Kind::Pieces(piece, rest) | Kind::Pieces(rest, piece) if rest.is_empty() => Ok(piece),
            kind => Err(Self(kind)),
        }
    }

    pub fn pieces(first: Bytes, second: impl Into<SharedBytes>) -> Self {
        Self(match second.into() {
            SharedBytes::One(second) => Kind::Pieces(first, second),
            SharedBytes::Several(pieces) => Kind::Shared(first, pieces, 0),
        })
    }
}

/// An empty one, as layers need it that answer by themselves.
impl Default for Body {
    fn default() -> Self {
        Self::empty()
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

impl From<Upload> for Body {
    #[inline]
    fn from(body: Upload) -> Self {
        Self(Kind::Upload(body))
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
            Kind::Shared(first, pieces, sent) => {
                let mut piece = std::mem::take(first);
                if piece.is_empty() {
                    piece = pieces.get(*sent).cloned().unwrap_or_default();
                    *sent += 1;
                }
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Kind::Incoming(body) => take_quietly(
                body,
                |body| Pin::new(body).poll_frame(cx),
                |body| !body.is_end_stream(),
            )
            .map_err(Into::into),
            Kind::Upload(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Kind::Other(body) => body.as_mut().poll_frame(cx),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Pieces(first, second) => first.is_empty() && second.is_empty(),
            Kind::Shared(first, pieces, sent) => first.is_empty() && pieces.len() <= *sent,
            Kind::Incoming(body) => body.is_end_stream(),
            Kind::Upload(body) => body.is_end_stream(),
            Kind::Other(body) => body.is_end_stream(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Pieces(first, second) => {
                SizeHint::with_exact((first.len() + second.len()) as u64)
            }
            Kind::Shared(first, pieces, sent) => {
                let left = pieces.iter().skip(*sent).map(Bytes::len);
                SizeHint::with_exact((first.len() + left.sum::<usize>()) as u64)
            }
            Kind::Incoming(body) => body.size_hint(),
            Kind::Upload(body) => body.size_hint(),
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

/// Reason for which a body could not be read completely.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the body is larger than {max} bytes")]
    TooLarge { max: usize },
    #[error("the body broke off")]
    Broken(#[source] BodyError),
}

/// Reads a body frame by frame, within a size limit. A body with a single frame, the common case, is not copied.
/// Capacity follows the received bytes, not the declared length.
#[derive(Debug)]
pub struct Reader {
    max: usize,
    /// First frame, kept separately as long as it may be the only one.
    first: Bytes,
    /// All frames, once there are several.
    whole: Vec<u8>,
}

impl Reader {
    /// Creates a reader for a body of at most `max` bytes.
    ///
    /// # Errors
    ///
    /// The declared length exceeds the limit.
    #[inline]
    pub fn new(body: &Body, max: usize) -> Result<Self, ReadError> {
        if body.size_hint().lower() > max as u64 {
            return Err(ReadError::TooLarge { max });
        }
        Ok(Self {
            max,
            first: Bytes::new(),
            whole: Vec::new(),
        })
    }

    /// Reads further; completes with the whole body at its end.
    #[inline]
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Body,
    ) -> Poll<Result<Bytes, ReadError>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)) else {
                return Poll::Ready(Ok(self.take()));
            };
            // Trailers are ignored.
            let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else {
                continue;
            };
            let is_first = self.first.is_empty() && self.whole.is_empty();
            if data.len() > self.max - self.received() {
                return Poll::Ready(Err(ReadError::TooLarge { max: self.max }));
            }
            if is_first && body.is_end_stream() {
                return Poll::Ready(Ok(data));
            }
            self.keep(data, body.size_hint().lower());
        }
    }

    /// Number of bytes received.
    pub fn received(&self) -> usize {
        self.first.len() + self.whole.len()
    }

    /// Appends a frame; `announced` is the lower bound of the bytes still to arrive.
    fn keep(&mut self, data: Bytes, announced: u64) {
        /// More than this is not set aside on an announcement alone.
        const TRUSTED_BYTES: u64 = 128 * 1024;
        if self.whole.is_empty() {
            // HTTP/2 may say only in a frame of its own that there is no more.
            if self.first.is_empty() && announced == 0 {
                self.first = data;
                return;
            }
            let first = std::mem::take(&mut self.first);
            let announced = announced.min(TRUSTED_BYTES) as usize;
            self.whole
                .reserve_exact(first.len() + data.len() + announced);
            self.whole.extend_from_slice(&first);
        }
        // `data` is dropped after this, so that the socket reader can reuse its buffer.
        self.whole.extend_from_slice(&data);
    }

    fn take(&mut self) -> Bytes {
        if self.whole.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            std::mem::take(&mut self.whole).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use http_body_util::StreamBody;

    async fn read_capped(body: &mut Body, max: usize) -> Result<Bytes, ReadError> {
        let mut reader = Reader::new(body, max)?;
        poll_fn(|cx| reader.poll(cx, body)).await
    }

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
