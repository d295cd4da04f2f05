use std::io;
use std::sync::{Mutex, MutexGuard};

use serde_json::Value;

use super::*;
use crate::telemetry::{AUDIT_FAILING, AUDIT_LOST, AUDIT_RECORDS, Metrics};

/// A disk that tests can fill, and exchange.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Written>>);

#[derive(Debug, Default)]
struct Written {
    bytes: Vec<u8>,
    /// Content before the file was reopened.
    before: Vec<u8>,
    /// Remaining capacity; `None` for unlimited.
    room: Option<usize>,
    /// True if the file was not moved away before it is reopened.
    stays: bool,
    reopened: usize,
}

impl Disk {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().expect("not poisoned")
    }

    fn events(&self) -> Vec<String> {
        events(&self.written().bytes)
    }
}

fn events(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    let event = |line: &str| {
        let record: Value = serde_json::from_str(line).expect("a record in each line");
        record["event"].as_str().expect("a word").to_owned()
    };
    text.lines()
        .filter(|line| !line.is_empty())
        .map(event)
        .collect()
}

impl Sink for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.written();
        let count = bytes.len().min(written.room.unwrap_or(usize::MAX));
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(room) = &mut written.room {
            *room -= count;
        }
        written.bytes.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn reopen(&mut self) -> io::Result<bool> {
        let mut written = self.written();
        written.reopened += 1;
        if !written.stays {
            written.before = std::mem::take(&mut written.bytes);
        }
        Ok(written.bytes.is_empty())
    }
}

fn started(config: &AuditConfig) -> (Arc<Audit>, Disk, Telemetry) {
    let (disk, telemetry) = (Disk::default(), Telemetry::new(Metrics::default(), true));
    let audit = Audit::writing(config, &telemetry, |queue| {
        let sinks: Vec<(String, Box<dyn Sink>)> =
            vec![("a disk".to_owned(), Box::new(disk.clone()))];
        Ok(Writer::to(queue, sinks, false))
    });
    let audit = audit.expect("starts");
    audit.begin();
    (audit, disk, telemetry)
}

fn refusal() -> Entry {
    Entry::new(Event::Refusal)
}

fn recorded(telemetry: &Telemetry, event: Event) -> u64 {
    let counter = telemetry
        .metrics
        .counter(&AUDIT_RECORDS, &[("event", event.as_str())]);
    counter.value()
}

fn lost(telemetry: &Telemetry, reason: &str) -> u64 {
    let counter = telemetry
        .metrics
        .counter(&AUDIT_LOST, &[("reason", reason)]);
    counter.value()
}

#[tokio::test]
async fn what_is_put_down_is_written_in_order() {
    let (audit, disk, _) = started(&AuditConfig::default());
    for _ in 0..600 {
        audit.note(Entry::new(Event::Call));
    }
    audit.note_stranger(refusal());
    audit.flush(Duration::from_secs(20)).await;
    let events = disk.events();
    assert_eq!(
        (events.len(), &*events[0], &*events[601]),
        (603, "start", "refusal")
    );
    assert_eq!(events[602], "stop");
}

#[tokio::test]
async fn strangers_fill_neither_the_log_nor_the_queue() {
    let (audit, disk, telemetry) = started(&AuditConfig {
        refusals_per_second: 0,
        ..AuditConfig::default()
    });
    audit.note_stranger(refusal());
    audit.flush(Duration::from_secs(20)).await;
    assert_eq!(disk.events(), ["start", "stop"]);
    assert_eq!(lost(&telemetry, "rate"), 1);

    // The disk is taken away, so that everything waits.
    let (audit, disk, telemetry) = started(&AuditConfig {
        queue: 8,
        refusals_per_second: u32::MAX,
        ..AuditConfig::default()
    });
    audit.queue.written().await;
    let held = disk.written();
    // The thread may already have taken a record from the queue.
    audit.note(Entry::new(Event::Call));
    for _ in 0..300 {
        audit.note_stranger(refusal());
    }
    assert!(
        lost(&telemetry, "queue") >= 300 - 4 - 256,
        "half is for others"
    );
    let before = lost(&telemetry, "queue");
    audit.note(Entry::new(Event::Call));
    assert_eq!(lost(&telemetry, "queue"), before);
    drop(held);
}

#[tokio::test]
async fn where_records_may_be_lost_a_full_disk_stops_nothing_and_what_is_lost_is_counted() {
    let (audit, disk, telemetry) = started(&AuditConfig::default());
    audit.queue.written().await;
    // Half of a line fits.
    disk.written().room = Some(20);
    audit.note(Entry::new(Event::Call));
    audit.queue.written().await;
    assert!(audit.ticket().is_ok_and(|ticket| ticket.is_none()));
    assert_eq!(lost(&telemetry, "write"), 1);
    assert_eq!(recorded(&telemetry, Event::Call), 0);
    let failing = telemetry.metrics.gauge(&AUDIT_FAILING, &[]);
    assert_eq!(failing.value(), 1);
    disk.written().room = None;
    audit.note(refusal());
    audit.queue.written().await;
    assert_eq!(recorded(&telemetry, Event::Refusal), 1);
    assert_eq!(failing.value(), 0);
    assert!(telemetry.life.waits_for().is_empty());
    let text = String::from_utf8(disk.written().bytes.clone()).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    // The torn line has an end, and the next one is whole.
    assert_eq!((lines.len(), lines[1].len()), (3, 20));
    assert!(lines[2].contains(r#""event":"refusal""#), "{text}");
}

#[tokio::test]
async fn a_torn_line_has_an_end_however_often_the_disk_is_full() {
    let (audit, disk, telemetry) = started(&AuditConfig::default());
    audit.queue.written().await;
    disk.written().room = Some(20);
    for _ in 0..3 {
        audit.note(Entry::new(Event::Call));
        audit.queue.written().await;
    }
    disk.written().room = None;
    audit.note(refusal());
    audit.queue.written().await;
    assert_eq!(lost(&telemetry, "write"), 3);
    let text = String::from_utf8(disk.written().bytes.clone()).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[1].len()), (3, 20), "{text}");
    assert!(
        lines[2].starts_with('{') && lines[2].ends_with('}'),
        "{text}"
    );
}

#[tokio::test]
async fn a_line_that_is_begun_again_in_the_same_file_is_whole() {
    let (audit, disk, _) = started(&AuditConfig {
        required: true,
        ..AuditConfig::default()
    });
    audit.queue.written().await;
    disk.written().stays = true;
    disk.written().room = Some(20);
    audit.note(Entry::new(Event::Call));
    while disk.written().room != Some(0) {
        tokio::task::yield_now().await;
    }
    audit.queue.reopen();
    audit.note(refusal());
    while disk.written().reopened == 0 {
        tokio::task::yield_now().await;
    }
    disk.written().room = None;
    audit.queue.written().await;
    let text = String::from_utf8(disk.written().bytes.clone()).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines.len(), lines[1].len()), (4, 20), "{text}");
    assert!(lines[2].contains(r#""event":"call""#), "{text}");
    assert!(
        lines[2].starts_with('{') && lines[2].ends_with('}'),
        "{text}"
    );
}

#[tokio::test]
async fn where_records_are_required_nothing_is_lost_and_calls_wait_for_the_disk() {
    let (audit, disk, telemetry) = started(&AuditConfig {
        required: true,
        queue: 4,
        ..AuditConfig::default()
    });
    audit.queue.written().await;
    let ticket = audit.ticket().expect("a place").expect("is needed");
    disk.written().room = Some(20);
    ticket.fill(Entry::new(Event::Call));
    // The thread notices by itself.
    while telemetry.life.waits_for().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(audit.ticket().expect_err("none"), AuditFull);
    assert_eq!(telemetry.life.waits_for(), ["the audit log"]);
    disk.written().room = None;
    audit.queue.written().await;
    assert_eq!(disk.events(), ["start", "call"]);
    assert!(telemetry.life.waits_for().is_empty());
    assert!(audit.ticket().is_ok());
    assert_eq!(lost(&telemetry, "write"), 0);
}

#[tokio::test]
async fn a_place_is_taken_before_a_call_and_given_back_after_it() {
    let (audit, _disk, telemetry) = started(&AuditConfig {
        required: true,
        queue: 2,
        ..AuditConfig::default()
    });
    audit.queue.written().await;
    let first = audit.ticket().expect("a place");
    let second = audit.ticket().expect("another");
    assert_eq!(audit.ticket().expect_err("no third"), AuditFull);
    drop(first);
    let third = audit.ticket().expect("free again").expect("is needed");
    third.fill(Entry::new(Event::Call));
    audit.queue.written().await;
    assert!(
        telemetry.life.waits_for().is_empty(),
        "ready as soon as something is written"
    );
    drop(second);
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_opened_again_and_no_line_is_torn() {
    let (audit, disk, _) = started(&AuditConfig {
        required: true,
        ..AuditConfig::default()
    });
    audit.queue.written().await;
    disk.written().room = Some(20);
    audit.note(Entry::new(Event::Call));
    while disk.written().room != Some(0) {
        tokio::task::yield_now().await;
    }
    audit.queue.reopen();
    while disk.written().before.is_empty() {
        tokio::task::yield_now().await;
    }
    disk.written().room = None;
    audit.queue.written().await;
    assert_eq!(disk.events(), ["call"]);
}

#[test]
fn settings_that_cannot_be_are_told_with_what_to_do() {
    let start = |config: &AuditConfig| Audit::start(config, &Telemetry::default());
    assert!(start(&AuditConfig::default()).expect("fine").is_none());
    let folder = tempfile::tempdir().expect("a folder");
    for (config, part) in [
        (
            AuditConfig {
                otlp: true,
                required: true,
                ..AuditConfig::default()
            },
            "audit.file or audit.stderr",
        ),
        (
            AuditConfig {
                stderr: true,
                queue: 0,
                ..AuditConfig::default()
            },
            "audit.queue",
        ),
        (
            AuditConfig {
                file: Some("/nowhere/audit.jsonl".into()),
                ..AuditConfig::default()
            },
            "/nowhere/audit.jsonl",
        ),
        (
            AuditConfig {
                file: Some(folder.path().into()),
                ..AuditConfig::default()
            },
            "folder",
        ),
    ] {
        let error = start(&config).expect_err("refused").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn the_file_is_the_owners_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let config = AuditConfig {
        file: Some(path.clone()),
        ..AuditConfig::default()
    };
    let audit = Audit::start(&config, &Telemetry::default())
        .expect("starts")
        .expect("is on");
    audit.flush(Duration::from_secs(20)).await;
    assert_eq!(events(&std::fs::read(&path).expect("written")), ["stop"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_deleted_is_created_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let config = AuditConfig {
        file: Some(path.clone()),
        required: true,
        ..AuditConfig::default()
    };
    let audit = Audit::start(&config, &Telemetry::default())
        .expect("starts")
        .expect("is on");
    audit.begin();
    audit.note(Entry::new(Event::Call));
    audit.queue.written().await;
    std::fs::remove_file(&path).expect("there");
    audit.note(refusal());
    audit.flush(Duration::from_secs(20)).await;
    let left = events(&std::fs::read(&path).expect("created again"));
    assert_eq!(left, ["refusal", "stop"]);
}
