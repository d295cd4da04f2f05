//! Untrusted or long text in messages.

use std::borrow::Cow;

/// Untrusted text, shortened to fit into an error message.
pub fn truncated(text: &str) -> Cow<'_, str> {
    shortened(text, 200)
}

/// The beginning of a text that is longer than so many bytes.
pub(super) fn shortened(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}...",
        longshore_protocol::prefix(text, max_bytes)
    ))
}
