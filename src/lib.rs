//! A high-throughput server runtime for the [Model Context Protocol](https://modelcontextprotocol.io), on bare hyper.
//!
//! A tool is an `async fn`. The runtime gives it every revision of the protocol on one endpoint (2024-11-05 to
//! 2026-07-28), schemas from its types, HTTP/1.1, HTTP/2 and stdio, limits, and sessions that any replica accepts.
//!
//! ```no_run
//! use longshore::{App, tool};
//!
//! /// Adds two integers.
//! #[tool(read_only)]
//! async fn add(
//!     /// The first one.
//!     a: i64,
//!     /// The other one.
//!     b: i64,
//! ) -> i64 {
//!     a + b
//! }
//!
//! fn main() -> longshore::Result {
//!     App::new().tool(add).run()
//! }
//! ```
//!
//! That is a whole program. It serves MCP at `http://127.0.0.1:3000/mcp`.
//!
//! # Where to read on
//!
//! - [`tool`](macro@tool): everything about writing tools: arguments, results, state, functions that block, and how to write
//!   one without the attribute.
//! - [`resource`](macro@resource), [`prompt`](macro@prompt): the same for what clients read, and for what people begin
//!   with.
//! - [`App`]: further methods, `tower` layers, settings, serving.
//! - [`Harness`]: testing tools without a socket.
//! - [`CallContext`]: what a tool may ask about the call that it serves.
//! - [`Config`]: every setting, and where its value comes from.
//!
//! # Features
//!
//! Without default features this is a server of tools, resources and prompts in Rust, over HTTP and stdio, with API
//! keys, sessions, limits and metrics. A setting of a part that is not built in is an error at start, which names the
//! feature.
//!
//! | Feature | Default | Adds |
//! |---|---|---|
//! | `cli` | yes | The `longshore` program, with its log output and allocator |
//! | `config-files` | yes | Configuration files in YAML, TOML and JSON; skills |
//! | `oauth` | yes | Access tokens of OAuth 2.1 |
//! | `otlp` | yes | Traces, metrics and logs to an OpenTelemetry collector |
//! | `redis` | yes | The state that replicas share |
//! | `sources` | yes | Tools without code: HTTP APIs, OpenAPI documents, commands, upstream servers, built-in toolsets |
//! | `tls` | yes | TLS in the process, and clients that authenticate with a certificate |
//! | `validation` | yes | JSON Schemas that say more than a Rust type: written by hand, with ranges or patterns; forms |
//! | `git`, `sql` | | The built-in toolsets of these names |
//! | `wasm` | | WebAssembly components as tools |

// Modules are shared by all features. Without some of them, the items that only those use are unused; the default build, which
// has them all, still finds dead code.
#![cfg_attr(
    not(all(
        feature = "cli",
        feature = "oauth",
        feature = "otlp",
        feature = "redis",
        feature = "sources",
        feature = "tls",
        feature = "validation"
    )),
    allow(dead_code, unused_imports)
)]

// `#[tool]` writes paths that begin with `::longshore`, for the tools of this crate too.
#[allow(unused_extern_crates)]
extern crate self as longshore;

// The rooms, in the order in which to read them. A room uses only rooms above it.
#[path = "../crates/protocol/src/lib.rs"]
pub mod protocol;
#[path = "../crates/net/src/environment/mod.rs"]
pub mod environment;
#[path = "../crates/net/src/net/mod.rs"]
pub mod net;
#[path = "../crates/core/src/telemetry/mod.rs"]
pub mod telemetry;
#[path = "../crates/core/src/state/mod.rs"]
pub mod state;
#[path = "../crates/core/src/auth/mod.rs"]
pub mod auth;
#[path = "../crates/core/src/limit/mod.rs"]
pub mod limit;
#[path = "../crates/core/src/audit/mod.rs"]
pub mod audit;
#[path = "../crates/core/src/seal/mod.rs"]
pub mod seal;
#[cfg(feature = "oauth")]
#[path = "../crates/authserver/src/lib.rs"]
pub mod authserver;
#[path = "../crates/catalog/src/lib.rs"]
pub mod catalog;
#[cfg(feature = "sources")]
#[path = "../crates/sources/src/client/mod.rs"]
pub mod client;
#[cfg_attr(feature = "sources", path = "../crates/sources/src/lib.rs")]
#[cfg_attr(not(feature = "sources"), path = "../crates/sources/src/absent.rs")]
pub mod source;
#[path = "../crates/server/src/lib.rs"]
pub mod server;
#[path = "../crates/server/src/transport/mod.rs"]
pub mod transport;
#[path = "../crates/server/src/harness/mod.rs"]
pub mod harness;
#[path = "../crates/app/src/config/mod.rs"]
pub mod config;
#[path = "../crates/app/src/app/mod.rs"]
pub mod app;
#[cfg(feature = "cli")]
#[path = "../crates/cli/src/lib.rs"]
pub mod cli;
#[doc(hidden)]
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
#[doc(hidden)]
pub mod bench;

pub use app::{App, AppError, BoundServer, EndpointError, PolicyTester, Result};
#[doc(hidden)]
pub use catalog::attribute as __private;
pub use catalog::{
    Announcer, Arguments, AskError, CallContext, CompletionRequest, Completions, Definition,
    Elicited, Form, FormError, IntoOutput, IntoPrompt, IntoResource, IntoTool, InvalidArguments,
    LogLevel, Output, Parameters, Prompt, PromptDefinition, PromptError, PromptOutput, Resource,
    ResourceDefinition, ResourceError, ResourceTemplate, Skill, SkillError, StaticResource,
    StepError, TaskSupport, Tool, ToolError, Toolset, UrlElicitation, View, ViewPermission,
    collected_tools, prompt_fn, resource_fn, template_fn, tool_fn,
};
pub use config::Config;
pub use harness::{CallError, CallResult, Harness};
pub use protocol::{
    Annotations, CacheScope, ClientAbility, Content, ContextInclusion, Icon, ModelPreferences,
    PromptArgument, PromptMessage, ResourceContents, Role, Root, SamplingContent, SamplingMessage,
    SamplingRequest, SamplingResult, SamplingTool, ToolAnnotations, ToolChoice, ToolResult,
    ToolUse, UriTemplate,
};

#[doc = include_str!("../crates/catalog/src/tool.md")]
pub use longshore_macros::tool;

#[doc = include_str!("../crates/catalog/src/tools.md")]
pub use longshore_macros::tools;

#[doc = include_str!("../crates/catalog/src/resource.md")]
pub use longshore_macros::resource;

#[doc = include_str!("../crates/catalog/src/prompt.md")]
pub use longshore_macros::prompt;

#[doc(no_inline)]
pub use schemars::{self, JsonSchema};
#[doc(no_inline)]
pub use serde;

/// Compiles the code in the README.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
