//! The encoding that a page declares for itself.

use super::tag::Tag;
use super::token::{Attributes, Token, Tokens};

/// Returns the label of the encoding that the beginning of a page declares, by `<meta charset=…>` or its older form.
pub(in super::super) fn charset(start: &str) -> Option<String> {
    // A tag that is cut off could have a label that is cut off.
    let (start, _) = start.split_at(start.rfind('>')? + 1);
    Tokens::of(start).find_map(|token| match token {
        Token::Start {
            tag: Tag::Meta,
            attributes,
            ..
        } => declared(attributes),
        _ => None,
    })
}

fn declared(attributes: Attributes<'_>) -> Option<String> {
    if let Some(label) = attributes.get("charset") {
        return Some(label.trim().to_owned());
    }
    let equivalent = attributes.get("http-equiv")?;
    let is_type = equivalent.trim().eq_ignore_ascii_case("content-type");
    if !is_type {
        return None;
    }
    parameter(&attributes.get("content")?)
}

/// Returns the charset of a content type, which may have spaces around its equals sign.
fn parameter(content: &str) -> Option<String> {
    const NAME: &str = "charset";
    let lower = content.to_ascii_lowercase();
    let mut names = lower.match_indices(NAME);
    let value = names.find_map(|(at, _)| {
        let behind = lower[at + NAME.len()..].trim_ascii_start();
        behind.strip_prefix('=').map(str::trim_ascii_start)
    })?;
    let label = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split_once(quote)?.0,
        _ => value.split([';', ' ', '\t', '\n', '\r']).next()?,
    };
    Some(label.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_found_in_meta_elements_only() {
        for (page, expected) in [
            ("<meta charset=koi8-r>", Some("koi8-r")),
            ("<META CharSet = ' KOI8-R ' >", Some("KOI8-R")),
            ("<meta\ncharset\n=\nkoi8-r>", Some("koi8-r")),
            (
                "<meta content='text/html; charset = \"koi8-r\"' http-equiv=Content-Type>",
                Some("koi8-r"),
            ),
            (
                "<meta http-equiv=content-type content='charsets charset=koi8-r; x'>",
                Some("koi8-r"),
            ),
            (
                "<meta name=viewport content=x><meta charset=koi8-r>",
                Some("koi8-r"),
            ),
            (
                "<meta name=viewport content=x><script charset=koi8-r></script>",
                None,
            ),
            (
                "<meta name=description content='text/html; charset=koi8-r'>",
                None,
            ),
            ("<metadata charset=koi8-r>", None),
            (
                "<!-- <meta charset=koi8-r> --><meta charset=utf-8>",
                Some("utf-8"),
            ),
            ("<script>'<meta charset=koi8-r>'</script>", None),
            ("<meta charset=koi8", None),
            ("", None),
        ] {
            assert_eq!(charset(page).as_deref(), expected, "{page}");
        }
    }
}
