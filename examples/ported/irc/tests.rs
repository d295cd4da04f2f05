use longshore::Harness;
use longshore::auth::Principal;
use serde_json::{Value, json};

use super::*;

async fn connected(server: &Harness, nickname: &str) -> longshore::Result<Value> {
    let connected = server
        .call("irc.connect", json!({"nickname": nickname}))
        .await?;
    Ok(connected["structuredContent"]["agent_id"].clone())
}

#[tokio::test]
async fn guests_talk_to_each_other() -> longshore::Result {
    let server = app().harness()?;
    assert_eq!(server.tools().await?.len(), 16);
    let (ada, bob) = (
        connected(&server, "ada").await?,
        connected(&server, "bob").await?,
    );
    for id in [&ada, &bob] {
        server
            .call("irc.join", json!({"agent_id": id, "channel": "#tests"}))
            .await?;
    }
    let sent = json!({"agent_id": ada, "channel": "#tests", "text": "one\ntwo"});
    assert_eq!(
        server.call("irc.send", sent).await?.structured::<usize>()?,
        2
    );
    let history = json!({"agent_id": bob, "channel": "#tests", "limit": 1});
    let history = server.call("irc.history", history).await?;
    assert_eq!(history["structuredContent"][0]["text"], "two");
    assert_eq!(
        history
            .progress()
            .last()
            .and_then(|p| p.message.clone())
            .as_deref(),
        Some("read")
    );
    let kick = json!({"agent_id": bob, "channel": "#tests", "nickname": "ada"});
    let kick = server.call("irc.kick", kick).await?;
    assert_eq!(kick.text(), "bob is not an operator of #tests");
    Ok(())
}

#[tokio::test]
async fn a_key_is_asked_for() -> longshore::Result {
    let server = app().harness()?.on_client_request(|method, _| {
        assert_eq!(method, "elicitation/create");
        json!({"action": "accept", "content": {"word": "sesame"}})
    });
    let (ada, bob) = (
        connected(&server, "ada").await?,
        connected(&server, "bob").await?,
    );
    let opened = json!({"agent_id": ada, "channel": "#cave", "key": "sesame"});
    assert!(!server.call("irc.join", opened).await?.is_error());
    let joined = server
        .call("irc.join", json!({"agent_id": bob, "channel": "#cave"}))
        .await?;
    assert!(!joined.is_error(), "{joined}");
    let names = json!({"agent_id": bob, "channel": "#cave"});
    let names = server.call("irc.names", names).await?;
    assert_eq!(names.structured::<Vec<String>>()?, ["ada", "bob"]);
    Ok(())
}

#[tokio::test]
async fn a_handle_is_its_owners() -> longshore::Result {
    let server = app().harness()?.with_principal(Principal::new("ada"));
    let ada = connected(&server, "ada").await?;
    server
        .call("irc.join", json!({"agent_id": ada, "channel": "#tests"}))
        .await?;
    let topic = json!({"agent_id": ada, "channel": "#tests", "topic": "Tests"});
    server.call("irc.topic.set", topic).await?;
    let uri = "irc://agents/agent-1/channels/%23tests/topic";
    assert_eq!(server.read(uri).await?["contents"][0]["text"], "Tests");
    let complete = json!({
        "ref": {"type": "ref/resource", "uri": "irc://agents/{agent_id}/channels/{channel}/topic"},
        "argument": {"name": "channel", "value": "#t"},
        "context": {"arguments": {"agent_id": ada}},
    });
    let found = server
        .request("completion/complete", complete.clone())
        .await?;
    assert_eq!(found["completion"]["values"], json!(["#tests"]));

    let server = server.with_principal(Principal::new("bob"));
    let status = server.call("irc.status", json!({"agent_id": ada})).await?;
    assert_eq!(status.text(), "there is no agent agent-1; call irc.connect");
    let found = server.request("completion/complete", complete).await?;
    assert_eq!(found["completion"]["values"], json!([]));
    Ok(())
}
