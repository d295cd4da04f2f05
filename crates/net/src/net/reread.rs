//! Values that are read from files, and again when the files have changed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::lock::Mutex;
use crate::environment::FileStamp;

/// A value from files. Changes of the files are looked for at an interval.
pub(super) struct Reread<T, const FILES: usize> {
    files: [PathBuf; FILES],
    interval: Duration,
    known: Mutex<Option<Known<T, FILES>>>,
}

type Stamps<const FILES: usize> = [Option<FileStamp>; FILES];

struct Known<T, const FILES: usize> {
    value: Arc<T>,
    stamps: Stamps<FILES>,
    looked: Instant,
    /// State of the files in which they could not be used last.
    unusable: Option<Stamps<FILES>>,
}

impl<T, const FILES: usize> Reread<T, FILES> {
    pub(super) fn new(files: [PathBuf; FILES], interval: Duration) -> Self {
        Self {
            files,
            interval,
            known: Mutex::default(),
        }
    }

    /// Returns the value. If the files have changed and cannot be used, it is the previous one, and they are read again at
    /// each interval. `changed` is called once for each change.
    pub(super) fn get<E>(
        &self,
        read: impl FnOnce(&[PathBuf; FILES]) -> Result<T, E>,
        changed: impl FnOnce(&[PathBuf; FILES], Result<(), E>),
    ) -> Result<Arc<T>, E> {
        let now = Instant::now();
        let mut guard = self.known.lock();
        if let Some(known) = &*guard
            && now < known.looked + self.interval
        {
            return Ok(Arc::clone(&known.value));
        }
        // Before the files are read, so that a change meanwhile is noticed.
        let stamps = self.files.each_ref().map(|file| FileStamp::of(file));
        let Some(known) = &mut *guard else {
            let value = Arc::new(read(&self.files)?);
            *guard = Some(Known {
                value: Arc::clone(&value),
                stamps,
                looked: now,
                unusable: None,
            });
            return Ok(value);
        };
        known.looked = now;
        if known.stamps != stamps {
            match read(&self.files) {
                Ok(value) => {
                    known.value = Arc::new(value);
                    known.stamps = stamps;
                    changed(&self.files, Ok(()));
                }
                Err(error) => {
                    if known.unusable.replace(stamps) != Some(stamps) {
                        changed(&self.files, Err(error));
                    }
                }
            }
        }
        Ok(Arc::clone(&known.value))
    }
}

impl<T, const FILES: usize> fmt::Debug for Reread<T, FILES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reread").field(&self.files).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_are_read_again_when_they_have_changed_or_could_not_be_read() {
        const INTERVAL: Duration = Duration::from_secs(5);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a");
        let value = Reread::new([file.clone()], INTERVAL);
        let mut changes = Vec::new();
        let mut get = |found| {
            let value = value.get(|_| found, |_, changed| changes.push(changed));
            value.map(|value: Arc<u32>| *value)
        };
        let write = |text: &str| std::fs::write(&file, text).expect("written");
        assert_eq!(get(Err("missing")), Err("missing"));
        write("1");
        assert_eq!(get(Ok(1)), Ok(1));
        write("22");
        assert_eq!(get(Ok(2)), Ok(1), "looked at too early");
        tokio::time::advance(INTERVAL).await;
        assert_eq!(get(Ok(2)), Ok(2));
        tokio::time::advance(INTERVAL).await;
        assert_eq!(get(Ok(3)), Ok(2), "not changed");
        write("333");
        for _ in 0..2 {
            tokio::time::advance(INTERVAL).await;
            assert_eq!(get(Err("too many open files")), Ok(2));
        }
        tokio::time::advance(INTERVAL).await;
        assert_eq!(get(Ok(3)), Ok(3), "it can be read now");
        assert_eq!(changes, [Ok(()), Err("too many open files"), Ok(())]);
    }
}
