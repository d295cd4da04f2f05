use std::sync::Arc;

use serde_json::Map;
use tempfile::TempDir;

use super::*;
use crate::environment::Secret;
use crate::source::builtin::memory::graph::Entity;

fn entity(name: &str) -> Entity {
    Entity {
        name: name.to_owned(),
        entity_type: "thing".to_owned(),
        observations: Vec::new(),
        others: Map::new(),
    }
}

fn config(folder: &TempDir) -> MemoryConfig {
    MemoryConfig {
        file: Some(folder.path().join("memory.jsonl")),
        ..MemoryConfig::default()
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn open(config: &MemoryConfig) -> Store {
    Store::new(config).expect("a store")
}

fn add(store: &Store, place: &GraphLocation, name: &str) -> Result<bool, String> {
    let change = |graph: &mut Graph| graph.create_entities(&[entity(name)], store.bounds());
    let changed = store.change(place, &Stop::never(), change);
    changed
        .map(|(_, is_changed)| is_changed)
        .map_err(|e| e.to_string())
}

fn names(store: &Store, place: &GraphLocation) -> Vec<String> {
    let graph = store.read(place).expect("a graph");
    graph
        .entities
        .into_iter()
        .map(|entity| entity.name)
        .collect()
}

fn files(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).expect("a folder");
    let names = entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn refused(config: &MemoryConfig) -> String {
    Store::new(config)
        .map(drop)
        .expect_err("refused")
        .to_string()
}

#[test]
fn what_is_written_is_there_for_the_next_process() {
    let folder = folder();
    let store = open(&config(&folder));
    assert_eq!(
        files(&folder),
        [""; 0],
        "nothing is made before there is something to keep"
    );
    let place = store.shared();
    assert_eq!(add(&store, &place, "Ada"), Ok(true));
    assert_eq!(add(&store, &place, "Ada"), Ok(false));
    let again = open(&config(&folder));
    assert_eq!(names(&again, &again.shared()), ["Ada"]);
    assert_eq!(files(&folder), ["memory.jsonl", "memory.jsonl.lock"]);
    let text = fs::read_to_string(folder.path().join("memory.jsonl")).expect("a file");
    assert_eq!(
        text,
        r#"{"type":"entity","name":"Ada","entityType":"thing","observations":[]}"#
    );
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    let folder = folder();
    let config = Arc::new(config(&folder));
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let config = Arc::clone(&config);
            // Each thread has its own store, as each process has.
            std::thread::spawn(move || {
                let store = open(&config);
                for n in 0..5 {
                    add(&store, &store.shared(), &format!("{thread}-{n}")).expect("written");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let store = open(&config);
    assert_eq!(names(&store, &store.shared()).len(), 40);
}

#[test]
fn what_cannot_be_read_is_refused_at_start_and_left_as_it_is() {
    let folder = folder();
    let file = folder.path().join("memory.jsonl");
    let bad = "{\"type\":\"entity\",\"name\":\"Ada\",\"entityType\":\"p\",\"observations\":[]}\n{\"type\":";
    fs::write(&file, bad).expect("written");
    let message = refused(&config(&folder));
    assert!(
        message.starts_with("builtin.memory.file is ")
            && message.contains("memory.jsonl, of which line 2 is not valid JSON"),
        "{message}"
    );
    // The same holds for a file that becomes invalid while the server runs.
    fs::write(&file, "").expect("written");
    let store = open(&config(&folder));
    fs::write(&file, bad).expect("written");
    let message = add(&store, &store.shared(), "Eve").expect_err("refused");
    assert!(
        message.contains("line 2") && !message.contains("memory.jsonl"),
        "{message}"
    );
    assert_eq!(fs::read_to_string(&file).expect("a file"), bad);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = folder();
    let with = |change: fn(&mut MemoryConfig)| {
        let mut config = config(&folder);
        change(&mut config);
        refused(&config)
    };
    assert!(with(|c| c.file = None).contains("builtin.memory.file is not set"));
    assert!(
        with(|c| c.file = Some("/nonexistent/folder/m.jsonl".into()))
            .contains("make the folder first")
    );
    assert!(
        with(|c| c.keys = vec![Secret::from("short".to_owned())])
            .contains("builtin.memory.keys[0] has 5 bytes")
    );
    let of_folder = MemoryConfig {
        file: Some(folder.path().to_owned()),
        ..MemoryConfig::default()
    };
    assert!(refused(&of_folder).contains("not a regular file"));
    fs::write(folder.path().join("memory.jsonl"), " ".repeat(101)).expect("written");
    assert!(with(|c| c.max_bytes = 100).contains("more than 100 bytes"));
}

#[test]
fn callers_who_are_known_have_graphs_of_their_own() {
    let folder = folder();
    let store = open(&config(&folder));
    let (ada, eve) = (Principal::new("../../ada"), Principal::new("eve"));
    let places = [
        store.place(&ada),
        store.place(&eve),
        store.place(&Principal::anonymous()),
    ];
    for (place, name) in places.iter().zip(["of ada", "of eve", "of all"]) {
        assert_eq!(add(&store, place, name), Ok(true));
    }
    for (place, name) in places.iter().zip(["of ada", "of eve", "of all"]) {
        assert_eq!(names(&store, place), [name]);
        assert_eq!(place.file.parent(), store.file.parent());
    }
    assert_eq!(store.place(&Principal::local()), store.shared());
    assert_eq!(
        open(&config(&folder)).place(&ada),
        places[0],
        "wherever and whenever it is asked for"
    );
    let together = open(&MemoryConfig {
        per_principal: false,
        ..config(&folder)
    });
    assert_eq!(names(&together, &together.place(&ada)), ["of all"]);
    let few = open(&MemoryConfig {
        max_graphs: 2,
        ..config(&folder)
    });
    let message = add(&few, &few.place(&Principal::new("third")), "x").expect_err("no room");
    assert!(message.contains("the maximum of 2 memories"), "{message}");
    assert_eq!(
        add(&few, &places[0], "more"),
        Ok(true),
        "who has one keeps it"
    );
}

#[test]
fn a_graph_grows_up_to_its_bytes_and_not_beyond() {
    let folder = folder();
    let line = r#"{"type":"entity","name":"a","entityType":"thing","observations":[]}"#.len();
    let exact = MemoryConfig {
        max_bytes: line,
        ..config(&folder)
    };
    let store = open(&exact);
    assert_eq!(add(&store, &store.shared(), "a"), Ok(true));
    let message = add(&store, &store.shared(), "b").expect_err("full");
    assert!(
        message.contains(&format!("the maximum is {line}")),
        "{message}"
    );
    assert_eq!(names(&open(&exact), &store.shared()), ["a"]);
}

#[test]
fn files_are_encrypted_with_the_first_key_and_read_with_all() {
    let folder = folder();
    let key = |c: char| Secret::from(c.to_string().repeat(32));
    let plain = open(&config(&folder));
    add(&plain, &plain.shared(), "secret thing").expect("written");
    let with = |keys: Vec<Secret>| MemoryConfig {
        keys,
        ..config(&folder)
    };
    let file = folder.path().join("memory.jsonl");
    let is_plain = || {
        fs::read_to_string(&file)
            .expect("a file")
            .contains("secret")
    };

    let first = open(&with(vec![key('a')]));
    assert_eq!(
        names(&first, &first.shared()),
        ["secret thing"],
        "what was there is read"
    );
    assert!(is_plain());
    assert_eq!(add(&first, &first.shared(), "secret thing"), Ok(false));
    assert!(!is_plain(), "it is encrypted as soon as it is written to");

    let rotated = open(&with(vec![key('b'), key('a')]));
    assert_eq!(add(&rotated, &rotated.shared(), "more"), Ok(true));
    let second = open(&with(vec![key('b')]));
    assert_eq!(names(&second, &second.shared()), ["secret thing", "more"]);

    assert!(
        refused(&with(vec![key('c')]))
            .contains("encrypted with a key that this server does not have")
    );
    assert!(refused(&config(&folder)).contains("encrypted"));
    // An encrypted file that is copied to another location cannot be opened there.
    let other = second.place(&Principal::new("eve"));
    fs::copy(&file, &other.file).expect("copied");
    assert!(matches!(second.read(&other), Err(StoreError::Sealed)));
}

#[test]
fn who_does_not_get_the_lock_says_so_and_writes_nothing() {
    let folder = folder();
    let store = open(&config(&folder));
    let held = lock(&beside(&store.file, "lock"), &Stop::never()).expect("free");
    let stopped = Stop::after(Duration::from_millis(20));
    let outcome = store.change(&store.shared(), &stopped, |graph| {
        graph.create_entities(&[entity("a")], store.bounds())
    });
    assert!(matches!(outcome, Err(StoreError::Locked)));
    assert!(!store.file.exists());
    drop(held);
    assert_eq!(add(&store, &store.shared(), "a"), Ok(true));
}

#[cfg(unix)]
#[test]
fn a_file_keeps_its_mode_and_a_link_stays_one() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    let folder = folder();
    let mode = |name: &str| {
        fs::metadata(folder.path().join(name))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777
    };
    let store = open(&config(&folder));
    add(&store, &store.shared(), "a").expect("written");
    assert_eq!(
        (mode("memory.jsonl"), mode("memory.jsonl.lock")),
        (0o600, 0o600)
    );
    fs::set_permissions(
        folder.path().join("memory.jsonl"),
        fs::Permissions::from_mode(0o640),
    )
    .expect("set");
    add(&store, &store.shared(), "b").expect("written");
    assert_eq!(mode("memory.jsonl"), 0o640);

    symlink(
        folder.path().join("memory.jsonl"),
        folder.path().join("link.jsonl"),
    )
    .expect("a link");
    let linked = open(&MemoryConfig {
        file: Some(folder.path().join("link.jsonl")),
        ..config(&folder)
    });
    add(&linked, &linked.shared(), "c").expect("written");
    assert!(folder.path().join("link.jsonl").is_symlink());
    assert_eq!(names(&store, &store.shared()), ["a", "b", "c"]);
}

#[cfg(unix)]
#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let folder = folder();
    let store = open(&config(&folder));
    add(&store, &store.shared(), "a").expect("written");
    // A folder in place of the temporary file prevents the write.
    fs::create_dir(folder.path().join("memory.jsonl.tmp")).expect("a folder");
    let message = add(&store, &store.shared(), "b").expect_err("refused");
    assert!(message.contains("cannot be written"), "{message}");
    assert_eq!(names(&store, &store.shared()), ["a"]);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_refused_at_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let at = folder.path().join("memory.jsonl");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    fs::write(beside(&at, "lock"), "").expect("written");
    for (path, forbidden, allowed) in [
        (folder.path().to_owned(), 0o555, 0o755),
        (beside(&at, "lock"), 0o444, 0o644),
    ] {
        mode(&path, forbidden);
        let is_superuser = rustix::process::geteuid().is_root();
        let refused = Store::new(&config(&folder))
            .map(|_| ())
            .map_err(|e| e.to_string());
        match refused {
            Ok(()) => assert!(is_superuser, "{}", path.display()),
            Err(problem) => assert!(problem.contains("cannot be written"), "{problem}"),
        }
        mode(&path, allowed);
    }
    open(&config(&folder));
}
