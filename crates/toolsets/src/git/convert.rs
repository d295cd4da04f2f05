//! Conversion of files between the working tree and the repository: line ends, `$Id$` and encodings.
//!
//! Only Git's built-in conversions are made. Configured filters are programs, which are not trusted.

use std::collections::HashSet;
use std::path::Path;

use gix::attrs::StateRef;
use gix::attrs::search::{MetadataCollection, Outcome};
use gix::bstr::{BStr, BString, ByteSlice};
use gix::filter::plumbing;
use gix::filter::plumbing::pipeline::CrlfRoundTripCheck;
use gix::filter::plumbing::pipeline::convert::{ToGitOutcome, ToWorktreeOutcome, to_worktree};
use gix::objs::Find;

use super::encoding::FileEncoding;
use super::repository::{OpenRepository, ResultContext};
use super::worktree::Worktree;
use crate::catalog::ToolError;

/// Purpose of a conversion to the form of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A file that cannot be converted is compared as it is.
    Compare,
    /// A file that cannot be converted, or not without loss, is an error.
    Store,
}

/// Attributes that the library applies. Encodings are converted here: it writes UTF-16 as UTF-8, and fails for names that
/// it does not know.
const ATTRIBUTES: [&str; 6] = ["crlf", "ident", "filter", "eol", "text", "longshore-none"];
const ENCODING: &str = "working-tree-encoding";

pub(super) struct Converter<'a> {
    place: &'a OpenRepository<'a>,
    worktree: &'a Worktree,
    /// Folders whose `.gitattributes` was checked, with all folders above them.
    checked: HashSet<BString>,
    library: plumbing::Pipeline,
    attributes: gix::worktree::Stack,
    encoding: Outcome,
    /// The repository's `core.safecrlf`.
    check: CrlfRoundTripCheck,
}

impl<'a> Converter<'a> {
    pub(super) fn new(
        place: &'a OpenRepository<'a>,
        worktree: &'a Worktree,
    ) -> Result<Self, ToolError> {
        let (pipeline, _) = place
            .repository
            .filter_pipeline(None)
            .doing("read the attributes")?;
        let (mut library, attributes) = pipeline.into_parts();
        let mut encoding = Outcome::default();
        encoding.initialize_with_selection(&MetadataCollection::default(), [ENCODING]);
        Ok(Self {
            place,
            worktree,
            checked: HashSet::new(),
            check: library.options_mut().crlf_roundtrip_check,
            library,
            attributes,
            encoding,
        })
    }

    /// Converts a file to the form in which it is stored.
    pub(super) fn stored_form(
        &mut self,
        path: &BStr,
        bytes: Vec<u8>,
        index: &gix::index::State,
        purpose: Purpose,
    ) -> Result<Vec<u8>, ToolError> {
        let encoding = self.encoding(path)?;
        let bytes = match encoding {
            None => bytes,
            Some(encoding) => match encoding.decode(&bytes) {
                Some(text)
                    if purpose == Purpose::Compare || encoding.is_lossless(&bytes, &text) =>
                {
                    text.into_bytes()
                }
                _ if purpose == Purpose::Compare => bytes,
                _ => {
                    return Err(ToolError::new(format!(
                        "the file '{path}' cannot be converted to UTF-8 from the encoding that .gitattributes names (working-tree-encoding)"
                    )));
                }
            },
        };
        self.library.options_mut().crlf_roundtrip_check = match purpose {
            Purpose::Compare => CrlfRoundTripCheck::Skip,
            Purpose::Store => self.check,
        };
        let objects = &self.place.repository.objects;
        let entry = self
            .attributes
            .at_entry(path, None, objects)
            .doing("read the attributes")?;
        let name: &Path = &gix::path::from_bstr(path).doing("name a file")?;
        let converted = self.library.convert_to_git(
            &*bytes,
            name,
            &mut |_, found| {
                select(found);
                entry.matching_attributes(found);
            },
            &mut |buffer| {
                let Some(entry) = index.entry_by_path(path) else {
                    return Ok(None);
                };
                let object = objects.try_find(&entry.id, buffer)?;
                Ok(object
                    .filter(|object| object.kind == gix::objs::Kind::Blob)
                    .map(|_| ()))
            },
        );
        let converted = converted.doing(&format!(
            "convert the line ends of the file '{path}' without loss, which core.safecrlf demands"
        ))?;
        let changed = match converted {
            ToGitOutcome::Unchanged(_) => None,
            ToGitOutcome::Buffer(changed) => Some(changed.to_vec()),
            ToGitOutcome::Process(_) => return Err(no_program()),
        };
        Ok(changed.unwrap_or(bytes))
    }

    /// Converts a stored file to the form for the working tree. As in Git, an encoding that cannot represent it is not
    /// applied.
    pub(super) fn worktree_form(
        &mut self,
        path: &BStr,
        stored: &[u8],
    ) -> Result<Vec<u8>, ToolError> {
        let encoding = self.encoding(path)?;
        let entry = self
            .attributes
            .at_entry(path, None, &self.place.repository.objects)
            .doing("read the attributes")?;
        let converted = self.library.convert_to_worktree(
            stored,
            path,
            &mut |_, found| {
                select(found);
                entry.matching_attributes(found);
            },
            to_worktree::Options::default(),
        );
        let bytes = match converted.doing("convert a file by its attributes")? {
            ToWorktreeOutcome::Unchanged(bytes) | ToWorktreeOutcome::Buffer(bytes) => bytes,
            ToWorktreeOutcome::Process(_) => return Err(no_program()),
        };
        let encoded = encoding.and_then(|encoding| encoding.encode(bytes));
        Ok(encoded.unwrap_or_else(|| bytes.to_vec()))
    }

    /// Checks the attributes of all folders of a path before the library reads them.
    fn check_folders(&mut self, path: &BStr) -> Result<(), ToolError> {
        let max = self.place.limits().file_bytes;
        let mut folder = folder_of(path);
        while !self.checked.contains(folder) {
            self.worktree.check_rules(folder, ".gitattributes", max)?;
            self.checked.insert(folder.to_owned());
            folder = folder_of(folder);
        }
        Ok(())
    }

    fn encoding(&mut self, path: &BStr) -> Result<Option<FileEncoding>, ToolError> {
        self.check_folders(path)?;
        let objects = &self.place.repository.objects;
        let entry = self.attributes.at_entry(path, None, objects);
        let entry = entry.doing("read the attributes")?;
        entry.matching_attributes(&mut self.encoding);
        let found = self.encoding.iter_selected().next();
        Ok(found.and_then(|found| match found.assignment.state {
            StateRef::Value(name) => FileEncoding::of(name.as_bstr().as_bytes()),
            _ => None,
        }))
    }
}

/// Returns the folder of a path, empty for the root.
fn folder_of(path: &BStr) -> &BStr {
    path[..path.rfind_byte(b'/').unwrap_or(0)].as_bstr()
}

/// Selects the attributes that the library reads, in its order.
fn select(found: &mut Outcome) {
    found.initialize_with_selection(&MetadataCollection::default(), ATTRIBUTES);
}

fn no_program() -> ToolError {
    ToolError::internal("a program would have been run as a filter")
}
