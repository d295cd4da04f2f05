//! The scanner of envelopes against `serde_json`: what one takes the other takes, and both read the same.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{Excess, ID_MAX_BYTES, MalformedKind, Message, Payload, is_absent, is_object};
use super::scan::{DEPTH_MAX, MEMBERS_MAX};

/// Result of reading a body, in terms that both readers share.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    NotJson,
    Invalid {
        id: Option<String>,
    },
    Batch(Vec<String>),
    Request {
        id: String,
        method: String,
        said: MessageTexts,
    },
    Notification {
        method: String,
        said: MessageTexts,
    },
    Response,
}

/// JSON texts of what a message says, where it says it.
#[derive(Debug, Default, PartialEq, Eq)]
struct MessageTexts([Option<String>; 11]);

/// Reads a body in both ways.
///
/// # Panics
///
/// If they differ.
pub fn envelope_holds(body: &[u8]) {
    let scanned = scanned(body);
    let expected = match serde_json::from_slice::<Value>(body) {
        // Numbers beyond f64 are well formed; what they are worth is their reader's affair.
        Err(e) if e.to_string().contains("number out of range") => return,
        Err(_) => Read::NotJson,
        Ok(tree) if !within_bounds(&tree, DEPTH_MAX) => {
            assert!(
                matches!(scanned, Read::NotJson | Read::Invalid { id: None }),
                "beyond the bounds of depth or members: {scanned:?}"
            );
            return;
        }
        Ok(_) => parsed(body),
    };
    // Members that are there twice count for the scanner's bound, and are one to the tree.
    let crowded = matches!(Payload::read(body), Err(e) if e.excess == Some(Excess::Members));
    if !crowded {
        assert_eq!(scanned, expected);
    }
    if let Ok(Payload::Batch(elements)) = Payload::read(body) {
        for element in elements {
            envelope_holds(element.as_bytes());
        }
    }
}

fn scanned(body: &[u8]) -> Read {
    let owned = |text: &str| text.to_owned();
    match Payload::read(body) {
        Ok(Payload::Batch(elements)) => Read::Batch(elements.into_iter().map(owned).collect()),
        Ok(Payload::Single(Message::Request(request))) => Read::Request {
            id: request.id.to_owned(),
            method: request.method.into_owned(),
            said: said(&request.params),
        },
        Ok(Payload::Single(Message::Notification(notification))) => Read::Notification {
            method: notification.method.into_owned(),
            said: said(&notification.params),
        },
        Ok(Payload::Single(Message::Response(_))) => Read::Response,
        Err(problem) => match problem.kind {
            MalformedKind::Parse => Read::NotJson,
            MalformedKind::Invalid => Read::Invalid {
                id: problem.id.map(owned),
            },
        },
    }
}

fn said(params: &super::message::Params<'_>) -> MessageTexts {
    let meta = &params.meta;
    MessageTexts(
        [
            params.name,
            params.uri,
            params.arguments,
            params.rare().input_responses,
            params.rare().request_state,
            params.rare().task,
            params.rare().task_id,
            meta.protocol_version,
            meta.client_capabilities,
            meta.log_level,
            meta.progress_token,
        ]
        .map(|text| text.map(str::to_owned)),
    )
}

/// Reads a body that is JSON within bounds.
fn parsed(body: &[u8]) -> Read {
    if let Ok(elements) = serde_json::from_slice::<Vec<&RawValue>>(body) {
        return Read::Batch(elements.into_iter().map(|e| e.get().to_owned()).collect());
    }
    let Ok(message) = serde_json::from_slice::<Members<'_>>(body) else {
        return Read::Invalid { id: None };
    };
    // With two different ids the right one is unknown.
    let mut ids = message.0.iter().filter(|(name, _)| name == "id");
    let first = ids.next().map(|(_, id)| id.get());
    let id = first.filter(|first| is_id(first) && ids.all(|(_, id)| id.get() == *first));
    let id = id.map(str::to_owned);
    read_message(&message).unwrap_or(Read::Invalid { id })
}

fn read_message(message: &Members<'_>) -> Option<Read> {
    let text = |json: &str| serde_json::from_str::<String>(json).ok();
    if text(message.once("jsonrpc")??)? != "2.0" {
        return None;
    }
    let id = message.once("id")?;
    if id.is_some_and(|id| !is_id(id)) {
        return None;
    }
    let said = match message.once("params")?.filter(|params| !is_absent(params)) {
        None => MessageTexts::default(),
        Some(params) => read_params(&serde_json::from_str(params).ok()?)?,
    };
    let error = message.once("error")?;
    let ends = [message.once("result")?, error];
    let ends = ends.into_iter().flatten().count();
    Some(match message.once("method")? {
        None if ends == 1 && error.map_or(id.is_some(), |e| is_error(e).is_some()) => {
            Read::Response
        }
        Some(method) if ends == 0 => match id {
            Some(id) => Read::Request {
                id: id.to_owned(),
                method: text(method)?,
                said,
            },
            None => Read::Notification {
                method: text(method)?,
                said,
            },
        },
        _ => return None,
    })
}

fn is_error(error: &str) -> Option<()> {
    if !is_object(error) {
        return None;
    }
    let error: Members<'_> = serde_json::from_str(error).ok()?;
    serde_json::from_str::<i64>(error.once("code")??).ok()?;
    serde_json::from_str::<String>(error.once("message")??).ok()?;
    Some(())
}

fn read_params(params: &Members<'_>) -> Option<MessageTexts> {
    let meta = match params.once("_meta")? {
        Some(meta) if is_object(meta) => serde_json::from_str(meta).ok()?,
        _ => Members(Vec::new()),
    };
    let said = [
        params.once("name")?,
        params.once("uri")?,
        params.once("arguments")?.filter(|given| !is_absent(given)),
        params.once("inputResponses")?,
        params.once("requestState")?,
        params.once("task")?,
        params.once("taskId")?,
        meta.once("io.modelcontextprotocol/protocolVersion")?,
        meta.once("io.modelcontextprotocol/clientCapabilities")?,
        meta.once("io.modelcontextprotocol/logLevel")?,
        meta.once("progressToken")?,
    ];
    Some(MessageTexts(said.map(|text| text.map(str::to_owned))))
}

fn is_id(json: &str) -> bool {
    match serde_json::from_str::<Value>(json) {
        Ok(Value::String(_)) => json.len() <= ID_MAX_BYTES + 2,
        Ok(Value::Number(_)) => {
            let whole = json.parse::<f64>().ok().filter(|n| n.fract() == 0.0);
            let is_float = json.len() <= ID_MAX_BYTES && json.contains(['.', 'e', 'E']);
            json.parse::<i128>()
                .is_ok_and(|n| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&n))
                || is_float && whole.is_some_and(|n| n.abs() < 9_007_199_254_740_992.0)
        }
        _ => false,
    }
}

fn within_bounds(tree: &Value, depth: u32) -> bool {
    let Some(below) = depth.checked_sub(1) else {
        return !tree.is_array() && !tree.is_object();
    };
    match tree {
        Value::Array(elements) => elements.iter().all(|e| within_bounds(e, below)),
        Value::Object(members) => {
            members.len() <= usize::from(MEMBERS_MAX)
                && members.values().all(|m| within_bounds(m, below))
        }
        _ => true,
    }
}

/// Members of an object in order, repeated ones included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn last(&self, name: &str) -> Option<&'a str> {
        let mut members = self.0.iter().rev();
        members
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.get())
    }

    /// A member's value; `None` if there are several.
    #[expect(clippy::option_option, reason = "the outer one is for `?`")]
    fn once(&self, name: &str) -> Option<Option<&'a str>> {
        match self.0.iter().filter(|(n, _)| n == name).count() {
            0 | 1 => Some(self.last(name)),
            _ => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    let value = map.next_value().map_err(A::Error::custom)?;
                    members.push((key, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Walk).map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of files say what must be: `y_` is JSON, `n_` is none, `i_` may be either.
    #[test]
    fn the_corpus_is_taken_and_refused_as_its_names_say() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/envelope");
        for entry in std::fs::read_dir(corpus).expect("a folder") {
            let path = entry.expect("an entry").path();
            let is_json = scanned(&std::fs::read(&path).expect("a file")) != Read::NotJson;
            let name = path.file_name().and_then(|n| n.to_str()).expect("UTF-8");
            match name.split('_').next() {
                Some("y" | "message") => assert!(is_json, "{name} was refused"),
                Some("n") => assert!(!is_json, "{name} was taken"),
                _ => {}
            }
        }
    }
}
