//! Serialization of content for each revision (TOOL-10).

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::catalog::annotations_for;
use crate::protocol::{Annotations, Content, ResourceContents, Revision, push_escaped};

pub(super) const TEXT_BEGINS: &[u8] = br#"{"type":"text","text":""#;
pub(super) const TEXT_ENDS: &[u8] = br#""}"#;
/// Size of a text block without its text.
pub(super) const TEXT_BLOCK_BYTES: usize = TEXT_BEGINS.len() + TEXT_ENDS.len();

pub(super) fn push_text_block(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(TEXT_BEGINS);
    push_escaped(out, text);
    out.extend_from_slice(TEXT_ENDS);
}

/// Writes a text block whose text needs no escapes.
#[inline]
pub(super) fn push_plain_text_block(out: &mut Vec<u8>, text: &str) {
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
        block => push_json(out, &*for_revision(block, revision)),
    }
}

/// Writes the contents of a resource.
pub(super) fn push_contents(out: &mut Vec<u8>, contents: &ResourceContents, revision: Revision) {
    if contents.meta.is_some() && !revision.has_structured_results() {
        push_json(
            out,
            &ResourceContents {
                meta: None,
                ..contents.clone()
            },
        );
    } else {
        push_json(out, contents);
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

fn push_json<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    match serde_json::to_writer(out, value) {
        Ok(()) => {}
        Err(_) => unreachable!("content has nothing that JSON cannot hold"),
    }
}
