//! WebAssembly components as tools, where the program was built with the feature `wasm`.

#[cfg(feature = "wasm")]
mod capture;
mod config;
#[cfg(feature = "wasm")]
mod files;
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

use std::path::PathBuf;

use futures_util::future::{LocalBoxFuture, ready};
#[cfg(feature = "wasm")]
use tool::collect;

use super::builder::SourceBuilder;
use super::kind::SourceKind;

impl SourceKind for ComponentSourceConfig {
    fn collect<'a>(&'a self, builder: &'a mut SourceBuilder) -> LocalBoxFuture<'a, ()> {
        collect(self, builder);
        Box::pin(ready(()))
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn is_document(&self) -> bool {
        true
    }
}

#[cfg(not(feature = "wasm"))]
fn collect(_: &ComponentSourceConfig, collector: &mut SourceBuilder) {
    collector.refuse(
        "component",
        "this build has no WebAssembly support; build with --features wasm, or remove the source",
    );
}

#[cfg(all(test, feature = "wasm"))]
mod tests;
