//! Settings of a check, which leaves no files behind. It may run as another user than the server, who could not write to them.

use std::io;
use std::path::Path;

#[cfg(feature = "sources")]
use super::configured::unusable;
#[cfg(any(feature = "cli", feature = "sources"))]
use super::error::AppError;
use crate::audit::{AuditConfig, AuditError};
#[cfg(feature = "cli")]
use crate::config::Config;
#[cfg(feature = "sources")]
use crate::source::{ArtifactConfig, ArtifactError, S3Config};

/// Removes the files and folders that do not exist from the settings, after checking that they could be created.
///
/// # Errors
///
/// The audit log or the folder of artifacts cannot be created.
#[cfg(feature = "cli")]
pub(super) fn without_new_files(config: &mut Config) -> Result<(), AppError> {
    without_new_file(&mut config.audit)?;
    config.upstreams_folder.take_if(|path| !path.exists());
    #[cfg(feature = "sources")]
    without_new_folder(&mut config.artifacts)?;
    Ok(())
}

/// Removes the file of the audit log if it does not exist, after checking that it could be created.
pub(super) fn without_new_file(audit: &mut AuditConfig) -> Result<(), AuditError> {
    if let Some(path) = audit.file.take_if(|path| !path.exists()) {
        if let Err(source) = check_folder_of(&path) {
            return Err(AuditError::Open { path, source });
        }
        note_creation("audit.file", &path);
        // Nothing is written, but records may be required.
        audit.stderr = true;
    }
    Ok(())
}

/// Checks that a file can be created.
pub(super) fn check_folder_of(file: &Path) -> io::Result<()> {
    let folder = file.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    check_creation(folder.unwrap_or(Path::new(".")))
}

/// Removes the folder of artifacts if it does not exist, after checking that it could be created. Beside a bucket it is an error,
/// and stays.
#[cfg(feature = "sources")]
pub(super) fn without_new_folder(artifacts: &mut ArtifactConfig) -> Result<(), AppError> {
    let has_bucket = artifacts.s3 != S3Config::default();
    let folder = &mut artifacts.folder;
    if let Some(path) = folder.take_if(|path| !has_bucket && !path.exists()) {
        let parents = path.ancestors().find(|parent| parent.exists());
        let parent = parents.unwrap_or(Path::new("."));
        check_creation(parent).map_err(|error| {
            unusable(ArtifactError {
                setting: "folder".to_owned(),
                problem: error.to_string(),
            })
        })?;
        note_creation("artifacts.folder", &path);
    }
    Ok(())
}

/// Checks that something can be created in a folder.
fn check_creation(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".longshore-check-{}", std::process::id()));
    match std::fs::create_dir(&probe) {
        // Of a process that was killed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    std::fs::remove_dir(&probe)
}

/// Logs what the check leaves to the start. It may run as a user with more rights than the server has.
fn note_creation(setting: &str, path: &Path) {
    tracing::info!(setting, path = %path.display(), "it does not exist yet; the server creates it at its start");
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::*;

    #[test]
    fn a_check_creates_nothing_and_finds_what_cannot_be_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("there.log"), "").expect("written");
        let mut config = Config::default();
        config.audit.file = Some(path("audit.log"));
        config.audit.required = true;
        config.upstreams_folder = Some(path("cache"));
        without_new_files(&mut config).expect("they can be created");
        assert_eq!(
            (config.audit.file.take(), config.upstreams_folder),
            (None, None)
        );
        assert!(!config.audit.lacks_a_place());
        let left = std::fs::read_dir(folder.path()).expect("a folder");
        assert_eq!(left.count(), 1);

        config = Config::default();
        config.audit.file = Some(path("there.log"));
        without_new_files(&mut config).expect("it exists");
        assert_eq!(config.audit.file, Some(path("there.log")));
        config.audit.file = Some(path("missing/audit.log"));
        let error = without_new_files(&mut config).expect_err("there is no folder");
        assert!(error.to_string().contains("missing/audit.log"), "{error}");
    }

    #[cfg(feature = "sources")]
    #[test]
    fn a_new_folder_of_artifacts_is_checked_at_its_parent() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.artifacts.folder = Some(folder.path().join("a/b"));
        without_new_files(&mut config).expect("it can be created");
        assert_eq!(config.artifacts.folder, None);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        config.artifacts.folder = Some(file.join("b"));
        assert!(without_new_files(&mut config).is_err());
    }
}
