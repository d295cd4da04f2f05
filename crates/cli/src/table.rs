//! Tables for people.

use comfy_table::{ContentArrangement, Row, Table, presets};

use super::client::clean;

/// An empty table that is as wide as the terminal, or has this many columns where that does not say how many it has.
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

/// One line of a text of a stranger's.
pub(super) fn line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}
