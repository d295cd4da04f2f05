//! Configuration of OpenAPI documents.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;
use crate::net::EgressConfig;
use crate::source::client_tls::ClientTlsConfig;
use crate::source::credentials::AuthConfig;
use crate::source::identity::ForwardConfig;
use crate::source::limits::RequestLimits;
use crate::source::pattern::matches;

/// Operations of an OpenAPI document (3.0, 3.1, or 3.2 read as 3.1), each imported as a tool.
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
    /// File or URL of the document, in JSON or YAML.
    #[schemars(extend("x-path" = "place"))]
    pub document: String,
    /// URL of the API. Default: the document's first server.
    ///
    /// Required if the document is fetched, names a server of another origin than its own, and `auth`, `credentials`,
    /// `headers`, `forward` or `tls.certificate` are set. A document thus cannot decide where they are sent.
    pub server: Option<String>,
    /// Operations to import: those that match any of these selectors. Default: all.
    pub include: Selection,
    /// Operations to leave out of those included.
    pub exclude: Selection,
    /// Tool names by operation ID, or by method and path as in `GET /pets/{petId}`.
    pub rename: BTreeMap<String, String>,
    /// Secrets for the document's security schemes, by scheme name.
    ///
    /// A secret is an API key, a token, or a user name and a password separated by a colon. It is sent where the
    /// scheme says.
    pub credentials: BTreeMap<String, Secret>,
    /// Credentials for the API, if its security schemes do not describe them.
    pub auth: AuthConfig,
    /// Headers sent with every request.
    pub headers: BTreeMap<String, Secret>,
    /// Facts about the caller to send with every request.
    pub forward: ForwardConfig,
    /// Hosts that requests may reach besides the server.
    pub egress: EgressConfig,
    /// TLS of the connections to the server, and to the host of a fetched document.
    pub tls: ClientTlsConfig,
    /// Limits for requests.
    pub limits: RequestLimits,
    /// Publish the output schemas of operations, and validate responses against them.
    ///
    /// A response that does not conform becomes an error that contains the whole response. Otherwise, every response
    /// is passed on unchanged.
    pub output_schemas: bool,
    /// Approximate maximum size of a tool's input schema, in bytes.
    ///
    /// In a larger schema, the most deeply nested parts are left undescribed and accept any value.
    pub schema_bytes: usize,
    /// Approximate maximum size of a tool's output schema, in bytes.
    ///
    /// In a larger schema, the most deeply nested parts are left undescribed and accept any value.
    pub output_schema_bytes: usize,
    /// Maximum length of a tool name, in characters. Longer names are shortened in a stable way.
    pub name_characters: usize,
    /// Maximum size of the document together with all that it refers to, in bytes. A fetched document can have a
    /// quarter of that.
    pub document_bytes: usize,
    /// Maximum number of documents that the document refers to, directly or indirectly.
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
            forward: ForwardConfig::default(),
            egress: EgressConfig::default(),
            tls: ClientTlsConfig::default(),
            limits: RequestLimits::default(),
            output_schemas: false,
            schema_bytes: 64 * 1024,
            output_schema_bytes: 16 * 1024,
            name_characters: super::super::name::NAME_CHARACTERS_MAX,
            document_bytes: 32 * 1024 * 1024,
            max_documents: 5000,
        }
    }
}

/// Selector of a document's operations. `*` matches anything in paths and IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Tags.
    #[serde(deserialize_with = "crate::environment::list")]
    pub tags: Vec<String>,
    /// Paths as written in the document: `/pets/{petId}`, `/pets/*`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub paths: Vec<String>,
    /// Operation IDs, or methods and paths as in `GET /pets/{petId}`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub operations: Vec<String>,
    /// Methods, such as `get` and `post`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub methods: Vec<String>,
}

impl Selection {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the selector matches an operation.
    pub(super) fn has(&self, method: &str, path: &str, id: &str, tags: &[&str]) -> bool {
        self.tags.iter().any(|tag| tags.contains(&&**tag))
            || self
                .methods
                .iter()
                .any(|one| one.eq_ignore_ascii_case(method))
            || self.paths.iter().any(|pattern| matches(pattern, path))
            || (!id.is_empty() && self.operations.iter().any(|pattern| matches(pattern, id)))
            || self.operations.iter().any(|pattern| {
                let place = pattern.split_once(' ');
                place.is_some_and(|(one, pattern)| {
                    // Operation IDs can contain spaces.
                    let is_path = pattern.starts_with('/');
                    is_path && one.eq_ignore_ascii_case(method) && matches(pattern, path)
                })
            })
    }

    /// Returns the entries that match none of these operations, each with its setting.
    pub(super) fn unmatched(
        &self,
        operations: &[(&str, &str, &str, Vec<&str>)],
    ) -> Vec<(&'static str, &str)> {
        type List = fn(&mut Selection) -> &mut Vec<String>;
        let lists: [(&'static str, &[String], List); 3] = [
            ("tags", &self.tags, |alone| &mut alone.tags),
            ("paths", &self.paths, |alone| &mut alone.paths),
            ("operations", &self.operations, |alone| {
                &mut alone.operations
            }),
        ];
        let mut unmatched = Vec::new();
        for (setting, entries, list) in lists {
            for entry in entries {
                let mut alone = Self::default();
                list(&mut alone).push(entry.clone());
                let mut operations = operations.iter();
                if !operations.any(|(method, path, id, tags)| alone.has(method, path, id, tags)) {
                    unmatched.push((setting, entry.as_str()));
                }
            }
        }
        unmatched
    }
}
