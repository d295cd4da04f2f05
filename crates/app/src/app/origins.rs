//! Locations of settings, for messages about them.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::config::Loaded;

/// Locations of the current settings. Clones share them.
#[derive(Clone, Default)]
pub(super) struct SettingOrigins(Arc<ArcSwapOption<Loaded>>);

impl SettingOrigins {
    /// Replaces the settings.
    pub(super) fn update(&self, loaded: &Arc<Loaded>) {
        self.0.store(Some(Arc::clone(loaded)));
    }

    /// Returns the file, line and column of a setting, or its variable. `None` for defaults, and for other names.
    pub(super) fn of(&self, setting: &str) -> Option<String> {
        self.0.load().as_ref()?.place(setting)
    }
}
