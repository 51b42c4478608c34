//! Missing and damaged parts of a vault, as the audit log and reports name them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::VaultId;
use crate::secret::SecretName;

/// A part of a vault.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VaultPart {
    /// The row of the workspace or intern that the vault belongs to.
    Owner,
    /// The record of the vault's keys.
    KeyRecord,
    /// The head: number and set hash of the vault's secrets.
    Head,
    /// A row key.
    RowKey,
    /// The metadata of a secret.
    Metadata,
    /// The encrypted value of a secret.
    Value,
}

impl fmt::Display for VaultPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VaultPart::Owner => "owner",
            VaultPart::KeyRecord => "key record",
            VaultPart::Head => "head",
            VaultPart::RowKey => "key of a row",
            VaultPart::Metadata => "metadata",
            VaultPart::Value => "value",
        })
    }
}

/// A part of a vault that is missing or damaged.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct VaultFinding {
    /// The vault, if it is known.
    pub vault: Option<VaultId>,
    /// Name of the secret, if the part belongs to one.
    pub name: Option<SecretName>,
    /// Which part is missing or damaged.
    pub part: VaultPart,
}

impl fmt::Display for VaultFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.part)?;
        if let Some(name) = &self.name {
            write!(f, " of `{name}`")?;
        }
        match self.vault {
            Some(vault) => write!(f, " in {vault}"),
            None => f.write_str(" in no vault"),
        }
    }
}
