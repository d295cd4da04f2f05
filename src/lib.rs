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
//! This program serves MCP at `http://127.0.0.1:3000/mcp`.
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
//! | `validation` | yes | JSON Schemas that say more than names and types: written by hand, with ranges or patterns, of enums with data, flattened structs, sets, arrays, `char`, `NonZero` types and maps whose keys are not strings; forms |
//! | `git`, `sql` | | The built-in toolsets of these names |
//! | `wasm` | | WebAssembly components as tools |

// Each module re-exports, by name, what an internal crate has for users of this one. Nothing else of those crates is covered by
// semantic versioning.

// `#[tool]` writes paths that begin with `::longshore`.
#[allow(unused_extern_crates)]
extern crate self as longshore;

/// The data types of the protocol.
pub mod protocol {
    #[doc(inline)]
    pub use longshore_protocol::{
        Annotations, CacheScope, ClientAbility, Content, ContextInclusion, EmbeddedResource,
        ErrorCode, ErrorObject, Icon, Implementation, MediaContent, ModelPreferences,
        PromptArgument, PromptMessage, ResourceBody, ResourceContents, ResourceLink, Revision,
        Role, Root, SamplingContent, SamplingMessage, SamplingRequest, SamplingResult,
        SamplingTool, TemplateError, TextContent, ToolAnnotations, ToolChoice, ToolResult, ToolUse,
        URI_MAX_BYTES, UriTemplate,
    };
}

/// The environment of the process.
pub mod environment {
    #[doc(inline)]
    pub use longshore_net::environment::{
        Conflict, Conflicts, Container, Detected, Detection, Environment, Kind, Machine, Network,
        Platform, Probe, Provider, Secret, StandardStreams, System,
    };
}

/// Bodies, addresses and clients.
pub mod net {
    #[doc(inline)]
    pub use longshore_net::net::{
        Backoff, Body, BodyError, Breaker, BreakerState, Bulkhead, BulkheadConfig, BulkheadError,
        BulkheadPermit, BulkheadStats, Cause, FetchError, Phase, StopSignal, TaskOutput,
        TrustedProxies, chance,
    };
    #[cfg(feature = "sources")]
    #[doc(inline)]
    pub use longshore_net::net::{Child, Program, SupervisedChild};
    #[cfg(feature = "egress")]
    #[doc(inline)]
    pub use longshore_net::net::{
        Client, ClientBuilder, ClientError, Deadlines, EgressConfig, FetchedResponse, Guard,
        HostRuleError, OutgoingRequest, Resolve, StreamingResponse, SystemResolver, trust_ca,
    };
}

/// Metrics, traces and their export.
pub mod telemetry {
    #[doc(inline)]
    pub use longshore_core::telemetry::{
        ExportProtocol, MetricsPolicy, SpanNames, TelemetryConfig, TraceContext, current_trace,
    };
}

/// The state that replicas share.
pub mod state {
    #[cfg(feature = "redis")]
    #[doc(inline)]
    pub use longshore_core::state::Redis;
    #[doc(inline)]
    pub use longshore_core::state::{
        Claim, ENTRY_MAX_BYTES, KEY_MAX_BYTES, LogPage, Memory, OpenStateError, Retention,
        SharedState, State, StateConfig, StateError, StateFuture, StateTlsConfig, Subscription,
        SubscriptionEvent, Usage, VALUE_MAX_BYTES,
    };
}

/// Authentication and policies.
pub mod auth {
    #[doc(inline)]
    pub use longshore_core::auth::{
        Access, AllowConfig, ApiKeyConfig, AuthConfig, AuthError, AuthMethod, AuthMethodKind,
        AuthOutcome, AuthSetupError, CertificateConfig, CertificateName, Classified,
        ClientCertificate, Credential, Credentials, Decision, DpopConfig, Effect,
        FacadeClientConfig, FacadeConfig, FacadeSetupError, ForwardedConfig, IntrospectionConfig,
        IntrospectionMethod, IssuerConfig, KeyHash, Kind, OAuthConfig, OAuthSetupError,
        PolicyConfig, PolicyError, Preset, Principal, PrincipalKind, RuleConfig, Target, new_key,
    };
}

/// Rate and concurrency limits.
pub mod limit {
    #[doc(inline)]
    pub use longshore_core::limit::{
        Limit, LimitConfig, PrincipalRateConfig, RateConfig, ToolLimitConfig,
    };
}

/// Audit records.
pub mod audit {
    #[doc(inline)]
    pub use longshore_core::audit::{AuditConfig, AuditError};
}

/// Keys and secrets.
pub mod seal {
    #[doc(inline)]
    pub use longshore_core::seal::{KeyError, KeyRing, SealConfig, Secret};
}

/// Tools, resources and prompts.
pub mod catalog {
    #[doc(inline)]
    pub use longshore_catalog::{
        Announcer, AnyResource, ArgumentFuture, Arguments, CallContext, CallFuture, Catalog,
        CatalogError, ChangeHandle, ClientRequestError, CompletionRequest, Completions, Definition,
        Elicit, ElicitForm, ElicitUrl, Elicited, Form, FormError, IntoContents, IntoMessages,
        IntoOutput, IntoPrompt, IntoResource, IntoTool, InvalidArguments, InvalidParameter,
        LogLevel, Output, Parameters, Prompt, PromptDefinition, PromptError, PromptErrorKind,
        PromptFn, PromptFuture, PromptOutput, Provided, ReadFuture, RejectedItem, RequestId,
        RequiredElicitation, Resource, ResourceDefinition, ResourceError, ResourceErrorKind,
        ResourceFn, ResourceTemplate, Roots, SIMD_THRESHOLD_BYTES, Sample, Skill, SkillError,
        Source, SourceItems, StaticResource, StepError, TaskSupport, TemplateFn, Tool, ToolError,
        ToolErrorKind, Toolset, TypedTool, Unprovided, UpstreamIdentity, UrlElicitation,
        VariableFuture, View, ViewPermission, collected_tools, extract, prompt_fn, resource_fn,
        schema, template_fn, tool_fn,
    };
}

/// A client of MCP servers.
#[cfg(feature = "sources")]
pub mod client {
    #[doc(inline)]
    pub use longshore_sources::client::{
        Caller, Client, ClientError, Credentials, Events, Lifecycle, LifecycleCache, ListBudget,
        Listener, Options, Params, RpcError, ServerInfo, Target,
    };
}

/// Tools without code.
pub mod source {
    #[cfg(not(feature = "sources"))]
    #[doc(inline)]
    pub use longshore_app::source::{
        ArtifactConfig, BuiltinConfig, IgnoredSection, SourceConfig, TokensConfig, TokensError,
        ToolsetError, UpstreamConfig, UpstreamError, UpstreamNames,
    };
    #[cfg(feature = "sources")]
    #[doc(inline)]
    pub use longshore_sources::{
        ArgumentConfig, ArgumentType, Artifact, ArtifactConfig, ArtifactFuture, ArtifactStore,
        AssertionConfig, AuthConfig, BasicConfig, ClientKeyConfig, ClientTlsConfig, CommandLimits,
        CommandOutput, CommandSourceConfig, CommandToolConfig, ComponentLimits,
        ComponentSourceConfig, ComponentToolConfig, DirectoryConfig, ExchangeForm, ForwardConfig,
        HttpSourceConfig, HttpToolConfig, IdentityAssertionConfig, NamedSecret, OAuthConfig,
        OnBehalfOfConfig, OnChange, OnDown, OpenApiSourceConfig, PagesConfig, PerUserConfig,
        ReadAs, RequestLimits, ResponseConfig, S3Config, Selection, SourceConfig, TokenStore,
        TokensConfig, TokensError, UpstreamConfig, UpstreamError, UpstreamNames,
    };
    #[cfg(feature = "sources")]
    #[doc(inline)]
    pub use longshore_toolsets::{
        AuthorConfig, BuiltinConfig, DatabaseConfig, FetchConfig, FilesystemConfig,
        FilesystemLimits, GitConfig, GitLimits, MemoryConfig, QueryConfig, SqlConfig, SqlLimits,
        TimeConfig, ToolsetError,
    };
}

/// Server settings and custom methods.
pub mod server {
    #[doc(inline)]
    pub use longshore_server::{
        BatchPolicy, ClientRequestConfig, ClientRequestCounts, EndpointConfig, MessagesConfig,
        MethodFuture, MethodHandler, SearchConfig, ServerConfig, StaleSessions, StreamsConfig,
        TaskConfig, ValidationErrors,
    };
}

/// Transports: HTTP, and standard input and output.
pub mod transport {
    /// The HTTP transport.
    pub mod http {
        #[doc(inline)]
        pub use longshore_http::{
            AdminConfig, HttpConfig, HttpLimits, McpService, Route, RouteFuture, RouteHandler,
            ServerCardConfig, ServerCardError, SocketMode, TlsConfig, TlsError, routes,
        };
    }
    /// Graceful shutdown.
    pub mod drain {
        #[doc(inline)]
        pub use longshore_server::transport::drain::{DrainConfig, DrainDeadlines};
    }
    /// The stdio transport.
    pub mod stdio {
        #[doc(inline)]
        pub use longshore_server::transport::stdio::{Framing, StdioConfig};
    }
}

/// Tests of tools without a socket.
pub mod harness {
    #[doc(inline)]
    pub use longshore_server::harness::{CallError, CallResult, Harness, Progress, WireMessage};
}

/// Configuration.
pub mod config {
    #[doc(inline)]
    pub use longshore_app::config::{
        Config, ConfigError, Conflict, Diagnostic, EnvMissing, Flags, Loaded, LogConfig, LogFormat,
        Origin, ReferencePage, Reload, ResolvedSetting, Setting, Transport, reference,
        reference_index, schema, settings,
    };
}

/// The builder.
pub mod app {
    #[doc(inline)]
    pub use longshore_app::app::{
        App, AppError, BoundServer, EndpointError, MainError, PolicyTester, Result,
    };
}

/// The program.
#[cfg(feature = "cli")]
pub mod cli {
    #[doc(inline)]
    pub use longshore_cli::{Cli, main};
}

#[doc(hidden)]
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
#[doc(hidden)]
pub use longshore_app::bench;
/// Helpers of the workspace's tests. Not a part of the API.
#[doc(hidden)]
pub mod __test {
    #[cfg(feature = "git")]
    pub use longshore_toolsets::gix;
    #[cfg(feature = "sql")]
    pub use longshore_toolsets::{rusqlite, tokio_postgres};
}

pub use app::{App, AppError, BoundServer, EndpointError, PolicyTester, Result};
pub use catalog::extract;
pub use catalog::{
    Announcer, Arguments, CallContext, ClientRequestError, CompletionRequest, Completions,
    Definition, Elicited, Form, FormError, IntoOutput, IntoPrompt, IntoResource, IntoTool,
    InvalidArguments, LogLevel, Output, Parameters, Prompt, PromptDefinition, PromptError,
    PromptOutput, Resource, ResourceDefinition, ResourceError, ResourceTemplate, Skill, SkillError,
    StaticResource, StepError, TaskSupport, Tool, ToolError, Toolset, UrlElicitation, View,
    ViewPermission, collected_tools, prompt_fn, resource_fn, template_fn, tool_fn,
};
pub use config::Config;
pub use harness::{CallError, CallResult, Harness};
#[doc(hidden)]
pub use longshore_catalog::attribute as __private;
pub use net::{StopSignal, TaskOutput};
pub use protocol::{
    Annotations, CacheScope, ClientAbility, Content, ContextInclusion, Icon, ModelPreferences,
    PromptArgument, PromptMessage, ResourceContents, Role, Root, SamplingContent, SamplingMessage,
    SamplingRequest, SamplingResult, SamplingTool, ToolAnnotations, ToolChoice, ToolResult,
    ToolUse, UriTemplate,
};

#[doc = include_str!("tool.md")]
pub use longshore_macros::tool;

#[doc = include_str!("tools.md")]
pub use longshore_macros::tools;

#[doc = include_str!("resource.md")]
pub use longshore_macros::resource;

#[doc = include_str!("prompt.md")]
pub use longshore_macros::prompt;

#[doc(no_inline)]
pub use schemars::{self, JsonSchema};
#[doc(no_inline)]
pub use serde;

/// Compiles the code in the README and in the guides.
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/guides/asking-and-tasks.md")]
#[doc = include_str!("../docs/guides/lifecycle.md")]
#[doc = include_str!("../docs/guides/migrate.md")]
#[cfg(doctest)]
struct ReadmeDoctests;
