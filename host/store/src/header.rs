//! The header of a store: what is read before any key is available.

use serde::{Deserialize, Serialize};

use crate::error::{Error, OpenError};
use crate::ids::StoreId;
use crate::root_key::{RootKeyId, RootKeyRecord, WrapKeys};
use crate::rows;
#[cfg(feature = "postgres")]
use crate::rows::KEYS;
use crate::seal::{KeyRecord, StoreKeys};

/// First field of a header: distinguishes this store from other databases of the same engine.
const MAGIC: &str = "cofferdam store";
/// The format of new stores.
const SCHEMA: u32 = 1;
/// The format of a store whose log has chains that came from a database, see [`crate::log`]. It is the newest
/// one that this program reads.
const WITH_CHAINS: u32 = 2;

/// The facts that are needed before any key is available. Not encrypted.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Header {
    magic: String,
    pub(crate) store: StoreId,
    pub(crate) schema_major: u32,
    schema_minor: u32,
    pub(crate) min_reader: u32,
    pub(crate) created_at_ms: u64,
    pub(crate) root: RootKeyRecord,
    /// The recovery key, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) recovery: Option<RootKeyRecord>,
    /// The next root key, while key records are being wrapped under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_root: Option<RootKeyRecord>,
    /// The next recovery key, while key records are being wrapped under it. Only the process that makes
    /// it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_recovery: Option<RootKeyId>,
    /// The previous root key, so that an error can say that a rotation replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous_root: Option<RootKeyId>,
    /// Whether key records may still have wrappings by keys that are no longer in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) untidy: bool,
    /// When the current rotation of vault keys began, Unix milliseconds; `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_rotation_since_ms: Option<u64>,
    /// When the first retired vault key may be deleted, Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retired_keys_due_ms: Option<u64>,
    /// In a database whose store was moved into a data directory: the id of that move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) moved: Option<String>,
    /// How often an operator has accepted that the database lost acknowledged commits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) accepted_losses: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Header {
    pub(crate) fn new(store: StoreId, root: RootKeyRecord, created_at_ms: u64) -> Header {
        Header {
            magic: MAGIC.to_owned(),
            store,
            schema_major: SCHEMA,
            schema_minor: 0,
            min_reader: SCHEMA,
            created_at_ms,
            root,
            recovery: None,
            next_root: None,
            next_recovery: None,
            previous_root: None,
            untidy: false,
            key_rotation_since_ms: None,
            retired_keys_due_ms: None,
            moved: None,
            accepted_losses: 0,
        }
    }

    /// The same header of a store whose log has chains that came from a database, or has none.
    pub(crate) fn with_chains(self, has_chains: bool) -> Header {
        let format = if has_chains { WITH_CHAINS } else { SCHEMA };
        Header { schema_major: format, min_reader: format, ..self }
    }

    /// The same header in a database that is not served any more. Earlier programs refuse its format.
    #[cfg(feature = "postgres")]
    pub(crate) fn moved(self, id: String) -> Header {
        Header { moved: Some(id), ..self.with_chains(true) }
    }

    /// Whether the same keys are in force and being put in force as with another header.
    pub(crate) fn has_keys_of(&self, other: &Header) -> bool {
        let keys = |header: &Header| {
            let recovery = header.recovery.as_ref().map(|recovery| recovery.id);
            (header.root.id, header.next_root.as_ref().map(|next| next.id), recovery, header.next_recovery)
        };
        keys(self) == keys(other)
    }

    /// The keys that a new key record is wrapped under, as far as this process has them. Another host may
    /// have made the recovery key: then that is in `record`, the record of the store's own keys.
    ///
    /// # Errors
    /// [`Error::OtherRootKey`] where this process does not have the root key, unless the recovery key
    /// opened the store; [`Error::Damaged`] where `record` does not have the recovery key.
    pub(crate) fn wrap_keys(&self, keys: &StoreKeys, record: Option<&KeyRecord>) -> Result<WrapKeys, Error> {
        let ring = keys.ring();
        let root = ring.find(self.root.id).cloned();
        if root.is_none() && !ring.is_by_recovery {
            return Err(Error::OtherRootKey { needs: self.root.id });
        }
        let recovery = match &self.recovery {
            Some(recovery) => {
                let known = ring.find(recovery.id).cloned();
                let key = known.or_else(|| keys.recovery_key(recovery.id, record?));
                Some(key.ok_or(Error::Damaged)?)
            }
            None => None,
        };
        Ok(WrapKeys {
            root,
            next: self.next_root.as_ref().and_then(|next| ring.find(next.id)).cloned(),
            recovery,
            next_recovery: ring.introducing.and_then(|id| ring.find(id)).cloned(),
        })
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.magic == MAGIC
    }
}

/// Parses a header and checks its format. Its MAC is not verified yet.
pub(crate) fn read_header(row: &[u8]) -> Result<Header, OpenError> {
    let header: Header = rows::decode_unchecked(row)
        .filter(Header::is_ours)
        .ok_or_else(|| OpenError::damaged("its header cannot be read"))?;
    if header.min_reader > WITH_CHAINS {
        return Err(OpenError::TooNew { found: header.schema_major, known: WITH_CHAINS });
    }
    Ok(header)
}

/// Reads a header that another host has committed, and learns the recovery key where that host made one.
/// `record` is the row of the store's own keys.
///
/// # Errors
/// [`OpenError::WrongRootKey`] where this process does not have the root key in force, and damage.
#[cfg(feature = "postgres")]
pub(crate) fn follow(keys: &StoreKeys, row: &[u8], record: Option<&[u8]>) -> Result<Header, OpenError> {
    let header = read_header(row)?;
    if rows::checked(keys, KEYS, rows::HEADER, row).is_none() {
        return Err(OpenError::damaged("its header was changed"));
    }
    let record = record.and_then(rows::decode_unchecked::<KeyRecord>);
    let configured = keys.ring().configured().first().copied();
    match (header.wrap_keys(keys, record.as_ref()), configured) {
        (Ok(WrapKeys { recovery, .. }), _) => {
            if let Some(recovery) = recovery {
                keys.change_ring(|ring| ring.add(recovery.clone()));
            }
            Ok(header)
        }
        (Err(Error::OtherRootKey { needs }), Some(given)) => {
            Err(OpenError::WrongRootKey { given, needs, replaced: header.previous_root == Some(given) })
        }
        (Err(error), _) => Err(OpenError::damaged(error.to_string())),
    }
}
