//! Conversion of a registry's server to an entry of `upstreams`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::listed::{Argument, Input, Package, Remote, Server};
use crate::source::name::sanitized;

/// Preferred kind of a server that is available in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// A remote server.
    #[default]
    Remote,
    /// A program that runs locally.
    Package,
}

/// An entry of `upstreams`.
#[derive(Debug, Default, PartialEq)]
pub struct Entry {
    /// Name of the upstream.
    pub name: String,
    /// Configuration of the upstream.
    pub config: Map<String, Value>,
    /// Required environment variables, each with its purpose.
    pub needed: BTreeMap<String, String>,
    /// Optional settings, each with its purpose.
    pub optional: Vec<String>,
    /// Command lines to run once before it is used.
    pub before: Vec<String>,
}

/// Returns the entry for a server.
///
/// # Errors
///
/// Returns the reason for each way in which the server is available.
pub fn entry(server: &Server, preference: Preference) -> Result<Entry, Vec<String>> {
    let mut refused = Vec::new();
    let remotes = {
        let mut remotes: Vec<&Remote> = server.remotes.iter().collect();
        remotes.sort_by_key(|remote| remote.kind != "streamable-http");
        remotes
            .into_iter()
            .map(|remote| of_remote(remote).map_err(|why| format!("{}: {why}", remote.url)))
    };
    let packages = server
        .packages
        .iter()
        .map(|package| of_package(package).map_err(|why| format!("{}: {why}", package.identifier)));
    let ways: Vec<Result<Entry, String>> = match preference {
        Preference::Remote => remotes.chain(packages).collect(),
        Preference::Package => packages.chain(remotes).collect(),
    };
    for way in ways {
        match way {
            Ok(entry) => {
                return Ok(Entry {
                    name: name_of(&server.name),
                    ..entry
                });
            }
            Err(why) => refused.push(why),
        }
    }
    if refused.is_empty() {
        refused.push("it has neither a remote nor a package".to_owned());
    }
    Err(refused)
}

/// Returns the last part of a server's name.
pub(super) fn name_of(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    match sanitized(last) {
        name if name.is_empty() => "server".to_owned(),
        name => name,
    }
}

fn of_remote(remote: &Remote) -> Result<Entry, String> {
    let mut entry = Entry::default();
    let url = entry.filled(&remote.url, &remote.variables);
    let parsed = url::Url::parse(&remote.url.replace(['{', '}'], ""));
    if !parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some()) {
        return Err("it is not an http or https URL".to_owned());
    }
    entry.config.insert("url".to_owned(), url.into());
    let mut headers = Map::new();
    for header in &remote.headers {
        if let Some(value) = entry.value(&header.name, &header.input) {
            headers.insert(header.name.clone(), value.into());
        }
    }
    if !headers.is_empty() {
        entry.config.insert("headers".to_owned(), headers.into());
    }
    Ok(entry)
}

fn of_package(package: &Package) -> Result<Entry, String> {
    if !matches!(&*package.transport.kind, "" | "stdio") {
        return Err(format!(
            "it speaks {} and not over standard input and output; start it, and name its URL",
            package.transport.kind
        ));
    }
    // A leading dash would make it an option.
    if package.identifier.is_empty() || package.identifier.starts_with('-') {
        return Err("its name cannot be started as a package".to_owned());
    }
    let mut entry = Entry::default();
    let mut variables = Map::new();
    for variable in &package.environment_variables {
        if let Some(value) = entry.value(&variable.name, &variable.input) {
            variables.insert(variable.name.clone(), value.into());
        }
    }
    let pinned = match &*package.version {
        "" => package.identifier.clone(),
        version => format!("{}@{version}", package.identifier),
    };
    let pinned = literal(&pinned);
    let runtime = entry.arguments(&package.runtime_arguments);
    let own = entry.arguments(&package.package_arguments);
    // The registry type decides which program starts the package; an untrusted entry cannot choose one.
    let (command, args) = match &*package.registry_type {
        "npm" => (
            "npx",
            [vec!["-y".to_owned()], runtime, vec![pinned], own].concat(),
        ),
        "pypi" => ("uvx", [runtime, vec![pinned], own].concat()),
        "nuget" => {
            let end = (!own.is_empty()).then(|| "--".to_owned());
            let program = vec![pinned, "--yes".to_owned()];
            (
                "dnx",
                [runtime, program, end.into_iter().collect(), own].concat(),
            )
        }
        "cargo" => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if !package.identifier.chars().all(is_name) {
                return Err("its name is not that of a crate".to_owned());
            }
            let is_version = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
            if !package.version.chars().all(is_version) {
                return Err("its version is not that of a crate".to_owned());
            }
            let install = format!("cargo install --locked {pinned}");
            entry.before.push(install);
            (&*package.identifier, [runtime, own].concat())
        }
        "mcpb" => {
            return Err(
                "it is a bundle; add --unpack FOLDER to download it, check it and unpack it into a new folder"
                    .to_owned(),
            );
        }
        "oci" => {
            let run = ["run", "-i", "--rm"].map(str::to_owned).to_vec();
            let passed = variables
                .keys()
                .flat_map(|name| ["-e".to_owned(), literal(name)])
                .collect();
            let image = vec![literal(&image(package))];
            ("docker", [run, passed, runtime, image, own].concat())
        }
        other => return Err(format!("packages of the kind {other:?} cannot be started")),
    };
    entry.config.insert("command".to_owned(), command.into());
    entry.config.insert("args".to_owned(), json!(args));
    if !variables.is_empty() {
        entry.config.insert("env".to_owned(), variables.into());
    }
    Ok(entry)
}

/// Returns a container image with a tag.
fn image(package: &Package) -> String {
    let last = package.identifier.rsplit('/').next().unwrap_or_default();
    match &*package.version {
        version if !version.is_empty() && !last.contains([':', '@']) => {
            format!("{}:{version}", package.identifier)
        }
        _ => package.identifier.clone(),
    }
}

/// Escapes untrusted text for the configuration, so that it cannot refer to environment variables.
pub(super) fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// Returns the name of the environment variable for an input.
pub(super) fn variable_of(name: &str) -> String {
    let mut variable: String = name
        .chars()
        .map(|c| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        })
        .collect();
    if !variable.starts_with(|c: char| c.is_ascii_alphabetic()) {
        variable.insert_str(0, "VALUE_");
    }
    variable
}

impl Entry {
    /// Returns the value of an input, if it has one.
    fn value(&mut self, name: &str, input: &Input) -> Option<String> {
        match (&input.value, &input.default) {
            (Some(value), _) => Some(self.filled(value, &input.variables)),
            (None, Some(default)) if !input.is_secret => Some(literal(default)),
            (None, _) if input.is_required => Some(self.needs(name, input)),
            (None, _) => {
                self.optional.push(described(name, &input.description));
                None
            }
        }
    }

    /// Adds a required environment variable and returns a reference to it.
    fn needs(&mut self, name: &str, input: &Input) -> String {
        let variable = variable_of(name);
        let reference = format!("${{{variable}}}");
        self.needed.insert(variable, input.description.clone());
        reference
    }

    /// Replaces `{names}` in a text by their values.
    fn filled(&mut self, text: &str, variables: &BTreeMap<String, Input>) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let known = after
                .split_once('}')
                .and_then(|(name, after)| Some((name, after, variables.get(name)?)));
            match known {
                Some((name, after, input)) => {
                    filled.push_str(&literal(before));
                    let value = self.value(name, input);
                    filled.push_str(&value.unwrap_or_else(|| self.needs(name, input)));
                    rest = after;
                }
                None => {
                    filled.push_str(&literal(&format!("{before}{{")));
                    rest = after;
                }
            }
        }
        filled.push_str(&literal(rest));
        filled
    }

    fn arguments(&mut self, arguments: &[Argument]) -> Vec<String> {
        let mut words = Vec::new();
        for argument in arguments {
            let named = argument.kind == "named";
            let called = match (named, argument.value_hint.is_empty()) {
                (true, _) => argument.name.trim_start_matches('-'),
                (false, false) => &argument.value_hint,
                (false, true) => "argument",
            };
            // An option without a value is a flag.
            let is_flag = named
                && argument.input.value.is_none()
                && argument.input.default.is_none()
                && argument.value_hint.is_empty();
            if is_flag && argument.input.is_required {
                words.push(literal(&argument.name));
                continue;
            }
            if let Some(value) = self.value(called, &argument.input) {
                if named {
                    words.push(literal(&argument.name));
                }
                words.push(value);
            }
        }
        words
    }
}

fn described(name: &str, description: &str) -> String {
    match description {
        "" => name.to_owned(),
        description => format!("{name} ({description})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(server: Value, preference: Preference) -> Result<Entry, Vec<String>> {
        let server: Server = serde_json::from_value(server).expect("a server");
        entry(&server, preference)
    }

    fn both() -> Value {
        json!({
            "name": "io.github.example/weather",
            "packages": [{
                "registryType": "pypi", "identifier": "weather-mcp", "version": "0.5.0", "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": "WEATHER_KEY", "description": "A key", "isRequired": true, "isSecret": true},
                    {"name": "UNITS", "default": "metric"},
                    {"name": "TRACE", "description": "More output"},
                ],
            }],
            "remotes": [
                {"type": "sse", "url": "https://weather.example.com/sse"},
                {"type": "streamable-http", "url": "https://{tenant}.example.com/mcp",
                 "variables": {"tenant": {"description": "Yours", "isRequired": true}},
                 "headers": [{"name": "Authorization", "value": "Bearer {token}",
                              "variables": {"token": {"isRequired": true, "isSecret": true}}}]},
            ],
        })
    }

    #[test]
    fn what_runs_somewhere_is_preferred_unless_said_otherwise() {
        let remote = made(both(), Preference::Remote).expect("an entry");
        assert_eq!(remote.name, "weather");
        assert_eq!(
            Value::from(remote.config),
            json!({"url": "https://${TENANT}.example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}})
        );
        let needed: Vec<_> = remote.needed.keys().collect();
        assert_eq!(needed, ["TENANT", "TOKEN"]);
        let package = made(both(), Preference::Package).expect("an entry");
        assert_eq!(
            Value::from(package.config),
            json!({"command": "uvx", "args": ["weather-mcp@0.5.0"],
                   "env": {"WEATHER_KEY": "${WEATHER_KEY}", "UNITS": "metric"}})
        );
        assert_eq!(package.optional, ["TRACE (More output)"]);
    }

    #[test]
    fn each_kind_of_package_is_started_by_its_own_program() {
        let command = |kind: &str, more: Value| {
            let mut package = json!({"registryType": kind, "identifier": "a/b", "version": "1.0"});
            for (key, value) in more.as_object().into_iter().flatten() {
                package[key] = value.clone();
            }
            let entry = made(
                json!({"name": "x/y", "packages": [package]}),
                Preference::Remote,
            );
            entry.map(|entry| {
                let args = entry.config["args"].as_array().expect("a list").iter();
                let words = args.map(|arg| arg.as_str().expect("a text").to_owned());
                let command = entry.config["command"].as_str().expect("a text").to_owned();
                [vec![command], words.collect()].concat().join(" ")
            })
        };
        let arguments = json!({"packageArguments": [
            {"type": "positional", "valueHint": "target dir", "isRequired": true},
            {"type": "named", "name": "--mode", "default": "local"},
            {"type": "named", "name": "--verbose", "isRequired": true},
            {"type": "named", "name": "--port", "valueHint": "port"},
        ]});
        assert_eq!(
            command("npm", arguments.clone()).as_deref(),
            Ok("npx -y a/b@1.0 ${TARGET_DIR} --mode local --verbose")
        );
        assert_eq!(
            command("nuget", arguments).as_deref(),
            Ok("dnx a/b@1.0 --yes -- ${TARGET_DIR} --mode local --verbose")
        );
        let variables = json!({"environmentVariables": [{"name": "A", "value": "1"}],
                               "runtimeArguments": [{"type": "named", "name": "--network", "value": "none"}]});
        assert_eq!(
            command("oci", variables).as_deref(),
            Ok("docker run -i --rm -e A --network none a/b:1.0")
        );
        for tagged in ["a/b:2", "a/b@sha256:0"] {
            let run = format!("docker run -i --rm {tagged}");
            assert_eq!(command("oci", json!({"identifier": tagged})), Ok(run));
        }
        assert_eq!(
            command("cargo", json!({"identifier": "weather-mcp"})).as_deref(),
            Ok("weather-mcp")
        );
        assert!(command("cargo", json!({"identifier": "a; rm -r ~"})).is_err());
        assert!(command("mcpb", json!({})).is_err());
        assert!(command("npm", json!({"identifier": "--eval"})).is_err());
        assert!(command("npm", json!({"transport": {"type": "sse"}})).is_err());
    }

    #[test]
    fn what_a_stranger_writes_names_no_variable_of_ours_that_is_not_told() {
        let server = json!({"name": "x", "packages": [{
            "registryType": "npm", "identifier": "${SECRET}", "version": "${SECRET}",
            "packageArguments": [{"type": "positional", "value": "{a}${SECRET}{b", "variables": {"a": {"default": "${SECRET}"}}}],
            "environmentVariables": [{"name": "A", "default": "$${SECRET}"}, {"name": "B", "value": "${SECRET}"}],
        }]});
        let entry = made(server, Preference::Remote).expect("an entry");
        let text = Value::from(entry.config).to_string();
        assert_eq!(
            text.matches("${SECRET}").count(),
            text.matches("$${SECRET}").count()
        );
        assert_eq!(text.matches("${SECRET}").count(), 6, "{text}");
        assert!(entry.needed.is_empty());
    }

    #[test]
    fn a_server_that_cannot_be_had_says_why() {
        let reasons = |server: Value| made(server, Preference::Remote).expect_err("none");
        assert_eq!(reasons(json!({"name": "x"})).len(), 1);
        let both = json!({"name": "x", "remotes": [{"type": "sse", "url": "file:///etc/passwd"}],
                          "packages": [{"registryType": "mcpb", "identifier": "https://a.example/b.mcpb"}]});
        assert_eq!(reasons(both).len(), 2);
    }
}
