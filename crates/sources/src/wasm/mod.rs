//! WebAssembly components as tools, where the program was built with the feature `wasm`.

#[cfg(feature = "wasm")]
mod capture;
mod config;
#[cfg(feature = "wasm")]
mod host;
#[cfg(feature = "wasm")]
mod instance;
#[cfg(feature = "wasm")]
mod load;
#[cfg(feature = "wasm")]
mod name;
#[cfg(feature = "wasm")]
mod shape;
#[cfg(feature = "wasm")]
mod tool;
#[cfg(feature = "wasm")]
mod value;

pub use config::{ComponentLimits, ComponentSourceConfig, ComponentToolConfig, DirectoryConfig};

#[cfg(feature = "wasm")]
pub use tool::collect;

#[cfg(not(feature = "wasm"))]
pub fn collect(_: &ComponentSourceConfig, _: &str, collector: &mut super::config::SourceBuilder) {
    collector.refuse(
        "component",
        "this build has no WebAssembly support; build with --features wasm, or remove the source",
    );
}

#[cfg(all(test, feature = "wasm"))]
mod tests;
