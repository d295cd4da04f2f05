//! The import of a document's operations.

use std::collections::HashMap;

use serde_json::Value;

use super::super::builder::SourceBuilder;
use super::super::client_stats::ClientStatsHandle;
use super::super::identity::{Forward, names_authorization};
use super::super::name::{sanitized, shortened};
use super::config::OpenApiSourceConfig;
use super::document::{Document, ImportLimits};
use super::schema;
use super::{Import, METHODS, TOOLS_MAX, id_and_tags};
use crate::catalog::Definition;

/// Imports a document's operations as tools.
pub(super) fn import(
    openapi: &OpenApiSourceConfig,
    document: &Document,
    room: ImportLimits,
    collector: &mut SourceBuilder,
) {
    let has_credentials = openapi.auth.is_some()
        || !openapi.credentials.is_empty()
        || names_authorization(openapi.headers.keys());
    let signer = collector.parts.signer.as_ref();
    let forward = match Forward::new(&openapi.forward, signer, has_credentials) {
        Ok(forward) => forward,
        Err((setting, problem)) => return collector.refuse(&format!("openapi.{setting}"), problem),
    };
    let import = match Import::new(openapi, document, forward, collector) {
        Ok(import) => import,
        Err((setting, problem)) => return collector.refuse(&format!("openapi.{setting}"), problem),
    };
    let gauge = ClientStatsHandle::of_client(&collector.source, "openapi", &import.client);
    collector.count(gauge.with_mismatches(&import.mismatches));
    let mut tools = ImportedTools::new(collector.prefix_of_document(), room);
    let mut all = Vec::new();
    let paths = document.root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten() {
        if path.starts_with("x-") {
            continue;
        }
        if !path.starts_with('/') {
            collector.refuse_at(path, "a path must begin with a slash");
            continue;
        }
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(problem) => {
                collector.refuse_at(path, problem);
                continue;
            }
        };
        import.tell_of_others(item, path, collector);
        for method in METHODS {
            let Some(operation) = item.get(method) else {
                continue;
            };
            let place = format!("{} {path}", method.to_ascii_uppercase());
            let operation = match document.resolve(operation) {
                Ok(operation) => operation,
                Err(problem) => {
                    // The operation cannot be read. It is passed over silently only if it is certain to be excluded.
                    if import.wants(method, path, &Value::Null) {
                        collector.refuse_at(place, problem);
                    }
                    continue;
                }
            };
            let (id, tags) = id_and_tags(operation);
            all.push((method, path.as_str(), id, tags));
            if !import.wants(method, path, operation) {
                tools.excluded.extend(import.renamings(operation, &place));
                continue;
            }
            let found = FoundOperation {
                path,
                method,
                item,
                operation,
                place,
            };
            tools.add(&import, found, collector);
        }
    }
    for (selection, setting) in [(&openapi.include, "include"), (&openapi.exclude, "exclude")] {
        for (list, entry) in selection.unmatched(&all) {
            tracing::warn!(
                source = collector.source,
                setting = format!("openapi.{setting}.{list}"),
                entry,
                "the document has no operation that this entry matches; correct or remove the entry"
            );
        }
    }
    tools.report(openapi, collector);
}

/// An operation of the document.
pub(super) struct FoundOperation<'d> {
    pub(super) path: &'d str,
    pub(super) method: &'d str,
    /// The path's item in the document.
    pub(super) item: &'d Value,
    pub(super) operation: &'d Value,
    /// Method and path, for messages.
    place: String,
}

/// What has been imported so far, and what is left of the limits.
struct ImportedTools<'a> {
    prefix: String,
    /// Place of each tool in the document, by name.
    taken: HashMap<String, String>,
    /// Keys of `openapi.rename` that were used.
    used: Vec<&'a String>,
    /// Keys of `openapi.rename` for operations that are not selected.
    excluded: Vec<&'a String>,
    /// Number of tools whose schema was shortened.
    cut: usize,
    /// Bytes of schemas in total.
    schemas: usize,
    /// Bytes that remain for schemas.
    left: usize,
    without_room: usize,
}

impl<'a> ImportedTools<'a> {
    pub(super) fn new(prefix: String, room: ImportLimits) -> Self {
        Self {
            prefix,
            taken: HashMap::new(),
            used: Vec::new(),
            excluded: Vec::new(),
            cut: 0,
            schemas: room.schemas,
            left: room.schemas,
            without_room: 0,
        }
    }

    /// Makes a tool of an operation, if there is room for it.
    fn add(
        &mut self,
        import: &Import<'a>,
        found: FoundOperation<'_>,
        collector: &mut SourceBuilder,
    ) {
        let renamings = import.renamings(found.operation, &found.place);
        self.used.extend(renamings);
        if TOOLS_MAX <= self.taken.len() || self.left == 0 {
            self.without_room += 1;
            return;
        }
        let mut name = import.name(&self.prefix, found.operation, &found.place);
        if self.taken.contains_key(&name) {
            // The first operation in the document keeps the plain name; this one gets its method and path.
            let own = sanitized(&format!("{} {}", found.method, found.path));
            let other = format!("{}{own}", self.prefix);
            name = shortened(&other, import.config.name_characters);
        }
        if let Some(other) = self.taken.get(&name) {
            let problem = format!(
                "its name {name} is that of {other} already; choose another one in openapi.rename"
            );
            return collector.refuse_at(found.place, problem);
        }
        match import.tool(&name, &found) {
            Ok((tool, is_cut)) => {
                self.cut += usize::from(is_cut);
                let size = size_of(&tool.definition);
                if self.left < size {
                    self.left = 0;
                    self.without_room += 1;
                    return;
                }
                self.left -= size;
                self.taken.insert(name, found.place);
                collector.offer(tool);
            }
            Err(problem) => collector.refuse_at(found.place, problem),
        }
    }

    /// Reports what could not be imported, and logs a summary.
    fn report(&self, openapi: &OpenApiSourceConfig, collector: &mut SourceBuilder) {
        if self.without_room > 0 {
            let problem = format!(
                "{} operations became no tools: there are more than {TOOLS_MAX}, or their schemas have more than {} bytes together; choose operations with openapi.include, or raise openapi.document_bytes (and limits.memory_bytes)",
                self.without_room, self.schemas
            );
            collector.refuse("openapi", problem);
        }
        let keys = openapi.rename.keys();
        for unknown in keys.filter(|key| !self.used.contains(key)) {
            let problem = match self.excluded.contains(&unknown) {
                true => {
                    "openapi.include and openapi.exclude leave the operation out; remove this name, or select the operation"
                }
                false => {
                    "the document has no such operation; write its ID, or method and path as in GET /pets"
                }
            };
            collector.refuse(&format!("openapi.rename.{unknown}"), problem);
        }
        if self.taken.is_empty() {
            collector.refuse("openapi", "no operation of the document became a tool");
        }
        tracing::info!(
            source = collector.source,
            tools = self.taken.len(),
            not_described_whole = self.cut,
            refused = collector.offered.refused.len(),
            "imported an OpenAPI document"
        );
    }
}

/// Estimates the size of a tool: its schemas as text, and its other memory in the same unit.
fn size_of(definition: &Definition) -> usize {
    const REST: usize = 1024;
    let schemas = [
        Some(&definition.input_schema),
        definition.output_schema.as_ref(),
    ];
    let schemas = schemas.into_iter().flatten();
    schemas
        .map(|schema| schema::bytes_of(schema, usize::MAX))
        .sum::<usize>()
        + REST
}
