//! Secrets of the operator's vault that the configuration names, and which of them are missing. A
//! missing secret is not an error of the configuration: it may be stored later, and until then
//! requests that need it are refused.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_store::{BoundSecret, Error, HostName, ReleaseScope, SecretName, Store};

use crate::config::{Config, KeySource};

/// The hosts for which each secret must be stored.
type SecretHosts = BTreeMap<SecretName, BTreeSet<HostName>>;

/// A secret that is not stored, or not for all hosts that need it.
pub(crate) struct Missing {
    name: SecretName,
    hosts: BTreeSet<HostName>,
}

impl Missing {
    /// The command that stores the secret.
    pub(crate) fn command(&self) -> String {
        let hosts: String = self.hosts.iter().map(|host| format!(" --host {host}")).collect();
        format!("cofferdam secret put {} --operator{hosts}", self.name)
    }

    pub(crate) fn warn(&self) {
        tracing::warn!(
            secret = %self.name,
            command = self.command(),
            "a secret of the operator that the configuration names is not stored for all its hosts; requests that \
             need it are refused until this command stores it"
        );
    }
}

/// Warns of secrets that are missing in a store.
pub(crate) async fn warn_of_missing(config: &Config, store: &Store) {
    match missing(config, store).await {
        Ok(missing) => missing.iter().for_each(Missing::warn),
        Err(error) => tracing::warn!(%error, "the operator's secrets could not be looked at"),
    }
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

/// The secrets that the configuration names and the store lacks.
pub(crate) async fn missing(config: &Config, store: &Store) -> Result<Vec<Missing>, Error> {
    let bound = |name: &SecretName, host: &HostName| BoundSecret { name: name.clone(), host: host.clone() };
    let wanted = wanted(config);
    let asked = wanted.iter().flat_map(|(name, hosts)| hosts.iter().map(move |host| bound(name, host)));
    let stored = store.releasable(asked.map(|secret| (ReleaseScope::Operator, secret)).collect()).await?;
    Ok(missing_of(config, |name, host| stored.contains(&bound(name, host))))
}

/// The secrets that the configuration names and that are not stored for all their hosts.
pub(crate) fn missing_of(
    config: &Config,
    is_stored: impl Fn(&SecretName, &HostName) -> bool,
) -> Vec<Missing> {
    let wanted = wanted(config).into_iter();
    let missing = wanted.filter(|(name, hosts)| !hosts.iter().all(|host| is_stored(name, host)));
    missing.map(|(name, hosts)| Missing { name, hosts }).collect()
}
