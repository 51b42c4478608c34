//! The keys that wrap key records: derived from root keys and from the recovery key.

use zeroize::Zeroizing;

use super::RootKeyId;
use crate::digest::Digest;

/// A key that wraps key records, derived from a root key or from the recovery key. It has that
/// key's id.
#[derive(Clone)]
pub(crate) struct WrapKey {
    pub(crate) id: RootKeyId,
    pub(crate) key: Zeroizing<Digest>,
}

impl WrapKey {
    pub(crate) fn new(id: RootKeyId, key: Zeroizing<Digest>) -> WrapKey {
        WrapKey { id, key }
    }

    pub(crate) fn id(&self) -> RootKeyId {
        self.id
    }
}

/// The keys that every new key record is wrapped under.
#[derive(Clone, Default)]
pub(crate) struct WrapKeys {
    /// The root key. `None` when the store was opened with the recovery key.
    pub(crate) root: Option<WrapKey>,
    /// The next root key, during its rotation.
    pub(crate) next: Option<WrapKey>,
    /// The recovery key, if the store has one.
    pub(crate) recovery: Option<WrapKey>,
    /// The next recovery key, while it is being introduced.
    pub(crate) next_recovery: Option<WrapKey>,
}

impl WrapKeys {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WrapKey> {
        [&self.root, &self.next, &self.recovery, &self.next_recovery].into_iter().flatten()
    }
}

/// The wrapping keys that this process has. The header says which of them are in force.
#[derive(Clone, Default)]
pub(crate) struct KeyRing {
    keys: Vec<WrapKey>,
    /// The root keys that the configuration of this process names.
    configured: Vec<RootKeyId>,
    /// Whether the recovery key opened the store, in the place of the root key.
    pub(crate) is_by_recovery: bool,
    /// The recovery key that this process introduces.
    pub(crate) introducing: Option<RootKeyId>,
}

impl KeyRing {
    /// The key that opened the store.
    pub(crate) fn opened(by: WrapKey, is_by_recovery: bool) -> KeyRing {
        KeyRing { keys: vec![by], is_by_recovery, ..KeyRing::default() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WrapKey> {
        self.keys.iter()
    }

    pub(crate) fn find(&self, id: RootKeyId) -> Option<&WrapKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Adds a key, unless it is there.
    pub(crate) fn add(&mut self, key: WrapKey) {
        if self.find(key.id).is_none() {
            self.keys.push(key);
        }
    }

    /// Adds a root key that the configuration names.
    pub(crate) fn add_configured(&mut self, key: WrapKey) {
        if !self.configured.contains(&key.id) {
            self.configured.push(key.id);
        }
        self.add(key);
    }

    /// The root keys that the configuration names.
    pub(crate) fn configured(&self) -> &[RootKeyId] {
        &self.configured
    }
}
