//! Entries that are replaced while a path is resolved cannot lead outside.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::{Grounds, everything_in};

const SECRET: &str = "what nobody inside may read";

/// Exchanges two names again and again until it is dropped.
struct Exchange {
    ends: Arc<AtomicBool>,
    times: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Exchange {
    fn of(one: &Path, other: &Path) -> Self {
        let (one, other) = (one.to_owned(), other.to_owned());
        let ends = Arc::new(AtomicBool::new(false));
        let times = Arc::new(AtomicUsize::new(0));
        let (is_over, count) = (Arc::clone(&ends), Arc::clone(&times));
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("exchanged");
                count.fetch_add(1, Ordering::Relaxed);
                // Each exchange holds up all who look for paths, on the whole machine, other tests among them.
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        Self {
            ends,
            times,
            thread: Some(thread),
        }
    }

    fn times(&self) -> usize {
        self.times.load(Ordering::Relaxed)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Calls tools while two names inside are swapped; nothing outside may be seen or changed. Returns the numbers of
/// successful and of rejected calls.
fn try_while_exchanged(
    grounds: &Grounds,
    names: [&str; 2],
    calls: &[(&str, Value)],
    rounds: usize,
) -> (usize, usize) {
    let server = grounds.server();
    let outside = grounds.base.join("outside");
    let before = everything_in(&outside);
    let [one, other] = names.map(|name| grounds.root.join(name));
    let exchange = Exchange::of(&one, &other);
    let (mut done, mut refused) = (0, 0);
    let mut round = 0;
    // Until both have happened often enough that they met.
    while round < rounds || (exchange.times() < rounds && round < 100 * rounds) {
        round += 1;
        for (tool, arguments) in calls {
            let called = server.call(tool, arguments.clone());
            let (Ok(text) | Err(text)) = &called;
            assert!(!text.contains(SECRET), "{tool} {arguments}: {text}");
            assert!(!text.contains("hidden-name"), "{tool} {arguments}: {text}");
            match called {
                Ok(_) => done += 1,
                Err(_) => refused += 1,
            }
        }
    }
    drop(exchange);
    assert_eq!(everything_in(&outside), before);
    (done, refused)
}

fn grounds() -> Grounds {
    let grounds = Grounds::new();
    grounds.file("outside/file.txt", SECRET);
    grounds.file("outside/hidden-name.txt", SECRET);
    grounds.file("outside/deep/file.txt", SECRET);
    grounds.file("root/folder/file.txt", "inside");
    grounds.file("root/folder/deep/file.txt", "inside");
    grounds.file("root/spare.txt", "spare");
    grounds
}

#[test]
fn a_folder_that_becomes_a_link_on_the_way() {
    let grounds = grounds();
    symlink("../outside", grounds.root.join("link")).expect("a link");
    let file = json!({"path": "folder/file.txt"});
    let calls = [
        ("read_text_file", file.clone()),
        (
            "read_text_file",
            json!({"path": "folder/deep/file.txt", "tail": 1}),
        ),
        ("get_file_info", file),
        ("list_directory", json!({"path": "folder"})),
        ("directory_tree", json!({"path": "."})),
        ("search_files", json!({"path": ".", "pattern": "**"})),
        (
            "write_file",
            json!({"path": "folder/file.txt", "content": "inside"}),
        ),
        (
            "write_file",
            json!({"path": "folder/new.txt", "content": "inside"}),
        ),
        ("create_directory", json!({"path": "folder/deep/deeper"})),
        (
            "edit_file",
            json!({"path": "folder/file.txt", "edits": [{"oldText": "inside", "newText": "inside"}]}),
        ),
        (
            "move_file",
            json!({"source": "folder/new.txt", "destination": "folder/deep/new.txt"}),
        ),
        (
            "move_file",
            json!({"source": "folder/deep/new.txt", "destination": "folder/gone.txt"}),
        ),
    ];
    let (done, refused) = try_while_exchanged(&grounds, ["folder", "link"], &calls, 150);
    assert!(
        0 < done && 0 < refused,
        "{done} done, {refused} refused: they never met"
    );
}

#[test]
fn a_file_that_becomes_a_link_before_it_is_opened() {
    let grounds = grounds();
    grounds.file("root/one.txt", "inside");
    let absolute = grounds.base.join("outside/file.txt");
    symlink(absolute, grounds.root.join("two.txt")).expect("a link");
    let path = json!({"path": "one.txt"});
    let calls = [
        ("read_text_file", path.clone()),
        ("read_media_file", path.clone()),
        ("get_file_info", path),
        (
            "write_file",
            json!({"path": "one.txt", "content": "inside"}),
        ),
        (
            "edit_file",
            json!({"path": "one.txt", "edits": [{"oldText": "inside", "newText": "inside too"}]}),
        ),
        (
            "edit_file",
            json!({"path": "one.txt", "edits": [{"oldText": "inside too", "newText": "inside"}]}),
        ),
    ];
    // A write replaces the entry with this name, even a link; swapping continues with the new one.
    try_while_exchanged(&grounds, ["one.txt", "two.txt"], &calls, 150);
}

#[test]
fn a_folder_that_moves_up_while_dots_lead_back() {
    let grounds = grounds();
    // From `deep`, two steps up are the root; from `shallow`, they would be beside it.
    grounds.file("root/a/b/deep/x.txt", "inside");
    symlink(
        "../../../a/b/../../spare.txt",
        grounds.root.join("a/b/deep/back"),
    )
    .expect("a link");
    grounds.file("spare.txt", SECRET);
    std::fs::create_dir(grounds.root.join("shallow")).expect("made");
    let calls = [("read_text_file", json!({"path": "a/b/deep/back"}))];
    try_while_exchanged(&grounds, ["a/b/deep", "shallow"], &calls, 300);
}
