//! Check of the whole store: every secret, the head of every vault, the rows of `keys`, the audit
//! chain.

pub(crate) mod chain;
mod sums;

use crate::digest::Digest;
use crate::error::Error;
use crate::ids::StoreId;
use crate::log;
use crate::operation::{Progress, VaultError, tell};
use crate::rows::{self, KEYS, Keyspace, META, Marker, RowKind, SetHash};
use crate::vault::{VaultSnapshot, vault_of_head, verify::verify};

use chain::AuditSummary;
pub(crate) use sums::check_sums;

/// Number of audit records between two progress reports.
const STEP: u64 = 1_000;
/// Largest number of problems that are listed.
const PROBLEMS_MAX: usize = 100;

/// Result of checking the whole store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verification {
    /// Id of the store.
    pub store: StoreId,
    /// Sequence number of the last commit that was checked.
    pub seq: u64,
    /// Number of vaults that have any row.
    pub vaults: u64,
    /// Number of those vaults whose workspace or intern does not exist.
    pub orphans: u64,
    /// Number of secrets that could be decrypted.
    pub secrets: u64,
    /// Number of API keys, including revoked ones.
    pub keys: u64,
    /// Number of valid audit records.
    pub audit_records: u64,
    /// Number of usage rows that these records cover.
    pub usage_rows: u64,
    /// What is wrong, as sentences without a full stop; empty when the store is consistent.
    pub problems: Vec<String>,
}

/// Checks the rows of the view. `tip` is the last anchored commit; the view has it, and may have
/// later ones.
pub(crate) fn check(
    view: &VaultSnapshot,
    tip: (u64, Digest),
    progress: &mut Progress<'_>,
) -> Result<Verification, VaultError> {
    let mut checker = Checker { view, found: FoundRow::default(), progress };
    checker.keys()?;
    checker.vaults()?;
    let chain = checker.chain(tip)?;
    let FoundRow { vaults, orphans, secrets, keys, problems } = checker.found;
    Ok(Verification {
        store: view.keys().store_id(),
        seq: tip.0,
        vaults,
        orphans,
        secrets,
        keys,
        audit_records: chain.records,
        usage_rows: chain.usage_rows,
        problems,
    })
}

/// Adds a problem to the list, up to its limit.
fn note(problems: &mut Vec<String>, problem: impl ToString) {
    match problems.len() {
        0..PROBLEMS_MAX => problems.push(problem.to_string()),
        PROBLEMS_MAX => problems.push("and more".to_owned()),
        _ => {}
    }
}

#[derive(Default)]
struct FoundRow {
    vaults: u64,
    orphans: u64,
    secrets: u64,
    keys: u64,
    problems: Vec<String>,
}

struct Checker<'c, 'p, 'f> {
    view: &'c VaultSnapshot,
    found: FoundRow,
    progress: &'p mut Progress<'f>,
}

impl Checker<'_, '_, '_> {
    fn problem(&mut self, problem: impl ToString) {
        note(&mut self.found.problems, problem);
    }

    fn marker(&self, keyspace: Keyspace, name: &str) -> Result<Option<Marker>, Error> {
        let row = self.view.row(keyspace, rows::MARKER)?;
        Ok(row.and_then(|row| Marker::decode(self.view.keys(), name, &row)))
    }

    /// Checks that every row of `keys` has a valid MAC, and that the rows are the set in the
    /// marker.
    fn keys(&mut self) -> Result<(), VaultError> {
        let mut set = SetHash::default();
        for row in self.view.all_rows(Keyspace::Keys)? {
            let (key, value) = row?;
            let kind = RowKind::of(&key);
            if kind == Some(RowKind::Marker) {
                continue;
            }
            set.add(&self.view.keys().element(&key, &value));
            if kind.is_none() || rows::checked(self.view.keys(), KEYS, &key, &value).is_none() {
                self.problem("a row of the keyspace `keys` is not ours");
            }
            self.found.keys += u64::from(kind == Some(RowKind::ApiKey));
        }
        if !self.marker(Keyspace::Keys, KEYS)?.is_some_and(|marker| marker.set == set) {
            self.problem("the rows of the keyspace `keys` are not those of the last commit");
        }
        Ok(())
    }

    /// Checks every row of every vault, and that the heads are the set in the marker.
    fn vaults(&mut self) -> Result<(), VaultError> {
        let report = verify(self.view, self.progress)?;
        (self.found.vaults, self.found.secrets) = (report.vaults, report.secrets);
        self.found.orphans = report.orphans;
        for finding in &report.findings {
            self.problem(finding);
        }
        let mut heads = SetHash::default();
        for row in self.view.all_rows(Keyspace::Meta)? {
            let (key, value) = row?;
            if vault_of_head(&key).is_some() {
                heads.add(&self.view.keys().element(&key, &value));
            }
        }
        if !self.marker(Keyspace::Meta, META)?.is_some_and(|marker| marker.set == heads) {
            self.problem("the heads of the vaults are not those of the last commit");
        }
        Ok(())
    }

    fn chain(&mut self, (seq, head): (u64, Digest)) -> Result<AuditSummary, VaultError> {
        let mut seen = 0;
        let rows = self.view.all_rows(Keyspace::Log)?.filter_map(|row| {
            seen += 1;
            if seen % STEP == 0
                && let Err(stopped) = tell(self.progress, "rows of the audit log read", seen, 0)
            {
                return Some(Err(stopped));
            }
            let (key, value) = match row {
                Ok(row) => row,
                Err(error) => return Some(Err(error.into())),
            };
            // Commits after `tip` are not part of this check.
            let place = log::place(&key).filter(|_| log::is_until(&key, seq))?;
            Some(Ok((place, value.to_vec())))
        });
        let summary = chain::verify(self.view.keys(), &head, rows)?;
        if let Some(broken) = summary.broken_at {
            self.problem(format!("the audit log breaks at record {broken}"));
        }
        tell(self.progress, "audit records checked", summary.records, summary.records)?;
        Ok(summary)
    }
}
