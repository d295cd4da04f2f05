//! OpenAPI operations as tools.

mod body;
mod bundle;
mod composition;
mod config;
mod corrected;
mod direction;
mod discriminator;
mod document;
mod form;
mod gathered;
mod import;
mod named;
mod operation;
mod request;
mod schema;
mod security;
mod supplied;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use http::{HeaderMap, Method};
use serde_json::Value;
use url::Url;

use self::document::{Document, ImportLimits};
use self::operation::{Operation, SchemaBytes};
use self::request::RequestMapping;
use self::security::Proofs;
use self::supplied::SuppliedParameters;
use self::text::text;
use super::api_client::{ApiClient, CallRef, ClientSettings, RequestOptions};
use super::argument;
use super::builder::SourceBuilder;
use super::credentials::AuthConfig;
use super::headers::fixed_headers;
use super::http::annotations_of;
use super::identity::{Forward, ForwardConfig};
use super::kind::SourceKind;
use super::limits::{GRACE, time_limit};
use super::name::{sanitized, shortened};
use super::output_contract::{Mismatches, OutputContract};
use super::redact::{conceal, secrets_in};
use super::response;
use super::tool_plan::{PlanTool, ToolPlan};
use crate::catalog::schema::{Compiled, SchemaError, without_number_formats};
use crate::catalog::{Arguments, CallContext, Definition, Output, ToolError, UpstreamIdentity};
pub use config::{OpenApiSourceConfig, Selection};
use import::{FoundOperation, import};

/// Calls one operation.
struct Plan {
    shape: RequestMapping,
    base: Url,
    client: Arc<ApiClient>,
    proofs: Proofs,
    headers: HeaderMap,
    forward: Forward,
    repeatable: bool,
    promise: Option<OutputContract>,
}

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
/// Path item members that are operations but are not imported.
const METHODS_NOT_OFFERED: [&str; 2] = ["trace", "query"];
/// Maximum number of characters of an operation's description that a tool shows.
const DESCRIPTION_CHARACTERS: usize = 4000;
const TITLE_CHARACTERS: usize = 200;
/// Maximum number of tools imported from a document.
const TOOLS_MAX: usize = 20_000;

impl SourceKind for OpenApiSourceConfig {
    fn collect<'a>(&'a self, builder: &'a mut SourceBuilder) -> LocalBoxFuture<'a, ()> {
        Box::pin(collect(self, builder))
    }

    fn auth(&self) -> Option<&AuthConfig> {
        Some(&self.auth)
    }

    fn file(&self) -> Option<PathBuf> {
        let is_local = !self.document.contains("://");
        is_local.then(|| PathBuf::from(&self.document))
    }

    fn is_document(&self) -> bool {
        true
    }

    fn is_remote_document(&self) -> bool {
        self.file().is_none()
    }
}

/// Collects the tools of an OpenAPI source.
async fn collect(openapi: &OpenApiSourceConfig, collector: &mut SourceBuilder) {
    let room = ImportLimits::new(openapi, collector.parts.memory_bytes);
    let document = match Document::read(openapi, room).await {
        Ok(document) => document,
        Err(unread) if unread.may_come => {
            return collector.wait_for("openapi.document", &unread.problem);
        }
        Err(unread) => return collector.refuse("openapi.document", unread.problem),
    };
    collector.files.clone_from(&document.files);
    import(openapi, &document, room, collector);
}

/// State that all tools of a document share.
struct Import<'a> {
    config: &'a OpenApiSourceConfig,
    document: &'a Document,
    base: Option<Url>,
    client: Arc<ApiClient>,
    headers: HeaderMap,
    forward: Forward,
    /// True if requests carry credentials that only the API may receive.
    has_secrets: bool,
    mismatches: Mismatches,
}

impl<'a> Import<'a> {
    fn new(
        config: &'a OpenApiSourceConfig,
        document: &'a Document,
        forward: Forward,
        collector: &SourceBuilder,
    ) -> Result<Self, (&'static str, String)> {
        let base = match &config.server {
            Some(text) => {
                Some(super::http::parse_base(text).map_err(|problem| ("server", problem))?)
            }
            // If the document names no server, the API is at the document's own URL (OpenAPI, `servers`).
            None => document
                .server(&document.root)
                .map_err(|problem| ("server", problem))?
                .or_else(|| document.url.as_ref()?.join("/").ok()),
        };
        let has_secrets = config.auth.is_some()
            || !config.credentials.is_empty()
            || !config.headers.is_empty()
            || config.tls.certificate.is_some()
            || config.forward != ForwardConfig::default();
        // The operator's own input is trusted: the setting, and a document in a file. A fetched document can name
        // only its own origin and public hosts, and credentials are never sent to another origin.
        let is_trusted = |base: &Url| config.server.is_some() || document.vouches_for(base, true);
        if has_secrets && let Some(base) = base.as_ref().filter(|base| !is_trusted(base)) {
            return Err(("server", of_another_origin(base)));
        }
        let trusted: Vec<Url> = base
            .iter()
            .filter(|base| is_trusted(base))
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
        let settings = ClientSettings {
            name: collector.source.as_str().into(),
            bases: trusted.into(),
            egress: config.egress.clone(),
            tls: config.tls.clone(),
            auth: config.auth.clone(),
            limits: config.limits.clone(),
        };
        let client = ApiClient::of_source(settings, &collector.parts)?;
        Ok(Self {
            config,
            document,
            base,
            client,
            headers: fixed_headers(&config.headers).map_err(|problem| ("headers", problem))?,
            forward,
            has_secrets,
            mismatches: collector
                .parts
                .reuse
                .mismatches("openapi", &collector.source),
        })
    }

    /// Rejects the operations of a path whose methods are not supported.
    fn tell_of_others(&self, item: &Value, path: &str, collector: &mut SourceBuilder) {
        let of_path = METHODS_NOT_OFFERED
            .iter()
            .filter_map(|method| Some((*method, item.get(*method)?)));
        let additional = item.get("additionalOperations").and_then(Value::as_object);
        let additional = additional
            .into_iter()
            .flatten()
            .map(|(method, operation)| (method.as_str(), operation));
        for (method, operation) in of_path.chain(additional) {
            let operation = self.document.resolve(operation).unwrap_or(operation);
            if self.wants(method, path, operation) {
                let method = method.to_ascii_uppercase();
                collector.refuse_at(
                    format!("{method} {path}"),
                    format!("operations of the method {method} are not offered as tools"),
                );
            }
        }
    }

    fn wants(&self, method: &str, path: &str, operation: &Value) -> bool {
        let (id, tags) = id_and_tags(operation);
        let included =
            self.config.include.is_empty() || self.config.include.has(method, path, id, &tags);
        included && !self.config.exclude.has(method, path, id, &tags)
    }

    /// Returns the keys of `openapi.rename` that name an operation, the one that counts first.
    fn renamings(&self, operation: &Value, place: &str) -> Vec<&'a String> {
        let keys = [text(operation, "operationId"), place].into_iter();
        let found = keys.filter_map(|key| self.config.rename.get_key_value(key));
        found.map(|(key, _)| key).collect()
    }

    fn name(&self, prefix: &str, operation: &Value, place: &str) -> String {
        let renamed = self.renamings(operation, place);
        let renamed = renamed.first().and_then(|key| self.config.rename.get(*key));
        let name = match renamed {
            Some(name) => name.clone(),
            None => match sanitized(text(operation, "operationId")) {
                name if name.is_empty() => {
                    let (method, path) = place.split_once(' ').unwrap_or_default();
                    sanitized(&format!("{} {path}", method.to_lowercase()))
                }
                name => name,
            },
        };
        shortened(&format!("{prefix}{name}"), self.config.name_characters)
    }

    fn tool(
        &self,
        name: &str,
        found: &FoundOperation<'_>,
    ) -> Result<(PlanTool<Plan>, bool), String> {
        let FoundOperation {
            path,
            method,
            item,
            operation,
            ..
        } = *found;
        let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())
            .map_err(|_| "its method is none".to_owned())?;
        let output = self.config.output_schemas;
        let bytes = SchemaBytes {
            input: self.config.schema_bytes,
            output: output.then_some(self.config.output_schema_bytes),
        };
        let proofs = Proofs::new(self.document, operation, &self.config.credentials)?;
        let supplied = SuppliedParameters::new(self.config, &proofs);
        let mut parts = Operation::new(
            self.document,
            item,
            operation,
            (&method, path),
            bytes,
            &supplied,
        )?;
        without_number_formats(&mut parts.input_schema);
        if let Some(output) = &mut parts.output_schema {
            without_number_formats(output);
        }
        compiled(&mut parts.input_schema, Compiled::input)
            .map_err(|e| format!("its schema cannot be used: {e}"))?;
        let own = match self.config.server {
            Some(_) => None,
            None => match self.document.server(operation)? {
                Some(url) => Some(url),
                None => self.document.server(item)?,
            },
        };
        let is_elsewhere = |own: &Url| self.base.as_ref().map(Url::origin) != Some(own.origin());
        if let Some(own) = own.as_ref().filter(|own| is_elsewhere(own)) {
            if self.has_secrets && !self.document.vouches_for(own, false) {
                return Err(of_another_origin(own));
            }
            if self.config.auth.login {
                return Err(format!(
                    "its server is {own}, and auth.login has a token for the document's first server alone; set openapi.server"
                ));
            }
        }
        let base = own
            .or_else(|| self.base.clone())
            .ok_or("the document does not name the server of the API; set openapi.server")?;
        let contract = |schema: &Value| OutputContract::new(schema, name, &self.mismatches);
        let output = parts.output_schema.and_then(|mut schema| {
            let promise = compiled(&mut schema, contract).ok()?;
            Some((schema, promise))
        });
        let mut definition = Definition::new(name)
            .input_schema(parts.input_schema)
            .annotations(annotations_of(&method))
            .timeout(time_limit(self.config.limits.timeout_seconds) + GRACE)
            .description(description(operation, item, &method, path));
        let summary: String = text(operation, "summary")
            .chars()
            .take(TITLE_CHARACTERS)
            .collect();
        if !summary.is_empty() {
            definition = definition.title(summary);
        }
        let (schema, promise) = output.unzip();
        definition.output_schema = schema;
        let tool = PlanTool {
            definition,
            plan: Arc::new(Plan {
                repeatable: method.is_safe(),
                shape: parts.shape,
                base,
                client: self.client.clone(),
                proofs,
                headers: self.headers.clone(),
                forward: self.forward.clone(),
                promise,
            }),
        };
        Ok((tool, parts.cut))
    }
}

fn id_and_tags(operation: &Value) -> (&str, Vec<&str>) {
    let tags = operation.get("tags").and_then(Value::as_array);
    let tags = tags.into_iter().flatten().filter_map(Value::as_str);
    (text(operation, "operationId"), tags.collect())
}

/// Compiles a schema. Rather than losing the tool, what makes it unusable is removed: references that lead back to
/// themselves, and patterns for another regular expression engine.
fn compiled<T>(
    schema: &mut Value,
    compile: impl Fn(&Value) -> Result<T, SchemaError>,
) -> Result<T, SchemaError> {
    for mend in [composition::without_loops, schema::without_patterns] {
        if let Ok(compiled) = compile(schema) {
            return Ok(compiled);
        }
        mend(schema);
    }
    compile(schema)
}

/// Returns the description of an operation, or its method and path if it has none.
fn description(operation: &Value, item: &Value, method: &Method, path: &str) -> String {
    let of = |member: &str| match text(operation, member) {
        "" => text(item, member),
        text => text,
    };
    let (summary, long) = (of("summary").trim(), of("description").trim());
    let mut whole = match (summary, long) {
        ("", "") => format!("{method} {path}"),
        ("", long) => long.to_owned(),
        (summary, "") => summary.to_owned(),
        (summary, long) if long.starts_with(summary) => long.to_owned(),
        (summary, long) => format!("{summary}\n\n{long}"),
    };
    if operation.get("deprecated") == Some(&Value::Bool(true)) {
        whole.insert_str(0, "Deprecated. ");
    }
    whole.chars().take(DESCRIPTION_CHARACTERS).collect()
}

/// Returns the reason why a server named by a document gets no requests.
fn of_another_origin(server: &Url) -> String {
    format!(
        "the document names the server {server}, whose origin differs from that of the fetched document: credentials are not sent there; set openapi.server to the URL of the API"
    )
}

impl ToolPlan for Plan {
    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        Some(self.client.identity())
    }

    async fn run(
        self: Arc<Self>,
        context: Arc<CallContext>,
        arguments: Arguments,
    ) -> Result<Output, ToolError> {
        let arguments = argument::tree(&arguments)?;
        let mut request = self
            .shape
            .fill(&self.base, &arguments)
            .map_err(ToolError::new)?;
        for (name, value) in &self.headers {
            request.headers.insert(name, value.clone());
        }
        self.proofs.apply(&mut request);
        let caller = context.principal();
        let assertion = self.forward.apply(caller, &mut request.headers)?;
        let call = CallRef {
            context: &context,
            template: Some(&self.shape.path),
        };
        let options = RequestOptions {
            repeatable: self.repeatable,
            authenticated: true,
            accepted: &[],
        };
        let mut answer = self.client.send_for(request, options, call).await?;
        self.proofs.conceal(&mut answer);
        if assertion.is_some() {
            conceal(secrets_in(assertion.as_ref()), &mut answer);
        }
        if !answer.status.is_success() {
            return Err(response::failure(&answer));
        }
        let output = match self.shape.method {
            Method::HEAD => response::head(&answer),
            _ => response::output(&answer),
        };
        Ok(OutputContract::kept(self.promise.as_ref(), output))
    }
}

#[cfg(test)]
mod tests;
