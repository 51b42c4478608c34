//! The parts of a plugin that its instances use.

use std::sync::Arc;

use crate::counters::Counters;
use crate::grant::Grant;
use crate::manifest::Manifest;

/// Grant, manifest and counters of one plugin. Idle instances hold this instead of the plugin, so
/// that dropping the plugin can end them.
pub(crate) struct Profile {
    pub(crate) grant: Grant,
    pub(crate) manifest: Manifest,
    /// Shared with the plugin of the same name before and after a reload.
    pub(crate) counters: Arc<Counters>,
}

impl Profile {
    pub(crate) fn name(&self) -> &str {
        &self.manifest.name
    }
}
