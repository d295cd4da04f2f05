//! Blocks that replace a large part of a result.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Artifacts;
use crate::auth::Principal;
use crate::protocol::Content;

/// Length of the beginning of a text that is shown beside its link, in bytes.
const BEGINNING: usize = 1000;

impl Artifacts {
    /// Stores a block that is too large. Returns the blocks in place of it; `None` if it stays.
    pub(super) async fn replacement(
        &self,
        principal: &Principal,
        tool: &str,
        block: &Content,
        now: SystemTime,
    ) -> Option<[Content; 2]> {
        let (mut blocks, annotations, meta) = match block {
            Content::Text(text) if self.above < text.text.len() => {
                let bytes = text.text.as_bytes();
                let link = self
                    .keep(principal, tool, bytes, "text/plain; charset=utf-8", now)
                    .await?;
                let blocks = blocks_of(link, Some(&text.text), bytes.len());
                (blocks, &text.annotations, &text.meta)
            }
            Content::Image(media) | Content::Audio(media) if self.above < media.data.len() => {
                let bytes = STANDARD.decode(&media.data).ok()?;
                let link = self
                    .keep(principal, tool, &bytes, &media.mime_type, now)
                    .await?;
                let blocks = blocks_of(link, None, bytes.len());
                (blocks, &media.annotations, &media.meta)
            }
            _ => return None,
        };
        for block in &mut blocks {
            match block {
                Content::Text(text) => text.annotations.clone_from(annotations),
                Content::ResourceLink(link) => {
                    link.annotations.clone_from(annotations);
                    link.meta.clone_from(meta);
                }
                _ => {}
            }
        }
        Some(blocks)
    }
}

/// Returns a link together with a description of its target. Some clients do not show links to the model, so that the text
/// repeats the URI.
pub(super) fn blocks_of(link: Content, text: Option<&str>, bytes: usize) -> [Content; 2] {
    let uri = match &link {
        Content::ResourceLink(link) => link.uri.as_str(),
        _ => "",
    };
    let mut words = format!(
        "The result has {bytes} bytes and is stored for a limited time: read the resource {uri}"
    );
    if let Some(text) = text {
        words.push_str("\nIt begins:\n");
        words.push_str(longshore_protocol::prefix(text, BEGINNING));
    }
    [Content::text(words), link]
}

/// Returns true if a block is the text of a JSON value.
pub(super) fn is_json(block: &Content, json: Option<&str>) -> bool {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    match (block, json) {
        (Content::Text(text), Some(json)) => {
            value(&text.text).is_some_and(|of| value(json) == Some(of))
        }
        _ => false,
    }
}
