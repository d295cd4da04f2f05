//! Reading of paginated lists within a byte budget.

use serde_json::Value;
use serde_json::value::RawValue;

use super::ClientError;
use crate::protocol::scan::{Bounds, Key, Scanner};

/// Remaining budget for the lists of one server.
///
/// Pages are scanned as text. An entry is parsed into a `Value` only if its estimated memory fits, since a tree of
/// values can take a hundred times the memory of its text.
#[derive(Debug)]
pub struct ListBudget {
    message_bytes: usize,
    /// Bytes of text.
    text: usize,
    /// Estimated bytes of the trees of all entries.
    trees: usize,
    entries: usize,
    pages: usize,
}

/// Maximum text of all pages, as a multiple of `message_bytes`.
const TEXT: usize = 4;
/// Maximum estimated memory of all entries, as a multiple of `message_bytes`.
const TREES: usize = 8;
const ENTRIES_MAX: usize = 100_000;
const PAGES_MAX: usize = 10_000;
/// Maximum nesting and object size in a page; the same as for messages to this server.
const DEPTH_MAX: u32 = 64;
const MEMBERS_MAX: u16 = 10_000;

impl ListBudget {
    pub(super) fn new(message_bytes: usize) -> Self {
        Self {
            message_bytes,
            text: message_bytes.saturating_mul(TEXT),
            trees: message_bytes.saturating_mul(TREES),
            entries: ENTRIES_MAX,
            pages: PAGES_MAX,
        }
    }

    /// Reads a page into `entries`. Returns the cursor of the next page.
    pub(super) fn take(
        &mut self,
        page: &str,
        method: &str,
        member: &str,
        entries: &mut Vec<Value>,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        self.pages = self.pages.checked_sub(1).ok_or_else(|| {
            ClientError::Protocol(format!("its lists have more than {PAGES_MAX} pages"))
        })?;
        self.text = self.text.checked_sub(page.len()).ok_or_else(|| {
            let max = self.message_bytes.saturating_mul(TEXT);
            ClientError::Protocol(format!(
                "its lists have more than {max} bytes, {TEXT} times its message_bytes; set that to more if they are meant to be \
                 so large"
            ))
        })?;
        let unreadable = |problem: String| {
            ClientError::Protocol(format!("invalid response to {method}: {problem}"))
        };
        let parts = Page::read(page, member).map_err(unreadable)?;
        let Some(parts_of_list) = parts.entries else {
            return Err(ClientError::Protocol(format!(
                "the response to {method} lacks {member}"
            )));
        };
        for text in parts_of_list {
            self.entries = self.entries.checked_sub(1).ok_or_else(|| {
                ClientError::Protocol(format!("its lists have more than {ENTRIES_MAX} entries"))
            })?;
            self.trees = self.trees.checked_sub(tree_bytes(text)).ok_or_else(|| {
                let max = self.message_bytes.saturating_mul(TREES);
                ClientError::Protocol(format!(
                    "its lists need more than {max} bytes of memory, {TREES} times message_bytes; raise message_bytes if they are meant to be that large"
                ))
            })?;
            let entry =
                serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
            entries.push(entry);
        }
        // Some servers end a list with an empty cursor.
        let next = parts.next.filter(|next| !matches!(*next, "null" | "\"\""));
        let next = next.map(|next| RawValue::from_string(next.to_owned()));
        next.transpose()
            .map_err(|error| unreadable(error.to_string()))
    }
}

/// The parts of a page, as text.
#[derive(Default)]
struct Page<'a> {
    entries: Option<Vec<&'a str>>,
    next: Option<&'a str>,
}

/// A key, in its escaped form.
struct Named(String);

impl Key for Named {
    fn likely(_: &mut Scanner<'_>, _: u8) -> Option<Self> {
        None
    }

    fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'a> Page<'a> {
    fn read(text: &'a str, member: &str) -> Result<Self, String> {
        let mut page = Self::default();
        let mut scanner = Scanner::within(text, Bounds::new(DEPTH_MAX, MEMBERS_MAX, u32::MAX));
        if scanner.peek() != Some(b'{') {
            return Err("it is not an object".to_owned());
        }
        let read = scanner.object::<Named>(|scanner, key| {
            if key.0 == member && scanner.peek() == Some(b'[') {
                let mut entries = Vec::new();
                scanner.array(|scanner| {
                    if entries.len() <= ENTRIES_MAX {
                        entries.push(scanner.value()?);
                    } else {
                        scanner.value()?;
                    }
                    Ok(())
                })?;
                page.entries = Some(entries);
            } else {
                let value = scanner.value()?;
                if key.0 == "nextCursor" {
                    page.next = Some(value);
                }
            }
            Ok(())
        });
        match read {
            Ok(()) => Ok(page),
            Err(error) => Err(format!("{} at byte {}", error.reason, error.at)),
        }
    }
}

/// Estimated memory of a parsed value, in bytes.
fn tree_bytes(json: &str) -> usize {
    /// Size of a value in its array or object, including spare capacity.
    const VALUE: usize = 128;
    /// Hash table and initial capacity of an object.
    const OBJECT: usize = 448;
    let (mut values, mut objects) = (1_usize, 0_usize);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            b'{' => {
                objects += 1;
                values += 1;
            }
            b'[' | b',' => values += 1,
            _ => {}
        }
    }
    json.len() + values.saturating_mul(VALUE) + objects.saturating_mul(OBJECT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(budget: &mut ListBudget, page: &Value) -> Result<(Vec<Value>, Option<String>), String> {
        let mut entries = Vec::new();
        let next = budget.take(&page.to_string(), "tools/list", "tools", &mut entries);
        next.map(|next| (entries, next.map(|next| next.get().to_owned())))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_page_is_its_entries_and_a_cursor() {
        let mut budget = ListBudget::new(65_536);
        let page = json!({"tools": [{"name": "a"}, 5], "nextCursor": "n\"", "x": {"tools": [1]}});
        let (entries, next) = take(&mut budget, &page).expect("a page");
        assert_eq!(entries, [json!({"name": "a"}), json!(5)]);
        assert_eq!(next.as_deref(), Some(r#""n\"""#));
        for (page, problem) in [
            (
                json!({"tool": []}),
                "the response to tools/list lacks tools",
            ),
            (
                json!({"tools": {}}),
                "the response to tools/list lacks tools",
            ),
            (
                json!([]),
                "invalid response to tools/list: it is not an object",
            ),
        ] {
            let refused = take(&mut budget, &page).expect_err("refused");
            assert!(refused.contains(problem), "{refused}");
        }
        for end in [Value::Null, "".into()] {
            let last = json!({"tools": [], "nextCursor": end});
            assert_eq!(take(&mut budget, &last), Ok((Vec::new(), None)));
        }
    }

    #[test]
    fn lists_end_with_their_budget() {
        let text = json!({"tools": [], "x": "y".repeat(60_000)});
        let mut budget = ListBudget::new(65_536);
        for _ in 0..4 {
            assert!(take(&mut budget, &text).is_ok());
        }
        let refused = take(&mut budget, &text).expect_err("too much text");
        assert!(refused.contains("more than 262144 bytes"), "{refused}");

        let values = json!({"tools": [{"x": vec![0; 5000]}]});
        let mut budget = ListBudget::new(65_536);
        let refused = take(&mut budget, &values).expect_err("too many values");
        assert!(refused.contains("bytes of memory"), "{refused}");
        // What is not an entry is never a tree.
        let mut budget = ListBudget::new(65_536);
        let beside = json!({"tools": [], "x": vec![0; 5000]});
        assert!(take(&mut budget, &beside).is_ok());
    }

    #[test]
    fn the_estimate_of_a_tree_is_that_of_its_values() {
        assert!(tree_bytes("0") < 200);
        assert!(10 * 128 <= tree_bytes("[0,0,0,0,0,0,0,0,0,0]"));
        assert_eq!(
            tree_bytes(r#"{"a,[{": "b\",{["}"#),
            tree_bytes(r#"{"aaaa": "bbbbbb"}"#)
        );
    }
}
