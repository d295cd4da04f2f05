//! Reaps orphaned processes when the program is process 1 of a container.
//!
//! Processes whose parent has exited become children of process 1, and stay in the process table as zombies until it
//! waits for them. Only the program does this: in a library it would take exit statuses that its host waits for.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

/// Interval between scans. A child that the program started itself is waited for by its owner, long before a second scan.
const PAUSE: Duration = Duration::from_secs(5);

/// Reaps zombies forever if this is process 1; otherwise returns immediately.
pub(super) async fn reap() {
    if std::process::id() != 1 {
        return;
    }
    let mut seen = HashSet::new();
    loop {
        tokio::time::sleep(PAUSE).await;
        seen = round(&seen);
    }
}

/// Reaps the children in `seen`, which had exited at the previous scan, and returns those that have exited since.
fn round(seen: &HashSet<i32>) -> HashSet<i32> {
    let (old, new): (HashSet<i32>, HashSet<i32>) =
        ended_children().partition(|process| seen.contains(process));
    for process in old {
        if let Some(process) = Pid::from_raw(process) {
            // Its owner may have waited for it in the meantime.
            let _ = waitpid(Some(process), WaitOptions::NOHANG);
        }
    }
    new
}

fn ended_children() -> impl Iterator<Item = i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    processes.filter(move |process| {
        fs::read_to_string(format!("/proc/{process}/stat"))
            .is_ok_and(|stat| is_ended_child_of(own, &stat))
    })
}

/// Parses `7 (name) Z 1 ...`. The name may contain any character.
fn is_ended_child_of(parent: i32, stat: &str) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = fields.split_whitespace();
    fields.next() == Some("Z") && fields.next().and_then(|p| p.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_children_are_known_by_their_state_whatever_they_are_called() {
        assert!(is_ended_child_of(1, "7 (a) Z 9 (b) Z 1 7 7 0"));
        assert!(!is_ended_child_of(1, "7 (a) S 1 7 7 0"));
        assert!(!is_ended_child_of(1, "7 (Z 1) Z 2 7 7 0"));
        assert!(!is_ended_child_of(1, ""));
    }

    #[test]
    fn a_child_that_nobody_waits_for_is_taken_notice_of_at_the_second_look() {
        let mut child = std::process::Command::new("true").spawn().expect("started");
        let id = i32::try_from(child.id()).expect("an id");
        while !ended_children().any(|ended| ended == id) {
            std::thread::yield_now();
        }
        let seen = round(&HashSet::new());
        assert!(seen.contains(&id), "others may be waiting for it");
        round(&HashSet::from([id]));
        assert!(!ended_children().any(|ended| ended == id));
        assert!(child.wait().is_err(), "somebody has taken notice before");
    }
}
