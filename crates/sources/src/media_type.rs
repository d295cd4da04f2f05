//! Media types: their parts, and which of them are text.

/// Returns a media type without its parameters, in lower case.
pub fn essence(media_type: &str) -> String {
    let (essence, _) = media_type.split_once(';').unwrap_or((media_type, ""));
    essence.trim().to_ascii_lowercase()
}

/// Returns a parameter of a media type, such as `charset`.
pub fn parameter<'t>(media_type: &'t str, name: &str) -> Option<&'t str> {
    media_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"').trim();
        (key.trim().eq_ignore_ascii_case(name) && !value.is_empty()).then_some(value)
    })
}

pub fn is_json(essence: &str) -> bool {
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

pub fn is_xml(essence: &str) -> bool {
    essence.ends_with("+xml") || matches!(essence, "application/xml" | "text/xml")
}

/// Returns true for the types of texts, and without a type.
pub fn is_text(essence: &str) -> bool {
    let (kind, subtype) = essence.split_once('/').unwrap_or((essence, ""));
    matches!(kind, "" | "text")
        || is_json(essence)
        || is_xml(essence)
        || subtype.ends_with("+yaml")
        || matches!(
            subtype,
            "json"
                | "jsonl"
                | "x-ndjson"
                | "xml"
                | "xhtml"
                | "yaml"
                | "x-yaml"
                | "toml"
                | "javascript"
                | "x-javascript"
                | "ecmascript"
                | "graphql"
                | "sql"
                | "x-sh"
                | "rtf"
                | "x-www-form-urlencoded"
        )
}
