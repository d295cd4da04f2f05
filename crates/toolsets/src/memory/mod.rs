//! Memory toolset: a knowledge graph that persists across conversations. Tools, arguments, results and the file
//! format are those of the official reference server.

mod config;
mod graph;
mod lines;
mod store;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

pub use config::MemoryConfig;
use graph::{Added, Addition, Bounds, Deletion, Entity, Graph, GraphError, Part, Relation};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Store, StoreError};

use super::{Blocking, Stop, Toolset, ToolsetContext, ToolsetError};
use crate::catalog::{
    Announcer, CallContext, Definition, IntoOutput, IntoResource as _, IntoTool as _, Output,
    ResourceDefinition, ResourceError, Tool, ToolError, resource_fn, tool_fn,
};
use crate::protocol::Content;

/// URI of the graph as a resource.
const URI: &str = "memory://knowledge-graph";
/// Maximum number of calls that access files concurrently.
const AT_ONCE: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Limits whose hits are counted.
const LIMITS: [&str; 5] = [
    "max_entities",
    "max_relations",
    "max_observations",
    "max_bytes",
    "max_graphs",
];

pub fn toolset(grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    let memory = Arc::new(Memory {
        store: Arc::new(Store::new(&grounds.settings.memory)?),
        threads: Blocking::new(AT_ONCE, TIMEOUT).counting(grounds.hits("memory", &LIMITS)),
        announcer: grounds.announcer.clone(),
    });
    let of_resource = Arc::clone(&memory);
    let resource = resource_fn(
        ResourceDefinition::new(URI, "knowledge-graph")
            .title("Knowledge Graph")
            .description("The full knowledge graph with all entities and relations")
            .mime_type("application/json"),
        move |context| {
            let memory = Arc::clone(&of_resource);
            async move {
                let shown = memory.read(&context, |graph| pretty(&graph.whole())).await;
                shown.map_err(|error| ResourceError::new(error.message().to_owned()))
            }
        },
    );
    Ok(Toolset {
        tools: tools(&memory),
        resources: vec![resource.into_resource()],
        ..Toolset::default()
    })
}

fn tools(memory: &Arc<Memory>) -> Vec<Arc<dyn Tool>> {
    vec![
        memory.writer::<Entities, Created>(
            define("create_entities", "Create Entities", ADDS)
                .description("Adds entities to the knowledge graph. Entities whose names exist already are skipped."),
            |graph, wanted, bounds| {
                let entities = graph.create_entities(&wanted.entities, bounds)?;
                Ok(Created { entities })
            },
            |created| pretty(&created.entities),
        ),
        memory.writer::<Relations, Related>(
            define("create_relations", "Create Relations", ADDS).description(
                "Adds relations between entities of the knowledge graph, in active voice. Relations that exist already are skipped.",
            ),
            |graph, wanted, bounds| {
                let relations = graph.create_relations(&wanted.relations, bounds)?;
                Ok(Related { relations })
            },
            |related| pretty(&related.relations),
        ),
        memory.writer::<Additions, Results>(
            define("add_observations", "Add Observations", ADDS).description(
                "Adds observations to entities that are in the knowledge graph. One that is known is left out.",
            ),
            |graph, wanted, bounds| {
                let results = graph.add_observations(wanted.observations, bounds)?;
                Ok(Results { results })
            },
            |results| pretty(&results.results),
        ),
        memory.writer::<Names, Done>(
            define("delete_entities", "Delete Entities", REMOVES)
                .description("Deletes entities from the knowledge graph, with all relations that they have."),
            |graph, wanted, _| {
                graph.delete_entities(&wanted.entity_names);
                Ok(Done::of_message("Entities deleted successfully"))
            },
            Done::text,
        ),
        memory.writer::<Deletions, Done>(
            define("delete_observations", "Delete Observations", REMOVES)
                .description("Deletes observations from entities of the knowledge graph."),
            |graph, wanted, _| {
                graph.delete_observations(&wanted.deletions);
                Ok(Done::of_message("Observations deleted successfully"))
            },
            Done::text,
        ),
        memory.writer::<Relations, Done>(
            define("delete_relations", "Delete Relations", REMOVES)
                .description("Deletes relations from the knowledge graph."),
            |graph, wanted, _| {
                graph.delete_relations(&wanted.relations);
                Ok(Done::of_message("Relations deleted successfully"))
            },
            Done::text,
        ),
        memory.reader::<Nothing>(
            define("read_graph", "Read Graph", READS).description("Reads the whole knowledge graph."),
            |graph, Nothing {}| graph.whole(),
        ),
        memory.reader::<Query>(
            define("search_nodes", "Search Nodes", READS).description(
                "Finds entities by a text in their names, types or observations, in whatever case, and the relations that \
                 they have.",
            ),
            |graph, wanted| graph.search(&wanted.query),
        ),
        memory.reader::<Nodes>(
            define("open_nodes", "Open Nodes", READS).description(
                "Reads entities of the knowledge graph by their names, and the relations that they have.",
            ),
            |graph, wanted| graph.open(&wanted.names),
        ),
    ]
}

/// Hints of tools: whether they only read, destroy data, and change nothing more if they are called again.
type Hints = [bool; 3];
const ADDS: Hints = [false, false, false];
const REMOVES: Hints = [false, true, true];
const READS: Hints = [true, false, true];

fn define(name: &str, title: &str, [read_only, destructive, idempotent]: Hints) -> Definition {
    let definition = Definition::new(name).title(title).open_world(false);
    definition
        .read_only(read_only)
        .destructive(destructive)
        .idempotent(idempotent)
}

/// State that the tools share.
struct Memory {
    store: Arc<Store>,
    threads: Blocking,
    announcer: Announcer,
}

impl Memory {
    /// Reads from the caller's graph.
    async fn read<T: Send + 'static>(
        &self,
        context: &CallContext,
        show: impl FnOnce(Graph) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let place = self.store.place(context.principal());
        let store = Arc::clone(&self.store);
        let shown = self.threads.run(move |stop| {
            stop.check()?;
            let graph = store.read(&place);
            show(graph.inspect_err(|error| told_limit(error, stop))?)
        });
        shown.await
    }

    fn reader<A>(
        self: &Arc<Self>,
        definition: Definition,
        show: fn(Graph, A) -> Part,
    ) -> Arc<dyn Tool>
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
    {
        let memory = Arc::clone(self);
        let read = move |context: Arc<CallContext>, wanted: A| {
            let memory = Arc::clone(&memory);
            async move {
                let written = memory.read(&context, move |graph| {
                    let part = show(graph, wanted);
                    Written::new(pretty(&part)?, &part)
                });
                written.await
            }
        };
        tool_fn(definition, read).into_tool()
    }

    /// Creates a tool that changes the caller's graph, and returns the changes as text and as structured content.
    fn writer<A, R>(
        self: &Arc<Self>,
        definition: Definition,
        change: fn(&mut Graph, A, &Bounds) -> Result<R, GraphError>,
        text: fn(&R) -> Result<String, ToolError>,
    ) -> Arc<dyn Tool>
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + JsonSchema + 'static,
    {
        let memory = Arc::clone(self);
        let write = move |context: Arc<CallContext>, wanted: A| {
            let memory = Arc::clone(&memory);
            async move {
                let place = memory.store.place(context.principal());
                let is_shared = place.is_shared();
                let store = Arc::clone(&memory.store);
                let changed = memory.threads.run(move |stop| {
                    let bounds = store.bounds();
                    let changed = store.change(&place, stop, |graph| change(graph, wanted, bounds));
                    let (value, is_changed) =
                        changed.inspect_err(|error| told_limit(error, stop))?;
                    Ok((Written::new(text(&value)?, &value)?, is_changed))
                });
                let (written, is_changed) = changed.await?;
                // A notification about one caller's graph would reach all subscribers, who each see their own.
                if is_changed && is_shared {
                    memory.announcer.resource_changed(URI);
                }
                Ok(written)
            }
        };
        tool_fn(definition, write).into_tool()
    }
}

/// Counts a limit hit, if that is the reason for an error.
fn told_limit(error: &StoreError, stop: &Stop) {
    if let Some(limit) = error.limit() {
        stop.hit(limit);
    }
}

/// A result with the schema of `R` and a text beside it, serialized where it was made.
struct Written<R> {
    output: Output,
    of: PhantomData<fn() -> R>,
}

impl<R: Serialize> Written<R> {
    fn new(text: String, value: &R) -> Result<Self, ToolError> {
        let output = Output::structured(value)?;
        Ok(Self {
            output: output.with_content([Content::text(text)]),
            of: PhantomData,
        })
    }
}

impl<R: IntoOutput> IntoOutput for Written<R> {
    fn into_output(self) -> Result<Output, ToolError> {
        Ok(self.output)
    }

    fn output_schema() -> Option<Value> {
        R::output_schema()
    }
}

fn pretty<T: Serialize + ?Sized>(value: &T) -> Result<String, ToolError> {
    Ok(serde_json::to_string_pretty(value)?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entities {
    entities: Vec<Entity>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Relations {
    relations: Vec<Relation>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Additions {
    observations: Vec<Addition>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Names {
    /// An array of entity names to delete
    entity_names: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Deletions {
    deletions: Vec<Deletion>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// The search query to match against entity names, types, and observation content
    query: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nodes {
    /// An array of entity names to retrieve
    names: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Created {
    entities: Vec<Entity>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Related {
    relations: Vec<Relation>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Results {
    results: Vec<Added>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Done {
    success: bool,
    message: &'static str,
}

impl Done {
    fn of_message(message: &'static str) -> Self {
        Self {
            success: true,
            message,
        }
    }

    /// Returns the text form of the result.
    #[expect(clippy::unnecessary_wraps, reason = "other texts can fail")]
    fn text(&self) -> Result<String, ToolError> {
        Ok(self.message.to_owned())
    }
}
