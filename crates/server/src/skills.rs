//! Handlers of the skills extension: `skills/list`, `skills/get` and `resources/directory/read`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::errors::{check_scopes, invalid_params, read_params};
use super::lists;
use super::lists::{ListParams, UNKNOWN_CURSOR, begin_list};
use super::parts::Server;
use super::reply::{Reply, begin};
use super::request_context::Caller;
use super::text::truncated;
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, ErrorObject};

#[derive(Deserialize)]
struct OfUri<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
    /// Each result has a single page, so any cursor is invalid.
    cursor: Option<serde::de::IgnoredAny>,
}

pub(super) fn list(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    let table = &snapshot.catalog.skills;
    if let Some(view) = &snapshot.policy_view {
        let ListParams { cursor } = match read_params(request) {
            Ok(params) => params,
            Err(reply) => return reply,
        };
        let sees = |uri: &str| snapshot.sees_uri(caller.principal, uri);
        let frame = snapshot.frame(
            caller.revision,
            &server.config,
            &server.keys,
            &server.endpoint,
        );
        let page = view.page_by_uri(
            table,
            |skill| visible_entry(&skill.entry, sees),
            frame,
            caller.principal,
            cursor.as_deref(),
        );
        return match page {
            Some(page) => Reply::pieces(begin_list(table, request.id), page),
            None => invalid_params(request.id, UNKNOWN_CURSOR),
        };
    }
    let of = (None, &snapshot.skills, table);
    lists::page(server, &snapshot, of, (caller, request))
}

pub(super) fn get(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    result_for_uri(server, request, "Unknown skill", "skill", |uri| {
        let Some(entry) = snapshot.catalog.skills.get(uri) else {
            return Ok(None);
        };
        let Some(needed) = snapshot.scopes_for_uri(caller.principal, uri) else {
            return Ok(None);
        };
        check_scopes(caller.principal, request.id, &needed)?;
        Ok(Some(match &snapshot.policy_view {
            None => Cow::Borrowed(entry.entry.as_str()),
            Some(_) => {
                let sees = |uri: &str| snapshot.sees_uri(caller.principal, uri);
                visible_entry(&entry.entry, sees).into()
            }
        }))
    })
}

pub(super) fn read_directory(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    result_for_uri(server, request, "Not a directory", "resources", |uri| {
        let folders = &snapshot.catalog.folders;
        let uri = uri.strip_suffix('/').unwrap_or(uri);
        let needed = snapshot.scopes_for_uri(caller.principal, uri);
        let (Some(needed), Some(listed)) = (needed, folders.get(uri)) else {
            return Ok(None);
        };
        check_scopes(caller.principal, request.id, &needed)?;
        if snapshot.policy_view.is_none() {
            return Ok(Some(Cow::Borrowed(listed.as_str())));
        }
        let mut listed: Vec<Value> = serde_json::from_str(listed).unwrap_or_default();
        listed.retain(|entry| {
            let uri = entry["uri"].as_str().unwrap_or_default();
            snapshot.sees_uri(caller.principal, uri)
        });
        Ok(Some(Value::from(listed).to_string().into()))
    })
}

/// Returns the item with a URI, as one member of a result.
fn result_for_uri<'a>(
    server: &Server,
    request: &Request<'_>,
    unknown: &'static str,
    member: &str,
    find: impl FnOnce(&str) -> Result<Option<Cow<'a, str>>, Reply>,
) -> Reply {
    let of: OfUri<'_> = match read_params(request) {
        Ok(of) => of,
        Err(reply) => return reply,
    };
    if of.cursor.is_some() {
        return invalid_params(
            request.id,
            "the list has one page; this cursor is not valid",
        );
    }
    let found = match find(&of.uri) {
        Ok(Some(found)) => found,
        Ok(None) => {
            let message = format!("{unknown}: {}", truncated(&of.uri));
            let error = ErrorObject::new(ErrorCode::InvalidParams, message);
            let data = json!({"uri": truncated(&of.uri)});
            return Reply::error(request.id, &error.with_data(data));
        }
        Err(refused) => return refused,
    };
    let snapshot = server.snapshots.load();
    let tail = snapshot.list_tail();
    let mut out = begin(request.id, 32 + found.len() + tail.len());
    out.extend_from_slice(format!(r#","result":{{"{member}":"#).as_bytes());
    out.extend_from_slice(found.as_bytes());
    out.extend_from_slice(tail.as_bytes());
    out.extend_from_slice(b"}}");
    Reply::document(out)
}

/// Entry of a skill without the files that the caller may not read.
fn visible_entry(entry: &str, sees: impl Fn(&str) -> bool) -> String {
    let mut entry: Value = serde_json::from_str(entry).unwrap_or_default();
    if let Some(files) = entry["resources"].as_array_mut() {
        files.retain(|file| file["uri"].as_str().is_some_and(&sees));
    }
    entry.to_string()
}
