//! All settings, derived from the types: a JSON Schema for editors, and a list of settings for everything else.

use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Config;
use crate::catalog::schema::without_rust_formats;

/// When a changed setting takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Reload {
    /// When the configuration is reloaded.
    Live,
    /// After a restart.
    #[default]
    Restart,
}

/// A setting.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// Path, such as `http.port`. `[]` follows a list with settings per item, and `<name>` is a placeholder.
    pub path: String,
    /// Description.
    pub description: String,
    /// Default.
    pub default: Value,
    /// When a change takes effect.
    pub reload: Reload,
    /// Its value is never shown.
    pub is_secret: bool,
    /// Kind of the paths it holds; `None` if it holds none.
    pub(super) path_kind: Option<PathKind>,
    /// Values with a meaning, and what that is.
    pub choices: Vec<(String, String)>,
}

/// Kinds of settings that hold paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    /// All of them.
    File,
    /// All but URLs.
    Place,
    /// A program that is named with its folder, and not looked up in `PATH`; in a list, the first of its texts.
    Program,
}

/// A table of settings.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) path: String,
    pub(super) description: String,
    pub(super) settings: Vec<Setting>,
}

/// The mark of settings that take effect without a restart, in the schemas of the types.
const RELOAD: &str = "x-reload";

/// The mark of settings that hold paths, in the schemas of the types.
const PATH: &str = "x-path";

/// The JSON Schema of the configuration file.
pub fn schema() -> Value {
    let mut schema = RAW.clone();
    without_rust_formats(&mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "Longshore configuration".into());
        // Allows `$schema` in JSON files.
        if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("$schema".to_owned(), json!({ "type": "string" }));
        }
    }
    let tables = tables();
    mark(&mut schema, None, &tables);
    allow_variables(&mut schema);
    schema
}

/// Every setting, in the order of the types.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    sections().iter().flat_map(|section| &section.settings)
}

pub(super) fn sections() -> &'static [Section] {
    static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
        let mut walk = Walk {
            definitions: RAW.get("$defs").and_then(Value::as_object),
            sections: Vec::new(),
            depth: 0,
        };
        walk.table("", &RAW, String::new(), Reload::Restart);
        walk.sections
    });
    &SECTIONS
}

/// Returns the setting of a path, with any names and positions in it.
pub(super) fn setting(path: &[String]) -> Option<&'static Setting> {
    settings().find(|setting| fits(&setting.path, path))
}

/// Returns true if the value at a path is a secret or inside of one.
pub(super) fn is_secret(path: &[String]) -> bool {
    (1..=path.len()).any(|length| setting(&path[..length]).is_some_and(|setting| setting.is_secret))
}

fn fits(pattern: &str, path: &[String]) -> bool {
    let mut path = path.iter();
    for part in pattern.split('.') {
        let (name, is_list) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (part, false),
        };
        let Some(actual) = path.next() else {
            return false;
        };
        if name != "<name>" && name != actual {
            return false;
        }
        if is_list && path.next().is_none() {
            return false;
        }
    }
    path.next().is_none()
}

/// References to the types that are tables of settings rather than settings.
fn tables() -> Vec<String> {
    let definitions = RAW.get("$defs").and_then(Value::as_object);
    let tables = definitions
        .into_iter()
        .flatten()
        .filter(|(_, schema)| schema.get("properties").is_some());
    tables.map(|(name, _)| format!("#/$defs/{name}")).collect()
}

/// Generated schema. A release contains it as text, without the generator; a test compares the two.
static RAW: LazyLock<Value> = LazyLock::new(|| {
    if cfg!(debug_assertions) {
        schemars::schema_for!(Config).to_value()
    } else {
        serde_json::from_str(include_str!("schema.json")).unwrap_or_default()
    }
});

/// Says of every property whether it can be changed live, where a type has not said so.
fn mark(schema: &mut Value, inherited: Option<&Value>, tables: &[String]) {
    let own = schema.get(RELOAD).cloned();
    let reload = own.as_ref().or(inherited).cloned();
    match schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match (&**name, member) {
                    ("properties", Value::Object(properties)) => {
                        for property in properties.values_mut() {
                            mark(property, reload.as_ref(), tables);
                            if let Some(property) = property.as_object_mut()
                                && !property.contains_key(RELOAD)
                                && !tables
                                    .iter()
                                    .any(|table| property.get("$ref").is_some_and(|r| r == table))
                            {
                                let reload = reload.clone().unwrap_or_else(|| json!("restart"));
                                property.insert(RELOAD.to_owned(), reload);
                            }
                        }
                    }
                    ("default" | "const" | "enum" | "examples", _) => {}
                    (_, member) => mark(member, reload.as_ref(), tables),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                mark(item, inherited, tables);
            }
        }
        _ => {}
    }
}

/// Accepts variables instead of numbers, booleans and lists of strings: `port: ${PORT}`.
fn allow_variables(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if takes_variables(members)
                && let Some(one) = members.get_mut("type")
            {
                let mut types = match one.take() {
                    Value::Array(types) => types,
                    one => vec![one],
                };
                types.push("string".into());
                *one = types.into();
                members.insert("pattern".to_owned(), r"\$\{".into());
            }
            for (name, member) in members.iter_mut() {
                if !matches!(&**name, "default" | "const" | "enum" | "examples") {
                    allow_variables(member);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(allow_variables),
        _ => {}
    }
}

fn takes_variables(schema: &Map<String, Value>) -> bool {
    let has = |name: &str| match schema.get("type") {
        Some(Value::String(one)) => one == name,
        Some(Value::Array(types)) => types.iter().any(|one| one == name),
        _ => false,
    };
    let has_text = || {
        schema
            .get("items")
            .is_some_and(|items| text(items, "type") == "string")
    };
    let is_list = has("array") && has_text();
    let is_plain = ["integer", "number", "boolean"].into_iter().any(has);
    !has("string") && (is_plain || is_list)
}

struct Walk<'a> {
    definitions: Option<&'a Map<String, Value>>,
    sections: Vec<Section>,
    depth: usize,
}

/// Types that contain themselves are not followed further than this.
const DEPTH_MAX: usize = 8;

impl<'a> Walk<'a> {
    /// Collects what a table has; tables in it come after it.
    fn table(&mut self, path: &str, schema: &'a Value, description: String, reload: Reload) {
        if DEPTH_MAX <= self.depth {
            return;
        }
        self.depth += 1;
        let at = self.sections.len();
        self.sections.push(Section {
            path: path.to_owned(),
            description,
            settings: Vec::new(),
        });
        for (name, property) in self.properties(schema) {
            let path = match path {
                "" => name.to_owned(),
                _ => format!("{path}.{name}"),
            };
            self.property(at, &path, property, reload);
        }
        self.depth -= 1;
    }

    fn property(&mut self, section: usize, path: &str, property: &'a Value, reload: Reload) {
        let own = text(property, "description");
        let inner = self.resolve(property);
        let reload = reload_of(property)
            .or_else(|| reload_of(inner))
            .unwrap_or(reload);
        if !self.properties(inner).is_empty() && !is_optional(property) {
            let intro = match text(inner, "description") {
                "" => own,
                text => text,
            };
            self.table(path, inner, intro.to_owned(), reload);
            return;
        }
        let items = inner.get("items").map(|items| self.resolve(items));
        // `false` is that of a table whose settings are all known.
        let values = inner
            .get("additionalProperties")
            .filter(|values| values.is_object())
            .map(|values| self.resolve(values));
        let is_secret = [Some(inner), items, values]
            .into_iter()
            .flatten()
            .any(|schema| self.holds_secret(schema));
        let setting = Setting {
            path: path.to_owned(),
            description: match own {
                "" => text(inner, "description").to_owned(),
                own => own.to_owned(),
            },
            default: property.get("default").cloned().unwrap_or(Value::Null),
            reload,
            is_secret,
            path_kind: match text(property, PATH) {
                "file" => Some(PathKind::File),
                "place" => Some(PathKind::Place),
                "program" => Some(PathKind::Program),
                _ => None,
            },
            choices: self.choices(items.unwrap_or(inner)),
        };
        self.sections[section].settings.push(setting);
        let nested = match (items, values) {
            (Some(items), _) => Some((format!("{path}[]"), items)),
            (None, Some(values)) => Some((format!("{path}.<name>"), values)),
            (None, None) if !self.properties(inner).is_empty() => Some((path.to_owned(), inner)),
            (None, None) => None,
        };
        if let Some((path, schema)) = nested
            && !self.properties(schema).is_empty()
        {
            self.table(
                &path,
                schema,
                text(schema, "description").to_owned(),
                reload,
            );
        }
    }

    /// Returns true if a value is a secret, or a list entry that contains one.
    fn holds_secret(&self, schema: &'a Value) -> bool {
        let is_secret = |schema: &Value| schema.get("writeOnly") == Some(&Value::Bool(true));
        is_secret(schema)
            || self.properties(schema).into_iter().any(|(_, property)| {
                let property = self.resolve(property);
                let items = property.get("items").map(|items| self.resolve(items));
                is_secret(property) || items.is_some_and(is_secret)
            })
    }

    /// The schema that a reference means; for an optional type, that of its value.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..DEPTH_MAX {
            let reference = schema.get("$ref").and_then(Value::as_str);
            if let Some(name) = reference.and_then(|r| r.strip_prefix("#/$defs/")) {
                match self
                    .definitions
                    .and_then(|definitions| definitions.get(name))
                {
                    Some(definition) => schema = definition,
                    None => return schema,
                }
                continue;
            }
            let alternatives = schema.get("anyOf").and_then(Value::as_array);
            match alternatives.map(|all| all.iter().filter(|one| !is_null(one)).collect::<Vec<_>>())
            {
                Some(alternatives) if alternatives.len() == 1 => schema = alternatives[0],
                _ => return schema,
            }
        }
        schema
    }

    /// Returns the properties of an object, in all of its forms.
    fn properties(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value)> {
        let mut found: Vec<(&str, &Value)> = Vec::new();
        let mut add = |schema: &'a Value| {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                if !found.iter().any(|(known, _)| known == name) {
                    found.push((name, property));
                }
            }
        };
        add(schema);
        for form in ["oneOf", "anyOf", "allOf"] {
            for alternative in schema[form].as_array().into_iter().flatten() {
                add(self.resolve(alternative));
            }
        }
        found
    }

    fn choices(&self, schema: &'a Value) -> Vec<(String, String)> {
        let names = |schema: &'a Value| {
            let names = schema["enum"].as_array().into_iter().flatten();
            names.filter_map(|name| Some((name.as_str()?.to_owned(), String::new())))
        };
        let mut choices = Vec::new();
        for choice in schema["oneOf"].as_array().into_iter().flatten() {
            if let Some(name) = choice["const"].as_str() {
                choices.push((name.to_owned(), text(choice, "description").to_owned()));
            }
            choices.extend(names(choice));
        }
        choices.extend(names(schema));
        choices
    }
}

fn text<'a>(schema: &'a Value, member: &str) -> &'a str {
    schema[member].as_str().unwrap_or_default()
}

fn is_null(schema: &Value) -> bool {
    text(schema, "type") == "null"
}

fn is_optional(schema: &Value) -> bool {
    let alternatives = schema.get("anyOf").and_then(Value::as_array);
    alternatives.is_some_and(|all| all.iter().any(is_null))
}

fn reload_of(schema: &Value) -> Option<Reload> {
    match text(schema, RELOAD) {
        "live" => Some(Reload::Live),
        "restart" => Some(Reload::Restart),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::parts;

    #[test]
    fn settings_are_found_whatever_names_are_in_them() {
        for (pattern, path, does_fit) in [
            ("http.port", "http.port", true),
            ("http.port", "http", false),
            ("http", "http.port", false),
            ("auth.keys[].hash", "auth.keys.0.hash", true),
            ("auth.keys[].hash", "auth.keys.0.name", false),
            ("auth.keys[]", "auth.keys", false),
            ("tools.<name>.url", "tools.weather.url", true),
        ] {
            assert_eq!(fits(pattern, &parts(path)), does_fit, "{pattern} {path}");
        }
        assert!(is_secret(&parts("seal.keys")) && is_secret(&parts("seal.keys.0")));
        assert!(!is_secret(&parts("http.port")) && !is_secret(&[]));
    }

    #[test]
    fn settings_that_hold_paths_are_marked() {
        let marked = |path: &str| setting(&parts(path)).and_then(|setting| setting.path_kind);
        for (path, kind) in [
            ("http.tls.certificate", Some(PathKind::File)),
            ("builtin.filesystem.directories", Some(PathKind::File)),
            ("builtin.sql.databases.0.sqlite", Some(PathKind::File)),
            (
                "sources.0.component.directories.0.path",
                Some(PathKind::File),
            ),
            ("sources.0.http.auth.bearer_file", Some(PathKind::File)),
            (
                "upstreams.a.auth.oauth.subject_token_file",
                Some(PathKind::File),
            ),
            ("sources.0.openapi.document", Some(PathKind::Place)),
            ("sources.0.command.tools.0.argv", Some(PathKind::Program)),
            ("upstreams.a.command", Some(PathKind::Program)),
            ("upstreams.a.url", None),
            ("http.public_url", None),
        ] {
            assert_eq!(marked(path), kind, "{path}");
        }
        // Whoever adds one has to say so, or it is looked for somewhere else than all the others.
        let named_like_one = |path: &str| {
            let name = path.rsplit('.').next().unwrap_or_default();
            ["file", "dir", "folder", "directory", "directories", "cwd"]
                .iter()
                .any(|end| name == *end || name.ends_with(&format!("_{end}")))
        };
        for setting in settings().filter(|setting| named_like_one(&setting.path)) {
            let within = format!("{}[].", setting.path);
            let has_settings = settings().any(|other| other.path.starts_with(&within));
            assert!(
                setting.path_kind.is_some() || has_settings,
                "{}",
                setting.path
            );
        }
    }

    #[test]
    fn every_setting_has_a_description_and_says_when_it_changes() {
        for setting in settings() {
            assert!(!setting.description.is_empty(), "{}", setting.path);
        }
        let schema = schema();
        let properties = &schema["$defs"]["HttpConfig"]["properties"];
        assert_eq!(properties["port"][RELOAD], "restart");
        assert_eq!(properties["port"]["default"], 3000);
        // `uint16` is no format of JSON Schema.
        assert_eq!(properties["port"].get("format"), None);
        assert_eq!(properties["port"]["maximum"], 65_535);
        for format in ["uint", "int32", "int64", "float", "double"] {
            let format = format!(r#""format":"{format}"#);
            assert!(!schema.to_string().contains(&format), "{format}");
        }
    }

    #[test]
    fn the_schema_accepts_what_is_right_and_refuses_what_is_not() {
        let schema = jsonschema::validator_for(&schema()).expect("a schema");
        assert!(schema.is_valid(&json!({"http": {"port": 1}, "toolsets": ["demo"]})));
        assert!(!schema.is_valid(&json!({"http": {"prot": 1}})));
        assert!(!schema.is_valid(&json!({"transport": "carrier pigeon"})));
    }

    #[test]
    fn the_schema_accepts_variables_for_values_of_other_types() {
        let schema = jsonschema::validator_for(&schema()).expect("a schema");
        for http in [
            json!({"port": "${PORT}"}),
            json!({"insecure": "${INSECURE:-false}"}),
            json!({"allowed_hosts": "${HOSTS}"}),
            json!({"public_url": "${URL}"}),
        ] {
            assert!(schema.is_valid(&json!({"http": http})), "{http}");
        }
        for http in [
            json!({"port": "many"}),
            json!({"allowed_hosts": "a.example"}),
        ] {
            assert!(!schema.is_valid(&json!({"http": http})), "{http}");
        }
    }
}
