//! Character references in text and in attributes.

use std::borrow::Cow;

use encoding_rs::WINDOWS_1252;
use memchr::memchr;

/// Names that are resolved without a semicolon too, sorted.
#[rustfmt::skip]
const LEGACY: [&str; 106] = [
    "AElig", "AMP", "Aacute", "Acirc", "Agrave", "Aring", "Atilde", "Auml", "COPY", "Ccedil", "ETH",
    "Eacute", "Ecirc", "Egrave", "Euml", "GT", "Iacute", "Icirc", "Igrave", "Iuml", "LT", "Ntilde",
    "Oacute", "Ocirc", "Ograve", "Oslash", "Otilde", "Ouml", "QUOT", "REG", "THORN", "Uacute",
    "Ucirc", "Ugrave", "Uuml", "Yacute", "aacute", "acirc", "acute", "aelig", "agrave", "amp",
    "aring", "atilde", "auml", "brvbar", "ccedil", "cedil", "cent", "copy", "curren", "deg",
    "divide", "eacute", "ecirc", "egrave", "eth", "euml", "frac12", "frac14", "frac34", "gt",
    "iacute", "icirc", "iexcl", "igrave", "iquest", "iuml", "laquo", "lt", "macr", "micro",
    "middot", "nbsp", "not", "ntilde", "oacute", "ocirc", "ograve", "ordf", "ordm", "oslash",
    "otilde", "ouml", "para", "plusmn", "pound", "quot", "raquo", "reg", "sect", "shy", "sup1",
    "sup2", "sup3", "szlig", "thorn", "times", "uacute", "ucirc", "ugrave", "uml", "uuml", "yacute",
    "yen", "yuml",
];
/// Maximum lengths of a name, and of one that needs no semicolon.
const NAME_BYTES_MAX: usize = 31;
const LEGACY_BYTES_MAX: usize = 6;

/// Position of a reference, on which it depends whether one without a semicolon is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Text,
    Attribute,
}

/// Resolves the character references of a text.
pub(super) fn in_text(text: &str) -> Cow<'_, str> {
    resolved(text, Position::Text)
}

/// Resolves the character references of an attribute's value.
pub(super) fn in_attribute(value: &str) -> Cow<'_, str> {
    resolved(value, Position::Attribute)
}

fn resolved(text: &str, position: Position) -> Cow<'_, str> {
    let Some(mut at) = memchr(b'&', text.as_bytes()) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (before, reference) = rest.split_at(at);
        out.push_str(before);
        rest = match resolve(&reference[1..], position, &mut out) {
            Some(length) => &reference[1 + length..],
            None => {
                out.push('&');
                &reference[1..]
            }
        };
        match memchr(b'&', rest.as_bytes()) {
            Some(next) => at = next,
            None => break,
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Writes the character that a reference stands for, and returns the length of the reference after its `&`.
fn resolve(text: &str, position: Position, out: &mut String) -> Option<usize> {
    if let Some(number) = text.strip_prefix('#') {
        let (length, character) = numeric(number)?;
        out.push(character);
        return Some(1 + length);
    }
    let bytes = text.as_bytes();
    let length = bytes
        .iter()
        .take(NAME_BYTES_MAX)
        .take_while(|b| b.is_ascii_alphanumeric())
        .count();
    if bytes.get(length) == Some(&b';')
        && let Some(found) = named(&text[..length])
    {
        out.push_str(found);
        return Some(length + 1);
    }
    let length = (1..=length.min(LEGACY_BYTES_MAX))
        .rev()
        .find(|length| LEGACY.binary_search(&&text[..*length]).is_ok())?;
    let goes_on = |b: &u8| *b == b'=' || b.is_ascii_alphanumeric();
    // In an address such as `?a=1&copy=2`, it is a part of the address.
    if position == Position::Attribute && bytes.get(length).is_some_and(goes_on) {
        return None;
    }
    out.push_str(named(&text[..length])?);
    Some(length)
}

fn named(name: &str) -> Option<&'static str> {
    let names = &html_escape::NAMED_ENTITIES;
    let found = names.binary_search_by(|(other, _)| (*other).cmp(name.as_bytes()));
    Some(names[found.ok()?].1)
}

/// Returns the length and the character of a numeric reference after its `#`.
fn numeric(text: &str) -> Option<(usize, char)> {
    let digits = text.strip_prefix(['x', 'X']).unwrap_or(text);
    let prefix = text.len() - digits.len();
    let radix = if prefix == 0 { 10 } else { 16 };
    let (mut length, mut number) = (0, 0_u32);
    for digit in digits.chars().map_while(|c| c.to_digit(radix)) {
        number = number.saturating_mul(radix).saturating_add(digit);
        length += 1;
    }
    if length == 0 {
        return None;
    }
    let character = match number {
        0 => char::REPLACEMENT_CHARACTER,
        // Control characters stay references.
        1..=8 | 0xb | 0xe..=0x1f => return None,
        // Authors mean Windows-1252 (HTML 13.2.5.80).
        0x80..=0x9f => {
            let byte = [u8::try_from(number).ok()?];
            let (decoded, _) = WINDOWS_1252.decode_without_bom_handling(&byte);
            decoded.chars().next()?
        }
        _ => char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    let end = usize::from(digits.as_bytes().get(length) == Some(&b';'));
    Some((prefix + length + end, character))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_stand_for_characters() {
        for (text, expected) in [
            ("a &amp;lt; &LT; &notin; &hellip;", "a &lt; < ∉ …"),
            ("don&#146;t &#150; &#x80;5 &#x9F;", "don’t – €5 Ÿ"),
            ("&#65 &#x41g &#X41;", "A Ag A"),
            ("&copy 2020 &nbspb &notit; &AMPx", "© 2020 \u{a0}b ¬it; &x"),
            (
                "&#0; &#xD800; &#x110000; &#99999999999;",
                "\u{fffd} \u{fffd} \u{fffd} \u{fffd}",
            ),
            (
                "&#27; &# &#x; &#; & &; && &é &hellip &unknown;",
                "&#27; &# &#x; &#; & &; && &é &hellip &unknown;",
            ),
        ] {
            assert_eq!(in_text(text), expected, "{text}");
        }
        assert!(matches!(in_text("none"), Cow::Borrowed("none")));
    }

    #[test]
    fn an_address_keeps_what_looks_like_a_reference() {
        for (value, expected) in [
            ("?a=1&copy=2&regb=3&lt;4", "?a=1&copy=2&regb=3<4"),
            ("?a=1&copy;=2&#64;", "?a=1©=2@"),
            ("?a&copy", "?a©"),
        ] {
            assert_eq!(in_attribute(value), expected, "{value}");
        }
    }

    #[test]
    fn all_names_without_a_semicolon_are_known() {
        assert!(LEGACY.is_sorted());
        for name in LEGACY {
            assert!(
                named(name).is_some() && name.len() <= LEGACY_BYTES_MAX,
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_resolved(text in "[&#;xXa-c0-9é=]{0,40}") {
            in_text(&text);
            in_attribute(&text);
        }
    }
}
