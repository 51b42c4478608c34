//! Check of the whole store: every secret, the head of every vault, the rows of `keys`, the audit
//! chain.

pub(crate) mod chain;
mod sums;

use std::collections::BTreeMap;

use crate::digest::{DIGEST_BYTES, Digest};
use crate::error::Error;
use crate::ids::StoreId;
use crate::log::{ChainEnd, ChainKey, LogKey};
use crate::operation::{Progress, VaultError, tell};
use crate::rows::{self, KEYS, Keyspace, LOG, META, Marker, RowKind, SetHash};
use crate::spend::UsageDay;
use crate::vault::{VaultSnapshot, vault_of_head, verify::verify};

use chain::ChainCheck;
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
    /// Number of usage rows that these records cover, without those that were dropped.
    pub usage_rows: u64,
    /// The first day whose usage rows were kept, where earlier ones were dropped.
    pub usage_dropped_before: Option<UsageDay>,
    /// What is wrong, as sentences without a full stop; empty when the store is consistent.
    pub problems: Vec<String>,
    pub(crate) content: Content,
}

/// What the rows that were checked amount to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Content {
    /// The set of the rows of `keys`, and that of the heads of vaults.
    pub(crate) sets: [SetHash; 2],
    /// Number and set of the ends of chains that come from a database.
    pub(crate) chains: (u64, SetHash),
    /// The last position in these chains.
    pub(crate) position: u64,
}

/// Checks the rows of the view. `last_commit` is the last anchored commit; the view has it, and may have
/// later ones. Where the engine has chains of several hosts, each is checked up to its own end.
pub(crate) fn check(
    view: &VaultSnapshot,
    last_commit: (u64, Digest),
    progress: &mut Progress<'_>,
) -> Result<Verification, VaultError> {
    let mut checker = Checker { view, is_marked: view.has_markers(), found: FoundRow::default(), progress };
    checker.keys()?;
    checker.vaults()?;
    let sum = checker.log(last_commit)?;
    let FoundRow { vaults, orphans, secrets, keys, dropped_before, problems, content } = checker.found;
    Ok(Verification {
        store: view.keys().store_id(),
        seq: if checker.is_marked { last_commit.0 } else { sum.ends },
        vaults,
        orphans,
        secrets,
        keys,
        audit_records: sum.records,
        usage_rows: sum.usage_rows,
        usage_dropped_before: dropped_before,
        problems,
        content,
    })
}

/// What the chains of the log have together.
#[derive(Default)]
struct LogSum {
    records: u64,
    usage_rows: u64,
    /// The sum of the numbers of their last commits.
    ends: u64,
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
    dropped_before: Option<UsageDay>,
    problems: Vec<String>,
    content: Content,
}

/// The chains of the log while they are checked.
struct Chains {
    /// That of a data directory.
    own: Option<ChainCheck>,
    /// Those that are in a database, or come from one.
    others: BTreeMap<ChainKey, ChainCheck>,
    /// Number of rows that belong to none of them.
    strangers: u64,
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
        self.found.content.sets[0] = set;
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
        self.found.content.sets[1] = heads;
        Ok(())
    }

    /// Checks each chain up to its end. Rows of several chains come in the order of their positions.
    fn log(&mut self, (seq, head): (u64, Digest)) -> Result<LogSum, VaultError> {
        let own = self.is_marked.then(|| ChainCheck::new(String::new(), seq, head));
        let mut chains = Chains { own, others: BTreeMap::new(), strangers: 0 };
        let (mut seen, mut sum) = (0_u64, LogSum::default());
        for row in self.view.all_rows(Keyspace::Log)? {
            let (key, value) = row?;
            seen += 1;
            if seen.is_multiple_of(STEP) {
                tell(self.progress, "rows of the audit log read", seen, 0)?;
            }
            self.log_row(&key, &value, &mut chains, &mut sum);
        }
        self.witnessed(&chains.others);
        let Chains { own, others, strangers } = chains;
        if strangers > 0 {
            self.problem(format!("{strangers} rows of the audit log belong to no chain"));
        }
        let dropped = others.values().chain(&own).filter_map(ChainCheck::dropped_before).max();
        self.found.dropped_before = dropped;
        others.into_values().for_each(|chain| self.chain(chain, dropped, &mut sum));
        if let Some(own) = own {
            self.own_chain(own, head, dropped, &mut sum);
        }
        tell(self.progress, "audit records checked", sum.records, sum.records)?;
        Ok(sum)
    }

    fn log_row(&mut self, key: &[u8], row: &[u8], chains: &mut Chains, sum: &mut LogSum) {
        let keys = self.view.keys();
        let (chain, place) = match LogKey::parse(key) {
            Some(LogKey::Chain(chain)) => {
                if let Some(end) = self.end_of_chain(key, row) {
                    sum.ends += end.seq;
                    let name = format!("{} of {}", crate::hex::encode(&chain), end.host);
                    chains.others.insert(chain, ChainCheck::new(name, end.seq, end.head));
                }
                return;
            }
            Some(LogKey::Imported(at)) => {
                self.found.content.position = self.found.content.position.max(at.position);
                (chains.others.get_mut(&at.chain), (at.seq, at.index))
            }
            Some(LogKey::Own(seq, index)) => (chains.own.as_mut(), (seq, index)),
            None if key == rows::MARKER => return,
            None => (None, (0, 0)),
        };
        match chain {
            Some(chain) => chain.row(keys, place, row),
            None => chains.strangers += 1,
        }
    }

    /// Checks that no chain ends before the place where a record of another one saw it.
    fn witnessed(&mut self, chains: &BTreeMap<ChainKey, ChainCheck>) {
        let mut known: BTreeMap<&ChainKey, u64> = BTreeMap::new();
        for (chain, seq) in chains.values().flat_map(ChainCheck::witnessed) {
            let known = known.entry(chain).or_default();
            *known = (*known).max(*seq);
        }
        for (chain, seq) in known {
            let end = chains.get(chain).map_or(0, ChainCheck::seq);
            if end < seq {
                let chain = crate::hex::encode(chain);
                self.problem(format!(
                    "the chain {chain} of the audit log ends at {end}, and another chain saw it at {seq}"
                ));
            }
        }
    }

    /// Checks the row with the end of a chain.
    fn end_of_chain(&mut self, key: &[u8], row: &[u8]) -> Option<ChainEnd> {
        let keys = self.view.keys();
        let (count, ends) = &mut self.found.content.chains;
        *count += 1;
        ends.add(&keys.element(key, row));
        let end = rows::decode(keys, LOG, key, row);
        if end.is_none() {
            self.problem("the end of a chain of the audit log is not ours");
        }
        end
    }

    /// Ends the check of a chain that came from a database, or is in one.
    fn chain(&mut self, chain: ChainCheck, dropped: Option<UsageDay>, sum: &mut LogSum) {
        let name = chain.name.clone();
        let (seq, summary) = (chain.seq(), chain.finish(dropped));
        (sum.records, sum.usage_rows) = (sum.records + summary.records, sum.usage_rows + summary.usage_rows);
        if let Some(broken) = summary.broken_at {
            self.problem(format!("the audit log breaks at record {broken} of the chain {name}"));
        } else if !summary.is_complete {
            let records = summary.records;
            self.problem(format!("the chain {name} has {records} records and says that it has {seq}"));
        }
    }

    /// The same of the directory's own chain, which ends with this head. It names the others that are there.
    fn own_chain(&mut self, chain: ChainCheck, head: Digest, dropped: Option<UsageDay>, sum: &mut LogSum) {
        let summary = chain.finish(dropped);
        (sum.records, sum.usage_rows) = (sum.records + summary.records, sum.usage_rows + summary.usage_rows);
        if let Some(broken) = summary.broken_at {
            self.problem(format!("the audit log breaks at record {broken}"));
            return;
        }
        let (count, ends) = self.found.content.chains;
        let named = summary.imported.unwrap_or_else(|| (0, *SetHash::default().as_bytes()));
        // A chain without records is that of a backup of a database, whose seal covers the others.
        if head != [0; DIGEST_BYTES] && named != (count, *ends.as_bytes()) {
            self.problem("the chains of the audit log that came from a database are not those that came");
        }
    }
}
