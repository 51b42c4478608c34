//! Damaged rows: missing ones and those whose MAC does not match. They are counted, logged, and
//! recorded in the audit log once each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::audit::{VaultFinding, VaultPart};
use crate::error::Error;
use crate::ids::VaultId;
use crate::secret::SecretName;

/// Number of different findings that are logged and recorded; further ones are only counted.
const FINDINGS_MAX: usize = 1_024;

/// The findings since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    met: AtomicU64,
    /// Findings are only counted.
    is_quiet: bool,
    findings: Mutex<Findings>,
}

#[derive(Debug, Default)]
struct Findings {
    known: BTreeSet<VaultFinding>,
    unreported: Vec<VaultFinding>,
}

impl Damage {
    /// Counts findings and tells of none.
    #[cfg(feature = "postgres")]
    pub(crate) fn quiet() -> Damage {
        Damage { is_quiet: true, ..Damage::default() }
    }

    /// How often a damaged row was read.
    pub(crate) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    pub(crate) fn found(&self, vault: VaultId, name: Option<&SecretName>, part: VaultPart) -> Error {
        self.met.fetch_add(1, Ordering::Relaxed);
        if self.is_quiet {
            return Error::Damaged;
        }
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
