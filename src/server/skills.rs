//! `skills/list`, `skills/get` and `resources/directory/read`, which one extension has.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;

use super::reply::{Reply, begin};
use super::tools::invalid_params;
use super::{Caller, Server, truncated};
use crate::protocol::message::Request;
use crate::protocol::{ErrorCode, ErrorObject};

#[derive(Deserialize)]
struct OfUri<'a> {
    #[serde(borrow)]
    uri: Cow<'a, str>,
    /// There is one page of anything here.
    cursor: Option<serde::de::IgnoredAny>,
}

impl Server {
    pub(super) fn list_skills(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        let table = &generation.catalog.skills;
        self.list(
            &generation,
            (None, &generation.skills),
            table,
            caller,
            request,
        )
    }

    pub(super) fn get_skill(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        self.of_uri(request, "Unknown skill", "skill", |uri| {
            let entry = generation.catalog.skills.get(uri)?;
            generation.sees_uri(caller.principal, uri).then_some(())?;
            Some(entry.entry.as_str())
        })
    }

    pub(super) fn read_directory(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        self.of_uri(request, "Not a directory", "resources", |uri| {
            let folders = &generation.catalog.folders;
            let uri = uri.strip_suffix('/').unwrap_or(uri);
            generation.sees_uri(caller.principal, uri).then_some(())?;
            folders.get(uri).map(String::as_str)
        })
    }

    /// Answers with what is at a URI, as one member of a result.
    fn of_uri<'a>(
        &self,
        request: &Request<'_>,
        unknown: &'static str,
        member: &str,
        find: impl FnOnce(&str) -> Option<&'a str>,
    ) -> Reply {
        let params = request.params.object.unwrap_or("{}");
        let of = match serde_json::from_str::<OfUri<'_>>(params) {
            Ok(of) => of,
            Err(e) => return invalid_params(request.id, &e.to_string()),
        };
        if of.cursor.is_some() {
            return invalid_params(request.id, "there is one page, and no cursor leads here");
        }
        let Some(found) = find(&of.uri) else {
            let message = format!("{unknown}: {}", truncated(&of.uri));
            let error = ErrorObject::new(ErrorCode::InvalidParams, message);
            let data = json!({"uri": truncated(&of.uri)});
            return Reply::error(request.id, &error.with_data(data));
        };
        let generation = self.generation.load();
        let tail = generation.list_tail();
        let mut out = begin(request.id, 32 + found.len() + tail.len());
        out.extend_from_slice(format!(r#","result":{{"{member}":"#).as_bytes());
        out.extend_from_slice(found.as_bytes());
        out.extend_from_slice(tail.as_bytes());
        out.extend_from_slice(b"}}");
        Reply::document(out)
    }
}
