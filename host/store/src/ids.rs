//! Ids of stored entities: newtypes over UUIDs, written with hyphens and in lower case; and the id
//! of a vault, which is that of its owner.
//!
//! Each kind of id is its own type, so that the id of a workspace cannot be passed where the id of
//! an intern is expected.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

/// Text that is not a UUID.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a UUID")]
pub struct IdError;

/// Id of one store: made at the first start and covered by every MAC and every wrapped key.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(transparent)]
pub struct StoreId(Uuid);

/// Id of a workspace.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(transparent)]
pub struct WorkspaceId(Uuid);

/// Id of a member of a workspace.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(transparent)]
pub struct MemberId(Uuid);

/// Id of an intern.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(transparent)]
pub struct InternId(Uuid);

/// A random (version 4) UUID.
fn random() -> Result<Uuid, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

/// Accepts the two spellings in common use, with and without hyphens, in either case.
fn parse(text: &str) -> Result<Uuid, IdError> {
    if text.len() != 36 && text.len() != 32 {
        return Err(IdError);
    }
    Uuid::try_parse(text).map_err(|_| IdError)
}

impl StoreId {
    pub(crate) fn random() -> Result<StoreId, getrandom::Error> {
        random().map(StoreId)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl WorkspaceId {
    pub(crate) fn random() -> Result<WorkspaceId, getrandom::Error> {
        random().map(WorkspaceId)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> WorkspaceId {
        WorkspaceId(Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes of the UUID.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl MemberId {
    pub(crate) fn random() -> Result<MemberId, getrandom::Error> {
        random().map(MemberId)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> MemberId {
        MemberId(Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes of the UUID.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl InternId {
    pub(crate) fn random() -> Result<InternId, getrandom::Error> {
        random().map(InternId)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> InternId {
        InternId(Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes of the UUID.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Display for WorkspaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Display for InternId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for WorkspaceId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<WorkspaceId, IdError> {
        parse(text).map(WorkspaceId)
    }
}

impl FromStr for MemberId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<MemberId, IdError> {
        parse(text).map(MemberId)
    }
}

impl FromStr for InternId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<InternId, IdError> {
        parse(text).map(InternId)
    }
}

/// Identifies a vault by its owner.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum VaultId {
    /// The vault of a workspace.
    Workspace(WorkspaceId),
    /// The vault of an intern.
    Intern(InternId),
    /// The vault of the operator, with provider keys. Clients have no access to it.
    Operator,
}

/// Length of an encoded vault id: one byte for its kind, 16 for the UUID of its owner.
pub(crate) const VAULT_ID_BYTES: usize = 17;

impl VaultId {
    /// The byte for the kind, which is the same in row keys and associated data.
    pub(crate) fn kind(self) -> u8 {
        match self {
            VaultId::Workspace(_) => b'w',
            VaultId::Intern(_) => b'i',
            VaultId::Operator => b'o',
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; VAULT_ID_BYTES] {
        let owner = match &self {
            VaultId::Workspace(id) => *id.as_bytes(),
            VaultId::Intern(id) => *id.as_bytes(),
            VaultId::Operator => [0; 16],
        };
        let mut bytes = [self.kind(); VAULT_ID_BYTES];
        if let Some(rest) = bytes.last_chunk_mut() {
            *rest = owner;
        }
        bytes
    }

    /// The reverse of [`VaultId::to_bytes`]; `None` for other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<VaultId> {
        let (kind, owner) = bytes.split_first()?;
        let owner: [u8; 16] = owner.try_into().ok()?;
        match kind {
            b'w' => Some(VaultId::Workspace(WorkspaceId::from_bytes(owner))),
            b'i' => Some(VaultId::Intern(InternId::from_bytes(owner))),
            b'o' if owner == [0; 16] => Some(VaultId::Operator),
            _ => None,
        }
    }
}

impl fmt::Display for VaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VaultId::Workspace(id) => write!(f, "workspace/{id}"),
            VaultId::Intern(id) => write!(f, "intern/{id}"),
            VaultId::Operator => f.write_str("operator"),
        }
    }
}

impl FromStr for VaultId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<VaultId, IdError> {
        match text.split_once('/') {
            Some(("workspace", id)) => id.parse().map(VaultId::Workspace),
            Some(("intern", id)) => id.parse().map(VaultId::Intern),
            None if text == "operator" => Ok(VaultId::Operator),
            _ => Err(IdError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_ids_parse_to_the_same_id() {
        let id = WorkspaceId::random().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        assert_eq!(id.to_string(), id.to_string().to_lowercase());
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in
            ["", "default", "{67e55044-10b1-426f-9247-bb680e5fe0c8}", "urn:uuid:67e55044-10b1-426f-9247"]
        {
            assert_eq!(text.parse::<InternId>(), Err(IdError), "{text}");
        }
    }
}
