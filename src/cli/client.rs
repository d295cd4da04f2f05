//! `longshore list`, `call`, `read` and `prompt`: what a server offers, asked for from a terminal or a script.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::Cell;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Failure;
use super::config::print;
use super::run::load;
use super::table::table;
use crate::app::{AppError, tokens};
use crate::client::{Client, ClientError, Listener, Options, Params};
use crate::config::{Config, Flags};
use crate::environment::Probe;
use crate::net::with_causes;
use crate::source::{Tokens, UpstreamConfig, default_folder, has_login};

/// How to reach the server.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// A URL, or the name of an upstream in the configuration file
    pub(super) server: String,

    /// The file that has the upstream; one with `mcpServers` of another product will do [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print what the server answered, as JSON; so it is when standard output is no terminal
    #[arg(long)]
    pub(super) json: bool,

    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(super) timeout: u64,
}

/// What can be listed.
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

    /// What to list; everything, unless said
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Which tool
    tool: String,

    /// Its arguments, as a JSON object, or each as name=value; `-` reads the object from standard input
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Which resource
    uri: String,
}

#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Which prompt
    prompt: String,

    /// Its arguments, each as name=value
    arguments: Vec<String>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    with_client(&args.server, async |client, people| {
        let has = |kind: Kind, capability: &str| {
            args.kind.is_none_or(|wanted| wanted == kind)
                && client.server().capabilities.contains_key(capability)
        };
        let mut all = Map::new();
        if has(Kind::Tools, "tools") {
            all.insert(
                "tools".to_owned(),
                client.list("tools/list", "tools").await?.into(),
            );
        }
        if has(Kind::Resources, "resources") {
            all.insert(
                "resources".to_owned(),
                client.list("resources/list", "resources").await?.into(),
            );
            let templates = match client
                .list("resources/templates/list", "resourceTemplates")
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
                client.list("prompts/list", "prompts").await?.into(),
            );
        }
        let all = Value::Object(all);
        Ok(Answer {
            text: if people {
                tables(&all)
            } else {
                format!("{all:#}\n")
            },
            failed: false,
        })
    })
}

pub(super) fn call(args: CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    with_client(&args.server, async |client, people| {
        let params = Params::new()
            .with("name", args.tool)
            .with("arguments", arguments);
        let result = ask(client, people, "tools/call", params).await?;
        let failed = result["isError"] == true;
        Ok(Answer {
            text: if people {
                blocks(&result["content"], &result)
            } else {
                format!("{result:#}\n")
            },
            failed,
        })
    })
}

pub(super) fn read(args: ReadArgs) -> Result<(), Failure> {
    with_client(&args.server, async |client, people| {
        let result = ask(
            client,
            people,
            "resources/read",
            Params::new().with("uri", args.uri),
        )
        .await?;
        let text = if people {
            let contents = result["contents"].as_array().into_iter().flatten();
            contents.map(contents_of).collect()
        } else {
            format!("{result:#}\n")
        };
        Ok(Answer {
            text,
            failed: false,
        })
    })
}

pub(super) fn prompt(args: PromptArgs) -> Result<(), Failure> {
    let arguments = pairs(&args.arguments)?
        .into_iter()
        .map(|(name, value)| (name, Value::String(value)))
        .collect::<Map<_, _>>();
    with_client(&args.server, async |client, people| {
        let params = Params::new()
            .with("name", args.prompt)
            .with("arguments", arguments);
        let result = ask(client, people, "prompts/get", params).await?;
        let text = if people {
            let messages = result["messages"].as_array().into_iter().flatten();
            messages
                .map(|message| {
                    let role = clean(message["role"].as_str().unwrap_or_default());
                    format!("[{role}]\n{}", block(&message["content"]))
                })
                .collect()
        } else {
            format!("{result:#}\n")
        };
        Ok(Answer {
            text,
            failed: false,
        })
    })
}

/// `longshore SERVER TOOL JSON`; without a tool, what the server offers.
pub(super) fn short_form(words: Vec<String>) -> Result<(), Failure> {
    let mut words = words.into_iter();
    let server = ServerArgs {
        server: words.next().unwrap_or_default(),
        config: None,
        json: false,
        timeout: 120,
    };
    match words.next() {
        None => list(&ListArgs { server, kind: None }),
        Some(tool) => call(CallArgs {
            server,
            tool,
            arguments: words.collect(),
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

/// What to print on standard output, and whether the server said that it could not do it.
struct Answer {
    text: String,
    failed: bool,
}

async fn ask(
    client: &Client,
    people: bool,
    method: &'static str,
    params: Params,
) -> Result<Value, ClientError> {
    let listener: Option<Arc<dyn Listener>> =
        people.then(|| Arc::new(Progress) as Arc<dyn Listener>);
    let result: Box<RawValue> = client.request(method, params, listener, None).await?;
    serde_json::from_str(result.get()).map_err(|error| ClientError::Protocol(error.to_string()))
}

fn with_client(
    server: &ServerArgs,
    work: impl AsyncFnOnce(&Client, bool) -> Result<Answer, ClientError>,
) -> Result<(), Failure> {
    let people = io::stdout().is_terminal() && !server.json;
    let (config, tokens) = upstream(server)?;
    let target = config.target(&server.server).map_err(AppError::from)?;
    let credentials = config
        .proof(&server.server, &tokens)
        .map_err(AppError::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AppError::from)?;
    let limit = Duration::from_secs(server.timeout.max(1));
    let options = Options {
        name: server.server.clone(),
        connect_timeout: limit,
        request_timeout: limit,
        message_bytes: config.message_bytes,
        credentials,
        ..Options::default()
    };
    let answer = runtime.block_on(async {
        let client = Client::connect(target, options).await?;
        let answer = work(&client, people).await;
        client.close(Duration::from_secs(5)).await;
        answer
    });
    let failed = |problem: String| of_server(&server.server, problem);
    match answer {
        Ok(answer) => {
            print(&answer.text)?;
            if answer.failed {
                return Err(failed("the tool says that it failed".to_owned()));
            }
            Ok(())
        }
        Err(ClientError::Rpc(error)) => {
            let mut problem = format!("{} ({})", clean(&error.message), error.code);
            for field in fields(&error.message)
                .into_iter()
                .chain(error.data.iter().flat_map(fields_of))
            {
                problem.push_str("\n  ");
                problem.push_str(&clean(&field));
            }
            Err(failed(problem))
        }
        Err(ClientError::Unauthorized { .. }) => Err(failed(format!(
            "it wants to know who calls: log in with `longshore login {}`, put a token into the variable \
                 LONGSHORE_TOKEN, or headers into the configuration of the upstream",
            server.server
        ))),
        Err(error) => Err(failed(with_causes(&error))),
    }
}

/// Somebody may have logged in, where nothing else proves who calls. Tells where that is kept.
fn use_login(config: &mut UpstreamConfig) -> Option<Tokens> {
    let has_other = config
        .headers
        .keys()
        .any(|name| name.eq_ignore_ascii_case("authorization"));
    if has_other || config.auth.is_some() {
        return None;
    }
    let url = config.url.as_deref()?.parse().ok()?;
    let folder = default_folder(&Probe::real()).filter(|folder| has_login(folder, &url))?;
    config.auth.login = true;
    Some(Tokens::in_folder(folder))
}

/// A server, and where tokens for it are kept.
fn upstream(server: &ServerArgs) -> Result<(UpstreamConfig, Tokens), Failure> {
    let (mut upstream, config) = find(&server.server, server.config.clone())?;
    if config.is_none() {
        upstream.timeout_seconds = Some(server.timeout);
    }
    let tokens = match (use_login(&mut upstream), config) {
        (Some(tokens), _) => tokens,
        (None, Some(config)) => tokens(&config)?,
        (None, None) => Tokens::default(),
    };
    Ok((upstream, tokens))
}

/// A URL is a server as it stands; anything else is configured, and comes with its configuration.
pub(super) fn find(
    server: &str,
    file: Option<PathBuf>,
) -> Result<(UpstreamConfig, Option<Config>), Failure> {
    if server.contains("://") {
        let mut config = UpstreamConfig {
            url: Some(server.to_owned()),
            ..UpstreamConfig::default()
        };
        // Never on the command line, which every user of the machine can see.
        if let Some(token) = Probe::real().variable("LONGSHORE_TOKEN") {
            config
                .headers
                .insert("Authorization".to_owned(), format!("Bearer {token}").into());
        }
        return Ok((config, None));
    }
    let flags = Flags {
        config: file,
        ..Flags::default()
    };
    let mut config = load(flags)?.config;
    if let Some(upstream) = config.upstreams.remove(server) {
        return Ok((upstream, Some(config)));
    }
    let known: Vec<&str> = config.upstreams.keys().map(String::as_str).collect();
    let known = match &known[..] {
        [] => {
            "the configuration has no upstreams; name a file that has with --config, or give a URL"
                .to_owned()
        }
        known => format!("there is {}", known.join(", ")),
    };
    Err(of_server(
        server,
        format!("it is no command, no URL, and no upstream of this name is configured: {known}"),
    ))
}

fn arguments(words: &[String]) -> Result<Value, Failure> {
    let text = match words {
        [] => return Ok(json!({})),
        [one] if one == "-" => io::read_to_string(io::stdin()).map_err(AppError::from)?,
        [one] if one.trim_start().starts_with('{') => one.clone(),
        words => {
            let arguments = pairs(words)?.into_iter().map(|(name, value)| {
                // What reads as JSON is meant so; everything else is text.
                let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                (name, value)
            });
            return Ok(Value::Object(arguments.collect()));
        }
    };
    match serde_json::from_str(&text) {
        Ok(arguments @ Value::Object(_)) => Ok(arguments),
        Ok(_) => Err(of_arguments("they are no JSON object")),
        Err(error) => Err(of_arguments(&format!("they are no JSON: {error}"))),
    }
}

fn pairs(words: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |word: &String| {
        word.split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .ok_or_else(|| of_arguments(&format!("{word:?} is not of the form name=value")))
    };
    words.iter().map(pair).collect()
}

/// What is said about a call while it runs goes to standard error.
struct Progress;

impl Listener for Progress {
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let of = total
            .map(|total| format!(" of {total}"))
            .unwrap_or_default();
        // Nobody minds if it cannot be written.
        let _ = writeln!(
            io::stderr(),
            "{progress}{of} {}",
            clean(message.unwrap_or_default())
        );
    }

    fn log(&self, level: &str, _: Option<&str>, data: &Value) {
        let said = data
            .as_str()
            .map_or_else(|| data.to_string(), str::to_owned);
        let _ = writeln!(io::stderr(), "{}: {}", clean(level), clean(&said));
    }
}

/// Without what could steer a terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}

fn tables(all: &Value) -> String {
    let mut text = String::new();
    for (kind, name) in [
        ("tools", "name"),
        ("resources", "uri"),
        ("resourceTemplates", "uriTemplate"),
        ("prompts", "name"),
    ] {
        let entries: Vec<&Value> = all[kind].as_array().into_iter().flatten().collect();
        if entries.is_empty() {
            continue;
        }
        let mut table = table([kind.to_uppercase(), String::new(), String::new()], 100);
        for entry in entries {
            let told = entry["description"]
                .as_str()
                .or(entry["title"].as_str())
                .unwrap_or_default();
            let told = told.lines().next().unwrap_or_default();
            table.add_row([
                Cell::new(clean(entry[name].as_str().unwrap_or_default())),
                Cell::new(takes(entry)),
                Cell::new(clean(told)),
            ]);
        }
        text.push_str(&table.to_string());
        text.push_str("\n\n");
    }
    if text.is_empty() {
        text.push_str("nothing is offered\n");
    }
    text
}

/// Names of the arguments; those that may be left out in brackets.
fn takes(entry: &Value) -> String {
    let mut names = Vec::new();
    if let Some(properties) = entry["inputSchema"]["properties"].as_object() {
        let required = entry["inputSchema"]["required"].as_array();
        for name in properties.keys() {
            let needed =
                required.is_some_and(|required| required.iter().any(|r| r == name.as_str()));
            names.push(if needed {
                clean(name)
            } else {
                format!("[{}]", clean(name))
            });
        }
    }
    for argument in entry["arguments"].as_array().into_iter().flatten() {
        let name = clean(argument["name"].as_str().unwrap_or_default());
        names.push(if argument["required"] == true {
            name
        } else {
            format!("[{name}]")
        });
    }
    names.join(" ")
}

fn blocks(content: &Value, result: &Value) -> String {
    let blocks: Vec<&Value> = content.as_array().into_iter().flatten().collect();
    match result.get("structuredContent") {
        Some(structured) if blocks.is_empty() => format!("{structured:#}\n"),
        _ => blocks.into_iter().map(block).collect(),
    }
}

fn block(block: &Value) -> String {
    let of = |member: &str| clean(block[member].as_str().unwrap_or_default());
    let size = || block["data"].as_str().map_or(0, |data| data.len() / 4 * 3);
    match block["type"].as_str().unwrap_or_default() {
        "text" => {
            let text = of("text");
            let told = fields(&text);
            if told.is_empty() {
                format!("{text}\n")
            } else {
                told.into_iter().map(|field| format!("{field}\n")).collect()
            }
        }
        kind @ ("image" | "audio") => format!("[{kind}: {}, {} bytes]\n", of("mimeType"), size()),
        "resource_link" => format!("[resource: {}]\n", of("uri")),
        "resource" => contents_of(&block["resource"]),
        other => format!("[{}]\n", clean(other)),
    }
}

fn contents_of(contents: &Value) -> String {
    match contents["text"].as_str() {
        Some(text) => format!("{}\n", clean(text)),
        None => {
            let size = contents["blob"]
                .as_str()
                .map_or(0, |blob| blob.len() / 4 * 3);
            let kind = contents["mimeType"].as_str().unwrap_or("bytes");
            format!(
                "[{}: {}, {size} bytes]\n",
                clean(contents["uri"].as_str().unwrap_or_default()),
                clean(kind)
            )
        }
    }
}

/// What is wrong with each field, where a text holds that as JSON: `[{"path": ["a", "b"], "message": "..."}]`.
fn fields(text: &str) -> Vec<String> {
    let Some(start) = text.find('[') else {
        return Vec::new();
    };
    serde_json::from_str(&text[start..])
        .map_or_else(|_| Vec::new(), |value: Value| fields_of(&value).collect())
}

fn fields_of(value: &Value) -> impl Iterator<Item = String> {
    let list = value.as_array().or_else(|| value["errors"].as_array());
    let told = list.into_iter().flatten().filter_map(|problem| {
        let message = problem["message"].as_str()?;
        let path = match &problem["path"] {
            Value::Array(path) => path
                .iter()
                .map(|part| {
                    part.as_str()
                        .map_or_else(|| part.to_string(), str::to_owned)
                })
                .collect::<Vec<_>>()
                .join("."),
            Value::String(path) => path.clone(),
            _ => return None,
        };
        Some(format!("{path}: {message}"))
    });
    told.collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_shown_as_people_read_them() {
        let result = json!({"content": [
            {"type": "text", "text": "hello\u{1b}[31m"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "a://b", "name": "b"},
            {"type": "resource", "resource": {"uri": "a://c", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "a://d", "blob": "AAAA", "mimeType": "x/y"}},
        ]});
        assert_eq!(
            blocks(&result["content"], &result),
            "hello[31m\n[image: image/png, 3 bytes]\n[resource: a://b]\ninside\n[a://d: x/y, 3 bytes]\n"
        );
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(
            blocks(&structured["content"], &structured),
            "{\n  \"a\": 1\n}\n"
        );
    }

    #[test]
    fn what_is_wrong_with_fields_is_told_for_each() {
        let told = fields(
            r#"Invalid arguments: [{"path": ["place", 0, "x"], "message": "Required", "code": "c"}]"#,
        );
        assert_eq!(told, ["place.0.x: Required"]);
        assert!(fields("[1, 2]").is_empty());
        assert!(fields("no list").is_empty());
    }

    #[test]
    fn arguments_are_an_object_or_pairs() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            arguments(&words).map_err(|error| error.to_string())
        };
        assert_eq!(read(&[]), Ok(json!({})));
        assert_eq!(read(&[r#" {"a": 1}"#]), Ok(json!({"a": 1})));
        assert_eq!(
            read(&["a=1", "b=x=y", "c=\"1\"", "d=true"]),
            Ok(json!({"a": 1, "b": "x=y", "c": "1", "d": true}))
        );
        assert!(read(&["{"]).is_err());
        assert_eq!(
            read(&["a"]),
            Err("the arguments cannot be used: \"a\" is not of the form name=value".to_owned())
        );
    }

    #[test]
    fn listings_name_what_may_be_left_out() {
        let entry = json!({"inputSchema": {"properties": {"a": {}, "b": {}}, "required": ["b"]}});
        assert_eq!(takes(&entry), "[a] b");
        let table = tables(&json!({"tools": [{"name": "echo", "description": "Says it.\nMore."}]}));
        assert!(
            table.contains("echo") && table.contains("Says it.") && !table.contains("More"),
            "{table}"
        );
        assert_eq!(tables(&json!({})), "nothing is offered\n");
    }
}
