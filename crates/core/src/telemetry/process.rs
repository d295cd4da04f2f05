//! Resource usage of the process, from `/proc`. Without `/proc`, nothing is reported.

use super::instruments::{CPU_TIME, FILES, MEMORY};
use super::snapshot::{Family, number};

/// Clock ticks per second. Linux reports CPU time in this unit on all architectures.
const TICKS: f64 = 100.0;

pub(super) fn families() -> Vec<Family> {
    let mut families = Vec::new();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    families.extend(cpu_seconds(&stat).map(|seconds| number(&CPU_TIME, seconds)));
    families.extend(memory_bytes().map(|bytes| number(&MEMORY, bytes as f64)));
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        families.push(number(&FILES, files.count() as f64));
    }
    families
}

/// Returns the resident memory of the process.
pub fn memory_bytes() -> Option<u64> {
    resident_bytes(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Parses user and system time. The command name before them may contain any character.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds(""), None);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   10 kB\n"), Some(10_240));
    }
}
