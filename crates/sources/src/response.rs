//! Conversion of another server's response to a tool result.

use std::collections::BTreeMap;

use encoding_rs::{Encoding, UTF_8};
use http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use super::media_type::{essence, is_json, is_text, parameter};
use crate::catalog::{Output, OutputContent, ToolError};
use crate::net::FetchedResponse;
use crate::protocol::Content;
use crate::protocol::scan::has_long_number;

/// Maximum number of characters of an error body shown to the model.
const ERROR_CHARACTERS: usize = 2000;

/// Returns the media type without its parameters, in lower case.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    essence(text.unwrap_or_default())
}

/// Decodes a body with the character set of its media type, or of its byte order mark; UTF-8 without either. Invalid sequences
/// become U+FFFD.
pub(super) fn text(headers: &HeaderMap, body: &[u8]) -> String {
    let (text, _, _) = charset(headers).unwrap_or(UTF_8).decode(body);
    text.into_owned()
}

fn charset(headers: &HeaderMap) -> Option<&'static Encoding> {
    let label = parameter(headers.get(CONTENT_TYPE)?.to_str().ok()?, "charset")?;
    Encoding::for_label(label.as_bytes())
}

/// Returns the text of a JSON document, if it is one.
pub(super) fn json_text(bytes: &[u8]) -> Option<&str> {
    let raw: &RawValue = serde_json::from_slice(without_bom(bytes)).ok()?;
    Some(raw.get())
}

/// Returns the text of the value that a JSON pointer leads to (RFC 6901).
pub(super) fn part<'j>(json: &'j str, pointer: &str) -> Option<&'j str> {
    pointer.split('/').skip(1).try_fold(json, |json, name| {
        let name = name.replace("~1", "/").replace("~0", "~");
        if json.starts_with('{') {
            let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(json).ok()?;
            return members.remove(&name).map(RawValue::get);
        }
        let is_index = name == "0" || !name.starts_with(['0', '+']);
        let index: usize = name.parse().ok().filter(|_| is_index)?;
        Some(items(json)?.get(index)?.get())
    })
}

/// Returns the texts of a JSON array's items.
pub(super) fn items(json: &str) -> Option<Vec<&RawValue>> {
    let is_array = json.starts_with('[');
    is_array.then(|| serde_json::from_str(json).ok()).flatten()
}

/// Removes a UTF-8 byte order mark, which is ignored (RFC 8259, 8.1).
fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Converts a response to a result: JSON to a structured value, text to text, images and audio to their content
/// types, all else to an embedded resource.
pub(super) fn output(answer: &FetchedResponse) -> Output {
    let media_type = media_type(&answer.headers);
    if answer.body.is_empty() {
        return without_text(answer);
    }
    if is_json(&media_type)
        && let Some(output) = document(&answer.body)
    {
        return output;
    }
    if is_text(&media_type) {
        let text = text(&answer.headers, &answer.body);
        // JSON in another character set.
        let json = is_json(&media_type).then(|| document(text.as_bytes()));
        return json.flatten().unwrap_or_else(|| of_text(text, answer));
    }
    let content = binary(&answer.body, &media_type, answer.url.as_str());
    Output::blocks([content])
}

/// Converts a response's text to a result. Model APIs reject a text of white space.
pub(super) fn of_text(text: String, answer: &FetchedResponse) -> Output {
    match text.trim().is_empty() {
        true => without_text(answer),
        false => Output::text(text),
    }
}

/// Converts a response to a HEAD request to a result: its status and its headers.
pub(super) fn head(answer: &FetchedResponse) -> Output {
    let headers = answer.headers.iter();
    let headers = headers.filter(|(name, _)| **name != SET_COOKIE);
    let lines = headers.map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        format!("\n{name}: {value}")
    });
    Output::text(in_words(answer.status) + &lines.collect::<String>())
}

/// Describes a response without content by its status, and by the location of what was created.
fn without_text(answer: &FetchedResponse) -> Output {
    let status = in_words(answer.status);
    let location = answer.headers.get(LOCATION).map(HeaderValue::as_bytes);
    Output::text(match location {
        Some(location) => format!("{status}, location: {}", String::from_utf8_lossy(location)),
        None => status,
    })
}

/// Converts a JSON document to a result. Returns `None` if it is not JSON. Only objects are structured in every protocol
/// version; other values are sent as text. Numbers keep all of their digits.
pub(super) fn document(bytes: &[u8]) -> Option<Output> {
    let bytes = without_bom(bytes);
    let value: Value = serde_json::from_slice(bytes).ok()?;
    Some(match value {
        // Model APIs reject a text of white space, so it keeps its quotes.
        Value::String(text) if !text.trim().is_empty() => Output::text(text),
        Value::Object(_) => object(exact(&value, bytes)),
        _ => Output::text(exact(&value, bytes)),
    })
}

/// Returns the result for the JSON text of an object.
pub(super) fn object(json: String) -> Output {
    Output {
        content: OutputContent::Structured,
        structured: Some(json),
        ..Output::default()
    }
}

/// Returns the JSON text of an item, with all digits of its numbers and without space between its tokens.
pub(super) fn compacted(json: &RawValue) -> Option<String> {
    let json = json.get();
    let value: Value = serde_json::from_str(json).ok()?;
    Some(exact(&value, json.as_bytes()))
}

fn exact(value: &Value, json: &[u8]) -> String {
    match std::str::from_utf8(json) {
        Ok(text) if has_long_number(json) => compact(text),
        _ => value.to_string(),
    }
}

/// Removes the space between the tokens of valid JSON.
fn compact(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let is_kept = |c: &char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_string,
            '"' => in_string = !in_string,
            _ => {}
        }
        in_string || !c.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

/// Converts bytes to content.
pub(super) fn binary(bytes: &[u8], media_type: &str, uri: &str) -> Content {
    if media_type.starts_with("image/") {
        return Content::image(bytes, media_type);
    }
    if media_type.starts_with("audio/") {
        return Content::audio(bytes, media_type);
    }
    let media_type = match media_type {
        "" => "application/octet-stream",
        known => known,
    };
    // A query may hold private data.
    let uri = uri.split(['?', '#']).next().unwrap_or_default();
    Content::embedded_blob(uri, media_type, bytes)
}

/// Returns the error that the model sees for a status that is not a success.
pub(super) fn failure(answer: &FetchedResponse) -> ToolError {
    let host = answer.url.host_str().unwrap_or_default();
    let status = answer.status;
    let media_type = media_type(&answer.headers);
    let shown = is_text(&media_type) && media_type != "text/html" && !answer.body.is_empty();
    if !shown {
        return ToolError::new(format!("{host} responded with {}", in_words(status)));
    }
    let text = text(&answer.headers, &answer.body);
    let excerpt: String = text.chars().take(ERROR_CHARACTERS).collect();
    let dots = if excerpt.len() < text.len() {
        " ..."
    } else {
        ""
    };
    ToolError::new(format!(
        "{host} responded with {}: {}{dots}",
        in_words(status),
        excerpt.trim()
    ))
}

fn in_words(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded_by_their_character_set() {
        for (media_type, body, expected) in [
            (
                "text/plain",
                "caf\u{e9} \u{20ac}".as_bytes(),
                "caf\u{e9} \u{20ac}",
            ),
            ("text/plain; charset=ISO-8859-1", b"caf\xe9", "caf\u{e9}"),
            (
                "text/csv; header=present; Charset=\"windows-1252\"",
                b"\x80 1",
                "\u{20ac} 1",
            ),
            ("text/plain; charset=utf-16le", b"\xe9\0", "\u{e9}"),
            ("text/plain", b"\xff\xfe\xe9\0", "\u{e9}"),
            ("text/plain", b"\xef\xbb\xbfa", "a"),
            ("text/plain; charset=shift_jis", b"\x82\xa0", "\u{3042}"),
            ("text/plain; charset=none-such", b"a\xff", "a\u{fffd}"),
        ] {
            let headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]);
            assert_eq!(text(&headers, body), expected, "{media_type}");
        }
    }

    #[test]
    fn numbers_of_documents_keep_their_digits() {
        let output = |json: &str| document(json.as_bytes()).expect("JSON");
        let long = "{\r\n \"wei\": 20000000000000000001, \"rate\": [ 0.12345678901234567890 ],\n \"a \\\" b\": 1}";
        let exact = r#"{"wei":20000000000000000001,"rate":[0.12345678901234567890],"a \" b":1}"#;
        assert_eq!(output(long).structured.as_deref(), Some(exact));
        assert_eq!(output(long).content, OutputContent::Structured);
        let short = output(r#"{"a": 1.50, "a": 2}"#);
        assert_eq!(short.structured.as_deref(), Some(r#"{"a":2}"#));
        for (json, text) in [
            ("[ 123456789012345678901 ]", "[123456789012345678901]"),
            (r#""1234567890123456789""#, "1234567890123456789"),
            ("\u{feff}[1, 2]", "[1,2]"),
        ] {
            assert_eq!(output(json), Output::text(text), "{json}");
        }
        assert!(document(b"{\"a\": 12345678901234567890").is_none());
        assert!(document(b"\xff").is_none());
    }

    #[test]
    fn pointers_lead_to_the_text_of_a_value() {
        let json =
            r#"{"a": [{"b/c": 1}, 20000000000000000001], "~": {"": null}, "a": [0, [2.50]]}"#;
        for (pointer, found) in [
            ("", Some(json)),
            ("/a", Some("[0, [2.50]]")),
            ("/a/1/0", Some("2.50")),
            ("/~0", Some(r#"{"": null}"#)),
            ("/~0/", Some("null")),
            ("/a/01", None),
            ("/a/+1", None),
            ("/a/2", None),
            ("/a/0/b", None),
            ("/b", None),
        ] {
            assert_eq!(part(json, pointer), found, "{pointer}");
            let value: Value = serde_json::from_str(json).expect("JSON");
            assert_eq!(
                value.pointer(pointer).is_some(),
                found.is_some(),
                "{pointer}"
            );
        }
        assert_eq!(part(r#"{"b/c": 1}"#, "/b~1c"), Some("1"));
        assert_eq!(items(r#"{"a": 1}"#).map(|items| items.len()), None);
    }
}
