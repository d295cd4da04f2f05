//! List methods, which return pages that are serialized once.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::errors::{invalid_params, read_params};
use super::listings::Listings;
use super::parts::Server;
use super::reply::{Reply, begin};
use super::request_context::Caller;
use super::snapshot::Snapshot;
use super::tool_search::search_for;
use crate::auth::ItemKind;
use crate::catalog::{ListItem, Table, opening, opening_len};
use crate::protocol::message::Request;

/// Parameters of a list method.
#[derive(Deserialize)]
pub(super) struct ListParams<'a> {
    #[serde(borrow)]
    pub(super) cursor: Option<Cow<'a, str>>,
}

pub(super) fn list_tools(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    if snapshot.search.is_some()
        && let Some(search) = search_for(&snapshot, caller.principal)
    {
        let verbs = (None, &search.listings);
        return list(server, &snapshot, verbs, &search.verbs, caller, request);
    }
    let of = (Some(ItemKind::Tools), &snapshot.tools);
    list(
        server,
        &snapshot,
        of,
        &snapshot.catalog.tools,
        caller,
        request,
    )
}

pub(super) fn list_resources(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    let of = (Some(ItemKind::Resources), &snapshot.resources);
    list(
        server,
        &snapshot,
        of,
        &snapshot.catalog.resources,
        caller,
        request,
    )
}

pub(super) fn list_templates(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    let of = (Some(ItemKind::Templates), &snapshot.templates);
    list(
        server,
        &snapshot,
        of,
        &snapshot.catalog.templates,
        caller,
        request,
    )
}

pub(super) fn list_prompts(server: &Server, caller: Caller<'_>, request: &Request<'_>) -> Reply {
    let snapshot = server.snapshots.load();
    let of = (Some(ItemKind::Prompts), &snapshot.prompts);
    list(
        server,
        &snapshot,
        of,
        &snapshot.catalog.prompts,
        caller,
        request,
    )
}

/// Returns the requested page.
pub(super) fn list<T: ListItem>(
    server: &Server,
    snapshot: &Snapshot,
    (shelf, listings): (Option<ItemKind>, &Listings),
    table: &Table<T>,
    caller: Caller<'_>,
    request: &Request<'_>,
) -> Reply {
    let cursor = match request.params.object {
        None | Some("{}") => None,
        Some(_) => match read_params(request) {
            Ok(ListParams { cursor }) => cursor,
            Err(reply) => return reply,
        },
    };
    let frame = snapshot.frame(
        caller.revision,
        &server.config,
        &server.keys,
        &server.endpoint,
    );
    if let (Some(view), Some(shelf)) = (&snapshot.policy_view, shelf) {
        let class = view.policy.class_of(caller.principal);
        let visible = view.visible(&class, shelf, &snapshot.catalog);
        if !visible.everything {
            let of = (&*class, visible);
            return match view.page(shelf, table, frame, of, cursor.as_deref()) {
                Some(page) => Reply::pieces(begin_list(table, request.id), page),
                None => invalid_params(request.id, UNKNOWN_CURSOR),
            };
        }
    }
    let listing = listings.get(table, frame);
    let page = match cursor {
        None => listing.first().clone(),
        Some(cursor) => match listing.after(table, frame, &cursor) {
            Some(page) => page,
            None => return invalid_params(request.id, UNKNOWN_CURSOR),
        },
    };
    Reply::pieces(begin(request.id, 0).into(), page)
}

/// Starts a page that contains only items visible to the caller.
pub(super) fn begin_list<T: ListItem>(_: &Table<T>, id: &str) -> Bytes {
    let mut head = begin(id, opening_len::<T>());
    opening::<T>(&mut head);
    head.into()
}

pub(super) const UNKNOWN_CURSOR: &str =
    "the cursor is not one of this server's; list from the start";
