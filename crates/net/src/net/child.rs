//! Child processes: in a group of their own, within limits, and never left behind. And what else of a process takes
//! `unsafe`, which is nowhere but here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use tokio::process::Command;
use tokio::runtime::Handle;

use super::lock::Mutex;

/// Resource limits for each process of a group. 0 means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Address space, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads of the user, counted by the system for all of them; see [`beside_others`](Self::beside_others).
    pub processes: u64,
    /// Open files.
    pub open_files: u64,
}

/// A group of processes in the making.
#[derive(Debug)]
pub struct ProcessGroupBuilder {
    mark: String,
}

/// A process group; drop kills all its processes. Processes that left the group are killed too, on another thread,
/// unless they removed the marker from their environment.
#[derive(Debug)]
pub struct Group {
    leader: Option<Pid>,
    mark: String,
}

/// Processes that left their group. Drop searches `/proc` for them and kills them, in time proportional to the
/// processes of the machine.
#[derive(Debug)]
struct Strays {
    mark: String,
}

impl Drop for Strays {
    fn drop(&mut self) {
        kill_marked(&self.mark);
    }
}

impl Limits {
    /// Variant that permits `processes` in addition to those the user already has. They are counted on another thread.
    pub async fn beside_others(self) -> Self {
        if self.processes == 0 {
            return self;
        }
        let counted = super::spawn_blocking(threads_of_user).await;
        Self {
            processes: self.processes.saturating_add(counted.unwrap_or_default()),
            ..self
        }
    }
}

/// Groups that are not dropped yet, by their marks.
static GROUPS: Mutex<BTreeMap<String, Option<Pid>>> = Mutex::new(BTreeMap::new());

/// Kills all children and their descendants, for a process that exits at once and drops nothing.
pub fn kill_all() {
    let groups = std::mem::take(&mut *GROUPS.lock());
    for leader in groups.values().flatten() {
        let _ = rustix::process::kill_process_group(*leader, Signal::KILL);
    }
    for mark in groups.keys() {
        kill_marked(mark);
    }
}

/// The variable by which a child's descendants are known, even where they have left its group and its session.
const MARK: &str = "CHILD_OF_LONGSHORE";

impl Group {
    /// Makes a command begin a group of its own, within limits.
    pub fn prepare(command: &mut Command, limits: Limits) -> ProcessGroupBuilder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let secret = getrandom::u64().unwrap_or_default();
        let mark = format!("{}-{number}-{secret:016x}", std::process::id());
        command.env(MARK, &mark).process_group(0);
        limit(command, limits);
        ProcessGroupBuilder { mark }
    }

    /// The command has ended by itself: what it left behind is ended too.
    pub fn end(self) {
        drop(self);
    }

    /// Sends a signal to the processes still in the group.
    pub fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // The group is mostly empty.
            let _ = rustix::process::kill_process_group(leader, signal);
        }
    }
}

impl ProcessGroupBuilder {
    /// The command runs, under this id.
    pub fn started(self, id: Option<u32>) -> Group {
        let leader = id
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        GROUPS.lock().insert(self.mark.clone(), leader);
        Group {
            leader,
            mark: self.mark,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let mark = std::mem::take(&mut self.mark);
        GROUPS.lock().remove(&mark);
        let strays = Strays { mark };
        // A runtime that is ending drops what it does not run any more, which does the same here.
        if let Ok(runtime) = Handle::try_current() {
            // Without a thread, they are dropped here.
            let _ = super::try_spawn_blocking(&runtime, move || drop(strays));
        }
    }
}

/// Kills processes that have a marker and created their own session.
fn kill_marked(mark: &str) {
    // Each look may miss some that are just being started.
    for _ in 0..3 {
        let found = marked(mark);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// The processes whose environment has a mark and that are not dead already.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let is_marked = |folder: &Path| {
        std::fs::read(folder.join("environ")).is_ok_and(|environ| {
            environ
                .split(|byte| *byte == 0)
                .any(|entry| entry == wanted.as_bytes())
        })
    };
    processes()
        .filter(|(_, folder)| is_marked(folder))
        .map(|(pid, _)| pid)
        .collect()
}

fn processes() -> impl Iterator<Item = (Pid, std::path::PathBuf)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry
            .file_name()
            .to_str()?
            .parse()
            .ok()
            .and_then(Pid::from_raw)?;
        Some((pid, entry.path()))
    })
}

/// Number of threads of a user, which the system counts against its process limit.
fn threads_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let user = rustix::process::getuid().as_raw();
    let own =
        processes().filter(|(_, folder)| folder.metadata().is_ok_and(|found| found.uid() == user));
    let threads = own.map(|(_, folder)| {
        std::fs::read_dir(folder.join("task")).map_or(1, |tasks| tasks.count() as u64)
    });
    threads.sum()
}

/// Returns true for variables that make any program load code.
pub fn decides_what_is_loaded(name: &str) -> bool {
    name.starts_with("LD_")
        || name.starts_with("DYLD_")
        || matches!(
            name,
            "BASH_ENV" | "ENV" | "NODE_OPTIONS" | "PERL5OPT" | "PYTHONSTARTUP"
        )
}

/// Sets limits in the child before its program begins; set from outside, they would come too late for what it starts
/// first. It is also told to die with the thread that started it, so that `kill -9` of this process leaves nothing behind.
#[allow(unsafe_code)]
fn limit(command: &mut Command, limits: Limits) {
    let wanted = [
        (Resource::As, limits.memory_bytes),
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
    ];
    let before = rustix::process::getpid();
    let soft = super::open_files::open_file_limit().filter(|_| limits.open_files == 0);
    let set = move || {
        for (resource, most) in wanted {
            if most > 0 {
                lower(resource, most)?;
            }
        }
        if let Some(soft) = soft {
            let now = rustix::process::getrlimit(Resource::Nofile);
            let limit = Rlimit {
                current: Some(soft),
                ..now
            };
            rustix::process::setrlimit(Resource::Nofile, limit)?;
        }
        // Core dumps could contain secrets.
        lower(Resource::Core, 0)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the death signal was set.
        if rustix::process::getppid() != Some(before) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child between `fork` and `exec`, where only async-signal-safe functions are
    // permitted. It makes system calls through `rustix`, which adds neither locks nor allocations, and builds errors
    // without allocation. It captures plain values only.
    unsafe {
        command.pre_exec(set);
    }
}

/// Gives pages of this process back to the system, which maps them from their file again when they are needed. They are
/// to be of a mapping that cannot be written to, none of whose pages is any other than its file's.
#[cfg(all(target_os = "linux", feature = "cli"))]
#[allow(unsafe_code)]
pub fn give_back(pages: std::ops::Range<usize>) -> std::io::Result<()> {
    use rustix::mm::{Advice, madvise};

    let start = std::ptr::with_exposed_provenance_mut(pages.start);
    // SAFETY: the mapping stays valid and reads as before. For a private file mapping, this advice drops its pages and
    // would lose only those that the process modified. There are none, since the pages are not writable. The system
    // does the same to such pages under memory pressure.
    unsafe { madvise(start, pages.len(), Advice::LinuxDontNeed) }?;
    Ok(())
}

/// Lowers a limit; one that is lower already stays.
fn lower(resource: Resource, most: u64) -> std::io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_limit_of_processes_is_counted_beside_those_that_are_there() {
        let of = |processes| Limits {
            processes,
            ..Limits::default()
        };
        assert_eq!(of(0).beside_others().await.processes, 0, "no limit");
        // This process has a thread at least.
        assert!(5 < of(5).beside_others().await.processes);
        assert_eq!(of(u64::MAX).beside_others().await.processes, u64::MAX);
    }
}
