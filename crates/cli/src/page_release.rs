//! Releases pages of the program file after start-up and after the first requests.
//!
//! What starts a server is a large part of the program, and is not needed again, as is what only its first requests run. The
//! system maps a file's pages in groups, so that most of the program counts as resident for as long as nobody else needs the
//! memory. To give the pages back costs no more than to map those again that are needed, which lie in the system's page cache
//! all the same.

use std::io;
use std::ops::Range;
use std::time::Duration;

use tokio::time::sleep;

use crate::net::child::give_back;

/// Delay between the start and the first release, and between two looks at what was mapped since. It doubles with each release,
/// since a program that serves now and again would map its pages each time.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Delay after which pages stay where they are.
const LAST_DELAY: Duration = Duration::from_secs(60);

/// Growth that tells requests from what an idle server runs, in pages. The latter maps some 230 in the image's program, a first
/// call some 640 more, and a probe as many.
const REQUESTS_PAGES: u64 = 512;

/// Releases the pages that only the start needed, and then those of the first requests, each time when no more are mapped.
pub(super) async fn release_after_start() {
    // /proc may be unavailable. Nothing depends on it.
    if let Err(error) = release_with_doubling_delay().await {
        tracing::debug!(%error, "the program's pages stay where they are");
    }
}

async fn release_with_doubling_delay() -> io::Result<()> {
    let mut delay = FIRST_DELAY;
    sleep(delay).await;
    while delay <= LAST_DELAY {
        let bytes = give_back_program()?;
        tracing::debug!(bytes, "pages of the program were given back");
        let mut growth = Growth::since_release(resident_file_pages()?);
        loop {
            sleep(delay).await;
            if growth.is_over(resident_file_pages()?) {
                break;
            }
        }
        delay *= 2;
    }
    Ok(())
}

/// Growth of the resident part of files: requests map what they need, and it stays as it is after them.
struct Growth {
    released: u64,
    at_last_look: u64,
}

impl Growth {
    fn since_release(pages: u64) -> Self {
        Self {
            released: pages,
            at_last_look: pages,
        }
    }

    /// Takes the present number of pages. Returns true if requests were served, and nothing was mapped since the last look.
    fn is_over(&mut self, pages: u64) -> bool {
        let is_settled = pages <= self.at_last_look;
        self.at_last_look = pages;
        is_settled && self.released + REQUESTS_PAGES <= pages
    }
}

/// Number of resident pages that belong to files, of this process.
fn resident_file_pages() -> io::Result<u64> {
    let counts = std::fs::read_to_string("/proc/self/statm")?;
    shared_in(&counts).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The third field of `statm` (proc_pid_statm(5)).
fn shared_in(counts: &str) -> Option<u64> {
    counts.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Releases pages that are unmodified copies of the program file. Returns the size of the released address ranges.
///
/// # Errors
///
/// The memory map cannot be read, or the pages cannot be released.
fn give_back_program() -> io::Result<usize> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let mappings = std::fs::read_to_string("/proc/self/smaps")?;
    let program = program.to_string_lossy();
    let mut bytes = 0;
    for mapping in copies_of(&mappings, &program) {
        bytes += mapping.len();
        give_back(mapping)?;
    }
    Ok(bytes)
}

/// Returns read-only mappings of a file whose pages are all unmodified: neither data nor relocated addresses.
fn copies_of(mappings: &str, file: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in mappings.lines() {
        if let Some((range, name)) = mapping(line) {
            candidate = (name == file).then_some(range);
        } else if let Some(changed) = line.strip_prefix("Anonymous:") {
            let is_copy = changed.split_ascii_whitespace().eq(["0", "kB"]);
            found.extend(candidate.take().filter(|_| is_copy));
        }
    }
    found
}

/// Parses the first line of a mapping: addresses and file. Returns `None` for writable and shared mappings.
fn mapping(line: &str) -> Option<(Range<usize>, &str)> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let (may, rest) = rest.split_once(' ')?;
    // The fields between are offset, device and inode.
    let name = rest.splitn(4, ' ').nth(3).unwrap_or_default().trim_start();
    let is_read_only = matches!(may, "r--p" | "r-xp");
    Some((range, if is_read_only { name } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPINGS: &str = "\
1000-2000 r--p 00000000 08:01 77   /opt/my server/longshore
Size:                  4 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
2000-4000 r-xp 00001000 08:01 77   /opt/my server/longshore
Anonymous:             0 kB
4000-5000 r-xp 00003000 08:01 77   /opt/my server/longshore
Anonymous:             4 kB
5000-6000 r--p 00004000 08:01 77   /opt/my server/longshore
Anonymous:             4 kB
VmFlags: rd mr mw me ac
6000-7000 rw-p 00005000 08:01 77   /opt/my server/longshore
Anonymous:             0 kB
7000-8000 r-xs 00000000 08:01 77   /opt/my server/longshore
Anonymous:             0 kB
8000-9000 r-xp 00000000 08:01 78   /opt/my server/longshore.old
Anonymous:             0 kB
9000-a000 r--p 00000000 00:00 0
Anonymous:             0 kB
b000-c000 r-xp 00000000 08:01 77   /opt/my server/longshore
Size:                  4 kB
";

    #[test]
    fn only_what_is_nothing_but_a_copy_of_the_program_is_given_back() {
        let found = copies_of(MAPPINGS, "/opt/my server/longshore");
        assert_eq!(found, [0x1000..0x2000, 0x2000..0x4000]);
        assert!(copies_of(MAPPINGS, "/opt/my").is_empty());
        assert!(copies_of("nonsense\n-\n1-2\n", "").is_empty());
    }

    #[test]
    fn requests_are_over_when_what_they_mapped_stays_as_it_is() {
        let mut growth = Growth::since_release(400);
        // An idle server.
        assert!(!growth.is_over(630));
        assert!(!growth.is_over(630));
        assert!(!growth.is_over(1270), "a request has just come");
        assert!(!growth.is_over(1280));
        assert!(growth.is_over(1280));
    }

    #[test]
    fn resident_pages_of_files_are_read_as_the_system_writes_them() {
        assert_eq!(shared_in("7043 1544 1019 5922 0 2123 0\n"), Some(1019));
        assert_eq!(shared_in(""), None);
        assert!(resident_file_pages().expect("/proc is there") > 0);
    }

    #[test]
    fn a_program_goes_on_without_the_pages_that_it_gave_back() {
        let bytes = give_back_program().expect("given back");
        assert!(bytes > 0 && bytes.is_multiple_of(4096), "{bytes}");
        // Its constants and its code are what they were.
        let numbers: Vec<u32> = (0..1000).collect();
        assert_eq!(numbers.iter().sum::<u32>(), 499_500);
        assert_eq!(format!("{MAPPINGS:.9}"), "1000-2000");
    }
}
