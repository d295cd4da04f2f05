//! The product's library with many tools: what the listings are measured on.

use std::error::Error;
use std::sync::Arc;

use longshore::catalog::CallFuture;
use longshore::{App, Arguments as CallArguments, CallContext, Config, Definition, Output, Tool};
use serde_json::json;

use super::settings::Setting;

/// Serve many tools that do nothing, and `echo`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Port to listen on, on 127.0.0.1
    #[arg(long)]
    port: u16,
    /// Number of tools, including `echo`
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,
    /// Additional settings
    #[arg(long, value_enum, default_value = "nothing")]
    with: Setting,
}

/// Serves until the process ends, with one worker. Makes its own runtime.
pub(super) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut config = Config::default();
    config.http.port = arguments.port;
    config.http.workers = Some(1);
    config.server.page_size = usize::try_from(arguments.count)?;
    arguments.with.apply(&mut config)?;
    let tools = (1..arguments.count).map(|number| tool(definition(number, arguments.with)));
    let app = App::new().config(config).tools(tools).tool(echo);
    app.run().map_err(|error| format!("{error}").into())
}

/// Returns the message it was given.
#[longshore::tool(read_only, idempotent, open_world = false)]
async fn echo(
    /// What to return.
    message: String,
) -> String {
    message
}

fn tool(definition: Definition) -> Arc<dyn Tool> {
    Arc::new(Lookup(definition))
}

struct Lookup(Definition);

impl Tool for Lookup {
    fn definition(&self) -> &Definition {
        &self.0
    }

    fn call(&self, _: Arc<CallContext>, _: CallArguments) -> CallFuture {
        Box::pin(async { Ok(Output::text("done")) })
    }
}

/// A tool as people write them: a description, three parameters, hints. About 576 bytes in a listing.
fn definition(number: u32, with: Setting) -> Definition {
    Definition::new(with.tool_name(number))
        .description(DESCRIPTION)
        .input_schema(json!({
            "type": "object",
            "properties": {
                "key": {"type": "string", "description": "The key of the record, as the listing gives it."},
                "fields": {"type": "array", "items": {"type": "string"}, "description": "Which fields; all of them if left out."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100}
            },
            "required": ["key"],
            "additionalProperties": false
        }))
        .read_only(true)
}

const DESCRIPTION: &str = "Looks up one record in the archive by its key, and gives the fields that were asked for. Answers with an error when there is no such record.";
