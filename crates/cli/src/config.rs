//! `longshore config`: schema, validation and origin of settings.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{self, print};
use super::run::{load, runtime};
use super::table::wide_table;
use super::{Failure, RunArgs};
use crate::app::{App, AppError};
use crate::environment::{Environment, Probe};
use crate::protocol::counted;
use crate::telemetry::check_export;
use longshore_app::config::{Config, Origin, ResolvedSetting, schema};

/// Options of `config`.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the JSON Schema of the configuration file, for editors
    ///
    /// The first line of a YAML file: # yaml-language-server: $schema=./longshore.schema.json
    /// A member of a JSON file:       "$schema": "./longshore.schema.json"
    /// The first line of a TOML file: #:schema ./longshore.schema.json
    #[command(verbatim_doc_comment)]
    Schema,
    /// Check whether a server with these settings would start and offer everything that they name; print all problems
    /// if not
    ///
    /// The exit code is 1 if the server would not start, if a configured item would not be offered (a missing
    /// document, a duplicate name of a tool or source, an upstream server that does not respond within
    /// upstreams_wait_seconds), or if nothing would be offered.
    Check(CheckArgs),
    /// Print every setting with its value and the origin of the value
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Skip what needs the network: upstream servers, and documents at URLs
    #[arg(long)]
    offline: bool,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
struct ExplainArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print only settings that are set or detected
    #[arg(long)]
    set: bool,

    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn config(args: ConfigArgs) -> Result<(), Failure> {
    match args.command {
        ConfigCommand::Schema => print(&format!("{:#}\n", schema())),
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Explain(args) => explain(args),
    }
}

/// Builds the server without binding its address.
fn check(args: CheckArgs) -> Result<(), Failure> {
    let loaded = load(args.run)?;
    let set = loaded
        .explain()
        .into_iter()
        .filter(|one| one.origin != Origin::Default)
        .count();
    let file = loaded.file.as_deref().map_or_else(
        || "without a file".to_owned(),
        |file| format!("with {}", file.display()),
    );
    output::start_logging(&loaded.config.log, Probe::real())?;
    let lacks_export = warn_of_export(&loaded.config);
    let runtime = runtime()?;
    let checked = runtime.block_on(Box::pin(App::new().loaded(loaded).check(args.offline)));
    runtime.shutdown_background();
    let mut checked = checked?;
    if lacks_export {
        checked.missing.push("telemetry.endpoint".to_owned());
    }
    if !checked.missing.is_empty() {
        let missing = checked.missing.join(", ");
        let problem = format!(
            "the server would start without a part of the configuration ({file}), see above: {missing}"
        );
        return Err(AppError::Refused(problem).into());
    }
    if checked.offers_nothing && checked.left_out.is_empty() {
        let problem = format!(
            "the server would start without any tools, resources or prompts ({file}): set toolsets, sources or upstreams"
        );
        return Err(AppError::Refused(problem).into());
    }
    let set = match set {
        1 => "1 setting has".to_owned(),
        _ => format!("{set} settings have"),
    };
    let tools = counted(checked.tools, "tool");
    let left_out = match checked.left_out.is_empty() {
        true => String::new(),
        false => format!("; not checked: {}", checked.left_out.join(", ")),
    };
    print(&format!(
        "the configuration is valid ({file}; {set} a value that is not the default; {tools}{left_out})\n"
    ))
}

/// Logs problems of the settings of the export, as a start does. Returns true if something would not be exported.
fn warn_of_export(config: &Config) -> bool {
    let service = (config.server.name.as_str(), config.server.version.as_str());
    let problems = check_export(&config.telemetry, Probe::real(), service);
    for doubt in problems.doubts {
        tracing::warn!("{doubt}");
    }
    problems.lacks_endpoint
}

fn explain(args: ExplainArgs) -> Result<(), Failure> {
    let loaded = load(args.run)?;
    let mut settings = loaded.explain();
    if args.set {
        settings.retain(|one| one.origin != Origin::Default);
    }
    if args.json {
        let settings: Vec<_> = settings.iter().map(as_json).collect();
        let document = json!({
            "environment": surroundings(&loaded.environment),
            "file": loaded.file.as_deref().map(std::path::Path::to_string_lossy),
            "settings": settings,
        });
        return print(&format!("{document:#}\n"));
    }
    let mut text = match args.set {
        true => String::new(),
        false => {
            let set = settings.iter().filter(|one| one.origin != Origin::Default);
            format!(
                "{} settings, {} of them not at the default; --set shows these alone\n\n",
                settings.len(),
                set.count()
            )
        }
    };
    for (what, value, evidence) in surroundings_in_words(&loaded.environment) {
        let _ = writeln!(text, "{what:<10} {value} ({evidence})");
    }
    text.push('\n');
    let mut table = wide_table(["SETTING", "VALUE", "CHANGES", "FROM"]);
    for one in &settings {
        let value = match &one.value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let reload = serde_json::to_value(one.reload).unwrap_or_default();
        let reload = reload.as_str().unwrap_or_default();
        table.add_row([&*one.setting, &*value, reload, &*one.from]);
    }
    print(&format!("{text}{}\n", table.trim_fmt()))
}

/// Lists the detected environment: names, values and evidence.
fn surroundings_in_words(environment: &Environment) -> Vec<(&'static str, String, String)> {
    let mut lines = Vec::new();
    let mut add = |what, value: String, evidence: &str| lines.push((what, value, evidence.into()));
    if let Some(seen) = &environment.cloud {
        add("cloud", seen.value.name().to_owned(), &seen.evidence);
    }
    if let Some(seen) = &environment.container {
        add("container", seen.value.name().to_owned(), &seen.evidence);
    }
    let kind = &environment.kind;
    add("run for", kind.value.name().to_owned(), &kind.evidence);
    if let Some(seen) = &environment.project {
        add("project", seen.value.clone(), &seen.evidence);
    }
    if let Some(seen) = &environment.system.cpu_millis {
        let cores = format!("{}.{:02} cores", seen.value / 1000, seen.value % 1000 / 10);
        add("CPU", cores, &seen.evidence);
    }
    if let Some(seen) = &environment.system.memory_bytes {
        let mib = format!("{} MiB", seen.value / (1024 * 1024));
        add("memory", mib, &seen.evidence);
    }
    lines
}

fn surroundings(environment: &Environment) -> Value {
    let lines = surroundings_in_words(environment).into_iter();
    let members = lines.map(|(what, value, evidence)| {
        let seen = json!({ "value": value, "evidence": evidence });
        (what.replace(' ', "_"), seen)
    });
    Value::Object(members.collect())
}

fn as_json(one: &ResolvedSetting) -> Value {
    let (kind, detail) = match &one.origin {
        Origin::Detected { evidence } => ("detector", json!(evidence)),
        Origin::File { line, column } => ("file", json!({ "line": line, "column": column })),
        Origin::Variable { name } => ("environment", json!(name)),
        Origin::Flag { name } => ("flag", json!(name)),
        _ => ("default", Value::Null),
    };
    json!({
        "setting": one.setting,
        "value": one.value,
        "origin": kind,
        "detail": detail,
        "reload": one.reload,
    })
}
