//! The processor time of another process, to the nanosecond.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

/// What one thread has used since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// The thread's number.
    pub(crate) id: u32,
    /// Its name, which the kernel cuts to fifteen bytes.
    pub(crate) name: String,
    /// Its time on a processor, user and kernel together.
    pub(crate) used: Duration,
}

/// The threads of process `pid`, by number.
pub(crate) fn thread_times(pid: u32) -> io::Result<Vec<ThreadTime>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let folder = entry?.path();
        let Some(id) = folder
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok())
        else {
            continue;
        };
        // A thread may end between the listing and the reading.
        let (Ok(statistics), Ok(name)) = (
            fs::read_to_string(folder.join("schedstat")),
            fs::read_to_string(folder.join("comm")),
        ) else {
            continue;
        };
        let used = used_of(&statistics).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("not a schedstat line: {statistics:?}"),
            )
        })?;
        threads.push(ThreadTime {
            id,
            name: name.trim_end().to_owned(),
            used,
        });
    }
    threads.sort_by_key(|thread| thread.id);
    Ok(threads)
}

/// How much processor time a process uses from now on.
#[derive(Debug)]
pub(crate) struct ProcessorClock {
    pid: u32,
    at_start: HashMap<u32, Duration>,
}

impl ProcessorClock {
    /// Starts at zero. Time that a thread had used before does not count.
    pub(crate) fn start(pid: u32) -> io::Result<Self> {
        let at_start = thread_times(pid)?
            .into_iter()
            .map(|thread| (thread.id, thread.used))
            .collect();
        Ok(Self { pid, at_start })
    }

    /// What the process's threads have used since the start. A thread that ended meanwhile is left out.
    pub(crate) fn read(&self) -> io::Result<Duration> {
        let threads = thread_times(self.pid)?;
        Ok(threads
            .iter()
            .map(|thread| {
                thread
                    .used
                    .saturating_sub(self.at_start.get(&thread.id).copied().unwrap_or_default())
            })
            .sum())
    }
}

/// The first number of a `schedstat` line is nanoseconds on a processor.
fn used_of(schedstat: &str) -> Option<Duration> {
    let mut fields = schedstat.split_ascii_whitespace();
    let used = fields.next()?.parse().ok()?;
    fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_nanos(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedstat_line_begins_with_nanoseconds_used() {
        let cases = [
            ("123456789 42 7\n", Some(123_456_789)),
            ("0 0 0", Some(0)),
            ("", None),
            ("12", None),
            ("-1 0 0\n", None),
            ("a b c\n", None),
        ];
        for (line, expected) in cases {
            assert_eq!(
                used_of(line),
                expected.map(Duration::from_nanos),
                "{line:?}"
            );
        }
    }

    #[test]
    fn the_clock_of_this_process_moves_when_it_works() {
        let clock = ProcessorClock::start(std::process::id()).expect("our own process");
        let mut sum = 0u64;
        while clock.read().expect("our own process") < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
