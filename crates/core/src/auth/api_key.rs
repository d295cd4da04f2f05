//! API keys: stored and looked up by digest, and reloaded when their files change.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use super::config::{ApiKeyConfig, AuthConfig, AuthSetupError};
use super::credential_cache::{Cacheable, Epoch, FOREVER};
use super::principal::Facts;
use super::scopes::Implied;
use super::{AuthMethod, AuthOutcome, Credentials, Principal, PrincipalKind, sha256};
use crate::environment::{SAMPLES, read_text_file};
use crate::net::{Mutex, with_causes};

/// Maximum length of a key.
const KEY_MAX_BYTES: usize = 512;
/// Minimum length of a user-chosen key, because shorter ones can be guessed.
const KEY_MIN_BYTES: usize = 24;
/// Maximum size of a key file.
const FILE_MAX_BYTES: u64 = 1024 * 1024;
/// Maximum number of files in a key folder.
const FILES_MAX: usize = 1024;
/// Prefix of generated keys, for secret scanners.
pub(super) const PREFIX: &str = "lsk_";
const HASH_PREFIX: &str = "sha256:";

type Digest = [u8; 32];

/// SHA-256 hash of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(Digest);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        Self(sha256(key.as_bytes()))
    }

    /// Parses `sha256:` and 64 hexadecimal digits, or a plain key.
    ///
    /// # Errors
    ///
    /// The error describes the problem without repeating the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let hash = Self::read(text)?;
        if SAMPLES.iter().any(|sample| Self::of(sample) == hash) {
            return Err(
                "it is a sample from the documentation, which is public; make a key with `longshore key new`",
            );
        }
        Ok(hash)
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        if let Some(digits) = text.strip_prefix(HASH_PREFIX) {
            return HEXLOWER_PERMISSIVE
                .decode(digits.as_bytes())
                .ok()
                .and_then(|bytes| bytes.try_into().ok())
                .map(Self)
                .ok_or("a hash is \"sha256:\" and 64 hexadecimal digits");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("a key has visible ASCII characters only");
        }
        if text.len() < KEY_MIN_BYTES {
            return Err("a key has at least 24 characters; make one with `longshore key new`");
        }
        if KEY_MAX_BYTES < text.len() {
            return Err("a key has at most 512 characters");
        }
        Ok(Self::of(text))
    }
}

/// Writes the form that the configuration accepts.
impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HASH_PREFIX}{}", HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

/// Generates a key with 256 random bits.
///
/// # Errors
///
/// The system provides no random numbers.
pub fn new_key() -> Result<String, std::io::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// The API key authentication method.
#[derive(Debug)]
pub struct ApiKeys {
    /// Maximum length of a key that is looked up.
    key_bytes: usize,
    /// Keys of the configuration.
    fixed: ArcSwap<Vec<Holder>>,
    file: Option<PathBuf>,
    folder: Option<PathBuf>,
    implied: ArcSwap<Implied>,
    table: ArcSwap<Table>,
    /// Keys of the file and the folder when they were last read.
    seen: Mutex<Vec<Holder>>,
    /// The last reload error, which is logged once; empty if there is none.
    failure: Mutex<String>,
    /// Records changes of the keys.
    changes: Epoch,
}

/// A key holder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    name: String,
    keys: Vec<KeyHash>,
    scopes: Vec<String>,
    groups: Vec<String>,
}

/// Principals by digest. Timing of a look-up reveals at most parts of a digest, from which a key cannot be derived.
#[derive(Clone, Default)]
struct Table(HashMap<KeyHash, Arc<Principal>, foldhash::fast::RandomState>);

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.0.len()).finish()
    }
}

impl ApiKeys {
    /// Loads the keys from all configured places.
    pub fn new(config: &AuthConfig) -> Result<Self, AuthSetupError> {
        let keys = Self::read_from(config, (&config.api_keys_file, &config.api_keys_dir))?;
        if keys.is_empty() {
            return Err(AuthSetupError::NoKeys);
        }
        Ok(keys)
    }

    /// Loads the keys of a changed configuration, for [`take_on`](Self::take_on). The result can be empty, because the
    /// removal of the last key revokes it. Changed file and folder settings are ignored.
    pub fn changed(&self, config: &AuthConfig) -> Result<Self, AuthSetupError> {
        Self::read_from(config, (&self.file, &self.folder))
    }

    fn read_from(
        config: &AuthConfig,
        (file, folder): (&Option<PathBuf>, &Option<PathBuf>),
    ) -> Result<Self, AuthSetupError> {
        let fixed = config.api_keys.iter().map(Holder::configured);
        let keys = Self {
            key_bytes: config.key_bytes.min(KEY_MAX_BYTES),
            fixed: ArcSwap::from_pointee(fixed.collect::<Result<_, _>>()?),
            file: file.clone(),
            folder: folder.clone(),
            implied: ArcSwap::from_pointee(Implied::new(&config.implied_scopes)),
            table: ArcSwap::default(),
            seen: Mutex::default(),
            failure: Mutex::default(),
            changes: Epoch::default(),
        };
        let read = keys.read()?;
        keys.table.store(Arc::new(keys.table_of(&read)?));
        *keys.seen.lock() = read;
        Ok(keys)
    }

    /// Records each change of the keys in `changes`.
    pub(super) fn noting(mut self, changes: Epoch) -> Self {
        self.changes = changes;
        self
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.table.load().0.is_empty()
    }

    /// Returns true if keys can change at run time.
    pub(crate) fn is_watched(&self) -> bool {
        self.file.is_some() || self.folder.is_some()
    }

    /// Replaces the configured keys. The file and the folder stay the same.
    pub fn take_on(&self, other: Self) {
        let mut seen = self.seen.lock();
        self.fixed.store(other.fixed.into_inner());
        self.implied.store(other.implied.into_inner());
        self.replace(Arc::unwrap_or_clone(other.table.into_inner()));
        *seen = other.seen.into_inner();
    }

    /// Reloads the file and the folder. Invalid content leaves the keys unchanged.
    pub fn refresh(&self) {
        let error = self.reload().err();
        let error = error.map_or_else(String::new, |error| with_causes(&error));
        let mut failure = self.failure.lock();
        if !error.is_empty() && error != *failure {
            tracing::error!(%error, "API keys could not be reloaded; the previous ones stay in force");
        }
        *failure = error;
    }

    fn reload(&self) -> Result<(), AuthSetupError> {
        let read = self.read()?;
        let mut seen = self.seen.lock();
        if *seen == read {
            return Ok(());
        }
        let table = self.table_of(&read)?;
        tracing::info!(keys = table.0.len(), "API keys were reloaded");
        if table.0.is_empty() {
            tracing::error!(
                setting = match self.file {
                    Some(_) => "auth.api_keys_file",
                    None => "auth.api_keys_dir",
                },
                "no API key is left: every API key is rejected (401) until one is added"
            );
        }
        self.replace(table);
        *seen = read;
        Ok(())
    }

    /// Replaces the table. Unchanged keys keep their principal; principals of all other keys are revoked.
    fn replace(&self, mut table: Table) {
        let before = self.table.load_full();
        for (key, principal) in &mut table.0 {
            if let Some(known) = before.0.get(key).filter(|known| is_same(known, principal)) {
                *principal = Arc::clone(known);
            }
        }
        let table = Arc::new(table);
        self.table.store(Arc::clone(&table));
        self.changes.note();
        for (key, principal) in &before.0 {
            let stays = table
                .0
                .get(key)
                .is_some_and(|now| Arc::ptr_eq(now, principal));
            if !stays {
                principal.withdraw();
            }
        }
    }

    /// Returns the principal of a holder.
    pub fn principal(&self, name: &str) -> Option<Arc<Principal>> {
        let table = self.table.load();
        table.0.values().find(|p| p.name() == name).cloned()
    }

    /// Reads the file and the folder.
    fn read(&self) -> Result<Vec<Holder>, AuthSetupError> {
        let mut holders = Vec::new();
        if let Some(file) = &self.file {
            let text = read(file)?;
            for (number, line) in lines(&text) {
                holders.push(Holder::line(line).map_err(|problem| mistake(file, number, problem))?);
            }
        }
        if let Some(folder) = &self.folder {
            for file in files_of(folder)? {
                let name = file.file_name().and_then(|name| name.to_str());
                let name = name.unwrap_or_default().to_owned();
                let text = read(&file)?;
                let mut keys = Vec::new();
                for (number, line) in lines(&text) {
                    let key = KeyHash::parse(line);
                    keys.push(key.map_err(|problem| mistake(&file, number, problem))?);
                }
                if !is_name(&name) {
                    return Err(mistake(&file, 1, BAD_NAME));
                }
                holders.push(Holder {
                    name,
                    keys,
                    scopes: Vec::new(),
                    groups: Vec::new(),
                });
            }
        }
        Ok(holders)
    }

    fn table_of(&self, read: &[Holder]) -> Result<Table, AuthSetupError> {
        let mut table = Table::default();
        let mut principals: HashMap<&str, Arc<Principal>> = HashMap::new();
        let fixed = self.fixed.load();
        let implied = self.implied.load();
        for holder in fixed.iter().chain(read) {
            let principal = principals.entry(&holder.name).or_insert_with(|| {
                // Entries for the same name are merged, wherever they come from.
                let same = fixed.iter().chain(read);
                let same = || same.clone().filter(|other| other.name == holder.name);
                let scopes = same().flat_map(|other| &other.scopes);
                let groups = same().flat_map(|other| &other.groups);
                let name = format!("key:{}", holder.name);
                let facts = Facts {
                    scopes: implied.expand(scopes.map(String::as_str)),
                    groups: groups.map(|group| group.as_str().into()).collect(),
                    ..Facts::default()
                };
                let marks = [holder.name.as_str()];
                let principal = Principal::of(PrincipalKind::ApiKey, &name, &marks);
                Arc::new(principal.with_facts(facts))
            });
            for key in &holder.keys {
                // Each key can be revoked separately.
                let own = Arc::new(principal.by_another_credential());
                let before = table.0.insert(*key, own);
                if before.is_some_and(|before| before != *principal) {
                    return Err(AuthSetupError::SharedKey {
                        name: holder.name.clone(),
                    });
                }
            }
        }
        Ok(table)
    }

    fn find(&self, key: &str) -> Option<Arc<Principal>> {
        if self.key_bytes < key.len() {
            return None;
        }
        let hash = KeyHash::of(key);
        let table = self.table.load();
        let (known, principal) = table.0.get_key_value(&hash)?;
        // The look-up may use a comparison with variable time; the final check is constant-time.
        verify_slices_are_equal(&known.0, &hash.0).ok()?;
        Some(Arc::clone(principal))
    }
}

/// Returns true if two principals have the same name and permissions.
fn is_same(one: &Principal, other: &Principal) -> bool {
    one == other && one.scopes().eq(other.scopes()) && one.groups().eq(other.groups())
}

impl AuthMethod for ApiKeys {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        // A bearer token that is not a key may be an access token of an issuer. The header for keys has no such second
        // meaning.
        let found = match (presented.api_key(), presented.bearer()) {
            (Some(key), _) => match self.find(key) {
                None => return AuthOutcome::refused("the API key is not known"),
                found => found,
            },
            (None, Some(token)) => self.find(token),
            (None, None) => None,
        };
        found.map_or(AuthOutcome::Absent, AuthOutcome::Proven)
    }
}

/// Revoked keys are recorded.
impl Cacheable for ApiKeys {
    fn holds_until(&self, _: &Credentials<'_>) -> Option<u64> {
        Some(FOREVER)
    }
}

impl Holder {
    fn configured(config: &ApiKeyConfig) -> Result<Self, AuthSetupError> {
        let fault = |problem| AuthSetupError::Key {
            name: config.name.clone(),
            problem,
        };
        if !is_name(&config.name) {
            return Err(fault(BAD_NAME));
        }
        if config.keys.is_empty() {
            return Err(fault("keys is empty; add a key, or the hash of one"));
        }
        let keys = config.keys.iter().map(|key| KeyHash::parse(key.expose()));
        Ok(Self {
            name: config.name.clone(),
            keys: keys.collect::<Result<_, _>>().map_err(fault)?,
            scopes: config.scopes.clone(),
            groups: config.groups.clone(),
        })
    }

    /// Parses `name key scope scope ...`; a word with `@` is a group.
    fn line(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(key)) = (words.next(), words.next()) else {
            return Err("a line has a name and a key or its hash, then scopes, if any");
        };
        if !is_name(name) {
            return Err(BAD_NAME);
        }
        let (groups, scopes): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with('@'));
        Ok(Self {
            name: name.to_owned(),
            keys: vec![KeyHash::parse(key)?],
            scopes: scopes.into_iter().map(str::to_owned).collect(),
            groups: groups.into_iter().map(|g| g[1..].to_owned()).collect(),
        })
    }
}

const BAD_NAME: &str = "the name of a key's holder has 1 to 64 characters of A-Z, a-z, 0-9, '_', '-', '.', '@' and '+'";

/// Checks the name of a key's holder.
///
/// # Errors
///
/// The error says which names are valid.
pub fn check_holder(name: &str) -> Result<(), &'static str> {
    is_name(name).then_some(()).ok_or(BAD_NAME)
}

fn is_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.@+".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}

/// Returns the lines with content, and their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

fn mistake(path: &Path, line: usize, problem: &'static str) -> AuthSetupError {
    AuthSetupError::Line {
        path: path.to_owned(),
        line,
        problem,
    }
}

fn read(path: &Path) -> Result<String, AuthSetupError> {
    read_text_file(path, FILE_MAX_BYTES).map_err(|source| AuthSetupError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Returns the files of a folder by name, except dot files, which Kubernetes uses to mount secrets.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, AuthSetupError> {
    let failed = |source| AuthSetupError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.is_file() {
            files.push(path);
        }
        if FILES_MAX < files.len() {
            return Err(failed(std::io::Error::other("it has more than 1024 files")));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::environment::Secret;

    const KEY: &str = "lsk_canary-canary-canary-canary-canary-canary-c";

    fn configured(keys: &[(&str, &[&str])]) -> AuthConfig {
        AuthConfig {
            api_keys: keys
                .iter()
                .map(|(name, keys)| ApiKeyConfig {
                    name: (*name).to_owned(),
                    keys: keys.iter().map(|k| Secret::from((*k).to_owned())).collect(),
                    scopes: vec!["files".to_owned()],
                    groups: Vec::new(),
                })
                .collect(),
            ..AuthConfig::default()
        }
    }

    #[test]
    fn sample_secrets_of_the_documentation_are_rejected_as_api_keys() {
        for sample in SAMPLES {
            assert!(KeyHash::parse(sample).is_err());
            let hash = KeyHash::of(sample).to_string();
            assert!(KeyHash::parse(&hash).is_err());
        }
    }

    fn judged(keys: &ApiKeys, header: &'static str, value: &str) -> AuthOutcome {
        let mut headers = HeaderMap::new();
        headers.insert(header, value.parse().expect("a value"));
        let presented = Credentials::read(&headers, None, None, 0).expect("well-formed");
        keys.judge(&presented)
    }

    fn name(judgement: AuthOutcome) -> Option<String> {
        match judgement {
            AuthOutcome::Proven(principal) => Some(principal.name().to_owned()),
            AuthOutcome::Absent => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_known_in_either_header_by_itself_or_its_hash() {
        let other = new_key().expect("a key");
        let hash = KeyHash::of(&other).to_string();
        let keys = ApiKeys::new(&configured(&[("ci", &[KEY, &hash])])).expect("keys");
        let bearer = |key: &str| name(judged(&keys, "authorization", &format!("Bearer {key}")));
        assert_eq!(bearer(KEY).as_deref(), Some("key:ci"));
        assert_eq!(bearer(&other).as_deref(), Some("key:ci"));
        assert_eq!(
            name(judged(&keys, "x-api-key", KEY)).as_deref(),
            Some("key:ci")
        );
        // The hash opens nothing.
        assert_eq!(bearer(&hash.replace(':', "")), None);
        assert_eq!(bearer(&KEY[1..]), None);
        assert!(matches!(
            judged(&keys, "x-api-key", &hash),
            AuthOutcome::Refused(_)
        ));
        assert!(matches!(
            judged(&keys, "x-api-key", &"x".repeat(4096)),
            AuthOutcome::Refused(_)
        ));
    }

    #[test]
    fn new_keys_are_long_and_never_the_same() {
        let (one, other) = (new_key().expect("a key"), new_key().expect("a key"));
        assert_ne!(one, other);
        assert!(
            one.starts_with(PREFIX) && one.len() == PREFIX.len() + 43,
            "{one}"
        );
        assert!(KeyHash::parse(&one).is_ok());
        assert_eq!(
            KeyHash::parse(&KeyHash::of(&one).to_string()),
            Ok(KeyHash::of(&one))
        );
    }

    #[test]
    fn sec_12_mistakes_are_told_without_the_key() {
        // AUTH-12
        for (keys, expected) in [
            (vec![("ci", &["canary"][..])], "at least 24"),
            (vec![("ci", &["sha256:canary"][..])], "64 hexadecimal"),
            (
                vec![("ci", &["canary canary canary canary"][..])],
                "visible ASCII",
            ),
            (vec![("ci", &[][..])], "keys is empty"),
            (vec![("a b", &[KEY][..])], "1 to 64 characters"),
            (
                vec![("a", &[KEY][..]), ("b", &[KEY][..])],
                "also belongs to another name",
            ),
        ] {
            let config = configured(&keys);
            let error = ApiKeys::new(&config).expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("canary"), "{error}");
            assert!(!format!("{config:?}").contains("canary"));
        }
    }

    #[test]
    fn a_file_has_a_line_for_each_key_and_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        let hash = KeyHash::of("the key of the other one");
        let write = |text: &str| std::fs::write(&file, text).expect("written");
        write(&format!(
            "# who     key\n\nci {KEY} files:read @ops\nbob {hash}\n"
        ));
        let config = AuthConfig {
            api_keys_file: Some(file.clone()),
            ..AuthConfig::default()
        };
        let keys = ApiKeys::new(&config).expect("keys");
        let principal = keys.find(KEY).expect("known");
        assert_eq!(principal.name(), "key:ci");
        assert_eq!(principal.scopes().collect::<Vec<_>>(), ["files:read"]);
        assert_eq!(principal.groups().collect::<Vec<_>>(), ["ops"]);
        let bob = keys.find("the key of the other one").expect("known");
        write(&format!("bob {hash}\n"));
        keys.refresh();
        assert!(
            keys.find(KEY).is_none(),
            "what was taken away opens nothing"
        );
        let same = keys.find("the key of the other one").expect("known");
        assert!(Arc::ptr_eq(&bob, &same));
        // What makes no sense, or is not there, leaves the keys as they are.
        for broken in ["bob", "bob canary-too-short"] {
            write(broken);
            keys.refresh();
            assert!(keys.find("the key of the other one").is_some());
        }
        let error = ApiKeys::new(&config).expect_err("refused").to_string();
        assert!(
            error.contains("line 1") && !error.contains("canary"),
            "{error}"
        );
        std::fs::remove_file(&file).expect("removed");
        keys.refresh();
        assert!(keys.find("the key of the other one").is_some());
        write("# nobody");
        assert!(matches!(ApiKeys::new(&config), Err(AuthSetupError::NoKeys)));
    }

    #[test]
    fn a_reload_error_has_its_cause_and_stays_the_same_until_the_file_is_mended() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        std::fs::write(&file, format!("ci {KEY}")).expect("written");
        let config = AuthConfig {
            api_keys_file: Some(file.clone()),
            ..AuthConfig::default()
        };
        let keys = ApiKeys::new(&config).expect("keys");
        let failure = || {
            keys.refresh();
            keys.failure.lock().clone()
        };
        assert_eq!(failure(), "");
        std::fs::remove_file(&file).expect("removed");
        let missing = failure();
        assert!(
            missing.starts_with("cannot read API keys") && missing.contains("(os error 2)"),
            "{missing}"
        );
        assert_eq!(failure(), missing);
        std::fs::write(&file, "ci short").expect("written");
        assert!(failure().contains("line 1"));
        std::fs::write(&file, format!("ci {KEY}")).expect("written");
        assert_eq!(failure(), "");
    }

    #[test]
    fn a_folder_has_a_file_for_each_holder_as_mounted_secrets_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        write(
            "ci",
            &format!("{KEY}\n{}\n", KeyHash::of("an older key of the same")),
        );
        write("..data", "not a key");
        std::fs::create_dir(folder.path().join("..2026")).expect("made");
        let config = AuthConfig {
            api_keys_dir: Some(folder.path().to_owned()),
            ..AuthConfig::default()
        };
        let keys = ApiKeys::new(&config).expect("keys");
        for key in [KEY, "an older key of the same"] {
            assert_eq!(keys.find(key).expect("known").name(), "key:ci");
        }
        write("alice", "\u{feff}another-key-of-another-one\r\n");
        keys.refresh();
        assert_eq!(
            keys.find("another-key-of-another-one")
                .expect("known")
                .name(),
            "key:alice"
        );
    }

    #[test]
    fn a_key_that_is_taken_away_withdraws_who_it_proved_and_nobody_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        let (one, two) = ("lsk_the-first-key-of-alice", "lsk_the-second-key-of-alice");
        let bobs = "lsk_the-only-key-that-bob-has";
        std::fs::write(&file, format!("alice {one}\nalice {two}\nbob {bobs}\n")).expect("written");
        let config = AuthConfig {
            api_keys_file: Some(file.clone()),
            ..AuthConfig::default()
        };
        let keys = ApiKeys::new(&config).expect("keys");
        let all = [one, two, bobs].map(|key| keys.find(key).expect("a key"));
        std::fs::write(&file, format!("alice {two}\nbob {bobs}\n")).expect("written");
        keys.refresh();
        assert_eq!([true, false, false], all.clone().map(|p| p.is_withdrawn()));
        // A configuration that says the same changes nothing.
        keys.take_on(ApiKeys::new(&config).expect("keys"));
        assert_eq!([true, false, false], all.map(|p| p.is_withdrawn()));
    }
}
