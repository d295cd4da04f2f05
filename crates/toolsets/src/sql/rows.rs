//! Result rows, written as JSON while they arrive, within limits.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::value::RawValue;

use super::config::SqlLimits;
use crate::catalog::{Output, ToolError};

/// Rows of a query, within its limits.
#[derive(Debug)]
pub(super) struct Rows {
    /// JSON objects, separated by commas.
    json: String,
    count: usize,
    truncated: bool,
    count_max: usize,
    bytes_max: usize,
}

/// Remaining capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capacity {
    More,
    Full,
}

#[derive(Serialize)]
struct FoundRows<'a> {
    rows: &'a RawValue,
    truncated: bool,
}

#[derive(Serialize)]
struct ChangedRows {
    changed: u64,
}

impl Rows {
    pub(super) fn new(limits: &SqlLimits) -> Self {
        Self {
            json: String::new(),
            count: 0,
            truncated: false,
            count_max: limits.rows,
            bytes_max: limits.result_bytes,
        }
    }

    /// Adds a row if it fits.
    pub(super) fn push(&mut self, row: &str) -> Capacity {
        if self.count == self.count_max || self.bytes_max < self.json.len() + 1 + row.len() {
            self.truncated = true;
            return Capacity::Full;
        }
        if 0 < self.count {
            self.json.push(',');
        }
        self.json.push_str(row);
        self.count += 1;
        Capacity::More
    }

    /// Leaves out a row that is too large to be written.
    pub(super) fn leave_out(&mut self) -> Capacity {
        self.truncated = true;
        Capacity::Full
    }

    /// Returns true if rows were left out for their size, so any number of them can follow.
    pub(super) fn is_cut(&self) -> bool {
        self.truncated && self.count < self.count_max
    }

    /// Returns the limit that was reached.
    pub(super) fn full(&self) -> &'static str {
        match self.count == self.count_max {
            true => "rows",
            false => "result_bytes",
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && !self.truncated
    }

    pub(super) fn output(self) -> Result<Output, ToolError> {
        let rows = RawValue::from_string(format!("[{}]", self.json))?;
        let found = FoundRows {
            rows: &rows,
            truncated: self.truncated,
        };
        Ok(Output::structured(&found)?)
    }
}

/// Returns a result with the number of changed rows.
pub(super) fn changed(count: u64) -> Result<Output, ToolError> {
    Ok(Output::structured(&ChangedRows { changed: count })?)
}

/// Makes column names unique for use as object keys: the second `id` is `id_2`.
pub(super) fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    // The next number to try for each name; a statement can have thousands of columns of one name.
    let mut numbers = HashMap::new();
    let mut unique = Vec::new();
    for name in names {
        let mut key = name.to_owned();
        while !taken.insert(key.clone()) {
            let number = numbers.entry(name).or_insert(2_usize);
            key = format!("{name}_{number}");
            *number += 1;
        }
        unique.push(key);
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, bytes: usize) -> Rows {
        Rows::new(&SqlLimits {
            rows: count,
            result_bytes: bytes,
            ..SqlLimits::default()
        })
    }

    #[test]
    fn a_result_says_whether_it_is_whole() {
        let mut whole = rows(2, 100);
        assert!(whole.is_empty());
        assert_eq!(whole.push(r#"{"a":1}"#), Capacity::More);
        assert_eq!(whole.push(r#"{"a":2}"#), Capacity::More);
        let expected = r#"{"rows":[{"a":1},{"a":2}],"truncated":false}"#;
        let output = whole.output().expect("JSON");
        assert_eq!(output.structured.as_deref(), Some(expected));

        let mut cut = rows(1, 100);
        assert_eq!(cut.push(r#"{"a":1}"#), Capacity::More);
        assert_eq!(cut.push(r#"{"a":2}"#), Capacity::Full);
        let expected = r#"{"rows":[{"a":1}],"truncated":true}"#;
        let output = cut.output().expect("JSON");
        assert_eq!(output.structured.as_deref(), Some(expected));
    }

    #[test]
    fn columns_of_one_name_are_numbered_in_linear_time() {
        let names = ["id", "id", "id_2", "id"];
        assert_eq!(unique(names.into_iter()), ["id", "id_2", "id_2_2", "id_3"]);
        // Comparing so many names pairwise would take minutes.
        let many = unique(std::iter::repeat_n("a", 100_000));
        assert_eq!(many.last().map(String::as_str), Some("a_100000"));
    }

    #[test]
    fn a_row_that_does_not_fit_is_left_out_whole() {
        let mut narrow = rows(10, 8);
        assert_eq!(narrow.push(r#"{"a":1}"#), Capacity::More);
        assert_eq!(narrow.push("{}"), Capacity::Full);
        let mut narrower = rows(10, 7);
        assert_eq!(narrower.push(r#"{"a":1}"#), Capacity::Full);
        assert!(!narrower.is_empty());
        assert!(narrower.is_cut());
        let mut full = rows(0, 100);
        assert_eq!(full.push("{}"), Capacity::Full);
        assert!(!full.is_cut());
    }
}
