//! Conversion of HTML to Markdown for a model.
//!
//! Nothing is escaped, because the result is read and not rendered. Site elements (navigation, asides, footers) and
//! invisible content are omitted. If a page marks its main part, only that is returned.

mod markdown;
mod meta;
mod reference;
mod tag;
mod token;

use markdown::Markdown;
pub(super) use meta::charset;
use tag::Tag;
use token::{Attributes, Token, Tokens};

/// Maximum size of the Markdown, in bytes. The rest of a longer page is omitted.
const MARKDOWN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Number of tokens between two calls of `check`.
const PIECES: usize = 4096;

/// Converts a page to Markdown, which is empty if it has no readable content. Also returns whether the rest of it was
/// omitted. `check` is called regularly and can stop the conversion.
///
/// # Errors
///
/// The error of `check`.
pub(super) fn markdown<E>(
    page: &str,
    check: impl Fn() -> Result<(), E>,
) -> Result<(String, bool), E> {
    let found = read(page, true, &check)?;
    if found.0.is_empty() {
        // The page may consist only of a footer, or have an aside that is never closed.
        return read(page, false, &check);
    }
    Ok(found)
}

fn read<E>(
    page: &str,
    choosy: bool,
    check: impl Fn() -> Result<(), E>,
) -> Result<(String, bool), E> {
    let mut reader = Reader {
        markdown: Markdown::new(MARKDOWN_BYTES_MAX),
        choosy,
        skipped: None,
        main: None,
    };
    for (piece, token) in Tokens::of(page).enumerate() {
        if reader.markdown.is_full() {
            break;
        }
        if piece % PIECES == 0 {
            check()?;
        }
        reader.read(token);
    }
    Ok(reader.finish())
}

struct Reader {
    markdown: Markdown,
    /// True to omit site elements.
    choosy: bool,
    /// The element that is skipped, and the number of nested elements of the same tag.
    skipped: Option<(Tag, u32)>,
    main: Option<Main>,
}

/// Position of the page's main part in the text.
struct Main {
    tag: Tag,
    /// Number of open elements of the same tag.
    depth: u32,
    begin: usize,
    end: Option<usize>,
}

/// Attributes that apply to every element.
#[derive(Default)]
struct GlobalAttributes {
    hidden: bool,
    /// True if its style makes it invisible. Scripts often show such elements later.
    unseen: bool,
    aside: bool,
    main: bool,
}

impl Reader {
    fn read(&mut self, token: Token<'_>) {
        if let Some((Tag::P, _)) = self.skipped {
            // The end tag of a paragraph is optional.
            let ends = matches!(&token, Token::Start { tag, .. } | Token::End(tag) if tag.ends_paragraph());
            if !ends {
                return;
            }
            self.skipped = None;
        }
        if let Some((skipped, depth)) = &mut self.skipped {
            match token {
                Token::Start {
                    tag, closes_itself, ..
                } if tag == *skipped && !closes_itself => *depth += 1,
                Token::End(tag) if tag == *skipped => match depth.checked_sub(1) {
                    Some(less) => *depth = less,
                    None => self.skipped = None,
                },
                _ => {}
            }
            return;
        }
        match token {
            Token::Text(text) => self.markdown.text(&reference::in_text(text)),
            Token::Start {
                tag,
                attributes,
                closes_itself,
            } => self.start(tag, attributes, closes_itself),
            Token::End(tag) => self.end(tag),
        }
    }

    fn start(&mut self, tag: Tag, attributes: Attributes<'_>, closes_itself: bool) {
        let standing = GlobalAttributes::of(attributes);
        let can_be_skipped = tag.always_ends() || tag == Tag::P;
        let is_left_out = tag.is_unread()
            || (can_be_skipped && (standing.hidden || (self.choosy && standing.unseen)))
            || (self.choosy && (tag.is_aside() || (tag.always_ends() && standing.aside)));
        if is_left_out {
            if !closes_itself || tag.is_raw() {
                self.skipped = Some((tag, 0));
            }
            self.markdown.apart();
            return;
        }
        match &mut self.main {
            None if self.choosy && (tag == Tag::Main || (tag == Tag::Div && standing.main)) => {
                self.markdown.block(2);
                self.main = Some(Main {
                    tag,
                    depth: 0,
                    begin: self.markdown.len(),
                    end: None,
                });
            }
            Some(main) if main.tag == tag && main.end.is_none() => main.depth += 1,
            _ => {}
        }
        let value = |name| attributes.get(name).unwrap_or_default();
        match tag {
            Tag::A => self.markdown.link(&value("href")),
            Tag::Img => self.markdown.image(&value("alt"), &value("src")),
            Tag::Ol => {
                let number = value("start").trim().parse().unwrap_or(1);
                self.markdown.list(Some(number));
            }
            Tag::Code => self.markdown.code(&value("class")),
            Tag::Pre => self.markdown.preformatted(&value("class")),
            Tag::B => self.markdown.mark(tag, "**"),
            Tag::Em => self.markdown.mark(tag, "*"),
            Tag::Del => self.markdown.mark(tag, "~~"),
            Tag::Blockquote => self.markdown.quote(),
            Tag::Br => self.markdown.line_break(),
            Tag::H(level) => self.markdown.heading(level),
            Tag::Hr => self.markdown.rule(),
            Tag::Li => self.markdown.item(),
            Tag::Ul => self.markdown.list(None),
            Tag::Table => self.markdown.table(),
            Tag::Tr => self.markdown.row(),
            Tag::Td => self.markdown.cell(),
            Tag::P | Tag::Dt | Tag::Main => self.markdown.block(2),
            Tag::Dd => self.markdown.detail(),
            Tag::Aside
            | Tag::Block
            | Tag::Div
            | Tag::Footer
            | Tag::Nav
            | Tag::Section
            | Tag::Xmp => {
                self.markdown.block(1);
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: Tag) {
        match tag {
            Tag::P | Tag::Dt | Tag::Main => self.markdown.block(2),
            Tag::Dd
            | Tag::Aside
            | Tag::Block
            | Tag::Div
            | Tag::Footer
            | Tag::Nav
            | Tag::Section
            | Tag::Xmp => {
                self.markdown.block(1);
            }
            _ => self.markdown.end(tag),
        }
        if let Some(main) = &mut self.main
            && main.tag == tag
            && main.end.is_none()
        {
            match main.depth.checked_sub(1) {
                Some(less) => main.depth = less,
                None => main.end = Some(self.markdown.len()),
            }
        }
    }

    /// Returns the main part if it is long enough, else everything. Also returns whether its rest was omitted.
    fn finish(self) -> (String, bool) {
        /// Minimum length of the main part, in bytes.
        const WORTH_BYTES: usize = 400;
        let (whole, is_full) = self.markdown.finish();
        if let Some(main) = self.main {
            let end = main.end.unwrap_or(whole.len()).min(whole.len());
            let part = whole.get(main.begin..end).unwrap_or_default().trim();
            if WORTH_BYTES <= part.len() || whole.len() / 2 <= part.len() {
                return (part.to_owned(), is_full && end == whole.len());
            }
        }
        (whole.trim().to_owned(), is_full)
    }
}

impl GlobalAttributes {
    fn of(attributes: Attributes<'_>) -> Self {
        let mut standing = Self::default();
        attributes.each(|name, value| {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            if is("hidden") || (is("aria-hidden") && value.eq_ignore_ascii_case("true")) {
                standing.hidden = true;
            } else if is("style") {
                standing.unseen = is_unseen(&value);
            } else if is("role") {
                standing.main = value.eq_ignore_ascii_case("main");
                standing.aside = ["navigation", "contentinfo", "complementary", "search"]
                    .iter()
                    .any(|role| value.eq_ignore_ascii_case(role));
            }
        });
        standing
    }
}

/// Returns true for a style that makes an element invisible.
fn is_unseen(style: &str) -> bool {
    style.split(';').any(|declaration| {
        let Some((name, value)) = declaration.split_once(':') else {
            return false;
        };
        let value = value.split(['!', ' ']).find(|word| !word.is_empty());
        let is = |wanted: [&str; 2]| {
            name.trim().eq_ignore_ascii_case(wanted[0])
                && value.is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted[1]))
        };
        is(["display", "none"]) || is(["visibility", "hidden"])
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn markdown(page: &str) -> String {
        let Ok((text, _)) = super::markdown(page, || Ok::<_, std::convert::Infallible>(()));
        text
    }

    #[test]
    fn reading_ends_when_nobody_waits_for_it() {
        let asked = std::cell::Cell::new(0);
        let check = || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 {
                Ok(())
            } else {
                Err("enough")
            }
        };
        let page = "<p>".repeat(PIECES * 10);
        assert_eq!(super::markdown(&page, check), Err("enough"));
        assert_eq!(asked.get(), 3);
    }

    fn check(page: &str, expected: &str) {
        assert_eq!(markdown(page), expected, "{page}");
    }

    #[test]
    fn text_keeps_its_shape() {
        check(
            "<p>One\n  two&nbsp;three</p><p>four &lt;b&gt; &#233;",
            "One two\u{a0}three\n\nfour <b> é",
        );
        check(
            "<h1>A <b>b</b></h1>text<h2>C\nd</h2><hr>end",
            "# A **b**\n\ntext\n\n## C d\n\n---\n\nend",
        );
        check("a<br>b<br/>c", "a\nb\nc");
        check("<div>a</div><div>b</div>c", "a\nb\nc");
        check(
            "<dl><dt>Term<dd>What it is<dd>More</dl>",
            "Term\n: What it is\n: More",
        );
        check("  \n ", "");
        check(
            "<html><head><title>T</title><style>p{}</style></head><body>b</body></html>",
            "b",
        );
    }

    #[test]
    fn marks_stand_at_words_and_around_something() {
        check(
            "a<b> bold </b>c <em>e</em>, <i></i><s>old</s>",
            "a **bold** c *e*, ~~old~~",
        );
        check("<b><a href=x></a></b>a", "a");
        check("<b>one <i>two</b> three</i>", "**one *two*** three");
        check("use <code>a &lt; b</code>.", "use `a < b`.");
    }

    #[test]
    fn links_and_pictures_say_where() {
        check(
            "see <a href='/a b?c=d&amp;e' title=t>here</a>.",
            "see [here](/a%20b?c=d&e).",
        );
        check("<a href=/x><h3>Head</h3><p>text</p></a>", "[Head text](/x)");
        check(
            "<a href='javascript:alert(1)'>a</a> <a>b</a> <a name=c></a>",
            "a b",
        );
        check(
            "<a href='Java\nscript:a()'>a</a> <a href='&#9;java&#10;script:a()'>b</a> <img src='da\tta:x' alt=c>",
            "a b c",
        );
        check("<a href=1>one<a href=2>two</a>", "[one](1)[two](2)");
        check(
            "<img src=a.png alt='A  picture'><img src=b.png><img src='data:x' alt=none>",
            "![A picture](a.png)![](b.png)none",
        );
        check("<a href=/><img src=a.png alt=a></a>", "[![a](a.png)](/)");
    }

    #[test]
    fn lists_are_nested() {
        check(
            "<ul><li>one<li><p>two</p><p>more</p><ol start=3><li>three</li><li>four</ol></ul>end",
            "- one\n- two\n\n  more\n\n  3. three\n  4. four\n\nend",
        );
        check("<ul><li></li><li>a</li></ul>", "- a");
        check("<li>alone", "- alone");
        check(
            "<blockquote>a<p>b</p><ul><li>c</ul></blockquote>d",
            "> a\n>\n> b\n>\n> - c\n\nd",
        );
        check(
            "<ol><li>a<pre>b\n\nc</pre></ol>",
            "1. a\n\n   ```\n   b\n\n   c\n   ```",
        );
    }

    #[test]
    fn what_is_preformatted_stays() {
        check(
            "a<pre>\nx  &lt;y\n  <b>z</b>\n</pre>b",
            "a\n\n```\nx  <y\n  z\n```\n\nb",
        );
        check(
            "<pre><code class='hl language-rust'>fn a() {}</code></pre>",
            "```rust\nfn a() {}\n```",
        );
        check("<pre>```\n</pre>", "````\n```\n````");
        check("<pre>a<script>b</script>c", "```\nac\n```");
    }

    #[test]
    fn tables_have_rows() {
        check(
            "<table><caption>Cap</caption><thead><tr><th>A<th>B|c</thead><tr><td><p>1</p><p>2</p><td><b>x</b></table>after",
            "Cap\n\n| A | B\\|c |\n| --- | --- |\n| 1 2 | **x** |\n\nafter",
        );
        check(
            "<table><tr><td>a<table><tr><td>b</table>c<td>d</table>",
            "| a b c | d |\n| --- | --- |",
        );
        check("<table></table><tr><td>a", "| a |\n| --- |");
    }

    #[test]
    fn what_nobody_reads_is_left_out() {
        check(
            "<nav><ul><li>Home</ul></nav><script>1</script>a<svg><title>t</title></svg><svg/>b<div hidden>c<div>d</div></div>\
             <span aria-hidden=TRUE>e</span><div role=navigation>f</div><footer>g</footer><button>h</button><template>i</template>",
            "a b",
        );
        check("<footer>only this</footer>", "only this");
        check("<nav>never ends <p>text", "never ends\n\ntext");
    }

    #[test]
    fn hidden_elements_are_left_out() {
        for hidden in [
            "<p hidden>a</p>b",
            "<p hidden>a <b>b</b><p>b",
            "<div><p aria-hidden=true>a</div>b",
            "<h2 hidden>a</h2>b",
            "<section hidden><p>a<p>a<article>a</article></section>b",
            "<div style='color: red; DISPLAY : none !important'>a<div>a</div></div>b",
            "<p style=visibility:hidden>a</p>b",
        ] {
            check(hidden, "b");
        }
        check("<p style='display: block; x: none'>a", "a");
        // A script may show it.
        check("<div style='display:none'>only this</div>", "only this");
    }

    #[test]
    fn the_main_part_is_taken_where_there_is_much_in_it() {
        let long = "word ".repeat(100);
        check(
            &format!("<p>before</p><main>{long}</main>after"),
            long.trim(),
        );
        check(
            &format!("{long}<main>few</main>after {long}"),
            format!("{long}\n\nfew\n\nafter {long}")
                .replace(" \n", "\n")
                .trim(),
        );
        check(
            &format!("{long}<div role=main><div>{long}</div>more</div>after"),
            &format!("{}\nmore", long.trim()),
        );
    }

    #[test]
    fn pages_that_are_made_to_be_slow_or_large_are_neither() {
        let many = 50_000;
        for (begin, part, end) in [
            ("", "<div>", ""),
            ("", "<b>", "text"),
            ("", "<b><p>x", ""),
            ("", "<ul><li>", "text"),
            ("", "<blockquote>a", ""),
            ("", "<a href=x>", "text"),
            ("<ul>", "<b><li>x</li>", ""),
            ("", "</b>", ""),
            ("<b><i>", "</b></i>x", ""),
            ("<a ", "b=c ", ">text</a>"),
            ("", "<!--", ""),
            ("<table>", "<tr><td>", ""),
            ("<table><tr>", "<td>x", ""),
            ("", "<table><tr><td>", "x"),
            ("<script>", "</", ""),
            ("", "<main>", "x"),
            ("", "&amp", ""),
            ("", "&", ";"),
            ("<pre>", "`", ""),
            ("<ul><li><ul><li><ul><li><pre>", "\n", "x"),
            ("", "<title>", "</title>x"),
            ("", "<p>&#x1F4A9;", ""),
        ] {
            let page = format!("{begin}{}{end}", part.repeat(many));
            let begun = std::time::Instant::now();
            let text = markdown(&page);
            assert!(
                text.len() <= MARKDOWN_BYTES_MAX,
                "{part} comes to {} bytes",
                text.len()
            );
            // What takes the square of this page's length takes hours.
            assert!(
                begun.elapsed().as_secs() < 30,
                "{part} took {:?}",
                begun.elapsed()
            );
        }
    }

    #[test]
    fn a_page_whose_rest_is_omitted_is_told_from_a_whole_one() {
        let is_cut = |page: &str| {
            let Ok((text, is_cut)) =
                super::markdown(page, || Ok::<_, std::convert::Infallible>(()));
            assert!(text.len() <= MARKDOWN_BYTES_MAX);
            is_cut
        };
        let long = "word ".repeat(MARKDOWN_BYTES_MAX / 5 + 1);
        let main = "word ".repeat(100);
        assert!(!is_cut("<p>word"));
        assert!(is_cut(&long));
        assert!(is_cut(&format!("<pre>{long}</pre>")));
        assert!(is_cut(&format!("<pre>a<b>{long}</b>{long}</pre>")));
        assert!(!is_cut(&format!("<main>{main}</main>{long}")));
        assert!(is_cut(&format!("<main>{main}{long}")));
    }

    proptest! {
        #[test]
        fn any_page_can_be_read(
            parts in prop::collection::vec(
                prop_oneof![
                    "</?(a|b|i|p|ul|ol|li|pre|code|table|tr|td|h1|blockquote|main|nav|script|div|br|img)( href=x)?>",
                    "[a-fx0-9 <>&#;\n`|é]{0,6}",
                ],
                0..40,
            ),
        ) {
            markdown(&parts.concat());
        }
    }
}
