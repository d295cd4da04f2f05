//! Listings of upstream servers, as received and as cached on disk.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::OnChange;
use crate::catalog::SKILLS_EXTENSION;
use crate::client::{
    Client, ClientError, INTERNAL_ERROR, ListBudget, METHOD_NOT_FOUND, RpcError, is_temporary,
};
use crate::protocol::canonical;
use crate::seal::{random_bytes, sha256_hex};
use crate::source::tokens::write_private;

/// Items of a server, entry by entry as received.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Listing {
    pub(super) tools: Vec<Value>,
    pub(super) resources: Vec<Value>,
    pub(super) templates: Vec<Value>,
    pub(super) prompts: Vec<Value>,
    pub(super) skills: Vec<Value>,
    /// True if resources can be read.
    pub(super) reads: bool,
    /// True if the server supports completion.
    pub(super) completes: bool,
    /// Names of tools that are not offered because their definitions have changed.
    pub(super) quarantined: Vec<String>,
    /// Pinned digest of each tool's definition: the first one seen, or the one accepted later. Pins are kept while a
    /// tool is gone, so a changed tool is detected when it returns.
    pub(super) pins: BTreeMap<String, String>,
}

impl Listing {
    /// Requests all lists that the server has: those that it declares, and those that it has `announced` since.
    pub(super) async fn ask(
        client: &Client,
        announced: impl Fn(&str) -> bool,
    ) -> Result<Self, ClientError> {
        let server = client.server();
        let declares = |name: &str| server.capabilities.contains_key(name);
        let has = |name: &str| declares(name) || announced(name);
        let mut listing = Self {
            // Before 2025-03-26 there is no such capability.
            completes: has("completions") || !server.revision.announces_completions(),
            reads: has("resources"),
            ..Self::default()
        };
        let mut budget = client.list_budget();
        if has("tools") {
            let list = ("tools/list", "tools");
            listing.tools = ask_for(client, list, declares("tools"), &mut budget).await?;
        }
        if has("resources") {
            let list = ("resources/list", "resources");
            listing.resources = ask_for(client, list, declares("resources"), &mut budget).await?;
            listing.templates = match client
                .list_within("resources/templates/list", "resourceTemplates", &mut budget)
                .await
            {
                Err(ClientError::Rpc(error)) if has_no_templates(&error) => Vec::new(),
                found => found?,
            };
        }
        if has("prompts") {
            let list = ("prompts/list", "prompts");
            listing.prompts = ask_for(client, list, declares("prompts"), &mut budget).await?;
        }
        let server = client.server();
        let extensions = server.capabilities.get("extensions");
        let has_skills = extensions.is_some_and(|all| all.get(SKILLS_EXTENSION).is_some());
        if has_skills && !server.revision.has_sessions() {
            let list = ("skills/list", "skills");
            listing.skills = ask_for(client, list, true, &mut client.list_budget()).await?;
        }
        Ok(listing)
    }
}

/// Reads a list. Some servers declare capabilities that they do not have, or announce changes of lists without declaring
/// them.
async fn ask_for(
    client: &Client,
    (method, member): (&'static str, &str),
    is_declared: bool,
    budget: &mut ListBudget,
) -> Result<Vec<Value>, ClientError> {
    match client.list_within(method, member, budget).await {
        Err(ClientError::Rpc(error)) if has_no_list(&error, is_declared) => {
            tracing::debug!(method, %error, "a server does not have a list that it declares or announces");
            Ok(Vec::new())
        }
        found => found,
    }
}

/// Returns true if the error means that the server does not have the list. Servers reject a list that they do not declare
/// with various errors.
fn has_no_list(error: &RpcError, is_declared: bool) -> bool {
    // With this error, the list may be there at the next request.
    let may_pass = error.code == INTERNAL_ERROR || is_temporary(error);
    error.code == METHOD_NOT_FOUND || !is_declared && !may_pass
}

/// Returns true unless a proxy, or a server that is overloaded, responded. Some servers with resources do not support
/// templates, and reject the request with various errors.
fn has_no_templates(error: &RpcError) -> bool {
    !is_temporary(error) || error.status == Some(500)
}

/// Quarantines all tools: their pins cannot be read, so changes cannot be detected.
pub(super) fn without_memory(upstream: &str, mut fresh: Listing) -> Listing {
    tracing::error!(
        upstream,
        "the file with the pins of its tools cannot be read, and none of them is offered (on_change is quarantine); \
         restore the file in upstreams_folder, or remove it to accept the tools as they are"
    );
    let names = fresh.tools.iter().filter_map(|tool| tool["name"].as_str());
    fresh.quarantined = names.map(str::to_owned).collect();
    fresh
}

/// Maximum number of pins kept for tools that a server no longer offers.
const PINS_MAX: usize = 10_000;

/// Compares a listing with the former one, and applies the configured reaction to changes.
pub(super) fn compare(
    upstream: &str,
    on_change: OnChange,
    before: Option<Listing>,
    mut fresh: Listing,
) -> Listing {
    if on_change == OnChange::Allow {
        return fresh;
    }
    let mut pins = before.map(Listing::into_pins).unwrap_or_default();
    let mut changed = Vec::new();
    for tool in &fresh.tools {
        let Some(name) = tool["name"].as_str() else {
            continue;
        };
        let digest = digest(tool);
        match pins.get(name) {
            Some(known) if *known == digest => continue,
            Some(_) if on_change == OnChange::Quarantine => {
                fresh.quarantined.push(name.to_owned());
                continue;
            }
            Some(_) => changed.push(name),
            None if PINS_MAX <= pins.len() => continue,
            None => {}
        }
        pins.insert(name.to_owned(), digest);
    }
    if !changed.is_empty() {
        tracing::warn!(
            upstream,
            count = changed.len(),
            tools = listed(&changed),
            "tools are described otherwise than before"
        );
    }
    if !fresh.quarantined.is_empty() {
        tracing::warn!(
            upstream,
            count = fresh.quarantined.len(),
            tools = listed(&fresh.quarantined),
            "the descriptions of tools changed, so these tools are not offered (on_change is quarantine); to accept the changes, delete the stored list of this upstream"
        );
    }
    fresh.pins = pins;
    fresh
}

/// Maximum number of names in a message.
const NAMES_MAX: usize = 20;

/// Lists names for a message.
fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let shown = names.iter().take(NAMES_MAX).map(|name| name.as_ref());
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl Listing {
    /// Returns the pins, and computes those that were not stored.
    fn into_pins(self) -> BTreeMap<String, String> {
        let mut pins = self.pins;
        let quarantined: HashSet<&str> = self.quarantined.iter().map(String::as_str).collect();
        for tool in &self.tools {
            if let Some(name) = tool["name"].as_str()
                && !quarantined.contains(name)
            {
                pins.entry(name.to_owned()).or_insert_with(|| digest(tool));
            }
        }
        pins
    }
}

/// Returns a digest of a tool's definition, regardless of the order of its members.
fn digest(tool: &Value) -> String {
    let text = tool.to_string();
    let text = canonical(&text).unwrap_or(text);
    sha256_hex(text)
}

/// Cache of listings in files, one for each server.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    folder: Option<PathBuf>,
}

#[derive(Deserialize, Serialize)]
struct Remembered {
    /// Random for each file, so that equal configurations have different digests.
    #[serde(default)]
    salt: String,
    /// Digest of the salt and the configuration's fingerprint.
    fingerprint: String,
    listing: Listing,
}

impl Memory {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        if let Some(folder) = &folder
            && let Err(error) = std::fs::create_dir_all(folder)
        {
            tracing::warn!(folder = %folder.display(), %error, "the lists of upstream servers cannot be stored");
        }
        Self { folder }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        // Names are configuration keys and can contain any character.
        let digest = &sha256_hex(name)[..16];
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(40)
            .collect();
        Some(self.folder.as_ref()?.join(format!("{plain}-{digest}.json")))
    }

    /// Returns true if there is a file for a server that cannot be read.
    pub(super) fn is_unreadable(&self, name: &str) -> bool {
        let Some(file) = self.file(name) else {
            return false;
        };
        match std::fs::read(file) {
            Ok(text) => serde_json::from_slice::<Remembered>(&text).is_err(),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }

    fn read(&self, name: &str) -> Option<Remembered> {
        let text = std::fs::read(self.file(name)?).ok()?;
        match serde_json::from_slice(&text) {
            Ok(remembered) => Some(remembered),
            Err(error) => {
                tracing::warn!(upstream = name, %error, "a stored list cannot be read; it is requested from the server");
                None
            }
        }
    }

    /// Returns the cached listing of a server with exactly this configuration.
    pub(super) fn recall(&self, name: &str, fingerprint: &str) -> Option<Listing> {
        let remembered = self.read(name)?;
        let is_same = remembered.fingerprint == salted(&remembered.salt, fingerprint);
        is_same.then_some(remembered.listing)
    }

    /// Returns the cached listing of a server with this name, regardless of its configuration.
    pub(super) fn recall_any(&self, name: &str) -> Option<Listing> {
        Some(self.read(name)?.listing)
    }

    /// Stores a listing. Readers never see a partial file.
    pub(super) fn keep(&self, name: &str, fingerprint: &str, listing: &Listing) {
        let Some(file) = self.file(name) else {
            return;
        };
        let salt = HEXLOWER.encode(&random_bytes::<16>());
        let remembered = Remembered {
            fingerprint: salted(&salt, fingerprint),
            salt,
            listing: listing.clone(),
        };
        let written = serde_json::to_vec(&remembered)
            .map_err(std::io::Error::other)
            .and_then(|text| write_private(&file, &text));
        if let Err(error) = written {
            tracing::warn!(file = %file.display(), %error, "the lists of an upstream server cannot be stored");
        }
    }
}

fn salted(salt: &str, fingerprint: &str) -> String {
    sha256_hex(format!("{salt}/{fingerprint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::parts::SourceParts;
    use crate::source::upstream::UpstreamConfig;
    use crate::source::upstream::connection::Upstream;
    use serde_json::json;

    fn upstream(on_change: OnChange) -> Upstream {
        let config = UpstreamConfig {
            command: Some("x".to_owned()),
            on_change,
            ..UpstreamConfig::default()
        };
        let background = crate::net::Background::new();
        Upstream::new("x", config, background, &SourceParts::default()).expect("valid")
    }

    fn with(description: &str) -> Listing {
        Listing {
            tools: vec![
                json!({"name": "a", "description": description}),
                json!({"name": "b"}),
            ],
            ..Listing::default()
        }
    }

    #[test]
    fn only_a_lasting_error_of_an_undeclared_list_shows_that_it_is_not_there() {
        let has_no_list = |code, status, is_declared| {
            let mut error = RpcError::new(code, "no");
            error.status = status;
            has_no_list(&error, is_declared)
        };
        assert!(has_no_list(METHOD_NOT_FOUND, None, true));
        assert!(has_no_list(METHOD_NOT_FOUND, None, false));
        for (code, status) in [(-32602, None), (-32000, None), (-32600, Some(400))] {
            assert!(has_no_list(code, status, false), "{code} {status:?}");
            assert!(!has_no_list(code, status, true), "{code} {status:?}");
        }
        for (code, status) in [
            (INTERNAL_ERROR, None),
            (-32000, Some(503)),
            (-32000, Some(429)),
        ] {
            assert!(!has_no_list(code, status, false), "{code} {status:?}");
        }
    }

    #[test]
    fn templates_are_not_lost_by_an_error_that_passes() {
        let has_no_templates = |code, status| {
            let mut error = RpcError::new(code, "no");
            error.status = status;
            has_no_templates(&error)
        };
        for status in [None, Some(400), Some(500)] {
            assert!(has_no_templates(METHOD_NOT_FOUND, status), "{status:?}");
            assert!(has_no_templates(INTERNAL_ERROR, status), "{status:?}");
        }
        for status in [429, 502, 503, 504] {
            assert!(!has_no_templates(-32000, Some(status)), "{status}");
        }
    }

    #[test]
    fn a_tool_that_is_not_what_it_was_is_treated_as_configured() {
        let compared = |on_change, before| compare("x", on_change, before, with("new")).quarantined;
        assert_eq!(compared(OnChange::Quarantine, Some(with("old"))), ["a"]);
        assert!(compared(OnChange::Quarantine, Some(with("new"))).is_empty());
        assert!(compared(OnChange::Quarantine, None).is_empty());
        assert!(compared(OnChange::Warn, Some(with("old"))).is_empty());
        assert!(compared(OnChange::Allow, Some(with("old"))).is_empty());
    }

    #[test]
    fn neither_asking_twice_nor_going_away_makes_another_tool_acceptable() {
        let on_change = OnChange::Quarantine;
        let first = compare("x", on_change, None, with("old"));
        let changed = compare("x", on_change, Some(first), with("new"));
        assert_eq!(changed.quarantined, ["a"]);
        let still = compare("x", on_change, Some(changed), with("new"));
        assert_eq!(still.quarantined, ["a"]);
        let gone = compare("x", on_change, Some(still), Listing::default());
        assert!(gone.quarantined.is_empty());
        let returned = compare("x", on_change, Some(gone), with("new"));
        assert_eq!(returned.quarantined, ["a"]);
        let sorry = compare("x", on_change, Some(returned), with("old"));
        assert!(sorry.quarantined.is_empty(), "it is what it was");
    }

    #[test]
    fn changed_tools_are_listed_in_one_message() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        let names: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        let listed = listed(&names);
        assert!(
            listed.starts_with("0, 1, ") && listed.ends_with(", 19 and 5 more"),
            "{listed}"
        );
    }

    #[test]
    fn what_cannot_be_compared_is_not_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(Some(folder.path().to_owned()));
        let upstream = upstream(OnChange::Quarantine);
        let file = memory.file("x").expect("a folder is set");
        std::fs::write(&file, "{").expect("written");
        for _ in 0..2 {
            upstream.learn(with("new"), &memory);
            let known = upstream.known().expect("known");
            assert_eq!(known.quarantined, ["a", "b"]);
            assert!(memory.is_unreadable("x"), "the file stays");
        }
        std::fs::remove_file(&file).expect("removed");
        upstream.learn(with("new"), &memory);
        assert!(upstream.known().expect("known").quarantined.is_empty());
    }

    #[test]
    fn the_order_of_members_is_no_change() {
        let of = |text: &str| digest(&serde_json::from_str(text).expect("JSON"));
        assert_eq!(
            of(r#"{"name": "a", "inputSchema": {"x": 1, "y": 2}}"#),
            of(r#"{"inputSchema": {"y": 2, "x": 1}, "name": "a"}"#)
        );
        assert_ne!(of(r#"{"name": "a"}"#), of(r#"{"name": "b"}"#));
    }

    #[test]
    fn what_is_remembered_is_for_one_name_and_one_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Memory::new(Some(folder.path().join("deeper")));
        assert_eq!(memory.recall("../x", "f"), None);
        memory.keep("../x", "f", &with("d"));
        assert_eq!(memory.recall("../x", "f"), Some(with("d")));
        assert_eq!(memory.recall("../x", "g"), None);
        assert_eq!(memory.recall_any("../x"), Some(with("d")));
        assert_eq!(memory.recall("..", "f"), None);
        let file = memory.file("../x").expect("a folder is set");
        assert!(file.starts_with(folder.path().join("deeper")));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(&file)
                .expect("a file")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert!(!memory.is_unreadable("../x"));
        std::fs::write(file, "{").expect("written");
        assert_eq!(memory.recall("../x", "f"), None);
        assert!(memory.is_unreadable("../x"));
        assert!(!memory.is_unreadable("never seen"));
        let none = Memory::new(None);
        none.keep("x", "f", &with("d"));
        assert_eq!(none.recall("x", "f"), None);
    }
}
