//! What a server offers, as it says, and as it is remembered.

use std::collections::BTreeMap;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::config::OnChange;
use super::connection::Upstream;
use crate::client::{Client, ClientError};
use crate::protocol::canonical;

/// What a server offers, entry by entry as it said it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Listing {
    pub(super) tools: Vec<Value>,
    pub(super) resources: Vec<Value>,
    pub(super) templates: Vec<Value>,
    pub(super) prompts: Vec<Value>,
    /// Whether it suggests values.
    pub(super) completes: bool,
    /// Names of tools that are not offered, since they are not what they were.
    pub(super) quarantined: Vec<String>,
    /// What each tool was when it was seen first, or accepted: a digest of how it was described. One that goes away
    /// and comes back as another is found out by that.
    pub(super) pins: BTreeMap<String, String>,
}

impl Listing {
    pub(super) async fn ask(client: &Client) -> Result<Self, ClientError> {
        let has = |name: &str| client.server().capabilities.contains_key(name);
        let mut listing = Self {
            completes: has("completions"),
            ..Self::default()
        };
        if has("tools") {
            listing.tools = client.list("tools/list", "tools").await?;
        }
        if has("resources") {
            listing.resources = client.list("resources/list", "resources").await?;
            // Some that have resources know no templates.
            listing.templates = match client
                .list("resources/templates/list", "resourceTemplates")
                .await
            {
                Err(ClientError::Rpc(_)) => Vec::new(),
                found => found?,
            };
        }
        if has("prompts") {
            listing.prompts = client.list("prompts/list", "prompts").await?;
        }
        Ok(listing)
    }
}

/// How many tools of one server are remembered that it does not offer any more.
const PINS_MAX: usize = 10_000;

/// Compares what a server offers with what it offered before, and does about changes what its configuration says.
pub(super) fn compare(upstream: &Upstream, before: Option<Listing>, mut fresh: Listing) -> Listing {
    let on_change = upstream.config.on_change;
    if on_change == OnChange::Allow {
        return fresh;
    }
    let mut pins = before.map(Listing::into_pins).unwrap_or_default();
    for tool in &fresh.tools {
        let Some(name) = tool["name"].as_str() else {
            continue;
        };
        let digest = digest(tool);
        match pins.get(name) {
            Some(known) if *known == digest => continue,
            Some(_) if on_change == OnChange::Quarantine => {
                tracing::warn!(
                    upstream = upstream.name,
                    tool = name,
                    "a tool is described otherwise than before, and not offered (on_change is quarantine); remove what \
                     is remembered of this upstream to accept it"
                );
                fresh.quarantined.push(name.to_owned());
                continue;
            }
            Some(_) => tracing::warn!(
                upstream = upstream.name,
                tool = name,
                "a tool is described otherwise than before"
            ),
            None if PINS_MAX <= pins.len() => continue,
            None => {}
        }
        pins.insert(name.to_owned(), digest);
    }
    fresh.pins = pins;
    fresh
}

impl Listing {
    /// What each tool was, also where that was not written down.
    fn into_pins(self) -> BTreeMap<String, String> {
        let mut pins = self.pins;
        for tool in &self.tools {
            if let Some(name) = tool["name"].as_str() {
                pins.entry(name.to_owned()).or_insert_with(|| digest(tool));
            }
        }
        pins
    }
}

/// Stands for how a tool is described, whatever the order of its members.
fn digest(tool: &Value) -> String {
    let text = tool.to_string();
    let text = canonical(&text).unwrap_or(text);
    HEXLOWER.encode(&Sha256::digest(text))
}

/// Listings in files, one for each server.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    folder: Option<PathBuf>,
}

#[derive(Deserialize, Serialize)]
struct Remembered {
    fingerprint: String,
    listing: Listing,
}

impl Memory {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        if let Some(folder) = &folder
            && let Err(error) = std::fs::create_dir_all(folder)
        {
            tracing::warn!(folder = %folder.display(), %error, "what upstream servers offer cannot be remembered");
        }
        Self { folder }
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        // Names are keys of a configuration, and may be anything.
        let digest = HEXLOWER.encode(&Sha256::digest(name.as_bytes())[..8]);
        let plain: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(40)
            .collect();
        Some(self.folder.as_ref()?.join(format!("{plain}-{digest}.json")))
    }

    fn read(&self, name: &str) -> Option<Remembered> {
        let text = std::fs::read(self.file(name)?).ok()?;
        match serde_json::from_slice(&text) {
            Ok(remembered) => Some(remembered),
            Err(error) => {
                tracing::warn!(upstream = name, %error, "what was remembered cannot be read, and is asked for again");
                None
            }
        }
    }

    /// What a server with just this configuration offered.
    pub(super) fn recall(&self, name: &str, fingerprint: &str) -> Option<Listing> {
        let remembered = self.read(name)?;
        (remembered.fingerprint == fingerprint).then_some(remembered.listing)
    }

    /// What a server of this name offered, however it was configured.
    pub(super) fn recall_any(&self, name: &str) -> Option<Listing> {
        Some(self.read(name)?.listing)
    }

    /// Writes beside and renames, so that a file is whole whenever it is read.
    pub(super) fn keep(&self, name: &str, fingerprint: &str, listing: &Listing) {
        let Some(file) = self.file(name) else {
            return;
        };
        let remembered = Remembered {
            fingerprint: fingerprint.to_owned(),
            listing: listing.clone(),
        };
        let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
        let written = serde_json::to_vec(&remembered)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&temporary, text))
            .and_then(|()| std::fs::rename(&temporary, &file));
        if let Err(error) = written {
            tracing::warn!(file = %file.display(), %error, "what an upstream server offers cannot be remembered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tokens::Tokens;
    use crate::source::upstream::UpstreamConfig;
    use serde_json::json;

    fn upstream(on_change: OnChange) -> Upstream {
        let config = UpstreamConfig {
            command: Some("x".to_owned()),
            on_change,
            ..UpstreamConfig::default()
        };
        let background = std::sync::Arc::new(super::super::Background(None));
        Upstream::new("x", config, background, &Tokens::default()).expect("valid")
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
    fn a_tool_that_is_not_what_it_was_is_treated_as_configured() {
        let compared =
            |on_change, before| compare(&upstream(on_change), before, with("new")).quarantined;
        assert_eq!(compared(OnChange::Quarantine, Some(with("old"))), ["a"]);
        assert!(compared(OnChange::Quarantine, Some(with("new"))).is_empty());
        assert!(compared(OnChange::Quarantine, None).is_empty());
        assert!(compared(OnChange::Warn, Some(with("old"))).is_empty());
        assert!(compared(OnChange::Allow, Some(with("old"))).is_empty());
    }

    #[test]
    fn neither_asking_twice_nor_going_away_makes_another_tool_acceptable() {
        let upstream = upstream(OnChange::Quarantine);
        let first = compare(&upstream, None, with("old"));
        let changed = compare(&upstream, Some(first), with("new"));
        assert_eq!(changed.quarantined, ["a"]);
        let still = compare(&upstream, Some(changed), with("new"));
        assert_eq!(still.quarantined, ["a"]);
        let gone = compare(&upstream, Some(still), Listing::default());
        assert!(gone.quarantined.is_empty());
        let returned = compare(&upstream, Some(gone), with("new"));
        assert_eq!(returned.quarantined, ["a"]);
        let sorry = compare(&upstream, Some(returned), with("old"));
        assert!(sorry.quarantined.is_empty(), "it is what it was");
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
        std::fs::write(file, "{").expect("written");
        assert_eq!(memory.recall("../x", "f"), None);
        let none = Memory::new(None);
        none.keep("x", "f", &with("d"));
        assert_eq!(none.recall("x", "f"), None);
    }
}
