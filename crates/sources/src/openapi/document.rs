//! A parsed document with its origin, and the resolution of its references.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};
use url::Url;

use super::bundle::{Bundled, DocumentLocation, bundle};
use super::config::OpenApiSourceConfig;
use super::text::placeholders;
use crate::catalog::{SIMD_THRESHOLD_BYTES, tree_by_simd_json};
use crate::environment;
use crate::net::{Client, Deadlines, FetchError, OutgoingRequest, SystemResolver, with_causes};
use crate::source::redact::without_query;
use crate::telemetry;

/// A whole document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Value,
    pub(super) version: Version,
    /// URL that it was fetched from, if any.
    pub(super) url: Option<Url>,
    /// Referenced documents that could not be read, by the name that references use, with the reason.
    missing: BTreeMap<String, String>,
    /// True if a document other than the configured one was fetched.
    has_fetched_parts: bool,
    /// Local files that it refers to.
    pub(super) files: Vec<PathBuf>,
}

/// Schema dialect of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The dialect of OpenAPI 3.0.
    V3_0,
    /// JSON Schema 2020-12.
    V3_1,
}

/// Reason why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnreadableDocument {
    pub(super) problem: String,
    /// True if its server may be down temporarily.
    pub(super) may_come: bool,
}

impl From<String> for UnreadableDocument {
    fn from(problem: String) -> Self {
        Self {
            problem,
            may_come: false,
        }
    }
}

const FETCH_TIMEOUT: Duration = Duration::from_secs(20);
const FETCH_REDIRECTS: usize = 3;
/// Maximum length of a chain of references.
const REFERENCES_MAX: usize = 32;

impl Document {
    /// Reads the configured document.
    ///
    /// # Errors
    ///
    /// The document cannot be read, or is not valid.
    pub(super) async fn read(
        config: &OpenApiSourceConfig,
        room: ImportLimits,
    ) -> Result<Self, UnreadableDocument> {
        let place = &config.document;
        if place.is_empty() {
            return Err("it does not exist; name a file or a URL".to_owned().into());
        }
        let url = place.contains("://").then(|| place.parse::<Url>());
        let url = url
            .transpose()
            .map_err(|e| format!("it is not a valid URL ({e})"))?;
        let bytes = match &url {
            Some(url) => {
                let fetcher = Fetcher::new(Some(url), config, config.document_bytes)?;
                Box::pin(fetcher.fetch(url)).await?
            }
            None => read_file(Path::new(place), config.document_bytes)?,
        };
        // The query can contain a secret.
        let shown = url.as_ref().map_or_else(|| place.clone(), without_query);
        let (root, tree) =
            parse_within(&bytes, room.tree).map_err(|problem| format!("{shown}: {problem}"))?;
        drop(bytes);
        let at = match &url {
            Some(url) => DocumentLocation::Url(url.clone()),
            // References are compared with the canonical path.
            None => DocumentLocation::File(
                std::fs::canonicalize(place).unwrap_or_else(|_| place.into()),
            ),
        };
        let bundled = bundle(root, at, config, room.tree.saturating_sub(tree));
        let Bundled {
            root,
            missing,
            has_fetched_parts,
            files,
        } = Box::pin(bundled).await;
        let document = Self::new(root, url).map_err(|problem| format!("{shown}: {problem}"))?;
        Ok(Self {
            missing,
            has_fetched_parts,
            files,
            ..document
        })
    }

    pub(super) fn new(root: Value, url: Option<Url>) -> Result<Self, String> {
        let version = match (
            root.get("openapi").and_then(Value::as_str),
            root.get("swagger"),
        ) {
            (Some(text), _) if text.starts_with("3.0") => Version::V3_0,
            (Some(text), _) if text.starts_with("3.1") => Version::V3_1,
            (Some(text), _) if text.starts_with("3.2") => {
                tracing::warn!(
                    version = text,
                    "the document is OpenAPI 3.2 and is read as 3.1: features of 3.2 are ignored"
                );
                Version::V3_1
            }
            (Some(text), _) => {
                return Err(format!(
                    "it is of OpenAPI {text}; 3.0, 3.1 and 3.2 can be used"
                ));
            }
            (None, Some(_)) => {
                return Err("it is of Swagger 2.0; convert it to OpenAPI 3 first".to_owned());
            }
            (None, None) => {
                return Err("it is not an OpenAPI document: it has no `openapi`".to_owned());
            }
        };
        if !root.get("paths").is_some_and(Value::is_object) {
            return Err("it has no `paths`".to_owned());
        }
        Ok(Self {
            root,
            version,
            url,
            missing: BTreeMap::new(),
            has_fetched_parts: false,
            files: Vec::new(),
        })
    }

    /// Resolves a value: returns the value itself, or the target of its reference.
    ///
    /// # Errors
    ///
    /// The reference has no target, leaves the document, or is circular.
    pub(super) fn resolve<'a>(&'a self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..REFERENCES_MAX {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else {
                return Ok(value);
            };
            value = self.target(reference)?;
        }
        Err("a reference leads round in a circle".to_owned())
    }

    /// Returns the immediate target of a reference.
    pub(super) fn target(&self, reference: &str) -> Result<&Value, String> {
        let Some(fragment) = reference.strip_prefix('#') else {
            let document = reference.split('#').next().unwrap_or_default();
            return Err(match self.missing.get(document) {
                Some(problem) => {
                    format!("the reference {reference:?} cannot be followed: {problem}")
                }
                None => format!("the reference {reference:?} leads out of the document"),
            });
        };
        let pointer = percent_decode_str(fragment).decode_utf8_lossy();
        self.root
            .pointer(&pointer)
            .ok_or_else(|| format!("the reference {reference:?} leads nowhere"))
    }

    /// Returns true if the author of the configuration also chose the API's URL.
    ///
    /// A document in a file counts as the operator's own. For a fetched document, only its own origin is known to the
    /// operator. `is_of_root` is true if the URL is in the document itself, and not in a referenced one.
    pub(super) fn vouches_for(&self, server: &Url, is_of_root: bool) -> bool {
        match &self.url {
            Some(url) => url.origin() == server.origin(),
            None => is_of_root || !self.has_fetched_parts,
        }
    }

    /// Returns the URL of the first server of the document, or of a part of it.
    pub(super) fn server(&self, of: &Value) -> Result<Option<Url>, String> {
        let Some(server) = of.pointer("/servers/0") else {
            return Ok(None);
        };
        let mut text = server["url"].as_str().unwrap_or_default().to_owned();
        let variables = server.get("variables").and_then(Value::as_object);
        for (name, variable) in variables.into_iter().flatten() {
            let default = match variable.get("default") {
                Some(Value::String(default)) => default.clone(),
                // YAML reads an unquoted port as a number.
                Some(default @ (Value::Number(_) | Value::Bool(_))) => default.to_string(),
                _ => continue,
            };
            text = text.replace(&format!("{{{name}}}"), &default);
        }
        if let Some(name) = placeholders(&text).next() {
            return Err(format!(
                "its server {text:?} has the variable {name:?}, which has no default; set openapi.server"
            ));
        }
        let parsed = match &self.url {
            Some(own) => own.join(&text),
            None => text.parse(),
        };
        match parsed {
            Ok(mut url) if matches!(url.scheme(), "http" | "https") => {
                url.set_query(None);
                url.set_fragment(None);
                Ok(Some(url))
            }
            _ => Err(format!(
                "its server {text:?} is not an http or https address; set openapi.server"
            )),
        }
    }
}

/// Client that fetches the documents of one source.
pub(super) struct Fetcher(Client);

impl Fetcher {
    /// Creates a client that can reach the hosts allowed by `egress`, and `trusted`. Documents larger than `max`
    /// bytes are rejected.
    pub(super) fn new(
        trusted: Option<&Url>,
        config: &OpenApiSourceConfig,
        max: usize,
    ) -> Result<Self, String> {
        let mut guard = config.egress.guard().map_err(|e| e.to_string())?;
        if let Some(trusted) = trusted {
            guard = guard.trust(trusted);
        }
        // The resolver belongs to the runtime that uses it, and this runtime ends with the import.
        let resolver = Arc::new(SystemResolver::default());
        let builder = Client::builder(guard)
            .resolver(resolver)
            .deadlines(Deadlines::total(FETCH_TIMEOUT))
            .max_body(max)
            .redirects(FETCH_REDIRECTS);
        let builder = config.tls.apply(builder);
        builder
            .map_err(|problem| format!("tls.{problem}"))?
            .build()
            .map(Self)
            .map_err(|e| e.to_string())
    }

    pub(super) async fn fetch(&self, url: &Url) -> Result<Vec<u8>, UnreadableDocument> {
        let answer = self
            .0
            .fetch(OutgoingRequest::get(url.clone()))
            .await
            .map_err(|error| UnreadableDocument {
                problem: match &error {
                    FetchError::TooLarge { .. } => format!("{error} (openapi.document_bytes)"),
                    error => with_causes(error),
                },
                may_come: error.is_fault_of_server(),
            })?;
        if !answer.status.is_success() {
            return Err(UnreadableDocument {
                problem: format!("it cannot be fetched: status {}", answer.status),
                may_come: answer.status.is_server_error() || answer.status.as_u16() == 429,
            });
        }
        Ok(answer.body.to_vec())
    }
}

/// Returns a note for messages: the working directory, in which a relative path is looked up. Users may expect the
/// directory of the configuration file instead.
fn from_where(path: &Path) -> String {
    match std::env::current_dir() {
        Ok(here) if path.is_relative() => {
            format!(
                "; it is looked for from {}, where the process was started",
                here.display()
            )
        }
        _ => String::new(),
    }
}

pub(super) fn read_file(path: &Path, max: usize) -> Result<Vec<u8>, String> {
    environment::read_file(path, max as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => format!(
            "{} is larger than {max} bytes, which openapi.document_bytes allows",
            path.display()
        ),
        _ => format!(
            "{} cannot be read: {error}{}",
            path.display(),
            from_where(path)
        ),
    })
}

/// Memory limits of an import.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImportLimits {
    /// Estimated memory of the trees of all documents during the import, in bytes.
    pub(super) tree: usize,
    /// Total size of the schemas of all tools as text, in bytes.
    pub(super) schemas: usize,
}

impl ImportLimits {
    /// Derives the limits from `document_bytes`. If the process has a memory limit, what remains of `memory_bytes`
    /// limits them too. Trees are freed before tools are served, so they can take most of it; the memory of the tools
    /// comes on top.
    pub(super) fn new(config: &OpenApiSourceConfig, memory_bytes: u64) -> Self {
        let mut room = Self {
            tree: config.document_bytes.saturating_mul(TREE_FACTOR),
            schemas: config.document_bytes,
        };
        if memory_bytes > 0 {
            let left = memory_bytes.saturating_sub(telemetry::memory_bytes().unwrap_or_default());
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            room.tree = room.tree.min(left / 4 * 3);
            room.schemas = room.schemas.min(left / 2 / SCHEMA_FACTOR);
        }
        room
    }
}

/// Approximate memory of a tool for each byte of its schema.
const SCHEMA_FACTOR: usize = 8;
/// Memory that the trees of documents can take for each byte of text. By the estimate below, API documents take 5 to
/// 19 times the size of their text, and large ones less than 10.
const TREE_FACTOR: usize = 16;
/// Estimated memory of an object with one member, of a list with one element, and of each further one.
const OBJECT_BYTES: usize = 400;
const LIST_BYTES: usize = 300;
const NODE_BYTES: usize = 120;

/// Parses JSON or YAML, depending on how the text begins.
#[cfg(test)]
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    parse_within(bytes, usize::MAX).map(|(value, _)| value)
}

/// Parses a document and estimates the memory of its tree. A text whose tree would take more than `room` is rejected
/// before the tree is built.
pub(super) fn parse_within(bytes: &[u8], room: usize) -> Result<(Value, usize), String> {
    let too_large = || {
        format!(
            "it has too many values for its size: they would need more than the {} MiB of memory that documents of this source may use; raise openapi.document_bytes (and limits.memory_bytes), or remove what is not needed",
            room >> 20
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        let (tree, depth) = measure_json(text.as_bytes());
        if room < tree {
            return Err(too_large());
        }
        // `serde_json` rejects deeper nesting; the other parser would overflow the stack.
        if SIMD_THRESHOLD_BYTES <= text.len()
            && depth < JSON_DEPTH_MAX
            && let Some(members) = tree_by_simd_json(text.as_bytes())
        {
            return Ok((Value::Object(members), tree));
        }
        let value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        return Ok((value, tree));
    }
    let nodes = (room / NODE_BYTES).clamp(1, YAML_NODES_MAX);
    // YAML 1.2, which OpenAPI requires, treats `on` and `no` as strings.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        budget: serde_saphyr::budget! {
            max_nodes: nodes,
            max_events: 2 * nodes,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: nodes.min(100_000),
        },
    };
    let value: Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|e| yaml_problem(&e))?;
    let tree = tree_bytes(&value);
    if room < tree {
        return Err(too_large());
    }
    Ok((value, tree))
}

/// Describes an error in a YAML text, with its place.
fn yaml_problem(error: &serde_saphyr::Error) -> String {
    let error = error.without_snippet();
    let message = UserMessageFormatter
        .format_message(error)
        .replace('\n', " ");
    match error.location() {
        Some(place) => format!(
            "{message} at line {}, column {}",
            place.line(),
            place.column()
        ),
        None => message,
    }
}

const YAML_NODES_MAX: usize = 3_000_000;

/// Maximum nesting depth that `serde_json` accepts.
const JSON_DEPTH_MAX: usize = 128;

/// Estimates the memory of a JSON text's tree, and its depth, from the characters outside of strings that begin
/// values.
fn measure_json(text: &[u8]) -> (usize, usize) {
    let (mut bytes, mut depth, mut deepest) = (text.len(), 0_usize, 0_usize);
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'{' | b'[' => {
                bytes += if *byte == b'{' {
                    OBJECT_BYTES
                } else {
                    LIST_BYTES
                };
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => bytes += NODE_BYTES,
            b'"' => rest = behind_string(rest),
            _ => {}
        }
    }
    (bytes, deepest)
}

/// Returns the text after a string whose opening quote has been read.
fn behind_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

/// Estimates the memory of a tree.
fn tree_bytes(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            let each =
                |(name, value): (&String, &Value)| name.len() + NODE_BYTES + tree_bytes(value);
            OBJECT_BYTES + members.iter().map(each).sum::<usize>()
        }
        Value::Array(items) => {
            let each = |value: &Value| NODE_BYTES + tree_bytes(value);
            LIST_BYTES + items.iter().map(each).sum::<usize>()
        }
        Value::String(text) => text.len(),
        _ => 0,
    }
}
