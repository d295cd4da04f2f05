//! The catalog: the contract between authors of tools, resources and prompts, and the server that runs them.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]
// Without some features the items that only those use are unused. The default build still finds dead code.
#![cfg_attr(
    not(all(feature = "cli", feature = "config-files", feature = "validation")),
    allow(dead_code, unused_imports)
)]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use crate as catalog;
use longshore_core::{auth, seal, state, telemetry};
use longshore_net::net;
use longshore_protocol as protocol;

// The attributes write paths that begin with `::longshore`.
#[allow(unused_extern_crates)]
extern crate self as longshore;
#[doc(hidden)]
pub use attribute as __private;
#[doc(hidden)]
pub use longshore_macros::{prompt, resource, tool, tools};

mod announcer;
mod arguments;
#[doc(hidden)]
pub mod attribute;
mod closures;
mod inventory;
mod completion;
mod context;
mod definition;
mod elicit;
mod extensions;
pub mod extract;
mod subscription_counts;
mod listing;
pub mod path_deserializer;
mod notifier;
mod output;
mod parameters;
mod namespaced;
mod prompt;
mod protocol_error;
mod provided;
mod fast_arguments;
mod registry;
mod replay;
mod resource;
mod sample;
pub mod schema;
mod shared_text;
mod wire_format;
mod source;
mod starting;
mod skill;
pub mod strict;
mod table;
mod tool;
mod toolset;
mod typed;
mod unlisted;
mod view;

pub use announcer::{Announcer, ChangeEvent};
pub use arguments::{
    Arguments, InvalidArguments, SIMD_THRESHOLD_BYTES, in_words, tree_by_simd_json,
};
pub use closures::{
    AnyResource, IntoContents, IntoPrompt, IntoResource, PromptFn, ResourceFn, StaticResource,
    TemplateFn, prompt_fn, resource_fn, template_fn,
};
pub use completion::{CompletionRequest, Completions};
pub use context::{CallContext, LogLevel, RequestId};
pub use elicit::{Elicit, ElicitForm, ElicitUrl, Elicited, Form, FormError, UrlElicitation};
pub use extensions::TASKS as TASKS_EXTENSION;
pub use extract::MissingScopes;
pub use inventory::collected_tools;
pub use listing::{
    Listing, ListingFrame, SerializedEntries, opening, opening_len, page_of_seen, start_after,
};
pub use notifier::{Dropped, Notifier, NotifyOptions, QueueLimits};
pub use output::{Output, OutputContent, ToolError, ToolErrorKind};
pub use parameters::{InvalidParameter, Parameters};
pub use prompt::{
    ArgumentFuture, IntoMessages, Prompt, PromptDefinition, PromptError, PromptErrorKind,
    PromptFuture, PromptOutput,
};
pub use protocol_error::ProtocolError;
pub use provided::{Provided, Unprovided};
pub use registry::{
    Catalog, CatalogError, CatalogPrompt, CatalogTemplate, CatalogTool, OutputProblem,
};
pub use replay::{
    Client, ClientRequestError, InputRound, PendingRequest, REQUEST_NAME_MAX_BYTES, ReplayError,
    ReplaySession, RequiredElicitation, StatelessRequest, StepError, Suspension, send_named,
};
pub use resource::{
    ReadFuture, Resource, ResourceDefinition, ResourceError, ResourceErrorKind, ResourceTemplate,
    VariableFuture,
};
pub use sample::{PassthroughSample, Roots, Sample};
#[cfg(feature = "cli")]
pub use schema::header_parameters;
pub use schema::{HeaderParameter, ParameterKind};
pub use shared_text::SharedText;
pub use skill::{EXTENSION as SKILLS_EXTENSION, OfferedSkill, Skill, SkillError};
pub use source::{ChangeHandle, RejectedItem, Source, SourceItems};
pub use starting::StartingSource;
pub use subscription_counts::SubscriptionCounts;
pub use table::{ListItem, Table};
pub use tool::{CallFuture, Definition, TaskSupport, Tool, UpstreamIdentity};
pub use toolset::Toolset;
pub use typed::{IntoOutput, IntoTool, TypedTool, tool_fn};
pub use unlisted::{Unlisted, UnlistedResource};
pub use view::{EXTENSION as UI_EXTENSION, MIME_TYPE as UI_MIME_TYPE, View, ViewPermission};
pub use wire_format::{BuiltinTool, annotations_for, tool as shown_tool};
