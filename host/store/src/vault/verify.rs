//! Check of all vaults: every row has a valid MAC and decrypts, none is missing or superfluous, and
//! every vault matches its head. Reads everything once in one view, while the store stays in
//! service.

use std::collections::BTreeSet;

use super::{Stored, VaultHead, VaultKeys, access::VaultSnapshot, stored::name_in};
use crate::audit::{VaultFinding, VaultPart};
use crate::error::Error;
use crate::ids::VaultId;
use crate::operation::{Progress, VaultError, tell};
use crate::secret::SecretName;
use crate::state::Gap;

/// Number of findings that are listed.
const NAMED_MAX: usize = 1_000;
/// Number of secrets of one vault between two progress reports. Decrypting that many of the longest
/// values takes a tenth of a second.
const STEP: u64 = if cfg!(test) { 2 } else { 256 };

const CHECKED: &str = "secrets checked";

/// Result of checking all vaults.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct VaultReport {
    /// Number of vaults checked.
    pub(crate) vaults: u64,
    /// Number of secrets whose metadata and value are valid.
    pub(crate) secrets: u64,
    /// What is missing or damaged, at most the first 1,000.
    pub(crate) findings: Vec<VaultFinding>,
    /// Number of vaults whose workspace or intern does not exist.
    pub(crate) orphans: u64,
}

impl VaultReport {
    fn found(&mut self, vault: Option<VaultId>, name: Option<SecretName>, part: VaultPart) {
        if self.findings.len() < NAMED_MAX {
            self.findings.push(VaultFinding { vault, name, part });
        }
    }
}

/// Checks all vaults, including the encryption of every value.
pub(crate) fn verify(view: &VaultSnapshot, progress: &mut Progress<'_>) -> Result<VaultReport, VaultError> {
    let mut report = VaultReport::default();
    for vault in vaults(view, &mut report)? {
        report.vaults += 1;
        verify_vault(view, vault, &mut report, progress)?;
        tell(progress, CHECKED, report.secrets, 0)?;
    }
    Ok(report)
}

/// Every vault that has any row.
fn vaults(view: &VaultSnapshot, report: &mut VaultReport) -> Result<BTreeSet<VaultId>, Gap> {
    let mut vaults = BTreeSet::new();
    view.each_vault_row(|vault| match vault {
        Some(vault) => drop(vaults.insert(vault)),
        None => report.found(None, None, VaultPart::RowKey),
    })?;
    Ok(vaults)
}

fn verify_vault(
    view: &VaultSnapshot,
    vault: VaultId,
    report: &mut VaultReport,
    progress: &mut Progress<'_>,
) -> Result<(), VaultError> {
    if !view.has_owner(vault)? {
        report.orphans += 1;
        report.found(Some(vault), None, VaultPart::Owner);
    }
    let keys = unless_damaged(view.vault_keys(vault))?;
    if keys.is_none() {
        report.found(Some(vault), None, VaultPart::KeyRecord);
    }
    let counted = verify_rows(view, vault, keys.as_ref(), report, progress)?;
    let head = unless_damaged(view.head(vault))?;
    if head.is_none_or(|head| !head.matches(&counted)) {
        report.found(Some(vault), None, VaultPart::Head);
    }
    Ok(())
}

/// Reads the rows of a vault in both keyspaces side by side. Returns the head that the valid rows
/// amount to.
fn verify_rows(
    view: &VaultSnapshot,
    vault: VaultId,
    keys: Option<&VaultKeys>,
    report: &mut VaultReport,
    progress: &mut Progress<'_>,
) -> Result<VaultHead, VaultError> {
    let mut counted = VaultHead::default();
    let mut values = view.values(vault)?.peekable();
    for (number, row) in (1_u64..).zip(view.rows(vault, usize::MAX)?) {
        if number % STEP == 0 {
            tell(progress, CHECKED, report.secrets, 0)?;
        }
        let (key, row) = row?;
        // Values without metadata: both lists are in the order of row keys.
        while let Some(left_over) =
            values.next_if(|value| value.as_ref().is_ok_and(|(other, _)| *other < key))
        {
            report.found(Some(vault), name(&left_over?.0), VaultPart::Value);
        }
        let value = values.next_if(|value| value.as_ref().is_ok_and(|(other, _)| *other == key));
        let Some(stored) = name(&key).and_then(|name| Stored::decode(view.keys(), vault, name, &row)) else {
            report.found(Some(vault), name(&key), VaultPart::Metadata);
            continue;
        };
        counted.add(&stored.element(view.keys(), &key));
        let opens = match (value.transpose()?, keys) {
            (Some((_, value)), Some(keys)) => view.opened(vault, &stored, keys, &value).is_some(),
            _ => false,
        };
        if opens {
            report.secrets += 1;
        } else {
            report.found(Some(vault), Some(stored.metadata.name), VaultPart::Value);
        }
    }
    for left_over in values {
        report.found(Some(vault), name(&left_over?.0), VaultPart::Value);
    }
    Ok(counted)
}

fn name(key: &[u8]) -> Option<SecretName> {
    name_in(key).map(|(_, name)| name)
}

/// A damaged part is treated like a missing one.
fn unless_damaged<T>(result: Result<Option<T>, Gap>) -> Result<Option<T>, Gap> {
    match result {
        Err(Gap::Failed(Error::Damaged)) => Ok(None),
        result => result,
    }
}
