//! Upstream servers that speak 2026-07-28 and nothing else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use longshore::source::UpstreamConfig;
use serde_json::{Value, json};

use super::{behind, listed};
use crate::lasting::{changed, open};
use crate::support::becomes;

/// A small server over HTTP with one tool, whose argument `region` is mirrored. It notes the headers of calls, and says
/// on demand that its tools have changed.
struct Modern {
    address: std::net::SocketAddr,
    calls: mpsc::Receiver<Vec<(String, String)>>,
    tell: mpsc::Sender<Tell>,
    renamed: Arc<AtomicBool>,
}

/// Action on the stream of `subscriptions/listen`.
enum Tell {
    Changed,
    Break,
}

struct Request {
    headers: Vec<(String, String)>,
    body: Value,
}

impl Modern {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (called, calls) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let told = Arc::new(Mutex::new(told));
        let renamed = Arc::new(AtomicBool::new(false));
        let is_renamed = Arc::clone(&renamed);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (called, told, renamed) =
                    (called.clone(), Arc::clone(&told), Arc::clone(&is_renamed));
                std::thread::spawn(move || converse(stream, &called, &told, &renamed));
            }
        });
        Self {
            address,
            calls,
            tell,
            renamed,
        }
    }

    fn config(&self) -> UpstreamConfig {
        serde_json::from_value(json!({"url": format!("http://{}/mcp", self.address)}))
            .expect("valid")
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length")?;
    let mut body = vec![0; length.1.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).ok()?;
    Some(Request { headers, body })
}

fn converse(
    stream: TcpStream,
    called: &mpsc::Sender<Vec<(String, String)>>,
    told: &Mutex<mpsc::Receiver<Tell>>,
    renamed: &AtomicBool,
) {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream) {
        let id = request.body["id"].clone();
        let mut status = "200 OK";
        let mut code = -32601;
        let result = match request.body["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                let mut result = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}}});
                if renamed.load(Ordering::SeqCst) {
                    result["capabilities"]["prompts"] = json!({});
                }
                result
            }
            "prompts/list" => json!({"prompts": [{"name": "advise"}]}),
            "tools/list" => {
                let name = match renamed.load(Ordering::SeqCst) {
                    true => "sell",
                    false => "buy",
                };
                json!({"tools": [{"name": name, "inputSchema": {"type": "object", "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "deep": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
                    "gift": {"type": "boolean", "x-mcp-header": "Gift"},
                }}}]})
            }
            "tools/call" if renamed.load(Ordering::SeqCst) => {
                (status, code) = ("400 Bad Request", -32020);
                Value::Null
            }
            "tools/call" => {
                let _ = called.send(request.headers);
                json!({"content": [{"type": "text", "text": "sold"}]})
            }
            "subscriptions/listen" => {
                return tell(stream.into_inner(), &id, &request.body, told);
            }
            _ => {
                status = "404 Not Found";
                Value::Null
            }
        };
        let mut answer = json!({"jsonrpc": "2.0", "id": id});
        if result.is_null() {
            answer["error"] = json!({"code": code, "message": "no"});
        } else {
            answer["result"] = result;
            answer["result"]["resultType"] = json!("complete");
        }
        let body = answer.to_string();
        let written = write!(
            stream.get_mut(),
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if written.is_err() {
            return;
        }
    }
}

/// Serves `subscriptions/listen` as long as there are actions.
fn tell(mut stream: TcpStream, id: &Value, body: &Value, told: &Mutex<mpsc::Receiver<Tell>>) {
    assert_eq!(
        body["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let event = |method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        format!("data: {message}\n\n")
    };
    let acknowledged = event(
        "notifications/subscriptions/acknowledged",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    if write!(stream, "{head}{acknowledged}").is_err() {
        return;
    }
    let told = told.lock().expect("not poisoned");
    while let Ok(Tell::Changed) = told.recv() {
        let changed = event("notifications/tools/list_changed", json!({}));
        if write!(stream, "{changed}").is_err() {
            return;
        }
    }
}

#[test]
fn mh_10_arguments_are_mirrored_in_headers_where_the_upstream_wants_that() {
    let modern = Modern::start();
    let server = behind([("shop", modern.config())]).start();
    let session = server.session("2025-06-18");
    let arguments = json!({"region": "Øst", "deep": {"count": 42}, "gift": null});
    let called = session.call("shop__buy", &arguments).result();
    assert_eq!(called["content"][0]["text"], "sold");
    let headers = modern.calls.recv().expect("it was called");
    let header = |name: &str| {
        let found = headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(header("mcp-param-region"), Some("=?base64?w5hzdA==?="));
    assert_eq!(header("mcp-param-count"), Some("42"));
    // MH-11: an absent argument has no header.
    assert_eq!(header("mcp-param-gift"), None);
    assert_eq!(header("mcp-name"), Some("buy"));
    assert_eq!(header("mcp-method"), Some("tools/call"));
    assert_eq!(header("mcp-session-id"), None);
}

#[test]
fn sub_03_an_upstream_without_sessions_is_asked_to_tell_of_changes() {
    let modern = Modern::start();
    let server = behind([("shop", modern.config())]).toolset("demo").start();
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    assert!(listed(&server).contains_key("shop__buy"));
    modern.renamed.store(true, Ordering::SeqCst);
    modern.tell.send(Tell::Changed).expect("it listens");
    assert_eq!(stream.event(), Some(changed("tools")));
    let listed = listed(&server);
    assert!(listed.contains_key("shop__sell") && !listed.contains_key("shop__buy"));
}

#[test]
fn what_changed_while_a_stream_was_broken_is_found_out_when_it_is_back() {
    let modern = Modern::start();
    let server = behind([("shop", modern.config())]).toolset("demo").start();
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    assert!(listed(&server).contains_key("shop__buy"));
    modern.renamed.store(true, Ordering::SeqCst);
    // A broken stream without a change notification, as in a restart.
    modern.tell.send(Tell::Break).expect("it listens");
    let mut events = [stream.event(), stream.event()];
    events.sort_by_key(|event| event.as_ref().map(Value::to_string));
    assert_eq!(events, [Some(changed("prompts")), Some(changed("tools"))]);
    let tools = listed(&server);
    assert!(tools.contains_key("shop__sell") && !tools.contains_key("shop__buy"));
    let prompts = session.request("prompts/list", &json!({})).result();
    let has = |prompt: &Value| prompt["name"] == "shop__advise";
    assert!(
        prompts["prompts"]
            .as_array()
            .is_some_and(|all| all.iter().any(has)),
        "{prompts}"
    );
}

#[test]
fn a_mismatch_of_headers_has_the_list_of_tools_looked_at_again() {
    let modern = Modern::start();
    let server = behind([("shop", modern.config())]).start();
    assert!(listed(&server).contains_key("shop__buy"));
    modern.renamed.store(true, Ordering::SeqCst);
    let session = server.session("2025-11-25");
    // The caller's message has no such mistake.
    session
        .call("shop__buy", &json!({}))
        .error(200, -32603, "1");
    becomes(|| listed(&server).contains_key("shop__sell"));
}
