//! Command lines as tools. No shell is involved.

mod config;
#[cfg(feature = "cli")]
mod discover;
mod line;
mod run;

use std::sync::Arc;

use futures_util::future::{LocalBoxFuture, ready};

pub use config::{CommandLimits, CommandOutput, CommandSourceConfig, CommandToolConfig};
#[cfg(feature = "cli")]
pub use discover::{Discovery, discover};
pub use run::find_program;

use self::line::Line;
use self::run::{Program, RunError, RunResult};
use super::argument::{fill_in, input_schema, names, tree};
use super::builder::SourceBuilder;
use super::client_stats::ClientStatsHandle;
use super::kind::SourceKind;
use super::limits::{GRACE, time_limit};
use super::output_contract::{Mismatches, OutputContract};
use super::parts::SourceParts;
use super::response;
use super::reuse::BulkheadUser;
use super::template::{self, EscapeContext, Template, TemplateError};
use super::tool_plan::{PlanTool, ToolPlan};
use crate::catalog::{Arguments, CallContext, Definition, Output, ToolError};
use crate::net::{Bulkhead, with_causes};
use crate::protocol::ToolAnnotations;
use crate::protocol::scan::paired;

/// Runs one command line.
struct Plan {
    schema: serde_json::Value,
    line: Line,
    stdin: Option<Template>,
    program: Program,
    bulkhead: Arc<Bulkhead>,
    output: CommandOutput,
    media_type: Option<String>,
    ok: Vec<i32>,
    errors: std::collections::BTreeMap<i32, String>,
    promise: Option<OutputContract>,
    mismatches: Mismatches,
}

impl SourceKind for CommandSourceConfig {
    fn collect<'a>(&'a self, builder: &'a mut SourceBuilder) -> LocalBoxFuture<'a, ()> {
        collect(self, builder);
        Box::pin(ready(()))
    }
}

/// Collects the tools of a command source.
fn collect(command: &CommandSourceConfig, collector: &mut SourceBuilder) {
    let prefix = collector.prefix();
    for (position, tool) in command.tools.iter().enumerate() {
        match tool_of(command, tool, &prefix, &collector.parts) {
            Ok(tool) => {
                let name = &tool.definition.name;
                let gauge = ClientStatsHandle::of_bulkhead(name, "command", &tool.plan.bulkhead);
                collector.count(gauge.with_mismatches(&tool.plan.mismatches));
                collector.offer(tool);
            }
            Err(problem) => {
                let place = format!("command.tools[{position}] ({})", tool.name);
                collector.refuse(&place, problem);
            }
        }
    }
    if command.tools.is_empty() {
        collector.refuse(
            "command.tools",
            "it has no tools; add one, or remove the source",
        );
    }
}

fn tool_of(
    source: &CommandSourceConfig,
    config: &CommandToolConfig,
    prefix: &str,
    parts: &SourceParts,
) -> Result<PlanTool<Plan>, String> {
    let schema = input_schema(&config.arguments, config.input_schema.as_ref())?;
    let names = names(&schema);
    let names = names.as_deref();
    let line = Line::new(&config.argv, config.allow_leading_dash, names)?;
    let stdin = config
        .stdin
        .as_deref()
        .map(|text| Template::new(text, EscapeContext::Text, names));
    let mut errors = std::collections::BTreeMap::new();
    for (code, text) in &config.errors {
        let code = code
            .parse()
            .map_err(|_| format!("errors has {code:?}, which is not an exit code"))?;
        errors.insert(code, text.clone());
    }
    let name = format!("{prefix}{}", config.name);
    let limits = &source.limits;
    let mut hints = ToolAnnotations::default();
    hints.read_only_hint = Some(config.read_only);
    hints.destructive_hint = config.destructive;
    hints.idempotent_hint = config.idempotent;
    let mut definition = Definition::new(&name)
        .input_schema(schema.clone())
        .annotations(hints)
        .timeout(time_limit(limits.timeout_seconds) + GRACE);
    definition.title.clone_from(&config.title);
    definition.description.clone_from(&config.description);
    definition.output_schema.clone_from(&config.output_schema);
    let mismatches = parts.reuse.mismatches("command", &name);
    let promise = OutputContract::configured(config.output_schema.as_ref(), &name, &mismatches)?;
    let user = BulkheadUser::Command(name.clone(), Box::new(source.with_tool_alone(config)));
    let bulkhead = || Bulkhead::new(name, &limits.bulkhead());
    let bulkhead = parts.reuse.bulkhead(user, bulkhead);
    Ok(PlanTool {
        definition,
        plan: Arc::new(Plan {
            schema,
            program: Program::new(source, line.program())?,
            line,
            stdin: stdin
                .transpose()
                .map_err(|problem| format!("stdin: {problem}"))?,
            bulkhead,
            output: config.output,
            media_type: config.media_type.clone(),
            ok: config.ok.clone(),
            errors,
            promise,
            mismatches,
        }),
    })
}

impl ToolPlan for Plan {
    async fn run(
        self: Arc<Self>,
        context: Arc<CallContext>,
        arguments: Arguments,
    ) -> Result<Output, ToolError> {
        let mut arguments = tree(&arguments)?;
        fill_in(&mut arguments, &self.schema);
        let values = template::context(&arguments, context.principal());
        let line = self.line.fill(&values);
        let line = line.map_err(TemplateError::into_tool_error)?;
        let stdin = match &self.stdin {
            Some(template) => template
                .text(&values)
                .map_err(TemplateError::into_tool_error)?,
            None => None,
        };
        let pass = self.bulkhead.enter().await.map_err(|turned| {
            ToolError::new(format!("{}: {turned}", self.bulkhead.name())).caused_by(turned)
        })?;
        // OpenTelemetry, "Environment Variables as Context Propagation Carriers".
        let trace = context.traced();
        let trace = trace.map(|(name, value)| (name.to_ascii_uppercase(), value));
        let stdin = stdin.map(String::into_bytes);
        let ran = self.program.run(&line, stdin, trace.collect()).await;
        match &ran {
            // A command that does not start, or times out, will probably fail again.
            Err(RunError::Spawn { .. } | RunError::Timeout { .. }) => pass.failed(),
            _ => pass.succeeded(),
        }
        if let Err(error @ (RunError::Spawn { .. } | RunError::Broken { .. })) = &ran {
            let tool = self.bulkhead.name();
            tracing::warn!(name = tool, error = with_causes(error), "a command failed");
        }
        let ended = ran.map_err(|error| ToolError::new(error.to_string()).caused_by(error))?;
        let output = self.result(&ended)?;
        Ok(OutputContract::kept(self.promise.as_ref(), output))
    }
}

impl Plan {
    fn result(&self, ended: &RunResult) -> Result<Output, ToolError> {
        let is_ok = match ended.code {
            Some(code) => code == 0 || self.ok.contains(&code),
            None => false,
        };
        if !is_ok {
            return Err(self.failure(ended));
        }
        let is_nothing = match self.output {
            CommandOutput::Text => ended.stdout.trim_ascii().is_empty(),
            CommandOutput::Binary => ended.stdout.is_empty(),
            CommandOutput::Json => false,
        };
        if is_nothing {
            // Model APIs reject texts without characters, and empty images.
            return Ok(Output::text(match ended.code {
                Some(code) if code != 0 => {
                    format!("the command ended with status {code} and wrote no output")
                }
                _ => "the command wrote no output".to_owned(),
            }));
        }
        match self.output {
            CommandOutput::Text => Ok(Output::text(
                String::from_utf8_lossy(&ended.stdout).into_owned(),
            )),
            CommandOutput::Json => response::document(&paired(&ended.stdout))
                .ok_or_else(|| ToolError::new("the command did not write JSON")),
            CommandOutput::Binary => {
                let media_type = self.media_type.as_deref().unwrap_or_default();
                let content = response::binary(&ended.stdout, media_type, "command:output");
                Ok(Output::blocks([content]))
            }
        }
    }

    fn failure(&self, ended: &RunResult) -> ToolError {
        /// Maximum number of characters of the output shown to the model.
        const SHOWN: usize = 2000;
        if let Some(text) = ended.code.and_then(|code| self.errors.get(&code)) {
            return ToolError::new(text.clone());
        }
        let end = match ended.code {
            Some(code) => format!("the command ended with status {code}"),
            None => "the command was ended by a signal".to_owned(),
        };
        let mut complaint = String::from_utf8_lossy(&ended.stderr);
        // Compilers, linters and test programs report to standard output.
        if complaint.trim().is_empty() && self.output != CommandOutput::Binary {
            complaint = String::from_utf8_lossy(&ended.stdout);
        }
        match shortened_middle(complaint.trim(), SHOWN) {
            shown if shown.is_empty() => ToolError::new(end),
            shown => ToolError::new(format!("{end}: {shown}")),
        }
    }
}

/// Shortens a text to its beginning and its end, where programs sum up what went wrong.
fn shortened_middle(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let half = max / 2;
    let first: String = text.chars().take(half).collect();
    let last: String = text.chars().skip(count - half).collect();
    format!("{first}\n[...]\n{last}")
}

#[cfg(test)]
mod tests;
