//! Nesting of folders in the optional parts of an index.
//!
//! The library reads these parts by recursion. One with many nested folders would exhaust the stack, which ends the
//! process.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use memchr::memmem;

use super::super::links;
use super::super::repository::{OpenRepository, READ_BYTES_MAX, ResultContext};
use super::super::tree::DEPTH_MAX;
use crate::catalog::ToolError;

/// Length of the metadata of a file in an index, in bytes.
const STAT_LEN: usize = 36;

/// Reads a folder. Returns the number of folders in it, and the rest.
type Folder = fn(&[u8], usize) -> Option<(u64, &[u8])>;

impl OpenRepository<'_> {
    /// Checks the index, and the files that parts of a split index are in, before the library reads them.
    pub(in super::super) fn check_nesting(&self) -> Result<(), ToolError> {
        let index = self.repository.index_path();
        let shared = links::shared_indexes(self.repository.git_dir());
        for path in shared.into_iter().chain([index.clone()]) {
            let bytes = match read(&path) {
                // It may belong to no index. The library reports it if it needs it.
                Err(error) if path != index && error.kind() != io::ErrorKind::FileTooLarge => None,
                read => read.doing("read the index")?,
            };
            let Some(bytes) = bytes else {
                continue;
            };
            let hash_len = self.repository.object_hash().len_in_bytes();
            // The parts follow the entries, whose end is not known here. So every text that could be a part is examined.
            let trees = memmem::find_iter(&bytes, b"TREE");
            for at in trees.chain(memmem::find_iter(&bytes, b"UNTR")) {
                self.stop.check()?;
                if is_too_deep(&bytes[at..], hash_len) {
                    return Err(ToolError::new(
                        "folders lie too deep in one another in the index; remove it, and run git reset",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns the content of a file, if it exists.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let limit = READ_BYTES_MAX as u64;
    file.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() <= READ_BYTES_MAX {
        true => Ok(Some(bytes)),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Returns true if a part has too deeply nested folders. `part` begins with the name of the part, and goes on to the end
/// of the file.
fn is_too_deep(part: &[u8], hash_len: usize) -> bool {
    let is_tree = part.starts_with(b"TREE");
    let folder: Folder = if is_tree {
        tree_folder
    } else {
        untracked_folder
    };
    let folders = || {
        let (size, data) = part.get(4..)?.split_first_chunk()?;
        let data = data.get(..usize::try_from(u32::from_be_bytes(*size)).ok()?)?;
        if is_tree {
            Some(data)
        } else {
            untracked_folders(data, hash_len)
        }
    };
    let Some(mut data) = folders() else {
        return false;
    };
    // Number of folders that are left to read in each of the open ones.
    let mut left = vec![1];
    while let Some(count) = left.last_mut() {
        if *count == 0 {
            left.pop();
            continue;
        }
        *count -= 1;
        // The library stops here too.
        let Some((inside, rest)) = folder(data, hash_len) else {
            return false;
        };
        data = rest;
        if 0 < inside {
            if left.len() == DEPTH_MAX {
                return true;
            }
            left.push(inside);
        }
    }
    false
}

/// Reads a folder of the part `TREE`: its name, the numbers of its files and its folders, and its ID if it is known.
fn tree_folder(data: &[u8], hash_len: usize) -> Option<(u64, &[u8])> {
    let (_, data) = until(data, 0)?;
    let (files, data) = until(data, b' ')?;
    let (folders, data) = until(data, b'\n')?;
    let folders = std::str::from_utf8(folders).ok()?.parse().ok()?;
    let files: i32 = std::str::from_utf8(files).ok()?.parse().ok()?;
    let id_len = if files < 0 { 0 } else { hash_len };
    Some((folders, data.get(id_len..)?))
}

/// Returns the folders of the part `UNTR`, behind its settings.
fn untracked_folders(data: &[u8], hash_len: usize) -> Option<&[u8]> {
    let (length, data) = number(data)?;
    let data = data.get(usize::try_from(length).ok()?..)?;
    let data = data.get(2 * STAT_LEN + 4 + 2 * hash_len..)?;
    let (_, data) = until(data, 0)?;
    Some(number(data)?.1)
}

/// Reads a folder of the part `UNTR`: the numbers of its files and its folders, its name, and the names of the files.
fn untracked_folder(data: &[u8], _: usize) -> Option<(u64, &[u8])> {
    let (files, data) = number(data)?;
    let (folders, data) = number(data)?;
    let (_, mut data) = until(data, 0)?;
    for _ in 0..files {
        data = until(data, 0)?.1;
    }
    Some((folders, data))
}

/// Splits off the bytes before an end, which is dropped.
fn until(data: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(end, data)?;
    Some((&data[..at], &data[at + 1..]))
}

/// Reads a number of variable length, seven bits in each byte.
fn number(data: &[u8]) -> Option<(u64, &[u8])> {
    let (mut byte, mut rest) = data.split_first()?;
    let mut value = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        (byte, rest) = rest.split_first()?;
        // The library loses the upper bits of long numbers too.
        value = (value.checked_add(1)? << 7).checked_add(u64::from(byte & 0x7f))?;
    }
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, data: &[u8]) -> Vec<u8> {
        let size = u32::try_from(data.len()).expect("short");
        [name.as_bytes(), &size.to_be_bytes(), data, b"rest"].concat()
    }

    #[test]
    fn folders_in_a_part_are_nested_only_so_far() {
        let settings = [
            &[1, b'x'][..],
            &[0; 2 * STAT_LEN + 4 + 40],
            b".gitignore\0\x7f",
        ]
        .concat();
        for (depth, is_deep) in [
            (1, false),
            (DEPTH_MAX - 1, false),
            (DEPTH_MAX, true),
            (100_000, true),
        ] {
            let tree = b"a\0-1 1\n".repeat(depth);
            assert_eq!(is_too_deep(&part("TREE", &tree), 20), is_deep, "{depth}");
            let hashed = [&b"a\x005 1\n"[..], &[7; 20]].concat().repeat(depth);
            assert_eq!(is_too_deep(&part("TREE", &hashed), 20), is_deep, "{depth}");
            let folders = b"\x01\x01a\0file\0".repeat(depth);
            let untracked = [&settings[..], &folders].concat();
            assert_eq!(
                is_too_deep(&part("UNTR", &untracked), 20),
                is_deep,
                "{depth}"
            );
        }
        // Many folders in one are as good as any other number.
        let flat = [&b"\0-1 100000\n"[..], &b"a\0-1 0\n".repeat(100_000)].concat();
        assert!(!is_too_deep(&part("TREE", &flat), 20));
        // A name of a file.
        for other in [
            &b"TREE"[..],
            b"TREE.md\0",
            b"UNTRACKED\0\0\0\0\0",
            b"TREE\0\0\0\x02a\0",
        ] {
            assert!(!is_too_deep(other, 20));
        }
    }

    #[test]
    fn numbers_are_read_as_git_writes_them() {
        for (bytes, value) in [
            (&[0][..], 0),
            (&[0x7f][..], 127),
            (&[0x80, 0][..], 128),
            (&[0xff, 0x7f][..], 16511),
        ] {
            assert_eq!(number(bytes), Some((value, &[][..])), "{bytes:?}");
        }
        assert_eq!(number(&[0x80]), None);
        assert_eq!(number(&[0xff; 20]), None);
    }
}
