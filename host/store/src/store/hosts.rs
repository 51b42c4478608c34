//! The hosts that share a store.

use super::Store;
use crate::error::Error;
use crate::hosts::{HostFacts, StoreSchema};
use crate::operation::VaultError;
use crate::root_key::RootKeyRecord;
use crate::shared_limits::SharedLimits;

impl Store {
    /// The hosts that share the store, this process among them, as they told about themselves with their
    /// last sign of life; none for the embedded engine, whose store one process has alone.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::Closed`].
    pub async fn hosts(&self) -> Result<Vec<HostFacts>, Error> {
        self.aside(|store| store.0.engine.hosts(&store.0.keys)).await
    }

    /// The schema of the database that has the store; `None` for the embedded engine.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::Closed`].
    pub async fn schema(&self) -> Result<Option<StoreSchema>, Error> {
        self.aside(|store| store.0.engine.schema()).await
    }

    /// Makes the migrations that the schema of the database lacks, beside hosts that serve the store. Blocks
    /// its thread. Returns the number of the schema before and now; `None` for the embedded engine, whose store
    /// has none.
    ///
    /// # Errors
    /// [`VaultError::HostsTooOld`], [`OpenError::Database`](crate::OpenError::Database), [`Error::Closed`].
    pub fn upgrade_schema(&self) -> Result<Option<(u32, u32)>, VaultError> {
        self.0.engine.upgrade(&self.0.keys)
    }

    /// Sets the digest of those parts of the configuration that must be equal on all hosts. Other hosts
    /// learn of it with the next sign of life, at most a second later.
    pub fn set_configuration(&self, digest: String) {
        self.0.engine.set_configuration(digest);
    }

    /// The limits that the hosts of a store in a database share; `None` for the embedded engine.
    #[must_use]
    pub fn shared_limits(&self) -> Option<SharedLimits> {
        self.0.engine.shared_limits()
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
