//! The hosts that share a store.

use super::Store;
use crate::error::Error;
use crate::hosts::HostFacts;
use crate::operation::VaultError;
use crate::root_key::RootKeyRecord;

impl Store {
    /// The hosts that share the store, this process among them, as they told about themselves with their
    /// last sign of life; none for the embedded engine, whose store one process has alone.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::Closed`].
    pub async fn hosts(&self) -> Result<Vec<HostFacts>, Error> {
        self.aside(|store| store.0.engine.hosts(&store.0.keys)).await
    }

    /// Sets the digest of those parts of the configuration that must be equal on all hosts. Other hosts
    /// learn of it with the next sign of life, at most a second later.
    pub fn set_configuration(&self, digest: String) {
        self.0.engine.set_configuration(digest);
    }

    /// Checks that every host of a store in a database has this root key, so that it can open the store
    /// when the key is put in force.
    pub(super) fn check_hosts(&self, to: &RootKeyRecord) -> Result<(), VaultError> {
        if self.0.database_hosts.is_none() {
            return Ok(());
        }
        if !to.is_plain() {
            return Err(VaultError::Passphrase);
        }
        if !self.0.keys.ring().configured().contains(&to.id) {
            return Err(VaultError::NotConfigured { id: to.id });
        }
        let hosts = self.0.engine.hosts(&self.0.keys)?;
        let without = hosts.iter().filter(|host| host.serves && !host.root_keys.contains(&to.id));
        let without: Vec<String> = without.map(HostFacts::place).collect();
        if without.is_empty() { Ok(()) } else { Err(VaultError::HostsLackKey { id: to.id, hosts: without }) }
    }
}
