//! The interface of a kind of source.

use std::path::PathBuf;

use futures_util::future::LocalBoxFuture;

use super::builder::SourceBuilder;
use super::credentials::AuthConfig;

/// Settings of one kind of source. `SourceConfig::kinds` lists the kinds.
pub(super) trait SourceKind: Sync {
    /// Adds the tools of the source, or says why there are none.
    fn collect<'a>(&'a self, builder: &'a mut SourceBuilder) -> LocalBoxFuture<'a, ()>;

    /// Credentials for requests to an API.
    fn auth(&self) -> Option<&AuthConfig> {
        None
    }

    /// Path of the local file that describes the tools.
    fn file(&self) -> Option<PathBuf> {
        None
    }

    /// Returns true if a document that has to be fetched describes the tools.
    fn is_remote_document(&self) -> bool {
        false
    }

    /// Returns true if a document or a component describes the tools, which may change without the configuration.
    fn is_document(&self) -> bool {
        false
    }
}
