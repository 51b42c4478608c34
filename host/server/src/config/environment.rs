//! Credentials named `env:NAME`. Each variable is read once and taken out of the
//! process environment, so that nothing this process starts inherits it; a
//! reloaded configuration finds it here again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cofferdam_store::Secret;

use super::{Config, ConfigError, KeySource, Place, Problem};
use crate::hygiene;

/// Whose credential it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    /// The provider with this name.
    Provider(String),
    /// The broadcast destination with this name.
    Broadcast(String),
}

/// Credentials from the environment.
pub type Credentials = BTreeMap<Of, Secret>;

/// Every variable that a configuration names: whose it is, its name, and the place that names it.
fn variables(config: &Config) -> impl Iterator<Item = (Of, &str, &Place)> {
    let providers = config.providers.iter().map(|it| (Of::Provider(it.name.clone()), &it.key));
    let destinations = config.broadcast.iter().map(|it| (Of::Broadcast(it.name.clone()), &it.key));
    providers.chain(destinations).filter_map(|(of, key)| match key {
        Some((KeySource::Env(name), place)) => Some((of, name.as_str(), place)),
        _ => None,
    })
}

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
        for (_, name, _) in variables(config) {
            if let Some(value) = hygiene::take_variable(name) {
                self.lock().insert(name.to_owned(), Secret::new(value.into_bytes()));
            }
        }
    }

    /// The credential of each provider and destination that has one. A name that
    /// a reloaded configuration brings is read, but stays in the environment:
    /// removing it is not safe once there are threads.
    ///
    /// # Errors
    ///
    /// Every variable that is missing or empty, with the place that names it.
    pub fn credentials(&self, config: &Config) -> Result<Credentials, ConfigError> {
        let mut credentials = Credentials::new();
        if self.offline {
            return Ok(credentials);
        }
        let taken = self.lock();
        let mut problems = Vec::new();
        for (of, name, place) in variables(config) {
            // Each configuration has its own copy: a credential is consumed by the header it becomes.
            let value = match taken.get(name) {
                Some(secret) => Some(Secret::new(secret.expose().to_vec())),
                None => std::env::var(name).ok().map(|value| Secret::new(value.into_bytes())),
            };
            match value.filter(|secret| !secret.expose().is_empty()) {
                Some(secret) => {
                    credentials.insert(of, secret);
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
