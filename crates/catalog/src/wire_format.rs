//! Serialised form of each list entry, by revision.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::registry::{CatalogPrompt, CatalogResource, CatalogTemplate, CatalogTool};
use super::table::ListItem;
use super::{Definition, PromptDefinition, ResourceDefinition, TaskSupport, schema};
use crate::protocol::{Annotations, Icon, Revision};

impl ListItem for CatalogTool {
    const MEMBER: &'static str = "tools";
    const CURSOR: &'static str = "tools cursor 1";

    fn key(&self) -> &str {
        self.tool.definition().name()
    }

    fn write(&self, out: &mut Vec<u8>, revision: Revision) {
        write(out, tool(self.tool.definition(), revision));
    }
}

/// A tool that is listed, and answered by the server itself.
#[derive(Debug)]
pub struct BuiltinTool(pub Definition);

impl ListItem for BuiltinTool {
    const MEMBER: &'static str = "tools";
    const CURSOR: &'static str = "tools cursor 1";

    fn key(&self) -> &str {
        self.0.name()
    }

    fn write(&self, out: &mut Vec<u8>, revision: Revision) {
        write(out, tool(&self.0, revision));
    }
}

impl ListItem for CatalogResource {
    const MEMBER: &'static str = "resources";
    const CURSOR: &'static str = "resources cursor 1";

    fn key(&self) -> &str {
        self.resource.definition().uri()
    }

    fn write(&self, out: &mut Vec<u8>, revision: Revision) {
        let definition = self.resource.definition();
        let mut shown = resource(definition, "uri", revision);
        if let Some(bytes) = definition.size {
            shown.insert("size".to_owned(), bytes.into());
        }
        write(out, shown);
    }
}

impl ListItem for CatalogTemplate {
    const MEMBER: &'static str = "resourceTemplates";
    const CURSOR: &'static str = "templates cursor 1";

    fn key(&self) -> &str {
        self.uri.as_str()
    }

    fn write(&self, out: &mut Vec<u8>, revision: Revision) {
        let definition = self.template.definition();
        write(out, resource(definition, "uriTemplate", revision));
    }
}

impl ListItem for CatalogPrompt {
    const MEMBER: &'static str = "prompts";
    const CURSOR: &'static str = "prompts cursor 1";

    fn key(&self) -> &str {
        self.prompt.definition().name()
    }

    fn write(&self, out: &mut Vec<u8>, revision: Revision) {
        write(out, prompt(self.prompt.definition(), revision));
    }
}

fn write(out: &mut Vec<u8>, shown: Map<String, Value>) {
    out.extend_from_slice(Value::Object(shown).to_string().as_bytes());
}

/// Schemas keep their author's members and order, apart from what [`schema::listed_input`] and
/// [`schema::allow_other_members`] change.
pub fn tool(definition: &Definition, revision: Revision) -> Map<String, Value> {
    let (title, description) = (
        definition.title.as_deref(),
        definition.description.as_deref(),
    );
    let mut tool = Map::new();
    put_names(&mut tool, &definition.name, title, description, revision);
    let mut put = |key: &str, value: Value| tool.insert(key.to_owned(), value);
    let mut input = schema::listed_input(&definition.input_schema);
    if revision.has_sessions() {
        schema::allow_other_members(&mut input);
    }
    put("inputSchema", input);
    if let Some(output) = &definition.output_schema {
        let is_object = output.get("type").is_some_and(|kind| kind == "object");
        let is_known = revision.has_structured_values_of_any_kind()
            || revision.has_structured_results() && is_object;
        if is_known && let Some(output) = schema::listed_output(output) {
            put("outputSchema", output);
        }
    }
    if revision.has_annotations()
        && let Ok(Value::Object(mut hints)) = serde_json::to_value(&definition.annotations)
    {
        if let Some(title) = title
            && !revision.has_structured_results()
        {
            hints.entry("title").or_insert_with(|| title.into());
        }
        if !hints.is_empty() {
            put("annotations", hints.into());
        }
    }
    if revision.has_core_tasks() && definition.task != TaskSupport::Forbidden {
        put(
            "execution",
            json!({"taskSupport": definition.task.as_str()}),
        );
    }
    put_common(&mut tool, &definition.icons, &definition.meta, revision);
    tool
}

fn resource(
    definition: &ResourceDefinition,
    uri: &'static str,
    revision: Revision,
) -> Map<String, Value> {
    let (title, description) = (
        definition.title.as_deref(),
        definition.description.as_deref(),
    );
    let mut shown = Map::new();
    shown.insert(uri.to_owned(), definition.uri.clone().into());
    put_names(&mut shown, &definition.name, title, description, revision);
    let mut put = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    if let Some(mime_type) = &definition.mime_type {
        put("mimeType", mime_type.clone().into());
    }
    let annotations = annotations_for(&definition.annotations, revision);
    if annotations != Annotations::default() {
        put("annotations", tree(&annotations));
    }
    put_common(&mut shown, &definition.icons, &definition.meta, revision);
    shown
}

fn prompt(definition: &PromptDefinition, revision: Revision) -> Map<String, Value> {
    let (title, description) = (
        definition.title.as_deref(),
        definition.description.as_deref(),
    );
    let mut shown = Map::new();
    put_names(&mut shown, &definition.name, title, description, revision);
    if !definition.arguments.is_empty() {
        let mut arguments = definition.arguments.clone();
        if !revision.has_structured_results() {
            for argument in &mut arguments {
                argument.title = None;
            }
        }
        shown.insert("arguments".to_owned(), tree(&arguments));
    }
    put_common(&mut shown, &definition.icons, &definition.meta, revision);
    shown
}

/// Puts the members that all kinds of items begin with.
fn put_names(
    shown: &mut Map<String, Value>,
    name: &str,
    title: Option<&str>,
    description: Option<&str>,
    revision: Revision,
) {
    let title = title.filter(|_| revision.has_structured_results());
    let members = [
        ("name", Some(name)),
        ("title", title),
        ("description", description),
    ];
    for (member, text) in members {
        if let Some(text) = text {
            shown.insert(member.to_owned(), text.into());
        }
    }
}

fn put_common(
    shown: &mut Map<String, Value>,
    icons: &[Icon],
    meta: &Map<String, Value>,
    revision: Revision,
) {
    if revision.has_icons() && !icons.is_empty() {
        shown.insert("icons".to_owned(), tree(icons));
    }
    if revision.has_structured_results() && !meta.is_empty() {
        shown.insert("_meta".to_owned(), meta.clone().into());
    }
}

/// Annotations without what the revision does not know.
pub fn annotations_for(annotations: &Annotations, revision: Revision) -> Annotations {
    let mut annotations = annotations.clone();
    if !revision.has_structured_results() {
        annotations.last_modified = None;
    }
    annotations
}

fn tree<T: Serialize + ?Sized>(value: &T) -> Value {
    match serde_json::to_value(value) {
        Ok(value) => value,
        Err(_) => unreachable!("definitions have nothing that JSON cannot hold"),
    }
}
