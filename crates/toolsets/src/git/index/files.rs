//! Contents of files in the work tree, the index and commits.

use std::io::{self, Read};

use gix::ObjectId;
use gix::bstr::BStr;

use super::super::convert::{Converter, Purpose};
use super::super::repository::{OpenRepository, ResultContext};
use super::super::tree::{Mode, Version};
use super::super::worktree::{Content, FileKind, Worktree};
use super::{Index, IndexEntry};
use crate::catalog::ToolError;

enum Piece {
    Whole(Content),
    TooLarge,
}

/// Files of the working tree in the form in which they would be added.
pub(in super::super) struct Files<'a> {
    place: &'a OpenRepository<'a>,
    index: &'a Index,
    worktree: &'a Worktree,
    converter: Converter<'a>,
    stat_options: gix::index::entry::stat::Options,
    /// True if the file system supports executable bits.
    has_modes: bool,
}

impl<'a> Files<'a> {
    pub(in super::super) fn new(
        place: &'a OpenRepository<'a>,
        index: &'a Index,
        worktree: &'a Worktree,
    ) -> Result<Self, ToolError> {
        let snapshot = place.repository.config_snapshot();
        Ok(Self {
            place,
            index,
            worktree,
            converter: Converter::new(place, worktree)?,
            stat_options: place
                .repository
                .stat_options()
                .doing("read the configuration")?,
            has_modes: snapshot.boolean("core.fileMode").unwrap_or(true),
        })
    }

    /// Returns the current version of a path. If the file is unchanged since it was staged, it is not read.
    pub(in super::super) fn version(
        &mut self,
        path: &BStr,
        staged: Option<&IndexEntry>,
    ) -> Result<Option<Version>, ToolError> {
        let found = self.worktree.find(path).doing("look at a file")?;
        if let Some(staged) = staged
            && staged.version.mode == Mode::Submodule
        {
            // Submodules are not examined: they count as unchanged as long as their folder exists.
            let is_there = matches!(found, Some(FileKind::Folder));
            return Ok(is_there.then_some(staged.version));
        }
        let Some(FileKind::Tracked { mode, stat }) = found else {
            return Ok(None);
        };
        let mode = self.mode(mode, staged);
        if let Some(staged) = staged
            && mode == staged.version.mode
            && staged.stat.matches(&stat, self.stat_options)
            && !staged
                .stat
                .is_racy(self.index.file.timestamp(), self.stat_options)
        {
            return Ok(Some(staged.version));
        }
        match self.read(path, Purpose::Compare)? {
            None => Ok(None),
            Some(Piece::Whole(content)) => {
                let hash = self.place.repository.object_hash();
                let id = gix::objs::compute_hash(hash, gix::objs::Kind::Blob, &content.bytes);
                let id = id.doing("compute an id")?;
                Ok(Some(Version { mode, id }))
            }
            Some(Piece::TooLarge) => {
                let id = self.large(path)?;
                Ok(id.map(|id| Version { mode, id }))
            }
        }
    }

    /// Returns the content of a path as it would be added, with the metadata read at that time.
    pub(in super::super) fn content(
        &mut self,
        path: &BStr,
        staged: Option<&IndexEntry>,
    ) -> Result<Option<Content>, ToolError> {
        match self.read(path, Purpose::Store)? {
            None => Ok(None),
            Some(Piece::Whole(content)) => Ok(Some(Content {
                mode: self.mode(content.mode, staged),
                ..content
            })),
            Some(Piece::TooLarge) => Err(ToolError::new(format!(
                "the file '{path}' has more than {} bytes, which is more than is read",
                self.place.limits().file_bytes
            ))),
        }
    }

    /// Returns the content of a path as it would be added; `None` if it is too large.
    pub(in super::super) fn content_within(
        &mut self,
        path: &BStr,
    ) -> Result<Option<Vec<u8>>, ToolError> {
        match self.read(path, Purpose::Compare)? {
            None => Ok(Some(Vec::new())),
            Some(Piece::Whole(content)) => Ok(Some(content.bytes)),
            Some(Piece::TooLarge) => Ok(None),
        }
    }

    fn mode(&self, mode: Mode, staged: Option<&IndexEntry>) -> Mode {
        match staged {
            Some(staged) if !self.has_modes && mode.is_alike(staged.version.mode) => {
                staged.version.mode
            }
            None if !self.has_modes && mode == Mode::Executable => Mode::File,
            _ => mode,
        }
    }

    fn read(&mut self, path: &BStr, purpose: Purpose) -> Result<Option<Piece>, ToolError> {
        let mut content = match self.worktree.read(path, self.place.limits().file_bytes) {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                self.place.stop.hit("file_bytes");
                return Ok(Some(Piece::TooLarge));
            }
            Err(error) => {
                return Err(error).doing(&format!("read the file '{path}'"));
            }
        };
        if content.mode != Mode::Link {
            content.bytes =
                self.converter
                    .stored_form(path, content.bytes, &self.index.file, purpose)?;
        }
        Ok(Some(Piece::Whole(content)))
    }

    /// Returns the ID of a file that is too large for memory, without conversions.
    fn large(&self, path: &BStr) -> Result<Option<ObjectId>, ToolError> {
        let Some(mut file) = self.worktree.file(path).doing("read a file")? else {
            return Ok(None);
        };
        let size = file.metadata().doing("read a file")?.len();
        let mut hasher = gix::hash::hasher(self.place.repository.object_hash());
        hasher.update(format!("blob {size}\0").as_bytes());
        let mut buffer = vec![0; 256 * 1024];
        loop {
            self.place.stop.check()?;
            match file.read(&mut buffer).doing("read a file")? {
                0 => break,
                read => hasher.update(&buffer[..read]),
            }
        }
        Ok(Some(hasher.try_finalize().doing("compute an id")?))
    }
}
