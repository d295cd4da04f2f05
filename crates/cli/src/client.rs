//! `longshore list`, `call`, `read` and `prompt`: client commands for a terminal or a script.

mod text;
mod listener;
mod options;
mod arguments;
mod form;
mod pretty;
mod reach;
mod server;
mod shown;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use longshore_sources::client::{Client, ClientError, Listener, Params, RpcError};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::arguments::{Written, split_pair};
pub(super) use self::form::Person;
use self::pretty::pretty;
use self::reach::{connected, connected_silently};
pub(super) use self::server::{at_mcp, check_no_password, find, token, url_of};
use self::shown::{block, blocks, contents_of, tables};
use super::output::{self, print};
use super::paint::Paint;
use super::run::runtime;
use super::suggestions::likeness_of;
use super::{Failure, terminal};
use crate::app::AppError;
use crate::catalog::{HeaderParameter, header_parameters};
use crate::protocol::Method;
use listener::Terminal;
pub(super) use options::{
    Answers, CREDENTIALS, CallArgs, Kind, ListArgs, PromptArgs, ReadArgs, ServerArgs,
};
pub(super) use text::{clean, pretty_json, shell_word};

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
            let resources = client.list(Method::ResourcesList.as_str(), "resources");
            all.insert("resources".to_owned(), resources.await?.into());
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
            let prompts = client.list(Method::PromptsList.as_str(), "prompts");
            all.insert("prompts".to_owned(), prompts.await?.into());
        }
        let all = Value::Object(all);
        let json = all.to_string();
        Ok(PrintedResult::of(view, &json, |paint| tables(&all, paint)))
    })
}

pub(super) fn call(args: &CallArgs) -> Result<(), Failure> {
    let written = Written::read(&args.arguments)?;
    let at_terminal = terminal::has_person().then_some(Answers::Ask);
    with_client(
        &args.server,
        args.answer.or(at_terminal),
        async |client, view| {
            let needs_schema = written.needs_schema();
            let described = match needs_schema || client.mirrors_arguments() {
                true => described(client, &args.tool).await?,
                false => Value::Null,
            };
            let untyped = written.untyped();
            let arguments = written.typed(&described["inputSchema"])?;
            let is_guess = |name: &String| arguments.get(name).is_some_and(|it| !it.is_string());
            // Servers may have tools that they do not list.
            if described.is_null() && untyped.iter().any(is_guess) {
                output::remark(&format!(
                    "the server does not list the tool {}, so the types of the arguments are guessed; NAME:=JSON sets a value exactly",
                    shell_word(&args.tool)
                ));
            }
            let arguments = Value::Object(arguments);
            let mut params = Params::new();
            if client.mirrors_arguments() && described.is_object() {
                let parameters = mirrored(&described).map_err(ClientError::Protocol)?;
                params = params.mirror_all(&parameters, &arguments);
            }
            let params = params
                .with("name", &*args.tool)
                .with("arguments", arguments);
            let (result, json) = ask(
                client,
                view,
                Method::ToolsCall,
                params,
                (&*args.tool, TOOLS),
            )
            .await?;
            let failed = result["isError"] == true;
            // Some servers respond with this error to an unknown tool.
            let is_unknown = failed
                && result["content"][0]["text"].as_str().is_some_and(|text| {
                    let text = text.to_ascii_lowercase();
                    text.contains("unknown tool") || text.contains("not found")
                });
            let hint = match is_unknown {
                true => suggestion(client, &args.tool, TOOLS).await,
                false => None,
            };
            Ok(PrintedResult {
                failed: failed.then(|| {
                    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
                    format!("the tool reported an error{hint}")
                }),
                ..PrintedResult::of(view, json.get(), |paint| blocks(&result, &json, paint))
            })
        },
    )
}

pub(super) fn read(args: &ReadArgs) -> Result<(), Failure> {
    with_client(&args.server, None, async |client, view| {
        let params = Params::new().with("uri", &*args.uri);
        let named = (&*args.uri, RESOURCES);
        let (result, json) = ask(client, view, Method::ResourcesRead, params, named).await?;
        Ok(PrintedResult::of(view, json.get(), |paint| {
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
        let named = (&*args.prompt, PROMPTS);
        let (result, json) = ask(client, view, Method::PromptsGet, params, named).await?;
        Ok(PrintedResult::of(view, json.get(), |paint| {
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
    fn of(view: View, json: &str, shown: impl FnOnce(Paint) -> String) -> Self {
        let text = match view.people {
            true => shown(view.paint),
            false => format!("{}\n", pretty(json)),
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

/// Sends a request about an item, and returns its result as a tree and as text. An error suggests similar names.
async fn ask(
    client: &Client,
    view: View,
    method: Method,
    params: Params,
    (name, listing): (&str, Listing),
) -> Result<(Value, Box<RawValue>), Stop> {
    let listener = (view.people || view.answers.is_some()).then(|| {
        let terminal = Terminal {
            people: view.people,
            answers: view.answers,
            begun: Instant::now(),
            has_bar: AtomicBool::new(false),
        };
        Arc::new(terminal) as Arc<dyn Listener>
    });
    let asked = client.request(method.as_str(), params, listener, None);
    let result: Box<RawValue> = match asked.await {
        // Longshore suggests a name itself.
        Err(ClientError::Rpc(error)) if !error.message.contains("did you mean") => {
            let meant = suggestion(client, name, listing).await;
            return Err(Stop::Refused(error, meant));
        }
        result => result?,
    };
    let tree = serde_json::from_str(result.get());
    let tree = tree.map_err(|error| ClientError::Protocol(error.to_string()))?;
    Ok((tree, result))
}

/// Returns a tool's listed definition, or null if it is not listed.
async fn described(client: &Client, tool: &str) -> Result<Value, ClientError> {
    let tools = match client.list(Method::ToolsList.as_str(), "tools").await {
        // The server lists no tools, or not to this caller.
        Err(ClientError::Rpc(_) | ClientError::Status { .. }) => Vec::new(),
        tools => tools?,
    };
    let mut tools = tools.into_iter();
    Ok(tools.find(|one| one["name"] == tool).unwrap_or_default())
}

/// Method and member of a listing, and the member of an item that names it.
type Listing = (Method, &'static str, &'static str);

const TOOLS: Listing = (Method::ToolsList, "tools", "name");
const RESOURCES: Listing = (Method::ResourcesList, "resources", "uri");
const PROMPTS: Listing = (Method::PromptsList, "prompts", "name");

/// Suggests listed names that are similar to an unlisted one. Suggests nothing if the list fails.
async fn suggestion(client: &Client, name: &str, listing: Listing) -> Option<String> {
    let (method, member, key) = listing;
    let listed = client.list(method.as_str(), member).await;
    let listed = listed.unwrap_or_default();
    let known = listed.iter().filter_map(|one| one[key].as_str());
    meant(name, &known.collect::<Vec<_>>())
}

/// Returns what a server lists, or nothing if it cannot be reached. For shell completion: nothing is printed or asked.
pub(super) fn offered(
    server: &ServerArgs,
    method: &'static str,
    member: &'static str,
) -> Vec<Value> {
    let Ok(runtime) = runtime() else {
        return Vec::new();
    };
    let Some(client) = connected_silently(&runtime, server) else {
        return Vec::new();
    };
    let listed = runtime.block_on(client.list(method, member));
    listed.unwrap_or_default()
}

/// Suggests names that are similar to an unlisted one.
fn meant(name: &str, known: &[&str]) -> Option<String> {
    /// Maximum number of names in a suggestion.
    const NAMED_MAX: usize = 10;
    if known.contains(&name) {
        return None;
    }
    if let Some(meant) = likeness_of(name, known.iter().copied()) {
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
    let runtime = runtime()?;
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
    let mut pairs = Map::new();
    for word in words {
        let (name, value) = split_pair(word).map_err(|problem| of_arguments(&problem))?;
        if pairs.insert(name.to_owned(), value.into()).is_some() {
            return Err(of_arguments(&format!("{name} is given twice")));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_given_once() {
        let pairs = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            pairs(&words).map_err(|error| error.to_string())
        };
        assert_eq!(pairs(&["a=1", "b=x=y"]).map(|all| all.len()), Ok(2));
        for words in [&["a=1", "a=2"][..], &["a"], &["=1"]] {
            let refused = pairs(words).expect_err("an error");
            assert!(refused.contains('a'), "{refused}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_what_was_meant() {
        let meant = |name| meant(name, &["calculate", "echo"]);
        assert_eq!(meant("calc").as_deref(), Some("did you mean calculate?"));
        assert_eq!(meant("zzz").as_deref(), Some("there is calculate, echo"));
        assert_eq!(meant("echo"), None);
        assert_eq!(super::meant("x", &[]), None);
    }
}
