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
