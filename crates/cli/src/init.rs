//! `longshore init`: generates a configuration or a Rust project.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::client::shell_word;
use super::output::{self, root_url};
use crate::app::AppError;
use crate::environment::Probe;
use longshore_app::config::{Config, Flags, Loaded, schema};

const CONFIGURATION: &str = include_str!("init/longshore.yaml");
const MANIFEST: &str = include_str!("init/Cargo.toml.txt");
const PROGRAM: &str = include_str!("init/main.rs");
const README: &str = include_str!("init/README.md.txt");
const DOCKERFILE: &str = include_str!("init/Dockerfile.txt");
const CARGO_CONFIG: &str = include_str!("init/cargo-config.toml.txt");

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Target folder, created if needed [default: this folder]
    #[arg(default_value = ".", hide_default_value = true)]
    folder: PathBuf,

    /// Name of the server [default: the folder's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Write a Rust project with a tool and its test, instead of a configuration for tools without code
    #[arg(long)]
    rust: bool,

    /// With --rust: the folder of the Longshore checkout to build on [default: the one that this program was built
    /// in]
    #[arg(long = "path", value_name = "FOLDER", requires = "rust")]
    copy: Option<PathBuf>,
}

/// Path of a file to write, relative to the folder, and its text.
type Written = (&'static str, String);

/// Writes the files, unless one exists, and prints the next steps.
pub(super) fn init(args: InitArgs) -> Result<(), Failure> {
    let name = match args.name {
        Some(name) => name,
        None => name_of(&args.folder).map_err(|error| of_folder(&args.folder, &error))?,
    };
    let files = if args.rust {
        let copy = match args.copy {
            Some(copy) => checked(&copy)?,
            None => std::env::current_exe()
                .ok()
                .and_then(|program| around(&program))
                .ok_or_else(|| {
                    refused(
                        "Longshore has no release yet, so a project depends on its source code: name its folder with --path"
                            .to_owned(),
                    )
                })?,
        };
        project(&name, &copy)
    } else {
        configuration(&name)
    };
    write(&args.folder, &files)?;
    for (path, _) in &files {
        output::remark(&format!("wrote {}", args.folder.join(path).display()));
    }
    output::remark(&next(&args.folder, args.rust));
    Ok(())
}

fn configuration(name: &str) -> Vec<Written> {
    // A JSON string is a valid YAML string.
    let name = serde_json::json!(name).to_string();
    vec![
        (
            "longshore.yaml",
            CONFIGURATION.replacen("{{ name }}", &name, 1),
        ),
        ("longshore.schema.json", format!("{:#}\n", schema())),
    ]
}

fn project(name: &str, copy: &Path) -> Vec<Written> {
    let (name, copy) = (package_name(name), copy.to_string_lossy());
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let manifest = MANIFEST.replacen("{{ name }}", &quoted(&name), 1).replacen(
        "{{ path }}",
        &quoted(&copy),
        1,
    );
    let dockerfile = DOCKERFILE
        .replace("{{ name }}", &name)
        .replace("{{ path }}", &copy);
    vec![
        ("Cargo.toml", manifest),
        ("src/main.rs", PROGRAM.to_owned()),
        ("README.md", README.replacen("{{ name }}", &name, 1)),
        (".cargo/config.toml", CARGO_CONFIG.to_owned()),
        ("Dockerfile", dockerfile),
        (".dockerignore", "/target\n".to_owned()),
        (".gitignore", "/target\n".to_owned()),
    ]
}

/// Names that a package with a program cannot have: those of a dependency, of Rust's standard crates, and of folders of Cargo.
const RESERVED: [&str; 10] = [
    "longshore",
    "test",
    "core",
    "std",
    "alloc",
    "proc-macro",
    "build",
    "deps",
    "examples",
    "incremental",
];

/// Returns a valid package name that is close to the requested one.
fn package_name(name: &str) -> String {
    let mut package: String = name
        .chars()
        .map(|c| match c {
            'A'..='Z' => c.to_ascii_lowercase(),
            'a'..='z' | '0'..='9' | '-' | '_' => c,
            _ => '-',
        })
        .collect();
    let begins_with_letter = package.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins_with_letter || RESERVED.contains(&&*package) {
        package.insert_str(0, "mcp-");
    }
    package
}

/// Returns the folder's name, also for paths such as `.`.
fn name_of(folder: &Path) -> io::Result<String> {
    let absolute = match fs::canonicalize(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(folder)?,
        found => found?,
    };
    let name = absolute.file_name().map(|name| name.to_string_lossy());
    Ok(name.map_or_else(|| "server".to_owned(), Into::into))
}

/// Returns the Longshore checkout that contains the program.
fn around(program: &Path) -> Option<PathBuf> {
    let mut folders = program.ancestors().skip(1);
    folders.find(|folder| is_longshore(folder)).map(Into::into)
}

fn is_longshore(folder: &Path) -> bool {
    fs::read_to_string(folder.join("Cargo.toml"))
        .is_ok_and(|manifest| manifest.lines().any(|line| line == "name = \"longshore\""))
}

fn checked(copy: &Path) -> Result<PathBuf, Failure> {
    if !is_longshore(copy) {
        return Err(refused(format!(
            "{} is not the source code of Longshore: its Cargo.toml is missing or another one",
            copy.display()
        )));
    }
    // The project folder may be elsewhere, so the path must be absolute.
    std::path::absolute(copy).map_err(|error| of_folder(copy, &error))
}

/// Writes all files, or none if one exists.
fn write(folder: &Path, files: &[Written]) -> Result<(), Failure> {
    for (path, _) in files {
        let path = folder.join(path);
        if fs::symlink_metadata(&path).is_ok() {
            return Err(refused(format!(
                "{} exists already, and nothing was written; name another folder, or move it",
                path.display()
            )));
        }
    }
    for (path, text) in files {
        let path = folder.join(path);
        let made = || {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::File::create_new(&path)?.write_all(text.as_bytes())
        };
        made().map_err(|error| of_folder(&path, &error))?;
    }
    Ok(())
}

fn next(folder: &Path, rust: bool) -> String {
    let quoted = |path: &Path| shell_word(&path.to_string_lossy());
    if !rust {
        let file = folder.join("longshore.yaml");
        let file = quoted(file.strip_prefix(".").unwrap_or(&file));
        return format!("\nnext   longshore run --config {file}");
    }
    let enter = match folder == Path::new(".") {
        true => String::new(),
        false => format!("cd {} && ", quoted(folder)),
    };
    let address = address(Probe::real());
    format!(
        "\nnext   {enter}cargo test       tests its tools; the first build takes a minute or two\n       \
         {enter}cargo run        serves it at {address}"
    )
}

/// Returns the address at which a new project will serve.
fn address(probe: &Probe) -> String {
    let http = match Loaded::read(&Flags::default(), probe) {
        Ok(loaded) => loaded.config.http.clone(),
        // The server reports invalid settings itself.
        Err(_) => Config::default().http,
    };
    format!("{}mcp", root_url("http", (http.host, http.port).into()))
}

fn refused(problem: String) -> Failure {
    AppError::Refused(problem).into()
}

fn of_folder(path: &Path, error: &io::Error) -> Failure {
    refused(format!("cannot use {}: {error}", path.display()))
}

/// Compiles the generated project and runs its test.
#[cfg(test)]
#[path = "init/main.rs"]
#[expect(dead_code, reason = "it is a workspace member of another program")]
mod program;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generated_program_uses_the_public_api_only() {
        // It is compiled as a module of this crate, where private paths resolve too.
        let imports = PROGRAM
            .lines()
            .filter(|line| line.trim_start().starts_with("use "));
        let foreign = |line: &&str| {
            let known = ["longshore::", "std::", "serde_json::", "super::*"];
            !known
                .iter()
                .any(|path| line.trim_start()[4..].starts_with(path))
        };
        assert_eq!(imports.filter(foreign).collect::<Vec<_>>(), [""; 0]);
        assert!(!PROGRAM.contains("crate::"));
    }

    #[test]
    fn a_package_has_a_name_that_cargo_takes() {
        for (name, package) in [
            ("weather", "weather"),
            ("My Server", "my-server"),
            ("42", "mcp-42"),
            ("-x", "mcp--x"),
            ("longshore", "mcp-longshore"),
            ("build", "mcp-build"),
            ("Wetter für alle", "wetter-f-r-alle"),
            ("", "mcp-"),
        ] {
            assert_eq!(package_name(name), package);
        }
    }

    #[test]
    fn the_address_is_that_of_these_surroundings() {
        let of = |variables: &[(&str, &str)]| address(&Probe::of(variables.iter().copied()));
        assert_eq!(of(&[]), "http://127.0.0.1:3000/mcp");
        assert_eq!(of(&[("container", "podman")]), "http://127.0.0.1:8080/mcp");
        assert_eq!(
            of(&[("LONGSHORE_PORT", "4000")]),
            "http://127.0.0.1:4000/mcp"
        );
    }

    #[test]
    fn whatever_a_server_is_called_its_files_can_be_read() {
        let name = "a \"b\" #{{ c }} \\ d\n";
        let files = configuration(name);
        let read: serde_json::Value = serde_saphyr::from_str(&files[0].1).expect("YAML");
        assert_eq!(read["server"]["name"], name);
        let files = project(name, Path::new("/a \"folder\""));
        let read: toml::Table = files[0].1.parse().expect("TOML");
        let path = &read["dependencies"]["longshore"]["path"];
        assert_eq!(path.as_str(), Some("/a \"folder\""));
    }

    #[test]
    fn the_copy_that_a_program_was_built_in_is_found() {
        let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = crate_folder.ancestors().nth(2).expect("the workspace");
        let built = root.join("target/release/longshore");
        assert_eq!(around(&built).as_deref(), Some(root));
        assert_eq!(around(Path::new("/usr/local/bin/longshore")), None);
    }
}
