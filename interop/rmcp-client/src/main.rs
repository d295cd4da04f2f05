//! Does with rmcp's client what it and its era can do.
//!
//! `rmcp-client LIFECYCLE http URL` or `rmcp-client LIFECYCLE stdio COMMAND...`,
//! where LIFECYCLE is `default` (nothing is told: `initialize`), `auto`, `discover`,
//! or a revision to offer in `initialize`.
//! Prints what it did in one line.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientConfig,
        ClientRequest, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
        ElicitResult, GetPromptRequestParams, GetTaskParams, ListRootsResult,
        LoggingMessageNotificationParam, PingRequest, ProgressNotificationParam, ProtocolVersion,
        ReadResourceRequestParams, ResourceUpdatedNotificationParam,
    },
    service::{
        ClientLifecycleMode, ClientServiceExt, NotificationContext, RequestContext, RunningService,
    },
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Value, json};

type Client = RunningService<RoleClient, Person>;

/// What the client answers, and what it was told.
#[derive(Clone, Default)]
struct Person {
    info: ClientConfig,
    progress: Arc<Mutex<Vec<f64>>>,
    logged: Arc<Mutex<usize>>,
    updated: Arc<Mutex<usize>>,
}

fn answer<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::internal_error(e.to_string(), None))
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!({"type": "text", "text": "Paris"});
        answer(json!({"role": "assistant", "model": "none", "content": content}))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = json!({"username": "Ada", "email": "ada@example.com"});
        answer(json!({"action": "accept", "content": content}))
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        answer(json!({"roots": [{"uri": "file:///project", "name": "work"}]}))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().expect("no panic").push(params.progress);
    }

    async fn on_logging_message(
        &self,
        _: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        *self.logged.lock().expect("no panic") += 1;
    }

    async fn on_resource_updated(
        &self,
        _: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        *self.updated.lock().expect("no panic") += 1;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [lifecycle, transport, target @ ..] = &args[..] else {
        bail!("usage: rmcp-client LIFECYCLE http URL | stdio COMMAND...");
    };
    let client = connect(lifecycle, transport, target)
        .await
        .context("connect")?;
    let version = client
        .peer_info()
        .context("no server information")?
        .protocol_version
        .clone();
    let expected = match lifecycle.as_str() {
        "auto" | "discover" => "2026-07-28",
        "default" => "2025-11-25",
        offered => offered,
    };
    ensure!(
        version.as_str() == expected,
        "negotiated {version}, expected {expected}"
    );
    let did = check(&client, &version, transport == "stdio").await?;
    client.cancel().await?;
    println!("{}", did.join(", "));
    Ok(())
}

async fn check(client: &Client, version: &ProtocolVersion, stdio: bool) -> Result<Vec<String>> {
    let sessions = *version < ProtocolVersion::V_2026_07_28;
    let tools = client.list_all_tools().await.context("tools/list")?;
    for name in ["echo", "test_error_handling"] {
        ensure!(
            tools.iter().any(|tool| tool.name == name),
            "{name} is not listed"
        );
    }
    let mut did = vec![version.to_string(), format!("{} tools", tools.len())];
    for message in ["hello", "h\u{e9}llo \"w\u{f6}rld\"\n\u{1f980}"] {
        let said = text(client, "echo", json!({ "message": message })).await?;
        ensure!(said == message, "echo: {said:?} came back for {message:?}");
    }
    let failed = call(client, "test_error_handling", json!({})).await?;
    ensure!(
        failed.is_error == Some(true),
        "test_error_handling: isError is {:?}",
        failed.is_error
    );
    did.push("call".to_owned());

    let uri = "test://static-text";
    let read = client
        .read_resource(ReadResourceRequestParams::new(uri))
        .await
        .context("resources/read")?;
    ensure!(read.contents.len() == 1, "resources/read: {read:?}");
    let got = client
        .get_prompt(GetPromptRequestParams::new("test_simple_prompt"))
        .await
        .context("prompts/get")?;
    ensure!(got.messages.len() == 1, "prompts/get: {got:?}");
    let completed = client
        .complete_prompt_simple("introduce_colleague", "team", "s")
        .await
        .context("completion/complete")?;
    ensure!(
        completed == ["sales", "support"],
        "completion/complete: {completed:?}"
    );
    did.extend(["read", "get", "complete"].map(str::to_owned));

    client.service().progress.lock().expect("no panic").clear();
    call(client, "test_tool_with_progress", json!({})).await?;
    until("progress", || {
        *client.service().progress.lock().expect("no panic") == [0.0, 50.0, 100.0]
    })
    .await?;
    did.push("progress".to_owned());

    let mut logging = params("test_tool_with_logging", json!({}));
    if sessions {
        let level: rmcp::model::SetLevelRequestParams =
            serde_json::from_value(json!({"level": "debug"}))?;
        #[expect(deprecated, reason = "sessions still have it")]
        client.set_level(level).await.context("logging/setLevel")?;
    } else {
        let level = json!({"io.modelcontextprotocol/logLevel": "debug"});
        logging.meta = Some(serde_json::from_value(level)?);
    }
    client.call_tool(logging).await.context("logging")?;
    until("log messages", || {
        3 <= *client.service().logged.lock().expect("no panic")
    })
    .await?;
    did.push("logging".to_owned());

    // Streamable HTTP is younger than 2024-11-05: its clients cannot be asked there.
    if *version != ProtocolVersion::V_2024_11_05 || stdio {
        let said = text(client, "test_sampling", json!({"prompt": "Where?"})).await?;
        ensure!(said == "LLM response: Paris", "test_sampling: {said}");
        let said = text(client, "list_roots", json!({})).await?;
        ensure!(said.contains("file:///project"), "list_roots: {said}");
        did.extend(["sampling", "roots"].map(str::to_owned));
    }
    if ProtocolVersion::V_2025_06_18 <= *version {
        let said = text(client, "test_elicitation", json!({"message": "Who?"})).await?;
        ensure!(said.contains("ada@example.com"), "test_elicitation: {said}");
        did.push("elicitation".to_owned());
    }

    let watched = "test://watched-resource";
    if sessions {
        let params = serde_json::from_value(json!({ "uri": watched }))?;
        client.subscribe(params).await.context("resources/subscribe")?;
        call(client, "touch_watched_resource", json!({})).await?;
        until("an update", || {
            0 < *client.service().updated.lock().expect("no panic")
        })
        .await?;
        let params = serde_json::from_value(json!({ "uri": watched }))?;
        client
            .unsubscribe(params)
            .await
            .context("resources/unsubscribe")?;
    } else {
        let filter = serde_json::from_value(json!({"resourceSubscriptions": [watched]}))?;
        let mut subscription = client.listen(filter).await.context("subscriptions/listen")?;
        call(client, "touch_watched_resource", json!({})).await?;
        let told = tokio::time::timeout(Duration::from_secs(5), subscription.next()).await;
        ensure!(
            matches!(told, Ok(Ok(Some(_)))),
            "subscriptions/listen: {told:?}"
        );
        subscription.cancel().await.context("end of listening")?;
    }
    did.push("subscription".to_owned());

    if !sessions {
        task(client).await.context("tasks")?;
        did.push("task".to_owned());
    }

    let begun = Instant::now();
    let long = call(client, "long_operation", json!({"seconds": 30}));
    let gave_up = tokio::time::timeout(Duration::from_secs(1), long).await;
    ensure!(gave_up.is_err(), "long_operation: {gave_up:?}");
    ensure!(begun.elapsed() < Duration::from_secs(10), "given up too late");
    let said = text(client, "echo", json!({"message": "still here"})).await?;
    ensure!(said == "still here", "echo: {said}");
    did.push("cancellation".to_owned());

    if sessions {
        client
            .send_request(ClientRequest::PingRequest(PingRequest::default()))
            .await
            .context("ping")?;
        did.push("ping".to_owned());
    }
    Ok(did)
}

/// Calls that become tasks: one that comes to its end, and one that is cancelled.
async fn task(client: &Client) -> Result<()> {
    let begin = async |seconds: f64| -> Result<String> {
        let arguments = json!({"seconds": seconds, "label": "x"});
        match client.call_tool_once(params("slow_compute", arguments)).await? {
            CallToolResponse::Task(created) => Ok(created.task.task_id),
            other => bail!("no task: {other:?}"),
        }
    };
    let id = begin(0.2).await?;
    let ends = Instant::now() + Duration::from_secs(10);
    loop {
        let shown = client.get_task(GetTaskParams::new(id.clone())).await?;
        let shown = serde_json::to_value(&shown.task)?;
        match shown["status"].as_str() {
            Some("completed") => {
                let said = &shown["result"]["content"][0]["text"];
                ensure!(said == "x: computed for 0.2 s", "the task gave {said}");
                break;
            }
            Some("working") if Instant::now() < ends => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            _ => bail!("the task is {shown}"),
        }
    }
    let id = begin(30.0).await?;
    client.cancel_task(CancelTaskParams::new(id.clone())).await?;
    let shown = client.get_task(GetTaskParams::new(id)).await?;
    let shown = serde_json::to_value(&shown.task)?;
    ensure!(shown["status"] == "cancelled", "the task is {shown}");
    Ok(())
}

async fn connect(lifecycle: &str, transport: &str, target: &[String]) -> Result<Client> {
    let mut person = Person::default();
    person.info.capabilities = serde_json::from_value(json!({
        "sampling": {}, "elicitation": {}, "roots": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }))?;
    let lifecycle = match lifecycle {
        "auto" => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        },
        "discover" => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
        "default" => ClientLifecycleMode::Initialize,
        revision => {
            person.info.protocol_version = serde_json::from_value(json!(revision))?;
            ClientLifecycleMode::Initialize
        }
    };
    Ok(match (transport, target) {
        ("http", [url]) => {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            person.serve_with_lifecycle(transport, lifecycle).await?
        }
        ("stdio", [program, args @ ..]) => {
            let mut command = tokio::process::Command::new(program);
            command.args(args);
            person
                .serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle)
                .await?
        }
        _ => bail!("not a transport: {transport} {target:?}"),
    })
}

fn params(name: &str, arguments: Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

async fn call(client: &Client, name: &str, arguments: Value) -> Result<CallToolResult> {
    let called = client.call_tool(params(name, arguments)).await;
    called.with_context(|| name.to_owned())
}

async fn text(client: &Client, name: &str, arguments: Value) -> Result<String> {
    let result = call(client, name, arguments).await?;
    let first = result.content.first().and_then(|content| content.as_text());
    let text = first.with_context(|| format!("{name}: no text in {result:?}"))?;
    ensure!(result.is_error != Some(true), "{name}: {}", text.text);
    Ok(text.text.clone())
}

async fn until(what: &str, so: impl Fn() -> bool) -> Result<()> {
    for _ in 0..100 {
        if so() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("never came: {what}")
}
