//! Notices as messages and as log entries.

use bytes::Bytes;

use crate::catalog::{ChangeEvent, UrlElicitation};
use crate::protocol::push_string;

/// First entry of a log, which creates it.
const BEGINNING: &[u8] = b"-";

/// A notice as a JSON-RPC notification. `subscription` is the JSON-RPC id of the subscribing request, in the
/// stateless lifecycle (SUB-02).
pub(super) fn message(notice: &ChangeEvent, subscription: Option<&str>) -> Bytes {
    let method = match notice {
        ChangeEvent::Tools => "tools/list_changed",
        ChangeEvent::Prompts => "prompts/list_changed",
        ChangeEvent::Resources => "resources/list_changed",
        ChangeEvent::Resource(_) => "resources/updated",
        ChangeEvent::Visited(_) => "elicitation/complete",
    };
    let mut out = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}""#).into_bytes();
    let about = match notice {
        ChangeEvent::Resource(uri) => Some((&br#""uri":"#[..], &**uri)),
        ChangeEvent::Visited(visit) => Some((&br#""elicitationId":"#[..], visit.id())),
        ChangeEvent::Tools | ChangeEvent::Prompts | ChangeEvent::Resources => None,
    };
    if subscription.is_some() || about.is_some() {
        out.extend_from_slice(br#","params":{"#);
        if let Some(id) = subscription {
            out.extend_from_slice(br#""_meta":{"io.modelcontextprotocol/subscriptionId":"#);
            out.extend_from_slice(id.as_bytes());
            out.push(b'}');
        }
        if let Some((member, value)) = about {
            if subscription.is_some() {
                out.push(b',');
            }
            out.extend_from_slice(member);
            push_string(&mut out, value);
        }
        out.push(b'}');
    }
    out.push(b'}');
    out.into()
}

/// A notice as a log entry.
pub(super) fn entry(notice: &ChangeEvent) -> Bytes {
    match notice {
        ChangeEvent::Tools => Bytes::from_static(b"t"),
        ChangeEvent::Prompts => Bytes::from_static(b"p"),
        ChangeEvent::Resources => Bytes::from_static(b"r"),
        ChangeEvent::Resource(uri) => [b"u", uri.as_bytes()].concat().into(),
        // Neither value contains a space.
        ChangeEvent::Visited(visit) => format!("v{} {}", visit.session(), visit.id()).into(),
    }
}

/// First entry of a log. It holds no notice.
pub(super) fn beginning() -> Bytes {
    Bytes::from_static(BEGINNING)
}

/// Parses a log entry. Returns `None` for entries of later versions.
pub(super) fn read_entry(entry: &[u8]) -> Option<ChangeEvent> {
    match entry {
        b"t" => Some(ChangeEvent::Tools),
        b"p" => Some(ChangeEvent::Prompts),
        b"r" => Some(ChangeEvent::Resources),
        [b'u', uri @ ..] => std::str::from_utf8(uri)
            .ok()
            .map(|uri| ChangeEvent::Resource(uri.into())),
        [b'v', visit @ ..] => {
            let (session, id) = std::str::from_utf8(visit).ok()?.split_once(' ')?;
            Some(ChangeEvent::Visited(UrlElicitation::new(session, id)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_and_what_is_unknown_is_left_out() {
        for notice in [
            ChangeEvent::Tools,
            ChangeEvent::Prompts,
            ChangeEvent::Resources,
            ChangeEvent::Resource("x://\u{e9}".into()),
            ChangeEvent::Visited(UrlElicitation::new("session", "id")),
        ] {
            assert_eq!(read_entry(&entry(&notice)), Some(notice));
        }
        for other in [BEGINNING, b"", b"z", b"tt", b"u\xff", b"v", b"vx"] {
            assert_eq!(read_entry(other), None);
        }
    }

    #[test]
    fn messages_are_those_of_the_specification() {
        let text = |notice: &ChangeEvent, id| {
            String::from_utf8(message(notice, id).to_vec()).expect("UTF-8")
        };
        let updated = ChangeEvent::Resource("x://\"a\"".into());
        assert_eq!(
            text(&ChangeEvent::Tools, None),
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#
        );
        assert_eq!(
            text(&updated, None),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://\"a\""}}"#
        );
        assert_eq!(
            text(&ChangeEvent::Visited(UrlElicitation::new("s", "i")), None),
            r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"i"}}"#
        );
        assert_eq!(
            text(&ChangeEvent::Prompts, Some("\"a\"")),
            r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"a"}}}"#
        );
        assert_eq!(
            text(&updated, Some("7")),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7},"uri":"x://\"a\""}}"#
        );
    }
}
