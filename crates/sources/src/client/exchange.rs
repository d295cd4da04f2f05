//! Requests and their results, with the client requests that a server sends in between.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::error::{ClientError, beginning};
use super::http::HeaderInfo;
use super::introduction::restrict;
use super::lifecycle::DiscoveryOutcome;
use super::listener::Listener;
use super::wire::{self, Params, RequestMeta, RpcError};
use super::{
    Abandoned, CLIENT_CAPABILITIES, Client, DISCOVER, INPUT_REQUIRED, Link, METHOD_NOT_FOUND,
    ROUNDS_MAX, TIMEOUT_MAX,
};
use crate::catalog::path_deserializer;
use crate::net;

/// The usual beginning of a result.
const COMPLETE: &str = r#""resultType":"complete""#;

impl Client {
    /// Makes a request and waits for its result. Dropping the future cancels the request at the server.
    ///
    /// The client requests of the server go to `listener`, in every protocol version; so do progress and log
    /// messages. The time until the listener responds does not count against the timeout.
    ///
    /// # Errors
    ///
    /// The server rejects the request, disconnects, or does not respond in time.
    pub async fn request(
        &self,
        method: &'static str,
        params: Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        self.ask(method, &params, listener, limit).await
    }

    /// Makes a request whose parameters can be used again.
    pub async fn ask(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        if self.revision.has_sessions() {
            self.request_logs(listener.as_ref()).await;
            return self.exchange(method, params, listener, limit).await;
        }
        let mut is_recorded = false;
        let result = match &listener {
            Some(resumed) if resumed.is_resumed() => {
                is_recorded = true;
                let asked = Box::pin(self.exchange(method, params, listener.clone(), limit));
                resumed.round(asked).await?
            }
            _ => {
                self.exchange(method, params, listener.clone(), limit)
                    .await?
            }
        };
        // Few results are of another type than `complete`. The backslash is checked because a member can be escaped.
        let text = result.get();
        let is_complete = text.contains(COMPLETE) || !text.contains("resultType");
        if is_complete && !text.contains(INPUT_REQUIRED) && !text.contains("\\u") {
            return Ok(result);
        }
        let asked = (method, params, limit);
        Box::pin(self.answer_questions(asked, (result, is_recorded), listener)).await
    }

    /// In 2026-07-28, a result can contain client requests, and the request is repeated with the responses (MRTR).
    async fn answer_questions(
        &self,
        (method, params, limit): (&'static str, &Params, Option<Duration>),
        (mut result, mut is_recorded): (Box<RawValue>, bool),
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<Box<RawValue>, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ClientRound {
            #[serde(default)]
            result_type: String,
            #[serde(default)]
            input_requests: Map<String, Value>,
            request_state: Option<Box<RawValue>>,
        }
        for _ in 0..ROUNDS_MAX {
            let round: ClientRound = match serde_json::from_str(result.get()) {
                Ok(round) => round,
                Err(_) => return Ok(result),
            };
            match &*round.result_type {
                INPUT_REQUIRED => {}
                "" | "complete" => return Ok(result),
                // Of an extension that the request declares.
                _ if params.meta.contains_key(CLIENT_CAPABILITIES) => return Ok(result),
                unknown => {
                    let unknown = beginning(unknown.as_bytes());
                    let problem = format!("a result of the unknown type {unknown:?}");
                    return Err(ClientError::Protocol(problem));
                }
            }
            if let Some(listener) = &listener
                && !std::mem::replace(&mut is_recorded, true)
            {
                listener
                    .round(Box::pin(std::future::ready(Ok::<_, ClientError>(result))))
                    .await?;
            }
            let answers = answers_to(round.input_requests, listener.as_deref()).await?;
            let mut again = params.clone();
            if !answers.is_empty() {
                again = again.with("inputResponses", Value::Object(answers));
            }
            if let Some(state) = round.request_state {
                again = again.raw("requestState", state);
            }
            let asked = Box::pin(self.exchange_again(method, &again, listener.clone(), limit));
            result = match &listener {
                Some(listener) => listener.round(asked).await?,
                None => asked.await?,
            };
        }
        Err(ClientError::Protocol(format!(
            "it asked more than {ROUNDS_MAX} times about one request"
        )))
    }

    /// Makes a round after the first. A server that was not reached gets it once more here, because the user would be asked
    /// again if the request began anew.
    async fn exchange_again(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        match self.exchange(method, params, listener.clone(), limit).await {
            Err(ClientError::Http(error)) if !error.may_have_happened() => {
                self.exchange(method, params, listener, limit).await
            }
            answered => answered,
        }
    }

    pub(super) async fn exchange(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        let stateless = !self.revision.has_sessions();
        let mut extra = RequestMeta::default();
        if let Some(listener) = &listener {
            extra.progress = listener.wants_progress();
            extra.log_level = listener.wants_log().filter(|_| stateless);
        }
        // Parameters that declare capabilities of their own also contain the introduction.
        if stateless && !params.meta.contains_key(CLIENT_CAPABILITIES) {
            extra.introduction = self.introduction.of(listener.as_deref());
        }
        let mut expected = self.shared.expect(listener.clone())?;
        let id = expected.id;
        if let Some(listener) = listener {
            listener.sent(id);
        }
        let message = Bytes::from(wire::request_with(id, method, params, &extra));
        let mut abandoned = Abandoned {
            client: self,
            id,
            // `initialize` cannot be cancelled. In the stateless lifecycle, closing the connection is sufficient.
            tells: !(matches!(method, "initialize" | DISCOVER)
                || stateless && matches!(self.link, Link::Http(_))),
        };
        let limit = limit
            .unwrap_or(self.options.request_timeout)
            .min(TIMEOUT_MAX);
        // Pinned in place, so that `select!` does not move the whole future.
        let exchanged = std::pin::pin!(async {
            match &self.link {
                Link::Stdio(link) => link.send(message).await?,
                Link::Legacy(link) => link.poster.send(message).await?,
                Link::Http(link) => {
                    // Headers mirror it in versions without sessions.
                    let name = stateless
                        .then(|| {
                            let mut named = ["name", "uri", "taskId"].into_iter();
                            named.find_map(|member| params.text(member))
                        })
                        .flatten();
                    let about = HeaderInfo {
                        method,
                        name: name.as_deref(),
                        arguments: &params.headers,
                        meta: (!params.meta.is_empty()).then_some(&params.meta),
                    };
                    link.exchange(message, Some(id), about, &self.shared)
                        .await?;
                }
            }
            expected.response().await
        });
        let answered = tokio::select! {
            biased;
            answered = exchanged => answered,
            () = self.shared.time_is_up(id, limit) => {
                self.has_timed_out(limit);
                return Err(ClientError::Timeout(limit));
            }
        };
        abandoned.tells = false;
        if answered.as_ref().is_err_and(ClientError::is_refusal) {
            self.shared.over(id);
        }
        match answered {
            Err(ClientError::RevisionRefused { said }) => {
                Err(Box::pin(self.has_left_era(method, said)).await)
            }
            Err(error) if error.status() == Some(400) && method != "initialize" => {
                let is_lost = match &self.link {
                    Link::Http(link) => Box::pin(link.has_lost_session(&self.shared)).await,
                    Link::Stdio(_) | Link::Legacy(_) => false,
                };
                Err(if is_lost {
                    ClientError::SessionEnded
                } else {
                    error
                })
            }
            answered => answered,
        }
    }

    /// Closes the connection in the background if the server hangs. Requests with a shorter timeout than calls say nothing
    /// about that.
    fn has_timed_out(&self, limit: Duration) {
        // Over HTTP, each request has a connection of its own.
        if matches!(self.link, Link::Http(_)) || limit < self.options.request_timeout {
            return;
        }
        // Users take their time, and a server may do nothing else meanwhile.
        if self.shared.is_asking(None) || !self.shared.may_hang(limit) {
            return;
        }
        let Ok(expected) = self.shared.expect(None) else {
            return;
        };
        let method = match self.revision.has_sessions() {
            true => "ping",
            false => DISCOVER,
        };
        let (message, send) = (self.bare_request(expected.id, method), self.sender());
        let (shared, name) = (Arc::clone(&self.shared), self.options.name.clone());
        net::spawn(async move {
            if shared.close_if_it_hangs(send, message, expected).await {
                tracing::warn!(
                    upstream = name,
                    "an upstream server sends nothing any more, and its connection is closed; the next request connects again"
                );
            }
        });
    }

    /// Probes again, to distinguish a server that has left its lifecycle from one that rejects a single request.
    async fn has_left_era(&self, method: &str, said: Box<ClientError>) -> ClientError {
        if method != DISCOVER {
            if !self.revision.has_sessions() {
                let limit = self.options.connect_timeout;
                if let (DiscoveryOutcome::Modern(_), _) = Box::pin(self.probe(limit)).await {
                    return *said;
                }
            }
            self.options.lifecycle_cache.forget();
        }
        ClientError::RevisionRefused { said }
    }

    /// Encodes a request without parameters.
    pub(super) fn bare_request(&self, id: u64, method: &str) -> Bytes {
        let extra = RequestMeta {
            introduction: self.introduction.complete(),
            ..RequestMeta::default()
        };
        wire::request_with(id, method, &Params::new(), &extra).into()
    }

    /// Returns request parameters that include the client's introduction.
    pub(super) fn introduced(&self, params: Params) -> Params {
        params
            .meta(
                "io.modelcontextprotocol/protocolVersion",
                self.revision.as_str(),
            )
            .meta(
                "io.modelcontextprotocol/clientInfo",
                json!(self.options.implementation),
            )
            .meta(
                CLIENT_CAPABILITIES,
                Value::Object(self.options.capabilities.clone()),
            )
    }

    /// Returns request parameters that declare one more extension than usual, in 2026-07-28, and otherwise what the
    /// listener of the request can do.
    pub(crate) fn declaring(
        &self,
        params: Params,
        extension: &str,
        listener: Option<&dyn Listener>,
    ) -> Params {
        let mut capabilities = self.options.capabilities.clone();
        if let Some(listener) = listener {
            restrict(&mut capabilities, |ability| listener.can(ability));
        }
        let mut capabilities = Value::Object(capabilities);
        capabilities["extensions"][extension] = json!({});
        self.introduced(params)
            .meta(CLIENT_CAPABILITIES, capabilities)
    }
}

/// A client request in a result of 2026-07-28.
#[derive(Deserialize)]
pub(crate) struct ClientRequest {
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
}

impl ClientRequest {
    pub(crate) fn read(request: &Value) -> Result<Self, ClientError> {
        path_deserializer::read(request).map_err(|misfit| {
            ClientError::Protocol(format!("an invalid client request of it: {}", misfit.cause))
        })
    }
}

/// Passes on the client requests of one round together, and returns the responses.
async fn answers_to(
    requests: Map<String, Value>,
    listener: Option<&dyn Listener>,
) -> Result<Map<String, Value>, ClientError> {
    let mut asked = Vec::with_capacity(requests.len());
    for (key, request) in requests {
        let ClientRequest { method, params } = ClientRequest::read(&request)?;
        let Some(listener) = listener else {
            let error = RpcError::new(METHOD_NOT_FOUND, "no client can be asked");
            return Err(ClientError::Unanswered(error));
        };
        let answer = listener.named_question(key.clone(), method, params);
        asked.push(async move { answer.await.map(|answer| (key, answer)) });
    }
    let answers = try_join_all(asked).await;
    Ok(answers
        .map_err(ClientError::Unanswered)?
        .into_iter()
        .collect())
}
