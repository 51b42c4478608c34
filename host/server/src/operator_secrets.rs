//! Secrets of the operator's vault that the configuration names, and which of them are missing. A
//! missing secret is not an error of the configuration: it may be stored later, and until then
//! requests that need it are refused.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_store::{
    DirectoryLock, Error as StoreError, HostName, LockError, ReleaseScope, SecretName, Store,
};

use crate::cli::{Options, execute};
use crate::command::{Command, SecretCommand, SecretScope};
use crate::config::{Config, KeySource};
use crate::failure::Failure;
use crate::start::open;

/// The hosts for which each secret must be stored.
type SecretHosts = BTreeMap<SecretName, BTreeSet<HostName>>;

/// A secret that is not stored, or not for all hosts that need it.
pub(crate) struct Missing {
    name: SecretName,
    hosts: BTreeSet<HostName>,
}

/// The result of looking for the secrets in the store.
pub(crate) enum Looked {
    /// Missing secrets; may be empty.
    Missing(Vec<Missing>),
    NoStore,
}

impl Missing {
    /// The command that stores the secret.
    pub(crate) fn command(&self) -> String {
        let hosts: String = self.hosts.iter().map(|host| format!(" --host {host}")).collect();
        format!("cofferdam secret put {} --operator{hosts}", self.name)
    }

    fn warn(&self) {
        tracing::warn!(
            secret = %self.name,
            command = self.command(),
            "a secret of the operator that the configuration names is not stored for all its hosts; requests that \
             need it are refused until this command stores it"
        );
    }
}

/// Warns of secrets that are missing in a store.
pub(crate) fn warn_of_missing(config: &Config, store: &Store) {
    match missing(config, |name, host| is_stored(store, name, host)) {
        Ok(missing) => missing.iter().for_each(Missing::warn),
        Err(error) => tracing::warn!(%error, "the operator's secrets could not be looked at"),
    }
}

/// Looks for the secrets in the store of a data directory. If a host holds the store, the host is
/// asked.
///
/// # Errors
///
/// The store cannot be opened, or the host does not answer.
pub(crate) fn look(options: &Options, config: &Config) -> Result<Looked, Failure> {
    if !options.data.join("store").exists() {
        return Ok(Looked::NoStore);
    }
    let missing = match DirectoryLock::acquire(&options.data) {
        Ok(lock) => {
            let store = open(config, lock, None)?;
            let missing = missing(config, |name, host| is_stored(&store, name, host));
            store.close();
            missing.map_err(|error| Failure::Command(error.into()))?
        }
        Err(LockError::Held { .. }) => {
            let stored = listed(options)?;
            let is_listed = |name: &SecretName, host: &HostName| {
                Ok(stored.contains(&(name.to_string(), host.to_string())))
            };
            missing(config, is_listed).map_err(|error| Failure::Command(error.into()))?
        }
        Err(error) => return Err(error.into()),
    };
    missing.iter().for_each(Missing::warn);
    Ok(Looked::Missing(missing))
}

/// Whether the configuration names any secret of the operator's vault.
pub(crate) fn are_wanted(config: &Config) -> bool {
    !wanted(config).is_empty()
}

fn wanted(config: &Config) -> SecretHosts {
    let providers = config.providers.iter().map(|it| (&it.key, &it.origin));
    let destinations = config.broadcast.iter().map(|it| (&it.key, &it.origin));
    let mut wanted = SecretHosts::new();
    for (key, origin) in providers.chain(destinations) {
        // A host that is not a name was already reported when the configuration was checked.
        if let (Some((KeySource::Operator(name), _)), Some(origin)) = (key, origin)
            && let Ok(host) = origin.host().parse()
        {
            wanted.entry(name.clone()).or_default().insert(host);
        }
    }
    wanted
}

fn missing(
    config: &Config,
    is_stored: impl Fn(&SecretName, &HostName) -> Result<bool, StoreError>,
) -> Result<Vec<Missing>, StoreError> {
    let mut missing = Vec::new();
    for (name, hosts) in wanted(config) {
        for host in &hosts {
            if !is_stored(&name, host)? {
                missing.push(Missing { name, hosts });
                break;
            }
        }
    }
    Ok(missing)
}

fn is_stored(store: &Store, name: &SecretName, host: &HostName) -> Result<bool, StoreError> {
    store.is_releasable(ReleaseScope::Operator, name, host)
}

/// Name and host of each secret in the operator's vault, from the running host.
fn listed(options: &Options) -> Result<BTreeSet<(String, String)>, Failure> {
    let scope = SecretScope { workspace: None, intern: None, operator: true };
    let outcome = execute(options, &Command::Secret(SecretCommand::List { scope }))?;
    let mut listed = BTreeSet::new();
    for secret in outcome.document.as_array().into_iter().flatten() {
        let name = secret["name"].as_str().unwrap_or_default();
        for host in secret["hosts"].as_array().into_iter().flatten().filter_map(|host| host.as_str()) {
            listed.insert((name.to_owned(), host.to_owned()));
        }
    }
    Ok(listed)
}
