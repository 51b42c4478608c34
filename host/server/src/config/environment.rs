//! Credentials from variables (`env:NAME`). Each variable is read once and removed from the process
//! environment, so that child processes do not inherit it. A reloaded configuration finds the value
//! here.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cofferdam_store::Secret;

use super::{Config, ConfigError, ConfigSpan, KeySource, Problem};
use crate::hygiene;

/// The owner of a credential.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    Provider(String),
    Broadcast(String),
}

pub type EnvironmentCredentials = BTreeMap<Of, Secret>;

/// Every variable that a configuration names: its owner, its name, and the position in the file.
fn variables(config: &Config) -> impl Iterator<Item = (Of, &str, &ConfigSpan)> {
    let providers = config.providers.iter().map(|it| (Of::Provider(it.name.clone()), &it.key));
    let destinations = config.broadcast.iter().map(|it| (Of::Broadcast(it.name.clone()), &it.key));
    providers.chain(destinations).filter_map(|(of, key)| match key {
        Some((KeySource::Env(name), place)) => Some((of, name.as_str(), place)),
        _ => None,
    })
}

/// What happens to credentials whose variable is not set.
#[derive(Default, PartialEq, Eq)]
enum MissingVariables {
    #[default]
    Refused,
    /// They are left out.
    LeftOut,
    /// No credential is read at all.
    NotRead,
}

/// The values that were read so far.
#[derive(Default)]
pub struct Environment {
    taken: Mutex<BTreeMap<String, Secret>>,
    absent: MissingVariables,
}

impl Environment {
    /// An environment for commands that send nothing: no credential is read, so none can be
    /// missing.
    #[must_use]
    pub fn offline() -> Self {
        Self { absent: MissingVariables::NotRead, ..Self::default() }
    }

    /// An environment in which credentials may be missing; [`Self::missing`] names them.
    #[must_use]
    pub fn incomplete() -> Self {
        Self { absent: MissingVariables::LeftOut, ..Self::default() }
    }

    /// Removes every variable that the configuration names from the process environment and keeps
    /// its value. Must be called before other threads use the environment.
    pub fn take(&self, config: &Config) {
        for (_, name, _) in variables(config) {
            if let Some(value) = hygiene::take_variable(name) {
                self.lock().insert(name.to_owned(), Secret::new(value.into_bytes()));
            }
        }
    }

    /// The credentials of providers and destinations. A variable that only a reloaded configuration
    /// names is read, but stays in the environment: removing it is not safe while other threads
    /// run.
    ///
    /// # Errors
    ///
    /// Every variable that is missing or empty, with its position in the file.
    pub fn credentials(&self, config: &Config) -> Result<EnvironmentCredentials, ConfigError> {
        if self.absent == MissingVariables::NotRead {
            return Ok(EnvironmentCredentials::new());
        }
        let (credentials, problems) = self.read(config);
        if problems.is_empty() || self.absent == MissingVariables::LeftOut {
            Ok(credentials)
        } else {
            Err(ConfigError::Invalid(problems))
        }
    }

    /// Every variable that is missing or empty, with its position in the file.
    pub fn missing(&self, config: &Config) -> Vec<Problem> {
        self.read(config).1
    }

    fn read(&self, config: &Config) -> (EnvironmentCredentials, Vec<Problem>) {
        let mut credentials = EnvironmentCredentials::new();
        let taken = self.lock();
        let mut problems = Vec::new();
        for (of, name, place) in variables(config) {
            // Each configuration gets a copy: a credential is consumed when it becomes a header.
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
        (credentials, problems)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Secret>> {
        self.taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
