//! Damaged rows: missing ones and those whose MAC does not match. They are counted, logged, and
//! recorded in the audit log once each.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{SecretName, VaultId};
use crate::error::Error;

/// Number of different findings that are logged and recorded; further ones are only counted.
const FINDINGS_MAX: usize = 1_024;

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

/// The findings since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    met: AtomicU64,
    findings: Mutex<Findings>,
}

#[derive(Debug, Default)]
struct Findings {
    known: BTreeSet<VaultFinding>,
    unreported: Vec<VaultFinding>,
}

impl Damage {
    /// How often a damaged row was read.
    pub(crate) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    pub(crate) fn found(&self, vault: VaultId, name: Option<&SecretName>, part: VaultPart) -> Error {
        self.met.fetch_add(1, Ordering::Relaxed);
        let finding = VaultFinding { vault: Some(vault), name: name.cloned(), part };
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if findings.known.len() < FINDINGS_MAX && findings.known.insert(finding.clone()) {
            tracing::error!(%vault, secret.name = name.map(SecretName::as_str), %part, "a vault is damaged");
            findings.unreported.push(finding);
        }
        Error::Damaged
    }

    /// Takes the findings that are not in the audit log yet.
    pub(crate) fn take_unreported(&self) -> Vec<VaultFinding> {
        std::mem::take(&mut self.findings.lock().unwrap_or_else(PoisonError::into_inner).unreported)
    }
}
