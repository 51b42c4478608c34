//! Opens the store's keys with one of the root keys given.

use crate::error::OpenError;
use crate::header::{Header, read_header};
use crate::root_key::{RootKey, RootKeyError, RootKeyMaterial, RootKeyRecord, RootKeySource, WrapKey};
use crate::rows::{self, KEYS};
use crate::seal::{KeyRecord, StoreKeys};

/// The configured sources of root keys.
pub(crate) struct Sources<'a> {
    pub(crate) configured: &'a RootKeySource,
    /// The previous root key, during a rotation.
    pub(crate) previous: Option<&'a RootKeySource>,
    /// The next root key, during a rotation of a key file: implied by the file's name, not
    /// configured.
    pub(crate) next: Option<&'a RootKeySource>,
}

/// Result of [`unlock`].
pub(crate) struct Unlocked {
    pub(crate) header: Header,
    pub(crate) keys: StoreKeys,
    /// The root key to rotate to: the configured one, if another one opened the store.
    pub(crate) rotate_to: Option<RootKeyMaterial>,
}

/// Opens the store's keys with the matching root key. `header_row` is the row of the header, `record`
/// that of the store's keys.
pub(crate) fn unlock(
    header_row: Option<&[u8]>,
    record: Option<&[u8]>,
    given: Given,
) -> Result<Unlocked, OpenError> {
    let header_row = header_row.ok_or_else(|| OpenError::damaged("it has no header"))?;
    let header = read_header(header_row)?;
    let configured = given.plain_keys();
    let (by, rotate_to) = given.choose(&header)?;
    let recovery = header.recovery.as_ref().map(|recovery| recovery.id);
    let keys = record
        .and_then(rows::decode_unchecked::<KeyRecord>)
        .and_then(|record| StoreKeys::open(header.store, &record, &by, recovery))
        .ok_or_else(|| OpenError::damaged("its key record does not open"))?;
    keys.change_ring(|ring| {
        if !ring.is_by_recovery {
            ring.add_configured(by.clone());
        }
        configured.iter().for_each(|key| ring.add_configured(key.clone()));
    });
    // Only now can the header be verified: its MAC needs the keys that it helped to open.
    if rows::checked(&keys, KEYS, rows::HEADER, header_row).is_none() {
        return Err(OpenError::damaged("its header was changed"));
    }
    Ok(Unlocked { header, keys, rotate_to })
}

/// The content of all sources, each read once: a file descriptor can be read only once.
pub(crate) struct Given {
    configured: Result<RootKeyMaterial, RootKeyError>,
    previous: Option<RootKeyMaterial>,
    next: Option<RootKeyMaterial>,
}

impl Given {
    pub(crate) fn read(sources: &Sources<'_>) -> Given {
        let optional = |source: &RootKeySource| match source.read() {
            Ok(material) => Some(material),
            Err(RootKeyError::Missing(_)) => None,
            Err(error) => {
                tracing::warn!(%source, %error, "a root key beside the configured one cannot be used");
                None
            }
        };
        Given {
            configured: sources.configured.read(),
            previous: sources.previous.and_then(optional),
            next: sources.next.and_then(optional),
        }
    }

    /// A single key that was read already.
    pub(crate) fn only(material: RootKeyMaterial) -> Given {
        Given { configured: Ok(material), previous: None, next: None }
    }

    /// The wrapping keys of the root keys among them that are no passphrases.
    fn plain_keys(&self) -> Vec<WrapKey> {
        let all = self.configured.iter().chain(&self.previous).chain(&self.next);
        all.filter_map(RootKeyMaterial::plain_key).map(RootKey::wrap_key).collect()
    }

    /// Returns the key that opens the store, and the root key to rotate to, if any.
    pub(crate) fn choose(self, header: &Header) -> Result<(WrapKey, Option<RootKeyMaterial>), OpenError> {
        let needs = header.root.id;
        let refused = |source| OpenError::RootKey { needs, source };
        // The configured key has precedence, then the previous and the next one, then the recovery
        // key.
        let by_configured = match &self.configured {
            Ok(material) => material.key_of(&header.root).map_err(refused)?,
            Err(_) => None,
        };
        if let Some(root) = by_configured {
            return Ok((root.wrap_key(), self.next.filter(|next| is_next(next, header))));
        }
        let beside = [&self.previous, &self.next].into_iter().flatten();
        if let Some(root) = find(beside, &header.root).map_err(refused)? {
            // The configured key is the one to rotate to, unless it is the previous root key.
            let wanted = self
                .configured
                .ok()
                .filter(|wanted| wanted.id().is_none_or(|wanted| header.previous_root != Some(wanted)));
            return Ok((root.wrap_key(), wanted));
        }
        if let Some(recovery) = &header.recovery {
            let all = self.configured.iter().chain(&self.previous);
            if let Some(key) = find(all, recovery).map_err(refused)? {
                tracing::warn!(
                    "the store was opened with its recovery key; give it a root key: `vault rotate-root`"
                );
                return Ok((key.wrap_key(), None));
            }
        }
        let given = self.configured.and_then(|material| material.to_key(header.root.stretching.as_ref()));
        let given = given.map_err(refused)?.id();
        Err(OpenError::WrongRootKey { given, needs, replaced: header.previous_root == Some(given) })
    }
}

fn is_next(material: &RootKeyMaterial, header: &Header) -> bool {
    header.next_root.as_ref().is_some_and(|next| matches!(material.key_of(next), Ok(Some(_))))
}

fn find<'a>(
    mut given: impl Iterator<Item = &'a RootKeyMaterial>,
    record: &RootKeyRecord,
) -> Result<Option<RootKey>, RootKeyError> {
    given.find_map(|material| material.key_of(record).transpose()).transpose()
}
