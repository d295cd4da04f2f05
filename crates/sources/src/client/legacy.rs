//! Connection to a server of HTTP+SSE (2024-11-05): one stream for all messages from the server, and an endpoint to
//! post to.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

use super::credentials::Sender;
use super::error::beginning;
use super::shared::{Send1, Shared};
use super::stdio::id_in;
use super::{ClientError, Options, wire};
use crate::net::{
    self, AbortOnDrop, Client as HttpClient, EventDecoder, FetchError, OutgoingRequest, SseItem,
    StreamingResponse,
};

pub(super) struct Link {
    pub(super) poster: Poster,
    _reader: AbortOnDrop,
}

#[derive(Clone)]
pub(super) struct Poster {
    client: Sender,
    url: Url,
    headers: HeaderMap,
}

impl Link {
    /// Opens the stream, and waits for the event that names the endpoint.
    pub(super) async fn open(
        client: HttpClient,
        url: Url,
        headers: HeaderMap,
        options: &Options,
        shared: &Arc<Shared>,
    ) -> Result<Self, ClientError> {
        let origin = url.origin();
        let mut outgoing = OutgoingRequest::new(Method::GET, url);
        outgoing.headers = headers.clone();
        outgoing
            .headers
            .insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let client = Sender::new(client, options.credentials.clone());
        let answer = client.send_successfully(outgoing).await?;
        let kind = answer.headers.get(CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
            return Err(ClientError::Status {
                status: answer.status.as_u16(),
                said: "no event stream".to_owned(),
            });
        }
        let url = answer.url.clone();
        let mut stream = Stream {
            answer: answer.max_body(usize::MAX),
            decoder: EventDecoder::new(options.message_bytes).skipping(),
            ready: VecDeque::new(),
        };
        let endpoint = loop {
            match stream.next().await? {
                Some(SseItem::Event(event)) if event.kind == "endpoint" => break event.data,
                Some(_) => {}
                None => {
                    return Err(ClientError::Gone("its stream names no endpoint".to_owned()));
                }
            }
        };
        let posts_to = url
            .join(&endpoint)
            .ok()
            .filter(|posts_to| posts_to.origin() == origin)
            .ok_or_else(|| {
                ClientError::Protocol(format!(
                    "its event stream (HTTP+SSE) names the endpoint {:?}, which has another origin than its URL; use the \
                     host and port that the server itself uses",
                    beginning(endpoint.as_bytes())
                ))
            })?;
        let poster = Poster {
            client,
            url: posts_to,
            headers,
        };
        let limit = (options.name.clone(), options.message_bytes);
        let reader = read(stream, poster.clone(), Arc::clone(shared), limit);
        Ok(Self {
            poster,
            _reader: AbortOnDrop::spawn(reader),
        })
    }
}

impl Poster {
    /// Returns a function that sends messages in the background.
    pub(super) fn sender(&self) -> Send1 {
        let poster = self.clone();
        Arc::new(move |message| {
            let poster = poster.clone();
            Box::pin(async move {
                // The outcome is not needed.
                let _ = poster.send(message).await;
            })
        })
    }

    pub(super) async fn send(&self, message: Bytes) -> Result<(), ClientError> {
        let mut outgoing = OutgoingRequest::new(Method::POST, self.url.clone());
        outgoing.headers = self.headers.clone();
        outgoing
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        outgoing.body = message;
        let answer = self.client.send_successfully(outgoing).await?;
        // The connection is used again after the whole response.
        answer.read().await?;
        Ok(())
    }
}

struct Stream {
    answer: StreamingResponse,
    decoder: EventDecoder,
    ready: VecDeque<SseItem>,
}

impl Stream {
    async fn next(&mut self) -> Result<Option<SseItem>, ClientError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let Some(bytes) = self.answer.chunk().await? else {
                return Ok(None);
            };
            let said = self
                .decoder
                .push(&bytes)
                .map_err(|error| ClientError::Protocol(error.to_string()))?;
            if !said.is_empty() {
                self.answer.begin_message();
            }
            self.ready.extend(said);
        }
    }
}

async fn read(
    mut stream: Stream,
    poster: Poster,
    shared: Arc<Shared>,
    (name, max): (String, usize),
) {
    let send = poster.sender();
    let mut is_pinged = false;
    let why = loop {
        match stream.next().await {
            Ok(Some(item)) => {
                is_pinged = false;
                match item {
                    SseItem::Event(event) => {
                        for message in wire::read(event.data.as_bytes()).unwrap_or_default() {
                            shared.take(message, None, || Arc::clone(&send));
                        }
                    }
                    SseItem::TooLong { beginning, end } => {
                        let id = id_in(&beginning, &end);
                        tracing::warn!(
                            upstream = name,
                            request = id,
                            max,
                            "an upstream server sent an event longer than message_bytes; it is skipped, and the request that it responds to fails, if it can be identified"
                        );
                        if let Some(id) = id {
                            shared.settle(id, Err(ClientError::TooLarge { max }));
                        }
                    }
                    SseItem::Retry(_) => {}
                }
            }
            // Users take their time.
            Err(ClientError::Http(FetchError::Timeout { .. })) if shared.is_asking(None) => {}
            // Many servers send nothing while no request is in progress. The response shows that the stream still works.
            Err(ClientError::Http(FetchError::Timeout { .. })) if !is_pinged => {
                is_pinged = true;
                if let Ok(expected) = shared.expect(None) {
                    let ping = wire::request(expected.id, "ping", &wire::Params::new());
                    net::spawn(send(ping.into()));
                }
            }
            Ok(None) => break ClientError::Gone("its stream has ended".to_owned()),
            Err(error) => break ClientError::Gone(error.to_string()),
        }
    };
    shared.close(&why);
}
