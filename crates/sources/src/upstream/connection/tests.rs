use std::path::Path;

use futures_util::FutureExt as _;

use super::*;
use crate::client::Lifecycle;

/// A program that notes its start, waits until it is told to go on, and then responds or ends.
fn upstream(folder: &Path, then: &str) -> Upstream {
    let script = format!(
        r#"echo started >> {folder}/starts
        while [ ! -e {folder}/go ]; do sleep 0.02; done
        {then}
        while read -r line; do
            case "$line" in
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"x","version":"0"}}}}}}' ;;
            esac
        done"#,
        folder = folder.display()
    );
    let config = UpstreamConfig {
        command: Some("sh".to_owned()),
        args: vec!["-c".to_owned(), script],
        protocol: Lifecycle::Legacy,
        ..UpstreamConfig::default()
    };
    Upstream::new("x", config, Background::new(), &SourceParts::default()).expect("valid")
}

fn starts(folder: &Path) -> usize {
    let starts = std::fs::read_to_string(folder.join("starts")).unwrap_or_default();
    starts.lines().count()
}

#[tokio::test]
async fn a_connection_that_nobody_waits_for_any_more_is_made_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = upstream(folder.path(), "");
    let first = upstream.connected(&upstream.shared).now_or_never();
    assert!(first.is_none(), "the program is starting");
    std::fs::write(folder.path().join("go"), "").expect("written");
    let connected = upstream.connected(&upstream.shared).await;
    assert!(connected.is_ok(), "{:?}", connected.err());
    assert_eq!(starts(folder.path()), 1);
}

#[tokio::test]
async fn an_attempt_that_fails_fails_for_all_who_waited_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = upstream(folder.path(), "exit 1");
    let connecting = || upstream.connected(&upstream.shared);
    let goes_on = async { std::fs::write(folder.path().join("go"), "").expect("written") };
    let (first, second, third, ()) =
        tokio::join!(connecting(), connecting(), connecting(), goes_on);
    for outcome in [first, second, third] {
        assert!(outcome.is_err());
    }
    assert_eq!(starts(folder.path()), 1);
    assert!(connecting().await.is_err());
    assert_eq!(starts(folder.path()), 2);
}

#[tokio::test]
async fn requests_that_leave_before_the_connection_is_made_leave_no_tasks() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = upstream(folder.path(), "");
    let leaves = || upstream.connected(&upstream.shared).now_or_never();
    assert!(leaves().is_none(), "the program is starting");
    let tasks = || {
        let runtime = tokio::runtime::Handle::current();
        runtime.metrics().num_alive_tasks()
    };
    let before = tasks();
    for _ in 0..10 {
        assert!(leaves().is_none());
    }
    assert_eq!(tasks(), before);
}
