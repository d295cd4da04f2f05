//! HTTP tools as they are configured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environment::Secret;
use crate::net::EgressConfig;
use crate::source::argument::ArgumentConfig;
use crate::source::config::ExchangeLimits;
use crate::source::credentials::AuthConfig;

/// Requests to an HTTP API, each described as a tool.
///
/// Texts may have placeholders: `{{ city }}` is the argument `city`. In a path a value is at most one segment; in a query,
/// a header or a body it cannot become anything else than a value. A text that is nothing but one placeholder keeps the
/// value's type, and is left out where there is no value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSourceConfig {
    /// Where the API is: `https://api.example.com/v1`.
    pub base_url: String,
    /// Headers that are sent with every request to the origin of `base_url`.
    pub headers: BTreeMap<String, Secret>,
    /// Headers of the caller that are sent on. Its credentials are not among those that can be. Default: none.
    #[serde(deserialize_with = "crate::environment::list")]
    pub forward_headers: Vec<String>,
    /// Credentials for the origin of `base_url`.
    pub auth: AuthConfig,
    /// Where requests may go besides `base_url`, after a redirect.
    pub egress: EgressConfig,
    /// How much and how long.
    pub limits: ExchangeLimits,
    /// The tools.
    pub tools: Vec<HttpToolConfig>,
}

/// One request, described as a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpToolConfig {
    /// The name it is called by.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, for the model that chooses.
    pub description: Option<String>,
    /// Its arguments.
    #[schemars(with = "BTreeMap<String, ArgumentConfig>")]
    pub arguments: Map<String, Value>,
    /// Its arguments as a JSON Schema, instead of `arguments`.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub input_schema: Option<Value>,
    /// What its results look like, as a JSON Schema. Answers are checked against it.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub output_schema: Option<Value>,
    /// `GET`, `POST` and so on. Default: `GET`.
    pub method: Option<String>,
    /// Path below `base_url`, or a whole URL whose host is written out. Default: `base_url` itself.
    pub url: String,
    /// Send the source's `auth`, `headers` and `forward_headers` with this tool's requests. Default: true for the origin of
    /// `base_url`, or where there is none for the one origin that all tools name; false for any other.
    pub send_credentials: Option<bool>,
    /// Parameters of the query. A list is as many parameters.
    pub query: Map<String, Value>,
    /// Headers.
    pub headers: Map<String, Value>,
    /// A JSON body: a value whose texts may have placeholders.
    pub json: Option<Value>,
    /// A body of form fields.
    pub form: Map<String, Value>,
    /// A body as text. Values in it are JSON if `content_type` is, otherwise themselves.
    pub body: Option<String>,
    /// What kind of text `body` is. Default: `text/plain`.
    pub content_type: Option<String>,
    /// Whether it changes nothing. Default: what its method says.
    pub read_only: Option<bool>,
    /// Whether it may destroy what was there. Default: what its method says.
    pub destructive: Option<bool>,
    /// Whether calling it twice changes no more than calling it once; it is then tried again when the answer is lost.
    /// Default: what its method says, and tried again only if it is read-only.
    pub idempotent: Option<bool>,
    /// What becomes of the answer.
    pub response: ResponseConfig,
    /// How to get all pages of a list.
    pub pages: Option<PagesConfig>,
}

/// What becomes of an answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseConfig {
    /// Which part of a JSON answer is the result: a JSON pointer, such as `/data/items`. Default: all of it.
    pub pointer: Option<String>,
    /// A text to make of the answer. It may use the arguments and `status`, `headers`, `body` (JSON, or text) and `text`.
    pub template: Option<String>,
    /// What the answer is read as. Default: `auto`, what its type says.
    pub r#as: ReadAs,
    /// Statuses that are none of success in general and are here. Default: none.
    pub ok: Vec<u16>,
    /// What the model is told of a status: by number, or by `4xx` and `5xx`. These are templates too.
    pub errors: BTreeMap<String, String>,
}

/// What an answer is read as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ReadAs {
    /// What its type says.
    #[default]
    Auto,
    /// JSON, whatever its type says.
    Json,
    /// Text, whatever its type says.
    Text,
    /// Bytes: a picture, a sound or a file.
    Binary,
}

/// How to get all pages of a list, one request after the other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PagesConfig {
    /// Where the list is in each answer: a JSON pointer. Default: the answer is the list.
    pub items: String,
    /// Where the answer says how to go on: a JSON pointer to a cursor, or to the next page's URL. Default: the header
    /// `Link`.
    pub next: Option<String>,
    /// The parameter of the query that the cursor becomes. Default: `next` is a URL.
    pub query: Option<String>,
    /// How many pages at most. Default: 10.
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
