//! Ids of stored entities: newtypes over UUIDs, written with hyphens and in lower case.
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

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> WorkspaceId {
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

    /// The sixteen bytes of the UUID.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl InternId {
    pub(crate) fn random() -> Result<InternId, getrandom::Error> {
        random().map(InternId)
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> InternId {
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
