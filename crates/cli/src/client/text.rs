//! Text of servers, made safe for terminals and shells.

use serde_json::Value;

use super::pretty::pretty;

/// Quotes a word for a shell, because a server's text must not become a command when the line is copied.
pub(in super::super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":=-_./,@".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Removes characters that could control a terminal.
pub(in super::super) fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

/// Formats a value as JSON on several lines, as [`pretty`] does, with a line end.
pub(in super::super) fn pretty_json(value: &Value) -> String {
    format!("{}\n", pretty(&value.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_of_a_server_does_not_control_the_terminal() {
        let value = json!({"a": "\u{9b}31m\u{202e}x", "b": [1]});
        let pretty = pretty_json(&value);
        assert_eq!(
            pretty,
            "{\n  \"a\": \"\\u009b31m\\u202ex\",\n  \"b\": [\n    1\n  ]\n}\n"
        );
        assert_eq!(serde_json::from_str::<Value>(&pretty).ok(), Some(value));
    }
}
