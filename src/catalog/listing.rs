//! `tools/list`, serialised once.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Catalog, Definition};
use crate::protocol::{Revision, push_string};
use crate::seal::{KeyRing, Purpose};

/// The pages of one listing as one revision's clients see it: everything of the answer that comes after the
/// request's id.
#[derive(Debug)]
pub(crate) struct Listing {
    pages: Vec<Bytes>,
}

/// What is the same for all pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListingFrame<'a> {
    pub(crate) revision: Revision,
    pub(crate) page_size: usize,
    /// Members that stand behind the list in each result, with a comma in front of them.
    pub(crate) tail: &'a str,
    pub(crate) keys: &'a KeyRing,
    pub(crate) mount: &'a str,
}

const CURSOR: &str = "tools cursor 1";

impl Listing {
    /// Serialises a catalog for one revision.
    pub(crate) fn new(catalog: &Catalog, frame: ListingFrame<'_>) -> Self {
        // An empty catalog has one page too.
        let starts = (0..catalog.len().max(1)).step_by(frame.page_size);
        Self {
            pages: starts
                .map(|start| write_page(catalog, frame, start))
                .collect(),
        }
    }

    /// The first page.
    #[inline]
    pub(crate) fn first(&self) -> &Bytes {
        &self.pages[0]
    }

    /// The page that begins after a cursor. `None` if the cursor was not made by a server with these keys.
    pub(crate) fn after(
        &self,
        catalog: &Catalog,
        frame: ListingFrame<'_>,
        cursor: &str,
    ) -> Option<Bytes> {
        let purpose = Purpose {
            kind: CURSOR,
            mount: frame.mount,
        };
        let text = frame.keys.verify(purpose, cursor.as_bytes())?;
        let cursor = Cursor::read(&text)?;
        // The catalog may have changed since: go on after the name that was last, or else at the same place.
        let start = match catalog.position(cursor.last) {
            Some(position) => position + 1,
            None => cursor.position.min(catalog.len()),
        };
        let page = self.pages.get(start / frame.page_size);
        Some(match page {
            Some(page) if start % frame.page_size == 0 => page.clone(),
            _ => write_page(catalog, frame, start),
        })
    }

    /// Uses the pages of another listing instead of its own where they are the same to the letter.
    pub(crate) fn share(&mut self, other: &Self) {
        for (page, twin) in self.pages.iter_mut().zip(&other.pages) {
            if page == twin {
                page.clone_from(twin);
            }
        }
    }
}

/// Where a page ended.
struct Cursor<'a> {
    position: usize,
    last: &'a str,
}

impl<'a> Cursor<'a> {
    fn seal(&self, keys: &KeyRing, mount: &str) -> String {
        let text = format!("{} {}", self.position, self.last);
        keys.sign(
            Purpose {
                kind: CURSOR,
                mount,
            },
            text.as_bytes(),
        )
    }

    fn read(text: &'a [u8]) -> Option<Self> {
        let (position, last) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        Some(Self {
            position: position.parse().ok()?,
            last,
        })
    }
}

/// Writes the page that begins at a position.
fn write_page(catalog: &Catalog, frame: ListingFrame<'_>, start: usize) -> Bytes {
    let tools = catalog.tools();
    let end = tools.len().min(start + frame.page_size);
    let mut page = br#","result":{"tools":["#.to_vec();
    for (position, entry) in tools[start..end].iter().enumerate() {
        if position > 0 {
            page.push(b',');
        }
        write_definition(&mut page, entry.tool.definition(), frame.revision);
    }
    page.push(b']');
    if end < tools.len() {
        let last = tools[end - 1].tool.definition().name();
        page.extend_from_slice(br#","nextCursor":"#);
        push_string(
            &mut page,
            &Cursor {
                position: end,
                last,
            }
            .seal(frame.keys, frame.mount),
        );
    }
    page.extend_from_slice(frame.tail.as_bytes());
    page.extend_from_slice(b"}}");
    page.into()
}

/// Writes what a revision's clients are told of a tool. Schemas keep their author's members and order.
fn write_definition(out: &mut Vec<u8>, definition: &Definition, revision: Revision) {
    let mut tool = Map::new();
    let mut put = |key: &str, value: Value| tool.insert(key.to_owned(), value);
    put("name", definition.name.clone().into());
    if let Some(title) = definition
        .title
        .clone()
        .filter(|_| revision.has_structured_results())
    {
        put("title", title.into());
    }
    if let Some(description) = &definition.description {
        put("description", description.clone().into());
    }
    put("inputSchema", definition.input_schema.clone());
    if let Some(schema) = &definition.output_schema {
        let is_object = schema.get("type").is_some_and(|kind| kind == "object");
        if revision.has_structured_values_of_any_kind()
            || revision.has_structured_results() && is_object
        {
            put("outputSchema", schema.clone());
        }
    }
    if revision.has_annotations()
        && let Ok(Value::Object(mut hints)) = serde_json::to_value(&definition.annotations)
    {
        if let Some(title) = definition
            .title
            .clone()
            .filter(|_| !revision.has_structured_results())
        {
            hints.entry("title").or_insert(title.into());
        }
        if !hints.is_empty() {
            put("annotations", hints.into());
        }
    }
    if revision.has_icons()
        && !definition.icons.is_empty()
        && let Ok(icons) = serde_json::to_value(&definition.icons)
    {
        put("icons", icons);
    }
    if revision.has_structured_results() && !definition.meta.is_empty() {
        put("_meta", definition.meta.clone().into());
    }
    out.extend_from_slice(Value::Object(tool).to_string().as_bytes());
}
