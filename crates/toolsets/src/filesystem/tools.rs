//! Tools of the filesystem toolset, with their arguments and results.

mod arguments;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::config::{FilesystemConfig, FilesystemLimits};
use super::edit::{self, Lines};
use super::pattern::Patterns;
use super::refusal::{Abort, PathRejection, shortened};
use super::roots::Roots;
use super::write::{self, MoveError};
use super::{info, list, read};
use crate::catalog::{
    CallContext, Definition, IntoOutput, IntoTool as _, Output, Tool, ToolError, tool_fn,
};
use crate::protocol::Content;
use crate::source::builtin::{Blocking, Stop, Toolset, ToolsetContext, ToolsetError};
use crate::source::limits::{GRACE, time_limit};
use arguments::{
    AtPath, ContentText, EditFile, ListWithSizes, Move, ReadMany, ReadText, Search, SortBy, TreeOf,
    Write,
};

/// Limits whose hits are counted.
const LIMITS: [&str; 7] = [
    "bytes",
    "depth",
    "entries",
    "searched",
    "matches",
    "timeout_seconds",
    "concurrency",
];

/// Maximum number of attempts to edit a file that other calls or processes keep changing.
const EDIT_ATTEMPTS: usize = 32;

/// State that the tools share.
struct Files {
    roots: Roots,
    limits: FilesystemLimits,
    blocking: Blocking,
}

pub fn toolset(grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    let settings: &FilesystemConfig = &grounds.settings.filesystem;
    const DIRECTORIES: &str = "builtin.filesystem.directories";
    if settings.directories.is_empty() {
        return Err(ToolsetError::setting(
            DIRECTORIES,
            "is empty: the filesystem toolset works in directories that are named, and nowhere else; name them in the configuration file, or in LONGSHORE_BUILTIN__FILESYSTEM__DIRECTORIES",
        ));
    }
    if let Some((limit, problem)) = settings.limits.problem() {
        let setting = format!("builtin.filesystem.limits.{limit}");
        return Err(ToolsetError::setting(setting, problem));
    }
    let roots = Roots::open(&settings.directories).map_err(|(position, problem)| {
        ToolsetError::setting(format!("{DIRECTORIES}[{position}]"), problem)
    })?;
    let files = Arc::new(Files {
        roots,
        blocking: Blocking::new(
            settings.limits.concurrency,
            time_limit(settings.limits.timeout_seconds),
        )
        .counting(grounds.hits("filesystem.limits", &LIMITS)),
        limits: settings.limits.clone(),
    });
    let mut tools = files.reading();
    if settings.write {
        tools.extend(files.writing());
    }
    Ok(Toolset {
        tools,
        ..Toolset::default()
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Files {
    /// Creates a tool whose work blocks.
    fn tool<A, R>(
        self: &Arc<Self>,
        definition: Definition,
        work: fn(&Self, &A, &Stop) -> Result<R, ToolError>,
    ) -> Arc<dyn Tool>
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: IntoOutput + Send + 'static,
    {
        let files = Arc::clone(self);
        let timeout = time_limit(self.limits.timeout_seconds) + GRACE;
        let definition = definition.open_world(false).timeout(timeout);
        tool_fn(definition, move |_: Arc<CallContext>, arguments: A| {
            let files = Arc::clone(&files);
            async move {
                let pool = Arc::clone(&files);
                pool.blocking
                    .run(move |stop| work(&files, &arguments, stop))
                    .await
            }
        })
        .into_tool()
    }

    fn reading(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let define = |name: &str, title: &str| Definition::new(name).title(title).read_only(true);
        vec![
            self.tool(
                define("read_file", "Read a file (old name)")
                    .description("Returns the text of a file. The old name of read_text_file, which is to be used instead."),
                Self::read_text,
            ),
            self.tool(
                define("read_text_file", "Read a text file")
                    .description("Returns the text of a file, or with head or tail its first or last lines. Bytes that are not UTF-8 are replaced."),
                Self::read_text,
            ),
            self.tool(
                define("read_media_file", "Read a media file")
                    .description("Returns a picture or a sound as such, and any other file as a resource with its bytes."),
                Self::read_media,
            ),
            self.tool(
                define("read_multiple_files", "Read several files")
                    .description("Returns the texts of several files, each under its path. One that cannot be read does not keep the others from being read."),
                Self::read_many,
            ),
            self.tool(
                define("list_directory", "List a directory")
                    .description("Lists the entries of a directory, each with the prefix [FILE] or [DIR]."),
                Self::list,
            ),
            self.tool(
                define("list_directory_with_sizes", "List a directory with sizes")
                    .description("Lists the entries of a directory like list_directory, with the sizes of files, their number and their total size."),
                Self::list_with_sizes,
            ),
            self.tool(
                define("directory_tree", "Directory tree")
                    .description("Returns a directory with all that is below it as JSON: each entry has a name and a type (file or directory), and directories have children."),
                Self::tree,
            ),
            self.tool(
                define("search_files", "Search files")
                    .description("Finds files and directories below a directory whose path is like a pattern, and returns their full paths."),
                Self::search,
            ),
            self.tool(
                define("get_file_info", "File information")
                    .description("Returns size, times, type and permissions of a file or directory."),
                Self::info,
            ),
            self.tool(
                define("list_allowed_directories", "Directories that may be used")
                    .description("Lists the directories in which the other tools work. Everything below them is accessible, and nothing else."),
                Self::directories,
            ),
        ]
    }

    fn writing(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        let define = |name: &str, title: &str| Definition::new(name).title(title).read_only(false);
        vec![
            self.tool(
                define("write_file", "Write a file")
                    .description("Creates a file with a text. An existing file is replaced.")
                .destructive(true)
                .idempotent(true),
                Self::write,
            ),
            self.tool(
                define("edit_file", "Edit a file")
                    .description("Replaces texts in a file, and returns the changes as a diff. With dryRun nothing is changed.")
                .destructive(true)
                .idempotent(false),
                Self::edit,
            ),
            self.tool(
                define("create_directory", "Make a directory")
                    .description("Makes a directory, and those above it that are missing. If it exists already, that is good.")
                .destructive(false)
                .idempotent(true),
                Self::make_directory,
            ),
            self.tool(
                define("move_file", "Move or rename")
                    .description("Moves or renames a file or a directory. The new path must not exist.")
                .destructive(true)
                .idempotent(false),
                Self::rename,
            ),
        ]
    }

    fn read_text(&self, wanted: &ReadText, stop: &Stop) -> Result<ContentText, ToolError> {
        let path = &wanted.path;
        // Zero lines mean all of them, as for an omitted argument.
        let (head, tail) = (wanted.head.unwrap_or(0), wanted.tail.unwrap_or(0));
        if head != 0 && tail != 0 {
            return Err(ToolError::new("head and tail exclude each other"));
        }
        let max = self.limits.bytes;
        let (_, mut file, _) = read::open(&self.roots, path)?;
        let bytes = match (head, tail) {
            (0, 0) => read::all(&mut file, path, max, stop)?,
            (lines, 0) => read::head(&mut file, path, lines, max, stop)?,
            (_, lines) => read::tail(&mut file, path, lines, max, stop)?,
        };
        Ok(ContentText(text(bytes)))
    }

    fn read_media(&self, wanted: &AtPath, stop: &Stop) -> Result<Output, ToolError> {
        let path = &wanted.path;
        let (spot, mut file, _) = read::open(&self.roots, path)?;
        let bytes = read::all(&mut file, path, self.limits.bytes, stop)?;
        let kind = read::media_type(&spot.name().to_string_lossy());
        Ok(Output::blocks([match kind.split_once('/') {
            Some(("image", _)) => Content::image(bytes, kind),
            Some(("audio", _)) => Content::audio(bytes, kind),
            _ => {
                let uri = Url::from_file_path(spot.real_path());
                let uri = uri.map_or_else(|()| "file:".to_owned(), String::from);
                Content::embedded_blob(uri, kind, bytes)
            }
        }]))
    }

    fn read_many(&self, wanted: &ReadMany, stop: &Stop) -> Result<ContentText, ToolError> {
        let mut room = self.limits.bytes;
        let mut texts = Vec::with_capacity(wanted.paths.len());
        for path in &wanted.paths {
            stop.check()?;
            let read = read::open(&self.roots, path)
                .and_then(|(_, mut file, _)| read::all(&mut file, path, room, stop));
            texts.push(match read {
                Ok(bytes) => {
                    room -= bytes.len();
                    format!("{path}:\n{}\n", text(bytes))
                }
                Err(error) => format!("{path}: Error - {}", error.message()),
            });
        }
        Ok(ContentText(texts.join("\n---\n")))
    }

    fn list(&self, wanted: &AtPath, stop: &Stop) -> Result<ContentText, ToolError> {
        list::listing(&self.roots, &wanted.path, &self.limits, stop).map(ContentText)
    }

    fn list_with_sizes(
        &self,
        wanted: &ListWithSizes,
        stop: &Stop,
    ) -> Result<ContentText, ToolError> {
        let by_size = matches!(wanted.sort_by, SortBy::Size);
        list::listing_with_sizes(&self.roots, &wanted.path, by_size, &self.limits, stop)
            .map(ContentText)
    }

    fn tree(&self, wanted: &TreeOf, stop: &Stop) -> Result<ContentText, ToolError> {
        let leave_out = Patterns::leaving_out(&wanted.exclude_patterns)?;
        list::tree(&self.roots, &wanted.path, &leave_out, &self.limits, stop).map(ContentText)
    }

    fn search(&self, wanted: &Search, stop: &Stop) -> Result<ContentText, ToolError> {
        let pattern = Patterns::new([wanted.pattern.as_str()])?;
        let leave_out = Patterns::new(wanted.exclude_patterns.iter().map(String::as_str))?;
        let limits = &self.limits;
        list::search(
            &self.roots,
            &wanted.path,
            &pattern,
            &leave_out,
            limits,
            stop,
        )
        .map(ContentText)
    }

    fn info(&self, wanted: &AtPath, _: &Stop) -> Result<ContentText, ToolError> {
        let found = info::of(&self.roots, &wanted.path);
        found
            .map(ContentText)
            .map_err(|refusal| refusal.at(&wanted.path))
    }

    fn directories(&self, _: &Nothing, _: &Stop) -> Result<ContentText, ToolError> {
        let mut lines = vec!["Allowed directories:".to_owned()];
        for root in self.roots.iter() {
            lines.push(root.shown.display().to_string());
            if root.real != root.shown {
                lines.push(root.real.display().to_string());
            }
        }
        Ok(ContentText(lines.join("\n")))
    }

    fn write(&self, wanted: &Write, stop: &Stop) -> Result<ContentText, ToolError> {
        let path = &wanted.path;
        self.check_size(path, wanted.content.len(), stop)?;
        let spot = write::place(&self.roots, path).map_err(|refusal| refusal.at(path))?;
        write::replace(&spot, wanted.content.as_bytes(), None, stop)
            .map_err(|error| error.at(path))?;
        Ok(ContentText(format!("Successfully wrote to {path}")))
    }

    fn edit(&self, wanted: &EditFile, stop: &Stop) -> Result<ContentText, ToolError> {
        // Edits of one file by concurrent calls take turns: what another one has changed is read again.
        for _ in 0..EDIT_ATTEMPTS {
            if let Some(diff) = self.try_edit(wanted, stop)? {
                return Ok(ContentText(diff));
            }
            stop.check()?;
        }
        Err(PathRejection::Changed.at(&wanted.path))
    }

    /// Returns `None` if the file was changed meanwhile.
    fn try_edit(&self, wanted: &EditFile, stop: &Stop) -> Result<Option<String>, ToolError> {
        let path = &wanted.path;
        let (spot, mut file, before) = read::open(&self.roots, path)?;
        let bytes = read::all(&mut file, path, self.limits.bytes, stop)?;
        let content = String::from_utf8(bytes).map_err(|_| {
            let path = shortened(path);
            ToolError::new(format!("{path} is not UTF-8 text, so it cannot be edited"))
        })?;
        let mut lines = Lines::read(&content);
        let old = lines.text().to_owned();
        edit::apply(&mut lines, &wanted.edits, self.limits.bytes, stop)?;
        let diff = edit::diff(&spot.real_path().to_string_lossy(), &old, lines.text());
        if wanted.dry_run || old == lines.text() {
            return Ok(Some(diff));
        }
        let new = lines.written();
        self.check_size(path, new.len(), stop)?;
        let place = write::place(&self.roots, path).map_err(|refusal| refusal.at(path))?;
        match write::replace(&place, new.as_bytes(), Some(&before), stop) {
            Ok(()) => Ok(Some(diff)),
            Err(Abort::Refused(PathRejection::Changed)) => Ok(None),
            Err(error) => Err(error.at(path)),
        }
    }

    fn make_directory(&self, wanted: &AtPath, _: &Stop) -> Result<ContentText, ToolError> {
        let path = &wanted.path;
        write::make_directory(&self.roots, path).map_err(|refusal| refusal.at(path))?;
        Ok(ContentText(format!(
            "Successfully created directory {path}"
        )))
    }

    fn rename(&self, wanted: &Move, _: &Stop) -> Result<ContentText, ToolError> {
        let Move {
            source,
            destination,
        } = wanted;
        write::rename(&self.roots, source, destination).map_err(|error| match error {
            MoveError::Source(refusal) => refusal.at(source),
            MoveError::Destination(refusal) => refusal.at(destination),
        })?;
        Ok(ContentText(format!(
            "Successfully moved {source} to {destination}"
        )))
    }

    fn check_size(&self, path: &str, bytes: usize, stop: &Stop) -> Result<(), ToolError> {
        let max = self.limits.bytes;
        if max < bytes {
            stop.hit("bytes");
            let path = shortened(path);
            return Err(ToolError::new(format!(
                "{path} would have {bytes} bytes, and {max} is the most (builtin.filesystem.limits.bytes)"
            )));
        }
        Ok(())
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|invalid| String::from_utf8_lossy(invalid.as_bytes()).into_owned())
}
