//! Bundling: embeds the documents that a document refers to, and redirects references to them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::config::OpenApiSourceConfig;
use super::document::{Fetcher, parse_within, read_file};
use super::named::NamedSchemas;
use crate::source::name::sanitized;

/// Member of the bundled document that holds the other documents.
const MEMBER: &str = "x-longshore-documents";
/// Number of concurrent fetches of referenced documents. The size limit of each is the remaining limit divided by
/// this number, so that all of them together stay within it.
const FETCHES: usize = 4;
/// Total time for fetching all referenced documents.
const FETCHES_TIMEOUT: Duration = Duration::from_secs(120);

/// Location of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DocumentLocation {
    File(PathBuf),
    Url(Url),
}

impl fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Url(url) => write!(f, "{url}"),
        }
    }
}

/// A document with all documents that it refers to, as far as they could be read.
#[derive(Debug)]
pub(super) struct Bundled {
    pub(super) root: Value,
    /// Documents that could not be read: the name that references now use, and the reason.
    pub(super) missing: BTreeMap<String, String>,
    /// True if a document other than the root was fetched over the network.
    pub(super) has_fetched_parts: bool,
    /// Local files that references name, in order.
    pub(super) files: Vec<PathBuf>,
}

/// Remaining budget for the documents that are still to be read.
#[derive(Debug)]
struct Budget {
    bytes: Cell<usize>,
    /// Estimated memory of their trees, in bytes.
    tree: Cell<usize>,
}

/// One of the bundled documents.
struct Part {
    place: DocumentLocation,
    value: Value,
    /// Its member name in the bundle.
    name: String,
    /// Locations of its references as written; or a placeholder name and the reason why there is no location.
    links: HashMap<String, Result<DocumentLocation, (String, String)>>,
    named: NamedSchemas,
}

/// The documents found so far, the root first.
struct Parts<'c> {
    config: &'c OpenApiSourceConfig,
    parts: Vec<Part>,
    /// Index of the part for each referenced location, or the reason why it is missing.
    outcomes: HashMap<DocumentLocation, Result<usize, String>>,
    names: HashSet<String>,
    /// The folder that contains all readable files.
    folder: Option<PathBuf>,
    /// Files by the paths of references. Caches lookups, since many references share a path.
    files: RefCell<HashMap<PathBuf, Result<PathBuf, String>>>,
    budget: Budget,
    deadline: Instant,
}

/// Reads the documents that a document refers to, recursively. `tree` is the memory that all of their trees can take,
/// in bytes.
pub(super) async fn bundle(
    root: Value,
    place: DocumentLocation,
    config: &OpenApiSourceConfig,
    tree: usize,
) -> Bundled {
    let folder = match &place {
        DocumentLocation::File(file) => {
            let folder = file
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()
        }
        DocumentLocation::Url(_) => None,
    };
    let root = Part {
        place: place.clone(),
        value: root,
        name: String::new(),
        links: HashMap::new(),
        named: NamedSchemas::default(),
    };
    let mut parts = Parts {
        config,
        parts: vec![root],
        outcomes: HashMap::from([(place, Ok(0))]),
        names: HashSet::new(),
        folder,
        files: RefCell::default(),
        budget: Budget {
            bytes: Cell::new(config.document_bytes),
            tree: Cell::new(tree),
        },
        deadline: Instant::now() + FETCHES_TIMEOUT,
    };
    let mut fetcher = None;
    let mut at = 0;
    while at < parts.parts.len() {
        let end = parts.parts.len();
        let mut wanted = Vec::new();
        for part in at..end {
            parts.link(part, &mut wanted);
        }
        at = end;
        if fetcher.is_none()
            && wanted
                .iter()
                .any(|place| matches!(place, DocumentLocation::Url(_)))
        {
            fetcher = Some(parts.fetcher());
        }
        let read: Vec<_> = futures_util::stream::iter(wanted)
            .map(|place| parts.read(place, fetcher.as_ref()))
            .buffered(FETCHES)
            .collect()
            .await;
        for (place, read) in read {
            parts.add(place, read);
        }
    }
    parts.joined()
}

/// Collects the distinct documents that references in a value name, as written.
fn collect(value: &Value, known: &mut HashSet<String>, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let document = reference.split('#').next().unwrap_or_default();
                if !document.is_empty() && !known.contains(document) {
                    known.insert(document.to_owned());
                    found.push(document.to_owned());
                }
            }
            for value in members.values() {
                collect(value, known, found);
            }
        }
        Value::Array(elements) => {
            for value in elements {
                collect(value, known, found);
            }
        }
        _ => {}
    }
}

impl Parts<'_> {
    /// Resolves the references of one part, and adds the locations that are still to be read.
    fn link(&mut self, at: usize, wanted: &mut Vec<DocumentLocation>) {
        let mut references = Vec::new();
        collect(&self.parts[at].value, &mut HashSet::new(), &mut references);
        let named = NamedSchemas::of(&self.parts[at].value);
        references.retain(|reference| !named.has_id(reference));
        self.parts[at].named = named;
        for reference in references {
            let place = self.place(at, &reference);
            if let Ok(place) = &place
                && !self.outcomes.contains_key(place)
            {
                let max = self.config.max_documents;
                let outcome = if self.outcomes.len() <= max {
                    wanted.push(place.clone());
                    Err("it is still to be read".to_owned())
                } else {
                    Err(format!(
                        "the document refers to more than {max} others (openapi.max_documents); bundle them into one document, or \
                         raise the limit"
                    ))
                };
                self.outcomes.insert(place.clone(), outcome);
            }
            self.parts[at].links.insert(reference, place);
        }
    }

    /// Resolves a reference in one of the documents to a location. Otherwise returns a placeholder name and the
    /// reason.
    fn place(&self, from: usize, reference: &str) -> Result<DocumentLocation, (String, String)> {
        let named = |problem: String| (reference.to_owned(), problem);
        if reference.contains("://") {
            let url = reference.parse::<Url>();
            return Ok(DocumentLocation::Url(
                url.map_err(|error| named(error.to_string()))?,
            ));
        }
        match &self.parts[from].place {
            DocumentLocation::Url(url) => {
                let joined = url.join(reference);
                joined
                    .map(DocumentLocation::Url)
                    .map_err(|error| named(error.to_string()))
            }
            DocumentLocation::File(file) => {
                let joined = file.parent().unwrap_or(Path::new("")).join(reference);
                let name = joined.display().to_string();
                let mut files = self.files.borrow_mut();
                let found = files
                    .entry(joined)
                    .or_insert_with_key(|joined| self.file(joined));
                match found {
                    Ok(file) => Ok(DocumentLocation::File(file.clone())),
                    Err(problem) => Err((name, problem.clone())),
                }
            }
        }
    }

    /// Returns the file at a path, if it is allowed to be read.
    fn file(&self, joined: &Path) -> Result<PathBuf, String> {
        let file = std::fs::canonicalize(joined)
            .map_err(|error| format!("{} cannot be read: {error}", joined.display()))?;
        match &self.folder {
            Some(folder) if file.starts_with(folder) => Ok(file),
            _ => Err("it is not in the folder of the document, nor below it".to_owned()),
        }
    }

    fn fetcher(&self) -> Result<Fetcher, String> {
        // Only the configured document is trusted to be in a private network.
        let trusted = match &self.parts[0].place {
            DocumentLocation::Url(root) => Some(root),
            DocumentLocation::File(_) => None,
        };
        Fetcher::new(trusted, self.config, self.config.document_bytes / FETCHES)
    }

    async fn read(
        &self,
        place: DocumentLocation,
        fetcher: Option<&Result<Fetcher, String>>,
    ) -> (DocumentLocation, Result<Value, String>) {
        let read = self.read_at(&place, fetcher).await;
        (place, read)
    }

    async fn read_at(
        &self,
        place: &DocumentLocation,
        fetcher: Option<&Result<Fetcher, String>>,
    ) -> Result<Value, String> {
        let too_large = || {
            "all documents together are larger than openapi.document_bytes; bundle only what is needed, or raise the limit"
                .to_owned()
        };
        let budget = &self.budget;
        if budget.bytes.get() == 0 {
            return Err(too_large());
        }
        let bytes = match (place, fetcher) {
            (DocumentLocation::File(file), _) => read_file(file, budget.bytes.get())?,
            (DocumentLocation::Url(url), Some(Ok(fetcher))) => {
                let fetched = timeout_at(self.deadline, fetcher.fetch(url)).await;
                fetched
                    .map_err(|_| {
                        format!(
                            "all documents together took longer than {} s to fetch; bundle them into one document",
                            FETCHES_TIMEOUT.as_secs()
                        )
                    })?
                    .map_err(|unread| unread.problem)?
            }
            (DocumentLocation::Url(_), Some(Err(problem))) => return Err(problem.clone()),
            (DocumentLocation::Url(_), None) => return Err("it cannot be fetched".to_owned()),
        };
        let left = budget.bytes.get().checked_sub(bytes.len());
        budget.bytes.set(left.unwrap_or(0));
        left.ok_or_else(too_large)?;
        let (document, tree) = parse_within(&bytes, budget.tree.get())?;
        budget.tree.set(budget.tree.get().saturating_sub(tree));
        Ok(document)
    }

    fn add(&mut self, place: DocumentLocation, read: Result<Value, String>) {
        let outcome = read.map(|value| {
            let number = self.parts.len();
            let name = self.free_name(&place, number);
            self.parts.push(Part {
                name,
                place: place.clone(),
                value,
                links: HashMap::new(),
                named: NamedSchemas::default(),
            });
            number
        });
        self.outcomes.insert(place, outcome);
    }

    /// Returns an unused name for a part that shows which file it was.
    fn free_name(&mut self, place: &DocumentLocation, number: usize) -> String {
        let stem = match place {
            DocumentLocation::File(file) => file
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned()),
            DocumentLocation::Url(url) => url
                .path_segments()
                .and_then(|mut segments| segments.next_back())
                .map(|last| {
                    last.rsplit_once('.')
                        .map_or(last, |(stem, _)| stem)
                        .to_owned()
                }),
        };
        let mut name = match sanitized(&stem.unwrap_or_default()) {
            name if name.is_empty() => format!("document_{number}"),
            name if self.names.contains(&name) => format!("{name}_{number}"),
            name => name,
        };
        while self.names.contains(&name) {
            name.push('_');
        }
        self.names.insert(name.clone());
        name
    }

    fn joined(mut self) -> Bundled {
        let mut missing = BTreeMap::new();
        for at in 0..self.parts.len() {
            let mut value = std::mem::take(&mut self.parts[at].value);
            self.redirect(at, &mut value, &mut missing);
            self.parts[at].value = value;
        }
        let has_fetched_parts = self.parts[1..]
            .iter()
            .any(|part| matches!(part.place, DocumentLocation::Url(_)));
        let mut files: Vec<PathBuf> = self.files.into_inner().into_keys().collect();
        files.sort_unstable();
        let mut parts = self.parts.into_iter();
        let mut root = parts.next().map(|part| part.value).unwrap_or_default();
        let others: Map<String, Value> = parts.map(|part| (part.name, part.value)).collect();
        if !others.is_empty()
            && let Value::Object(members) = &mut root
        {
            members.insert(MEMBER.to_owned(), others.into());
        }
        Bundled {
            root,
            missing,
            has_fetched_parts,
            files,
        }
    }

    /// Rewrites the references of one document to the positions of the others in the bundle.
    fn redirect(&self, from: usize, value: &mut Value, missing: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get_mut("$ref")
                    && let Some(there) = self.redirected(from, reference, missing)
                {
                    *reference = there;
                }
                for value in members.values_mut() {
                    self.redirect(from, value, missing);
                }
            }
            Value::Array(elements) => {
                for value in elements {
                    self.redirect(from, value, missing);
                }
            }
            _ => {}
        }
    }

    fn redirected(
        &self,
        from: usize,
        reference: &str,
        missing: &mut BTreeMap<String, String>,
    ) -> Option<String> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let (name, problem) = match document {
            document if document.is_empty() || self.parts[from].named.has_id(document) => {
                return Some(self.inside(from, document, fragment));
            }
            document => match self.parts[from].links.get(document)? {
                Err(nowhere) => nowhere.clone(),
                Ok(place) => match self.outcomes.get(place)? {
                    Ok(to) => return Some(self.inside(*to, "", fragment)),
                    Err(problem) => (place.to_string(), problem.clone()),
                },
            },
        };
        // A `#` in the name would be taken for the start of the fragment.
        let name = name.replace('#', "%23");
        let there = format!("{name}#{fragment}");
        missing.entry(name).or_insert(problem);
        Some(there)
    }

    /// Returns a reference into one of the documents. `id` is the `$id` of the schema in it that is meant, if any.
    fn inside(&self, to: usize, id: &str, fragment: &str) -> String {
        let part = &self.parts[to];
        let fragment = part.named.resolved(id, fragment);
        match to {
            0 => format!("#{fragment}"),
            _ => format!("#/{MEMBER}/{}{fragment}", part.name),
        }
    }
}
