//! A server in a thread of its own, on a port of its own.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use longshore::seal::Secret;
use longshore::server::{BatchPolicy, ValidationErrors};
use longshore::transport::http::HttpLimits;
use longshore::{App, Config, IntoTool};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Connection, Response, Session};

/// Builder of a server. Defaults apply, except for one worker and a free port.
pub(crate) struct Serve {
    app: App,
    config: Config,
}

/// A server that runs until it is dropped. Calls that run then are waited for.
pub(crate) struct Running {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A key of the right length, for servers that are to share one.
const SHARED_KEY: &str = "a secret that all the replicas of these tests share";

impl Serve {
    pub(crate) fn new() -> Self {
        let mut config = Config::default();
        config.http.port = 0;
        config.http.workers = Some(1);
        Self {
            app: App::new().name("test", "1"),
            config,
        }
    }

    /// The built-in demo toolset, at once.
    pub(crate) fn demo() -> Running {
        Self::new().toolset("demo").start()
    }

    /// The built-in demo toolset with other settings, at once.
    pub(crate) fn demo_with(change: impl FnOnce(&mut Config)) -> Running {
        Self::new().toolset("demo").configured(change).start()
    }

    /// With a built-in toolset.
    pub(crate) fn toolset(self, name: &str) -> Self {
        self.configured(|c| c.toolsets.push(name.to_owned()))
    }

    pub(crate) fn tool(mut self, tool: impl IntoTool) -> Self {
        self.app = self.app.tool(tool);
        self
    }

    pub(crate) fn app(mut self, change: impl FnOnce(App) -> App) -> Self {
        self.app = change(self.app);
        self
    }

    pub(crate) fn configured(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    pub(crate) fn limits(self, change: impl FnOnce(&mut HttpLimits)) -> Self {
        self.configured(|c| change(&mut c.http.limits))
    }

    pub(crate) fn batch(self, policy: BatchPolicy) -> Self {
        self.configured(|c| c.server.batch = policy)
    }

    pub(crate) fn validation_errors(self, reporting: ValidationErrors) -> Self {
        self.configured(|c| c.server.validation_errors = reporting)
    }

    pub(crate) fn page_size(self, tools: usize) -> Self {
        self.configured(|c| c.server.page_size = tools)
    }

    /// With TLS. The certificate is for `localhost` and `127.0.0.1`, and that of the CA is `ca.crt`.
    pub(crate) fn tls(self) -> Self {
        self.configured(|c| {
            c.http.tls.certificate = Some(tls_file("server.crt"));
            c.http.tls.key = Some(tls_file("server.key"));
        })
    }

    /// With a port for operators.
    pub(crate) fn admin(self) -> Self {
        self.configured(|c| c.http.admin.port = Some(0))
    }

    /// Seals with the key that all servers of which this is said have.
    pub(crate) fn shared_key(self) -> Self {
        self.configured(|c| c.seal.keys = vec![Secret::from(SHARED_KEY.to_owned())])
    }

    pub(crate) fn start(self) -> Running {
        let (stop, stopped) = oneshot::channel();
        let (bound, address) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let server = self.app.config(self.config).bind().await;
                let server = server.expect("a valid server");
                let address = server.address().expect("serves over HTTP");
                let _ = bound.send((address, server.admin_address()));
                let stop = async {
                    let _ = stopped.await;
                };
                Box::pin(server.serve_until(stop)).await.expect("serves");
            });
        });
        let (address, admin) = address.recv().expect("the server starts");
        Running {
            address,
            admin,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

/// A file of `tests/it/tls`.
pub(crate) fn tls_file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls")).join(name)
}

/// Binds an application that is expected not to start, without serving it.
pub(crate) fn bind(app: App) -> Result<longshore::BoundServer, longshore::AppError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(app.bind())
}

impl Running {
    /// Connects to a server that was started elsewhere.
    pub(super) fn at(address: SocketAddr) -> Self {
        Self {
            address,
            admin: None,
            stop: None,
            thread: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to stop, and does not wait for it.
    pub(crate) fn begin_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// A connection to the port for operators.
    pub(crate) fn connect_to_admin(&self) -> Connection {
        let admin = self.admin.expect("there is an admin port");
        Connection::new(TcpStream::connect(admin).expect("the server listens"))
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        Connection::new(stream)
    }

    /// Sends a POST to the endpoint over its own connection, with the usual headers and these.
    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &str) -> Response {
        self.connect().post(headers, body)
    }

    /// Asks for a page over its own connection.
    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> Response {
        self.connect().page(path)
    }

    /// Asks the port for operators for a page.
    #[track_caller]
    pub(crate) fn admin_page(&self, path: &str) -> Response {
        self.connect_to_admin().page(path)
    }

    /// A handshake.
    pub(crate) fn session(&self, revision: &str) -> Session<'_> {
        self.session_of(revision, &json!({}))
    }

    /// A handshake of a client that can do something.
    pub(crate) fn session_of(&self, revision: &str, capabilities: &Value) -> Session<'_> {
        Session::begin(self, revision, capabilities)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.begin_to_stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}
