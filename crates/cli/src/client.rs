//! `longshore list`, `call`, `read` and `prompt`: client commands for a terminal or a script.

mod arguments;
mod form;
mod reach;
mod shown;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use self::arguments::Written;
pub(super) use self::form::Person;
use self::reach::{connected, connected_silently};
pub(super) use self::reach::{find, upstreams, url_of};
use self::shown::{block, blocks, contents_of, tables};
use super::config::print;
use super::output;
use super::paint::{ColorChoice, Paint};
use super::{Failure, complete, likeness_of, terminal};
use crate::app::AppError;
use crate::catalog::{HeaderParameter, header_parameters};
use crate::protocol::Method;
use longshore_sources::client::{Client, ClientError, Lifecycle, Listener, Params, RpcError};

/// Time after which a progress bar is drawn.
const BAR_AFTER: Duration = Duration::from_secs(1);
/// Help text about credentials, below the options.
pub(super) const CREDENTIALS: &str = "Credentials:\n  \
    The variable LONGSHORE_TOKEN holds a bearer token (an API key or an access token)\n  \
    for a server that is named by its URL. Without it the token of `longshore login URL`\n  \
    is used, if there is one. An upstream of the configuration is sent its own headers\n  \
    and auth.";

/// Server and connection options.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// A URL, host:port, or the name of an upstream in the configuration file
    #[arg(add = ArgValueCompleter::new(complete::servers))]
    pub(super) server: String,

    /// The file that has the upstream; one with `mcpServers` of another product will do [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print the response as JSON; the default if standard output is not a terminal
    #[arg(long)]
    pub(super) json: bool,

    /// Colour the output for people; JSON is never coloured. With `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(super) color: ColorChoice,

    /// Timeout of a request, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(super) timeout: u64,

    /// Lifecycle to connect with [default: what the upstream's configuration says, else auto]
    #[arg(long, value_enum, value_name = "LIFECYCLE")]
    pub(super) protocol: Option<ProtocolChoice>,
}

/// Lifecycle to connect with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ProtocolChoice {
    /// `server/discover` first, and `initialize` if the server is a legacy one
    Auto,
    /// 2026-07-28
    Modern,
    /// `initialize`: up to 2025-11-25
    Legacy,
}

impl From<ProtocolChoice> for Lifecycle {
    fn from(choice: ProtocolChoice) -> Self {
        match choice {
            ProtocolChoice::Auto => Self::Auto,
            ProtocolChoice::Modern => Self::Modern,
            ProtocolChoice::Legacy => Self::Legacy,
        }
    }
}

/// Answer to elicitation requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Answers {
    /// Ask at the terminal
    Ask,
    /// Accept with the defaults that the form declares; cancel where a required field has none
    AcceptDefaults,
    /// Decline
    Decline,
}

/// Kind of items to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    Tools,
    Resources,
    Prompts,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Kind of items to list; all kinds if omitted
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// The tool's name
    #[arg(add = ArgValueCompleter::new(complete::tools))]
    tool: String,

    /// Arguments, each as name=value or name:=JSON, or all as one JSON object; `-` reads the object from standard input
    ///
    /// The tool's input schema gives `name=value` its type: a string stays a string, numbers and booleans are parsed,
    /// a repeated name makes an array, and objects are JSON. If the schema allows several types, the first that fits
    /// is used. `name:=JSON` is sent unchanged: note:=null, tags:='["a", "b"]'.
    #[arg(add = ArgValueCompleter::new(complete::arguments))]
    arguments: Vec<String>,

    /// Response to forms and pages of the server (elicitation) [default: `ask` at a terminal, otherwise the client declares no
    /// elicitation]
    #[arg(long, value_enum, value_name = "HOW")]
    answer: Option<Answers>,
}

#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// The resource's URI
    #[arg(add = ArgValueCompleter::new(complete::resources))]
    uri: String,
}

#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// The prompt's name
    #[arg(add = ArgValueCompleter::new(complete::prompts))]
    prompt: String,

    /// Arguments, each as name=value
    arguments: Vec<String>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    with_client(&args.server, None, async |client, view| {
        let has = |kind: Kind, capability: &str| {
            args.kind.is_none_or(|wanted| wanted == kind)
                && client.server().capabilities.contains_key(capability)
        };
        let mut all = Map::new();
        if has(Kind::Tools, "tools") {
            let mut tools = client.list(Method::ToolsList.as_str(), "tools").await?;
            if client.mirrors_arguments() {
                tools.retain(|tool| match mirrored(tool) {
                    Ok(_) => true,
                    Err(problem) => {
                        output::remark(&clean(&format!("left out: {problem}")));
                        false
                    }
                });
            }
            all.insert("tools".to_owned(), tools.into());
        }
        if has(Kind::Resources, "resources") {
            all.insert(
                "resources".to_owned(),
                client
                    .list(Method::ResourcesList.as_str(), "resources")
                    .await?
                    .into(),
            );
            let templates = match client
                .list(Method::TemplatesList.as_str(), "resourceTemplates")
                .await
            {
                Err(ClientError::Rpc(_)) => Vec::new(),
                templates => templates?,
            };
            all.insert("resourceTemplates".to_owned(), templates.into());
        }
        if has(Kind::Prompts, "prompts") {
            all.insert(
                "prompts".to_owned(),
                client
                    .list(Method::PromptsList.as_str(), "prompts")
                    .await?
                    .into(),
            );
        }
        let all = Value::Object(all);
        Ok(PrintedResult::of(view, &all, |paint| tables(&all, paint)))
    })
}

pub(super) fn call(args: &CallArgs) -> Result<(), Failure> {
    let written = Written::read(&args.arguments)?;
    let at_terminal = terminal::has_person().then_some(Answers::Ask);
    with_client(
        &args.server,
        args.answer.or(at_terminal),
        async |client, view| {
            // Servers may have tools that they do not list; arguments of these are guessed from their text.
            let described = match written.needs_schema() || client.mirrors_arguments() {
                true => described(client, &args.tool).await,
                false => Value::Null,
            };
            let arguments = written.typed(&described["inputSchema"])?;
            let arguments = Value::Object(arguments);
            let mut params = Params::new();
            if client.mirrors_arguments() && described.is_object() {
                let parameters = mirrored(&described).map_err(ClientError::Protocol)?;
                params = params.mirror_all(&parameters, &arguments);
            }
            let params = params
                .with("name", &*args.tool)
                .with("arguments", arguments);
            let result = match ask(client, view, Method::ToolsCall.as_str(), params).await {
                Err(ClientError::Rpc(error)) => {
                    let known = names(client, Method::ToolsList.as_str(), "tools", "name").await;
                    return Err(Stop::Refused(error, meant(&args.tool, &known)));
                }
                result => result?,
            };
            let failed = result["isError"] == true;
            // Some servers respond with this error to an unknown tool.
            let is_unknown = failed
                && result["content"][0]["text"].as_str().is_some_and(|text| {
                    let text = text.to_ascii_lowercase();
                    text.contains("unknown tool") || text.contains("not found")
                });
            let hint = match is_unknown {
                true => meant(
                    &args.tool,
                    &names(client, Method::ToolsList.as_str(), "tools", "name").await,
                ),
                false => None,
            };
            Ok(PrintedResult {
                failed: failed.then(|| {
                    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
                    format!("the tool reported an error{hint}")
                }),
                ..PrintedResult::of(view, &result, |paint| blocks(&result, paint))
            })
        },
    )
}

pub(super) fn read(args: &ReadArgs) -> Result<(), Failure> {
    with_client(&args.server, None, async |client, view| {
        let params = Params::new().with("uri", &*args.uri);
        let result = match ask(client, view, Method::ResourcesRead.as_str(), params).await {
            Err(ClientError::Rpc(error)) => {
                let known = names(client, Method::ResourcesList.as_str(), "resources", "uri").await;
                return Err(Stop::Refused(error, meant(&args.uri, &known)));
            }
            result => result?,
        };
        Ok(PrintedResult::of(view, &result, |paint| {
            let contents = result["contents"].as_array().into_iter().flatten();
            contents.map(|one| contents_of(one, paint)).collect()
        }))
    })
}

pub(super) fn prompt(args: &PromptArgs) -> Result<(), Failure> {
    let arguments = pairs(&args.arguments)?;
    with_client(&args.server, None, async |client, view| {
        let params = Params::new()
            .with("name", &*args.prompt)
            .with("arguments", arguments);
        let result = match ask(client, view, Method::PromptsGet.as_str(), params).await {
            Err(ClientError::Rpc(error)) => {
                let known = names(client, Method::PromptsList.as_str(), "prompts", "name").await;
                return Err(Stop::Refused(error, meant(&args.prompt, &known)));
            }
            result => result?,
        };
        Ok(PrintedResult::of(view, &result, |paint| {
            let messages = result["messages"].as_array().into_iter().flatten();
            messages
                .map(|message| {
                    let role = clean(message["role"].as_str().unwrap_or_default());
                    let role = paint.label(format!("[{role}]"));
                    format!("{role}\n{}", block(&message["content"], paint))
                })
                .collect()
        }))
    })
}

/// `longshore SERVER TOOL ARGUMENTS`; without a tool, lists what the server offers.
pub(super) fn short_form(words: Vec<String>) -> Result<(), Failure> {
    let mut words = words.into_iter();
    let server = ServerArgs {
        server: words.next().unwrap_or_default(),
        config: None,
        json: false,
        color: ColorChoice::Auto,
        timeout: 120,
        protocol: None,
    };
    match words.next() {
        None => list(&ListArgs { server, kind: None }),
        Some(tool) => call(&CallArgs {
            server,
            tool,
            arguments: words.collect(),
            answer: None,
        }),
    }
}

pub(super) fn of_server(server: &str, problem: String) -> Failure {
    AppError::Remote {
        server: server.to_owned(),
        problem,
    }
    .into()
}

fn of_arguments(problem: &str) -> Failure {
    AppError::Arguments(problem.to_owned()).into()
}

/// Output options of a result.
#[derive(Clone, Copy)]
struct View {
    /// True for human-readable output instead of JSON.
    people: bool,
    paint: Paint,
    answers: Option<Answers>,
}

/// A result for standard output, and the error message if it is an error.
struct PrintedResult {
    text: String,
    failed: Option<String>,
}

impl PrintedResult {
    fn of(view: View, result: &Value, shown: impl FnOnce(Paint) -> String) -> Self {
        let text = match view.people {
            true => shown(view.paint),
            false => format!("{result:#}\n"),
        };
        Self { text, failed: None }
    }
}

/// Reason for which a command has no result.
enum Stop {
    Client(ClientError),
    /// A JSON-RPC error, and a suggestion.
    Refused(RpcError, Option<String>),
    Failure(Failure),
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Rpc(error) => Self::Refused(error, None),
            error => Self::Client(error),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Reads the `x-mcp-header` annotations of a tool.
///
/// # Errors
///
/// An annotation is invalid, so that the tool must not be used.
fn mirrored(tool: &Value) -> Result<Vec<HeaderParameter>, String> {
    header_parameters(&tool["inputSchema"]).map_err(|error| {
        let name = tool["name"].as_str().unwrap_or_default();
        format!("the tool {name:?} breaks the rules for x-mcp-header: {error}")
    })
}

async fn ask(
    client: &Client,
    view: View,
    method: &'static str,
    params: Params,
) -> Result<Value, ClientError> {
    let listener = (view.people || view.answers.is_some()).then(|| {
        let terminal = Terminal {
            people: view.people,
            answers: view.answers,
            begun: Instant::now(),
            has_bar: AtomicBool::new(false),
        };
        Arc::new(terminal) as Arc<dyn Listener>
    });
    let result: Box<RawValue> = client.request(method, params, listener, None).await?;
    serde_json::from_str(result.get()).map_err(|error| ClientError::Protocol(error.to_string()))
}

/// Returns a tool's listed definition, or null if it is not listed.
async fn described(client: &Client, tool: &str) -> Value {
    let tools = client
        .list(Method::ToolsList.as_str(), "tools")
        .await
        .unwrap_or_default();
    let mut tools = tools.into_iter();
    tools.find(|one| one["name"] == tool).unwrap_or_default()
}

/// Returns the names of listed items, or none if the list fails.
async fn names(
    client: &Client,
    method: &'static str,
    member: &'static str,
    name: &str,
) -> Vec<String> {
    let listed = client.list(method, member).await.unwrap_or_default();
    let names = listed.iter().filter_map(|one| one[name].as_str());
    names.map(str::to_owned).collect()
}

/// Returns what a server lists, or nothing if it cannot be reached. For shell completion: nothing is printed or asked.
pub(super) fn offered(
    server: &ServerArgs,
    method: &'static str,
    member: &'static str,
) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let Some(client) = connected_silently(&runtime, server) else {
        return Vec::new();
    };
    let listed = runtime.block_on(client.list(method, member));
    listed.unwrap_or_default()
}

/// Suggests names that are similar to an unlisted one.
fn meant(name: &str, known: &[String]) -> Option<String> {
    /// Maximum number of names in a suggestion.
    const NAMED_MAX: usize = 10;
    if known.iter().any(|one| one == name) {
        return None;
    }
    if let Some(meant) = likeness_of(name, known.iter().map(String::as_str)) {
        return Some(format!("did you mean {}?", clean(meant)));
    }
    (1..=NAMED_MAX)
        .contains(&known.len())
        .then(|| format!("there is {}", clean(&known.join(", "))))
}

fn with_client(
    server: &ServerArgs,
    answers: Option<Answers>,
    work: impl AsyncFnOnce(&Client, View) -> Result<PrintedResult, Stop>,
) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let view = View {
        people: is_terminal && !server.json,
        paint: Paint::new(server.color, is_terminal),
        answers,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AppError::from)?;
    let (client, access) = connected(&runtime, server, answers)?;
    let answer = runtime.block_on(async {
        let answer = work(&client, view).await;
        client.close(Duration::from_secs(5)).await;
        answer
    });
    let failed = |problem: String| of_server(&server.server, problem);
    match answer {
        Ok(answer) => {
            print(&answer.text)?;
            answer.failed.map_or(Ok(()), |problem| Err(failed(problem)))
        }
        Err(Stop::Refused(error, meant)) => {
            let paint = Paint::new(server.color, io::stderr().is_terminal());
            let code = error.code;
            let mut problem = shown::error(&error.message, code, error.data.as_ref(), paint);
            if let Some(meant) = meant {
                problem.push_str("; ");
                problem.push_str(&meant);
            }
            Err(failed(problem))
        }
        Err(Stop::Client(error)) => Err(access.failure(server, &error)),
        Err(Stop::Failure(failure)) => Err(failure),
    }
}

fn pairs(words: &[String]) -> Result<Map<String, Value>, Failure> {
    let pair = |word: &String| {
        word.split_once('=')
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .ok_or_else(|| of_arguments(&format!("{word:?} is not of the form name=value")))
    };
    words.iter().map(pair).collect()
}

/// Writes progress and log messages to standard error, and responds to elicitation as `--answer` says.
struct Terminal {
    people: bool,
    answers: Option<Answers>,
    begun: Instant,
    /// True while a progress bar is drawn.
    has_bar: AtomicBool,
}

impl Terminal {
    /// Removes the progress bar, if one is drawn.
    fn clear(&self) {
        if self.has_bar.swap(false, Ordering::Relaxed) {
            // A failed write to standard error is ignored.
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Listener for Terminal {
    fn wants_progress(&self) -> bool {
        self.people
    }

    fn wants_log(&self) -> Option<&'static str> {
        self.people.then_some("debug")
    }

    fn question(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let params = params.as_deref().map_or("{}", RawValue::get);
        let params: Value = serde_json::from_str(params).unwrap_or_default();
        let answer = match self.answers {
            Some(Answers::Ask) if method == "elicitation/create" => {
                self.clear();
                return Box::pin(asked_at_terminal(params));
            }
            Some(answers) if method == "elicitation/create" => Ok(answer_of(answers, &params)),
            _ => Err(RpcError::new(
                -32601,
                format!("no user can be asked: {method}"),
            )),
        };
        Box::pin(async { answer })
    }

    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if !self.people {
            return;
        }
        let line = progress_line(progress, total, &clean(message.unwrap_or_default()));
        let mut stderr = io::stderr();
        // A failed write to standard error is ignored.
        if !stderr.is_terminal() {
            let _ = writeln!(stderr, "{line}");
        } else if BAR_AFTER <= self.begun.elapsed() {
            self.has_bar.store(true, Ordering::Relaxed);
            let _ = write!(stderr, "\r\x1b[2K{line}");
            let _ = stderr.flush();
        }
    }

    fn log(&self, level: &str, _: Option<&str>, data: &Value) {
        if !self.people {
            return;
        }
        let said = data
            .as_str()
            .map_or_else(|| data.to_string(), str::to_owned);
        self.clear();
        let _ = writeln!(io::stderr(), "{}: {}", clean(level), clean(&said));
    }
}

/// Returns a progress report as a line, with a bar if the total is known.
fn progress_line(progress: f64, total: Option<f64>, message: &str) -> String {
    /// Cells of the bar, and characters of the message.
    const CELLS: usize = 20;
    const MESSAGE_MAX: usize = 40;
    let message: String = message
        .chars()
        .filter(|c| *c != '\n')
        .take(MESSAGE_MAX)
        .collect();
    let Some(total) = total.filter(|total| 0.0 < *total) else {
        return format!("{progress} {message}");
    };
    let share = (progress / total).clamp(0.0, 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of 20 cells"
    )]
    let full = (share * CELLS as f64).round() as usize;
    let bar: String = (0..CELLS)
        .map(|cell| if cell < full { '#' } else { '.' })
        .collect();
    format!("[{bar}] {progress} of {total} {message}")
}

/// Asks the user at the terminal. Several requests are asked one after the other.
async fn asked_at_terminal(params: Value) -> Result<Value, RpcError> {
    static TERMINAL: Mutex<()> = Mutex::new(());
    let asked = tokio::task::spawn_blocking(move || {
        let _turn = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
        form::fill_in(&params, &mut terminal::User)
    });
    let failed = |problem: String| RpcError::new(-32603, format!("the terminal failed: {problem}"));
    let result = asked.await.map_err(|error| failed(error.to_string()))?;
    result.map_err(|error| failed(error.to_string()))
}

/// Builds the result of an elicitation without a user.
fn answer_of(answers: Answers, params: &Value) -> Value {
    let is_form = matches!(params["mode"].as_str(), None | Some("form"));
    if answers == Answers::Decline {
        return json!({"action": "decline"});
    }
    let schema = &params["requestedSchema"];
    let properties = schema["properties"].as_object();
    let content: Map<String, Value> = properties
        .into_iter()
        .flatten()
        .filter_map(|(name, property)| Some((name.clone(), property.get("default")?.clone())))
        .collect();
    let required = schema["required"].as_array().into_iter().flatten();
    let is_whole = required
        .filter_map(Value::as_str)
        .all(|name| content.contains_key(name));
    match is_form && is_whole {
        true => json!({"action": "accept", "content": content}),
        false => json!({"action": "cancel"}),
    }
}

/// Quotes a word for a shell, because a server's text must not become a command when the line is copied.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":=-_./,@".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Removes characters that could control a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_are_no_commands() {
        assert_eq!(shell_word("files:read"), "files:read");
        assert_eq!(shell_word("a;ls"), "'a;ls'");
        assert_eq!(shell_word("a'`ls`"), r"'a'\''`ls`'");
    }

    #[test]
    fn progress_is_a_bar_if_the_total_is_known() {
        let line = progress_line(5.0, Some(20.0), "row\n drawn");
        assert_eq!(line, "[#####...............] 5 of 20 row drawn");
        assert_eq!(progress_line(3.0, None, "rows"), "3 rows");
        assert_eq!(progress_line(9.0, Some(0.0), ""), "9 ");
        let over = progress_line(30.0, Some(20.0), "");
        assert!(over.starts_with("[####################]"), "{over}");
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_what_was_meant() {
        let known: Vec<String> = ["calculate", "echo"].map(str::to_owned).into();
        let meant = |name| meant(name, &known);
        assert_eq!(meant("calc").as_deref(), Some("did you mean calculate?"));
        assert_eq!(meant("zzz").as_deref(), Some("there is calculate, echo"));
        assert_eq!(meant("echo"), None);
        assert_eq!(super::meant("x", &[]), None);
    }
}
