//! Connections to servers with certificates of a private CA. The program runs by itself: trust lasts as long as the process.

use crate::support::{Running, Serve, longshore, said, tls_file};

fn server_with_tls() -> Running {
    Serve::new().tls().toolset("time").start()
}

const UNKNOWN: &str =
    "no TLS connection to localhost could be established: invalid peer certificate: UnknownIssuer";

#[test]
fn upstreams_of_a_private_ca_are_reached_with_ca_file() {
    let server = server_with_tls();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(tls_file("ca.crt"), folder.path().join("ca.pem")).expect("copied");
    let path = folder.path().join("longshore.yaml");
    let path = path.to_str().expect("UTF-8");
    let upstream = format!(
        "upstreams: {{up: {{url: 'https://localhost:{}/mcp', on_down: error}}}}\n",
        server.address().port()
    );
    let check = |text: &str| {
        std::fs::write(path, format!("{text}{upstream}")).expect("written");
        said(&mut longshore(&["config", "check", "--config", path], &[]))
    };

    let (code, text) = check("");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(UNKNOWN), "{text}");
    let (code, text) = check("ca_file: ca.pem\n");
    assert_eq!(code, Some(0), "{text}");

    for (name, problem) in [
        ("missing.pem", "it cannot be read: "),
        ("longshore.yaml", "it contains no certificate in PEM form; "),
    ] {
        let (code, text) = check(&format!("ca_file: {name}\n"));
        assert_eq!(code, Some(1), "{text}");
        let expected = format!("ca_file: {}/{name}: {problem}", folder.path().display());
        assert!(text.contains(&expected), "{expected:?} is not in: {text}");
    }
}

#[test]
fn client_commands_use_the_variable() {
    let server = server_with_tls();
    let url = format!("https://localhost:{}/mcp", server.address().port());
    let (code, text) = said(&mut longshore(&["list", &url], &[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(UNKNOWN), "{text}");
    let (code, text) = said(&mut longshore(
        &["list", &url],
        &[(
            "LONGSHORE_CA_FILE",
            &tls_file("ca.crt").display().to_string(),
        )],
    ));
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = said(&mut longshore(
        &["list", &url],
        &[("LONGSHORE_CA_FILE", "/missing.pem")],
    ));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("ca_file: /missing.pem: "), "{text}");
}
