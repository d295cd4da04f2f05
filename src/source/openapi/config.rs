//! OpenAPI documents as they are configured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;
use crate::net::EgressConfig;
use crate::source::config::ExchangeLimits;
use crate::source::credentials::AuthConfig;
use crate::source::pattern::matches;

/// Operations of an OpenAPI document (3.0, 3.1, or 3.2 read as 3.1), each of which becomes a tool.
///
/// ```yaml
/// sources:
///   - name: pets
///     openapi:
///       document: ./petstore.yaml
///       include: { tags: [pets] }
///       exclude: { methods: [delete] }
///       rename: { showPetById: pet }
///       credentials: { api_key: "${PETS_API_KEY}" }
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenApiSourceConfig {
    /// Where the document is: a file, or a URL. JSON or YAML.
    #[schemars(extend("x-path" = "place"))]
    pub document: String,
    /// URL of the API. Default: the document's first server. Required where the document is fetched, names a server of another
    /// origin than its own, and `auth`, `credentials` or `headers` are set, so that a document cannot decide where they are sent.
    pub server: Option<String>,
    /// Which operations become tools: those of which any of these is true. Default: all.
    pub include: Selection,
    /// Which of them do not after all.
    pub exclude: Selection,
    /// Names of tools: by the operation's id, or by method and path as in `GET /pets/{petId}`.
    pub rename: BTreeMap<String, String>,
    /// Secrets for the document's security schemes, by the scheme's name: an API key, a token, or a name and a password
    /// with a colon in between. They are sent where the scheme says.
    pub credentials: BTreeMap<String, Secret>,
    /// How to prove oneself to the API in another way than its security schemes say.
    pub auth: AuthConfig,
    /// Headers that are sent with every request.
    pub headers: BTreeMap<String, Secret>,
    /// Where requests may go besides the server.
    pub egress: EgressConfig,
    /// How much and how long.
    pub limits: ExchangeLimits,
    /// Announce the output schemas of operations, and hold responses to them. A response that does not conform becomes an
    /// error with the whole response in it. Default: false, and every response is passed on as it is.
    pub output_schemas: bool,
    /// About how many bytes the schema of a tool's arguments may have. In a larger one what lies deepest is not described,
    /// and taken as it comes. Default: 65536, 64 KiB.
    pub schema_bytes: usize,
    /// The same for the schema of a tool's results. Default: 16384, 16 KiB.
    pub output_schema_bytes: usize,
    /// How many characters a name of a tool may have; longer ones are shortened, always in the same way. Default: 64.
    pub name_characters: usize,
    /// Maximum size of the document, in bytes, and of all that it refers to together; one that is fetched may have a quarter of
    /// that. Default: 33554432, 32 MiB.
    pub document_bytes: usize,
    /// Maximum number of documents that the document refers to, directly or by way of others. Default: 5000.
    pub max_documents: usize,
}

impl Default for OpenApiSourceConfig {
    fn default() -> Self {
        Self {
            document: String::new(),
            server: None,
            include: Selection::default(),
            exclude: Selection::default(),
            rename: BTreeMap::new(),
            credentials: BTreeMap::new(),
            auth: AuthConfig::default(),
            headers: BTreeMap::new(),
            egress: EgressConfig::default(),
            limits: ExchangeLimits::default(),
            output_schemas: false,
            schema_bytes: 64 * 1024,
            output_schema_bytes: 16 * 1024,
            name_characters: super::super::name::NAME_CHARACTERS_MAX,
            document_bytes: 32 * 1024 * 1024,
            max_documents: 5000,
        }
    }
}

/// Some of a document's operations. `*` stands for anything in paths and ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Tags.
    #[serde(deserialize_with = "crate::environment::list")]
    pub tags: Vec<String>,
    /// Paths as the document has them: `/pets/{petId}`, `/pets/*`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub paths: Vec<String>,
    /// Ids of operations.
    #[serde(deserialize_with = "crate::environment::list")]
    pub operations: Vec<String>,
    /// Methods: `get`, `post`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub methods: Vec<String>,
}

impl Selection {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an operation is among them.
    pub(super) fn has(&self, method: &str, path: &str, id: &str, tags: &[&str]) -> bool {
        self.tags.iter().any(|tag| tags.contains(&&**tag))
            || self
                .methods
                .iter()
                .any(|one| one.eq_ignore_ascii_case(method))
            || self.paths.iter().any(|pattern| matches(pattern, path))
            || (!id.is_empty() && self.operations.iter().any(|pattern| matches(pattern, id)))
    }
}
