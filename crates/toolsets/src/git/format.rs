//! Formats of repositories that are not supported.

use std::path::Path;

use gix::Repository;

use super::repository::small_file;
use crate::catalog::ToolError;

/// Returns the error for a repository that cannot be opened.
pub(super) fn unreadable(folder: &Path, path: &str) -> ToolError {
    ToolError::new(match has_sha256(folder) {
        true => format!(
            "the repository at {path:?} uses SHA-256, which is not supported here; use git itself"
        ),
        false => format!("{path:?} is not a readable repository"),
    })
}

fn has_sha256(folder: &Path) -> bool {
    let config = [".git/config", "config"]
        .iter()
        .find_map(|file| small_file(&folder.join(file)))
        .unwrap_or_default()
        .to_ascii_lowercase();
    config.lines().any(|line| {
        let setting = line.split_once('=');
        setting.is_some_and(|(key, value)| key.trim() == "objectformat" && value.trim() == "sha256")
    })
}

/// Rejects a repository whose references are not files, such as one with `reftable`. It would look empty.
pub(super) fn check_references(repository: &Repository, path: &str) -> Result<(), ToolError> {
    let snapshot = repository.config_snapshot();
    let format = snapshot.string("extensions.refStorage");
    if format.is_some_and(|format| !format.eq_ignore_ascii_case(b"files")) {
        return Err(ToolError::new(format!(
            "the repository at {path:?} does not store its branches as files, which is not supported here; run git refs migrate --ref-format=files"
        )));
    }
    Ok(())
}
