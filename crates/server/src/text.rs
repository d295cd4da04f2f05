//! Untrusted text in messages.

use std::borrow::Cow;

/// Untrusted text, shortened to fit into an error message.
pub fn truncated(text: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 200;
    if text.len() <= MAX_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}...",
        longshore_protocol::prefix(text, MAX_BYTES)
    ))
}
