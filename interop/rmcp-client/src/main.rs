//! Lists and calls tools, reads and gets with rmcp's client.
//!
//! `rmcp-client LIFECYCLE http URL` or `rmcp-client LIFECYCLE stdio COMMAND...`,
//! where LIFECYCLE is `default` (nothing is told: `initialize`), `auto`, `discover`,
//! or a revision to offer in `initialize`.
//! Prints what it did in one line.

use anyhow::{Context, Result, bail, ensure};
use rmcp::{
    RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientConfig, ClientRequest, GetPromptRequestParams,
        PingRequest, ProtocolVersion, ReadResourceRequestParams,
    },
    service::{ClientLifecycleMode, ClientServiceExt, RunningService},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::json;

type Client = RunningService<RoleClient, ClientConfig>;

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
    let sessions = version < ProtocolVersion::V_2026_07_28;
    let expected = match lifecycle.as_str() {
        "auto" | "discover" => "2026-07-28",
        "default" => "2025-11-25",
        offered => offered,
    };
    ensure!(
        version.as_str() == expected,
        "negotiated {version}, expected {expected}"
    );

    let tools = client.list_all_tools().await.context("tools/list")?;
    for name in ["echo", "test_error_handling"] {
        ensure!(
            tools.iter().any(|tool| tool.name == name),
            "{name} is not listed"
        );
    }
    for message in ["hello", "h\u{e9}llo \"w\u{f6}rld\"\n\u{1f980}"] {
        let result = call(&client, "echo", json!({ "message": message }))
            .await
            .context("echo")?;
        let text = result.content[0].as_text().context("echo: no text")?;
        ensure!(
            text.text == message,
            "echo: {:?} came back for {message:?}",
            text.text
        );
    }
    let result = call(&client, "test_error_handling", json!({}))
        .await
        .context("test_error_handling")?;
    ensure!(
        result.is_error == Some(true),
        "test_error_handling: isError is {:?}",
        result.is_error
    );
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
    if sessions {
        client
            .send_request(ClientRequest::PingRequest(PingRequest::default()))
            .await
            .context("ping")?;
    }
    client.cancel().await?;

    let ping = if sessions { ", ping" } else { "" };
    println!("{version}, {} tools, call, read, get{ping}", tools.len());
    Ok(())
}

async fn connect(lifecycle: &str, transport: &str, target: &[String]) -> Result<Client> {
    let mut info = ClientConfig::default();
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
            info.protocol_version = serde_json::from_value(json!(revision))?;
            ClientLifecycleMode::Initialize
        }
    };
    Ok(match (transport, target) {
        ("http", [url]) => {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            info.serve_with_lifecycle(transport, lifecycle).await?
        }
        ("stdio", [program, args @ ..]) => {
            let mut command = tokio::process::Command::new(program);
            command.args(args);
            info.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle)
                .await?
        }
        _ => bail!("not a transport: {transport} {target:?}"),
    })
}

async fn call(client: &Client, name: &str, arguments: serde_json::Value) -> Result<CallToolResult> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
    Ok(client.call_tool(params).await?)
}
