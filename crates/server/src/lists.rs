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

/// Handles the list method of a kind of item.
pub(super) fn list(
    server: &Server,
    kind: ItemKind,
    caller: Caller<'_>,
    request: &Request<'_>,
) -> Reply {
    let snapshot = &*server.snapshots.load();
    let (catalog, by) = (&snapshot.catalog, (caller, request));
    match kind {
        ItemKind::Tools => match search_for(snapshot, caller.principal) {
            Some(search) => {
                let verbs = (None, &search.listings, &search.verbs);
                page(server, snapshot, verbs, by)
            }
            None => {
                let of = (Some(kind), &snapshot.tools, &catalog.tools);
                page(server, snapshot, of, by)
            }
        },
        ItemKind::Resources => {
            let of = (Some(kind), &snapshot.resources, &catalog.resources);
            page(server, snapshot, of, by)
        }
        ItemKind::Templates => {
            let of = (Some(kind), &snapshot.templates, &catalog.templates);
            page(server, snapshot, of, by)
        }
        ItemKind::Prompts => {
            let of = (Some(kind), &snapshot.prompts, &catalog.prompts);
            page(server, snapshot, of, by)
        }
    }
}

/// Returns the requested page. The policy applies to items of a kind.
pub(super) fn page<T: ListItem>(
    server: &Server,
    snapshot: &Snapshot,
    (kind, listings, table): (Option<ItemKind>, &Listings, &Table<T>),
    (caller, request): (Caller<'_>, &Request<'_>),
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
    if let (Some(view), Some(kind)) = (&snapshot.policy_view, kind) {
        let class = view.policy.class_of(caller.principal);
        let visible = view.visible(&class, kind, &snapshot.catalog);
        if !visible.everything {
            let of = (&*class, visible);
            return match view.page(kind, table, frame, of, cursor.as_deref()) {
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
