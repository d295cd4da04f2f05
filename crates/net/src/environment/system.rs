//! Detection of CPU and memory limits, from control groups or else from the machine.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Detection, Probe};

/// Resources that the process may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct System {
    /// CPU time, in thousandths of a core; `None` if unknown.
    pub cpu_millis: Option<Detection<u64>>,
    /// Memory, in bytes; `None` if unknown.
    pub memory_bytes: Option<Detection<u64>>,
    /// True if the memory is a hard limit; false if it is the physical memory.
    pub memory_is_limited: bool,
}

pub(super) fn detect(probe: &Probe) -> System {
    let groups = Groups::of(probe);
    let machine = probe.machine();
    let cores = machine.cores as u64 * 1000;
    let quota = groups.cpu_millis(probe);
    let cpu_millis = match quota {
        Some(quota) if cores == 0 || quota.value < cores => Some(quota),
        _ if 0 < cores => Some(Detection::new(cores, counted(machine.cores))),
        _ => None,
    };
    let built_in = machine.memory_bytes;
    let limit = of_lambda(probe)
        .or_else(|| groups.memory_bytes(probe))
        .filter(|limit| built_in == 0 || limit.value < built_in);
    let memory_is_limited = limit.is_some();
    let memory_bytes = limit.or_else(|| {
        (0 < built_in).then(|| Detection::new(built_in, format!("{} built in", in_mib(built_in))))
    });
    System {
        cpu_millis,
        memory_bytes,
        memory_is_limited,
    }
}

impl System {
    /// Number of cores, with parts of a core rounded up, or 1 if it is unknown.
    fn cores(&self) -> usize {
        let millis = self.cpu_millis.as_ref().map_or(0, |cpu| cpu.value);
        usize::try_from(millis.div_ceil(1000)).map_or(usize::MAX, |cores| cores.max(1))
    }

    /// Number of worker threads: one per core, rounded up, within the available memory.
    pub fn parallelism(&self) -> Option<Detection<u64>> {
        let cpu = self.cpu_millis.as_ref()?;
        let cores = self.cores() as u64;
        if let Some(memory) = &self.memory_bytes {
            let fitting = (memory.value / WORKER_BYTES).max(1);
            if fitting < cores {
                let evidence = format!(
                    "{}; a worker for each {}",
                    memory.evidence,
                    in_mib(WORKER_BYTES)
                );
                return Some(Detection::new(fitting, evidence));
            }
        }
        Some(Detection::new(cores, cpu.evidence.clone()))
    }
}

/// Zero until the environment was read.
static CORES: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of cores that this process can use, with parts of a core rounded up, or 1 if it is unknown.
///
/// It is that of the last time that the environment was read, at the start or for a reload.
pub fn cores() -> usize {
    match CORES.load(Ordering::Relaxed) {
        0 => Probe::real().environment().system.cores(),
        cores => cores,
    }
}

/// Keeps the number of cores of the real environment.
pub(super) fn keep_cores(system: &System) {
    CORES.store(system.cores(), Ordering::Relaxed);
}

/// Memory that a worker needs: runtime, connection buffers and its share of caches.
const WORKER_BYTES: u64 = 32 * 1024 * 1024;

fn counted(cores: usize) -> String {
    match cores {
        1 => "1 core, no limit below it".to_owned(),
        _ => format!("{cores} cores, no limit below them"),
    }
}

pub(super) fn in_mib(bytes: u64) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

fn of_lambda(probe: &Probe) -> Option<Detection<u64>> {
    const NAME: &str = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE";
    let mib: u64 = probe.variable(NAME)?.parse().ok()?;
    Some(Detection::new(
        mib.checked_mul(1024 * 1024)?,
        format!("{NAME}={mib}"),
    ))
}

/// Control groups of the process, by version of the interface.
#[derive(Debug, Default)]
struct Groups {
    /// The group in the unified hierarchy of version 2.
    unified: Option<String>,
    /// Groups of version 1, with their controllers.
    by_controller: Vec<(String, String)>,
}

const ROOT: &str = "/sys/fs/cgroup";
/// Maximum nesting of groups.
const DEPTH_MAX: usize = 16;

impl Groups {
    fn of(probe: &Probe) -> Self {
        let mut groups = Self::default();
        let text = probe.read("/proc/self/cgroup").unwrap_or_default();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if number == "0" && controllers.is_empty() {
                groups.unified = Some(path.to_owned());
            } else {
                groups
                    .by_controller
                    .push((controllers.to_owned(), path.to_owned()));
            }
        }
        groups
    }

    fn cpu_millis(&self, probe: &Probe) -> Option<Detection<u64>> {
        let unified = self.unified_files(probe, "cpu.max", |text| {
            let mut parts = text.split_whitespace();
            let quota: u64 = parts.next()?.parse().ok()?;
            let period: u64 = parts
                .next()
                .map_or(Some(100_000), |period| period.parse().ok())?;
            quota.saturating_mul(1000).checked_div(period)
        });
        unified.or_else(|| {
            self.old_files("cpu", |folder| {
                let read = |file: &str| probe.read(&format!("{folder}/{file}"));
                // -1 means no limit, and fails to parse as unsigned.
                let quota: u64 = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
                let period: u64 = read("cpu.cfs_period_us")?.trim().parse().ok()?;
                let millis = quota.saturating_mul(1000).checked_div(period)?;
                Some(Detection::new(
                    millis,
                    format!("{folder}/cpu.cfs_quota_us: {quota} of {period}"),
                ))
            })
        })
    }

    fn memory_bytes(&self, probe: &Probe) -> Option<Detection<u64>> {
        // `max` means no limit, and fails to parse.
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let least = [
            self.unified_files(probe, "memory.max", number),
            self.unified_files(probe, "memory.high", number),
        ];
        let least = least.into_iter().flatten().min_by_key(|seen| seen.value);
        least.or_else(|| {
            self.old_files("memory", |folder| {
                let file = format!("{folder}/memory.limit_in_bytes");
                let bytes = number(&probe.read(&file)?)?;
                /// Version 1 reports "no limit" as its largest number of pages.
                const UNLIMITED: u64 = 1 << 60;
                (bytes < UNLIMITED)
                    .then(|| Detection::new(bytes, format!("{file}: {}", in_mib(bytes))))
            })
        })
    }

    /// Returns the smallest value of a file in the group and its ancestors. In a container, the group is the root.
    fn unified_files(
        &self,
        probe: &Probe,
        file: &str,
        parse: impl Fn(&str) -> Option<u64>,
    ) -> Option<Detection<u64>> {
        let group = self.unified.as_deref()?;
        let mut least: Option<Detection<u64>> = None;
        for folder in folders(group)
            .into_iter()
            .flat_map(|group| [format!("{ROOT}{group}"), format!("{ROOT}/unified{group}")])
        {
            let path = format!("{folder}/{file}");
            let Some(text) = probe.read(&path) else {
                continue;
            };
            if let Some(value) = parse(&text)
                && least.as_ref().is_none_or(|least| value < least.value)
            {
                least = Some(Detection::new(value, format!("{path}: {}", text.trim())));
            }
        }
        least
    }

    /// Reads a file in the folder of a controller's group, or of the root, which a container sees.
    fn old_files(
        &self,
        controller: &str,
        find: impl Fn(&str) -> Option<Detection<u64>>,
    ) -> Option<Detection<u64>> {
        let (controllers, path) = self
            .by_controller
            .iter()
            .find(|(controllers, _)| controllers.split(',').any(|one| one == controller))?;
        let mut found = Vec::new();
        // The folder has the name of the controller, or of all that are mounted together.
        let together = Some(controllers.as_str()).filter(|name| *name != controller);
        for mounted in std::iter::once(controller).chain(together) {
            for group in folders(path) {
                found.extend(find(&format!("{ROOT}/{mounted}{group}")));
            }
        }
        found.into_iter().min_by_key(|seen| seen.value)
    }
}

/// Returns the group and its ancestors, the root last.
fn folders(group: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut group = group.trim_end_matches('/');
    while !group.is_empty() && folders.len() < DEPTH_MAX {
        folders.push(group.to_owned());
        group = group.rsplit_once('/').map_or("", |(outer, _)| outer);
    }
    folders.push(String::new());
    folders
}

#[cfg(test)]
mod tests {
    use super::super::Machine;
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn probe(files: &[(&str, &str)]) -> Probe {
        let probe = Probe::of([("HOME", "/")]).with_machine(Machine {
            cores: 8,
            memory_bytes: 16 * 1024 * MIB,
        });
        files
            .iter()
            .fold(probe, |probe, (path, text)| probe.with_file(*path, *text))
    }

    fn seen(files: &[(&str, &str)]) -> (u64, u64) {
        let system = detect(&probe(files));
        (
            system.cpu_millis.expect("known").value,
            system.memory_bytes.expect("known").value / MIB,
        )
    }

    #[test]
    fn limits_of_both_versions_are_found() {
        for (files, expected) in [
            (&[][..], (8000, 16 * 1024)),
            // Version 2, in a container.
            (
                &[
                    ("/proc/self/cgroup", "0::/\n"),
                    ("/sys/fs/cgroup/cpu.max", "150000 100000\n"),
                    ("/sys/fs/cgroup/memory.max", "536870912\n"),
                ],
                (1500, 512),
            ),
            // No limits.
            (
                &[
                    ("/proc/self/cgroup", "0::/\n"),
                    ("/sys/fs/cgroup/cpu.max", "max 100000\n"),
                    ("/sys/fs/cgroup/memory.max", "max\n"),
                ],
                (8000, 16 * 1024),
            ),
            // A service of systemd in a slice with a limit.
            (
                &[
                    ("/proc/self/cgroup", "0::/system.slice/longshore.service\n"),
                    (
                        "/sys/fs/cgroup/system.slice/longshore.service/cpu.max",
                        "400000 100000",
                    ),
                    (
                        "/sys/fs/cgroup/system.slice/longshore.service/memory.high",
                        "268435456",
                    ),
                    ("/sys/fs/cgroup/system.slice/cpu.max", "200000 100000"),
                    ("/sys/fs/cgroup/system.slice/memory.max", "536870912"),
                ],
                (2000, 256),
            ),
            // Version 1, in a container that sees the host's paths.
            (
                &[
                    (
                        "/proc/self/cgroup",
                        "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
                    ),
                    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
                    ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
                    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n"),
                ],
                (500, 128),
            ),
            (
                &[
                    ("/proc/self/cgroup", "4:memory:/\n3:cpu,cpuacct:/\n"),
                    ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
                    ("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
                    (
                        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                ],
                (8000, 16 * 1024),
            ),
            // Nonsense is nothing.
            (
                &[
                    ("/proc/self/cgroup", "what\n0::/\n"),
                    ("/sys/fs/cgroup/cpu.max", "1 0"),
                    ("/sys/fs/cgroup/memory.max", "-1"),
                ],
                (8000, 16 * 1024),
            ),
        ] {
            assert_eq!(seen(files), expected, "{files:?}");
        }
    }

    #[test]
    fn a_part_of_a_core_is_worth_a_thread() {
        for (millis, threads) in [(100, 1), (1000, 1), (1500, 2), (8000, 8)] {
            let system = System {
                cpu_millis: Some(Detection::new(millis, "")),
                ..System::default()
            };
            assert_eq!(system.parallelism().expect("known").value, threads);
        }
    }

    #[test]
    fn there_are_no_more_workers_than_there_is_memory_for() {
        for (mib, threads) in [(512, 8), (256, 8), (128, 4), (64, 2), (16, 1)] {
            let system = System {
                cpu_millis: Some(Detection::new(8000, "8 cores")),
                memory_bytes: Some(Detection::new(mib * 1024 * 1024, "memory.max")),
                memory_is_limited: true,
            };
            let seen = system.parallelism().expect("known");
            assert_eq!(seen.value, threads, "{mib} MiB");
            let evidence = match threads {
                8 => "8 cores",
                _ => "memory.max; a worker for each 32 MiB",
            };
            assert_eq!(seen.evidence, evidence);
        }
    }

    #[test]
    fn nothing_is_claimed_where_nothing_is_known() {
        assert_eq!(detect(&Probe::of([("A", "b")])), System::default());
    }
}
