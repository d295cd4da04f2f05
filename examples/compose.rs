//! One server out of several: another application's tools under a prefix, and a source whose tools come and go.
//!
//! ```sh
//! cargo run --example compose
//! ```
//!
//! It serves `math_add` and `notes_...`: one tool for each note. `notes_write` adds a note and its tool, and notifies
//! clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use longshore::catalog::{ChangeHandle, Source, SourceItems};
use longshore::{App, CallContext, Definition, IntoTool as _, ToolError, tool, tool_fn};
use serde_json::{Map, Value, json};

/// Adds two numbers.
#[tool(read_only)]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// An application of its own, which might as well be served alone.
fn arithmetic() -> App {
    App::new().tool(add)
}

/// Notes by name, each of which is a tool.
#[derive(Clone, Default)]
struct Notes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    notes: Mutex<BTreeMap<String, String>>,
    changed: Mutex<ChangeHandle>,
}

impl Notes {
    fn write(&self, name: String, text: String) {
        self.0
            .notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, text);
        self.0
            .changed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .notify();
    }
}

impl Source for Notes {
    fn name(&self) -> &str {
        "notes"
    }

    fn offer(&self) -> BoxFuture<'_, SourceItems> {
        let notes = self.clone();
        Box::pin(async move {
            let mut offered = SourceItems::default();
            let known = notes
                .0
                .notes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            for (name, text) in known {
                let definition = Definition::new(name).description("Reads a note.");
                let read = tool_fn(
                    definition,
                    move |_: Arc<CallContext>, _: Map<String, Value>| {
                        let text = text.clone();
                        async move { Ok::<_, ToolError>(text) }
                    },
                );
                offered.tools.push(read.into_tool());
            }
            let definition = Definition::new("write")
                .description("Writes a note, which becomes a tool.")
                .input_schema(json!({
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "pattern": "^[a-z]{1,32}$", "not": {"const": "write"}},
                        "text": {"type": "string", "maxLength": 1000},
                    },
                    "required": ["name", "text"],
                }));
            let write = tool_fn(
                definition,
                move |_: Arc<CallContext>, arguments: Map<String, Value>| {
                    let text = |name: &str| {
                        let value = arguments.get(name).and_then(Value::as_str);
                        value.unwrap_or_default().to_owned()
                    };
                    notes.write(text("name"), text("text"));
                    async { Ok::<_, ToolError>("written") }
                },
            );
            offered.tools.push(write.into_tool());
            offered
        })
    }

    fn watch(&self, changed: ChangeHandle) {
        *self
            .0
            .changed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = changed;
    }
}

fn app() -> App {
    App::new()
        .name("compose", "1")
        .import("math_", arithmetic())
        .source("notes_", Notes::default())
}

fn main() -> longshore::Result {
    app().run()
}
