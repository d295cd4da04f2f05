//! Markdown writer that works from left to right.
//!
//! White space and opening marks are held back until the next word. Empty elements thus produce no marks, and empty
//! lines no prefix. The nesting depth is bounded: deeper elements are ignored, and only their text is written.

mod blocks;

use super::tag::Tag;

/// Maximum number of open elements that are tracked.
const OPEN_MAX: usize = 128;
/// Maximum number of nested quotes and lists that are indented.
const LEVELS_MAX: usize = 16;

pub(super) struct Markdown {
    text: String,
    max: usize,
    full: bool,
    /// True if the current line has content.
    begun: bool,
    /// Number of line breaks to write before the next word.
    newlines: usize,
    /// True if a space has to be written before the next word.
    space: bool,
    /// Text to write at the beginning of the next line.
    lead: &'static str,
    levels: Vec<Level>,
    open: Vec<Open>,
    /// Number of open elements whose opening mark is written.
    written: usize,
    /// Number of open elements that keep their content on one line.
    flat: usize,
    preformatted: Option<Preformatted>,
}

/// Line prefix of an open quote or list item.
enum Level {
    Quote,
    Item { marker: String, is_written: bool },
}

struct Open {
    tag: Tag,
    kind: Kind,
}

enum Kind {
    /// An element without Markdown of its own.
    Nothing,
    Mark(&'static str),
    Link(String),
    Heading(u8),
    /// The number of its next item.
    List(Option<u64>),
    /// True if the element has a level.
    Level(bool),
    Table {
        rows: usize,
    },
    Row {
        cells: usize,
        is_first: bool,
    },
    Cell,
    Preformatted,
}

struct Preformatted {
    text: String,
    language: String,
}

impl Markdown {
    pub(super) fn new(max: usize) -> Self {
        Self {
            text: String::new(),
            max,
            full: false,
            begun: false,
            newlines: 0,
            space: false,
            lead: "",
            levels: Vec::new(),
            open: Vec::new(),
            written: 0,
            flat: 0,
            preformatted: None,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the text, and whether it is not all because it is full.
    pub(super) fn finish(mut self) -> (String, bool) {
        while let Some(open) = self.open.pop() {
            self.close(open);
        }
        (self.text, self.full)
    }

    // === Input ===

    pub(super) fn text(&mut self, text: &str) {
        if let Some(preformatted) = &mut self.preformatted {
            let left = self.max - preformatted.text.len().min(self.max);
            preformatted
                .text
                .push_str(longshore_protocol::prefix(text, left));
            return;
        }
        let is_space = |c: Option<char>| c.is_some_and(|c| c.is_ascii_whitespace());
        self.space |= is_space(text.chars().next());
        let ends_in_space = is_space(text.chars().next_back());
        for word in text.split_ascii_whitespace() {
            self.word(word);
            self.space = true;
        }
        self.space = ends_in_space || (self.space && text.trim_ascii().is_empty());
    }

    /// Separates the words on either side.
    pub(super) fn apart(&mut self) {
        self.space |= self.preformatted.is_none();
    }

    /// Starts a block, preceded by this number of line breaks.
    pub(super) fn block(&mut self, newlines: usize) {
        if self.preformatted.is_some() {
            return;
        }
        if self.flat > 0 {
            self.space = true;
            return;
        }
        self.lead = "";
        self.space = false;
        // The first block of an item follows its marker directly.
        if !matches!(
            self.levels.last(),
            Some(Level::Item {
                is_written: false,
                ..
            })
        ) {
            self.newlines = self.newlines.max(newlines);
        }
    }

    pub(super) fn line_break(&mut self) {
        match &mut self.preformatted {
            Some(preformatted) => preformatted.text.push('\n'),
            None => self.block(1),
        }
    }

    pub(super) fn rule(&mut self) {
        if self.takes_blocks() {
            self.block(2);
            self.begin_word();
            self.push("---");
            self.block(2);
        }
    }

    pub(super) fn detail(&mut self) {
        self.block(1);
        if self.flat == 0 {
            self.lead = ": ";
        }
    }

    pub(super) fn mark(&mut self, tag: Tag, mark: &'static str) {
        let is_new = self.preformatted.is_none() && !self.is_open(tag);
        self.begin(
            tag,
            if is_new {
                Kind::Mark(mark)
            } else {
                Kind::Nothing
            },
        );
    }

    pub(super) fn code(&mut self, class: &str) {
        match &mut self.preformatted {
            Some(preformatted) if preformatted.language.is_empty() => {
                preformatted.language = language(class);
            }
            _ => {}
        }
        self.mark(Tag::Code, "`");
    }

    pub(super) fn link(&mut self, target: &str) {
        self.end(Tag::A);
        let target = target.trim();
        if self.preformatted.is_some() || target.is_empty() || leads_nowhere(target) {
            self.begin(Tag::A, Kind::Nothing);
        } else if self.begin(Tag::A, Kind::Link(address(target))) {
            self.flat += 1;
        }
    }

    pub(super) fn image(&mut self, alternative: &str, source: &str) {
        let source = source.trim();
        if self.preformatted.is_some() {
            return;
        }
        if source.is_empty() || leads_nowhere(source) {
            self.text(alternative);
            return;
        }
        let words: Vec<&str> = alternative.split_ascii_whitespace().collect();
        self.begin_word();
        self.push(&format!("![{}]({})", words.join(" "), address(source)));
    }

    // === Output ===

    fn word(&mut self, word: &str) {
        self.begin_word();
        let is_plain = |c: char| !c.is_control();
        let escapes = self.flat > 0 && word.contains('|') && self.is_open(Tag::Td);
        if word.chars().all(is_plain) && !escapes {
            self.push(word);
            return;
        }
        let mut plain: String = word.chars().filter(|c| is_plain(*c)).collect();
        if escapes {
            plain = plain.replace('|', "\\|");
        }
        self.push(&plain);
    }

    /// Writes everything that was held back for the next word.
    fn begin_word(&mut self) {
        if self.full {
            return;
        }
        if !self.begun || 0 < self.newlines {
            if self.begun {
                for _ in 1..self.newlines {
                    self.push("\n");
                    self.indent(true);
                }
                self.push("\n");
            }
            self.indent(false);
            let lead = std::mem::take(&mut self.lead);
            self.push(lead);
            self.begun = true;
        } else if self.space {
            self.push(" ");
        }
        self.newlines = 0;
        self.space = false;
        while let Some(open) = self.open.get(self.written) {
            let beginning = match open.kind {
                Kind::Mark(mark) => mark,
                Kind::Link(_) => "[",
                Kind::Heading(level) => &"###### "[6 - usize::from(level.clamp(1, 6))..],
                _ => "",
            };
            self.written += 1;
            self.push(beginning);
        }
    }

    /// Writes the prefix of a line. For an empty line, trailing spaces are omitted.
    fn indent(&mut self, is_empty: bool) {
        let mut indent = String::new();
        for level in &mut self.levels {
            match level {
                Level::Quote => indent.push_str("> "),
                Level::Item {
                    marker,
                    is_written: true,
                } => {
                    indent.extend(std::iter::repeat_n(' ', marker.len()));
                }
                Level::Item { .. } if is_empty => {}
                Level::Item { marker, is_written } => {
                    indent.push_str(marker);
                    *is_written = true;
                }
            }
        }
        self.push(if is_empty { indent.trim_end() } else { &indent });
    }

    fn push(&mut self, text: &str) {
        let left = self.max - self.text.len();
        if self.full {
            return;
        }
        if text.len() <= left {
            self.text.push_str(text);
        } else {
            self.text.push_str(longshore_protocol::prefix(text, left));
            self.full = true;
        }
    }

    fn is_open(&self, tag: Tag) -> bool {
        self.open.iter().any(|open| ends(open.tag, tag))
    }

    /// Returns true if blocks can begin here, and not only text.
    fn takes_blocks(&self) -> bool {
        self.flat == 0 && self.preformatted.is_none()
    }

    fn has_room(&self) -> bool {
        self.takes_blocks() && self.levels.len() < LEVELS_MAX
    }
}

/// Returns true if the end tag of an element also ends another one. Authors mix up the levels of headings.
fn ends(other: Tag, tag: Tag) -> bool {
    other == tag || matches!((other, tag), (Tag::H(_), Tag::H(_)))
}

/// Returns true if an open element blocks the end tag of another one.
fn bars(other: Tag, tag: Tag) -> bool {
    let is_of_table = matches!(other, Tag::Table | Tag::Tr | Tag::Td);
    match tag {
        Tag::Table => false,
        Tag::Tr => other == Tag::Table,
        Tag::Td => matches!(other, Tag::Table | Tag::Tr),
        Tag::Blockquote | Tag::Li | Tag::Ol | Tag::Ul | Tag::Pre => is_of_table,
        _ => {
            is_of_table
                || matches!(
                    other,
                    Tag::Blockquote | Tag::Li | Tag::Ol | Tag::Ul | Tag::Pre
                )
        }
    }
}

/// Returns true if a link target is not navigable. Control characters do not count, since [`address`] removes them.
fn leads_nowhere(address: &str) -> bool {
    let scheme = address.split(':').next().unwrap_or_default();
    let plain = || scheme.chars().filter(|c| !c.is_control());
    ["javascript", "data", "vbscript"]
        .iter()
        .any(|nowhere| plain().map(|c| c.to_ascii_lowercase()).eq(nowhere.chars()))
}

/// Encodes a link target so that it cannot end early.
fn address(text: &str) -> String {
    let mut address = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' => address.push_str("%20"),
            '(' => address.push_str("%28"),
            ')' => address.push_str("%29"),
            c if c.is_control() => {}
            c => address.push(c),
        }
    }
    address
}

/// Returns the language that the classes of a code block name.
fn language(class: &str) -> String {
    let named = class.split_ascii_whitespace().find_map(|class| {
        class
            .strip_prefix("language-")
            .or_else(|| class.strip_prefix("lang-"))
    });
    let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '#' | '-' | '_' | '.');
    named
        .unwrap_or_default()
        .chars()
        .take_while(is_part)
        .take(20)
        .collect()
}
