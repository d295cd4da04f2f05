//! Stand-in for builds without the feature `sources`, which reject all settings that name items.

use std::future::ready;
use std::sync::Arc;

use super::error::AppError;
use super::items::{AppItems, LoadedItems};
use crate::config::Config;
use crate::seal::KeyRing;
use crate::source::BuiltSource;

#[derive(Clone, Default)]
pub(super) struct ConfiguredParts;

impl AppItems {
    pub(super) fn prepare_configured(
        &mut self,
        _: &Config,
        _: &Arc<KeyRing>,
    ) -> Result<(), AppError> {
        Ok(())
    }

    pub(super) async fn load_configured(
        &self,
        _: &Config,
        _: Option<(&Config, &LoadedItems)>,
        _: &mut LoadedItems,
    ) -> Result<(), AppError> {
        Ok(())
    }

    pub(super) fn load_again(
        &self,
        _: Arc<Config>,
        _: Vec<usize>,
    ) -> impl Future<Output = Vec<(usize, BuiltSource)>> + Send + use<> {
        ready(Vec::new())
    }
}
