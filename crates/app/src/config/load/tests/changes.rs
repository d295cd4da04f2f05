//! Changes between two configurations.

use super::*;

#[test]
fn changes_are_told_with_when_they_take_effect_also_those_of_secrets() {
    let (folder, flags) = file(
        "a.yaml",
        "server: {name: a}\nhttp: {port: 1}\nseal: {keys: [one one one one one one one one one]}\n",
    );
    let probe = Probe::of([("HOME", "/")]);
    let before = Loaded::read(&flags, &probe).expect("valid");
    std::fs::write(
        folder.path().join("a.yaml"),
        "server: {name: b}\nhttp: {port: 2}\nseal: {keys: [two two two two two two two two two]}\n",
    )
    .expect("written");
    let after = before.read_again(&probe).expect("valid");
    let expected = [
        ("http.port", Reload::Restart),
        ("seal.keys", Reload::Restart),
        ("server.name", Reload::Live),
    ];
    assert_eq!(
        before.changes(&after),
        expected.map(|(name, reload)| (name.to_owned(), reload))
    );
    assert_eq!(after.changes(&after), []);
}

#[test]
fn a_file_that_became_empty_removes_no_settings() {
    let (folder, flags) = file("a.yaml", "policy: {default: deny}\n");
    let probe = Probe::of([("HOME", "/")]);
    let before = Loaded::read(&flags, &probe).expect("valid");
    let after = |text: &str| {
        std::fs::write(folder.path().join("a.yaml"), text).expect("written");
        before.read_again(&probe).map_err(|error| error.to_string())
    };
    assert!(after("").is_err_and(|error| error.contains("it is empty")));
    let emptied = after("# nothing\n").expect("valid");
    assert_eq!(before.changes(&emptied).len(), 1);
}

#[test]
fn an_entry_of_a_map_takes_effect_when_the_map_does() {
    let probe = Probe::of([("HOME", "/")]);
    let read = |text: &str| {
        let (folder, flags) = file("a.yaml", text);
        let loaded = Loaded::read(&flags, &probe).expect("valid");
        drop(folder);
        loaded
    };
    let all = [
        "auth: {}",
        "auth: {implied_scopes: {admin: [a]}}",
        "auth: {implied_scopes: {admin: [a, b]}}",
        "auth: {implied_scopes: {admin: [a, b], other: [c]}}",
    ];
    for pair in all.map(read).windows(2) {
        let changes = pair[0].changes(&pair[1]);
        let is_live = |(name, reload): &(String, Reload)| {
            name.starts_with("auth.implied_scopes") && *reload == Reload::Live
        };
        assert!(
            !changes.is_empty() && changes.iter().all(is_live),
            "{changes:?}"
        );
    }
}

#[test]
fn a_secret_that_changes_is_named_however_deep_it_is_and_what_is_said_otherwise_is_none() {
    let text = |secret: &str| {
        format!(
            "upstreams:\n  a: {{command: a, env: {{TOKEN: {secret}}}}}\nbuiltin:\n  sql: {{databases: [{{name: d, postgres: 'postgres://u:{secret}@h/d'}}]}}\n\
             sources:\n  - name: s\n    http:\n      base_url: https://a.example\n      headers: {{a: {secret}, b: x}}\n      \
             tools: [{{name: t, description: T., url: '/?key={secret}'}}]\n"
        )
    };
    let probe = Probe::of([("HOME", "/")]);
    let read = |text: &str| {
        let (folder, flags) = file("a.yaml", text);
        let loaded = Loaded::read(&flags, &probe).expect("valid");
        drop(folder);
        loaded
    };
    let (before, after) = (read(&text("swordfish")), read(&text("haddock")));
    let names: Vec<_> = before.changes(&after).into_iter().map(|c| c.0).collect();
    let expected = [
        "builtin.sql.databases[0].postgres",
        "sources[0].http.headers.a",
        "sources[0].http.tools[0].url",
        "upstreams.a.env.TOKEN",
    ];
    assert_eq!(names, expected);
    // An equivalent file, with a default written out.
    let same = text("swordfish").replace("upstreams:", "mcpServers:") + "http: {port: 3000}\n";
    assert_eq!(before.changes(&read(&same)), []);
}

#[test]
fn an_entry_that_comes_or_goes_is_named_as_a_whole() {
    let probe = Probe::of([("HOME", "/")]);
    let read = |text: &str| {
        let (folder, flags) = file("a.yaml", text);
        let loaded = Loaded::read(&flags, &probe).expect("valid");
        drop(folder);
        loaded
    };
    let none = read("toolsets: [time]");
    let one = read("upstreams: {a: {command: a}}\ntoolsets: [time]");
    let two = read("upstreams: {a: {command: a}, b: {command: b}}\ntoolsets: [time]");
    let expected = |name: &str| [(name.to_owned(), Reload::Restart)];
    assert_eq!(none.changes(&one), expected("upstreams.a"));
    assert_eq!(one.changes(&none), expected("upstreams.a"));
    assert_eq!(one.changes(&two), expected("upstreams.b"));
}

#[test]
fn the_last_key_may_be_taken_away_from_a_server_that_runs() {
    let key = "auth: {api_keys: ['me=a-key-that-is-long-enough-to-be-one']}\n";
    let public = "http: {host: 0.0.0.0}\n";
    let (folder, flags) = file("a.yaml", &format!("{public}{key}"));
    let probe = Probe::of([("HOME", "/")]);
    let before = Loaded::read(&flags, &probe).expect("valid");
    std::fs::write(folder.path().join("a.yaml"), public).expect("written");
    let after = before.read_again(&probe).expect("valid");
    assert!(after.config.auth.api_keys.is_empty());
    assert_eq!(before.changes(&after)[0].0, "auth.api_keys");
    // And stays away.
    assert!(after.read_again(&probe).is_ok());
    let refused = Loaded::read(&flags, &probe).expect_err("authentication is off");
    assert!(refused.to_string().contains("authentication is off"));
}
