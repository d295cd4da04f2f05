//! MCP bundles (`.mcpb`): downloaded, checked and unpacked.
//!
//! A bundle is a ZIP archive with a program and `manifest.json`, which says how the program is started.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Cursor, Read as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;
use zip::ZipArchive;

use super::entry::{Entry, literal, name_of, variable_of};
use super::listed::{Package, Server};
use crate::seal::sha256_hex;

/// Maximum size of a bundle, in bytes.
pub(super) const BUNDLE_BYTES: usize = 256 * 1024 * 1024;
/// Maximum size of everything that it holds, in bytes, and the maximum number of files.
const UNPACKED_BYTES: u64 = 1024 * 1024 * 1024;
const FILES_MAX: usize = 50_000;
const MANIFEST: &str = "manifest.json";
const MANIFEST_BYTES: u64 = 1024 * 1024;

/// Reason why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("it is not published as a bundle")]
    None,
    #[error("{0:?} is not an https URL")]
    Url(String),
    #[error("its publisher states no SHA-256, so that it cannot be checked")]
    NoDigest,
    #[error("it is not the file that was published: its SHA-256 is {found}, not {stated}")]
    Changed { found: String, stated: String },
    #[error("it is not a ZIP archive that can be read: {0}")]
    Archive(#[from] zip::result::ZipError),
    #[error("it holds {0}")]
    TooLarge(&'static str),
    #[error("it holds {0:?}, which leads out of the folder or is a link")]
    Path(String),
    #[error("its {MANIFEST} cannot be used: {0}")]
    Manifest(String),
    #[error("the folder {0} exists and is not empty; name a new one")]
    Folder(String),
    #[error("it cannot be unpacked")]
    Io(#[from] io::Error),
}

/// Returns the URL and the digest of a server's bundle. `trusted` is the origin of the registry, which may be without TLS.
pub(super) fn source<'s>(
    server: &'s Server,
    trusted: &Url,
) -> Result<(&'s Package, Url, &'s str), BundleError> {
    let mut packages = server.packages.iter();
    let package = packages.find(|package| package.registry_type == "mcpb");
    let package = package.ok_or(BundleError::None)?;
    let wrong = || BundleError::Url(package.identifier.clone());
    let url: Url = package.identifier.parse().map_err(|_| wrong())?;
    if url.scheme() != "https" && url.origin() != trusted.origin() {
        return Err(wrong());
    }
    let stated = package.file_sha256.as_deref().unwrap_or_default();
    if stated.is_empty() {
        return Err(BundleError::NoDigest);
    }
    Ok((package, url, stated))
}

/// Checks a bundle, unpacks it into a new folder, and returns the entry that starts its program.
///
/// # Errors
///
/// The bundle is not the published one, is unsafe or too large, or cannot be started. Nothing of it is left then.
pub(super) fn unpack(
    server: &Server,
    package: &Package,
    bundle: &[u8],
    stated: &str,
    folder: &Path,
) -> Result<Entry, BundleError> {
    let found = sha256_hex(bundle);
    if !found.eq_ignore_ascii_case(stated) {
        let stated = stated.chars().take(64).collect();
        return Err(BundleError::Changed { found, stated });
    }
    let mut archive = ZipArchive::new(Cursor::new(bundle))?;
    let manifest = Manifest::read(&mut archive)?;
    let is_new = !folder.exists();
    if !is_new && fs::read_dir(folder)?.next().is_some() {
        return Err(BundleError::Folder(folder.display().to_string()));
    }
    fs::create_dir_all(folder)?;
    let root = folder.canonicalize()?;
    let entry = manifest.entry(&root);
    let unpacked = entry.and_then(|entry| extract(&mut archive, &root).map(|()| entry));
    let mut entry = unpacked.inspect_err(|_| {
        // The error is the news; what cannot be removed stays.
        let _ = match is_new {
            true => fs::remove_dir_all(&root),
            false => clear(&root),
        };
    })?;
    entry.name = name_of(&server.name);
    for variable in &package.environment_variables {
        if variable.input.is_required {
            let name = variable_of(&variable.name);
            entry
                .needed
                .insert(name, variable.input.description.clone());
        }
    }
    Ok(entry)
}

fn clear(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        match path.is_dir() {
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(())
}

fn extract(archive: &mut ZipArchive<Cursor<&[u8]>>, root: &Path) -> Result<(), BundleError> {
    if FILES_MAX < archive.len() {
        return Err(BundleError::TooLarge("too many files"));
    }
    let mut left = UNPACKED_BYTES;
    for index in 0..archive.len() {
        let file = archive.by_index(index)?;
        let name: String = file.name()?.chars().take(200).collect();
        let Some(path) = file.enclosed_name().filter(|_| !file.is_symlink()) else {
            return Err(BundleError::Path(name));
        };
        let path = root.join(path);
        if file.is_dir() {
            fs::create_dir_all(&path)?;
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let is_program = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
        let mut out = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        // What the archive says of its size is not trusted.
        let written = io::copy(&mut file.take(left + 1), &mut out)?;
        left = left
            .checked_sub(written)
            .ok_or(BundleError::TooLarge("more than 1 GiB"))?;
        if is_program {
            make_program(&path)?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn make_program(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_program(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The part of `manifest.json` that says how the program is started.
#[derive(Debug, Deserialize)]
struct Manifest {
    server: ManifestServer,
    #[serde(default)]
    user_config: BTreeMap<String, UserSetting>,
}

#[derive(Debug, Deserialize)]
struct ManifestServer {
    mcp_config: McpConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct McpConfig {
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    platform_overrides: BTreeMap<String, Override>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Override {
    command: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserSetting {
    title: String,
    description: String,
    sensitive: bool,
    default: Option<Value>,
}

impl Manifest {
    fn read(archive: &mut ZipArchive<Cursor<&[u8]>>) -> Result<Self, BundleError> {
        let mut text = Vec::new();
        let file = archive.by_name(MANIFEST)?;
        file.take(MANIFEST_BYTES).read_to_end(&mut text)?;
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| BundleError::Manifest(error.to_string()))?;
        if manifest.server.mcp_config.command.is_empty() {
            return Err(BundleError::Manifest(
                "server.mcp_config.command is missing".to_owned(),
            ));
        }
        Ok(manifest)
    }

    fn entry(&self, root: &Path) -> Result<Entry, BundleError> {
        let config = &self.server.mcp_config;
        let platform = match std::env::consts::OS {
            "macos" => "darwin",
            "windows" => "win32",
            other => other,
        };
        let special = config.platform_overrides.get(platform).cloned();
        let special = special.unwrap_or_default();
        let root = root.to_str();
        let root =
            root.ok_or_else(|| BundleError::Manifest("the folder's name is not UTF-8".to_owned()))?;
        let mut entry = Entry::default();
        let command = special.command.as_ref().unwrap_or(&config.command);
        let command = self.filled(command, root, &mut entry);
        entry.config.insert("command".to_owned(), command.into());
        let args = special.args.as_ref().unwrap_or(&config.args);
        let args: Vec<_> = args
            .iter()
            .map(|one| self.filled(one, root, &mut entry))
            .collect();
        entry.config.insert("args".to_owned(), json!(args));
        let mut variables = Map::new();
        for (name, value) in config.env.iter().chain(special.env.iter().flatten()) {
            let value = self.filled(value, root, &mut entry);
            variables.insert(name.clone(), value.into());
        }
        if !variables.is_empty() {
            entry.config.insert("env".to_owned(), variables.into());
        }
        Ok(entry)
    }

    /// Replaces the placeholders of bundles. Every other `${` is literal text.
    fn filled(&self, text: &str, root: &str, entry: &mut Entry) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(&literal(before));
            let Some((name, behind)) = after.split_once('}') else {
                rest = &rest[before.len()..];
                break;
            };
            rest = behind;
            match (name, name.strip_prefix("user_config.")) {
                ("__dirname", _) => filled.push_str(&literal(root)),
                ("/" | "pathSeparator", _) => filled.push('/'),
                (_, Some(setting)) => {
                    let known = self.user_config.get(setting);
                    let default = known.filter(|known| !known.sensitive);
                    match default.and_then(|known| known.default.as_ref()) {
                        Some(Value::String(default)) => filled.push_str(&literal(default)),
                        Some(default @ (Value::Bool(_) | Value::Number(_))) => {
                            filled.push_str(&default.to_string());
                        }
                        _ => {
                            let variable = variable_of(setting);
                            filled.push_str(&format!("${{{variable}}}"));
                            let purpose = known.map_or("", |known| match &*known.description {
                                "" => &known.title,
                                description => description,
                            });
                            entry.needed.insert(variable, purpose.to_owned());
                        }
                    }
                }
                _ => filled.push_str(&literal(&format!("${{{name}}}"))),
            }
        }
        filled.push_str(&literal(rest));
        filled
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(files: &[(&str, &[u8], u32)]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content, mode) in files {
            let options = SimpleFileOptions::default().unix_permissions(*mode);
            writer.start_file(*name, options).expect("begun");
            writer.write_all(content).expect("written");
        }
        writer.finish().expect("an archive").into_inner()
    }

    fn unpacked(bundle: &[u8], folder: &Path) -> Result<Entry, BundleError> {
        let server: Server =
            serde_json::from_value(json!({"name": "io.example/weather"})).expect("a server");
        let stated = sha256_hex(bundle);
        unpack(&server, &Package::default(), bundle, &stated, folder)
    }

    fn manifest() -> Vec<u8> {
        json!({
            "server": {"type": "node", "mcp_config": {
                "command": "${__dirname}/run", "args": ["${user_config.units}", "--note=${HOME}", "${/}x"],
                "env": {"KEY": "${user_config.api_key}"},
            }},
            "user_config": {
                "api_key": {"type": "string", "title": "API key", "sensitive": true, "default": "x"},
                "units": {"type": "string", "default": "metric"},
            },
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn a_bundle_is_unpacked_and_started_from_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("weather");
        let bundle = archive(&[
            (MANIFEST, &manifest(), 0o644),
            ("run", b"#!/bin/sh\n", 0o755),
            ("lib/a.txt", b"a", 0o644),
        ]);
        let entry = unpacked(&bundle, &to).expect("an entry");
        let root = to.canonicalize().expect("it is there");
        assert_eq!(entry.name, "weather");
        assert_eq!(
            Value::from(entry.config),
            json!({
                "command": root.join("run"), "args": ["metric", "--note=$${HOME}", "/x"], "env": {"KEY": "${API_KEY}"},
            })
        );
        assert_eq!(entry.needed["API_KEY"], "API key");
        assert_eq!(fs::read(root.join("lib/a.txt")).expect("a file"), b"a");
        assert!(matches!(
            unpacked(&bundle, &to),
            Err(BundleError::Folder(_))
        ));
    }

    #[test]
    fn a_bundle_that_is_changed_or_leads_out_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join("weather");
        let server = Server::default();
        let changed = unpack(&server, &Package::default(), b"x", "00", &to);
        assert!(matches!(changed, Err(BundleError::Changed { .. })));
        for name in ["../out", "/etc/out", "a/../../out"] {
            let bundle = archive(&[(MANIFEST, &manifest(), 0o644), (name, b"x", 0o644)]);
            let outcome = unpacked(&bundle, &to);
            assert!(!folder.path().join("out").exists());
            if let Err(error) = outcome {
                assert!(matches!(error, BundleError::Path(_)), "{error}");
                assert!(!to.exists());
            } else {
                // The library strips what leads out.
                fs::remove_dir_all(&to).expect("removed");
            }
        }
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default();
        writer.start_file(MANIFEST, options).expect("begun");
        writer.write_all(&manifest()).expect("written");
        writer.add_symlink("link", "/etc", options).expect("a link");
        let bundle = writer.finish().expect("an archive").into_inner();
        assert!(matches!(unpacked(&bundle, &to), Err(BundleError::Path(_))));
        assert!(!to.exists());
        assert!(matches!(
            unpacked(&archive(&[]), &to),
            Err(BundleError::Archive(_))
        ));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bundle_that_cannot_be_started_from_its_folder_leaves_nothing() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let to = folder.path().join(std::ffi::OsStr::from_bytes(b"w\xff"));
        let bundle = archive(&[(MANIFEST, &manifest(), 0o644)]);
        let refused = unpacked(&bundle, &to);
        assert!(matches!(refused, Err(BundleError::Manifest(_))));
        assert!(!to.exists());
    }
}
