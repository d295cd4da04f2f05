//! What a server offers: the contract between those who write tools, resources and prompts, and the server that runs
//! them.

mod announcer;
mod arguments;
mod ask;
#[doc(hidden)]
pub mod attribute;
mod by_hand;
mod collected;
mod completion;
mod context;
mod extensions;
pub mod extract;
mod interest;
mod listing;
pub(crate) mod located;
mod outlet;
mod output;
mod parameters;
mod prefixed;
mod prompt;
mod provided;
mod quick;
mod registry;
mod resource;
pub mod schema;
mod shown;
mod source;
mod starting;
mod skill;
pub(crate) mod strict;
mod table;
mod tool;
mod toolset;
mod typed;
mod unlisted;
mod view;

pub use announcer::Announcer;
pub(crate) use announcer::Notice;
pub use arguments::{Arguments, InvalidArguments, SIMD_THRESHOLD_BYTES};
pub(crate) use arguments::{in_words, tree_by_simd_json};
pub use ask::{
    AskError, Elicit, ElicitForm, ElicitUrl, Elicited, Form, FormError, RequiredVisit, Roots,
    Sample, StepError, UrlElicitation,
};
pub(crate) use ask::{
    Asking, Client, ClientError, Desk, Fault, Interruption, RelayedSample, Round, Slot,
    read as read_request,
};
pub use by_hand::{
    AnyResource, IntoContents, IntoPrompt, IntoResource, PromptFn, ResourceFn, StaticResource,
    TemplateFn, prompt_fn, resource_fn, template_fn,
};
pub use collected::collected_tools;
pub use completion::{CompletionRequest, Completions};
pub use context::{CallContext, LogLevel, RequestId};
pub(crate) use extensions::TASKS as TASKS_EXTENSION;
pub(crate) use extract::MissingScopes;
pub(crate) use interest::Interest;
pub(crate) use listing::{
    Fragments, Listing, ListingFrame, opening, opening_len, page_of_seen, start_after,
};
pub(crate) use outlet::{Dropped, Outlet, Room, Wanted};
pub(crate) use output::OutputContent;
pub use output::{Output, ToolError, ToolErrorKind};
pub use parameters::{InvalidParameter, Parameters};
pub use prompt::{
    ArgumentFuture, IntoMessages, Prompt, PromptDefinition, PromptError, PromptErrorKind,
    PromptFuture, PromptOutput,
};
pub use provided::{Provided, Unprovided};
pub use registry::{Catalog, CatalogError};
pub(crate) use registry::{CatalogPrompt, CatalogTemplate, CatalogTool};
pub use resource::{
    ReadFuture, Resource, ResourceDefinition, ResourceError, ResourceErrorKind, ResourceTemplate,
    VariableFuture,
};
#[cfg(feature = "cli")]
pub(crate) use schema::header_parameters;
pub(crate) use schema::{HeaderParameter, ParameterKind};
pub(crate) use shown::{Bare, annotations_for, tool as shown_tool};
pub(crate) use skill::EXTENSION as SKILLS_EXTENSION;
pub(crate) use skill::OfferedSkill;
pub use skill::{Skill, SkillError};
pub use source::{Changed, Offered, Refused, Source};
pub(crate) use starting::StartingSource;
pub(crate) use table::{Listed, Table};
pub use tool::{CallFuture, Definition, TaskSupport, Tool};
pub use toolset::Toolset;
pub use typed::{IntoOutput, IntoTool, TypedTool, tool_fn};
pub(crate) use unlisted::{Unlisted, UnlistedResource};
pub(crate) use view::{EXTENSION as UI_EXTENSION, MIME_TYPE as UI_MIME_TYPE};
pub use view::{View, ViewPermission};
