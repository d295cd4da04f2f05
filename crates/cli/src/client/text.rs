//! Text of servers, made safe for terminals and shells.

use serde_json::Value;

use super::pretty::pretty;
use crate::telemetry::is_misleading;

/// Quotes a word for a shell, because a server's text must not become a command when the line is copied.
pub(in super::super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":=-_./,@".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Removes characters that could control a terminal, or make text look like another, as those that reverse it do.
pub(in super::super) fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !is_misleading(*c))
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
    fn text_of_a_server_is_shown_in_the_order_in_which_it_is_written() {
        let url = "https://a.example/\u{202e}gpj.\u{2066}\u{200f}\u{1b}[2J";
        assert_eq!(clean(url), "https://a.example/gpj.[2J");
        assert_eq!(clean("a\n\tb 👩‍💻"), "a\n\tb 👩‍💻");
    }

    #[test]
    fn words_of_a_server_are_no_commands() {
        assert_eq!(shell_word("files:read"), "files:read");
        assert_eq!(shell_word("a;ls"), "'a;ls'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("a'`ls`"), r"'a'\''`ls`'");
    }

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
