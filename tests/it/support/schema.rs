//! Every message that a server sends in a test fits the JSON schema of its revision (TOOL-08, TOOL-11 among others).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

/// The specification's own schemas, by revision.
const SCHEMAS: [(&str, &str); 5] = [
    ("2024-11-05", include_str!("../schemas/2024-11-05.json")),
    ("2025-03-26", include_str!("../schemas/2025-03-26.json")),
    ("2025-06-18", include_str!("../schemas/2025-06-18.json")),
    ("2025-11-25", include_str!("../schemas/2025-11-25.json")),
    ("2026-07-28", include_str!("../schemas/2026-07-28.json")),
];
const STATELESS: &str = "2026-07-28";
/// Protocol version for messages of unknown version.
const UNKNOWN: &str = "2025-11-25";

type Revision = &'static str;

/// Pending requests of a connection, with their versions.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    asked: Vec<Asked>,
    /// The revision of the handshake that was made here, over standard input and output.
    session: Option<Revision>,
    /// The revision of the last message that went out.
    last: Option<Revision>,
    http: Http,
}

#[derive(Debug)]
struct Asked {
    id: Value,
    method: String,
    revision: Option<Revision>,
}

/// Bytes on their way out, taken apart as far as they are requests.
#[derive(Debug, Default)]
struct Http {
    out: VecDeque<u8>,
    /// Messages can no longer be matched.
    lost: bool,
}

/// Revisions of sessions that were opened over HTTP in this process, by their ids.
static SESSIONS: LazyLock<Mutex<HashMap<String, Revision>>> = LazyLock::new(Mutex::default);

impl Conversation {
    /// Notes what goes out over HTTP/1.1.
    pub(crate) fn sent_bytes(&mut self, bytes: &[u8]) {
        self.http.out.extend(bytes);
        while let Some((head, body)) = self.http.request() {
            let session = head
                .lines()
                .find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
                })
                .and_then(session_revision);
            self.last = session;
            if let Ok(message) = serde_json::from_slice(&body) {
                self.note(&message, session);
            }
        }
    }

    /// Notes a message, or an array of them, that goes out where answers come in any order. What had the same id before
    /// was given up.
    pub(crate) fn sent(&mut self, message: &Value, session: Option<Revision>) {
        let ids = match message {
            Value::Array(messages) => messages.iter().map(|message| &message["id"]).collect(),
            message => vec![&message["id"]],
        };
        self.asked.retain(|asked| !ids.contains(&&asked.id));
        self.note(message, session);
    }

    fn note(&mut self, message: &Value, session: Option<Revision>) {
        if let Value::Array(messages) = message {
            for message in messages {
                self.note(message, session);
            }
            return;
        }
        let stateless = message["params"]["_meta"]
            .get("io.modelcontextprotocol/protocolVersion")
            .is_some();
        let revision = if stateless {
            Some(STATELESS)
        } else {
            session.or(self.session)
        };
        self.last = revision;
        if let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) {
            self.asked.push(Asked {
                id: id.clone(),
                method: method.to_owned(),
                revision,
            });
        }
    }

    /// Checks a message, or an array of them, that came in. `session` is the id that came with it.
    #[track_caller]
    pub(crate) fn received(&mut self, message: &Value, session: Option<&str>) {
        if let Value::Array(messages) = message {
            assert!(!messages.is_empty(), "an array without messages");
            for message in messages {
                self.received(message, session);
            }
            return;
        }
        let Some(method) = message["method"].as_str() else {
            return self.answered(message, session);
        };
        let revision = self.last.unwrap_or(UNKNOWN);
        if message.get("id").is_some() {
            assert_ne!(
                revision, STATELESS,
                "MH-15, STD-03: a request to the client: {message}"
            );
            fits(revision, "JSONRPCRequest", message);
        } else {
            fits(revision, "JSONRPCNotification", message);
        }
        // Extensions have no schema here.
        if let Some(definition) = definition_of_method(revision, method) {
            fits(revision, &definition, message);
        } else if revision != STATELESS || !method.starts_with("notifications/tasks") {
            panic!("{revision} has no {method}: {message}");
        }
    }

    #[track_caller]
    fn answered(&mut self, message: &Value, session: Option<&str>) {
        let (result, error) = (message.get("result"), message.get("error"));
        assert!(
            result.is_some() != error.is_some(),
            "RPC-04: neither result nor error, or both: {message}"
        );
        let position = match message.get("id") {
            Some(id) => self.asked.iter().position(|asked| asked.id == *id),
            // Such as that of a session that is not known. The answers on a connection keep the order of the requests.
            None if message["error"]["code"] == 404 => (!self.asked.is_empty()).then_some(0),
            None => None,
        };
        let asked = position.map(|position| self.asked.remove(position));
        let Some(result) = result else {
            let revision = asked.and_then(|asked| asked.revision).or(self.last);
            return check_error(revision.unwrap_or(UNKNOWN), message);
        };
        let Some(Asked {
            method, revision, ..
        }) = asked
        else {
            // On another connection than it was asked for on.
            return fits(self.last.unwrap_or(UNKNOWN), "JSONRPCResponse", message);
        };
        let revision = if method == "initialize" && revision != Some(STATELESS) {
            let revision = known(result["protocolVersion"].as_str().expect("a version"));
            match session {
                Some(id) => {
                    SESSIONS
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(id.to_owned(), revision);
                }
                None => self.session = Some(revision),
            }
            revision
        } else {
            revision.unwrap_or(UNKNOWN)
        };
        fits(revision, "JSONRPCResponse", message);
        fits(
            revision,
            definition_of_result(revision, &method, result),
            result,
        );
        if revision == STATELESS {
            assert!(result["resultType"].is_string(), "META-07: {message}");
        } else if definition_of_method(revision, &method).is_some() {
            for member in ["resultType", "ttlMs", "cacheScope"] {
                assert!(
                    result.get(member).is_none(),
                    "{revision} has no {member}: {message}"
                );
            }
        }
    }
}

impl Http {
    /// The first request that is complete: its head and its body.
    fn request(&mut self) -> Option<(String, Vec<u8>)> {
        if self.lost {
            return None;
        }
        let out = self.out.make_contiguous();
        let end = out.windows(4).position(|four| four == b"\r\n\r\n")?;
        let Ok(head) = std::str::from_utf8(&out[..end]) else {
            self.lost = true;
            return None;
        };
        let length = head
            .lines()
            .find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse::<usize>())
            })
            .unwrap_or(Ok(0));
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding");
        let (Ok(length), false) = (length, chunked) else {
            self.lost = true;
            return None;
        };
        let whole = end + 4 + length;
        if out.len() < whole {
            return None;
        }
        let head = head.to_owned();
        let body = out[end + 4..whole].to_vec();
        self.out.drain(..whole);
        Some((head, body))
    }
}

fn session_revision(id: &str) -> Option<Revision> {
    let sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.get(id).copied()
}

fn known(version: &str) -> Revision {
    let found = SCHEMAS.iter().find(|(revision, _)| *revision == version);
    found
        .unwrap_or_else(|| panic!("{version} is no revision"))
        .0
}

/// An error whose request could not be read has no id. Schemas before 2025-11-25 do not know that case.
#[track_caller]
fn check_error(revision: Revision, message: &Value) {
    let mut message = message.clone();
    if message.get("id").is_none() {
        message["id"] = json!(0);
    }
    let definition = match revision {
        "2025-11-25" | "2026-07-28" => "JSONRPCErrorResponse",
        _ => "JSONRPCError",
    };
    fits(revision, definition, &message);
    let code = message["error"]["code"].as_i64().expect("a code");
    if code == -32042 {
        // ELI-10: for nothing but pages that have to be visited, each with its id.
        assert_eq!(revision, "2025-11-25", "ELI-10: {message}");
        fits(revision, "URLElicitationRequiredError", &message);
        let visits = message["error"]["data"]["elicitations"].as_array();
        let visits = visits.expect("pages to visit");
        assert!(!visits.is_empty(), "ELI-10: {message}");
        for visit in visits {
            fits(revision, "ElicitRequestURLParams", visit);
        }
    }
    if revision == STATELESS {
        assert!(
            !matches!(code, -32002 | -32042),
            "RPC-10: a code of older revisions: {message}"
        );
        assert!(
            !(-32099..=-32000).contains(&code) || (-32022..=-32020).contains(&code),
            "RPC-09, RPC-11: a code that means nothing: {message}"
        );
    }
}

fn definition_of_result(revision: Revision, method: &str, result: &Value) -> &'static str {
    match result["resultType"].as_str() {
        Some("input_required") => return "InputRequiredResult",
        // The extension's own schema is not here.
        Some("task") => return "Result",
        _ => {}
    }
    match method {
        "initialize" => "InitializeResult",
        "server/discover" => "DiscoverResult",
        "tools/call" if result.get("task").is_some() && revision == "2025-11-25" => {
            "CreateTaskResult"
        }
        "tools/call" => "CallToolResult",
        "tools/list" => "ListToolsResult",
        "resources/list" => "ListResourcesResult",
        "resources/templates/list" => "ListResourceTemplatesResult",
        "resources/read" => "ReadResourceResult",
        "prompts/list" => "ListPromptsResult",
        "prompts/get" => "GetPromptResult",
        "completion/complete" => "CompleteResult",
        "subscriptions/listen" => "SubscriptionsListenResult",
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            assert_eq!(*result, json!({}), "an empty result has nothing in it");
            "EmptyResult"
        }
        "tasks/get" if revision != STATELESS => "GetTaskResult",
        "tasks/cancel" if revision != STATELESS => "CancelTaskResult",
        "tasks/list" if revision != STATELESS => "ListTasksResult",
        _ => "Result",
    }
}

/// The definition of a request or notification that a revision has.
fn definition_of_method(revision: Revision, method: &str) -> Option<String> {
    let (definitions, _) = definitions(revision);
    definitions.iter().find_map(|(name, definition)| {
        let of = &definition["properties"]["method"]["const"];
        (*of == method).then(|| name.clone())
    })
}

/// The definitions of a revision, and the member that they are in.
fn definitions(revision: Revision) -> (&'static Map<String, Value>, &'static str) {
    static PARSED: LazyLock<HashMap<Revision, Value>> = LazyLock::new(|| {
        let parse = |text| serde_json::from_str(text).expect("a schema");
        SCHEMAS
            .iter()
            .map(|(revision, text)| (*revision, parse(text)))
            .collect()
    });
    let schema = &PARSED[revision];
    let member = if schema.get("$defs").is_some() {
        "$defs"
    } else {
        "definitions"
    };
    (schema[member].as_object().expect("definitions"), member)
}

/// Checks a value against one definition of a revision.
#[track_caller]
fn fits(revision: Revision, definition: &str, value: &Value) {
    let validator = validator(revision, definition);
    if let Err(error) = validator.validate(value) {
        panic!(
            "does not fit {definition} of {revision}: {error} at {}: {value}",
            error.instance_path()
        );
    }
}

fn validator(revision: Revision, definition: &str) -> Arc<Validator> {
    static COMPILED: LazyLock<Mutex<HashMap<(Revision, String), Arc<Validator>>>> =
        LazyLock::new(Mutex::default);
    let key = (revision, definition.to_owned());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = compiled.entry(key).or_insert_with(|| {
        let (all, member) = definitions(revision);
        assert!(
            all.contains_key(definition),
            "{revision} has no {definition}"
        );
        let dialect = match member {
            "$defs" => "https://json-schema.org/draft/2020-12/schema",
            _ => "http://json-schema.org/draft-07/schema#",
        };
        let schema = json!({
            "$schema": dialect,
            "allOf": [{"$ref": format!("#/{member}/{definition}")}],
            member: all,
        });
        Arc::new(jsonschema::validator_for(&schema).expect("a valid schema"))
    });
    Arc::clone(validator)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(request: Value) -> Conversation {
        let mut conversation = Conversation::default();
        conversation.sent(&request, Some("2025-06-18"));
        conversation
    }

    #[test]
    fn what_fits_passes() {
        let mut with = conversation(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
        with.received(
            &json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}),
            None,
        );
    }

    #[test]
    #[should_panic(expected = "does not fit ListToolsResult of 2025-06-18")]
    fn what_does_not_fit_fails() {
        let mut with = conversation(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
        with.received(
            &json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "a"}]}}),
            None,
        );
    }

    #[test]
    #[should_panic(expected = "RPC-09")]
    fn codes_without_a_meaning_fail() {
        let mut conversation = Conversation::default();
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        conversation.sent(
            &json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": meta}}),
            None,
        );
        let error = json!({"code": -32050, "message": "?"});
        conversation.received(&json!({"jsonrpc": "2.0", "id": 1, "error": error}), None);
    }
}
