//! A call: runs in its own instance, with limited access and resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wasmtime::component::{ComponentExportIndex, ResourceTable, Val};
use wasmtime::{ResourceLimiter, Store, Trap};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtx, WasiCtxView, WasiView};

use super::capture::Capture;
use super::config::{ComponentLimits, ComponentSourceConfig};
use super::load::Compiled;
use crate::source::limits::time_limit;

/// Access and resource limits of a component.
#[derive(Debug)]
pub(super) struct Bounds {
    environment: Vec<(String, crate::environment::Secret)>,
    directories: Vec<Directory>,
    pub(super) limits: ComponentLimits,
}

#[derive(Debug)]
struct Directory {
    path: std::path::PathBuf,
    at: String,
    permissions: FsPerms,
}

/// Store data of an instance.
pub(super) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    budget: Budget,
}

/// Memory use of an instance.
struct Budget {
    max: usize,
    used: usize,
    exceeded: Arc<AtomicBool>,
}

/// Result of a call with its captured output.
pub(super) struct InstanceResult {
    pub(super) result: Result<Option<Val>, CallError>,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
}

/// Reason why a call has no result. The messages are for the model and contain no path.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("the component took longer than {} s and was ended", limit.as_secs())]
    Timeout { limit: Duration },
    #[error("the component needed more than {max} bytes of memory and was ended; ask for less")]
    Memory { max: usize },
    #[error("the component's result is larger than {max} bytes; ask for less")]
    TooMuch { max: usize },
    #[error("the component failed: {}", reason(*.trap))]
    Trapped { trap: Trap },
    #[error("the component ended itself with status {status} instead of giving a result")]
    Exited { status: i32 },
    #[error("the component cannot be run")]
    Broken { problem: String },
}

/// Memory that one table element counts as, in bytes.
const TABLE_ELEMENT_BYTES: usize = 16;
/// Maximum number of open files, streams and timers of an instance. Each open file is a descriptor of the process.
const RESOURCES: usize = 512;
/// Maximum number of linear memories, each of which reserves address space.
const MEMORIES: usize = 100;
/// Maximum number of random bytes returned by one request.
const RANDOM_BYTES: u64 = 1024 * 1024;

impl Bounds {
    /// # Errors
    ///
    /// Names the invalid setting and the problem.
    pub(super) fn new(config: &ComponentSourceConfig) -> Result<Self, (String, String)> {
        let limits = config.limits.clone();
        if limits.memory_bytes < 64 * 1024 {
            let problem = "a component needs at least 65536; raise it";
            return Err(("limits.memory_bytes".to_owned(), problem.to_owned()));
        }
        if limits.output_bytes == 0 {
            let problem = "it is 0; raise it";
            return Err(("limits.output_bytes".to_owned(), problem.to_owned()));
        }
        let mut environment = Vec::new();
        for (name, value) in &config.environment {
            let setting = || format!("environment.{name}");
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err((setting(), format!("{name:?} is not a valid variable name")));
            }
            if value.expose().contains('\0') {
                return Err((setting(), "its value has a NUL".to_owned()));
            }
            environment.push((name.clone(), value.clone()));
        }
        let mut directories: Vec<Directory> = Vec::new();
        for (position, directory) in config.directories.iter().enumerate() {
            let setting = |member: &str| format!("directories[{position}].{member}");
            let path = &directory.path;
            if !path.is_dir() {
                let problem = format!("{} does not exist, or is not a folder", path.display());
                return Err((setting("path"), problem));
            }
            let at = match (&directory.at, path.to_str()) {
                (Some(at), _) => at.clone(),
                (None, Some(path)) => path.to_owned(),
                (None, None) => {
                    let problem = "the path is not UTF-8; say where the component sees it";
                    return Err((setting("at"), problem.to_owned()));
                }
            };
            if at.is_empty() || directories.iter().any(|other| other.at == at) {
                let problem =
                    format!("{at:?} is empty, or that of another folder; choose another path");
                return Err((setting("at"), problem));
            }
            directories.push(Directory {
                path: path.clone(),
                at,
                permissions: match directory.writable {
                    true => FsPerms::ReadWrite,
                    false => FsPerms::ReadOnly,
                },
            });
        }
        Ok(Self {
            environment,
            directories,
            limits,
        })
    }

    /// Returns true if the component can write to any folder.
    pub(super) fn may_write(&self) -> bool {
        let mut directories = self.directories.iter();
        directories.any(|directory| directory.permissions == FsPerms::ReadWrite)
    }

    fn state(&self, ended: &InstanceResult, exceeded: Arc<AtomicBool>) -> wasmtime::Result<State> {
        let mut wasi = WasiCtx::builder();
        wasi.stdout(ended.stdout.clone())
            .stderr(ended.stderr.clone())
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(RANDOM_BYTES);
        for (name, value) in &self.environment {
            wasi.env(name, value.expose());
        }
        for directory in &self.directories {
            wasi.preopened_dir(&directory.path, &directory.at, directory.permissions)?;
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        Ok(State {
            wasi: wasi.build(),
            table,
            budget: Budget {
                max: self.limits.memory_bytes,
                used: 0,
                exceeded,
            },
        })
    }

    /// Calls a function of a new instance, which is dropped afterwards.
    pub(super) async fn call(
        &self,
        compiled: &Compiled,
        function: &ComponentExportIndex,
        parameters: &[Val],
        results: usize,
    ) -> InstanceResult {
        let mut ended = InstanceResult {
            result: Ok(None),
            stdout: Capture::default(),
            stderr: Capture::default(),
        };
        let limit = time_limit(self.limits.timeout_seconds);
        let exceeded = Arc::new(AtomicBool::new(false));
        let state = self.state(&ended, Arc::clone(&exceeded));
        let call = async {
            let mut store = Store::new(compiled.instance.engine(), state?);
            store.limiter(|state| &mut state.budget);
            // Yields at the end of each time slice, which is also when the call can be dropped.
            store.set_epoch_deadline(1);
            store.epoch_deadline_async_yield_and_update(1);
            // Upper bound of the cost of a result on the host: one value for each of its bytes.
            store.set_hostcall_fuel(self.limits.output_bytes.saturating_mul(size_of::<Val>()));
            let instance = compiled.instance.instantiate_async(&mut store).await?;
            let function = instance.get_func(&mut store, function);
            let function = function.ok_or_else(|| wasmtime::Error::msg("the function is gone"))?;
            let mut values = vec![Val::Bool(false); results];
            function
                .call_async(&mut store, parameters, &mut values)
                .await?;
            wasmtime::Result::Ok(values.pop())
        };
        ended.result = match tokio::time::timeout(limit, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) if exceeded.load(Ordering::Relaxed) => Err(CallError::Memory {
                max: self.limits.memory_bytes,
            }),
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(_) => Err(CallError::Timeout { limit }),
        };
        ended
    }

    fn failure(&self, error: &wasmtime::Error) -> CallError {
        if let Some(I32Exit(status)) = error.downcast_ref() {
            return CallError::Exited { status: *status };
        }
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return CallError::Trapped { trap: *trap };
        }
        let problem = format!("{error:#}");
        // The error has no type of its own, so its message has to be compared.
        if problem.contains("fuel allocated for hostcalls") {
            return CallError::TooMuch {
                max: self.limits.output_bytes,
            };
        }
        CallError::Broken { problem }
    }
}

fn reason(trap: Trap) -> String {
    let text = trap.to_string();
    text.strip_prefix("wasm trap: ").unwrap_or(&text).to_owned()
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl Budget {
    fn grow(&mut self, by: usize) -> bool {
        let used = self.used.saturating_add(by);
        if self.max < used {
            self.exceeded.store(true, Ordering::Relaxed);
            return false;
        }
        self.used = used;
        true
    }
}

impl ResourceLimiter for Budget {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let elements = desired.saturating_sub(current);
        Ok(self.grow(elements.saturating_mul(TABLE_ELEMENT_BYTES)))
    }

    fn memories(&self) -> usize {
        MEMORIES
    }
}
