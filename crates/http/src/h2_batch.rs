//! HTTP/2 streams that arrived together and are served together, step by step.
//!
//! A call executes about 60 KiB of code, most of it once: twice what a core's instruction cache holds. If each stream were
//! served on its own, the code of h2 would be fetched again for each. All streams of a batch are therefore accepted, then
//! run, and then their responses are passed to h2, which writes them when the connection is polled next.
//! `longshore-loadtest count --cache-misses` counts what that saves.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Method, Request, Response, StatusCode};

use super::connection::ConnectionState;
use super::context::ConnService;
use super::h2_response_body;
use super::pipeline::RequestFuture;
use crate::net::{Body, Upload};

/// Maximum number of streams that are accepted before the first of them is run.
const STREAMS_MAX: usize = 32;

/// Streams that were accepted and are not yet run.
pub(super) struct Batch(Buffers);

/// Memory of a batch. The thread keeps it for the next one, since there are more connections than threads.
#[derive(Default)]
struct Buffers {
    accepted: Vec<Accepted>,
    answers: Vec<Answer>,
}

type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// A response that h2 does not have yet.
struct Answer {
    respond: SendResponse<Bytes>,
    response: Response<Body>,
    /// The request was HEAD.
    head_only: bool,
}

thread_local! {
    static SPARE: Cell<Buffers> = const {
        Cell::new(Buffers { accepted: Vec::new(), answers: Vec::new() })
    };
}

impl Batch {
    #[inline]
    pub(super) fn new() -> Self {
        Self(SPARE.take())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.accepted.is_empty()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        STREAMS_MAX <= self.0.accepted.len()
    }

    #[inline]
    pub(super) fn push(&mut self, stream: Accepted) {
        self.0.accepted.push(stream);
    }

    /// Serves the streams as far as they can be served at once. Tasks do the rest.
    #[inline]
    pub(super) fn serve(&mut self, served: &Rc<ConnService>) {
        let Buffers { accepted, answers } = &mut self.0;
        for (request, respond) in accepted.drain(..) {
            if let Some(answer) = begin(served, request, respond) {
                answers.push(answer);
            }
        }
        for answer in answers.drain(..) {
            answer.send(&served.connection);
        }
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        self.0.accepted.clear();
        self.0.answers.clear();
        SPARE.set(std::mem::take(&mut self.0));
    }
}

/// Runs the request of a stream. A request that must wait continues in a task.
#[inline]
fn begin(
    served: &Rc<ConnService>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<Answer> {
    let (head, stream) = request.into_parts();
    let upload = Upload::new(stream, &head.headers);
    let head_only = head.method == Method::HEAD;
    let open = OpenStream::begin(&served.connection);
    let mut request = RequestFuture::new(Rc::clone(served), head, upload);
    // The stream registers its real waker when its own task polls it.
    let cx = &mut Context::from_waker(Waker::noop());
    match alone(|| Pin::new(&mut request).poll(cx))? {
        Poll::Ready(Ok(response)) => Some(Answer {
            respond,
            response,
            head_only,
        }),
        Poll::Pending => {
            drop(tokio::task::spawn_local(async move {
                let mut is_continued = false;
                let response = poll_fn(|cx| match Pin::new(&mut request).poll(cx) {
                    Poll::Ready(Ok(response)) => Poll::Ready(Some(response)),
                    // A stream reset by the client stops the wait.
                    Poll::Pending => match respond.poll_reset(cx) {
                        Poll::Ready(_) => Poll::Ready(None),
                        Poll::Pending => {
                            if !is_continued && request.is_to_be_continued() {
                                is_continued = true;
                                ask_for_body(&mut respond);
                            }
                            Poll::Pending
                        }
                    },
                });
                if let Some(response) = response.await
                    && let Some(sending) =
                        h2_response_body::send(&mut respond, response, &open.0, head_only)
                {
                    sending.await;
                }
            }));
            None
        }
    }
}

/// A stream without its response, which is counted until drop.
struct OpenStream(Rc<ConnectionState>);

impl OpenStream {
    #[inline]
    fn begin(connection: &Rc<ConnectionState>) -> Self {
        connection.open_stream();
        Self(Rc::clone(connection))
    }
}

impl Drop for OpenStream {
    #[inline]
    fn drop(&mut self) {
        self.0.close_stream();
    }
}

/// Sends `100 Continue`, as hyper does over HTTP/1.
fn ask_for_body(respond: &mut SendResponse<Bytes>) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::CONTINUE;
    // An error means that the connection has ended.
    let _ = respond.send_informational(response);
}

impl Answer {
    /// Passes the response to h2. If there is no room for its whole body, a task sends the rest.
    #[inline]
    fn send(mut self, connection: &Rc<ConnectionState>) {
        let cx = &mut Context::from_waker(Waker::noop());
        let rest = alone(|| {
            let mut sending = h2_response_body::send(
                &mut self.respond,
                self.response,
                connection,
                self.head_only,
            )?;
            Pin::new(&mut sending)
                .poll(cx)
                .is_pending()
                .then_some(sending)
        });
        if let Some(Some(sending)) = rest {
            drop(tokio::task::spawn_local(sending));
        }
    }
}

/// Does one step of one stream. `None` if it panicked, which must not affect the other streams.
#[inline]
fn alone<T>(step: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}
