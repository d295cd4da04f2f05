//! Has the linker make a smaller program, where it knows how.
//!
//! Relocations in their short form are a megabyte less to keep and to read at each start, and functions that came out
//! alike are kept once. Linkers differ, and so do C libraries; so what is asked for is tried with a program that does
//! nothing, which has to link and to run. Only the program of this package is linked that way, and only if it is optimized.

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const WISHES: [&str; 3] = ["-z,pack-relative-relocs", "--icf=all", "-O2"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let said = |name: &str| env::var_os(name).unwrap_or_default();
    // The short form is the system's to read: what is built for another one cannot be tried.
    let is_at_home = said("HOST") == said("TARGET") && cfg!(target_os = "linux");
    if said("OPT_LEVEL") == "0" || !is_at_home {
        return;
    }
    let mut granted: Vec<String> = Vec::new();
    for wish in WISHES {
        granted.push(format!("-Wl,{wish}"));
        if !links_and_runs(&granted) {
            granted.pop();
        }
    }
    for argument in granted {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}

fn links_and_runs(arguments: &[String]) -> bool {
    let (Some(compiler), Some(folder)) = (env::var_os("RUSTC"), env::var_os("OUT_DIR")) else {
        return false;
    };
    let trial = Path::new(&folder).join("trial");
    let mut command = Command::new(compiler);
    command
        .args(["-", "--crate-name=trial", "--crate-type=bin", "-o"])
        .arg(&trial);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut chosen = OsString::from("-Clinker=");
        chosen.push(linker);
        command.arg(chosen);
    }
    let flags = env::var_os("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let flags = flags.to_string_lossy();
    command.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    for argument in arguments {
        command.arg(format!("-Clink-arg={argument}"));
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(mut compiling) = command.spawn() else {
        return false;
    };
    let given = compiling
        .stdin
        .take()
        .is_some_and(|mut source| source.write_all(b"fn main() {}").is_ok());
    let linked = compiling.wait().is_ok_and(|status| status.success());
    given
        && linked
        && Command::new(&trial)
            .status()
            .is_ok_and(|status| status.success())
}
