//! The client of a call, as the target of requests.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;

use super::ClientRequestError;
use crate::protocol::message::Request;
use crate::protocol::{ClientAbility, ClientCapabilities, Revision};

/// The client at the other end of a call.
#[derive(Debug)]
pub enum Client {
    /// A client that takes no requests, with the reason.
    Unreachable(&'static str),
    /// A client with a session: it responds while the call waits.
    Session {
        revision: Revision,
        capabilities: ClientCapabilities,
        response_timeout: Duration,
    },
    /// A client without a session: it responds by sending the call again.
    Stateless(StatelessRequest),
}

impl Default for Client {
    fn default() -> Self {
        Self::Unreachable("the call has no client that could be asked")
    }
}

impl Client {
    /// Returns the protocol version in which requests are written.
    pub(super) fn revision(&self) -> Revision {
        match self {
            Self::Session { revision, .. } => *revision,
            Self::Unreachable(_) | Self::Stateless(_) => Revision::V2026_07_28,
        }
    }

    pub(super) fn can(&self, ability: ClientAbility) -> bool {
        match self {
            Self::Unreachable(_) => false,
            Self::Session {
                revision,
                capabilities,
                ..
            } => has_ability(*revision, *capabilities, ability),
            Self::Stateless(request) => request.capabilities().contains(ability.bit()),
        }
    }

    /// Checks that the client has declared an ability, before it is sent a request for it (MRTR-04, ELI-01).
    pub(super) fn require(&self, ability: ClientAbility) -> Result<(), ClientRequestError> {
        self.check_reachable()?;
        match self.can(ability) {
            true => Ok(()),
            false => Err(ClientRequestError::NotDeclared(ability)),
        }
    }

    pub(super) fn check_reachable(&self) -> Result<(), ClientRequestError> {
        match self {
            Self::Unreachable(reason) => Err(ClientRequestError::Unreachable(reason)),
            Self::Session { .. } | Self::Stateless(_) => Ok(()),
        }
    }
}

/// Returns true if a session has an ability: its client has declared it, and its protocol version has it (VER-05).
fn has_ability(
    revision: Revision,
    capabilities: ClientCapabilities,
    ability: ClientAbility,
) -> bool {
    let declares = |ability: ClientAbility| capabilities.contains(ability.bit());
    match ability {
        // Without modes, any declaration means forms.
        ClientAbility::ElicitationForm if !revision.has_rich_forms() => {
            revision.has_elicitation()
                && (declares(ability) || declares(ClientAbility::ElicitationUrl))
        }
        ClientAbility::ElicitationUrl => revision.has_rich_forms() && declares(ability),
        ClientAbility::SamplingTools => revision.has_sampling_tools() && declares(ability),
        _ => declares(ability),
    }
}

/// The parts of a stateless request that later rounds of its call need.
///
/// They are ranges of the body, so that a call without client requests pays for no copy. Capabilities are parsed at
/// their first use, and once.
#[derive(Debug)]
pub struct StatelessRequest {
    method: &'static str,
    body: Bytes,
    target: Option<Span>,
    arguments: Option<Span>,
    declared: Option<Span>,
    capabilities: OnceLock<ClientCapabilities>,
}

impl StatelessRequest {
    /// Notes the parts of a request that lies in `body`.
    #[inline]
    pub fn new(method: &'static str, body: &Bytes, request: &Request<'_>) -> Self {
        let params = &request.params;
        let span = |text: Option<&str>| text.and_then(|text| Span::of(body, text));
        Self {
            method,
            target: span(params.name.or(params.uri)),
            arguments: span(params.arguments),
            declared: span(params.meta.client_capabilities),
            body: body.clone(),
            capabilities: OnceLock::new(),
        }
    }

    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Returns the name or URI that the request names, as JSON text.
    pub fn target(&self) -> Option<&str> {
        self.target.and_then(|span| span.text(&self.body))
    }

    /// Returns the arguments as JSON text.
    pub fn arguments(&self) -> Option<&str> {
        self.arguments.and_then(|span| span.text(&self.body))
    }

    /// Returns the capabilities that the client has declared on this request (META-03).
    pub fn capabilities(&self) -> ClientCapabilities {
        *self.capabilities.get_or_init(|| {
            let declared = self.declared.and_then(|span| span.text(&self.body));
            declared
                .and_then(|declared| serde_json::from_str(declared).ok())
                .unwrap_or_default()
        })
    }
}

/// A range of a body.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// Returns the range of a text; `None` if the text is not part of the body.
    #[inline]
    fn of(body: &[u8], text: &str) -> Option<Self> {
        let start = (text.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
        let len = text.len();
        (start + len <= body.len()).then_some(Self { start, len })
    }

    fn text(self, body: &[u8]) -> Option<&str> {
        let bytes = body.get(self.start..self.start + self.len)?;
        std::str::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::{Message, Payload};

    #[test]
    fn the_parts_of_a_request_are_read_from_its_body() {
        let body = Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book","arguments":{"day":"1"},
                "_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}"#,
        );
        let Ok(Payload::Single(Message::Request(request))) = Payload::read(&body) else {
            panic!("a request");
        };
        let kept = StatelessRequest::new("tools/call", &body, &request);
        drop(request);
        assert_eq!(kept.target(), Some("\"book\""));
        assert_eq!(kept.arguments(), Some(r#"{"day":"1"}"#));
        let declares = |ability: ClientAbility| kept.capabilities().contains(ability.bit());
        assert!(declares(ClientAbility::ElicitationForm));
        assert!(!declares(ClientAbility::Sampling));
    }

    #[test]
    fn ver_05_eli_01_an_ability_needs_a_protocol_version_that_has_it() {
        let can = |revision, declared: &str, ability| {
            let capabilities = serde_json::from_str(declared).expect("capabilities");
            let response_timeout = Duration::from_secs(1);
            Client::Session {
                revision,
                capabilities,
                response_timeout,
            }
            .can(ability)
        };
        let all = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;
        let url_only = r#"{"elicitation":{"url":{}}}"#;
        for (revision, form, form_by_url, newer) in [
            (Revision::V2024_11_05, false, false, false),
            (Revision::V2025_03_26, false, false, false),
            (Revision::V2025_06_18, true, true, false),
            (Revision::V2025_11_25, true, false, true),
        ] {
            let found = [
                can(revision, all, ClientAbility::ElicitationForm),
                can(revision, url_only, ClientAbility::ElicitationForm),
                can(revision, all, ClientAbility::ElicitationUrl),
                can(revision, all, ClientAbility::SamplingTools),
                can(revision, all, ClientAbility::Sampling),
            ];
            assert_eq!(found, [form, form_by_url, newer, newer, true], "{revision}");
        }
    }

    #[test]
    fn a_text_of_elsewhere_is_not_part_of_a_body() {
        let body = Bytes::from_static(b"abc");
        let elsewhere = String::from("abc");
        assert!(Span::of(&body, &elsewhere).is_none());
    }
}
