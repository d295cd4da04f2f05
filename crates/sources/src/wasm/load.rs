//! Loading of component files.

use std::path::Path;
use std::sync::Arc;

use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

use super::host::Host;
use super::instance::State;
use super::shape::Signature;
use crate::environment::read_file;
use crate::seal::sha256;

/// A component, compiled and ready to be instantiated.
pub(super) struct Compiled {
    pub(super) instance: InstancePre<State>,
    /// All functions that it exports, in its own order.
    pub(super) functions: Vec<Function>,
}

/// A function that a component exports.
pub(super) struct Function {
    /// The interface that exports it, such as `docs:text/urls@0.1.0`.
    pub(super) interface: Option<String>,
    pub(super) name: String,
    pub(super) index: ComponentExportIndex,
    /// Signature, or the reason why the function cannot be called with JSON.
    pub(super) signature: Result<Signature, String>,
}

/// Maximum size of a component's file, in bytes.
const FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum number of characters shown of a compiler message.
const PROBLEM_CHARACTERS: usize = 600;
/// Interfaces that components can import.
const OFFERED: [&str; 6] = [
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:io/",
    "wasi:random/",
    "wasi:sockets/",
];

/// Reads and compiles a component, unless it is compiled already.
///
/// # Errors
///
/// The file does not exist, is not a component, or imports an interface that is not available.
pub(super) fn load(host: &Host, path: &Path) -> Result<Arc<Compiled>, String> {
    let shown = path.display();
    let bytes = read(path).map_err(|problem| format!("{shown}: {problem}"))?;
    host.compiled(sha256(&bytes), || compile(host, &bytes))
        .map_err(|problem| format!("{shown}: {problem}"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    if path.as_os_str().is_empty() {
        return Err("it does not exist; name the file of the component".to_owned());
    }
    read_file(path, FILE_BYTES).map_err(|error| format!("it cannot be read ({error})"))
}

pub(super) fn compile(host: &Host, bytes: &[u8]) -> Result<Compiled, String> {
    // A core module in the binary format. A component differs in the layer field after the version.
    if bytes.starts_with(b"\0asm\x01\0\0\0") {
        return Err(NO_COMPONENT.to_owned());
    }
    let began = std::time::Instant::now();
    let component = Component::new(&host.engine, bytes).map_err(|error| {
        let problem = one_line(&error);
        match problem.contains("parse a wasm module with a component parser") {
            true => NO_COMPONENT.to_owned(),
            false => format!("it cannot be compiled: {problem}"),
        }
    })?;
    let lacking: Vec<String> = component
        .component_type()
        .imports(&host.engine)
        .map(|(name, _)| name.to_owned())
        .filter(|name| !OFFERED.iter().any(|offered| name.starts_with(offered)))
        .collect();
    let instance = host.linker.instantiate_pre(&component).map_err(|error| {
        match &lacking[..] {
            [] => format!(
                "it imports interfaces that are not offered: {}; build it for WASI 0.2",
                one_line(&error)
            ),
            lacking => format!(
                "it imports {}, which is not offered; build it for the interfaces of WASI 0.2 other than HTTP, or put the import into it with a tool such as wac",
                lacking.join(", ")
            ),
        }
    })?;
    let functions = functions(host, &component);
    tracing::info!(
        bytes = bytes.len(),
        functions = functions.len(),
        seconds = began.elapsed().as_secs_f32(),
        "compiled a component"
    );
    Ok(Compiled {
        instance,
        functions,
    })
}

const NO_COMPONENT: &str = "it is a core module and no component; make one of it with \
    `wasm-tools component new`, or with the component tools of its language";

fn one_line(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(PROBLEM_CHARACTERS).collect()
}

/// Returns the functions of a component, and those of the interfaces that it exports.
fn functions(host: &Host, component: &Component) -> Vec<Function> {
    let mut functions = Vec::new();
    let kind = component.component_type();
    for (name, export) in kind.exports(&host.engine) {
        match export.ty {
            ComponentItem::ComponentFunc(function) => {
                let index = component.get_export_index(None, name);
                functions.extend(Function::new(None, name, index, &function));
            }
            ComponentItem::ComponentInstance(interface) => {
                let Some(whole) = component.get_export_index(None, name) else {
                    continue;
                };
                for (inner, export) in interface.exports(&host.engine) {
                    if let ComponentItem::ComponentFunc(function) = export.ty {
                        let index = component.get_export_index(Some(&whole), inner);
                        functions.extend(Function::new(Some(name), inner, index, &function));
                    }
                }
            }
            _ => {}
        }
    }
    functions
}

impl Function {
    fn new(
        interface: Option<&str>,
        name: &str,
        index: Option<ComponentExportIndex>,
        function: &ComponentFunc,
    ) -> Option<Self> {
        // `[constructor]url`, `[method]url.host`.
        let signature = if name.starts_with('[') {
            Err("it is a resource, which has no JSON form".to_owned())
        } else {
            Signature::new(name, function)
        };
        Some(Self {
            interface: interface.map(str::to_owned),
            name: name.to_owned(),
            index: index?,
            signature,
        })
    }

    /// Returns the name of the function in the configuration.
    pub(super) fn id(&self) -> String {
        match &self.interface {
            Some(interface) => format!("{interface}#{}", self.name),
            None => self.name.clone(),
        }
    }
}
