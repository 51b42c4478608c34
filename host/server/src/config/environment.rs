//! Credentials named `env:NAME`. Each variable is read once and taken out of the
//! process environment, so that nothing this process starts inherits it; a
//! reloaded configuration finds it here again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cofferdam_store::Secret;

use super::{Config, ConfigError, KeySource, Problem};
use crate::hygiene;

/// What has been read so far.
#[derive(Default)]
pub struct Environment {
    taken: Mutex<BTreeMap<String, Secret>>,
    offline: bool,
}

impl Environment {
    /// For looking at a configuration without sending anything: no credential is
    /// read, and none is missing.
    #[must_use]
    pub fn offline() -> Self {
        Self { offline: true, ..Self::default() }
    }

    /// Takes every variable that the configuration names out of the process
    /// environment. To be called while the process has one thread.
    pub fn take(&self, config: &Config) {
        for provider in &config.providers {
            let Some((KeySource::Env(name), _)) = &provider.key else { continue };
            if let Some(value) = hygiene::take_variable(name) {
                self.lock().insert(name.clone(), Secret::new(value.into_bytes()));
            }
        }
    }

    /// The credential of each provider that has one, by provider name. A name that
    /// a reloaded configuration brings is read, but stays in the environment:
    /// removing it is not safe once there are threads.
    ///
    /// # Errors
    ///
    /// Every variable that is missing or empty, with the place that names it.
    pub fn credentials(&self, config: &Config) -> Result<BTreeMap<String, Secret>, ConfigError> {
        let mut credentials = BTreeMap::new();
        if self.offline {
            return Ok(credentials);
        }
        let taken = self.lock();
        let mut problems = Vec::new();
        for provider in &config.providers {
            let Some((KeySource::Env(name), place)) = &provider.key else { continue };
            // Each configuration has its own copy: a credential is consumed by the header it becomes.
            let value = match taken.get(name) {
                Some(secret) => Some(Secret::new(secret.expose().to_vec())),
                None => std::env::var(name).ok().map(|value| Secret::new(value.into_bytes())),
            };
            match value.filter(|secret| !secret.expose().is_empty()) {
                Some(secret) => {
                    credentials.insert(provider.name.clone(), secret);
                }
                None => problems.push(Problem {
                    place: place.clone(),
                    message: format!("the environment variable {name} is not set"),
                }),
            }
        }
        if problems.is_empty() { Ok(credentials) } else { Err(ConfigError::Invalid(problems)) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Secret>> {
        self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
