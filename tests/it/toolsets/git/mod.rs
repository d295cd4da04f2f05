//! The git toolset with normal and malicious repositories.

mod flags;
mod formats;
mod hostile;
mod links;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{call, serve};
use crate::support::Running;

/// A server with a repository that has nothing in it yet.
struct Git {
    folder: TempDir,
    repository: PathBuf,
    server: Running,
}

fn settings(folder: &Path, more: Value) -> Value {
    let mut git = json!({
        "repositories": [folder],
        "write": true,
        "author": {"name": "A U Thor", "email": "author@example.com"},
    });
    let more = more.as_object().expect("an object").clone();
    git.as_object_mut().expect("an object").extend(more);
    json!({ "git": git })
}

impl Git {
    fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(more: Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = folder.path().join("served/project");
        fs::create_dir_all(&repository).expect("made");
        let made = longshore::__test::gix::init(&repository).expect("a repository");
        let head = made.git_dir().join("HEAD");
        fs::write(head, "ref: refs/heads/main\n").expect("written");
        let server = serve("git", settings(&folder.path().join("served"), more));
        Self {
            folder,
            repository,
            server,
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.repository.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.repository.join(path)).expect("a file")
    }

    /// Returns the result of a tool, or its error.
    fn try_call(&self, tool: &str, more: Value) -> Result<String, String> {
        let mut arguments = json!({ "repo_path": self.repository });
        let more = more.as_object().expect("an object").clone();
        arguments.as_object_mut().expect("an object").extend(more);
        let result = call(&self.server, tool, arguments);
        let text = result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned();
        if result["isError"] == true {
            Err(text)
        } else {
            Ok(text)
        }
    }

    fn call(&self, tool: &str, more: Value) -> String {
        self.try_call(tool, more)
            .unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    fn refused(&self, tool: &str, more: Value) -> String {
        self.try_call(tool, more).expect_err(tool)
    }

    /// Stages everything and commits it.
    fn commit(&self, message: &str) -> String {
        self.call("git_add", json!({"files": ["."]}));
        let said = self.call("git_commit", json!({ "message": message }));
        said.rsplit(' ').next().expect("an id").to_owned()
    }

    fn status(&self) -> String {
        let status = self.call("git_status", json!({}));
        status.trim_end_matches('\n').to_owned()
    }

    fn git_dir(&self, path: &str) -> PathBuf {
        self.repository.join(".git").join(path)
    }
}

/// Returns the output of git, or nothing if git is not installed.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let said = Command::new("git")
        .current_dir(folder)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args([
            "-c",
            "user.name=A U Thor",
            "-c",
            "user.email=author@example.com",
        ])
        .args([
            "-c",
            "advice.statusHints=false",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(arguments)
        .output();
    let Ok(said) = said else {
        super::skipped("there is no git on this machine to compare with");
        return None;
    };
    assert!(
        said.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&said.stderr)
    );
    Some(
        String::from_utf8_lossy(&said.stdout)
            .trim_end_matches('\n')
            .to_owned(),
    )
}
