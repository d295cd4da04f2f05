//! Connection to a server of HTTP+SSE (2024-11-05): one stream for all messages from the server, and an endpoint to
//! post to.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

use super::credentials::Sender;
use super::error::beginning;
use super::event_stream::{is_event_stream, next_items};
use super::shared::{Send1, Shared};
use super::stdio::id_in;
use super::{ClientError, Options, wire};
use crate::net::{
    self, AbortOnDrop, Client as HttpClient, EventDecoder, FetchError, OutgoingRequest, SseItem,
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
        if !is_event_stream(&answer) {
            return Err(ClientError::Status {
                status: answer.status.as_u16(),
                said: "no event stream".to_owned(),
            });
        }
        let url = answer.url.clone();
        let max = options.message_bytes;
        let mut answer = answer.max_body(usize::MAX);
        let mut decoder = EventDecoder::new(max).skipping();
        let (endpoint, rest) = loop {
            let items = next_items(&mut answer, &mut decoder, max).await?;
            let no_endpoint = || ClientError::Gone("its stream names no endpoint".to_owned());
            let mut items = items.ok_or_else(no_endpoint)?.into_iter();
            let named = items.find_map(|item| match item {
                SseItem::Event(event) if event.kind == "endpoint" => Some(event.data),
                _ => None,
            });
            if let Some(endpoint) = named {
                break (endpoint, items);
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
        let (shared, name, send) = (Arc::clone(shared), options.name.clone(), poster.sender());
        let reader = AbortOnDrop::spawn(async move {
            let mut items: Vec<SseItem> = rest.collect();
            let mut is_pinged = false;
            let why = loop {
                for item in items {
                    take(item, &shared, &send, (&name, max));
                }
                items = match next_items(&mut answer, &mut decoder, max).await {
                    Ok(Some(next)) => {
                        is_pinged = false;
                        next
                    }
                    // Users take their time.
                    Err(ClientError::Http(FetchError::Timeout { .. }))
                        if shared.is_asking(None) =>
                    {
                        Vec::new()
                    }
                    // Many servers send nothing while no request is in progress. The response shows that the stream still
                    // works.
                    Err(ClientError::Http(FetchError::Timeout { .. })) if !is_pinged => {
                        is_pinged = true;
                        if let Ok(expected) = shared.expect(None) {
                            let ping = wire::request(expected.id, "ping", &wire::Params::new());
                            net::spawn(send(ping.into()));
                        }
                        Vec::new()
                    }
                    Ok(None) => break "its stream has ended".to_owned(),
                    Err(error) => break error.to_string(),
                };
            };
            shared.close(&ClientError::Gone(why));
        });
        Ok(Self {
            poster,
            _reader: reader,
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

fn take(item: SseItem, shared: &Arc<Shared>, send: &Send1, (name, max): (&str, usize)) {
    match item {
        SseItem::Event(event) => {
            for message in wire::read(event.data.as_bytes()).unwrap_or_default() {
                shared.take(message, None, || Arc::clone(send));
            }
        }
        SseItem::TooLong { beginning, end } => {
            shared.has_skipped(id_in(&beginning, &end), (name, max));
        }
        SseItem::Retry(_) => {}
    }
}
