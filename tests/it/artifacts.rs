//! Results that are too large to be sent.

use serde_json::{Value, json};

use crate::support::{Running, Serve};

/// A server with a command whose result has 5000 bytes.
fn serve(folder: Option<&std::path::Path>) -> Serve {
    let source = json!({"name": "c", "command": {"tools": [
        {"name": "large", "description": "Says much.", "argv": ["sh", "-c", "head -c 5000 /dev/zero | tr '\\0' x"]},
        {"name": "small", "description": "Says little.", "argv": ["echo", "hello"]},
    ]}});
    Serve::new().shared_key().configured(|c| {
        c.sources = vec![serde_json::from_value(source).expect("valid")];
        c.artifacts.above_bytes = Some(1000);
        c.artifacts.folder = folder.map(Into::into);
        crate::auth::with_keys(c);
    })
}

fn ask(server: &Running, key: &str, method: &str, params: Value) -> crate::support::Response {
    crate::support::Stateless::new(method, params)
        .and("authorization", &crate::auth::bearer(key))
        .send(server)
}

#[test]
fn a_large_result_is_a_link_for_its_caller_on_every_replica() {
    let folder = tempfile::tempdir().expect("a folder");
    let servers = [(); 2].map(|()| serve(Some(folder.path())).start());
    let call = |name: &str| {
        let params = json!({"name": name, "arguments": {}});
        ask(&servers[0], crate::auth::CI, "tools/call", params).result()
    };
    assert_eq!(call("small")["content"].as_array().map(Vec::len), Some(1));
    let result = call("large");
    let said = result["content"][0]["text"].as_str().expect("a text");
    assert!(said.starts_with("The result has 5000 bytes") && said.len() < 2000);
    let link = &result["content"][1];
    assert_eq!(link["type"], "resource_link");
    let uri = json!({"uri": link["uri"]});
    for server in &servers {
        let read = ask(server, crate::auth::CI, "resources/read", uri.clone()).result();
        let text = read["contents"][0]["text"].as_str().expect("a text");
        assert_eq!(text.len(), 5000);
        let refused = ask(server, crate::auth::BOB, "resources/read", uri.clone());
        assert!(refused.json().get("error").is_some(), "it is not bob's");
    }
}

#[test]
fn without_a_setting_nothing_is_kept() {
    let server = serve(None)
        .configured(|c| c.artifacts.above_bytes = None)
        .start();
    let params = json!({"name": "large", "arguments": {}});
    let result = ask(&server, crate::auth::CI, "tools/call", params).result();
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert_eq!(text.len(), 5000);
}
