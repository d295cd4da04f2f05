//! Text for models.

/// Returns a Markdown code fence that is longer than any run of backticks in a text.
pub(crate) fn fence(text: &str) -> String {
    let runs = text.split(|c: char| c != '`').map(str::len);
    "`".repeat(runs.max().unwrap_or(0).max(2) + 1)
}

/// Cuts a text after a number of bytes, with a mark.
pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    match longshore_protocol::prefix(text, bytes_max) {
        whole if whole.len() == text.len() => text.to_owned(),
        start => format!("{start}…"),
    }
}
