//! Skills: instructions for a model with the files that belong to them (`io.modelcontextprotocol/skills`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde_json::{Map, Value, json};

use super::table::ListItem;
use super::{AnyResource, ResourceDefinition, StaticResource};
use crate::protocol::Revision;
use crate::seal::sha256_hex;

/// Identifier of the extension.
pub const EXTENSION: &str = "io.modelcontextprotocol/skills";

/// A skill: a manifest `SKILL.md` that tells a model how to do something, and files that it refers to.
///
/// The manifest begins with front matter in YAML, which has at least a `name` and a `description`:
///
/// ```
/// use longshore::{App, Skill};
///
/// let skill = Skill::new("---\nname: greeting\ndescription: How to greet.\n---\n\nSee references/phrases.md.\n")
///     .expect("a manifest")
///     .file("references/phrases.md", "Ahoy!\n")
///     .expect("a file");
/// let app = App::new().skill(skill);
/// ```
///
/// Clients of 2026-07-28 find skills with `skills/list` and `skills/get`, and everyone reads their files as resources,
/// at `skill://greeting/SKILL.md` and beside it.
#[derive(Clone, Debug)]
pub struct Skill {
    name: String,
    frontmatter: Map<String, Value>,
    /// By path within the skill.
    files: BTreeMap<String, Vec<u8>>,
}

/// Error of a skill that cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    /// `SKILL.md` cannot be used.
    #[error("SKILL.md: {0}")]
    Manifest(String),
    /// A file that cannot be part of a skill.
    #[error("{path:?}: {problem}")]
    File {
        /// Its path within the skill.
        path: String,
        /// Details of an invalid skill.
        problem: String,
    },
    /// A folder or a file that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the error.
        #[source]
        source: io::Error,
    },
}

/// The manifest's path.
const MANIFEST: &str = "SKILL.md";
/// Maximum number of files in a skill.
const FILES_MAX: usize = 512;
/// Maximum total size of a skill's files, in bytes.
const BYTES_MAX: usize = 16 * 1024 * 1024;

impl Skill {
    /// A skill of a manifest alone.
    ///
    /// # Errors
    ///
    /// The manifest has no front matter, or what that says cannot be. Always in builds without the feature `config-files`,
    /// which cannot read YAML.
    pub fn new(manifest: impl Into<String>) -> Result<Self, SkillError> {
        let manifest = manifest.into();
        let fault = |problem: &str| Err(SkillError::Manifest(problem.to_owned()));
        let Some(yaml) = front_matter(&manifest) else {
            return fault("it begins with front matter: YAML between two lines of three hyphens");
        };
        let frontmatter = read_yaml(yaml)
            .map_err(|problem| SkillError::Manifest(format!("its front matter: {problem}")))?;
        let text = |key: &str| frontmatter.get(key).and_then(Value::as_str);
        let Some(name) = text("name").filter(|name| is_name(name)) else {
            return fault(
                "its front matter has a name: 1 to 64 of a-z, 0-9 and single hyphens between them",
            );
        };
        if !text("description").is_some_and(|d| (1..=1024).contains(&d.chars().count())) {
            return fault("its front matter has a description of 1 to 1024 characters");
        }
        let reserved = |key: &String| key.starts_with("io.modelcontextprotocol/");
        let metadata = frontmatter.get("metadata").and_then(Value::as_object);
        if metadata.is_some_and(|metadata| metadata.keys().any(reserved)) {
            return fault("keys of its metadata do not begin with io.modelcontextprotocol/");
        }
        let name = name.to_owned();
        Self {
            name,
            frontmatter,
            files: BTreeMap::new(),
        }
        .put(MANIFEST, manifest.into_bytes())
    }

    /// Adds a file at a path within the skill, such as `references/phrases.md`.
    ///
    /// # Errors
    ///
    /// The path is not one within the skill, there is such a file already, or the skill becomes too large: it has at
    /// most 512 files and 16 MiB.
    pub fn file(self, path: &str, contents: impl Into<Vec<u8>>) -> Result<Self, SkillError> {
        self.put(path, contents.into())
    }

    /// Reads a skill from a folder that has a `SKILL.md`, with everything else that is in there. Names that begin with
    /// a dot are left out, and so are symbolic links. Blocks; the folder is read once.
    ///
    /// # Errors
    ///
    /// Files that cannot be read or cannot be part of a skill.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self, SkillError> {
        let folder = folder.as_ref();
        let manifest = folder.join(MANIFEST);
        let found = fs::metadata(&manifest).map_err(unread(&manifest))?;
        // Opening a named pipe would block.
        if !found.is_file() {
            let source = io::Error::other("it is not a regular file");
            return Err(unread(&manifest)(source));
        }
        if BYTES_MAX as u64 <= found.len() {
            return Err(too_large(MANIFEST));
        }
        let text = fs::read_to_string(&manifest).map_err(unread(&manifest))?;
        let mut skill = Self::new(text)?;
        let mut within = vec![(folder.to_owned(), String::new())];
        while let Some((folder, prefix)) = within.pop() {
            for entry in fs::read_dir(&folder).map_err(unread(&folder))? {
                let entry = entry.map_err(unread(&folder))?;
                let file = entry.path();
                let kind = entry.file_type().map_err(unread(&file))?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let path = format!("{prefix}{name}");
                if name.starts_with('.') || path == MANIFEST {
                    continue;
                }
                if kind.is_dir() {
                    within.push((file, format!("{path}/")));
                } else if kind.is_file() {
                    let size = entry.metadata().map_err(unread(&file))?.len();
                    if BYTES_MAX as u64 <= size {
                        return Err(too_large(&path));
                    }
                    let contents = fs::read(&file).map_err(unread(&file))?;
                    skill = skill.put(&path, contents)?;
                }
            }
        }
        Ok(skill)
    }

    fn put(mut self, path: &str, contents: Vec<u8>) -> Result<Self, SkillError> {
        let fault = |problem: &str| {
            Err(SkillError::File {
                path: path.to_owned(),
                problem: problem.to_owned(),
            })
        };
        let is_segment = |segment: &str| {
            !segment.is_empty()
                && segment != "."
                && segment != ".."
                && segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-._~!$'()*+,;=@".contains(&b))
        };
        if !path.split('/').all(is_segment) {
            return fault(
                "a path has names of ASCII letters, digits and -._~ with slashes between them",
            );
        }
        let total: usize = self.files.values().map(Vec::len).sum();
        if FILES_MAX <= self.files.len() || BYTES_MAX < total + contents.len() {
            return Err(too_large(path));
        }
        let is_folder = |of: &str, other: &str| other.starts_with(&format!("{of}/"));
        let clashes = |other: &String| is_folder(path, other) || is_folder(other, path);
        if self.files.keys().any(clashes) {
            return fault("it is a file and a folder");
        }
        if self.files.insert(path.to_owned(), contents).is_some() {
            return fault("it was added twice");
        }
        Ok(self)
    }

    fn uri_of(&self, path: &str) -> String {
        format!("skill://{}/{path}", self.name)
    }

    /// Resources for clients: each file, the manifest first.
    pub fn resources(&self) -> impl Iterator<Item = AnyResource> {
        let manifest = self.files.get_key_value(MANIFEST);
        let others = self.files.iter().filter(|(path, _)| *path != MANIFEST);
        manifest.into_iter().chain(others).map(|(path, contents)| {
            let name = match path.as_str() {
                MANIFEST => self.name.clone(),
                path => format!("{}/{path}", self.name),
            };
            let mut definition =
                ResourceDefinition::new(self.uri_of(path), name).mime_type(mime_type(path));
            if path == MANIFEST {
                let description = self.frontmatter["description"].as_str();
                definition = definition.description(description.unwrap_or_default());
            }
            AnyResource::Fixed(match std::str::from_utf8(contents) {
                Ok(text) => Arc::new(StaticResource::text(definition, text)),
                Err(_) => Arc::new(StaticResource::binary(definition, contents)),
            })
        })
    }

    /// The skill as its list shows it, and the listings of its folders.
    pub(crate) fn into_entry(self) -> (CatalogSkill, BTreeMap<String, String>) {
        let uri = self.uri_of(MANIFEST);
        let files: Vec<_> = self
            .files
            .iter()
            .map(|(path, contents)| {
                json!({
                    "uri": self.uri_of(path),
                    "digest": format!("sha256:{}", sha256_hex(contents)),
                    "size": contents.len(),
                })
            })
            .collect();
        let entry = json!({"uri": uri, "frontmatter": self.frontmatter, "resources": files});
        let folders = self.folders();
        let entry = CatalogSkill {
            uri,
            entry: entry.to_string(),
        };
        (entry, folders)
    }

    /// Contents of each folder, by the folder's URI: JSON of a list of resources.
    fn folders(&self) -> BTreeMap<String, String> {
        let files = self.files.iter();
        let files = files.map(|(path, contents)| (path.as_str(), Some(contents.len() as u64)));
        folders(self.uri_of("").trim_end_matches('/'), &files.collect())
    }
}

/// Returns the contents of each folder of a skill at a URI, by the folder's URI: JSON of a list of resources. `files`
/// has the size of each file by path.
fn folders(root: &str, files: &BTreeMap<&str, Option<u64>>) -> BTreeMap<String, String> {
    let mut within: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for path in files.keys() {
        let mut path = *path;
        loop {
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            within.entry(parent).or_default().insert(path);
            if parent.is_empty() {
                break;
            }
            path = parent;
        }
    }
    let uri = |path: &str| format!("{root}/{path}").trim_end_matches('/').to_owned();
    within
        .into_iter()
        .map(|(folder, children)| {
            let children: Vec<_> = children
                .into_iter()
                .map(|path| {
                    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
                    let Some(size) = files.get(path) else {
                        return json!({
                            "uri": uri(path), "name": name, "mimeType": "inode/directory",
                        });
                    };
                    let mut file = json!({
                        "uri": uri(path), "name": name, "mimeType": mime_type(path),
                    });
                    if let Some(size) = size {
                        file["size"] = (*size).into();
                    }
                    file
                })
                .collect();
            (uri(folder), json!(children).to_string())
        })
        .collect()
}

/// A skill of another server: its entry as `skills/list` has it, with the URIs that its files have here.
#[derive(Clone, Debug)]
pub struct OfferedSkill {
    uri: String,
    entry: Value,
}

impl OfferedSkill {
    /// Reads an entry.
    ///
    /// # Errors
    ///
    /// Why it cannot be offered.
    pub fn new(entry: Value) -> Result<Self, &'static str> {
        let uri = entry["uri"].as_str().ok_or("it has no URI")?;
        if !uri.ends_with(&format!("/{MANIFEST}")) {
            return Err("its uri is not that of a SKILL.md");
        }
        let frontmatter = &entry["frontmatter"];
        if !frontmatter["name"].is_string() || !frontmatter["description"].is_string() {
            return Err("its frontmatter has no name or no description");
        }
        let files = entry["resources"].as_array();
        if files.is_some_and(|files| FILES_MAX < files.len()) {
            return Err("it has more than 512 files");
        }
        let uri = uri.to_owned();
        Ok(Self { uri, entry })
    }

    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The URIs of its files, the manifest's among them.
    pub fn files(entry: &Value) -> impl Iterator<Item = &str> {
        let files = entry["resources"].as_array().into_iter().flatten();
        let files = files.filter_map(|file| file["uri"].as_str());
        let manifest = entry["uri"].as_str();
        manifest.into_iter().chain(files)
    }

    /// The skill as its list shows it, and the listings of its folders.
    pub(super) fn into_entry(self) -> (CatalogSkill, BTreeMap<String, String>) {
        let root = self.uri.trim_end_matches(MANIFEST).trim_end_matches('/');
        let path = |uri| -> Option<&str> { str::strip_prefix(uri, root)?.strip_prefix('/') };
        let mut files: BTreeMap<&str, Option<u64>> = BTreeMap::new();
        files.insert(MANIFEST, None);
        for file in self.entry["resources"].as_array().into_iter().flatten() {
            if let Some(path) = file["uri"].as_str().and_then(path) {
                files.insert(path, file["size"].as_u64());
            }
        }
        let folders = folders(root, &files);
        let entry = CatalogSkill {
            entry: self.entry.to_string(),
            uri: self.uri,
        };
        (entry, folders)
    }
}

/// A skill with what its list shows of it.
#[derive(Debug)]
pub struct CatalogSkill {
    uri: String,
    /// JSON.
    pub entry: String,
}

impl ListItem for CatalogSkill {
    const MEMBER: &'static str = "skills";
    const CURSOR: &'static str = "skills cursor 1";

    fn key(&self) -> &str {
        &self.uri
    }

    fn write(&self, out: &mut Vec<u8>, _: Revision) {
        out.extend_from_slice(self.entry.as_bytes());
    }
}

fn too_large(path: &str) -> SkillError {
    SkillError::File {
        path: path.to_owned(),
        problem: "a skill has at most 512 files and 16 MiB".to_owned(),
    }
}

/// Makes the error of a file or folder that cannot be read.
fn unread(path: &Path) -> impl FnOnce(io::Error) -> SkillError {
    let path = path.to_owned();
    move |source| SkillError::Read { path, source }
}

/// The YAML at the beginning of a manifest.
fn front_matter(manifest: &str) -> Option<&str> {
    let text = manifest.strip_prefix('\u{feff}').unwrap_or(manifest);
    let text = text
        .strip_prefix("---\n")
        .or_else(|| text.strip_prefix("---\r\n"))?;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some(&text[..end]);
        }
        end += line.len();
    }
    None
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.split('-').all(|part| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
}

fn mime_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "md" => "text/markdown",
        "txt" => "text/plain",
        "html" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "js" | "mjs" => "text/javascript",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "py" => "text/x-python",
        "sh" => "text/x-shellscript",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "svg" => "image/svg+xml",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}

#[cfg(feature = "config-files")]
fn read_yaml(text: &str) -> Result<Map<String, Value>, String> {
    serde_saphyr::from_str(text).map_err(|e| e.to_string())
}

#[cfg(not(feature = "config-files"))]
fn read_yaml(_: &str) -> Result<Map<String, Value>, String> {
    Err("YAML requires the feature `config-files`, which this build does not have".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST_TEXT: &str = "---\nname: a-1\ndescription: Does something.\n---\nDo it.\n";

    fn skill() -> Skill {
        Skill::new(MANIFEST_TEXT).expect("a skill")
    }

    #[test]
    fn names_are_words_with_single_hyphens() {
        for good in ["a", "a-1", "1", &"a".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            "A",
            "a--b",
            "-a",
            "a-",
            "a_b",
            "\u{e9}",
            &"a".repeat(65),
        ] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_manifest_says_what_it_is() {
        for bad in [
            "no front matter",
            "---\nname: a\n",
            "---\nname: a\n---\n",
            "---\nname: A\ndescription: d\n---\n",
            "---\n- 1\n---\n",
            "---\nname: a\ndescription: d\nmetadata:\n  io.modelcontextprotocol/x: 1\n---\n",
        ] {
            assert!(Skill::new(bad).is_err(), "{bad:?}");
        }
        assert!(Skill::new("\u{feff}---\r\nname: a\r\ndescription: d\r\n---\r\n").is_ok());
    }

    #[test]
    fn paths_stay_within_the_skill() {
        for bad in [
            "",
            "/a",
            "a/",
            "../a",
            "a/../b",
            "a//b",
            "./a",
            "a\\b",
            "a b",
            "SKILL.md",
            "SKILL.md/a",
        ] {
            assert!(skill().file(bad, "x").is_err(), "{bad:?}");
        }
        let twice = skill().file("a/b", "x").expect("a file");
        assert!(twice.file("a", "y").is_err(), "a file and a folder");
    }

    #[test]
    fn a_skill_has_its_limits_to_the_byte() {
        let rest = BYTES_MAX - MANIFEST_TEXT.len();
        assert!(skill().file("a", vec![0; rest]).is_ok());
        assert!(skill().file("a", vec![0; rest + 1]).is_err());
        let mut full = skill();
        for number in 1..FILES_MAX {
            full = full.file(&format!("f{number}"), "").expect("fits");
        }
        assert!(full.file("more", "").is_err());
    }

    #[test]
    fn folders_list_what_is_directly_in_them() {
        let skill = skill().file("b/c/d.txt", "x").expect("a file");
        let (entry, folders) = skill.into_entry();
        let entry: Value = serde_json::from_str(&entry.entry).expect("JSON");
        assert_eq!(entry["uri"], "skill://a-1/SKILL.md");
        assert_eq!(
            entry["frontmatter"],
            json!({"name": "a-1", "description": "Does something."})
        );
        assert_eq!(
            entry["resources"][1],
            json!({
                "uri": "skill://a-1/b/c/d.txt",
                "digest": "sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
                "size": 1,
            })
        );
        let keys: Vec<_> = folders.keys().collect();
        assert_eq!(keys, ["skill://a-1", "skill://a-1/b", "skill://a-1/b/c"]);
        let root: Value = serde_json::from_str(&folders["skill://a-1"]).expect("JSON");
        assert_eq!(root[0]["uri"], "skill://a-1/SKILL.md");
        assert_eq!(
            root[1],
            json!({"uri": "skill://a-1/b", "name": "b", "mimeType": "inode/directory"})
        );
    }

    #[test]
    fn only_a_regular_file_is_read_as_the_manifest() {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = folder.path().join(MANIFEST);
        fs::create_dir(&manifest).expect("made");
        let problem = |folder: &Path| Skill::from_folder(folder).expect_err("not read");
        let source = |problem: SkillError| match problem {
            SkillError::Read { source, .. } => source.to_string(),
            other => panic!("{other}"),
        };
        assert!(source(problem(folder.path())).contains("regular file"));
        fs::remove_dir(&manifest).expect("removed");
        let sparse = fs::File::create(&manifest).expect("made");
        sparse.set_len(BYTES_MAX as u64).expect("longer");
        assert!(matches!(problem(folder.path()), SkillError::File { .. }));
    }

    #[test]
    fn a_folder_is_read_without_what_is_hidden_or_leads_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("SKILL.md", MANIFEST_TEXT);
        write("references/one.md", "1");
        write(".git/config", "secret");
        #[cfg(unix)]
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link")).expect("a link");
        let skill = Skill::from_folder(folder.path()).expect("a skill");
        let paths: Vec<_> = skill.files.keys().collect();
        assert_eq!(paths, ["SKILL.md", "references/one.md"]);
    }
}
