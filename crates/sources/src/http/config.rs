//! Configuration of HTTP tools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Secret;
use crate::net::EgressConfig;
use crate::source::argument::ArgumentConfig;
use crate::source::client_tls::ClientTlsConfig;
use crate::source::credentials::AuthConfig;
use crate::source::identity::ForwardConfig;
use crate::source::limits::RequestLimits;

/// Requests to an HTTP API, each described as a tool.
///
/// Strings may have placeholders: `{{ city }}` is the argument `city`. In a path, a value fills at most one segment.
/// In a query, a header or a body, a value cannot change the structure. A string that consists of one placeholder
/// keeps the value's type, and is omitted if there is no value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSourceConfig {
    /// Base URL of the API, such as `https://api.example.com/v1`.
    pub base_url: String,
    /// Headers sent with every request to the origin of `base_url`.
    pub headers: BTreeMap<String, Secret>,
    /// Caller headers to forward. The caller's credentials cannot be forwarded.
    #[serde(deserialize_with = "crate::environment::list")]
    pub forward_headers: Vec<String>,
    /// Facts about the caller to send to the origin of `base_url`.
    pub forward: ForwardConfig,
    /// Credentials for the origin of `base_url`.
    pub auth: AuthConfig,
    /// Hosts that requests may reach besides `base_url`, after a redirect.
    pub egress: EgressConfig,
    /// TLS of the connections to the hosts of `base_url` and of the tools' URLs.
    pub tls: ClientTlsConfig,
    /// Limits for requests.
    pub limits: RequestLimits,
    /// The tools.
    pub tools: Vec<HttpToolConfig>,
}

/// A request, described as a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpToolConfig {
    /// Name of the tool.
    pub name: String,
    /// Display name of the tool.
    pub title: Option<String>,
    /// Description of the tool, for the model.
    pub description: Option<String>,
    /// Arguments of the tool.
    #[schemars(with = "BTreeMap<String, ArgumentConfig>")]
    pub arguments: Map<String, Value>,
    /// Arguments as a JSON Schema, instead of `arguments`.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub input_schema: Option<Value>,
    /// Output schema of the tool, as a JSON Schema. Responses are validated against it.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
    /// HTTP method. Default: `GET`.
    pub method: Option<String>,
    /// Path below `base_url`, or a whole URL whose host is written out. Default: `base_url` itself.
    pub url: String,
    /// Send the source's `auth`, `headers` and `forward_headers` with this tool's requests. Default: true for the
    /// origin of `base_url`, or without one for the only origin that the tools name; else false.
    pub send_credentials: Option<bool>,
    /// Query parameters. A list becomes one parameter for each element.
    pub query: Map<String, Value>,
    /// Request headers.
    pub headers: Map<String, Value>,
    /// JSON body. Its strings may have placeholders.
    pub json: Option<Value>,
    /// Form fields of the body.
    pub form: Map<String, Value>,
    /// Body as text. Values are inserted as JSON if `content_type` is JSON, otherwise as plain text.
    pub body: Option<String>,
    /// Media type of `body`. Default: `text/plain`.
    pub content_type: Option<String>,
    /// Declare that the tool changes nothing. Default: derived from the method.
    pub read_only: Option<bool>,
    /// Declare that the tool can destroy data. Default: derived from the method.
    pub destructive: Option<bool>,
    /// Declare that the tool is idempotent, so that it is retried if the response is lost. Default: derived from the
    /// method; without this setting, only a read-only tool is retried.
    pub idempotent: Option<bool>,
    /// Handling of the response.
    pub response: ResponseConfig,
    /// Pagination of a list.
    pub pages: Option<PagesConfig>,
}

/// Handling of a response.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseConfig {
    /// Part of a JSON response that is the result, as a JSON pointer such as `/data/items`. Default: the whole
    /// response.
    pub pointer: Option<String>,
    /// Template for the result. It can use the arguments and `status`, `headers`, `body` (JSON, or text) and `text`.
    /// An argument with one of these names is `arguments.NAME`.
    pub template: Option<String>,
    /// Type to read the response as.
    pub r#as: ReadAs,
    /// Statuses to treat as success in addition to 2xx.
    pub ok: Vec<u16>,
    /// Error messages for the model by status: a number, or `4xx` and `5xx`. They are templates too. If the response
    /// lacks a value that the template uses, the status and the start of the response are reported instead.
    pub errors: BTreeMap<String, String>,
}

/// Type to read a response as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReadAs {
    /// The type that the response declares.
    #[default]
    Auto,
    /// JSON, regardless of the declared type.
    Json,
    /// Text, regardless of the declared type.
    Text,
    /// Bytes: an image, audio or a file.
    Binary,
}

/// Pagination of a list, one request after the other. The result is `{"items": [...]}`, with the items of all pages.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PagesConfig {
    /// Location of the list in each response, as a JSON pointer. If empty, the response is the list.
    pub items: String,
    /// Location of the cursor or of the next page's URL, as a JSON pointer. Default: the header `Link`.
    pub next: Option<String>,
    /// Query parameter for the cursor. Default: none; `next` is a URL.
    pub query: Option<String>,
    /// Maximum number of pages. If there are more, the result has `truncated: true`.
    pub max: u32,
}

impl Default for PagesConfig {
    fn default() -> Self {
        Self {
            items: String::new(),
            next: None,
            query: None,
            max: 10,
        }
    }
}
