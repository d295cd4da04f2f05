//! Lists, serialised once.

use bytes::Bytes;

use super::table::{ListItem, Table};
use crate::net::SharedBytes;
use crate::protocol::{Revision, push_string};
use crate::seal::{KeyRing, Purpose};

/// The pages of one listing as one revision's clients see it: everything of the answer that comes after the
/// request's id.
#[derive(Debug)]
pub struct Listing {
    pages: Vec<Bytes>,
}

/// Parts that all pages share.
#[derive(Clone, Copy, Debug)]
pub struct ListingFrame<'a> {
    pub revision: Revision,
    pub page_size: usize,
    /// Members after the list in each result, with a leading comma.
    pub tail: &'a str,
    pub keys: &'a KeyRing,
    pub endpoint: &'a str,
}

impl Listing {
    /// Serialises a table for one revision.
    pub fn new<T: ListItem>(table: &Table<T>, frame: ListingFrame<'_>) -> Self {
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
    pub fn first(&self) -> &Bytes {
        &self.pages[0]
    }

    /// The page that begins after a cursor. `None` if the cursor was not made by a server with these keys.
    pub fn after<T: ListItem>(
        &self,
        table: &Table<T>,
        frame: ListingFrame<'_>,
        cursor: &str,
    ) -> Option<Bytes> {
        let start = start_after(table, frame, cursor, |_| true)?;
        let page = self.pages.get(start / frame.page_size);
        Some(match page {
            Some(page) if start % frame.page_size == 0 => page.clone(),
            _ => write_page(table, frame, start),
        })
    }

    /// Uses the pages of another listing instead of its own where they are the same to the letter.
    pub fn share(&mut self, other: &Self) {
        for (page, twin) in self.pages.iter_mut().zip(&other.pages) {
            if page == twin {
                page.clone_from(twin);
            }
        }
    }
}

/// All entries of a table in one text, serialised once for each revision, with the commas between them and the end of
/// the last page.
#[derive(Debug)]
pub struct SerializedEntries {
    text: Bytes,
    /// End offset of each entry.
    ends: Vec<usize>,
}

/// End of a last page.
const END: &[u8] = b"]}}";

impl SerializedEntries {
    pub fn new<T: ListItem>(table: &Table<T>, revision: Revision) -> Self {
        Self::written(table.iter(), |entry, text| entry.write(text, revision))
    }

    /// Entries that are not what their table says of them.
    pub fn of(entries: impl IntoIterator<Item = String>) -> Self {
        Self::written(entries.into_iter(), |entry, text| {
            text.extend_from_slice(entry.as_bytes());
        })
    }

    fn written<E>(entries: impl Iterator<Item = E>, write: impl Fn(E, &mut Vec<u8>)) -> Self {
        let mut text = Vec::new();
        let mut ends = Vec::new();
        for entry in entries {
            if !ends.is_empty() {
                text.push(b',');
            }
            write(entry, &mut text);
            ends.push(text.len());
        }
        text.extend_from_slice(END);
        Self {
            text: text.into(),
            ends,
        }
    }

    /// Uses the text of others instead of its own, if it is the same to the letter.
    pub fn share(&mut self, other: &Self) {
        if self.text == other.text {
            self.text = other.text.clone();
        }
    }

    /// Returns the memory use in bytes.
    #[cfg(any(test, feature = "testing"))]
    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }

    /// Text of the entry at an index.
    pub fn get(&self, place: usize) -> &[u8] {
        &self.text[self.start(place)..self.ends[place]]
    }

    fn start(&self, place: usize) -> usize {
        match place {
            0 => 0,
            _ => self.ends[place - 1] + 1,
        }
    }

    /// Text from one entry to another, inclusive. A comma precedes it unless it is first on the page, and the page's
    /// end follows it if it is last.
    fn stretch(&self, run: &Run) -> Bytes {
        let start = self.start(run.first) - usize::from(run.follows);
        let end = match run.ends_page {
            true => self.text.len(),
            false => self.ends[run.last],
        };
        self.text.slice(start..end)
    }
}

/// Entries of a table that stand side by side in a page.
struct Run {
    first: usize,
    last: usize,
    follows: bool,
    ends_page: bool,
}

/// Maximum number of pieces in a page. hyper gathers at most sixteen for one write, and each has a cost.
const PIECES_MAX: usize = 9;
/// A smaller page is in one piece.
const IN_PIECES_MIN_BYTES: usize = 8 * 1024;

/// Builds a page of the visible entries from an index on: everything after the request's ID and [`opening`].
///
/// Pages of those who see nearly the same consist of nearly the same entries. They are not copied: such a page is a few
/// stretches of the one text that has all entries. So a thousand roles take little memory, and what many of them see is in
/// the processor's caches when it is sent. Only what would be in too many pieces is put together.
pub fn page_of_seen<T: ListItem>(
    table: &Table<T>,
    fragments: &SerializedEntries,
    frame: ListingFrame<'_>,
    sees: impl Fn(usize) -> bool,
    start: usize,
) -> SharedBytes {
    let mut seen = (start..table.len()).filter(|place| sees(*place)).peekable();
    let mut runs: Vec<Run> = Vec::new();
    for place in seen.by_ref().take(frame.page_size) {
        match runs.last_mut() {
            Some(run) if run.last + 1 == place => run.last = place,
            before => {
                let follows = before.is_some();
                runs.push(Run {
                    first: place,
                    last: place,
                    follows,
                    ends_page: false,
                });
            }
        }
    }
    let more = seen.peek().is_some();
    // Positions count what is seen, so that a cursor does not tell how much is hidden.
    let position = |last: usize| (0..=last).filter(|place| sees(*place)).count();
    let mut end = Vec::new();
    match runs.last_mut() {
        Some(run) if !more && frame.tail.is_empty() && run.last + 1 == table.len() => {
            run.ends_page = true;
        }
        last => {
            let last = last.filter(|_| more).map(|run| run.last);
            let last = last.map(|last| (last, position(last)));
            close(&mut end, table, frame, last);
        }
    }
    let stretches = runs.iter().map(|run| fragments.stretch(run));
    let end = (!end.is_empty()).then(|| Bytes::from(end));
    let pieces: Vec<Bytes> = stretches.chain(end).collect();
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    if pieces.len() <= PIECES_MAX && IN_PIECES_MIN_BYTES <= bytes {
        return SharedBytes::Several(pieces.into());
    }
    let mut page = Vec::with_capacity(bytes);
    pieces
        .iter()
        .for_each(|piece| page.extend_from_slice(piece));
    SharedBytes::One(page.into())
}

/// Text before the first entry of each page.
pub fn opening<T: ListItem>(out: &mut Vec<u8>) {
    for part in opening_parts::<T>() {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Length of [`opening`] in bytes.
pub fn opening_len<T: ListItem>() -> usize {
    opening_parts::<T>().iter().map(|part| part.len()).sum()
}

fn opening_parts<T: ListItem>() -> [&'static str; 3] {
    [r#","result":{""#, T::MEMBER, r#"":["#]
}

/// Returns the index at which the page of a cursor begins, in a list of the entries that `sees` selects. `None` if the
/// cursor was not issued for this frame's endpoint.
pub fn start_after<T: ListItem>(
    table: &Table<T>,
    frame: ListingFrame<'_>,
    cursor: &str,
    sees: impl Fn(usize) -> bool,
) -> Option<usize> {
    let purpose = Purpose {
        kind: T::CURSOR,
        endpoint: frame.endpoint,
    };
    let text = frame.keys.verify(purpose, cursor.as_bytes())?;
    let cursor = Cursor::read(&text)?;
    // The table may have changed since the cursor was issued: the page continues after the last entry, or else at the
    // same index.
    Some(match table.position(cursor.last) {
        Some(position) => position + 1,
        None => (0..table.len())
            .filter(|place| sees(*place))
            .nth(cursor.position)
            .unwrap_or(table.len()),
    })
}

/// End of a page: its last entry, and the number of entries up to that.
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
fn write_page<T: ListItem>(table: &Table<T>, frame: ListingFrame<'_>, start: usize) -> Bytes {
    let entries = table.entries();
    let end = entries.len().min(start + frame.page_size);
    let mut page = Vec::new();
    opening::<T>(&mut page);
    for (position, entry) in entries[start..end].iter().enumerate() {
        if position > 0 {
            page.push(b',');
        }
        entry.write(&mut page, frame.revision);
    }
    close(
        &mut page,
        table,
        frame,
        (end < entries.len()).then(|| (end - 1, end)),
    );
    page.into()
}

/// End of a page: the end of its list, and the cursor after the entry at `last` if more entries follow. `last` has the
/// number of entries up to that, too.
fn close<T: ListItem>(
    out: &mut Vec<u8>,
    table: &Table<T>,
    frame: ListingFrame<'_>,
    last: Option<(usize, usize)>,
) {
    out.push(b']');
    if let Some((last, position)) = last {
        let cursor = Cursor {
            position,
            last: table.entries()[last].key(),
        };
        let purpose = Purpose {
            kind: T::CURSOR,
            endpoint: frame.endpoint,
        };
        out.extend_from_slice(br#","nextCursor":"#);
        push_string(out, &cursor.seal(frame.keys, purpose));
    }
    out.extend_from_slice(frame.tail.as_bytes());
    out.extend_from_slice(b"}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry(String);

    impl ListItem for Entry {
        const MEMBER: &'static str = "tools";
        const CURSOR: &'static str = "tools cursor 1";

        fn key(&self) -> &str {
            &self.0[..8]
        }

        fn write(&self, out: &mut Vec<u8>, _: Revision) {
            push_string(out, &self.0);
        }
    }

    fn table(entries: usize, length: usize) -> Table<Entry> {
        let mut table = Table::default();
        for number in 0..entries {
            let entry = Entry(format!("{number:08}{}", "x".repeat(length)));
            assert!(table.add(entry).is_ok());
        }
        table
    }

    /// All pages, as whoever follows the cursors sees them, and in how many pieces the largest was.
    fn pages(
        table: &Table<Entry>,
        page_size: usize,
        tail: &str,
        sees: impl Fn(usize) -> bool,
    ) -> (Vec<Vec<String>>, usize) {
        let keys = KeyRing::random();
        let fragments = SerializedEntries::new(table, Revision::V2025_06_18);
        let frame = ListingFrame {
            revision: Revision::V2025_06_18,
            page_size,
            tail,
            keys: &keys,
            endpoint: "mcp",
        };
        let (mut all, mut most, mut start) = (Vec::new(), 0, 0);
        loop {
            let page = page_of_seen(table, &fragments, frame, &sees, start);
            most = most.max(page.pieces().len());
            assert!(page.pieces().iter().all(|piece| !piece.is_empty()));
            let mut text = br#"{"id":1"#.to_vec();
            opening::<Entry>(&mut text);
            page.pieces()
                .iter()
                .for_each(|piece| text.extend_from_slice(piece));
            let page: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            let result = &page["result"];
            assert_eq!(result.get("ttlMs").is_some(), !tail.is_empty());
            let names = result["tools"].as_array().expect("a list").iter();
            let names = names.map(|name| name.as_str().expect("a text")[..8].to_owned());
            all.push(names.collect());
            match result["nextCursor"].as_str() {
                None => return (all, most),
                Some(cursor) => {
                    let text = keys.verify(purpose(frame), cursor.as_bytes());
                    let text = text.expect("signed");
                    let cursor_read = Cursor::read(&text).expect("a cursor");
                    assert_eq!(cursor_read.position, all.concat().len());
                    start = start_after(table, frame, cursor, &sees).expect("good");
                }
            }
        }
    }

    fn purpose(frame: ListingFrame<'_>) -> Purpose<'_> {
        Purpose {
            kind: Entry::CURSOR,
            endpoint: frame.endpoint,
        }
    }

    #[test]
    fn a_page_continues_after_as_many_entries_if_the_last_one_is_gone() {
        let keys = KeyRing::random();
        let frame = ListingFrame {
            revision: Revision::V2025_06_18,
            page_size: 2,
            tail: "",
            keys: &keys,
            endpoint: "mcp",
        };
        let table = table(10, 0);
        let after = |position, last| {
            let cursor = Cursor { position, last }.seal(&keys, purpose(frame));
            start_after(&table, frame, &cursor, |at| at % 2 == 1)
        };
        assert_eq!(after(2, "00000003"), Some(4));
        assert_eq!(after(2, "gone"), Some(5));
        assert_eq!(after(9, "gone"), Some(10));
    }

    #[test]
    fn pages_in_stretches_of_a_common_text_say_what_is_seen_and_nothing_else() {
        type Sees = fn(usize) -> bool;
        let seers: [(&str, Sees); 8] = [
            ("nothing", |_| false),
            ("all", |_| true),
            ("all but the first", |at| at != 0),
            ("all but the last", |at| at != 39),
            ("the first", |at| at == 0),
            ("the last", |at| at == 39),
            ("the middle and the end", |at| {
                (10..20).contains(&at) || 38 < at
            }),
            ("every other", |at| at % 2 == 1),
        ];
        for length in [0, 1000] {
            let table = table(40, length);
            for (name, sees) in seers {
                let seen: Vec<_> = (0..40).filter(|at| sees(*at)).collect();
                let seen: Vec<_> = seen.iter().map(|at| format!("{at:08}")).collect();
                for page_size in [1, 7, 40, 1000] {
                    for tail in ["", r#","ttlMs":5"#] {
                        let (pages, most) = pages(&table, page_size, tail, sees);
                        assert_eq!(pages.concat(), seen, "{name}, {page_size}");
                        assert_eq!(pages.len(), seen.len().div_ceil(page_size).max(1));
                        assert!(pages.iter().all(|page| page.len() <= page_size));
                        assert!(most <= PIECES_MAX, "{name}: {most}");
                        // What is small is in one piece, and so is what would be in too many.
                        if length == 0 || name == "every other" && page_size > 30 {
                            assert_eq!(most, 1, "{name}");
                        }
                    }
                }
            }
            if length > 0 {
                let whole = |sees| pages(&table, 1000, "", sees).1;
                assert_eq!([whole(seers[2].1), whole(seers[3].1)], [1, 2]);
                assert_eq!(whole(seers[6].1), 2);
            }
        }
    }
}
