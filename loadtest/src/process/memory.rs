//! The memory of another process.

use std::fs;
use std::io;

/// The resident set of process `pid`: what it occupies of the machine's memory now.
pub(crate) fn resident_bytes(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    resident_of(&status)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no VmRSS in /proc/PID/status"))
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read_from_its_line() {
        let cases = [
            (
                "Name:\tx\nVmHWM:\t  9000 kB\nVmRSS:\t    7104 kB\nThreads:\t1\n",
                Some(7104 * 1024),
            ),
            ("Name:\tkthreadd\n", None),
            ("VmRSS:\t7104\n", None),
            ("VmRSS:\t-1 kB\n", None),
        ];
        for (status, expected) in cases {
            assert_eq!(resident_of(status), expected, "{status:?}");
        }
    }
}
