use serde_json::{Value, json};

use super::*;
use crate::catalog::Tool;
use crate::source::testing::{call, text};

fn collected(tool: Value, source: Value) -> SourceBuilder {
    let mut config = source;
    let mut tool = tool;
    tool["name"] = "t".into();
    config["tools"] = json!([tool]);
    let config: CommandSourceConfig = serde_json::from_value(config).expect("a configuration");
    let mut collector = SourceBuilder::new("commands", "sources[0]", None);
    collect(&config, &mut collector);
    collector
}

fn tool(tool: Value, source: Value) -> Arc<dyn Tool> {
    let mut collector = collected(tool, source);
    assert_eq!(collector.offered.refused, []);
    collector.offered.tools.remove(0)
}

#[tokio::test]
async fn a_command_gets_its_arguments_as_they_are() {
    let echo = tool(
        json!({"arguments": {"a": {}}, "argv": ["printf", "[%s]", "{{ a }}", "x={{ a }}"]}),
        json!({}),
    );
    for text_in in [
        "; id", "$(id)", "`id`", "a b\n* ?", "'\"", "%s%n", "--", "-x",
    ] {
        let refused = text_in.starts_with('-');
        let result = call(&echo, json!({"a": text_in})).await;
        match result {
            Ok(output) => assert_eq!(text(&output), format!("[{text_in}][x={text_in}]")),
            Err(problem) => assert!(refused && problem.contains("dash"), "{problem}"),
        }
    }
}

#[tokio::test]
async fn its_environment_is_clean_and_its_place_is_set() {
    let source = json!({"directory": "/tmp", "environment": {"OWN": "secret"}, "inherit": ["NO_SUCH_VARIABLE"]});
    let env = tool(json!({"argv": ["env"]}), source.clone());
    let output = call(&env, json!({})).await.expect("a result");
    let mut names: Vec<&str> = text(&output)
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["CHILD_OF_LONGSHORE", "LANG", "OWN", "PATH"]);
    assert_eq!(
        text(
            &call(&tool(json!({"argv": ["pwd"]}), source), json!({}))
                .await
                .expect("a result")
        ),
        "/tmp\n"
    );
}

#[tokio::test]
async fn what_it_reads_writes_and_ends_with() {
    let cat = tool(
        json!({"arguments": {"a": {}}, "argv": ["cat"], "stdin": "{{ a }}"}),
        json!({}),
    );
    let long = "x".repeat(500_000);
    assert_eq!(
        text(&call(&cat, json!({ "a": long })).await.expect("a result")),
        long
    );
    let unread = tool(
        json!({"arguments": {"a": {}}, "argv": ["true"], "stdin": "{{ a }}"}),
        json!({}),
    );
    assert_eq!(
        text(&call(&unread, json!({ "a": long })).await.expect("a result")),
        "the command wrote no output"
    );
    let blank = tool(json!({"argv": ["printf", " \\n"]}), json!({}));
    assert_eq!(
        text(&call(&blank, json!({})).await.expect("a result")),
        "the command wrote no output"
    );
    let half = tool(
        json!({"argv": ["echo", r#"{"a": "\ud800"}"#], "output": "json"}),
        json!({}),
    );
    let output = call(&half, json!({})).await.expect("JSON");
    assert_eq!(output.structured.as_deref(), Some("{\"a\":\"\u{fffd}\"}"));
    let silent = tool(
        json!({"argv": ["false"], "ok": [1], "output": "binary", "media_type": "image/png"}),
        json!({}),
    );
    assert_eq!(
        text(&call(&silent, json!({})).await.expect("ok here")),
        "the command ended with status 1 and wrote no output"
    );
    let json_out = tool(
        json!({"argv": ["echo", "{\"a\": 1}"], "output": "json"}),
        json!({}),
    );
    assert_eq!(
        call(&json_out, json!({}))
            .await
            .expect("JSON")
            .structured
            .as_deref(),
        Some("{\"a\":1}")
    );
    let no_json = tool(json!({"argv": ["echo", "a"], "output": "json"}), json!({}));
    assert!(call(&no_json, json!({})).await.is_err());
    let exit = tool(
        json!({
            "arguments": {"code": {"type": "integer"}},
            "argv": ["sh", "-c", "echo out; echo err >&2; exit $1", "sh", "{{ code }}"],
            "ok": [1], "errors": {"2": "there is no such thing"},
        }),
        json!({}),
    );
    assert_eq!(
        text(&call(&exit, json!({"code": 1})).await.expect("ok here")),
        "out\n"
    );
    assert_eq!(
        call(&exit, json!({"code": 2})).await.expect_err("2"),
        "there is no such thing"
    );
    assert_eq!(
        call(&exit, json!({"code": 3})).await.expect_err("3"),
        "the command ended with status 3: err"
    );
    let reports = tool(
        json!({"argv": ["sh", "-c", "echo first; seq 5000; echo last; exit 1"]}),
        json!({}),
    );
    let problem = call(&reports, json!({})).await.expect_err("1");
    assert!(
        problem.starts_with("the command ended with status 1: first\n1\n")
            && problem.ends_with("\n5000\nlast")
            && problem.len() < 2100,
        "{problem}"
    );
    let killed = tool(json!({"argv": ["sh", "-c", "kill -9 $$"]}), json!({}));
    assert_eq!(
        call(&killed, json!({})).await.expect_err("9"),
        "the command was ended by a signal"
    );
}

#[tokio::test]
async fn limits_end_it() {
    let much = tool(
        json!({"argv": ["yes"]}),
        json!({"limits": {"output_bytes": 10_000}}),
    );
    assert!(
        call(&much, json!({}))
            .await
            .expect_err("too much")
            .contains("more than 10000 bytes")
    );
    // Neither the end of its output nor its standard error, which stays open, keeps it running.
    let stubborn = "trap '' PIPE; while :; do echo x; sleep 0.001; done";
    let stubborn = tool(
        json!({"argv": ["sh", "-c", stubborn]}),
        json!({"limits": {"output_bytes": 10}}),
    );
    assert!(
        call(&stubborn, json!({}))
            .await
            .expect_err("too much")
            .contains("more than 10 bytes")
    );
    let unlimited = tool(
        json!({"argv": ["echo", "x"]}),
        json!({"limits": {"output_bytes": usize::MAX}}),
    );
    assert_eq!(
        text(&call(&unlimited, json!({})).await.expect("a result")),
        "x\n"
    );
    let slow = tool(
        json!({"argv": ["sleep", "1000"]}),
        json!({"limits": {"timeout_seconds": 1}}),
    );
    assert_eq!(
        call(&slow, json!({})).await.expect_err("slow"),
        "the command took longer than 1 s and was ended"
    );
    let limits = tool(
        json!({"argv": ["sh", "-c", "ulimit -v; ulimit -n; ulimit -c"]}),
        json!({"limits": {"memory_bytes": 1_073_741_824, "open_files": 99}}),
    );
    assert_eq!(
        text(&call(&limits, json!({})).await.expect("a result")),
        "1048576\n99\n0\n"
    );
}

#[tokio::test]
async fn arguments_that_no_command_line_can_hold_do_not_open_the_circuit_breaker() {
    let echo = tool(
        json!({"arguments": {"a": {}}, "argv": ["echo", "{{ a }}"]}),
        json!({}),
    );
    let long = "x".repeat(200_000);
    for _ in 0..6 {
        assert_eq!(
            call(&echo, json!({"a": long})).await.expect_err("too long"),
            "the arguments are too long for a command line; send shorter ones"
        );
    }
    assert_eq!(
        text(&call(&echo, json!({"a": "x"})).await.expect("a result")),
        "x\n"
    );
}

/// Returns true if a process is running, and not a zombie.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.trim_start().starts_with('Z'))
    })
}

async fn gone(pids: &[String]) {
    for _ in 0..6_000 {
        if !pids.iter().any(|pid| lives(pid)) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{pids:?} are still there");
}

#[tokio::test]
async fn nothing_that_it_started_outlives_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pids");
    // The descendants: one in the same process group, one with a session of its own, and the script itself.
    let script = "sleep 1000 & echo $! >> $0; setsid sleep 1000 & sleep 0.2; pgrep -s 0 >/dev/null; echo $$ >> $0; \
                  setsid sh -c 'echo $$ >> $0; exec sleep 1000' $0 & while [ $(wc -l < $0) -lt 3 ]; do sleep 0.01; done; echo ready >> $0; wait";
    let command = tool(
        json!({"argv": ["sh", "-c", script, file.to_str().expect("UTF-8")]}),
        json!({}),
    );
    let pids = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.ends_with("ready\n").then(|| {
            text.lines()
                .filter(|line| *line != "ready")
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
    };
    let running = tokio::spawn(async move { call(&command, json!({})).await.map(drop) });
    let pids = loop {
        if let Some(pids) = pids() {
            break pids;
        }
        assert!(!running.is_finished(), "{:?}", running.await);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| lives(pid)), "{pids:?}");
    running.abort();
    gone(&pids).await;
}

#[tokio::test]
async fn what_it_leaves_behind_ends_with_it() {
    let command = tool(
        json!({"argv": ["sh", "-c", "sleep 1000 & echo $!"]}),
        json!({}),
    );
    let output = call(&command, json!({})).await.expect("a result");
    gone(&[text(&output).trim().to_owned()]).await;
}

#[tokio::test]
async fn what_has_left_its_group_ends_with_it_and_holds_nothing_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pid");
    // The descendant would keep the output open.
    let script = "setsid sh -c 'echo $$ > $0; exec sleep 1000' $0 & while [ ! -s $0 ]; do sleep 0.01; done; echo done";
    let command = tool(
        json!({"argv": ["sh", "-c", script, file.to_str().expect("UTF-8")]}),
        json!({}),
    );
    let output = call(&command, json!({})).await.expect("a result");
    assert_eq!(text(&output), "done\n");
    let pid = std::fs::read_to_string(&file).expect("a process");
    gone(&[pid.trim().to_owned()]).await;
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (description, source, part) in [
        (
            json!({"argv": ["no-such-command-anywhere"]}),
            json!({}),
            "not installed",
        ),
        (json!({"argv": ["/etc/passwd"]}), json!({}), "not installed"),
        (
            json!({"argv": ["echo hello"]}),
            json!({}),
            "there is no program \"echo hello\"; write the program and each argument as an item of its own",
        ),
        (json!({"argv": []}), json!({}), "argv is empty"),
        (
            json!({"argv": ["{{ a }}"], "arguments": {"a": {}}}),
            json!({}),
            "write it out",
        ),
        (
            json!({"argv": ["echo", "{{ b }}"], "arguments": {"a": {}}}),
            json!({}),
            "\"b\"",
        ),
        (
            json!({"argv": ["echo"], "stdin": "{{ b }}"}),
            json!({}),
            "stdin",
        ),
        (
            json!({"argv": ["echo"], "errors": {"x": "y"}}),
            json!({}),
            "which is not an exit code",
        ),
        (
            json!({"argv": ["echo"]}),
            json!({"directory": "/nonexistent"}),
            "not a folder",
        ),
        (
            json!({"argv": ["echo"]}),
            json!({"environment": {"LD_PRELOAD": "x"}}),
            "LD_PRELOAD",
        ),
        (
            json!({"argv": ["echo"]}),
            json!({"inherit": ["A=B"]}),
            "is not a valid variable name",
        ),
    ] {
        let collector = collected(description.clone(), source);
        assert!(collector.offered.tools.is_empty(), "{description}");
        let refused = collector.offered.refused[0].to_string();
        assert!(
            refused.contains(part) && refused.contains("sources[0].command.tools[0] (t)"),
            "{refused}"
        );
    }
}
