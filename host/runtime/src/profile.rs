//! The parts of a plugin that its instances use.

use crate::counters::Counters;
use crate::grant::Grant;
use crate::manifest::Manifest;

/// Grant, manifest and counters of one plugin. Idle instances hold this instead of the plugin, so
/// that dropping the plugin can end them.
pub(crate) struct Profile {
    pub(crate) grant: Grant,
    pub(crate) manifest: Manifest,
    pub(crate) counters: Counters,
}

impl Profile {
    pub(crate) fn name(&self) -> &str {
        &self.manifest.name
    }
}
