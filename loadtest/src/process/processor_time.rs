//! The processor time of another process, to the nanosecond.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::time::Duration;

/// Time on a processor, and time spent ready and waiting for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessorTime {
    /// User and kernel together.
    pub(crate) used: Duration,
    /// While something else ran on the core: a neighbour, when a process has the core for itself.
    pub(crate) waited: Duration,
}

/// CPU time of a thread since its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// The thread's number.
    pub(crate) id: u32,
    /// Its name, which the kernel cuts to fifteen bytes.
    pub(crate) name: String,
    /// Its time on a processor, and off it.
    pub(crate) time: ProcessorTime,
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
        let time = time_of(&statistics).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("not a schedstat line: {statistics:?}"),
            )
        })?;
        threads.push(ThreadTime {
            id,
            name: name.trim_end().to_owned(),
            time,
        });
    }
    threads.sort_by_key(|thread| thread.id);
    Ok(threads)
}

/// Measures the CPU time of a process from its creation on.
#[derive(Debug)]
pub(crate) struct ProcessorClock {
    pid: u32,
    at_start: HashMap<u32, ProcessorTime>,
}

impl ProcessorClock {
    /// Starts at zero. Time that a thread had used before does not count.
    pub(crate) fn start(pid: u32) -> io::Result<Self> {
        let at_start = thread_times(pid)?
            .into_iter()
            .map(|thread| (thread.id, thread.time))
            .collect();
        Ok(Self { pid, at_start })
    }

    /// The time of the process's threads since the start. A thread that ended meanwhile is left out.
    pub(crate) fn read(&self) -> io::Result<ProcessorTime> {
        let mut sum = ProcessorTime::default();
        for thread in thread_times(self.pid)? {
            let before = self.at_start.get(&thread.id).copied().unwrap_or_default();
            sum.used += thread.time.used.saturating_sub(before.used);
            sum.waited += thread.time.waited.saturating_sub(before.waited);
        }
        Ok(sum)
    }
}

/// A `schedstat` line: nanoseconds on a processor, nanoseconds in line for one, and a count of turns.
fn time_of(schedstat: &str) -> Option<ProcessorTime> {
    let mut fields = schedstat
        .split_ascii_whitespace()
        .map(|field| field.parse().map(Duration::from_nanos));
    let (used, waited) = (fields.next()?.ok()?, fields.next()?.ok()?);
    fields.next()?.ok()?;
    Some(ProcessorTime { used, waited })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedstat_line_is_time_used_and_time_waited() {
        let cases = [
            ("123456789 42 7\n", Some((123_456_789, 42))),
            ("0 0 0", Some((0, 0))),
            ("", None),
            ("12 5", None),
            ("-1 0 0\n", None),
            ("a b c\n", None),
        ];
        for (line, expected) in cases {
            let found = time_of(line).map(|time| (time.used.as_nanos(), time.waited.as_nanos()));
            assert_eq!(found, expected, "{line:?}");
        }
    }

    #[test]
    fn the_clock_of_this_process_moves_when_it_works() {
        let clock = ProcessorClock::start(std::process::id()).expect("our own process");
        let mut sum = 0u64;
        while clock.read().expect("our own process").used < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
