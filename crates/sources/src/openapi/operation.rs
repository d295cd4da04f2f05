//! Conversion of an OpenAPI operation to a tool.

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Map, Value, json};

use super::body;
use super::direction::Direction;
use super::document::Document;
use super::form::Form;
use super::request::{BODY, Location, PIPE, Parameter, RequestMapping, SPACE, Style};
use super::schema::{SchemaInliner, TEXT_CHARACTERS};
use super::supplied::SuppliedParameters;
use super::text::{placeholders, text};
use crate::net::is_connection_header;
use crate::source::media_type::{essence, is_json, is_text};
use crate::source::name::{NAME_CHARACTERS_MAX, shortened};

/// Parsed operation with everything that a tool needs.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) input_schema: Value,
    pub(super) output_schema: Option<Value>,
    pub(super) shape: RequestMapping,
    /// True if its schemas were cut to the size limit.
    pub(super) cut: bool,
}

/// Approximate size limits of a tool's schemas, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaBytes {
    pub(super) input: usize,
    /// `None` if no output schema is wanted.
    pub(super) output: Option<usize>,
}

impl Operation {
    /// # Errors
    ///
    /// Describes why it cannot be a tool.
    pub(super) fn new(
        document: &Document,
        item: &Value,
        operation: &Value,
        (method, path): (&Method, &str),
        bytes: SchemaBytes,
        supplied: &SuppliedParameters,
    ) -> Result<Self, String> {
        // Some documents distinguish the operations of one path by a fragment, which is never sent.
        let path = path.split('#').next().unwrap_or_default();
        let mut copier = SchemaInliner::new(document, Direction::Input, bytes.input);
        let mut arguments = Arguments::default();
        let parameters = parameters(document, item, operation)?;
        // Path parameters come first, so that they get the plain names.
        for wanted in Location::ALL {
            for parameter in &parameters {
                if location(parameter)? == wanted && !supplied.has(wanted, text(parameter, "name"))
                {
                    arguments.parameter(&mut copier, parameter, wanted)?;
                }
            }
        }
        for name in placeholders(path) {
            let there = arguments
                .parameters
                .iter()
                .any(|parameter| parameter.location == Location::Path && parameter.name == name);
            if !there {
                // A path needs it, so the document forgot to declare it.
                let forgotten = json!({"name": name, "schema": {"type": "string"}});
                arguments.parameter(&mut copier, &forgotten, Location::Path)?;
            }
        }
        let body = arguments.body(document, &mut copier, operation, method)?;
        let mut input_schema = json!({ "type": "object", "properties": arguments.properties });
        if !arguments.required.is_empty() {
            input_schema["required"] = arguments.required.into();
        }
        input_schema["additionalProperties"] = false.into();
        let (definitions, cut) = copier.definitions()?;
        if !definitions.is_empty() {
            input_schema["$defs"] = definitions.into();
        }
        Ok(Self {
            input_schema,
            output_schema: bytes
                .output
                // A response to HEAD has no content.
                .filter(|_| *method != Method::HEAD)
                .and_then(|bytes| output_schema(document, operation, bytes)),
            cut,
            shape: RequestMapping {
                method: method.clone(),
                path: path.to_owned(),
                parameters: arguments.parameters,
                body,
            },
        })
    }
}

/// Arguments of a tool under construction.
#[derive(Default)]
struct Arguments {
    properties: Map<String, Value>,
    required: Vec<Value>,
    parameters: Vec<Parameter>,
}

impl Arguments {
    fn parameter(
        &mut self,
        copier: &mut SchemaInliner<'_>,
        parameter: &Value,
        location: Location,
    ) -> Result<(), String> {
        let name = text(parameter, "name");
        if name.is_empty() {
            return Err("one of its parameters has no name".to_owned());
        }
        if location == Location::Header {
            let header = HeaderName::try_from(name)
                .map_err(|_| format!("its parameter {name:?} is not a valid header name"))?;
            // These are not arguments (OpenAPI, Parameter Object), or follow from the request.
            if [ACCEPT, CONTENT_TYPE, AUTHORIZATION].contains(&header)
                || is_connection_header(&header)
            {
                return Ok(());
            }
        }
        if location == Location::Cookie
            && (name.contains(';') || HeaderValue::from_str(name).is_err())
        {
            return Err(format!("its parameter {name:?} is not a valid cookie name"));
        }
        let required =
            location == Location::Path || parameter.get("required") == Some(&Value::Bool(true));
        let content = parameter.get("content").and_then(Value::as_object);
        let (schema, (style, explode)) = match content.and_then(|content| content.iter().next()) {
            Some((kind, media)) => {
                let style = match &*essence(kind) {
                    kind if is_json(kind) => (Style::Json, false),
                    kind if kind == "*/*" || kind.starts_with("text/") => {
                        style(&Value::Null, location)?
                    }
                    _ => {
                        return Err(format!(
                            "its parameter {name} is {kind}, which cannot be written"
                        ));
                    }
                };
                (media.get("schema"), style)
            }
            None => (parameter.get("schema"), style(parameter, location)?),
        };
        let mut schema = copier.copy(schema.unwrap_or(&Value::Bool(true)))?;
        describe(&mut schema, parameter);
        let argument = self.free_name(name, location);
        if required {
            self.required.push(argument.clone().into());
        }
        self.properties.insert(argument.clone(), schema);
        self.parameters.push(Parameter {
            name: name.to_owned(),
            argument,
            location,
            style,
            explode,
            reserved: location == Location::Query
                && parameter.get("allowReserved") == Some(&Value::Bool(true)),
        });
        Ok(())
    }

    /// Returns an unused argument name, limited to what all model APIs accept.
    fn free_name(&self, name: &str, location: Location) -> String {
        let mut plain: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        let trimmed = plain.trim_matches('_');
        if !trimmed.is_empty() && trimmed.len() < plain.len() && !name.starts_with('_') {
            plain = trimmed.to_owned();
        }
        plain = shortened(&plain, NAME_CHARACTERS_MAX);
        if !self.properties.contains_key(&plain) && plain != BODY {
            return plain;
        }
        let candidate = format!("{plain}_{}", location.as_str());
        let mut candidate = shortened(&candidate, NAME_CHARACTERS_MAX);
        while self.properties.contains_key(&candidate) {
            candidate.push('_');
        }
        candidate
    }

    fn body(
        &mut self,
        document: &Document,
        copier: &mut SchemaInliner<'_>,
        operation: &Value,
        method: &Method,
    ) -> Result<Form, String> {
        let Some(body) = operation.get("requestBody") else {
            return Ok(Form::None);
        };
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(Form::None);
        }
        let body = document.resolve(body)?;
        let content = body.get("content").and_then(Value::as_object);
        let Some((kind, media)) = content.and_then(body::best_kind) else {
            return Ok(Form::None);
        };
        let (mut schema, form) = body::body(document, copier, kind, media)?;
        let own = [text(&schema, "description"), text(body, "description")];
        let own = own.into_iter().find(|text| !text.is_empty());
        let own = own.map(|text| text.chars().take(TEXT_CHARACTERS).collect::<String>());
        let parts: Vec<String> = own.into_iter().chain(form.note()).collect();
        if let Some(schema) = schema.as_object_mut()
            && !parts.is_empty()
        {
            schema.insert("description".to_owned(), parts.join("\n").into());
        }
        self.properties.insert(BODY.to_owned(), schema);
        if body.get("required") == Some(&Value::Bool(true)) {
            self.required.push(BODY.into());
        }
        Ok(form)
    }
}

/// Maximum number of parameters of an operation.
const PARAMETERS_MAX: usize = 500;

/// Returns the parameters of an operation, including those of its path that it does not override.
fn parameters<'a>(
    document: &'a Document,
    item: &'a Value,
    operation: &'a Value,
) -> Result<Vec<&'a Value>, String> {
    let list = |of: &'a Value| {
        let items = of.get("parameters").and_then(Value::as_array);
        items.map(Vec::as_slice).unwrap_or_default()
    };
    let mut found: Vec<&Value> = Vec::new();
    let count = list(item).len() + list(operation).len();
    if PARAMETERS_MAX < count {
        return Err(format!(
            "it has {count} parameters, and {PARAMETERS_MAX} is the most"
        ));
    }
    for parameter in list(item).iter().chain(list(operation)) {
        let parameter = document.resolve(parameter)?;
        let key = |parameter: &'a Value| (text(parameter, "name"), text(parameter, "in"));
        found.retain(|other| key(other) != key(parameter));
        found.push(parameter);
    }
    Ok(found)
}

fn location(parameter: &Value) -> Result<Location, String> {
    let place = text(parameter, "in");
    Location::parse(place).ok_or_else(|| {
        let name = text(parameter, "name");
        format!("its parameter {name} is in {place:?}, which is nowhere")
    })
}

/// Returns the style of a parameter, and true if it explodes.
fn style(parameter: &Value, location: Location) -> Result<(Style, bool), String> {
    let default = match location {
        Location::Path | Location::Header => "simple",
        Location::Query | Location::Cookie => "form",
    };
    let style = parameter["style"].as_str().unwrap_or(default);
    let explode = parameter["explode"].as_bool();
    let explode = explode.unwrap_or(style == "form");
    let style = match (style, location) {
        ("simple", Location::Path | Location::Header) => Style::Simple,
        ("label", Location::Path) => Style::Label,
        ("matrix", Location::Path) => Style::Matrix,
        ("form", Location::Query | Location::Cookie) => Style::Form,
        ("spaceDelimited" | "pipeDelimited", Location::Query) if explode => Style::Form,
        ("spaceDelimited", Location::Query) => Style::Delimited(SPACE),
        ("pipeDelimited", Location::Query) => Style::Delimited(PIPE),
        ("deepObject", Location::Query) => Style::DeepObject,
        _ => {
            return Err(format!(
                "its parameter {} has the style {style:?}, which is not possible there",
                text(parameter, "name")
            ));
        }
    };
    Ok((style, explode))
}

/// Returns the output schema, if every success response is the same kind of JSON object. For an API that can also
/// respond with no content (204), another type or a file, a schema would promise too much.
fn output_schema(document: &Document, operation: &Value, bytes: usize) -> Option<Value> {
    let responses = operation.get("responses")?.as_object()?;
    let mut schemas = responses
        .iter()
        .filter(|(status, _)| status.starts_with('2'))
        .map(|(_, response)| schema_of_response(document, response));
    let schema = schemas.next()??;
    if !schemas.all(|other| other == Some(schema)) {
        return None;
    }
    if document.resolve(schema).ok()?.get("type")? != "object" {
        return None;
    }
    let mut copier = SchemaInliner::new(document, Direction::Output, bytes);
    let mut copied = copier.copy(schema).ok()?;
    let (definitions, _) = copier.definitions().ok()?;
    // Older clients require the type at the root of the schema.
    if copied.get("$ref").is_some() {
        copied["type"] = "object".into();
    }
    if !definitions.is_empty() {
        copied["$defs"] = definitions.into();
    }
    copied
        .get("type")
        .is_some_and(|kind| kind == "object")
        .then_some(copied)
}

/// Returns the schema of a JSON response, even if another text format is available too.
fn schema_of_response<'d>(document: &'d Document, response: &'d Value) -> Option<&'d Value> {
    let content = document
        .resolve(response)
        .ok()?
        .get("content")?
        .as_object()?;
    if !content.keys().all(|kind| is_text(&essence(kind))) {
        return None;
    }
    let (_, media) = content.iter().find(|(kind, _)| is_json(&essence(kind)))?;
    media.get("schema")
}

/// Sets the description of an argument from its parameter.
fn describe(schema: &mut Value, parameter: &Value) {
    let Some(description) = parameter.get("description").and_then(Value::as_str) else {
        return;
    };
    if let Value::Bool(true) = schema {
        *schema = json!({});
    }
    if let Some(schema) = schema.as_object_mut() {
        let description: String = description.chars().take(TEXT_CHARACTERS).collect();
        schema.insert("description".to_owned(), description.into());
    }
}
