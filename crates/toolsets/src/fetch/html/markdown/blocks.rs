//! Block elements: headings, quotes, lists, tables and code.

use super::super::tag::Tag;
use super::{Kind, Level, Markdown, OPEN_MAX, Open, Preformatted, bars, ends, language};
use crate::text::fence;

impl Markdown {
    pub(in super::super) fn heading(&mut self, level: u8) {
        if self.is_open(Tag::H(level)) {
            self.end(Tag::H(level));
        }
        self.block(2);
        let is_own = self.takes_blocks();
        let kind = if is_own {
            Kind::Heading(level)
        } else {
            Kind::Nothing
        };
        if self.begin(Tag::H(level), kind) && is_own {
            self.flat += 1;
        }
    }

    pub(in super::super) fn quote(&mut self) {
        self.block(2);
        let has_level = self.has_room();
        if self.begin(Tag::Blockquote, Kind::Level(has_level)) && has_level {
            self.levels.push(Level::Quote);
        }
    }

    pub(in super::super) fn list(&mut self, number: Option<u64>) {
        self.block(self.lines_around_list());
        let tag = if number.is_some() { Tag::Ol } else { Tag::Ul };
        let kind = if self.takes_blocks() {
            Kind::List(number)
        } else {
            Kind::Nothing
        };
        self.begin(tag, kind);
    }

    pub(in super::super) fn item(&mut self) {
        let around = self.open.iter().rev().map(|open| open.tag);
        let mut around = around.take_while(|tag| !matches!(tag, Tag::Ul | Tag::Ol | Tag::Td));
        if around.any(|tag| tag == Tag::Li) {
            self.end(Tag::Li);
        }
        self.block(1);
        let lists = self.open.iter_mut().rev();
        let number = lists
            .map(|open| &mut open.kind)
            .find_map(|kind| match kind {
                Kind::List(number) => Some(number),
                _ => None,
            });
        let marker = match number {
            Some(Some(number)) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "- ".to_owned(),
        };
        let has_level = self.has_room();
        if self.begin(Tag::Li, Kind::Level(has_level)) && has_level {
            self.levels.push(Level::Item {
                marker,
                is_written: false,
            });
        }
    }

    pub(in super::super) fn table(&mut self) {
        self.block(2);
        let kind = if self.takes_blocks() && !self.is_open(Tag::Table) {
            Kind::Table { rows: 0 }
        } else {
            Kind::Nothing
        };
        self.begin(Tag::Table, kind);
    }

    pub(in super::super) fn row(&mut self) {
        if self.is_in_table_of_cell() {
            self.space = true;
            return;
        }
        self.end(Tag::Tr);
        self.block(1);
        if !self.takes_blocks() {
            return;
        }
        let mut tables = self.open.iter_mut().rev().map(|open| &mut open.kind);
        let table = tables.find_map(|kind| match kind {
            Kind::Table { rows } => Some(rows),
            _ => None,
        });
        let is_first = match table {
            Some(rows) => {
                *rows += 1;
                *rows == 1
            }
            None => true,
        };
        self.block(if is_first { 2 } else { 1 });
        self.begin(Tag::Tr, Kind::Row { cells: 0, is_first });
    }

    pub(in super::super) fn cell(&mut self) {
        if self.is_in_table_of_cell() {
            self.space = true;
            return;
        }
        self.end(Tag::Td);
        if !self.is_open(Tag::Tr) {
            self.row();
        }
        let is_own = self.takes_blocks();
        let row = self.open.last_mut().map(|open| &mut open.kind);
        let Some(Kind::Row { cells, .. }) = row.filter(|_| is_own) else {
            self.block(1);
            return;
        };
        *cells += 1;
        if *cells == 1 {
            self.begin_word();
            self.push("|");
        }
        if self.begin(Tag::Td, Kind::Cell) {
            self.flat += 1;
        }
        self.space = true;
    }

    pub(in super::super) fn preformatted(&mut self, class: &str) {
        self.block(2);
        if !self.takes_blocks() {
            self.begin(Tag::Pre, Kind::Nothing);
        } else if self.begin(Tag::Pre, Kind::Preformatted) {
            self.preformatted = Some(Preformatted {
                text: String::new(),
                language: language(class),
            });
        }
    }

    /// Closes an element and everything open in it. Does nothing if the element is not open, or if another open
    /// element blocks its end tag.
    pub(in super::super) fn end(&mut self, tag: Tag) {
        let inner = self.open.iter().rev();
        let mut inner = inner.take_while(|open| ends(open.tag, tag) || !bars(open.tag, tag));
        let Some(within) = inner.position(|open| ends(open.tag, tag)) else {
            return;
        };
        for _ in 0..=within {
            if let Some(open) = self.open.pop() {
                self.close(open);
            }
        }
    }

    /// Opens an element, unless the limit is reached.
    pub(super) fn begin(&mut self, tag: Tag, kind: Kind) -> bool {
        let has_room = self.open.len() < OPEN_MAX;
        if has_room {
            self.open.push(Open { tag, kind });
        }
        has_room
    }

    /// Writes the end of an element that has just been closed.
    pub(super) fn close(&mut self, open: Open) {
        let was_written = self.open.len() < self.written;
        self.written = self.written.min(self.open.len());
        match open.kind {
            Kind::Nothing => {
                if !matches!(open.tag, Tag::A | Tag::B | Tag::Em | Tag::Del | Tag::Code) {
                    self.block(1);
                }
            }
            Kind::Mark(mark) if was_written => self.push(mark),
            Kind::Mark(_) => {}
            Kind::Link(target) => {
                self.flat -= 1;
                if was_written {
                    self.push("](");
                    self.push(&target);
                    self.push(")");
                }
            }
            Kind::Heading(_) => {
                self.flat -= 1;
                self.block(2);
            }
            Kind::List(_) => self.block(self.lines_around_list()),
            Kind::Level(has_level) => {
                if has_level {
                    self.levels.pop();
                }
                self.block(if open.tag == Tag::Li { 1 } else { 2 });
            }
            Kind::Table { .. } => self.block(2),
            Kind::Row { cells, is_first } => {
                if 0 < cells && is_first {
                    self.newlines = 1;
                    self.begin_word();
                    self.push("|");
                    for _ in 0..cells {
                        self.push(" --- |");
                    }
                }
                self.block(1);
            }
            Kind::Cell => {
                self.flat -= 1;
                self.push(" |");
                self.space = false;
            }
            Kind::Preformatted => {
                if let Some(preformatted) = self.preformatted.take() {
                    self.fence(&preformatted);
                }
                self.block(2);
            }
        }
    }

    fn fence(&mut self, preformatted: &Preformatted) {
        let text = preformatted
            .text
            .strip_prefix('\n')
            .unwrap_or(&preformatted.text);
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        let fence = fence(text);
        self.begin_word();
        self.push(&fence);
        self.push(&preformatted.language);
        for line in text.lines().chain([&*fence]) {
            if self.full {
                return;
            }
            self.push("\n");
            self.indent(line.is_empty());
            self.push(line);
        }
    }

    fn lines_around_list(&self) -> usize {
        if self.is_open(Tag::Li) { 1 } else { 2 }
    }

    /// Returns true if the next content belongs to a table inside a cell, which is written as text.
    fn is_in_table_of_cell(&self) -> bool {
        let tables = self.open.iter().rev().filter(|open| open.tag == Tag::Table);
        let innermost = tables.map(|open| &open.kind).next();
        matches!(innermost, Some(Kind::Nothing))
    }
}
