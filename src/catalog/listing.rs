//! Lists, serialised once.

use bytes::Bytes;

use super::table::{Listed, Table};
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

impl Listing {
    /// Serialises a table for one revision.
    pub(crate) fn new<T: Listed>(table: &Table<T>, frame: ListingFrame<'_>) -> Self {
        // An empty table has one page too.
        let starts = (0..table.len().max(1)).step_by(frame.page_size);
        Self {
            pages: starts
                .map(|start| write_page(table, frame, start))
                .collect(),
        }
    }

    /// The first page.
    #[inline]
    pub(crate) fn first(&self) -> &Bytes {
        &self.pages[0]
    }

    /// The page that begins after a cursor. `None` if the cursor was not made by a server with these keys.
    pub(crate) fn after<T: Listed>(
        &self,
        table: &Table<T>,
        frame: ListingFrame<'_>,
        cursor: &str,
    ) -> Option<Bytes> {
        let start = start_after(table, frame, cursor)?;
        let page = self.pages.get(start / frame.page_size);
        Some(match page {
            Some(page) if start % frame.page_size == 0 => page.clone(),
            _ => write_page(table, frame, start),
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

/// The entries of a table, each serialised once for one revision.
#[derive(Debug)]
pub(crate) struct Fragments {
    text: Bytes,
    ends: Vec<usize>,
}

impl Fragments {
    pub(crate) fn new<T: Listed>(table: &Table<T>, revision: Revision) -> Self {
        let mut text = Vec::new();
        let ends = table.iter().map(|entry| {
            entry.write(&mut text, revision);
            text.len()
        });
        let ends = ends.collect();
        Self {
            text: text.into(),
            ends,
        }
    }

    /// Entries that are not what their table says of them.
    pub(crate) fn of(entries: impl IntoIterator<Item = String>) -> Self {
        let mut text = Vec::new();
        let ends = entries.into_iter().map(|entry| {
            text.extend_from_slice(entry.as_bytes());
            text.len()
        });
        let ends = ends.collect();
        Self {
            text: text.into(),
            ends,
        }
    }

    /// Uses the text of others instead of its own, if it is the same to the letter.
    pub(crate) fn share(&mut self, other: &Self) {
        if self.text == other.text {
            self.text = other.text.clone();
        }
    }

    /// How much memory they take.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }

    /// What is said of what stands at a place.
    pub(crate) fn get(&self, place: usize) -> &[u8] {
        let start = match place {
            0 => 0,
            _ => self.ends[place - 1],
        };
        &self.text[start..self.ends[place]]
    }
}

/// The page of what is seen of a table, from a place on.
pub(crate) fn page_of_seen<T: Listed>(
    table: &Table<T>,
    fragments: &Fragments,
    frame: ListingFrame<'_>,
    sees: impl Fn(usize) -> bool,
    start: usize,
) -> Bytes {
    let mut seen = (start..table.len()).filter(|place| sees(*place)).peekable();
    let mut page = br#","result":{""#.to_vec();
    page.extend_from_slice(T::MEMBER.as_bytes());
    page.extend_from_slice(br#"":["#);
    let mut last = None;
    for place in seen.by_ref().take(frame.page_size) {
        if last.is_some() {
            page.push(b',');
        }
        page.extend_from_slice(fragments.get(place));
        last = Some(place);
    }
    page.push(b']');
    if let (Some(last), Some(_)) = (last, seen.peek()) {
        let cursor = Cursor {
            position: last + 1,
            last: table.entries()[last].key(),
        };
        let purpose = Purpose {
            kind: T::CURSOR,
            mount: frame.mount,
        };
        page.extend_from_slice(br#","nextCursor":"#);
        push_string(&mut page, &cursor.seal(frame.keys, purpose));
    }
    page.extend_from_slice(frame.tail.as_bytes());
    page.extend_from_slice(b"}}");
    page.into()
}

/// Where the page begins that a cursor leads to. `None` if it was not made for this frame's mount.
pub(crate) fn start_after<T: Listed>(
    table: &Table<T>,
    frame: ListingFrame<'_>,
    cursor: &str,
) -> Option<usize> {
    let purpose = Purpose {
        kind: T::CURSOR,
        mount: frame.mount,
    };
    let text = frame.keys.verify(purpose, cursor.as_bytes())?;
    let cursor = Cursor::read(&text)?;
    // The table may have changed since: go on after what was last, or else at the same place.
    Some(match table.position(cursor.last) {
        Some(position) => position + 1,
        None => cursor.position.min(table.len()),
    })
}

/// Where a page ended.
struct Cursor<'a> {
    position: usize,
    last: &'a str,
}

impl<'a> Cursor<'a> {
    fn seal(&self, keys: &KeyRing, purpose: Purpose<'_>) -> String {
        let text = format!("{} {}", self.position, self.last);
        keys.sign(purpose, text.as_bytes())
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
fn write_page<T: Listed>(table: &Table<T>, frame: ListingFrame<'_>, start: usize) -> Bytes {
    let entries = table.entries();
    let end = entries.len().min(start + frame.page_size);
    let mut page = br#","result":{""#.to_vec();
    page.extend_from_slice(T::MEMBER.as_bytes());
    page.extend_from_slice(br#"":["#);
    for (position, entry) in entries[start..end].iter().enumerate() {
        if position > 0 {
            page.push(b',');
        }
        entry.write(&mut page, frame.revision);
    }
    page.push(b']');
    if end < entries.len() {
        let cursor = Cursor {
            position: end,
            last: entries[end - 1].key(),
        };
        let purpose = Purpose {
            kind: T::CURSOR,
            mount: frame.mount,
        };
        page.extend_from_slice(br#","nextCursor":"#);
        push_string(&mut page, &cursor.seal(frame.keys, purpose));
    }
    page.extend_from_slice(frame.tail.as_bytes());
    page.extend_from_slice(b"}}");
    page.into()
}
