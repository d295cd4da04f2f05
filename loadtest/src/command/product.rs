//! The programs that are measured, and how they are started.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{Launch, ServerError};

/// Reason why the product cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProductError {
    #[error("this is a debug build, whose figures mean nothing: use `cargo run --profile dist`")]
    DebugBuild,
    #[error("{} is not a file; name the program with --server", .0.display())]
    Missing(PathBuf),
    #[error("the product could not be built: {0}")]
    Build(String),
    #[error("the path of this program is not known")]
    NoSelf(#[source] std::io::Error),
}

/// The `longshore` program.
#[derive(Clone, Debug)]
pub(super) struct Product {
    program: PathBuf,
}

impl Product {
    /// Finds the named program, or the one beside this program. The latter is built first if `cargo run` started this
    /// program, so that it is never older than its source.
    pub(super) fn find(named: Option<PathBuf>) -> Result<Self, ProductError> {
        if cfg!(debug_assertions) {
            return Err(ProductError::DebugBuild);
        }
        let program = match named {
            Some(program) => program,
            None => {
                if let (Some(cargo), Some(folder)) =
                    (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR"))
                {
                    build(Path::new(&cargo), Path::new(&folder))?;
                }
                this_program()?.with_file_name("longshore")
            }
        };
        if program.is_file() {
            Ok(Self { program })
        } else {
            Err(ProductError::Missing(program))
        }
    }

    /// Returns the path of the program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Serving the demo toolset; with as many workers as it likes unless told.
    pub(super) fn launch(&self, workers: Option<u32>) -> Result<Launch, ServerError> {
        self.launch_run(&["--toolset", "demo"], workers)
    }

    /// Serving what a file says, and only on this machine.
    pub(super) fn launch_configured(
        &self,
        settings: &Path,
        workers: Option<u32>,
    ) -> Result<Launch, ServerError> {
        self.launch_run(&["--config", &settings.to_string_lossy()], workers)
    }

    fn launch_run(&self, more: &[&str], workers: Option<u32>) -> Result<Launch, ServerError> {
        Launch::new(&self.program, |port| {
            let mut arguments = words(&["run", "--host", "127.0.0.1", "--port"]);
            arguments.push(port.to_string());
            arguments.extend(words(more));
            if let Some(workers) = workers {
                arguments.extend(["--workers".to_owned(), workers.to_string()]);
            }
            arguments
        })
    }
}

/// Returns a launch of this program as a server of `count` tools on the product's library. Metrics are off, as in the
/// program when no reader is configured.
pub(super) fn launch_tools(this_program: &Path, count: usize) -> Result<Launch, ServerError> {
    launch_with(this_program, count, "uncounted")
}

/// This program again, as a server of `count` tools with something set.
pub(super) fn launch_with(
    this_program: &Path,
    count: usize,
    setting: &str,
) -> Result<Launch, ServerError> {
    Launch::new(this_program, |port| {
        words(&[
            "serve-tools",
            "--count",
            &count.to_string(),
            "--port",
            &port.to_string(),
            "--with",
            setting,
        ])
    })
}

/// This program again, as a bare hyper server that answers `length` bytes.
pub(super) fn launch_baseline(
    this_program: &Path,
    length: usize,
    http2: bool,
) -> Result<Launch, ServerError> {
    Launch::new(this_program, |port| {
        let mut arguments = words(&[
            "baseline",
            "--port",
            &port.to_string(),
            "--body-size",
            &length.to_string(),
        ]);
        if http2 {
            arguments.extend(words(&["--http2"]));
        }
        arguments
    })
}

/// The path of the program that runs now.
pub(super) fn this_program() -> Result<PathBuf, ProductError> {
    env::current_exe().map_err(ProductError::NoSelf)
}

/// Builds it in the profile that this program was built in, which is the name of the folder that it is in.
fn build(cargo: &Path, folder: &Path) -> Result<(), ProductError> {
    let this_program = this_program()?;
    let profile = this_program.parent().and_then(Path::file_name);
    let status = Command::new(cargo)
        .args(["build", "--package", "longshore", "--profile"])
        .arg(profile.unwrap_or("dist".as_ref()))
        .current_dir(folder)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ProductError::Build(status.to_string())),
        Err(error) => Err(ProductError::Build(error.to_string())),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
