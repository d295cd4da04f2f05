//! Generates a configuration from a program's help text. Not used while serving.

mod help;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use self::help::{Flag, Help, Positional};
use self::memory::runs_within_default;
use super::config::{CommandLimits, CommandSourceConfig, CommandToolConfig};
use super::run::{Program, RunError};
use super::tool_of;
use crate::catalog::path_deserializer;
use crate::source::name::{NAME_CHARACTERS_MAX, sanitized, shortened};
use crate::source::parts::SourceParts;

/// Parameters of a discovery.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// Name or path of the program.
    pub program: String,
    /// Subcommands that lead to the starting point.
    pub words: Vec<String>,
    /// Number of levels of subcommands to visit below that.
    pub depth: usize,
    /// Timeout of each `--help` run, in seconds.
    pub timeout_seconds: u64,
    /// Environment variables of this process to pass to the program.
    pub inherit: Vec<String>,
}

/// Result of a discovery.
#[derive(Debug)]
pub struct Discovered {
    /// Generated configuration, in YAML.
    pub configuration: String,
    /// Number of tools.
    pub tools: usize,
    /// Items that were left out, with the reasons.
    pub left_out: Vec<String>,
    /// Items that are included but were not fully understood.
    pub unclear: Vec<String>,
}

/// Reason why a discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The program cannot be run.
    #[error("{0}")]
    Program(String),
    /// The program prints no usable help.
    #[error("the help of {0} describes nothing that could become a tool")]
    Nothing(String),
}

/// Reason why a program or a subcommand prints no help.
#[derive(Debug, thiserror::Error)]
enum HelpError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("it fails when it is asked for help")]
    Failed,
}

/// Maximum number of help runs, for all subcommands together.
const HELPS_MAX: usize = 200;
/// Maximum size of a help text, in bytes.
const HELP_BYTES: usize = 256 * 1024;
/// Names that have a meaning in templates.
const RESERVED: [&str; 22] = [
    "and",
    "arguments",
    "caller",
    "debug",
    "dict",
    "else",
    "false",
    "False",
    "for",
    "if",
    "in",
    "is",
    "loop",
    "namespace",
    "none",
    "None",
    "not",
    "or",
    "range",
    "self",
    "true",
    "True",
];

/// Reads the help of a program and of its subcommands.
///
/// The program runs as one of its tools would: isolated, without this process's environment, within limits. It is run
/// with `--help`, and with `-h` where that opens a manual. A program that does not know the option may perform its
/// normal action.
///
/// # Errors
///
/// The program cannot be run, or prints nothing that can be used.
pub async fn discover(discovery: &Discovery) -> Result<Discovered, DiscoveryError> {
    let source = CommandSourceConfig {
        inherit: discovery.inherit.clone(),
        limits: CommandLimits {
            timeout_seconds: discovery.timeout_seconds,
            output_bytes: HELP_BYTES,
            // Some runtimes reserve much address space even to print help, so it is not limited here.
            memory_bytes: 0,
            ..CommandLimits::default()
        },
        ..CommandSourceConfig::default()
    };
    let program = Program::new(&source, &discovery.program)
        .map_err(|problem| DiscoveryError::Program(problem.replace("argv[0]: ", "")))?;
    let mut search = Search {
        source: &source,
        program,
        argv0: whole(&discovery.program),
        helps: 0,
        names: BTreeSet::new(),
        tools: Vec::new(),
        left_out: Vec::new(),
        unclear: Vec::new(),
        first_code: None,
        is_unlimited: false,
    };
    // Subcommands still to visit, the next one last.
    let mut waiting = vec![(discovery.words.clone(), String::new(), discovery.depth)];
    while let Some((words, about, depth)) = waiting.pop() {
        let called = search.called(&words);
        if search.helps == HELPS_MAX {
            let rest = waiting.len() + 1;
            let reported = format!("{called} and {rest} more: {HELPS_MAX} subcommands were asked");
            search.left_out.push(reported);
            break;
        }
        let help = match search.help(&words).await {
            Ok(help) => help,
            Err(problem) if search.helps == 1 && words == discovery.words => {
                return Err(DiscoveryError::Program(format!("{called}: {problem}")));
            }
            Err(problem) => {
                search.left_out.push(format!("{called}: {problem}"));
                continue;
            }
        };
        if help.commands.is_empty() {
            search.tool(&words, &about, &help);
        } else if depth == 0 {
            let reported = format!("{called}: it has subcommands; ask deeper with --depth");
            search.left_out.push(reported);
        } else {
            for command in help.commands.into_iter().rev() {
                let mut longer = words.clone();
                longer.push(command.name);
                waiting.push((longer, command.about, depth - 1));
            }
        }
    }
    if search.tools.is_empty() {
        return Err(DiscoveryError::Nothing(search.called(&discovery.words)));
    }
    let first_code = search.first_code.flatten();
    if !runs_within_default(&source, discovery, first_code).await {
        search.is_unlimited = true;
        let base = search.base();
        search.unclear.push(format!(
            "{base}: it reserves more address space than the default limit allows, so limits.memory_bytes is 0, without a limit"
        ));
    }
    Ok(Discovered {
        configuration: search.configuration(discovery),
        tools: search.tools.len(),
        left_out: search.left_out,
        unclear: search.unclear,
    })
}

/// Returns true if a program reports that it has no manual to show.
fn wants_manual(said: &str) -> bool {
    let lower = said.to_lowercase();
    ["man viewer", "manual", "man:", "'man'", " man page"]
        .iter()
        .any(|part| lower.contains(part))
}

/// Returns an absolute path, which does not depend on the server's working directory.
fn whole(program: &str) -> String {
    if !program.contains('/') {
        return program.to_owned();
    }
    std::path::absolute(program)
        .map_or_else(|_| program.to_owned(), |path| path.display().to_string())
}

struct Search<'a> {
    source: &'a CommandSourceConfig,
    program: Program,
    argv0: String,
    helps: usize,
    names: BTreeSet<String>,
    tools: Vec<Value>,
    left_out: Vec<String>,
    unclear: Vec<String>,
    /// Exit code of the first help run.
    first_code: Option<Option<i32>>,
    /// True if the tools need more than the default limit of memory.
    is_unlimited: bool,
}

impl Search<'_> {
    /// Returns the base name of the program.
    fn base(&self) -> String {
        let name = Path::new(&self.argv0).file_name();
        name.map_or_else(
            || self.argv0.clone(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    fn called(&self, words: &[String]) -> String {
        let mut called = self.base();
        for word in words {
            called.push(' ');
            called.push_str(word);
        }
        called
    }

    async fn help(&mut self, words: &[String]) -> Result<Help, HelpError> {
        self.helps += 1;
        let (code, said) = self.ask(words, "--help").await?;
        self.first_code.get_or_insert(code);
        let base = self.base();
        let mut path = vec![&*base];
        path.extend(words.iter().map(|word| &**word));
        let mut help = Help::read(&said, &path);
        // `git add --help` opens the manual, which may not be installed; its usage is shorter and clearer.
        if (help.is_manual || help.is_nothing() && wants_manual(&said))
            && let Ok((_, usage)) = self.ask(words, "-h").await
        {
            let short = Help::read(&usage, &path);
            if short.has_usage && !short.is_manual {
                let about = match help.is_manual {
                    true => std::mem::take(&mut help.about),
                    false => String::new(),
                };
                help = short;
                help.about = about;
            }
        }
        // Some programs report other errors before they read their options.
        if code != Some(0) && help.is_nothing() {
            return Err(HelpError::Failed);
        }
        Ok(help)
    }

    /// Runs the program with one help option. Returns how it ended and what it printed.
    async fn ask(
        &self,
        words: &[String],
        option: &str,
    ) -> Result<(Option<i32>, String), HelpError> {
        let mut line = words.to_vec();
        line.push(option.to_owned());
        let ended = self.program.run(&line, None, BTreeMap::new()).await?;
        // Some programs print their help to standard error, and some exit with a failure.
        let said = if ended.stdout.trim_ascii().is_empty() {
            ended.stderr
        } else {
            ended.stdout
        };
        Ok((ended.code, String::from_utf8_lossy(&said).into_owned()))
    }

    fn tool(&mut self, words: &[String], about: &str, help: &Help) {
        let called = self.called(words);
        if help.has_more_forms {
            self.unclear.push(format!(
                "{called}: its usage has several forms, of which the first one is read"
            ));
        }
        if !help.not_understood.is_empty() {
            self.unclear.push(format!(
                "{called}: options that are not understood: {}",
                help.not_understood.join("; ")
            ));
        }
        if help.about.is_empty()
            && help.options.is_empty()
            && help.positionals.is_empty()
            && about.is_empty()
        {
            self.left_out.push(format!("{called}: its help is empty"));
            return;
        }
        let name = shortened(&sanitized(&called), NAME_CHARACTERS_MAX);
        if !self.names.insert(name.clone()) {
            self.left_out
                .push(format!("{called}: {name} exists already"));
            return;
        }
        let tool = described(&name, &self.argv0, words, about, help);
        let checked = path_deserializer::read::<CommandToolConfig>(&tool)
            .map_err(|misfit| misfit.cause.to_string())
            .and_then(|config| {
                let parts = SourceParts::default();
                tool_of(self.source, &config, "", &parts).map(drop)
            });
        match checked {
            Ok(()) => self.tools.push(tool),
            Err(problem) => self.left_out.push(format!("{called}: {problem}")),
        }
    }

    fn configuration(&self, discovery: &Discovery) -> String {
        let mut text = format!(
            "# Discovered from `{} --help`. Check every tool before you serve it: remove those that must not be called,\n\
             # and set `read_only: true` for those that change nothing. Values never begin an argument with a dash.\n\
             sources:\n  - name: {}\n    command:\n",
            self.called(&discovery.words),
            quoted(&sanitized(&self.base())),
        );
        if !discovery.inherit.is_empty() {
            let _ = writeln!(text, "      inherit: {}", inline(&json!(discovery.inherit)));
        }
        if self.is_unlimited {
            text.push_str("      limits: { memory_bytes: 0 }\n");
        }
        text.push_str("      tools:\n");
        for tool in &self.tools {
            let mut before = "        - ";
            for member in ["name", "description"] {
                if let Some(value) = tool.get(member) {
                    let _ = writeln!(text, "{before}{member}: {}", inline(value));
                    before = "          ";
                }
            }
            if let Some(arguments) = tool["arguments"].as_object().filter(|all| !all.is_empty()) {
                text.push_str("          arguments:\n");
                for (name, argument) in arguments {
                    let _ = writeln!(text, "            {}: {}", quoted(name), inline(argument));
                }
            }
            text.push_str("          argv:\n");
            for argument in tool["argv"].as_array().into_iter().flatten() {
                let _ = writeln!(text, "            - {}", inline(argument));
            }
        }
        text
    }
}

/// Quotes a string for YAML; plain scalars can have another meaning. Variables in it are not expanded.
fn quoted(text: &str) -> String {
    Value::from(text.replace("${", "$${")).to_string()
}

/// Formats a value as YAML on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| format!("{name}: {}", inline(value));
            let members: Vec<String> = members.iter().map(member).collect();
            format!("{{ {} }}", members.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns a tool's configuration.
fn described(name: &str, argv0: &str, words: &[String], about: &str, help: &Help) -> Value {
    let mut arguments = Map::new();
    let mut argv = vec![Value::from(argv0)];
    argv.extend(words.iter().map(|word| Value::from(&**word)));
    for flag in &help.options {
        let Some(argument) = argument_name(&flag.name, &arguments) else {
            continue;
        };
        argv.push(flag_in_argv(flag, &argument));
        arguments.insert(argument, flag_argument(flag));
    }
    for positional in &help.positionals {
        let Some(argument) = argument_name(&positional.name, &arguments) else {
            continue;
        };
        argv.push(format!("{{{{ {argument} }}}}").into());
        arguments.insert(argument, positional_argument(positional));
    }
    let description = if help.about.is_empty() {
        about
    } else {
        &help.about
    };
    let mut tool = json!({ "name": name, "arguments": arguments, "argv": argv });
    if !description.is_empty() {
        tool["description"] = description.into();
    }
    tool
}

/// Returns an argument name that is valid in templates and not yet taken.
fn argument_name(text: &str, taken: &Map<String, Value>) -> Option<String> {
    let text = text.trim_start_matches('-');
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        name.push(if c.is_ascii_alphanumeric() { c } else { '_' });
    }
    // Option names are kept as they are. Positional arguments are upper case only as a convention, so they become
    // lower case.
    if !name.chars().any(|c| c.is_ascii_lowercase()) && name.len() > 1 {
        name.make_ascii_lowercase();
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    if RESERVED.contains(&&*name) {
        name.push('_');
    }
    let is_name = name.chars().any(|c| c.is_ascii_alphanumeric());
    (is_name && !taken.contains_key(&name)).then_some(name)
}

fn flag_in_argv(flag: &Flag, argument: &str) -> Value {
    let name = &flag.name;
    match &flag.value {
        None => format!("{{% if {argument} %}}{name}{{% endif %}}").into(),
        Some(_) if name.starts_with("--") => format!("{name}={{{{ {argument} }}}}").into(),
        Some(_) => json!([name, format!("{{{{ {argument} }}}}")]),
    }
}

fn flag_argument(flag: &Flag) -> Value {
    let mut argument = Map::new();
    let kind = match &flag.value {
        None => Some("boolean"),
        Some(value) => kind_of(value),
    };
    if let Some(kind) = kind {
        argument.insert("type".to_owned(), kind.into());
    }
    if !flag.choices.is_empty() {
        argument.insert("enum".to_owned(), json!(flag.choices));
    }
    if !flag.about.is_empty() {
        argument.insert("description".to_owned(), flag.about.clone().into());
    }
    if !flag.is_required {
        argument.insert("optional".to_owned(), true.into());
    }
    Value::Object(argument)
}

fn positional_argument(positional: &Positional) -> Value {
    let mut argument = Map::new();
    if !positional.choices.is_empty() {
        argument.insert("enum".to_owned(), json!(positional.choices));
    }
    let description = match &*positional.about {
        "" => &positional.name,
        about => about,
    };
    argument.insert("description".to_owned(), description.into());
    if !positional.is_required {
        argument.insert("optional".to_owned(), true.into());
    }
    Value::Object(argument)
}

/// Returns the type of a value whose name leaves no doubt.
fn kind_of(value: &str) -> Option<&'static str> {
    match value.to_lowercase().as_str() {
        "n" | "num" | "number" | "count" | "int" | "integer" | "uint" => Some("integer"),
        "float" | "float64" => Some("number"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
