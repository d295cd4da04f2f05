//! Component functions as tools.

use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::component::{ComponentExportIndex, Val};

use super::config::{ComponentSourceConfig, ComponentToolConfig};
use super::host::{Host, host};
use super::instance::{Bounds, CallError, InstanceResult};
use super::load::{Compiled, Function, load};
use super::name::tool_names;
use super::shape::{JsonType, Signature};
use super::value::{MemoryBudget, lower_all, to_json};
use crate::catalog::{
    Arguments, CallContext, Definition, InvalidArguments, Output, OutputContent, ToolError,
};
use crate::net::{Bulkhead, BulkheadConfig, ShareKey};
use crate::protocol::ToolAnnotations;
use crate::source::builder::SourceBuilder;
use crate::source::client_stats::ClientStatsHandle;
use crate::source::limits::{GRACE, time_limit};
use crate::source::name::{NAME_CHARACTERS_MAX, shortened};
use crate::source::parts::SourceParts;
use crate::source::pattern::matches;
use crate::source::reuse::BulkheadUser;
use crate::source::tool_plan::{PlanTool, ToolPlan};

/// Calls one function.
struct Plan {
    component: Arc<Loaded>,
    function: ComponentExportIndex,
    signature: Signature,
    /// Name of the function in the log.
    id: String,
}

/// State that all functions of a component share.
struct Loaded {
    host: &'static Host,
    source: String,
    compiled: Arc<Compiled>,
    bounds: Bounds,
    bulkhead: Arc<Bulkhead>,
}

/// Maximum number of characters of a component's own error shown to the model.
const ERROR_CHARACTERS: usize = 10_000;

/// Collects the tools of a component.
pub(super) fn collect(config: &ComponentSourceConfig, collector: &mut SourceBuilder) {
    let component = match Loaded::new(config, &collector.source, &collector.parts) {
        Ok(component) => Arc::new(component),
        Err((setting, problem)) => {
            return collector.refuse(&format!("component.{setting}"), problem);
        }
    };
    collector.count(ClientStatsHandle::of_bulkhead(
        &collector.source,
        "component",
        &component.bulkhead,
    ));
    let prefix = collector.prefix_of_document();
    let functions = &component.compiled.functions;
    let names = tool_names(
        functions
            .iter()
            .map(|function| (function.interface.as_deref(), &*function.name)),
    );
    let mut taken: HashMap<String, String> = HashMap::new();
    for (function, own_name) in functions.iter().zip(names) {
        let id = function.id();
        if !wants(config, &function.name, &id) {
            continue;
        }
        let place = format!("component ({id})");
        let reported = config
            .tools
            .get(&id)
            .or_else(|| config.tools.get(&function.name));
        let tool_name = reported
            .and_then(|reported| reported.name.clone())
            .unwrap_or(own_name);
        let tool_name = shortened(&format!("{prefix}{tool_name}"), NAME_CHARACTERS_MAX);
        if let Some(other) = taken.get(&tool_name) {
            let problem = format!(
                "its name {tool_name} is that of {other} already; choose another one in component.tools"
            );
            collector.refuse(&place, problem);
            continue;
        }
        match tool_of(&component, function, &tool_name, reported) {
            Ok(tool) => {
                taken.insert(tool_name, id);
                collector.offer(tool);
            }
            Err(problem) => collector.refuse(&place, problem),
        }
    }
    for reported in config.tools.keys() {
        let is_one = |function: &Function| function.name == *reported || function.id() == *reported;
        if !functions.iter().any(is_one) {
            let known: Vec<String> = functions.iter().map(Function::id).collect();
            collector.refuse(
                &format!("component.tools.{reported}"),
                format!(
                    "it exports no such function; it exports {}",
                    known.join(", ")
                ),
            );
        }
    }
    if taken.is_empty() {
        collector.refuse("component", "no function of the component became a tool");
    }
}

fn wants(config: &ComponentSourceConfig, name: &str, id: &str) -> bool {
    let among = |patterns: &[String]| {
        patterns
            .iter()
            .any(|pattern| matches(pattern, id) || matches(pattern, name))
    };
    (config.include.is_empty() || among(&config.include)) && !among(&config.exclude)
}

impl Loaded {
    fn new(
        config: &ComponentSourceConfig,
        source: &str,
        parts: &SourceParts,
    ) -> Result<Self, (String, String)> {
        let of_file = |problem: String| ("path".to_owned(), problem);
        let bounds = Bounds::new(config)?;
        let host = host().map_err(of_file)?;
        let compiled = load(host, &config.path).map_err(of_file)?;
        let bulkhead = BulkheadConfig {
            concurrency: config.limits.concurrency,
            queue_ms: config.limits.queue_ms,
            // Each call has its own instance, so a failed call says nothing about the next.
            breaker_failures: 0,
            ..BulkheadConfig::default()
        };
        Ok(Self {
            host,
            source: source.to_owned(),
            compiled,
            bounds,
            bulkhead: parts.reuse.bulkhead(
                BulkheadUser::Component(source.to_owned(), bulkhead.clone()),
                || Bulkhead::new(source, &bulkhead),
            ),
        })
    }
}

fn tool_of(
    component: &Arc<Loaded>,
    function: &Function,
    name: &str,
    reported: Option<&ComponentToolConfig>,
) -> Result<PlanTool<Plan>, String> {
    let signature = function.signature.clone()?;
    let none = ComponentToolConfig::default();
    let reported = reported.unwrap_or(&none);
    for argument in reported.arguments.keys() {
        if signature
            .parameters
            .iter()
            .all(|(name, _)| name != argument)
        {
            return Err(format!(
                "component.tools describes an argument {argument}, which the function does not have: {}",
                signature.text
            ));
        }
    }
    let mut hints = ToolAnnotations::default();
    // Without a writable folder, a component cannot change anything.
    hints.read_only_hint = Some(
        reported
            .read_only
            .unwrap_or_else(|| !component.bounds.may_write()),
    );
    hints.destructive_hint = reported.destructive;
    hints.idempotent_hint = reported.idempotent;
    hints.open_world_hint = Some(false);
    let description = reported.description.as_ref().unwrap_or(&signature.text);
    let mut definition = Definition::new(name)
        .description(description)
        .input_schema(signature.input_schema(|name| reported.arguments.get(name).cloned()))
        .annotations(hints)
        .timeout(time_limit(component.bounds.limits.timeout_seconds) + GRACE);
    definition.title.clone_from(&reported.title);
    definition.output_schema = signature.output_schema();
    Ok(PlanTool {
        definition,
        plan: Arc::new(Plan {
            component: Arc::clone(component),
            function: function.index,
            signature,
            id: function.id(),
        }),
    })
}

impl ToolPlan for Plan {
    async fn run(
        self: Arc<Self>,
        context: Arc<CallContext>,
        arguments: Arguments,
    ) -> Result<Output, ToolError> {
        let host = self.component.host;
        // The call runs on another runtime, so the caller's share key is read here.
        let caller = context.share;
        let done = host
            .run(async move { self.call(&arguments, caller).await })
            .await;
        done.unwrap_or_else(|| Err(ToolError::internal("the server is shutting down")))
    }
}

impl Plan {
    async fn call(&self, arguments: &Arguments, caller: ShareKey) -> Result<Output, ToolError> {
        let bounds = &self.component.bounds;
        let pass = self.component.bulkhead.enter_for(caller).await?;
        let arguments = arguments.to_map()?;
        let mut room = MemoryBudget::new(bounds.limits.memory_bytes);
        let parameters = lower_all(&self.signature.parameters, &arguments, &mut room)
            .map_err(|misfit| InvalidArguments::new(misfit.to_string()))?;
        drop(arguments);
        let results = usize::from(self.signature.result.is_some());
        let compiled = &self.component.compiled;
        let ended = bounds
            .call(compiled, &self.function, &parameters, results)
            .await;
        self.log_output(&ended);
        match &ended.result {
            Ok(value) => {
                pass.succeeded();
                self.output(value.as_ref())
            }
            Err(error) => {
                pass.failed();
                Err(failure(error, &ended))
            }
        }
    }

    /// Logs the output of the component.
    fn log_output(&self, ended: &InstanceResult) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (stdout, stderr) = (ended.stdout.text(), ended.stderr.text());
        if !stdout.is_empty() || !stderr.is_empty() {
            tracing::debug!(
                source = self.component.source,
                function = self.id,
                stdout,
                stderr,
                "a component has written something"
            );
        }
    }

    fn output(&self, value: Option<&Val>) -> Result<Output, ToolError> {
        let max = self.component.bounds.limits.output_bytes;
        let too_much = || ToolError::new(CallError::TooMuch { max }.to_string());
        let (shape, value) = match (&self.signature.result, value) {
            (Some(JsonType::Result(good, bad)), Some(Val::Result(result))) => match result {
                Ok(value) => (good.as_deref(), value.as_deref()),
                Err(value) => return Err(refusal(bad.as_deref(), value.as_deref(), max)),
            },
            (shape, value) => (shape.as_ref(), value),
        };
        match shape.zip(value) {
            None => Ok(Output::text("done")),
            Some((_, Val::String(text))) if max < text.len() => Err(too_much()),
            Some((_, Val::String(text))) => Ok(Output::text(text.clone())),
            Some((_, Val::Char(one))) => Ok(Output::text(one.to_string())),
            Some((shape, value)) => Ok(Output {
                content: OutputContent::Structured,
                structured: Some(to_json(shape, value, max).map_err(|_| too_much())?),
                ..Output::default()
            }),
        }
    }
}

/// Converts the error value of a function's result to a tool error.
fn refusal(shape: Option<&JsonType>, value: Option<&Val>, max: usize) -> ToolError {
    let text = match shape.zip(value) {
        None => return ToolError::new("the function failed, and does not say why"),
        Some((_, Val::String(text))) => text.chars().take(ERROR_CHARACTERS).collect::<String>(),
        Some((shape, value)) => match to_json(shape, value, max) {
            Ok(json) => json.chars().take(ERROR_CHARACTERS).collect(),
            Err(_) => "the function failed, and its error message is too long".to_owned(),
        },
    };
    ToolError::new(text)
}

/// Returns the error that the model sees for a failed call. The component's output only goes to the log, since it can
/// contain paths of the machine that built it.
fn failure(error: &CallError, ended: &InstanceResult) -> ToolError {
    /// Maximum number of characters of the output in the log.
    const SHOWN: usize = 2000;
    let problem = match error {
        CallError::Broken { problem } => Some(problem.clone()),
        _ => None,
    };
    let shown: String = ended.stderr.text().chars().take(SHOWN).collect();
    let complaint = (!shown.is_empty()).then(|| format!("it wrote: {shown}"));
    let causes: Vec<String> = problem.into_iter().chain(complaint).collect();
    let reported = ToolError::new(error.to_string());
    match causes.is_empty() {
        true => reported,
        false => reported.caused_by(causes.join("; ")),
    }
}
