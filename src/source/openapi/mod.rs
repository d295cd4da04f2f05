//! Operations of an OpenAPI document as tools.

mod bundle;
mod config;
mod document;
mod form;
mod operation;
mod request;
mod schema;
mod security;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;
use url::Url;

pub use config::{OpenApiSourceConfig, Selection};

use self::document::Document;
use self::operation::{Operation, SchemaBytes, text};
use self::request::Shape;
use self::security::Proofs;
use super::config::{Collector, GRACE};
use super::exchange::{Errand, Exchange, is_safe};
use super::gauge::Gauge;
use super::http::annotations_of;
use super::name::{sanitized, shortened};
use super::promise::Promise;
use super::response;
use crate::catalog::schema::{Compiled, without_number_formats};
use crate::catalog::{Arguments, CallContext, CallFuture, Definition, Output, Tool, ToolError};

/// A tool that calls one operation.
pub struct OperationTool {
    definition: Definition,
    plan: Arc<Plan>,
}

struct Plan {
    shape: Shape,
    base: Url,
    exchange: Arc<Exchange>,
    proofs: Proofs,
    headers: HeaderMap,
    repeatable: bool,
    promise: Option<Promise>,
}

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
/// How much of an operation's description a tool shows.
const DESCRIPTION_CHARACTERS: usize = 4000;

/// What an OpenAPI source offers.
pub(super) async fn collect(openapi: &OpenApiSourceConfig, name: &str, collector: &mut Collector) {
    let document = match Document::read(openapi).await {
        Ok(document) => document,
        Err(unread) if unread.may_come => {
            return collector.wait_for("openapi.document", &unread.problem);
        }
        Err(unread) => return collector.refuse("openapi.document", unread.problem),
    };
    import(openapi, &document, name, collector);
}

/// Makes tools of a document's operations.
fn import(
    openapi: &OpenApiSourceConfig,
    document: &Document,
    name: &str,
    collector: &mut Collector,
) {
    let import = match Import::new(openapi, document, collector) {
        Ok(import) => import,
        Err((setting, problem)) => return collector.refuse(&format!("openapi.{setting}"), problem),
    };
    let gauge = Gauge::of_exchange(&collector.source, "openapi", &import.exchange);
    collector.count(gauge);
    let prefix = match name {
        "" => String::new(),
        name => format!("{}__", sanitized(name)),
    };
    let prefix = collector.prefix(&prefix);
    let mut taken: HashMap<String, String> = HashMap::new();
    let mut used = Vec::new();
    let mut cut = 0;
    let paths = document.root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        if path.starts_with("x-") {
            continue;
        }
        if !path.starts_with('/') {
            collector.refuse_at(path, "a path has to begin with a slash");
            continue;
        }
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(problem) => {
                collector.refuse_at(path, problem);
                continue;
            }
        };
        for method in METHODS {
            let Some(operation) = item.get(method) else {
                continue;
            };
            if !import.wants(method, path, operation) {
                continue;
            }
            let place = format!("{} {path}", method.to_ascii_uppercase());
            let mut tool_name = import.name(&prefix, operation, &place, &mut used);
            if taken.contains_key(&tool_name) {
                // Which of two gets the plain name is decided by the order of the document; this one says its place.
                let other = format!("{prefix}{}", sanitized(&format!("{method} {path}")));
                tool_name = shortened(&other, openapi.name_characters);
            }
            if let Some(other) = taken.get(&tool_name) {
                let problem = format!(
                    "its name {tool_name} is taken by {other}; give it one in openapi.rename"
                );
                collector.refuse_at(place, problem);
                continue;
            }
            match import.tool(&tool_name, item, operation, method, path) {
                Ok((tool, is_cut)) => {
                    cut += usize::from(is_cut);
                    taken.insert(tool_name, place);
                    collector.offer(tool);
                }
                Err(problem) => collector.refuse_at(place, problem),
            }
        }
    }
    for unknown in openapi.rename.keys().filter(|key| !used.contains(key)) {
        collector.refuse(
            &format!("openapi.rename.{unknown}"),
            "there is no such operation; write its id, or method and path as in GET /pets",
        );
    }
    if taken.is_empty() {
        collector.refuse("openapi", "no operation of the document became a tool");
    }
    tracing::info!(
        source = collector.source,
        tools = taken.len(),
        not_described_whole = cut,
        refused = collector.offered.refused.len(),
        "imported an OpenAPI document"
    );
}

/// What all tools of a document share.
struct Import<'a> {
    config: &'a OpenApiSourceConfig,
    document: &'a Document,
    base: Option<Url>,
    exchange: Arc<Exchange>,
    headers: HeaderMap,
}

impl<'a> Import<'a> {
    fn new(
        config: &'a OpenApiSourceConfig,
        document: &'a Document,
        collector: &Collector,
    ) -> Result<Self, (&'static str, String)> {
        let base = match &config.server {
            Some(text) => {
                Some(super::http::parse_base(text).map_err(|problem| ("server", problem))?)
            }
            // Where it says nothing, the API is where the document is (OpenAPI, `servers`).
            None => document
                .server(&document.root)
                .map_err(|problem| ("server", problem))?
                .or_else(|| document.url.as_ref()?.join("/").ok()),
        };
        // What whoever runs the server has written is trusted: the setting, and a document of their own. A document
        // that was fetched may name only its own origin, and what is public.
        let trusted: Vec<Url> = base
            .iter()
            .filter(|base| {
                config.server.is_some()
                    || document
                        .url
                        .as_ref()
                        .is_none_or(|url| url.origin() == base.origin())
            })
            .cloned()
            .collect();
        for name in config.credentials.keys() {
            let schemes = security::schemes(document);
            if !schemes.contains(&name.as_str()) {
                let problem = match &schemes[..] {
                    [] => format!(
                        "the document has no security scheme {name:?}, nor any other; use auth"
                    ),
                    schemes => format!(
                        "the document has no security scheme {name:?}; it has {}",
                        schemes.join(", ")
                    ),
                };
                return Err(("credentials", problem));
            }
        }
        let exchange = Exchange::new(
            &collector.source,
            &trusted,
            &config.egress,
            (&config.auth, &collector.tokens),
            &config.limits,
        )?;
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let header = HeaderName::try_from(&**name)
                .ok()
                .zip(HeaderValue::from_str(value.expose()).ok());
            let (name, mut value) =
                header.ok_or_else(|| ("headers", format!("{name:?} cannot be sent as it is")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self {
            config,
            document,
            base,
            exchange: Arc::new(exchange),
            headers,
        })
    }

    fn wants(&self, method: &str, path: &str, operation: &Value) -> bool {
        let id = text(operation, "operationId");
        let tags = operation.get("tags").and_then(Value::as_array);
        let tags: Vec<&str> = tags
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let included =
            self.config.include.is_empty() || self.config.include.has(method, path, id, &tags);
        included && !self.config.exclude.has(method, path, id, &tags)
    }

    fn name(
        &self,
        prefix: &str,
        operation: &Value,
        place: &str,
        used: &mut Vec<&'a String>,
    ) -> String {
        let id = text(operation, "operationId");
        for key in [id, place] {
            if let Some((key, name)) = self.config.rename.get_key_value(key) {
                used.push(key);
                return shortened(&format!("{prefix}{name}"), self.config.name_characters);
            }
        }
        let name = match sanitized(id) {
            name if name.is_empty() => {
                let (method, path) = place.split_once(' ').unwrap_or_default();
                sanitized(&format!("{} {path}", method.to_lowercase()))
            }
            name => name,
        };
        shortened(&format!("{prefix}{name}"), self.config.name_characters)
    }

    fn tool(
        &self,
        name: &str,
        item: &Value,
        operation: &Value,
        method: &str,
        path: &str,
    ) -> Result<(OperationTool, bool), String> {
        let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())
            .map_err(|_| "its method is none".to_owned())?;
        let output = self.config.output_schemas;
        let bytes = SchemaBytes {
            input: self.config.schema_bytes,
            output: output.then_some(self.config.output_schema_bytes),
        };
        let mut parts = Operation::new(self.document, item, operation, &method, path, bytes)?;
        without_number_formats(&mut parts.input_schema);
        if let Some(output) = &mut parts.output_schema {
            without_number_formats(output);
        }
        sound(&mut parts.input_schema)?;
        let own = match self.config.server {
            Some(_) => None,
            None => match self.document.server(operation)? {
                Some(url) => Some(url),
                None => self.document.server(item)?,
            },
        };
        let base = own
            .or_else(|| self.base.clone())
            .ok_or("the document says not where the API is; set openapi.server")?;
        let output = parts.output_schema.and_then(sound_output);
        let mut definition = Definition::new(name)
            .input_schema(parts.input_schema)
            .annotations(annotations_of(&method))
            .timeout(self.config.limits.timeout() + GRACE);
        if let Some(description) = description(operation, item) {
            definition = definition.description(description);
        }
        let summary = text(operation, "summary");
        if !summary.is_empty() {
            definition = definition.title(summary);
        }
        let (schema, promise) = output.unzip();
        if let Some(schema) = schema {
            definition = definition.output_schema(schema);
        }
        let tool = OperationTool {
            definition,
            plan: Arc::new(Plan {
                repeatable: is_safe(&method),
                shape: parts.shape,
                base,
                exchange: self.exchange.clone(),
                proofs: Proofs::new(self.document, operation, &self.config.credentials)?,
                headers: self.headers.clone(),
                promise,
            }),
        };
        Ok((tool, parts.cut))
    }
}

/// Makes sure that a schema can be used. Patterns are written for another engine, and not worth a tool.
fn sound(schema: &mut Value) -> Result<(), String> {
    if Compiled::input(schema).is_ok() {
        return Ok(());
    }
    schema::without_patterns(schema);
    Compiled::input(schema)
        .map(drop)
        .map_err(|e| format!("its schema cannot be used: {e}"))
}

fn sound_output(mut schema: Value) -> Option<(Value, Promise)> {
    let promise = Promise::new(&schema).or_else(|_| {
        schema::without_patterns(&mut schema);
        Promise::new(&schema)
    });
    Some((schema, promise.ok()?))
}

/// What an operation says of itself, or else its path.
fn description(operation: &Value, item: &Value) -> Option<String> {
    let of = |member: &str| match text(operation, member) {
        "" => text(item, member),
        text => text,
    };
    let (summary, long) = (of("summary").trim(), of("description").trim());
    let whole = match (summary, long) {
        ("", "") => return None,
        ("", long) => long.to_owned(),
        (summary, "") => summary.to_owned(),
        (summary, long) if long.starts_with(summary) => long.to_owned(),
        (summary, long) => format!("{summary}\n\n{long}"),
    };
    Some(whole.chars().take(DESCRIPTION_CHARACTERS).collect())
}

impl Tool for OperationTool {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn call(&self, context: Arc<CallContext>, arguments: Arguments) -> CallFuture {
        let plan = self.plan.clone();
        Box::pin(async move { plan.run(&context, &arguments).await })
    }

    fn checks_output(&self) -> bool {
        true
    }
}

impl Plan {
    async fn run(&self, context: &CallContext, arguments: &Arguments) -> Result<Output, ToolError> {
        let arguments = arguments.to_map()?;
        let mut request = self
            .shape
            .fill(&self.base, &arguments)
            .map_err(ToolError::new)?;
        for (name, value) in &self.headers {
            request.headers.insert(name, value.clone());
        }
        self.proofs.apply(&mut request);
        let errand = Errand {
            context,
            template: Some(&self.shape.path),
        };
        let mut answer = self
            .exchange
            .send(request, self.repeatable, Some(errand))
            .await?;
        self.proofs.conceal(&mut answer);
        if !answer.status.is_success() {
            return Err(response::failure(&answer));
        }
        let output = response::output(&answer)?;
        Ok(Promise::kept(self.promise.as_ref(), output))
    }
}

impl fmt::Debug for OperationTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OperationTool")
            .field(&self.definition.name)
            .finish()
    }
}

#[cfg(test)]
mod tests;
