//! A document as it was read: where it comes from, and what its references mean.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

use super::bundle::{Bundled, Place, bundle};
use super::config::OpenApiSourceConfig;
use crate::catalog::{SIMD_THRESHOLD_BYTES, tree_by_simd_json};
use crate::net::{Client, Deadlines, Outgoing, SystemResolver, with_causes};

/// A whole document.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) root: Value,
    pub(super) version: Version,
    /// Where it was fetched from, if it was.
    pub(super) url: Option<Url>,
    /// Other documents that it refers to and that could not be read, by how it names them, and why.
    missing: BTreeMap<String, String>,
}

/// Which rules its schemas follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// A dialect of its own.
    V3_0,
    /// JSON Schema 2020-12.
    V3_1,
}

/// Why a document cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) problem: String,
    /// Whoever has it may be down for a while.
    pub(super) may_come: bool,
}

impl From<String> for Unread {
    fn from(problem: String) -> Self {
        Self {
            problem,
            may_come: false,
        }
    }
}

const FETCH_TIMEOUT: Duration = Duration::from_secs(20);
const FETCH_REDIRECTS: usize = 3;
/// References to references to references.
const REFERENCES_MAX: usize = 32;

impl Document {
    /// Reads what a configuration names.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none.
    pub(super) async fn read(config: &OpenApiSourceConfig) -> Result<Self, Unread> {
        let place = &config.document;
        if place.is_empty() {
            return Err("it is not there; name a file or a URL".to_owned().into());
        }
        let url = place.contains("://").then(|| place.parse::<Url>());
        let url = url
            .transpose()
            .map_err(|e| format!("{place:?} is no URL ({e})"))?;
        let bytes = match &url {
            Some(url) => fetch(url, Some(url), config).await?,
            None => read_file(Path::new(place), config.document_bytes)?,
        };
        let root = parse(&bytes).map_err(|problem| format!("{place}: {problem}"))?;
        let at = match &url {
            Some(url) => Place::Url(url.clone()),
            // As references to it are compared.
            None => Place::File(std::fs::canonicalize(place).unwrap_or_else(|_| place.into())),
        };
        let Bundled { root, missing } = bundle(root, at, config).await;
        let document = Self::new(root, url).map_err(|problem| format!("{place}: {problem}"))?;
        Ok(Self {
            missing,
            ..document
        })
    }

    pub(super) fn new(root: Value, url: Option<Url>) -> Result<Self, String> {
        let version = match (
            root.get("openapi").and_then(Value::as_str),
            root.get("swagger"),
        ) {
            (Some(text), _) if text.starts_with("3.0") => Version::V3_0,
            (Some(text), _) if text.starts_with("3.1") || text.starts_with("3.2") => Version::V3_1,
            (Some(text), _) => {
                return Err(format!("it is of OpenAPI {text}; 3.0 and 3.1 can be used"));
            }
            (None, Some(_)) => {
                return Err("it is of Swagger 2.0; convert it to OpenAPI 3 first".to_owned());
            }
            (None, None) => return Err("it is no OpenAPI document: it has no `openapi`".to_owned()),
        };
        if !root.get("paths").is_some_and(Value::is_object) {
            return Err("it has no `paths`".to_owned());
        }
        Ok(Self {
            root,
            version,
            url,
            missing: BTreeMap::new(),
        })
    }

    /// What a value means: itself, or what it refers to.
    ///
    /// # Errors
    ///
    /// A reference that leads nowhere, out of the document, or round in a circle.
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

    /// What a reference means, by one step.
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

    /// The address of its first server, or of that of a part of it.
    pub(super) fn server(&self, of: &Value) -> Result<Option<Url>, String> {
        let Some(server) = of.pointer("/servers/0") else {
            return Ok(None);
        };
        let mut text = server
            .get("url")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let variables = server.get("variables").and_then(Value::as_object);
        for (name, variable) in variables.into_iter().flatten() {
            let default = variable
                .get("default")
                .and_then(Value::as_str)
                .unwrap_or_default();
            text = text.replace(&format!("{{{name}}}"), default);
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
                "its server {text:?} is no address that can be asked; set openapi.server"
            )),
        }
    }
}

pub(super) async fn fetch(
    url: &Url,
    trusted: Option<&Url>,
    config: &OpenApiSourceConfig,
) -> Result<Vec<u8>, Unread> {
    let mut guard = config.egress.guard().map_err(|e| e.to_string())?;
    if let Some(trusted) = trusted {
        guard = guard.trust(trusted);
    }
    // Of its own, since it belongs to the runtime that it is used in, and this one ends with the import.
    let resolver = Arc::new(SystemResolver::default());
    let client = Client::builder(guard)
        .resolver(resolver)
        .deadlines(Deadlines::total(FETCH_TIMEOUT))
        .max_body(config.document_bytes)
        .redirects(FETCH_REDIRECTS)
        .build()
        .map_err(|e| e.to_string())?;
    let answer = client
        .fetch(Outgoing::get(url.clone()))
        .await
        .map_err(|error| Unread {
            problem: with_causes(&error),
            may_come: error.is_fault_of_server(),
        })?;
    if !answer.status.is_success() {
        return Err(Unread {
            problem: format!("it cannot be fetched: status {}", answer.status),
            may_come: answer.status.is_server_error() || answer.status.as_u16() == 429,
        });
    }
    Ok(answer.body.to_vec())
}

/// Where a path begins that says nothing of it: not beside the configuration, as one may think.
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
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(max as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| format!("{} cannot be read: {e}{}", path.display(), from_where(path)))?;
    if max < bytes.len() {
        return Err(format!(
            "{} is larger than {max} bytes, which openapi.document_bytes allows",
            path.display()
        ));
    }
    Ok(bytes)
}

/// JSON, or YAML, by what the text begins with.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())?;
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        if SIMD_THRESHOLD_BYTES <= text.len()
            && let Some(tree) = tree_by_simd_json(text.as_bytes())
        {
            return Ok(Value::Object(tree));
        }
        return serde_json::from_str(text).map_err(|e| e.to_string());
    }
    // As YAML 1.2 has it, which OpenAPI asks for: `on` and `no` are words.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        budget: serde_saphyr::budget! {
            max_nodes: 3_000_000,
            max_events: 6_000_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| e.without_snippet().to_string().replace('\n', " "))
}
