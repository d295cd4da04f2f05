//! HTML tokenizer that makes one pass and builds no tree.
//!
//! A tree as browsers build it can take quadratic time for crafted pages, and so can attributes. Here the cost is
//! linear in the length of the page.

use std::borrow::Cow;

use memchr::{memchr, memmem};

use super::reference;
use super::tag::Tag;

/// A token of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'p> {
    /// Text with unresolved character references.
    Text(&'p str),
    Start {
        tag: Tag,
        attributes: Attributes<'p>,
        closes_itself: bool,
    },
    End(Tag),
}

/// Text after the name in a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes<'p>(&'p str);

/// Iterator over the tokens of a page, in order.
pub(super) struct Tokens<'p> {
    rest: &'p str,
    /// The open raw text element, whose content is not searched for tags.
    raw: Option<Tag>,
    /// Number of open SVG and MathML elements, in which any tag can close itself.
    foreign: usize,
}

impl<'p> Tokens<'p> {
    pub(super) fn of(page: &'p str) -> Self {
        Self {
            rest: page,
            raw: None,
            foreign: 0,
        }
    }

    /// Takes the text up to a position.
    fn take(&mut self, end: usize) -> &'p str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Skips the text up to and including the next `end`.
    fn skip_past(&mut self, from: usize, end: &[u8]) {
        let bytes = self.rest.as_bytes();
        let found = bytes
            .get(from..)
            .and_then(|rest| memmem::find(rest, end))
            .map_or(bytes.len(), |at| from + at + end.len());
        self.take(found);
    }

    /// Returns the content of a raw text element, up to its end tag.
    fn raw_text(&mut self, tag: Tag) -> &'p str {
        let bytes = self.rest.as_bytes();
        let mut ends = memmem::find_iter(bytes, b"</");
        let end = ends.find(|at| {
            let behind = &self.rest[at + 2..];
            let (name, rest) = name(behind);
            Tag::named(name) == tag && !rest.is_empty()
        });
        self.take(end.unwrap_or(bytes.len()))
    }

    /// Parses a tag after its `<` and slash.
    fn tag(&mut self) -> (Tag, Attributes<'p>, bool) {
        let (name, rest) = name(self.rest);
        self.rest = rest;
        let end = end_of_tag(self.rest.as_bytes());
        let inside = self.take(end.unwrap_or(self.rest.len()));
        if end.is_some() {
            self.take(1);
        }
        let closes_itself = inside.ends_with('/');
        (Tag::named(name), Attributes(inside), closes_itself)
    }
}

impl<'p> Iterator for Tokens<'p> {
    type Item = Token<'p>;

    fn next(&mut self) -> Option<Token<'p>> {
        if let Some(tag) = self.raw.take() {
            let text = self.raw_text(tag);
            if !text.is_empty() {
                return Some(Token::Text(text));
            }
        }
        loop {
            let bytes = self.rest.as_bytes();
            match bytes {
                [] => return None,
                [b'<', b'!', b'-', b'-', ..] => self.skip_past(2, b"-->"),
                [b'<', b'!' | b'?', ..] => self.skip_past(2, b">"),
                [b'<', b'/', letter, ..] if letter.is_ascii_alphabetic() => {
                    self.take(2);
                    let (tag, ..) = self.tag();
                    if tag.is_foreign() {
                        self.foreign = self.foreign.saturating_sub(1);
                    }
                    return Some(Token::End(tag));
                }
                [b'<', b'/', ..] => self.skip_past(2, b">"),
                [b'<', letter, ..] if letter.is_ascii_alphabetic() => {
                    self.take(1);
                    let (tag, attributes, closes_itself) = self.tag();
                    if tag.is_foreign() && !closes_itself {
                        self.foreign += 1;
                    }
                    // Only elements in SVG and MathML can close themselves (HTML 13.2.6.5).
                    if tag.is_raw() && !(closes_itself && 0 < self.foreign) {
                        self.raw = Some(tag);
                    }
                    return Some(Token::Start {
                        tag,
                        attributes,
                        closes_itself,
                    });
                }
                _ => {
                    let end = memchr(b'<', &bytes[1..]).map_or(bytes.len(), |at| at + 1);
                    return Some(Token::Text(self.take(end)));
                }
            }
        }
    }
}

/// Splits off the name at the beginning of a tag.
fn name(text: &str) -> (&str, &str) {
    let end = text
        .bytes()
        .position(|b| b.is_ascii_whitespace() || matches!(b, b'/' | b'>'))
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Returns the position of the `>` that ends a tag, ignoring those inside quoted values.
fn end_of_tag(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    // True where a value can begin, which is the only place where a quote starts one.
    let mut value = false;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'>' => return Some(at),
            b'"' | b'\'' if value => {
                at += 1 + memchr(*byte, &bytes[at + 1..])?;
                value = false;
            }
            b'=' => value = true,
            b if b.is_ascii_whitespace() => {}
            _ => value = false,
        }
        at += 1;
    }
    None
}

impl<'p> Attributes<'p> {
    /// Returns the value of an attribute, the first one of two with its name.
    pub(super) fn get(self, name: &str) -> Option<Cow<'p, str>> {
        let mut found = None;
        self.each(|other, value| {
            if found.is_none() && other.eq_ignore_ascii_case(name) {
                found = Some(value);
            }
        });
        found
    }

    /// Calls a function for each attribute, with its value if it has one.
    pub(super) fn each(self, mut show: impl FnMut(&'p str, Cow<'p, str>)) {
        let mut rest = self.0;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if rest.is_empty() {
                return;
            }
            // An equals sign at the start of a name is part of it.
            let end = rest
                .bytes()
                .skip(1)
                .position(|b| b.is_ascii_whitespace() || matches!(b, b'/' | b'='))
                .map_or(rest.len(), |at| at + 1);
            let Some((name, behind)) = rest.split_at_checked(end) else {
                return;
            };
            let behind = behind.trim_ascii_start();
            let Some(value) = behind.strip_prefix('=') else {
                show(name, Cow::Borrowed(""));
                rest = behind;
                continue;
            };
            let value = value.trim_ascii_start();
            let quoted = value.chars().next().filter(|c| matches!(c, '"' | '\''));
            let (value, behind) = match quoted {
                Some(quote) => value[1..].split_once(quote).unwrap_or((&value[1..], "")),
                None => value.split_at(
                    value
                        .bytes()
                        .position(|b| b.is_ascii_whitespace())
                        .unwrap_or(value.len()),
                ),
            };
            show(name, reference::in_attribute(value));
            rest = behind;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page's pieces as a line.
    fn shown(page: &str) -> String {
        let pieces = Tokens::of(page).map(|token| match token {
            Token::Text(text) => format!("{text:?}"),
            Token::End(tag) => format!("/{tag:?}"),
            Token::Start {
                tag,
                attributes,
                closes_itself,
            } => {
                let mut shown = format!("{tag:?}");
                attributes.each(|name, value| shown.push_str(&format!(" {name}={value}")));
                if closes_itself {
                    shown.push_str(" /");
                }
                shown
            }
        });
        pieces.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn tags_are_told_from_text() {
        for (page, expected) in [
            ("a < b &amp; c", r#""a ", "< b &amp; c""#),
            ("<p>a</P >b", r#"P, "a", /P, "b""#),
            (
                "<A HREF='x>y' title=\"a&amp;b\" x=1/2 download>t</a>",
                r#"A HREF=x>y title=a&b x=1/2 download=, "t", /A"#,
            ),
            ("<br/><br />", "Br /, Br /"),
            ("<a href=b/>c", r#"A href=b/ /, "c""#),
            ("<a b = 'c' d\n=\ne>", "A b=c d=e"),
            ("<a b='c'd='e'>", "A b=c d=e"),
            ("<a b\"c>d\">", r#"A b"c=, "d\">""#),
            ("<a =b>", "A =b="),
            (
                "x<!-- a > <p> -->y<!---->z<!-->w<!--->v",
                r#""x", "y", "z", "w", "v""#,
            ),
            (
                "x<!doctype html>y<?php a ?>z</>w</3>v",
                r#""x", "y", "z", "w", "v""#,
            ),
            (
                "<script>if (a</b) '<p>' </scripty> </SCRIPT >c",
                r#"Script, "if (a</b) '<p>' </scripty> ", /Script, "c""#,
            ),
            ("<style></style>a", r#"Style, /Style, "a""#),
            ("<title>a<b></title>", r#"Title, "a<b>", /Title"#),
            ("<title/>a<b></title>", r#"Title /, "a<b>", /Title"#),
            (
                "<svg><title/><a><style/></svg><style/>a</style>",
                r#"Svg, Title /, A, Style /, /Svg, Style /, "a", /Style"#,
            ),
            (
                "<math><svg><script>a<b</script></svg><title/></math>",
                r#"Math, Svg, Script, "a<b", /Script, /Svg, Title /, /Math"#,
            ),
            ("<svg/><title/>a", r#"Svg /, Title /, "a""#),
            ("<script>never", r#"Script, "never""#),
            ("<!-- never", ""),
            ("a<b never", r#""a", B never="#),
            ("a<b c='never>", r#""a", B c=never>"#),
            ("<", r#""<""#),
            ("<é>", r#""<é>""#),
            ("<a-b>", "Other"),
        ] {
            assert_eq!(shown(page), expected, "{page}");
        }
    }

    proptest! {
        #[test]
        fn any_page_comes_to_an_end(page in "[<>/!&;='\"\\-a-z é]{0,60}") {
            shown(&page);
        }
    }
}
