//! The header of a store: what is read before any key is available.

use serde::{Deserialize, Serialize};

use crate::error::OpenError;
use crate::ids::StoreId;
use crate::root_key::{RootKeyId, RootKeyRecord};
use crate::rows;

/// First field of a header: distinguishes this store from other databases of the same engine.
const MAGIC: &str = "cofferdam store";
/// The format this program writes, and the newest one it reads.
const SCHEMA: u32 = 1;

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
            previous_root: None,
            untidy: false,
            key_rotation_since_ms: None,
            retired_keys_due_ms: None,
            accepted_losses: 0,
        }
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
    if header.min_reader > SCHEMA {
        return Err(OpenError::TooNew { found: header.schema_major, known: SCHEMA });
    }
    Ok(header)
}
