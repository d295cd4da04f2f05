//! Human-readable results.

use std::collections::BTreeMap;

use comfy_table::{Attribute, Cell, Color};
use serde_json::Value;
use serde_json::value::RawValue;

use super::pretty::pretty;
use super::text::clean;
use crate::cli::paint::Paint;
use crate::cli::table::table;

/// Maximum length of a description in a list.
const DESCRIPTION_MAX: usize = 200;

/// Renders all items of a server.
pub(super) fn tables(all: &Value, paint: Paint) -> String {
    let mut text = String::new();
    for (kind, heading, name) in [
        ("tools", "TOOLS", "name"),
        ("resources", "RESOURCES", "uri"),
        ("resourceTemplates", "RESOURCE TEMPLATES", "uriTemplate"),
        ("prompts", "PROMPTS", "name"),
    ] {
        let entries: Vec<&Value> = all[kind].as_array().into_iter().flatten().collect();
        if entries.is_empty() {
            continue;
        }
        let header = [heading, "", ""]
            .map(|text| paint.cell(text, |cell| cell.add_attribute(Attribute::Bold)));
        let mut table = table(header, 100);
        if paint.is_on() {
            table.enforce_styling();
        }
        for entry in entries {
            let description = entry["description"]
                .as_str()
                .or(entry["title"].as_str())
                .unwrap_or_default();
            table.add_row([
                paint.cell(clean(entry[name].as_str().unwrap_or_default()), |cell| {
                    cell.fg(Color::DarkCyan)
                }),
                paint.cell(takes(entry), |cell| cell.add_attribute(Attribute::Dim)),
                Cell::new(clean(&summary(description))),
            ]);
        }
        text.push_str(&table.to_string());
        text.push_str("\n\n");
    }
    if text.is_empty() {
        text.push_str("nothing is offered\n");
    }
    text
}

/// Returns the first paragraph of a description, shortened with an ellipsis.
fn summary(description: &str) -> String {
    let description = description.trim();
    let mut lines = description.lines();
    let paragraph: Vec<&str> = lines
        .by_ref()
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let has_more = lines.any(|line| !line.trim().is_empty());
    let paragraph = paragraph.join(" ");
    let Some((end, _)) = paragraph.char_indices().nth(DESCRIPTION_MAX) else {
        return match has_more {
            true => format!("{paragraph} …"),
            false => paragraph,
        };
    };
    let cut = &paragraph[..end];
    let cut = cut.rsplit_once(' ').map_or(cut, |(whole, _)| whole);
    format!("{cut} …")
}

/// Returns the argument names, optional ones in brackets.
fn takes(entry: &Value) -> String {
    let named = |name: &str, is_required: bool| match is_required {
        true => clean(name),
        false => format!("[{}]", clean(name)),
    };
    let schema = &entry["inputSchema"];
    let properties = schema["properties"].as_object().into_iter().flatten();
    let of_tool = properties.map(|(name, _)| {
        let mut required = schema["required"].as_array().into_iter().flatten();
        named(name, required.any(|one| one == name.as_str()))
    });
    let arguments = entry["arguments"].as_array().into_iter().flatten();
    let of_prompt = arguments.map(|argument| {
        let name = argument["name"].as_str().unwrap_or_default();
        named(name, argument["required"] == true)
    });
    let names: Vec<_> = of_tool.chain(of_prompt).collect();
    names.join(" ")
}

/// Renders the content of a tool's result, given as a tree and as text.
pub(super) fn blocks(result: &Value, json: &RawValue, paint: Paint) -> String {
    let blocks: Vec<&Value> = result["content"].as_array().into_iter().flatten().collect();
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(json.get());
    let members = members.unwrap_or_default();
    match members.get("structuredContent") {
        Some(structured) if blocks.is_empty() => format!("{}\n", pretty(structured.get())),
        _ if result["isError"] == true => {
            blocks.into_iter().map(|one| problem(one, paint)).collect()
        }
        _ => blocks.into_iter().map(|one| block(one, paint)).collect(),
    }
}

/// Renders a content block of an error: each invalid field on its own line, if it is a list of these.
fn problem(one: &Value, paint: Paint) -> String {
    let invalid = fields(one["text"].as_str().unwrap_or_default());
    if invalid.is_empty() {
        return block(one, paint);
    }
    let lines = invalid
        .iter()
        .map(|field| format!("{}\n", field.shown(paint)));
    lines.collect()
}

/// Renders a content block.
pub(super) fn block(block: &Value, paint: Paint) -> String {
    let of = |member: &str| clean(block[member].as_str().unwrap_or_default());
    let size = || block["data"].as_str().map_or(0, decoded_len);
    match block["type"].as_str().unwrap_or_default() {
        "text" => format!("{}\n", of("text")),
        kind @ ("image" | "audio") => {
            let placeholder = format!("[{kind}: {}, {} bytes]", of("mimeType"), size());
            format!("{}\n", paint.dim(placeholder))
        }
        "resource_link" => format!("{}\n", paint.dim(format!("[resource: {}]", of("uri")))),
        "resource" => contents_of(&block["resource"], paint),
        other => format!("{}\n", paint.dim(format!("[{}]", clean(other)))),
    }
}

/// Renders the contents of a resource.
pub(super) fn contents_of(contents: &Value, paint: Paint) -> String {
    match contents["text"].as_str() {
        Some(text) => format!("{}\n", clean(text)),
        None => {
            let size = contents["blob"].as_str().map_or(0, decoded_len);
            let kind = contents["mimeType"].as_str().unwrap_or("bytes");
            let placeholder = format!(
                "[{}: {}, {size} bytes]",
                clean(contents["uri"].as_str().unwrap_or_default()),
                clean(kind)
            );
            format!("{}\n", paint.dim(placeholder))
        }
    }
}

/// Returns the length of decoded Base64 text, in bytes.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// Error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldError {
    path: String,
    message: String,
}

impl FieldError {
    fn shown(&self, paint: Paint) -> String {
        format!(
            "{}: {}",
            paint.wrong(clean(&self.path)),
            clean(&self.message)
        )
    }
}

/// Renders a JSON-RPC error: its message, and each invalid field on its own line.
pub(super) fn error(message: &str, code: i64, data: Option<&Value>, paint: Paint) -> String {
    let mut invalid = fields(message);
    for field in data.into_iter().flat_map(fields_of) {
        if !invalid.contains(&field) {
            invalid.push(field);
        }
    }
    // A list of fields in the message is rendered below.
    let message = match message.find('[') {
        Some(at) if !fields(message).is_empty() => message[..at].trim_end_matches([' ', ':']),
        _ => message,
    };
    let mut text = format!("{} ({code})", clean(message));
    for field in invalid {
        text.push_str("\n  ");
        text.push_str(&field.shown(paint));
    }
    text
}

/// Parses field errors from JSON text: `[{"path": ["a", "b"], "message": "..."}]`.
fn fields(text: &str) -> Vec<FieldError> {
    let Some(start) = text.find('[') else {
        return Vec::new();
    };
    let value = serde_json::from_str(&text[start..]);
    value.map_or_else(|_| Vec::new(), |value: Value| fields_of(&value))
}

fn fields_of(value: &Value) -> Vec<FieldError> {
    let list = value.as_array().or_else(|| value["errors"].as_array());
    let field = |problem: &Value| {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let path = match &problem["path"] {
            Value::Array(path) => {
                let parts = path
                    .iter()
                    .map(|part| text(part).unwrap_or_else(|| part.to_string()));
                parts.collect::<Vec<_>>().join(".")
            }
            path => text(path)?,
        };
        let message = text(&problem["message"])?;
        Some(FieldError { path, message })
    };
    list.into_iter().flatten().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(result: &Value) -> String {
        let json = serde_json::value::to_raw_value(result).expect("JSON");
        blocks(result, &json, Paint::default())
    }

    #[test]
    fn results_are_shown_as_people_read_them() {
        let result = json!({"content": [
            {"type": "text", "text": "hello\u{1b}[31m"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "a://b", "name": "b"},
            {"type": "resource", "resource": {"uri": "a://c", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "a://d", "blob": "AAAA", "mimeType": "x/y"}},
        ]});
        assert_eq!(
            rendered(&result),
            "hello[31m\n[image: image/png, 3 bytes]\n[resource: a://b]\ninside\n[a://d: x/y, 3 bytes]\n"
        );
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(rendered(&structured), "{\n  \"a\": 1\n}\n");
    }

    #[test]
    fn what_is_wrong_with_fields_is_told_once_for_each() {
        let list = r#"[{"path": ["place", 0, "x"], "message": "Required", "code": "c"}]"#;
        let data: Value = serde_json::from_str(list).expect("JSON");
        let reported =
            |message: &str, data: Option<&Value>| error(message, -32602, data, Paint::default());
        let once = "Invalid arguments (-32602)\n  place.0.x: Required";
        assert_eq!(reported(&format!("Invalid arguments: {list}"), None), once);
        assert_eq!(
            reported(&format!("Invalid arguments: {list}"), Some(&data)),
            once
        );
        assert_eq!(
            reported("Invalid arguments", Some(&json!({"errors": data}))),
            once
        );
        assert_eq!(reported("bad [1, 2]", None), "bad [1, 2] (-32602)");
        let coloured = error("no", 1, Some(&data), Paint::on());
        assert!(
            coloured.contains("\u{1b}[1;31mplace.0.x\u{1b}[0m: Required"),
            "{coloured}"
        );
    }

    #[test]
    fn lists_of_fields_are_errors_only_in_errors() {
        let text = r#"2 files: [{"path": "a", "message": "fix"}]"#;
        let mut result = json!({"content": [{"type": "text", "text": text}]});
        assert_eq!(rendered(&result), format!("{text}\n"));
        result["isError"] = true.into();
        assert_eq!(rendered(&result), "a: fix\n");
    }

    #[test]
    fn sizes_are_of_the_decoded_bytes() {
        for (text, bytes) in [("", 0), ("QQ==", 1), ("QUE=", 2), ("QUFB", 3), ("QQ", 1)] {
            assert_eq!(decoded_len(text), bytes, "{text}");
        }
    }

    #[test]
    fn listings_name_what_may_be_left_out() {
        let entry = json!({"inputSchema": {"properties": {"a": {}, "b": {}}, "required": ["b"]}});
        assert_eq!(takes(&entry), "[a] b");
        assert_eq!(tables(&json!({}), Paint::default()), "nothing is offered\n");
    }

    #[test]
    fn listings_say_where_a_description_is_cut() {
        assert_eq!(summary("Says it\nonce.\n"), "Says it once.");
        assert_eq!(summary("Says it.\n\nMore."), "Says it. …");
        let long = "word ".repeat(100);
        let cut = summary(&long);
        assert!(
            cut.ends_with("word …") && cut.chars().count() <= DESCRIPTION_MAX + 2,
            "{cut}"
        );
        let all = json!({
            "tools": [{"name": "echo", "description": "Says it."}],
            "resourceTemplates": [{"uriTemplate": "a://{b}"}],
        });
        let table = tables(&all, Paint::default());
        assert!(
            table.contains("Says it.")
                && table.contains("RESOURCE TEMPLATES")
                && !table.contains('\u{1b}'),
            "{table}"
        );
        assert!(tables(&all, Paint::on()).contains("\u{1b}["));
    }
}
