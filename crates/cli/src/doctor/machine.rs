//! Local checks: ports, files, CPU, memory, keys, programs and the clock.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::report::{Check, Finding, Report};
use crate::cli::healthcheck;
use crate::environment::{Probe, unix_seconds};
use crate::protocol::counted;
use crate::seal::KeyRing;
use crate::source::find_program;
use crate::transport::http::Tls;
use longshore_app::config::{Config, Loaded, Origin, Transport};

const AREA: &str = "machine";
/// Open files of the server besides connections.
const OTHER_FILES: u64 = 512;
/// Sufficient number of connections if the settings have none.
const MANY_CONNECTIONS: u64 = 4096;
/// Estimated memory of a connection, with buffers and a stream.
const CONNECTION_BYTES: u64 = 32 * 1024;
/// Memory of the process outside of all budgets.
const BASE_BYTES: u64 = 48 * 1024 * 1024;
/// 2025-01-01: a clock before this date is wrong.
const PAST: Duration = Duration::from_secs(1_735_689_600);

pub(super) fn examine(loaded: &Loaded, probe: &Probe, report: &mut Report) {
    report.add(settings(loaded));
    let config = &loaded.config;
    if config.transport == Transport::Http {
        report.add(match &config.http.unix_socket {
            Some(path) => socket(path),
            None => port(
                "port",
                SocketAddr::new(config.http.host, config.http.port),
                "http.port (--port, LONGSHORE_PORT)",
            ),
        });
        if let Some(address) = config.http.admin.address(config.http.host) {
            report.add(port("admin port", address, "http.admin.port"));
        }
        report.add(open_files(loaded));
        report.add(workers(loaded));
        report.add(memory(loaded));
        if let Some(finding) = memory_limit(config.limits.memory_bytes) {
            report.add(finding);
        }
        report.add(callers(config, probe));
        report.add(seal_keys(config, probe));
        if let Some(finding) = certificate(config) {
            report.add(finding);
        }
    }
    for finding in programs(config, probe) {
        report.add(finding);
    }
    if let Some(folder) = &config.upstreams_folder {
        report.add(writable("upstreams_folder", folder));
    }
    if let Some(folder) = &config.tokens.folder {
        report.add(writable("tokens.folder", folder));
    }
    report.add(clock());
}

fn settings(loaded: &Loaded) -> Finding {
    let explained = loaded.explain();
    let set = explained
        .iter()
        .filter(|one| one.origin != Origin::Default)
        .count();
    let file = loaded
        .file
        .as_deref()
        .map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    Check("configuration", "settings").ok(format!(
        "valid: {file}, {} not at the default; {}",
        counted(set, "setting"),
        loaded.environment.summary()
    ))
}

fn port(check: &str, address: SocketAddr, setting: &str) -> Finding {
    if address.port() == 0 {
        return Check(AREA, check).ok("any free port");
    }
    let error = match TcpListener::bind(address) {
        Ok(_) => return Check(AREA, check).ok(format!("{address} is free")),
        Err(error) => error,
    };
    match error.kind() {
        io::ErrorKind::AddrInUse if healthcheck::is_served(address) => Check(AREA, check)
            .warning(format!("another Longshore server listens on {address}"))
            .advise(format!(
                "stop it before you start another one, or change {setting}"
            )),
        io::ErrorKind::AddrInUse => Check(AREA, check)
            .failure(format!("another program listens on {address}"))
            .advise(format!("stop that program, or change {setting}")),
        io::ErrorKind::PermissionDenied => Check(AREA, check)
            .failure(format!("this user may not listen on {address}"))
            .advise(format!(
                "set {setting} to a port of 1024 or more, such as 8080"
            )),
        io::ErrorKind::AddrNotAvailable => Check(AREA, check)
            .failure(format!(
                "this machine does not have the address {}",
                address.ip()
            ))
            .advise(
                "set http.host to 0.0.0.0 (all interfaces), or to an address that `ip addr` lists",
            ),
        _ => Check(AREA, check)
            .failure(format!("{address}: {error}"))
            .advise(format!("change {setting}")),
    }
}

/// Checks that a socket can be created at a path.
fn socket(path: &Path) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "socket");
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() {
        let problem = format!("the folder {} does not exist", folder.display());
        return CHECK
            .failure(problem)
            .advise("create it, or set http.unix_socket to a path in another folder");
    }
    if path.exists() {
        #[cfg(unix)]
        if !std::fs::metadata(path)
            .is_ok_and(|file| std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()))
        {
            let problem = format!("{} exists, and is not a socket", path.display());
            return CHECK
                .failure(problem)
                .advise("set http.unix_socket to another path, or delete the file");
        }
        #[cfg(unix)]
        if healthcheck::is_listening(path) {
            return CHECK
                .warning(format!("a program listens at {}", path.display()))
                .advise("stop it before you start another one, or change http.unix_socket");
        }
        return CHECK.ok(format!(
            "{} was left by a server that no longer runs",
            path.display()
        ));
    }
    match writable("http.unix_socket", folder) {
        found if found.advice.is_empty() => CHECK.ok(format!("{} is free", path.display())),
        found => found,
    }
}

fn open_files(loaded: &Loaded) -> Finding {
    let wanted = loaded.config.http.limits.connections as u64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let is_said = loaded.explain().into_iter().any(|one| {
        one.setting == "http.limits.connections"
            && !matches!(one.origin, Origin::Default | Origin::Detected { .. })
    });
    // The server raises the soft limit.
    judge_open_files(limit.maximum, wanted, is_said)
}

/// Without a configured maximum, the number of connections follows from the file limit, and only a low one is
/// reported.
fn judge_open_files(may: Option<u64>, connections: u64, is_said: bool) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "open files");
    let Some(may) = may else {
        return CHECK.ok("no limit");
    };
    let needed = connections + OTHER_FILES;
    if needed <= may {
        return CHECK.ok(format!(
            "the limit is {may}, and {connections} connections need {needed}"
        ));
    }
    let left = may.saturating_sub(OTHER_FILES).max(64);
    if !is_said && MANY_CONNECTIONS <= left {
        return CHECK.ok(format!(
            "the limit is {may}, which is enough for {left} connections"
        ));
    }
    CHECK.warning(format!(
            "the limit is {may}, which is enough for {left} connections; http.limits.connections is {connections}"
        ))
    .advise(format!(
        "raise the limit to {needed}: `ulimit -n {needed}`; systemd: LimitNOFILE={needed}; Docker: --ulimit nofile={needed}"
    ))
    .advise(format!("or set http.limits.connections = {left}"))
}

fn workers(loaded: &Loaded) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "CPU");
    let cpu = loaded.environment.system.cpu_millis.as_ref();
    let (Some(cpu), Some(cores)) = (cpu, loaded.environment.system.parallelism()) else {
        return CHECK.skipped("the amount cannot be determined");
    };
    let workers = loaded
        .config
        .http
        .workers
        .map_or(cores.value, |workers| workers as u64);
    let share = format!("{}.{:02}", cpu.value / 1000, cpu.value % 1000 / 10);
    let seen = format!("{workers} workers for {share} cores ({})", cpu.evidence);
    if cores.value * 2 < workers {
        return CHECK.warning(seen).advise(format!(
            "more workers than cores share the cores: set http.workers to {}, or remove it",
            cores.value
        ));
    }
    if cpu.value < 250 {
        return CHECK.warning(seen).advise(
            "with less than a quarter of a core the process is throttled for most of each 100 ms: resources.limits.cpu: \"1\", or no limit and a request",
        );
    }
    CHECK.ok(seen)
}

fn memory(loaded: &Loaded) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "memory");
    let system = &loaded.environment.system;
    let Some(memory) = &system.memory_bytes else {
        return CHECK.skipped("the amount cannot be determined");
    };
    let config = &loaded.config;
    let state = if config.state.is_shared() {
        0
    } else {
        config.state.memory_bytes as u64
    };
    let needed = BASE_BYTES
        + state
        + config.server.contents_cache_bytes as u64
        + config.http.limits.connections as u64 * CONNECTION_BYTES;
    judge_memory(memory.value, &memory.evidence, needed)
}

fn judge_memory(there: u64, evidence: &str, needed: u64) -> Finding {
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let seen = format!(
        "{} MiB ({evidence}); caches, state and the maximum number of connections need {} MiB",
        mib(there),
        mib(needed)
    );
    if needed <= there {
        return Check(AREA, "memory").ok(seen);
    }
    Check(AREA, "memory")
        .warning(seen)
        .advise(format!(
            "raise it: resources.limits.memory: {}Mi; Cloud Run: --memory={}Mi",
            mib(needed).next_multiple_of(64),
            mib(needed).next_multiple_of(64)
        ))
        .advise("or lower http.limits.connections, state.memory_bytes, server.contents_cache_bytes")
}

/// Checks that memory use at start is below the configured limit. 0 is no limit.
fn memory_limit(bytes: u64) -> Option<Finding> {
    (1..BASE_BYTES).contains(&bytes).then(|| {
        let seen = format!("limits.memory_bytes is {bytes}: an idle server may use that much, and then rejects everything");
        Check(AREA, "memory limit").warning(seen)
            .advise(format!("set it to at least {BASE_BYTES}, or remove it: in a container its memory limit applies"))
    })
}

fn callers(config: &Config, probe: &Probe) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "callers");
    if config.auth.proves_anything() {
        let kinds: Vec<_> = config
            .auth
            .kinds()
            .iter()
            .map(|kind| kind.names().0)
            .collect();
        return match &config.auth.anonymous {
            None => CHECK.ok(format!("asked for {}", kinds.join(", "))),
            Some(name) => CHECK.ok(format!(
                "required: {}; requests without credentials are {name:?} (auth.anonymous)",
                kinds.join(", ")
            )),
        };
    }
    if config.http.host.is_loopback() || config.http.unix_socket.is_some() {
        return CHECK.ok("no authentication; only this machine can connect");
    }
    let place = if probe.is_in_container() {
        "everyone who reaches the container"
    } else {
        "everyone who reaches this machine"
    };
    CHECK.warning(format!("no authentication: {place} can use the tools"))
    .advise("API keys: `longshore key new`, then auth.api_keys; or auth.oauth.issuer")
    .advise("or authenticate in a proxy, and close the port to all others: NetworkPolicy; Cloud Run: ingress: internal")
}

fn seal_keys(config: &Config, probe: &Probe) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "seal keys");
    const HOW: &str = "seal.keys = [\"…\"] with a secret of `openssl rand -base64 32`, the same on every replica \
                       (LONGSHORE_SEAL__KEYS_FILE names a file with it; chart: seal.existingSecret)";
    match KeyRing::new(&config.seal) {
        Err(error) => CHECK.failure(error.to_string()).advise(HOW),
        Ok(ring) if ring.is_shared() => CHECK.ok(match config.seal.keys.len() {
                1 => "set, and the same on all replicas if you configure it so".to_owned(),
                several => format!("{several} keys are set; the first one seals"),
            }),
        Ok(_) if config.http.host.is_loopback() && !probe.is_in_container() => CHECK.ok("generated at start: sessions end with the process"),
        Ok(_) => CHECK.warning("generated at start: other replicas, and this one after a restart, respond to its sessions with 404")
        .advise(HOW),
    }
}

fn certificate(config: &Config) -> Option<Finding> {
    const CHECK: Check<'_> = Check(AREA, "certificate");
    let path = config.http.tls.certificate.as_ref()?;
    Some(match Tls::load(&config.http.tls) {
        Err(error) => CHECK
            .failure(error.to_string())
            .advise("set http.tls.certificate (the whole chain) and http.tls.key to PEM files"),
        Ok(tls) => tls
            .and_then(|tls| tls.validity())
            .and_then(|validity| super::remote::judge_expiry(AREA, validity, unix_seconds()))
            .unwrap_or_else(|| CHECK.ok(format!("{} can be used", path.display()))),
    })
}

/// Checks for programs that upstream servers and command tools need.
fn programs(config: &Config, probe: &Probe) -> Vec<Finding> {
    let folders = probe.variable("PATH").unwrap_or_default();
    let mut findings = Vec::new();
    for (name, upstream) in &config.upstreams {
        if let Some(command) = upstream.command.as_deref().filter(|_| !upstream.disabled) {
            findings.push(program(&format!("upstreams.{name}"), command, folders));
        }
    }
    for source in &config.sources {
        for tool in source.command.iter().flat_map(|command| &command.tools) {
            let first = tool.argv.first().and_then(serde_json::Value::as_str);
            if let Some(command) = first.filter(|word| !word.contains("{{")) {
                findings.push(program(&format!("tool {}", tool.name), command, folders));
            }
        }
    }
    findings
}

fn program(of: &str, command: &str, folders: &str) -> Finding {
    match find_program(command, OsStr::new(folders)) {
        Some(path) => Check("programs", of).ok(path.display().to_string()),
        None => Check("programs", of).failure(format!("the program {command} was not found"))
            .advise(format!(
                "install {command}, or write its whole path; images: the variant `runtime` has Node, Python, uv and git (image.variant: runtime)"
            )),
    }
}

fn writable(setting: &str, folder: &Path) -> Finding {
    let probe = folder.join(".longshore-doctor");
    let missing = folder.ancestors().take_while(|folder| !folder.exists());
    let missing: Vec<_> = missing.collect();
    // Of a check that was killed. A new file, so that no link of another user is followed.
    let _ = std::fs::remove_file(&probe);
    let written = std::fs::create_dir_all(folder).and_then(|()| File::create_new(&probe));
    let _ = std::fs::remove_file(&probe);
    // The server creates its folder as its own user. A folder that is in use by now is not empty, and stays.
    for created in missing {
        let _ = std::fs::remove_dir(created);
    }
    match written {
        Ok(_) => Check(AREA, setting).ok(format!("{} can be written", folder.display())),
        Err(error) => Check(AREA, setting).warning(format!("{} cannot be written: {error}", folder.display()))
        .advise("mount a volume there that this user can write (Kubernetes: emptyDir and securityContext.fsGroup)"),
    }
}

fn clock() -> Finding {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    match now {
        Ok(now) if PAST <= now => Check(AREA, "clock").ok(jiff::Timestamp::from_second(
            i64::try_from(now.as_secs()).unwrap_or(0),
        )
        .map_or_else(|_| "set".to_owned(), |now| now.to_string())),
        _ => Check(AREA, "clock")
            .failure("it is far in the past: tokens and certificates will be rejected")
            .advise("set it: `timedatectl set-ntp true`"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Status;
    use super::*;

    #[test]
    fn a_port_is_free_or_taken() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("bound");
        let found = port("port", address, "http.port");
        assert_eq!(found.status, Status::Failure, "{found:?}");
        assert!(found.advice[0].contains("http.port"), "{found:?}");
        drop(taken);
        assert_eq!(port("port", address, "http.port").status, Status::Ok);
        let elsewhere = port(
            "port",
            SocketAddr::from(([192, 0, 2, 1], 8080)),
            "http.port",
        );
        assert_eq!(elsewhere.status, Status::Failure);
        assert!(elsewhere.advice[0].contains("http.host"), "{elsewhere:?}");
    }

    #[test]
    fn files_and_memory_are_judged_at_their_edges() {
        assert_eq!(judge_open_files(None, 20_000, true).status, Status::Ok);
        let enough = judge_open_files(Some(20_512), 20_000, true);
        assert_eq!(enough.status, Status::Ok);
        // As many as there are files for will do where nobody has said how many, and a thousand is not many.
        let all = judge_open_files(Some(20_000), 20_000, false);
        assert_eq!(all.status, Status::Ok, "{all:?}");
        assert!(all.seen.contains("19488 connections"), "{all:?}");
        let said = judge_open_files(Some(20_000), 20_000, true);
        assert_eq!(said.status, Status::Warning);
        let few = judge_open_files(Some(1024), 20_000, false);
        assert_eq!(few.status, Status::Warning);
        assert!(few.advice[0].contains("LimitNOFILE=20512"), "{few:?}");
        assert!(few.advice[1].contains("connections = 512"), "{few:?}");
        assert_eq!(judge_memory(100 << 20, "x", 100 << 20).status, Status::Ok);
        let little = judge_memory(100 << 20, "memory.max", 101 << 20);
        assert_eq!(little.status, Status::Warning);
        assert!(little.advice[0].contains("memory: 128Mi"), "{little:?}");
        assert_eq!((memory_limit(0), memory_limit(BASE_BYTES)), (None, None));
        assert!(memory_limit(BASE_BYTES - 1).is_some());
    }

    #[test]
    fn a_folder_that_is_created_for_a_check_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let new = folder.path().join("a/b");
        assert_eq!(writable("tokens.folder", &new).status, Status::Ok);
        assert!(!folder.path().join("a").exists() && folder.path().exists());
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").expect("written");
        let probe = folder.path().join(".longshore-doctor");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&file, &probe).expect("a link");
        let found = writable("tokens.folder", folder.path());
        assert_eq!(found.status, Status::Ok, "{found:?}");
        assert!(!probe.is_symlink());
        assert_eq!(std::fs::read(&file).expect("read"), b"kept");
        let found = writable("tokens.folder", &file.join("b"));
        assert_eq!(found.status, Status::Warning, "{found:?}");
    }

    #[test]
    fn programs_are_looked_for_where_they_would_be_started() {
        let found = program("upstreams.a", "sh", "/nowhere:/bin:/usr/bin");
        assert_eq!(found.status, Status::Ok, "{found:?}");
        let missing = program("upstreams.a", "no-such-program", "/bin");
        assert_eq!(missing.status, Status::Failure);
        assert!(missing.advice[0].contains("image.variant"), "{missing:?}");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(
            program("x", file, "").status,
            Status::Failure,
            "a file that is no program"
        );
    }

    #[test]
    fn keys_of_a_process_alone_are_a_warning_where_there_may_be_several() {
        let mut config = Config::default();
        let nowhere = Probe::default();
        assert_eq!(seal_keys(&config, &nowhere).status, Status::Ok);
        let pod = Probe::of([("KUBERNETES_SERVICE_HOST", "10.0.0.1")]);
        assert_eq!(seal_keys(&config, &pod).status, Status::Warning);
        config.seal.keys = vec!["short".to_owned().into()];
        assert_eq!(seal_keys(&config, &pod).status, Status::Failure);
        config.seal.keys = vec!["a secret of more than thirty-two bytes".to_owned().into()];
        let good = seal_keys(&config, &pod);
        assert_eq!(good.status, Status::Ok);
        assert!(!format!("{good:?}").contains("thirty-two"));
    }
}
