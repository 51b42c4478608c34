//! Check of the whole store: every secret, the head of every vault, the rows of `keys`, the audit
//! chain.

pub(crate) mod chain;
mod sums;

use crate::digest::Digest;
use crate::error::Error;
use crate::ids::StoreId;
use crate::log::LogRow;
use crate::operation::{Progress, VaultError, tell};
use crate::rows::{self, KEYS, Keyspace, META, Marker, RowKind, SetHash};
use crate::state::{AuditChains, ChainEnd};
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
/// later ones. Where the engine has several chains, each is checked up to its own end.
pub(crate) fn check(
    view: &VaultSnapshot,
    tip: (u64, Digest),
    progress: &mut Progress<'_>,
) -> Result<Verification, VaultError> {
    let AuditChains { mut ends, rows } = view.audit_chains()?;
    let is_marked = ends.is_empty();
    if is_marked {
        ends.push(ChainEnd { name: String::new(), seq: tip.0, head: tip.1 });
    }
    let mut checker = Checker { view, is_marked, found: FoundRow::default(), progress };
    checker.keys()?;
    checker.vaults()?;
    let chain = checker.chains(&ends, rows)?;
    let FoundRow { vaults, orphans, secrets, keys, problems } = checker.found;
    Ok(Verification {
        store: view.keys().store_id(),
        seq: ends.iter().map(|end| end.seq).sum(),
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
    /// Whether markers have the hashes of all rows.
    is_marked: bool,
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
        if self.is_marked && !self.marker(Keyspace::Keys, KEYS)?.is_some_and(|marker| marker.set == set) {
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
        if self.is_marked && !self.marker(Keyspace::Meta, META)?.is_some_and(|marker| marker.set == heads) {
            self.problem("the heads of the vaults are not those of the last commit");
        }
        Ok(())
    }

    /// Checks each chain up to its end.
    fn chains(
        &mut self,
        ends: &[ChainEnd],
        rows: impl Iterator<Item = Result<(usize, LogRow), Error>>,
    ) -> Result<AuditSummary, VaultError> {
        let mut seen = 0;
        let progress = &mut *self.progress;
        let told = rows.map(|row| -> Result<(usize, LogRow), VaultError> {
            seen += 1;
            if seen % STEP == 0 {
                tell(progress, "rows of the audit log read", seen, 0)?;
            }
            Ok(row?)
        });
        let mut rows = told.peekable();
        let mut sum = AuditSummary { records: 0, usage_rows: 0, broken_at: None };
        let mut problems = Vec::new();
        for (place, ChainEnd { name, seq, head }) in ends.iter().enumerate() {
            let is_here =
                |row: &Result<(usize, LogRow), _>| row.as_ref().map_or(true, |(at, _)| *at == place);
            let mut here = std::iter::from_fn(|| rows.next_if(is_here).map(|row| row.map(|(_, row)| row)));
            // Commits after the end are not part of this check.
            let until = here.by_ref().filter(|row| row.as_ref().map_or(true, |((found, _), _)| found <= seq));
            let summary = chain::verify(self.view.keys(), head, until)?;
            // The rest of a chain that is broken.
            for row in here {
                row?;
            }
            (sum.records, sum.usage_rows) =
                (sum.records + summary.records, sum.usage_rows + summary.usage_rows);
            let of = if name.is_empty() { String::new() } else { format!(" of the chain {name}") };
            if !self.is_marked && summary.broken_at.is_none() && summary.records != *seq {
                let records = summary.records;
                problems.push(format!("the chain {name} has {records} records and says that it has {seq}"));
            }
            problems.extend(
                summary.broken_at.map(|broken| format!("the audit log breaks at record {broken}{of}")),
            );
        }
        problems.into_iter().for_each(|problem| self.problem(problem));
        tell(self.progress, "audit records checked", sum.records, sum.records)?;
        Ok(sum)
    }
}
