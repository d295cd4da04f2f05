//! The filesystem toolset.

#[cfg(unix)]
mod escapes;
#[cfg(unix)]
mod limits;
#[cfg(unix)]
mod ordinary;
#[cfg(target_os = "linux")]
mod races;
#[cfg(unix)]
mod reference;
#[cfg(unix)]
mod roots;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longshore::{App, Config, Harness};
use serde_json::{Value, json};

/// A folder with one permitted directory and others beside it.
pub(super) struct Grounds {
    /// Ends with this.
    _folder: tempfile::TempDir,
    /// The whole folder, without symbolic links in its path.
    pub(super) base: PathBuf,
    /// The permitted directory.
    pub(super) root: PathBuf,
}

impl Grounds {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("there");
        let root = base.join("root");
        std::fs::create_dir(&root).expect("made");
        Self {
            _folder: folder,
            base,
            root,
        }
    }

    /// Writes a file below the base, and makes the directories to it.
    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.base.join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(&path, content).expect("written");
        path
    }

    pub(super) fn settings(&self) -> Value {
        json!({"directories": [self.root], "write": true})
    }

    /// A server that may use the root, with further settings.
    pub(super) fn server_with(&self, change: impl FnOnce(&mut Value)) -> Server {
        let mut settings = self.settings();
        change(&mut settings);
        Server::new(settings)
    }

    pub(super) fn server(&self) -> Server {
        self.server_with(|_| ())
    }
}

/// The toolset without a socket.
pub(super) struct Server {
    harness: Harness,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    pub(super) fn new(settings: Value) -> Self {
        let config = Config {
            toolsets: vec!["filesystem".to_owned()],
            builtin: serde_json::from_value(json!({"filesystem": settings})).expect("settings"),
            ..Config::default()
        };
        Self {
            harness: App::new().config(config).harness().expect("a server"),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime"),
        }
    }

    pub(super) fn result(&self, tool: &str, arguments: Value) -> Value {
        let called = self.harness.call(tool, arguments);
        self.runtime.block_on(called).expect("a result").into_json()
    }

    /// Makes calls concurrently.
    pub(super) fn results<'t>(&self, calls: impl Iterator<Item = (&'t str, Value)>) -> Vec<Value> {
        let calls = calls.map(|(tool, arguments)| self.harness.call(tool, arguments));
        let calls = futures_util::future::join_all(calls);
        let results = self.runtime.block_on(calls).into_iter();
        results
            .map(|result| result.expect("a result").into_json())
            .collect()
    }

    pub(super) fn tools(&self) -> Vec<String> {
        let tools = self.runtime.block_on(self.harness.tools()).expect("a list");
        let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
        tools.iter().map(name).collect()
    }

    /// The text of a result, or of a failure.
    pub(super) fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let result = self.result(tool, arguments);
        let text = match result["content"][0]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => result.to_string(),
        };
        match result["isError"] == true {
            true => Err(text),
            false => Ok(text),
        }
    }

    pub(super) fn read(&self, path: impl AsRef<Path>) -> Result<String, String> {
        self.call("read_text_file", json!({"path": path.as_ref()}))
    }

    pub(super) fn write(&self, path: impl AsRef<Path>, content: &str) -> Result<String, String> {
        let arguments = json!({"path": path.as_ref(), "content": content});
        self.call("write_file", arguments)
    }
}

/// Everything in a folder: the names, and what files contain and links say.
pub(super) fn everything_in(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a kind");
        let content = if kind.is_dir() {
            found.extend(everything_in(&entry.path()));
            "directory".to_owned()
        } else if kind.is_symlink() {
            format!("-> {:?}", std::fs::read_link(entry.path()).expect("a link"))
        } else if kind.is_file() {
            String::from_utf8_lossy(&std::fs::read(entry.path()).expect("read")).into_owned()
        } else {
            format!("{kind:?}")
        };
        found.insert(entry.path(), content);
    }
    found
}
