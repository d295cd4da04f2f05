//! Human-readable tables.

use std::io::{self, IsTerminal as _};

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

/// Creates an empty table that is as wide as its content. At a terminal it is at most as wide as that.
pub(super) fn wide_table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table
}

/// Returns untrusted text as one line.
pub(super) fn line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}
