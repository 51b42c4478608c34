//! The same plugin with other settings, for cases of its author: compiled once, called with the
//! settings of each case.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::{Plugin, Taping};
use crate::profile::Profile;

impl Plugin {
    /// This plugin with these settings of the operator. It shares the compiled form, if there is
    /// one, and no instance.
    #[must_use]
    pub fn with_settings(&self, settings: &Map<String, Value>) -> Self {
        let mut grant = self.profile.grant.clone();
        grant.settings = serde_json::to_vec(settings).unwrap_or_default();
        let manifest = self.profile.manifest.clone();
        let compiled = OnceLock::new();
        if let Some(Ok(known)) = self.compiled.get() {
            drop(compiled.set(Ok(known.clone())));
        }
        Self {
            host: Arc::clone(&self.host),
            profile: Arc::new(Profile { grant, manifest, counters: Arc::default() }),
            number: self.host.next_number(),
            digest: self.digest.clone(),
            origin: self.origin.clone(),
            is_built_in: self.is_built_in,
            component: self.component.clone(),
            line: self.line,
            finding: self.finding.clone(),
            denials: self.denials.clone(),
            idle: self.idle.clone(),
            taping: Taping::Off,
            compiling: Arc::default(),
            compiled,
            is_cached: AtomicBool::new(false),
        }
    }
}
