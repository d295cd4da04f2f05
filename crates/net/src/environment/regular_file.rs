//! Reads of files that settings name.

use std::fs::{File, metadata};
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

/// Reads a regular file of at most `max` bytes. Links are followed.
///
/// # Errors
///
/// A larger file, and anything else than a file: opening a named pipe would block.
pub fn read_file(path: &Path, max: u64) -> Result<Vec<u8>> {
    if !metadata(path)?.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= max {
        true => Ok(bytes),
        false => {
            let problem = format!("it is larger than {max} bytes");
            Err(Error::new(ErrorKind::FileTooLarge, problem))
        }
    }
}

/// Reads a regular file of at most `max` bytes as text, without the byte order mark that some editors write.
///
/// # Errors
///
/// As for [`read_file`], and text that is not UTF-8.
pub fn read_text_file(path: &Path, max: u64) -> Result<String> {
    const ENCODING: &str = "it is not text in UTF-8; save it in this encoding";
    let text = String::from_utf8(read_file(path, max)?);
    let mut text = text.map_err(|_| Error::new(ErrorKind::InvalidData, ENCODING))?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_a_maximum_size_and_text_has_no_byte_order_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let read = |max| read_text_file(&path, max).map_err(|error| error.to_string());
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).expect("written");
        write(b"\xef\xbb\xbfab");
        assert_eq!(read(5).as_deref(), Ok("ab"));
        let problem = "it is larger than 4 bytes".to_owned();
        assert_eq!(read(4), Err(problem));
        write(b"\xff\xfe");
        assert!(read(5).is_err_and(|problem| problem.contains("UTF-8")));
        assert!(read_file(folder.path(), 5).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_waited_for_and_links_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let made = std::process::Command::new("mkfifo")
            .arg(path("pipe"))
            .status();
        assert!(made.expect("mkfifo runs").success());
        let problem = read_file(&path("pipe"), 5).expect_err("it has no writer");
        assert_eq!(problem.to_string(), "it is not a regular file");
        // As Kubernetes mounts secrets.
        std::fs::create_dir(path("..1")).expect("created");
        std::fs::write(path("..1/key"), "key").expect("written");
        for (to, link) in [("..1", "..data"), ("..data/key", "key")] {
            std::os::unix::fs::symlink(to, path(link)).expect("linked");
        }
        assert_eq!(
            read_file(&path("key"), 5).ok().as_deref(),
            Some(&b"key"[..])
        );
    }
}
