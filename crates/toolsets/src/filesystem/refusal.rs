//! Errors of the filesystem tools, worded for the model.
//!
//! Messages reveal nothing about anything outside of the directories: neither the target of a link, nor whether a
//! file exists.

use rustix::io::Errno;

use crate::catalog::ToolError;

/// Reason why a path cannot be used as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathRejection {
    #[error("is outside of the directories that may be used; list_allowed_directories names them")]
    Outside,
    #[error("leads outside of the directories that may be used, by a symbolic link")]
    LinkOutside,
    #[error("leads through more than 40 symbolic links")]
    TooManyLinks,
    #[error("has a NUL character")]
    Nul,
    #[error("is longer than 4096 bytes")]
    TooLong,
    #[error("begins with ~, which is not supported; write the whole path")]
    Home,
    #[error("is a path of Windows, or a URL; write it as list_allowed_directories does")]
    Foreign,
    #[error("does not exist")]
    NotFound,
    #[error("is a symbolic link to a path that does not exist; nothing is created through it")]
    Dangling,
    #[error("has a component that is not a directory")]
    NotADirectory,
    #[error("is not a directory")]
    NoDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("is not a regular file")]
    NotRegular,
    #[error("exists already")]
    Exists,
    #[error(
        "is one of the directories that may be used, or has one below it; it stays where it is"
    )]
    IsRoot,
    #[error("cannot be moved into itself")]
    IntoItself,
    #[error("is on another file system; write the file there instead")]
    OtherFilesystem,
    #[error("is marked as read-only")]
    ReadOnly,
    #[error("may not be written by the user that the server runs as")]
    NotWritable,
    #[error("belongs to a user or a group that the server cannot preserve, so it is not replaced")]
    OtherOwner,
    #[error("is on a kernel file system such as /proc, which is not supported")]
    Kernel,
    #[error("changed during the operation; try again")]
    Changed,
    #[error("cannot be used: {}", words(*.0))]
    System(Errno),
}

impl PathRejection {
    /// Converts a system error about something inside the directories.
    pub(super) fn of(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::EXIST | Errno::NOTEMPTY => Self::Exists,
            Errno::XDEV => Self::OtherFilesystem,
            // The name has been replaced by a link just now.
            Errno::LOOP => Self::Changed,
            errno => Self::System(errno),
        }
    }

    /// Adds the requested path.
    pub(super) fn at(self, path: &str) -> ToolError {
        ToolError::new(format!("{} {self}", shortened(path)))
    }
}

impl From<Errno> for PathRejection {
    fn from(errno: Errno) -> Self {
        Self::of(errno)
    }
}

impl From<std::io::Error> for PathRejection {
    fn from(error: std::io::Error) -> Self {
        Errno::from_io_error(&error).map_or(Self::System(Errno::IO), Self::of)
    }
}

/// Reason why an operation did not end.
pub(super) enum Abort {
    Refused(PathRejection),
    /// The call is over, or its time is up.
    Stopped(ToolError),
}

impl Abort {
    /// Adds the requested path.
    pub(super) fn at(self, path: &str) -> ToolError {
        match self {
            Self::Refused(refusal) => refusal.at(path),
            Self::Stopped(error) => error,
        }
    }
}

impl From<PathRejection> for Abort {
    fn from(refusal: PathRejection) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ToolError> for Abort {
    fn from(error: ToolError) -> Self {
        Self::Stopped(error)
    }
}

fn words(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => "the server has no permission",
        Errno::NAMETOOLONG => "a name in it is too long",
        Errno::NOSPC | Errno::DQUOT => "the disk is full",
        Errno::ROFS => "the file system is read-only",
        Errno::MFILE | Errno::NFILE => "too many files are open; try again later",
        Errno::BUSY | Errno::TXTBSY => "something else is using it",
        Errno::INVAL | Errno::ILSEQ => "the file system does not allow such a name",
        Errno::MLINK => "it has too many entries",
        _ => "the system has trouble with it",
    }
}

/// Formats a path for a message: on one line, and shortened.
pub(super) fn shortened(path: &str) -> String {
    const SHOWN: usize = 200;
    let mut shown = visible(&path.chars().take(SHOWN).collect::<String>());
    if path.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    format!("{shown:?}").replace("\\\\", "\\")
}

/// Escapes characters that would break the line or move the cursor.
pub(super) fn visible(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    let mut visible = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            visible.extend(c.escape_default());
        } else {
            visible.push(c);
        }
    }
    visible
}
