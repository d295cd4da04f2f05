//! Serialization of tool results, and of content, for each revision (TOOL-10).

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::reply::{Reply, begin, end_len, finish, push_end, push_end_with};
use super::snapshot::Snapshot;
use crate::catalog::{Output, OutputContent, annotations_for};
use crate::limit::Reservation;
use crate::net::SharedBytes;
use crate::protocol::{
    Annotations, Content, ResourceContents, Revision, is_plain, push_escaped, push_json,
};
use crate::telemetry::OperationOutcome;

/// Response to a call that returned a result, which may be an error result.
///
/// Every tool result is written here: of calls, of tasks and of REST calls. Variants of results that a client negotiates
/// (SEP-3279, a draft) would be chosen here.
#[inline]
pub(super) fn success(snapshot: &Snapshot, revision: Revision, id: &str, output: &Output) -> Reply {
    let structured = output.structured.as_deref();
    let mut plain = false;
    let content_len = match &output.content {
        OutputContent::Text(text) => {
            plain = is_plain(text);
            // Most strings need few escapes. The buffer grows if one needs more.
            let escapes = if plain { 0 } else { 16 + text.len() / 16 };
            TEXT_BLOCK_BYTES + text.len() + escapes
        }
        OutputContent::Structured | OutputContent::Blocks(_) => 256,
    };
    // The exact size for a plain string: a full buffer is sent without a copy.
    let capacity = CONTENT.len()
        + content_len
        + structured.map_or(0, |s| 2 * s.len())
        + 1
        + is_error(output).len()
        + end_len(snapshot, revision, output.meta.as_deref());
    let mut out = begin(id, capacity);
    out.extend_from_slice(CONTENT);
    match &output.content {
        OutputContent::Text(text) if plain => push_plain_text_block(&mut out, text),
        OutputContent::Text(text) => push_text_block(&mut out, text),
        OutputContent::Structured => push_text_block(&mut out, structured.unwrap_or_default()),
        OutputContent::Blocks(blocks) => {
            for (position, block) in blocks.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                push_block(&mut out, block, revision);
            }
            if let Some(json) = structured
                && !shows(json, revision)
                && !blocks.iter().any(|block| matches!(block, Content::Text(_)))
            {
                if !blocks.is_empty() {
                    out.push(b',');
                }
                push_text_block(&mut out, json);
            }
        }
    }
    push_rest(&mut out, revision, output);
    push_end_of(&mut out, snapshot, revision, output);
    with_verdict_of(output, Reply::document(out))
}

/// Ends the response to a call.
#[inline]
fn push_end_of(out: &mut Vec<u8>, snapshot: &Snapshot, revision: Revision, output: &Output) {
    match output.exact_meta.as_deref() {
        None => push_end(out, snapshot, revision, output.meta.as_deref()),
        Some(meta) => push_end_with(out, snapshot, revision, meta),
    }
}

/// Response to a successful call whose result is large. A text that needs no escapes is sent as it is, without a copy. The
/// reservation lasts until the largest part was sent.
#[cold]
pub(super) fn large_success(
    snapshot: &Snapshot,
    revision: Revision,
    id: &str,
    mut output: Output,
    reservation: Option<Reservation>,
) -> Reply {
    match &mut output.content {
        OutputContent::Text(text) if is_plain(text) => {
            let text = Bytes::from(std::mem::take(text));
            let text = match reservation {
                Some(reservation) => reservation.hold(text),
                None => text,
            };
            let mut head = begin(id, CONTENT.len() + TEXT_BEGINS.len());
            head.extend_from_slice(CONTENT);
            head.extend_from_slice(TEXT_BEGINS);
            let mut end = Vec::with_capacity(128);
            end.extend_from_slice(TEXT_ENDS);
            push_rest(&mut end, revision, &output);
            push_end_of(&mut end, snapshot, revision, &output);
            let pieces = SharedBytes::Several([text, end.into()].into());
            with_verdict_of(&output, Reply::pieces(head.into(), pieces))
        }
        _ => success(snapshot, revision, id, &output).with_reservation(reservation),
    }
}

/// Adds structured content to a result whose text is a JSON value other than an object.
///
/// Gemini CLI takes the text of a result without structured content for it, and then rejects all but objects.
#[cold]
pub(super) fn add_object(output: &mut Output) {
    let structured = output.structured.as_deref();
    if structured.is_some_and(|json| json.starts_with('{')) {
        return;
    }
    let text = match &output.content {
        OutputContent::Text(text) => Some(text.as_str()),
        OutputContent::Structured => structured,
        OutputContent::Blocks(blocks) => match blocks.first() {
            Some(Content::Text(block)) => Some(block.text.as_str()),
            Some(_) => None,
            None => structured,
        },
    };
    let Some(text) = text.filter(|text| is_json(text) && !text.trim_start().starts_with('{'))
    else {
        return;
    };
    let object = format!("{{\"result\":{text}}}");
    if !matches!(&output.content, OutputContent::Blocks(blocks) if !blocks.is_empty()) {
        output.content = OutputContent::Text(text.to_owned());
    }
    output.structured = Some(object);
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Sets the outcome of an error result, such as that of an upstream's tool.
#[inline]
fn with_verdict_of(output: &Output, reply: Reply) -> Reply {
    match output.is_error {
        true => reply.with_verdict(OperationOutcome::ToolError),
        false => reply,
    }
}

/// Ends the content, and appends the other members of a result.
#[inline(always)]
fn push_rest(out: &mut Vec<u8>, revision: Revision, output: &Output) {
    out.push(b']');
    if let Some(json) = output.structured.as_deref()
        && shows(json, revision)
    {
        out.extend_from_slice(br#","structuredContent":"#);
        push_json(out, json);
    }
    out.extend_from_slice(is_error(output));
}

/// Returns true if the revision has structured values of this kind. Otherwise they are shown as text.
#[inline]
fn shows(json: &str, revision: Revision) -> bool {
    revision.has_structured_results()
        && (json.starts_with('{') || revision.has_structured_values_of_any_kind())
}

const CONTENT: &[u8] = br#","result":{"content":["#;

#[inline]
fn is_error(output: &Output) -> &'static [u8] {
    if output.is_error {
        br#","isError":true"#
    } else {
        br#","isError":false"#
    }
}

/// Response to a failed call whose error the model reads.
pub(super) fn error_result(
    snapshot: &Snapshot,
    revision: Revision,
    id: &str,
    message: &str,
) -> Reply {
    let mut out = begin(id, 128 + message.len() + snapshot.result_tail.len());
    out.extend_from_slice(CONTENT);
    push_text_block(&mut out, message);
    out.extend_from_slice(br#"],"isError":true"#);
    finish(out, snapshot, revision, None).with_verdict(OperationOutcome::ToolError)
}

const TEXT_BEGINS: &[u8] = br#"{"type":"text","text":""#;
const TEXT_ENDS: &[u8] = br#""}"#;
/// Size of a text block without its text.
const TEXT_BLOCK_BYTES: usize = TEXT_BEGINS.len() + TEXT_ENDS.len();

fn push_text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(TEXT_BEGINS);
    push_escaped(out, text);
    out.extend_from_slice(TEXT_ENDS);
}

/// Writes a text block whose text needs no escapes.
#[inline]
fn push_plain_text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(TEXT_BEGINS);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(TEXT_ENDS);
}

/// Writes a block, or a text block in its place if the revision does not have its kind.
pub(super) fn push_block(out: &mut Vec<u8>, block: &Content, revision: Revision) {
    match block {
        Content::Audio(audio) if !revision.has_annotations() => {
            push_text_block(
                out,
                &format!(
                    "[audio, {}: this client cannot receive it]",
                    audio.mime_type
                ),
            );
        }
        Content::ResourceLink(link) if !revision.has_structured_results() => {
            push_text_block(out, &format!("{}: {}", link.name, link.uri));
        }
        block => push_value(out, &*for_revision(block, revision)),
    }
}

/// Writes the contents of a resource.
pub(super) fn push_contents(out: &mut Vec<u8>, contents: &ResourceContents, revision: Revision) {
    if contents.meta.is_some() && !revision.has_structured_results() {
        push_value(
            out,
            &ResourceContents {
                meta: None,
                ..contents.clone()
            },
        );
    } else {
        push_value(out, contents);
    }
}

/// Removes members that the revision does not have: `_meta`, icons, and the time of the last change.
fn for_revision(block: &Content, revision: Revision) -> Cow<'_, Content> {
    let has_icons = matches!(block, Content::ResourceLink(link) if !link.icons.is_empty());
    let drops_icons = has_icons && !revision.has_icons();
    if revision.has_structured_results() && !drops_icons {
        return Cow::Borrowed(block);
    }
    let mut block = block.clone();
    if let Content::ResourceLink(link) = &mut block
        && drops_icons
    {
        link.icons.clear();
    }
    if revision.has_structured_results() {
        return Cow::Owned(block);
    }
    let strip = |annotations: &mut Option<Annotations>, meta: &mut Option<Map<String, Value>>| {
        *meta = None;
        if let Some(annotations) = annotations {
            *annotations = annotations_for(annotations, revision);
        }
    };
    match &mut block {
        Content::Text(text) => strip(&mut text.annotations, &mut text.meta),
        Content::Image(media) | Content::Audio(media) => {
            strip(&mut media.annotations, &mut media.meta);
        }
        Content::ResourceLink(link) => strip(&mut link.annotations, &mut link.meta),
        Content::Resource(embedded) => {
            strip(&mut embedded.annotations, &mut embedded.meta);
            embedded.resource.meta = None;
        }
        _ => {}
    }
    Cow::Owned(block)
}

fn push_value<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    match serde_json::to_writer(out, value) {
        Ok(()) => {}
        Err(_) => unreachable!("content has nothing that JSON cannot hold"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with_object(mut output: Output) -> (Option<Value>, OutputContent) {
        add_object(&mut output);
        let structured = output.structured.as_deref();
        let structured = structured.map(|json| serde_json::from_str(json).expect("JSON"));
        (structured, output.content)
    }

    #[test]
    fn a_text_that_parses_as_no_object_gets_one_as_structured_content() {
        for text in [
            "[1,2]",
            " [{\"a\":1}]\n",
            "42",
            "-1.5",
            "true",
            "null",
            "\"x\"",
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            let blocks = vec![Content::text(text), Content::text("more")];
            for content in [
                OutputContent::Text(text.to_owned()),
                OutputContent::Blocks(blocks),
            ] {
                let output = Output {
                    content: content.clone(),
                    ..Output::default()
                };
                let expected = (Some(json!({"result": value})), content);
                assert_eq!(with_object(output), expected, "{text}");
            }
        }
    }

    #[test]
    fn a_structured_value_that_is_no_object_stays_in_the_text() {
        let output = Output::structured(&[1, 2]).expect("JSON");
        let expected = (
            Some(json!({"result": [1, 2]})),
            OutputContent::Text("[1,2]".to_owned()),
        );
        assert_eq!(with_object(output.clone()), expected);
        assert_eq!(with_object(output.with_content(Vec::new())), expected);
    }

    #[test]
    fn other_results_stay_as_they_are() {
        let object = Output::structured(&json!({"a": 1})).expect("JSON");
        let image = Content::image(b"", "image/png");
        for output in [
            Output::text("hello"),
            Output::text(""),
            Output::text("{\"a\":1}"),
            Output::text("42 pets"),
            Output::default(),
            Output::blocks([image, Content::text("1")]),
            object,
        ] {
            let mut same = output.clone();
            add_object(&mut same);
            assert_eq!(same, output);
        }
    }
}
