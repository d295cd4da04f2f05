//! `tools/list` and its sisters: pages that were serialised once.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::generation::{Generation, Listings};
use super::reply::{Reply, begin};
use super::tools::invalid_params;
use super::{Caller, Server};
use crate::auth::Shelf;
use crate::catalog::{Listed, Table, opening, opening_len};
use crate::protocol::message::Request;

impl Server {
    pub(super) fn list_tools(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        if generation.search.is_some()
            && let Some(search) = generation.searched(caller.principal)
        {
            let verbs = (None, &search.listings);
            return self.list(&generation, verbs, &search.verbs, caller, request);
        }
        let table = &generation.catalog.tools;
        self.list(
            &generation,
            (Some(Shelf::Tools), &generation.tools),
            table,
            caller,
            request,
        )
    }

    pub(super) fn list_resources(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        let table = &generation.catalog.resources;
        self.list(
            &generation,
            (Some(Shelf::Resources), &generation.resources),
            table,
            caller,
            request,
        )
    }

    pub(super) fn list_templates(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        let table = &generation.catalog.templates;
        self.list(
            &generation,
            (Some(Shelf::Templates), &generation.templates),
            table,
            caller,
            request,
        )
    }

    pub(super) fn list_prompts(&self, caller: Caller<'_>, request: &Request<'_>) -> Reply {
        let generation = self.generation.load();
        let table = &generation.catalog.prompts;
        self.list(
            &generation,
            (Some(Shelf::Prompts), &generation.prompts),
            table,
            caller,
            request,
        )
    }

    /// Answers with the page that was asked for.
    pub(super) fn list<T: Listed>(
        &self,
        generation: &Generation,
        (shelf, listings): (Option<Shelf>, &Listings),
        table: &Table<T>,
        caller: Caller<'_>,
        request: &Request<'_>,
    ) -> Reply {
        #[derive(Deserialize)]
        struct ListParams<'a> {
            #[serde(borrow)]
            cursor: Option<Cow<'a, str>>,
        }
        let frame = generation.frame(caller.revision, &self.config, &self.keys, &self.mount);
        if let (Some(seen), Some(shelf)) = (&generation.seen, shelf) {
            let class = seen.policy.class_of(caller.principal);
            let visible = seen.visible(&class, shelf, &generation.catalog);
            if !visible.everything {
                let cursor = match request.params.object {
                    None | Some("{}") => None,
                    Some(params) => match serde_json::from_str(params) {
                        Ok(ListParams { cursor }) => cursor,
                        Err(e) => return invalid_params(request.id, &e.to_string()),
                    },
                };
                let of = (&*class, visible);
                return match seen.page(shelf, table, frame, of, cursor.as_deref()) {
                    Some(page) => Reply::pieces(begin_list(table, request.id), page),
                    None => invalid_params(request.id, FOREIGN_CURSOR),
                };
            }
        }
        let listing = listings.get(table, frame);
        let page = match request.params.object {
            None | Some("{}") => listing.first().clone(),
            Some(params) => match serde_json::from_str::<ListParams<'_>>(params) {
                Ok(ListParams { cursor: None }) => listing.first().clone(),
                Ok(ListParams {
                    cursor: Some(cursor),
                }) => {
                    let Some(page) = listing.after(table, frame, &cursor) else {
                        return invalid_params(request.id, FOREIGN_CURSOR);
                    };
                    page
                }
                Err(e) => return invalid_params(request.id, &e.to_string()),
            },
        };
        Reply::pieces(begin(request.id, 0).into(), page)
    }
}

/// The beginning of a page that was made of what a caller sees.
pub(super) fn begin_list<T: Listed>(_: &Table<T>, id: &str) -> Bytes {
    let mut head = begin(id, opening_len::<T>());
    opening::<T>(&mut head);
    head.into()
}

pub(super) const FOREIGN_CURSOR: &str =
    "the cursor is not one of this server's; list from the start";
