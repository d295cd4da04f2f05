//! An MCP server. `cargo run` serves it and logs its address; `cargo test` tests its tools.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore::{App, ToolError, tools};

/// State that calls share. Replace it with a connection pool or an API client.
#[derive(Default)]
struct Notebook {
    notes: Mutex<BTreeMap<String, String>>,
}

#[tools]
impl Notebook {
    /// Writes a note. It replaces a note with the same title.
    #[tool(idempotent)]
    async fn write_note(
        &self,
        /// Topic of the note, in a few words.
        title: String,
        text: String,
    ) -> Result<String, ToolError> {
        if title.trim().is_empty() {
            // The model reads this message and can retry.
            return Err(ToolError::new(
                "the title is empty: say what the note is about",
            ));
        }
        let reply = format!("noted: {title}");
        self.notes().insert(title, text);
        Ok(reply)
    }

    /// Reads a note.
    #[tool(read_only)]
    async fn read_note(&self, title: String) -> Result<String, ToolError> {
        let notes = self.notes();
        let found = notes.get(&title).cloned();
        found.ok_or_else(|| {
            let titles: Vec<_> = notes.keys().map(String::as_str).collect();
            ToolError::new(format!(
                "there is no note {title:?}; there are: {}",
                titles.join(", ")
            ))
        })
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn app(notebook: Notebook) -> App {
    App::new()
        .name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .toolset(notebook)
}

fn main() -> longshore::Result {
    // Standard output carries messages if the server uses stdio.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    app(Notebook::default()).run()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_note_is_read_as_it_was_written() -> longshore::Result {
        let server = app(Notebook::default()).harness()?;
        let note = json!({"title": "milk", "text": "two litres"});
        let result = server.call("write_note", note).await?;
        assert_eq!(result.text(), "noted: milk");
        let result = server.call("read_note", json!({"title": "milk"})).await?;
        assert_eq!(result.text(), "two litres");
        Ok(())
    }

    #[tokio::test]
    async fn the_model_is_told_what_is_wrong() -> longshore::Result {
        let server = app(Notebook::default()).harness()?;
        let note = json!({"title": " ", "text": "?"});
        let result = server.call("write_note", note).await?;
        assert!(result.is_error());
        Ok(())
    }
}
