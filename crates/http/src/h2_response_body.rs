//! An HTTP/2 response being sent.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Body as _;

use super::connection::ConnectionState;
use crate::net::Body;

/// Number of bytes passed to h2 without a capacity check; h2 buffers them for the client.
const AT_ONCE_BYTES: usize = 16 * 1024;
/// Minimum size of a response that is watched for progress, in bytes; the smaller ones of a connection use little memory
/// in total.
const WATCHED_BYTES: u64 = 16 * 1024;
/// Maximum size of a part in bytes, so that progress is visible.
const PART_BYTES: usize = 64 * 1024;

/// Sends a response, or only its head if requested. Returns the remainder if it cannot be sent at once.
#[inline]
pub(super) fn send(
    respond: &mut SendResponse<Bytes>,
    response: Response<Body>,
    connection: &Rc<ConnectionState>,
    head_only: bool,
) -> Option<H2ResponseBody> {
    let (mut head, body) = response.into_parts();
    let has_body = !body.is_end_stream();
    let length = match has_body {
        true => body.size_hint().exact(),
        false => None,
    };
    complete(&mut head.headers, length, connection.now());
    let is_empty = head_only || !has_body;
    let mut stream = match respond.send_response(Response::from_parts(head, ()), is_empty) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a response could not be sent");
            respond.send_reset(Reason::INTERNAL_ERROR);
            return None;
        }
    };
    if is_empty {
        return None;
    }
    match body.into_piece() {
        Ok(piece) if piece.len() <= AT_ONCE_BYTES => {
            // An error means that the client has reset the stream.
            let _ = stream.send_data(piece, true);
            None
        }
        Ok(piece) => Some(H2ResponseBody::new(stream, Body::from(piece), connection)),
        Err(body) => Some(H2ResponseBody::new(stream, body, connection)),
    }
}

/// A response body that is sent as flow control permits.
pub(super) struct H2ResponseBody {
    stream: SendStream<Bytes>,
    body: Body,
    /// A piece that there is no room for.
    waits: Option<Bytes>,
    progress: Option<WatchedProgress>,
}

/// Progress of a response that is large or streamed, as the sweep sees it.
struct WatchedProgress {
    connection: Rc<ConnectionState>,
    index: usize,
}

impl WatchedProgress {
    fn begin(body: &Body, connection: &Rc<ConnectionState>) -> Option<Self> {
        let size = body.size_hint().exact();
        let is_watched = size.is_none_or(|size| WATCHED_BYTES <= size);
        is_watched.then(|| Self {
            index: connection.begin_slow_response(),
            connection: Rc::clone(connection),
        })
    }
}

impl Drop for WatchedProgress {
    fn drop(&mut self) {
        self.connection.end_slow_response(self.index);
    }
}

impl H2ResponseBody {
    fn new(stream: SendStream<Bytes>, body: Body, connection: &Rc<ConnectionState>) -> Self {
        Self {
            stream,
            progress: WatchedProgress::begin(&body, connection),
            body,
            waits: None,
        }
    }

    fn wait_for_room(&mut self, piece: Bytes) {
        // A byte of room will do: h2 asks for the rest, and other streams have theirs meanwhile.
        self.stream.reserve_capacity(1);
        self.waits = Some(piece);
    }

    /// Sends until the end of the response. A failure means that the client is gone.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            if let Poll::Ready(reason) = self.stream.poll_reset(cx)? {
                return Poll::Ready(Err(reason.into()));
            }
            while self.waits.is_some() && self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => return Poll::Ready(Ok(())),
                }
            }
            if let Some(mut piece) = self.waits.take() {
                let part = piece.split_to(piece.len().min(PART_BYTES));
                if let Some(watched) = &self.progress {
                    watched.connection.slow_response_goes_on(watched.index);
                }
                let is_last = piece.is_empty() && self.body.is_end_stream();
                self.stream.send_data(part, is_last)?;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
                if !piece.is_empty() {
                    self.wait_for_room(piece);
                    continue;
                }
            }
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            if frame.is_pending()
                && let Some(watched) = &self.progress
            {
                watched.connection.slow_response_waits(watched.index);
            }
            let Some(frame) = ready!(frame) else {
                self.stream.send_data(Bytes::new(), true)?;
                return Poll::Ready(Ok(()));
            };
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(piece)) if piece.is_empty() => {}
                Ok(Ok(piece)) => {
                    if let Some(watched) = &self.progress {
                        watched.connection.slow_response_goes_on(watched.index);
                    }
                    self.wait_for_room(piece);
                }
                Ok(Err(frame)) => {
                    self.stream.reserve_capacity(0);
                    if let Ok(trailers) = frame.into_trailers() {
                        self.stream.send_trailers(trailers)?;
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) => {
                    tracing::debug!(%error, "a response ended early");
                    self.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl Future for H2ResponseBody {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_send(cx).map(|sent| {
            if let Err(error) = sent {
                tracing::trace!(%error, "the rest of a response was not sent");
            }
        })
    }
}

/// Adds the common response headers and removes those that HTTP/2 forbids (RFC 9113 section 8.2.2).
#[inline]
fn complete(headers: &mut HeaderMap, length: Option<u64>, second: u32) {
    let (mut has_length, mut has_date, mut is_hop_by_hop) = (false, false, false);
    for name in headers.keys() {
        if *name == CONTENT_LENGTH {
            has_length = true;
        } else if *name == DATE {
            has_date = true;
        } else {
            is_hop_by_hop |= is_of_one_hop(name);
        }
    }
    if is_hop_by_hop {
        strip(headers);
    }
    if !has_date {
        headers.insert(DATE, date(second));
    }
    if !has_length && let Some(length) = length {
        headers.insert(CONTENT_LENGTH, number(length));
    }
}

#[inline]
fn is_of_one_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == TE
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// Removes connection-specific headers, including those that `Connection` names.
#[cold]
fn strip(headers: &mut HeaderMap) {
    let connection = headers.remove(CONNECTION);
    let named = connection.as_ref().and_then(|value| value.to_str().ok());
    for name in named.unwrap_or_default().split(',') {
        headers.remove(name.trim());
    }
    for name in [
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "te",
    ] {
        headers.remove(name);
    }
}

/// Date header of a response (RFC 9110 section 6.6.1), updated with the worker's clock.
#[inline]
fn date(second: u32) -> HeaderValue {
    thread_local! {
        static WRITTEN: RefCell<Option<(u32, HeaderValue)>> = const { RefCell::new(None) };
    }
    WRITTEN.with_borrow_mut(|written| match written {
        Some((when, date)) if *when == second => date.clone(),
        _ => written
            .insert((second, write_date(SystemTime::now())))
            .1
            .clone(),
    })
}

#[cold]
fn write_date(now: SystemTime) -> HeaderValue {
    let text = jiff::Timestamp::try_from(now).ok().and_then(|now| {
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        printer.timestamp_to_rfc9110_string(&now).ok()
    });
    let value = text.and_then(|text| HeaderValue::try_from(text).ok());
    value.unwrap_or(HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

/// The numbers below a thousand, each in three digits.
static SMALL: [[u8; 3]; 1000] = {
    let mut all = [[b'0'; 3]; 1000];
    let mut n = 0;
    while n < 1000 {
        all[n][0] += (n / 100) as u8;
        all[n][1] += (n / 10 % 10) as u8;
        all[n][2] += (n % 10) as u8;
        n += 1;
    }
    all
};

/// A number in a header field, without an allocation where it is small.
#[inline]
fn number(number: u64) -> HeaderValue {
    let zeros = match number {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let small = usize::try_from(number).ok().and_then(|n| SMALL.get(n));
    match small.map(|digits| std::str::from_utf8(&digits[zeros..])) {
        Some(Ok(text)) => HeaderValue::from_static(text),
        _ => HeaderValue::from(number),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn completed(fields: &[(&'static str, &'static str)], length: Option<u64>) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers.append(DATE, HeaderValue::from_static("then"));
        complete(&mut headers, length, 0);
        let mut all: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?")))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn an_answer_has_a_length_and_a_date_and_nothing_of_one_hop() {
        assert_eq!(
            completed(&[("content-type", "a")], Some(97)),
            ["content-length: 97", "content-type: a", "date: then"]
        );
        assert_eq!(completed(&[], None), ["date: then"]);
        assert_eq!(
            completed(&[("content-length", "5")], Some(97)),
            ["content-length: 5", "date: then"]
        );
        let hop = [
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
        ];
        assert_eq!(completed(&hop, None), ["date: then", "x-other: 1"]);
        for one in hop.into_iter().filter(|(name, _)| !name.starts_with("x-")) {
            assert_eq!(completed(&[one], None), ["date: then"], "{one:?}");
        }
    }

    #[test]
    fn dates_are_written_as_http_writes_them_and_once_in_a_second() {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(write_date(then), "Sun, 06 Nov 1994 08:49:37 GMT");
        let (one, same) = (date(7), date(7));
        assert_eq!(one.as_bytes().as_ptr(), same.as_bytes().as_ptr());
        assert_ne!(one.as_bytes().as_ptr(), date(8).as_bytes().as_ptr());
    }

    #[test]
    fn numbers_are_written_without_zeros_in_front() {
        for n in [
            0,
            7,
            9,
            10,
            42,
            99,
            100,
            101,
            999,
            1000,
            1001,
            65_536,
            u64::MAX,
        ] {
            assert_eq!(number(n), n.to_string().as_str());
        }
    }
}
