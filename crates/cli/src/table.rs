//! Human-readable tables.

use comfy_table::{ContentArrangement, Row, Table, presets};

use super::client::clean;

/// Creates an empty table as wide as the terminal, or `columns` wide if the width is unknown.
pub(super) fn table(header: impl Into<Row>, columns: u16) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    if table.width().is_none_or(|width| width < 40) {
        table.set_width(columns);
    }
    table
}

/// Returns untrusted text as one line.
pub(super) fn line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}
