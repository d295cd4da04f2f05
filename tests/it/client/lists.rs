//! Lists, and messages above the size limit.

use longshore::client::LifecycleCache;
use serde_json::Value;

use super::*;
use crate::support::{Asked, Site, Told};

/// A modern server whose pages are made by `page`, with a cursor for ever.
fn endless(page: fn(usize) -> Value) -> Site {
    Site::start(move |_, asked: &Asked| {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            _ => {
                let nth = message["params"]["cursor"].as_str().unwrap_or("0");
                let nth: usize = nth.parse().expect("one of its cursors");
                let mut result = page(nth);
                result["nextCursor"] = (nth + 1).to_string().into();
                result
            }
        };
        Told::json(
            200,
            json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        )
    })
}

async fn refused(page: fn(usize) -> Value) -> String {
    let site = endless(page);
    let deadlines = Deadlines {
        total: None,
        ..Deadlines::default()
    };
    let target = Target::Url {
        url: format!("{}/mcp", site.url).parse().expect("a URL"),
        headers: http::HeaderMap::new(),
        client: HttpClient::builder(Guard::public().allow_loopback())
            .deadlines(deadlines)
            .build()
            .expect("a client"),
    };
    let options = Options {
        message_bytes: 200_000,
        lifecycle_cache: LifecycleCache::default(),
        ..quick()
    };
    let client = Client::connect(target, options)
        .await
        .expect("a connection");
    let listed = client.list("tools/list", "tools").await;
    listed.expect_err("it has no end").to_string()
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up_by_its_bytes() {
    let text = refused(|_| json!({"tools": [{"name": "a", "description": "x".repeat(50_000)}]}));
    assert!(text.await.contains("800000 bytes"));
    let beside = refused(|_| json!({"tools": [], "x": vec![0; 50_000]}));
    assert!(beside.await.contains("800000 bytes"));
    let values = refused(|_| json!({"tools": [{"name": "a", "x": vec![0; 10_000]}]}));
    assert!(values.await.contains("1600000 bytes of memory"));
    let empty = refused(|_| json!({"tools": []}));
    assert!(empty.await.contains("10000 pages"));
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_alone() {
    let script = r#"while read -r line; do
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        case "$line" in
        *server/discover*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}' ;;
        *huge*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"x":"'$(head -c 30000 /dev/zero | tr '\0' x)'"}}' ;;
        *last*) echo '{"result":{"x":"'$(head -c 30000 /dev/zero | tr '\0' x)'"},"jsonrpc":"2.0","id":'$id'}' ;;
        *wait*) waits=$id ;;
        *) echo '{"jsonrpc":"2.0","id":'$waits',"result":{"waited":true}}'; echo '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;;
        esac
    done"#;
    let options = Options {
        message_bytes: 10_000,
        ..quick()
    };
    let client = Client::connect(sh(script), options)
        .await
        .expect("a connection");
    let ask =
        |name: &str| client.request("tools/call", Params::new().with("name", name), None, None);
    let others = async {
        for name in ["huge", "last"] {
            let error = ask(name).await.expect_err("too long");
            assert!(
                matches!(error, ClientError::TooLarge { max: 10_000 }),
                "{error}"
            );
            assert!(!error.ends_connection() && error.may_have_happened());
        }
        ask("any").await
    };
    let (waited, other) = tokio::join!(ask("wait"), others);
    assert!(waited.expect("an answer").get().contains("waited"));
    assert!(other.is_ok() && !client.is_closed());
}
