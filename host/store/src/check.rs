//! Checking everything there is: each secret, each vault's head, the rows of `keys`, the audit chain.

use std::collections::BTreeSet;

use crate::audit::{self, AuditSummary};
use crate::database::{KEYS, META};
use crate::error::Error;
use crate::ids::StoreId;
use crate::log;
use crate::operation::{Progress, VaultError, tell};
use crate::rows::{self, Marker, RowKind, SetHash};
use crate::seal::Digest;
use crate::vault::{Head, VaultFinding, VaultId, VaultPart, View, name_in, vault_of_head};

/// Numbers of the keyspaces in the reporting order.
const IN_KEYS: usize = 0;
const IN_META: usize = 1;
const IN_VALUES: usize = 2;
const IN_LOG: usize = 3;
/// Problems that are told one by one.
const PROBLEMS_MAX: usize = 100;
/// Secrets between two reports.
const STEP: u64 = 1000;

/// What a check of the whole store found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verification {
    /// Which store.
    pub store: StoreId,
    /// Up to which commit.
    pub seq: u64,
    /// Vaults with keys of their own.
    pub vaults: u64,
    /// Secrets that were looked at.
    pub secrets: u64,
    /// API keys, revoked ones too.
    pub keys: u64,
    /// Audit records that hold.
    pub audit_records: u64,
    /// Usage rows that they vouch for.
    pub usage_rows: u64,
    /// What is wrong, in sentences without a final dot; empty when all is well.
    pub problems: Vec<String>,
}

/// Checks what the view shows; `tip` is the last commit that the anchor knows, which the view has at least.
pub(crate) fn check(
    view: &View,
    tip: (u64, Digest),
    progress: &mut Progress<'_>,
) -> Result<Verification, VaultError> {
    let mut checker = Checker { view, found: Found::default(), progress };
    checker.keys()?;
    checker.vaults()?;
    checker.strays()?;
    let chain = checker.chain(tip)?;
    let Found { vaults, secrets, keys, problems, .. } = checker.found;
    Ok(Verification {
        store: view.keys().store_id(),
        seq: tip.0,
        vaults,
        secrets,
        keys,
        audit_records: chain.records,
        usage_rows: chain.usage_rows,
        problems,
    })
}

#[derive(Default)]
struct Found {
    vaults: u64,
    secrets: u64,
    keys: u64,
    with_keys: BTreeSet<VaultId>,
    problems: Vec<String>,
}

struct Checker<'c, 'p, 'f> {
    view: &'c View,
    found: Found,
    progress: &'p mut Progress<'f>,
}

impl Checker<'_, '_, '_> {
    fn problem(&mut self, problem: impl ToString) {
        match self.found.problems.len() {
            0..PROBLEMS_MAX => self.found.problems.push(problem.to_string()),
            PROBLEMS_MAX => self.found.problems.push("and more".to_owned()),
            _ => {}
        }
    }

    fn vault_problem(&mut self, vault: VaultId, name: Option<&crate::vault::SecretName>, part: VaultPart) {
        self.problem(VaultFinding { vault: Some(vault), name: name.cloned(), part });
    }

    fn marker(&self, keyspace: usize, name: &str) -> Result<Option<Marker>, Error> {
        let row = self.view.row(keyspace, rows::MARKER)?;
        Ok(row.and_then(|row| Marker::decode(self.view.keys(), name, &row)))
    }

    /// Every row of `keys` has its MAC, and together they are the set that the marker speaks of.
    fn keys(&mut self) -> Result<(), VaultError> {
        let mut set = SetHash::default();
        for row in self.view.all_rows(IN_KEYS) {
            let (key, value) = row.into_inner()?;
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
        if !self.marker(IN_KEYS, KEYS)?.is_some_and(|marker| marker.set == set) {
            self.problem("the rows of the keyspace `keys` are not those of the last commit");
        }
        Ok(())
    }

    /// Every vault that has keys: its secrets open and add up to its head.
    fn vaults(&mut self) -> Result<(), VaultError> {
        for row in self.view.vault_records(None, usize::MAX)? {
            let Some(vault) = rows::vault_of_keys(&row) else {
                self.problem("a key record belongs to no vault");
                continue;
            };
            self.found.vaults += 1;
            self.found.with_keys.insert(vault);
            self.vault(vault)?;
        }
        Ok(())
    }

    fn vault(&mut self, vault: VaultId) -> Result<(), VaultError> {
        if !self.has_owner(vault)? {
            self.vault_problem(vault, None, VaultPart::Owner);
        }
        let keys = undamaged(self.view.vault_keys(vault))?.flatten();
        if keys.is_none() {
            self.vault_problem(vault, None, VaultPart::KeyRecord);
        }
        let mut sum = Head::default();
        for row in self.view.rows(vault) {
            self.found.secrets += 1;
            if self.found.secrets.is_multiple_of(STEP) {
                tell(self.progress, "secrets checked", self.found.secrets, 0)?;
            }
            let Some((name, row)) = undamaged(row.named(self.view, vault))? else {
                self.vault_problem(vault, None, VaultPart::RowKey);
                continue;
            };
            let Some(stored) = undamaged(self.view.decode(vault, name.clone(), &row))? else {
                self.vault_problem(vault, Some(&name), VaultPart::Metadata);
                continue;
            };
            sum.add(&stored.element(self.view.keys(), &crate::vault::secret_key(vault, &name)));
            let Some(keys) = &keys else { continue };
            let value = self
                .view
                .sealed(vault, &name)
                .and_then(|sealed| self.view.decrypt(vault, &stored, keys, &sealed));
            if undamaged(value)?.is_none() {
                self.vault_problem(vault, Some(&name), VaultPart::Value);
            }
        }
        let head = undamaged(self.view.head(vault))?.flatten();
        if !head.is_some_and(|head| (head.row_count, head.set) == (sum.row_count, sum.set)) {
            self.vault_problem(vault, None, VaultPart::Head);
        }
        Ok(())
    }

    fn has_owner(&self, vault: VaultId) -> Result<bool, Error> {
        let row = match vault {
            VaultId::Workspace(id) => self.view.key_row(&rows::workspace_key(id))?,
            VaultId::Intern(id) => self.view.key_row(&rows::intern_key(id))?,
            VaultId::Operator => return Ok(true),
        };
        Ok(row.is_some())
    }

    /// What belongs to nothing: rows of vaults without keys, values without metadata, keys of no kind.
    fn strays(&mut self) -> Result<(), VaultError> {
        let mut heads = SetHash::default();
        for row in self.view.all_rows(IN_META) {
            let (key, value) = row.into_inner()?;
            let head = vault_of_head(&key);
            if head.is_some() {
                heads.add(&self.view.keys().element(&key, &value));
            }
            match head.or_else(|| name_in(&key).map(|(vault, _)| vault)) {
                Some(vault) if self.found.with_keys.contains(&vault) => {}
                Some(vault) => self.vault_problem(vault, None, VaultPart::KeyRecord),
                None if key == rows::MARKER => {}
                None => self.problem("a row of the keyspace `meta` is not ours"),
            }
        }
        if !self.marker(IN_META, META)?.is_some_and(|marker| marker.set == heads) {
            self.problem("the heads of the vaults are not those of the last commit");
        }
        for row in self.view.all_rows(IN_VALUES) {
            let key = row.key()?;
            if key == rows::MARKER {
                continue;
            }
            match name_in(&key) {
                Some(_) if self.view.row(IN_META, &key)?.is_some() => {}
                Some((vault, name)) => self.vault_problem(vault, Some(&name), VaultPart::Metadata),
                None => self.problem("a row of the keyspace `values` is not ours"),
            }
        }
        Ok(())
    }

    fn chain(&mut self, (seq, head): (u64, Digest)) -> Result<AuditSummary, VaultError> {
        let rows = self.view.all_rows(IN_LOG).filter_map(|row| {
            let (key, value) = match row.into_inner() {
                Ok(row) => row,
                Err(error) => return Some(Err(Error::Engine(error))),
            };
            // Commits made since the tip was looked at are another check's.
            let place = log::place(&key).filter(|_| log::is_until(&key, seq))?;
            Some(Ok((place, value.to_vec())))
        });
        let summary = audit::verify(self.view.keys(), &head, rows)?;
        if let Some(broken) = summary.broken_at {
            self.problem(format!("the audit log breaks at record {broken}"));
        }
        tell(self.progress, "audit records checked", summary.records, summary.records)?;
        Ok(summary)
    }
}

/// `None` for what does not prove to be ours; other errors end the check.
fn undamaged<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Error::Damaged) => Ok(None),
        Err(error) => Err(error),
    }
}
