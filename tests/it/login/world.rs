//! A server that wants a login, its issuer, and a user who consents.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use url::Url;

use crate::support::{Asked, Site, Told, longshore};

/// A server of one tool that wants a token, and the issuer that gives it, at one address.
pub(super) struct World {
    pub(super) site: Site,
    /// Number of issued tokens; only the last one is valid.
    pub(super) given: Arc<AtomicUsize>,
    /// Up to this one the server takes none.
    pub(super) taken_back: Arc<AtomicUsize>,
    pub(super) folder: tempfile::TempDir,
}

impl World {
    /// `change` modifies the issuer's metadata.
    pub(super) fn new(change: Value) -> Self {
        let given = Arc::new(AtomicUsize::new(0));
        let taken_back = Arc::new(AtomicUsize::new(0));
        let (count, bad) = (Arc::clone(&given), Arc::clone(&taken_back));
        let site = Site::start(move |url, asked| {
            if asked.target == "/mcp" {
                let bad = bad.load(Ordering::Relaxed);
                let good = Some(count.load(Ordering::Relaxed)).filter(|last| bad < *last);
                return serve(url, asked, good);
            }
            answer(url, asked, &count, &change)
        });
        Self {
            site,
            given,
            taken_back,
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub(super) fn server(&self) -> String {
        format!("{}/mcp", self.site.url)
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = longshore(arguments, &[]);
        command
            .env("LONGSHORE_TOKENS", self.folder.path().join("tokens"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("runs")
    }

    /// The file of the one login that is kept.
    pub(super) fn login(&self) -> Option<(std::path::PathBuf, Value)> {
        let files = std::fs::read_dir(self.folder.path().join("tokens")).ok()?;
        // Locks stay beside them.
        let mut files = files.map(|entry| entry.expect("an entry").path());
        let file = files.find(|file| file.extension().is_some_and(|e| e == "login"))?;
        let text = std::fs::read(&file).expect("readable");
        let mut kept: Value = serde_json::from_slice(&text).expect("JSON");
        Some((file, kept["grants"][0].take()))
    }

    /// A configuration file.
    pub(super) fn configuration(&self, configuration: &Value) -> String {
        let file = self.folder.path().join("longshore.json");
        std::fs::write(&file, configuration.to_string()).expect("written");
        let mut mode = file.metadata().expect("there").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
        std::fs::set_permissions(&file, mode).expect("closed");
        file.to_str().expect("a path").to_owned()
    }

    /// Begins to log in, up to where a browser is to go.
    pub(super) fn begin(&self, more: &[&str]) -> Going {
        self.begin_at(&self.server(), more)
    }

    /// Begins a login to a server with this name.
    pub(super) fn begin_at(&self, server: &str, more: &[&str]) -> Going {
        self.begin_by(self.command(&[&["login", server], more].concat()))
    }

    pub(super) fn begin_by(&self, mut command: Command) -> Going {
        let mut child = command.spawn().expect("runs");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut page = None;
        let mut before = String::new();
        let mut line = String::new();
        while page.is_none() && said.read_line(&mut line).expect("readable") > 0 {
            page = line
                .trim()
                .strip_prefix(&*self.site.url)
                .map(|_| line.trim().to_owned());
            before.push_str(&line);
            line.clear();
        }
        let page = page.unwrap_or_else(|| panic!("no page: {before}"));
        Going {
            child,
            said,
            page: page.parse().expect("a URL"),
        }
    }
}

/// A login that waits for the browser.
pub(super) struct Going {
    pub(super) child: Child,
    pub(super) said: BufReader<std::process::ChildStderr>,
    pub(super) page: Url,
}

impl Going {
    pub(super) fn parameter(&self, name: &str) -> String {
        let mut all = self.page.query_pairs();
        let found = all.find_map(|(key, value)| (key == name).then(|| value.into_owned()));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.page))
    }

    /// Returns the page of the browser redirect with these parameters.
    pub(super) fn back(&self, parameters: &[(&str, &str)]) -> String {
        let mut url: Url = self.parameter("redirect_uri").parse().expect("a URL");
        url.query_pairs_mut().extend_pairs(parameters);
        let address = (url.host_str().expect("a host"), url.port().expect("a port"));
        let mut stream = TcpStream::connect(address).expect("it listens");
        let target = &url[url::Position::BeforePath..];
        write!(stream, "GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("written");
        let mut shown = String::new();
        stream.read_to_string(&mut shown).expect("an answer");
        shown
    }

    /// Simulates the user's consent.
    pub(super) fn consent(self, issuer: &str) -> (bool, String) {
        let state = self.parameter("state");
        self.back(&[("code", "good"), ("state", &*state), ("iss", issuer)]);
        self.end()
    }

    /// Returns the success and the output.
    pub(super) fn end(mut self) -> (bool, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("readable");
        let output = self.child.wait_with_output().expect("ended");
        assert!(output.stdout.is_empty(), "standard output is for data");
        (output.status.success(), said)
    }
}

fn answer(url: &str, asked: &Asked, given: &AtomicUsize, change: &Value) -> Told {
    let path = asked.target.split('?').next().unwrap_or_default();
    match path {
        _ if change["without"]
            .as_str()
            .is_some_and(|what| path.starts_with(what)) =>
        {
            Told::json(404, json!({}))
        }
        "/register" if change["registers"] == false => Told::json(404, json!({})),
        "/.well-known/oauth-protected-resource/mcp" => Told::json(
            200,
            json!({
                "resource": format!("{url}/mcp"),
                "authorization_servers": [change["named"].as_str().map_or_else(|| url.to_owned(), |end| format!("{url}{end}"))],
            }),
        ),
        "/.well-known/oauth-authorization-server" => {
            let mut metadata = json!({
                "issuer": url,
                "authorization_endpoint": format!("{url}/authorize"),
                "token_endpoint": format!("{url}/token"),
                "registration_endpoint": format!("{url}/register"),
                "revocation_endpoint": format!("{url}/revoke"),
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": true,
                "scopes_supported": ["tools", "offline_access"],
            });
            for (name, value) in change.as_object().into_iter().flatten() {
                metadata[name] = value.clone();
            }
            Told::json(200, metadata)
        }
        "/register" => Told::json(201, json!({"client_id": "registered"})),
        "/revoke" => Told::json(200, json!({})),
        "/token" => {
            let number = given.load(Ordering::Relaxed);
            let refresh = asked.field("refresh_token");
            // Refresh tokens are good for once.
            if refresh.is_some_and(|token| token != format!("refresh{number}")) {
                return Told::json(400, json!({"error": "invalid_grant"}));
            }
            let number = number + 1;
            given.store(number, Ordering::Relaxed);
            Told::json(
                200,
                json!({
                    "access_token": format!("access{number}"), "token_type": "Bearer", "expires_in": 3600,
                    "refresh_token": format!("refresh{number}"),
                }),
            )
        }
        _ => Told::json(404, json!({})),
    }
}

/// A small MCP server that accepts only the last token.
fn serve(url: &str, asked: &Asked, good: Option<usize>) -> Told {
    let shown = asked.headers.get("authorization");
    if good.is_none_or(|good| shown != Some(&format!("Bearer access{good}"))) {
        let metadata = format!("{url}/.well-known/oauth-protected-resource/mcp");
        let challenge = format!("Bearer resource_metadata=\"{metadata}\", scope=\"tools\"");
        return Told::json(401, json!({})).header("www-authenticate", &challenge);
    }
    let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    if message["params"]["name"] == "write" && good.is_some_and(|good| good < 2) {
        let challenge = "Bearer error=\"insufficient_scope\", scope=\"files:write tools\"";
        return Told::json(403, json!({})).header("www-authenticate", challenge);
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "0"},
        }),
        "tools/call" => json!({"content": [{"type": "text", "text": "done"}]}),
        "tools/list" => json!({"tools": [{"name": "secret", "inputSchema": {"type": "object"}}]}),
        _ if asked.method == "GET" => return Told::json(405, json!({})),
        _ => return Told::json(202, json!({})),
    };
    Told::json(
        200,
        json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
    )
}

pub(super) fn has_tool(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success() && text.contains("secret")
}
