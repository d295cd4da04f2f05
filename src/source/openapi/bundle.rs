//! A document that refers to others becomes one: theirs are put into it, and references lead there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use url::Url;

use super::config::OpenApiSourceConfig;
use super::document::{fetch, parse, read_file};

/// Documents that one may consist of, besides itself.
const DOCUMENTS_MAX: usize = 64;
/// The member of the whole under which the others are.
const MEMBER: &str = "x-longshore-documents";

/// Where a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Url(Url),
}

/// A document with all that it refers to in it, as far as that could be read.
#[derive(Debug)]
pub(super) struct Bundled {
    pub(super) root: Value,
    /// What could not be read, by how references name it, and why.
    pub(super) missing: BTreeMap<String, String>,
}

/// Documents by their place, in the order in which they were found; the first one is the whole.
struct Known {
    places: Vec<Place>,
    documents: Vec<Value>,
    /// The folder that files are in, or below.
    folder: Option<PathBuf>,
    missing: BTreeMap<String, String>,
    /// Bytes that may still be read.
    left: usize,
}

/// Reads what a document refers to, and what that refers to.
pub(super) async fn bundle(root: Value, place: Place, config: &OpenApiSourceConfig) -> Bundled {
    let folder = match &place {
        Place::File(file) => {
            let folder = file
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()
        }
        Place::Url(_) => None,
    };
    let mut known = Known {
        places: vec![place],
        documents: vec![root],
        folder,
        missing: BTreeMap::new(),
        left: config.document_bytes,
    };
    let mut at = 0;
    while at < known.documents.len() {
        let mut references = Vec::new();
        collect(&known.documents[at], &mut references);
        for reference in references {
            known.follow(at, &reference, config).await;
        }
        at += 1;
    }
    known.joined()
}

/// The documents that references in a value lead to, as they are written.
fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let document = document_of(reference);
                if !document.is_empty() && !found.iter().any(|known| known == document) {
                    found.push(document.to_owned());
                }
            }
            members.values().for_each(|value| collect(value, found));
        }
        Value::Array(elements) => elements.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

fn document_of(reference: &str) -> &str {
    reference
        .split_once('#')
        .map_or(reference, |(document, _)| document)
}

impl Known {
    async fn follow(&mut self, from: usize, reference: &str, config: &OpenApiSourceConfig) {
        if self.missing.contains_key(reference) {
            return;
        }
        let read = match self.place(from, reference) {
            Ok(place) if self.places.contains(&place) => return,
            Ok(_) if DOCUMENTS_MAX < self.places.len() => {
                Err(format!("there are more than {DOCUMENTS_MAX} documents"))
            }
            Ok(place) => self.read(place, config).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = read {
            self.missing.insert(reference.to_owned(), problem);
        }
    }

    /// What a reference in one of the documents leads to.
    fn place(&self, from: usize, reference: &str) -> Result<Place, String> {
        if reference.contains("://") {
            let url = reference.parse::<Url>();
            return Ok(Place::Url(url.map_err(|error| error.to_string())?));
        }
        match &self.places[from] {
            Place::Url(url) => {
                let joined = url.join(reference).map_err(|error| error.to_string())?;
                Ok(Place::Url(joined))
            }
            Place::File(file) => {
                let joined = file.parent().unwrap_or(Path::new("")).join(reference);
                let file = std::fs::canonicalize(&joined)
                    .map_err(|error| format!("{} cannot be read: {error}", joined.display()))?;
                match &self.folder {
                    Some(folder) if file.starts_with(folder) => Ok(Place::File(file)),
                    _ => Err("it is not in the folder of the document, nor below it".to_owned()),
                }
            }
        }
    }

    async fn read(&mut self, place: Place, config: &OpenApiSourceConfig) -> Result<(), String> {
        let bytes = match &place {
            // Only the document that was configured is trusted to be in a private network.
            Place::Url(url) => {
                let trusted = match &self.places[0] {
                    Place::Url(root) => Some(root),
                    Place::File(_) => None,
                };
                Box::pin(fetch(url, trusted, config))
                    .await
                    .map_err(|unread| unread.problem)?
            }
            Place::File(file) => read_file(file, self.left)?,
        };
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| {
            "all documents together are larger than openapi.document_bytes allows".to_owned()
        })?;
        let document = parse(&bytes)?;
        self.places.push(place);
        self.documents.push(document);
        Ok(())
    }

    fn joined(self) -> Bundled {
        let mut documents = self.documents.clone();
        for (at, document) in documents.iter_mut().enumerate() {
            self.redirect(at, document);
        }
        let mut documents = documents.into_iter();
        let mut root = documents.next().unwrap_or_default();
        let others: Map<String, Value> = documents
            .enumerate()
            .map(|(number, document)| ((number + 1).to_string(), document))
            .collect();
        if !others.is_empty()
            && let Value::Object(members) = &mut root
        {
            members.insert(MEMBER.to_owned(), others.into());
        }
        Bundled {
            root,
            missing: self.missing,
        }
    }

    /// Has references in one of the documents lead to where the others are now.
    fn redirect(&self, from: usize, value: &mut Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get_mut("$ref")
                    && let Some(there) = self.redirected(from, reference)
                {
                    *reference = there;
                }
                for value in members.values_mut() {
                    self.redirect(from, value);
                }
            }
            Value::Array(elements) => {
                for value in elements {
                    self.redirect(from, value);
                }
            }
            _ => {}
        }
    }

    fn redirected(&self, from: usize, reference: &str) -> Option<String> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let to = match document {
            "" => from,
            document => {
                let place = self.place(from, document).ok()?;
                self.places.iter().position(|known| *known == place)?
            }
        };
        Some(match to {
            0 => format!("#{fragment}"),
            to => format!("#/{MEMBER}/{to}{fragment}"),
        })
    }
}
