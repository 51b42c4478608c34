//! Checking all vaults: every row proves to be ours and decrypts, none is missing or left over, and every vault
//! adds up to its head. Reads everything once at one moment, while the store goes on.

use std::collections::BTreeSet;

use super::access::View;
use super::stored::name_in;
use super::{Head, SecretName, Stored, VaultFinding, VaultId, VaultKeys, VaultPart};
use crate::error::Error;
use crate::operation::{Progress, VaultError, tell};

/// Findings that are named; further ones are only counted.
const NAMED_MAX: usize = 1_000;
/// Secrets of one vault between two reports; decrypting the longest values takes a tenth of a second.
const STEP: u64 = if cfg!(test) { 2 } else { 256 };

/// What is counted.
const CHECKED: &str = "secrets checked";

/// What checking all vaults found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct VaultReport {
    /// Vaults that were looked into.
    pub vaults: u64,
    /// Secrets that hold: metadata and value.
    pub secrets: u64,
    /// What does not hold, at most the first 1,000.
    pub findings: Vec<VaultFinding>,
    /// How much does not hold.
    pub findings_count: u64,
    /// Vaults whose workspace or intern is not there.
    pub orphans: u64,
}

impl VaultReport {
    /// Whether everything holds.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }

    fn found(&mut self, vault: Option<VaultId>, name: Option<SecretName>, part: VaultPart) {
        self.findings_count += 1;
        if self.findings.len() < NAMED_MAX {
            self.findings.push(VaultFinding { vault, name, part });
        }
    }
}

/// Checks everything, the encryption of every value included.
pub(crate) fn verify(view: &View, progress: &mut Progress<'_>) -> Result<VaultReport, VaultError> {
    let mut report = VaultReport::default();
    for vault in vaults(view, &mut report)? {
        report.vaults += 1;
        verify_vault(view, vault, &mut report, progress)?;
        tell(progress, CHECKED, report.secrets, 0)?;
    }
    Ok(report)
}

/// Every vault of which there is any row.
fn vaults(view: &View, report: &mut VaultReport) -> Result<BTreeSet<VaultId>, Error> {
    let mut vaults = BTreeSet::new();
    view.each_vault_row(|vault| match vault {
        Some(vault) => drop(vaults.insert(vault)),
        None => report.found(None, None, VaultPart::RowKey),
    })?;
    Ok(vaults)
}

fn verify_vault(
    view: &View,
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

/// Walks the rows of a vault in both keyspaces at once. Gives what those that hold add up to.
fn verify_rows(
    view: &View,
    vault: VaultId,
    keys: Option<&VaultKeys>,
    report: &mut VaultReport,
    progress: &mut Progress<'_>,
) -> Result<Head, VaultError> {
    let mut counted = Head::default();
    let mut values = view.values(vault).peekable();
    for (number, row) in (1_u64..).zip(view.rows(vault)) {
        if number % STEP == 0 {
            tell(progress, CHECKED, report.secrets, 0)?;
        }
        let (key, row) = row.pair()?;
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

/// What is missing and what does not prove to be ours is the same here.
fn unless_damaged<T>(result: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(Error::Damaged) => Ok(None),
        result => result,
    }
}
