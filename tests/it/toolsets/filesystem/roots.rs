//! Permitted directories that are moved, lie within one another, or are configured by a link.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::escapes::grounds;

#[test]
fn a_directory_that_is_exchanged_at_its_path_is_still_the_one_that_was_opened() {
    let grounds = grounds();
    let server = grounds.server();
    let kept = grounds.base.join("kept");
    std::fs::rename(&grounds.root, &kept).expect("moved away");
    symlink(grounds.base.join("outside"), &grounds.root).expect("a link");
    assert!(server.read("secret.txt").is_err());
    assert_eq!(server.read("a.txt").as_deref(), Ok("inside"));
    server.write("new.txt", "new").expect("written");
    assert!(kept.join("new.txt").exists());
    assert!(!grounds.base.join("outside/new.txt").exists());
}

#[test]
fn roots_stay_where_they_are_and_each_other_is_reached_by_its_name() {
    let grounds = grounds();
    grounds.file("second/c.txt", "second");
    let inner = grounds.root.join("sub");
    let server = grounds.server_with(|settings| {
        let second = grounds.base.join("second");
        settings["directories"] = json!([grounds.root, second, inner]);
    });
    for path in [".", "", "sub", grounds.root.to_str().expect("UTF-8")] {
        let away = json!({"source": path, "destination": "elsewhere"});
        assert!(server.call("move_file", away).is_err(), "{path}");
    }
    let into = json!({"source": "a.txt", "destination": grounds.base.join("second/a.txt")});
    server.call("move_file", into).expect("moved");
    assert_eq!(server.read("../second/a.txt").as_deref(), Ok("inside"));
    assert!(server.read("../outside/secret.txt").is_err());
    let named = server
        .call("list_allowed_directories", json!({}))
        .expect("a list");
    assert!(
        named.contains("/second") && !named.contains("outside"),
        "{named}"
    );
}

#[test]
fn a_directory_that_is_configured_by_a_link_has_both_paths() {
    let grounds = grounds();
    let named = grounds.base.join("named");
    symlink(&grounds.root, &named).expect("a link");
    symlink(named.join("a.txt"), grounds.root.join("by_name")).expect("a link");
    let server = grounds.server_with(|settings| settings["directories"] = json!([named]));
    for path in [
        named.join("a.txt"),
        grounds.root.join("a.txt"),
        named.join("by_name"),
        "a.txt".into(),
    ] {
        assert_eq!(
            server.read(&path).as_deref(),
            Ok("inside"),
            "{}",
            path.display()
        );
    }
    assert!(server.read(named.join("../outside/secret.txt")).is_err());
    let listed = server.call("list_allowed_directories", json!({}));
    let lines = [&named, &grounds.root].map(|path| path.display().to_string());
    assert_eq!(
        listed,
        Ok(format!("Allowed directories:\n{}", lines.join("\n")))
    );
}
