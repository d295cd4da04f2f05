//! A whole server: one tool, one builder call.
//!
//! ```sh
//! cargo run --example hello                              # http://127.0.0.1:3000/mcp
//! LONGSHORE_TRANSPORT=stdio cargo run --example hello    # standard input and output
//! ```
//!
//! Settings come from the environment; docs/configuration.md lists them.

use longshore::{App, tool};

/// Greets somebody by name.
#[tool(read_only)]
async fn hello(
    /// The name of the person.
    name: String,
    /// With which word.
    #[arg(default = "Hello")]
    greeting: String,
) -> String {
    format!("{greeting}, {name}!")
}

fn main() -> longshore::Result {
    App::new().name("hello", "1.0.0").tool(hello).run()
}
