//! Rows of secrets that are kept in memory after they were read, so that most requests ask the database
//! for no credential.
//!
//! Rows are kept as the database has them: values are encrypted. The rows that decide about one name are
//! from one moment and are dropped together. The feed tells which vaults were changed, and an answer from
//! memory counts only while this host has contact, as with records. So what a change took away is used by
//! no host once the change is answered. Programs of schemas before [`schema::VAULTS_TOLD`] tell nothing of
//! vaults, so nothing is kept while the store has such a schema.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::readers::{Readers, unread};
use super::schema;
use crate::error::Error;
use crate::ids::VaultId;
use crate::knowledge::Knowledge;
use crate::loaded::Loaded;
use crate::published::PublishedState;
use crate::rows::{self, Keyspace};
use crate::secret::SecretName;
use crate::state::{Gap, Need};
use crate::vault::{ReleaseScope, VaultReader, VaultSnapshot, secret_key};

/// Number of counters of changes. Vaults that share one are dropped together.
const COUNTERS: usize = 4096;
/// Average size that the cache is prepared for, in bytes.
const SECRET_BYTES: u64 = 4096;
/// How often rows are read anew because the ones before asked for more.
const ROUNDS_MAX: usize = 8;

/// A name, and whose secrets are searched for it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Wanted {
    scope: ReleaseScope,
    name: SecretName,
}

/// The rows that decide about a name.
#[derive(Clone)]
struct Kept {
    rows: Arc<Loaded>,
    /// The counters of the vaults that were searched, from before the rows were read.
    counted: Counted,
}

/// What the counters of one or two vaults showed.
type Counted = Vec<(usize, u64)>;

#[derive(Clone)]
struct ByBytes;

impl Weighter<Wanted, Kept> for ByBytes {
    fn weight(&self, wanted: &Wanted, kept: &Kept) -> u64 {
        (wanted.name.as_str().len() + kept.rows.bytes()) as u64
    }
}

/// The rows that are kept, and how often vaults were changed.
pub(crate) struct KeptSecrets {
    changes: Box<[AtomicU64]>,
    /// Whether every host tells which vaults it changed.
    is_told: AtomicBool,
    /// `None` where nothing is kept.
    secrets: Option<Cache<Wanted, Kept, ByBytes>>,
}

impl KeptSecrets {
    /// Keeps at most so many bytes of rows; 0 keeps none. `number` is that of the store's schema.
    pub(crate) fn new(bytes_max: u64, number: u32) -> KeptSecrets {
        let secrets = (bytes_max > 0).then(|| {
            let estimated = usize::try_from(bytes_max / SECRET_BYTES).unwrap_or(usize::MAX);
            Cache::with_weighter(estimated.max(1), bytes_max, ByBytes)
        });
        let changes = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        KeptSecrets { changes, is_told: AtomicBool::new(number >= schema::VAULTS_TOLD), secrets }
    }

    /// Notes the number of the store's schema. Rows that were read before it changed are not used.
    pub(super) fn note_schema(&self, number: u32) {
        let is_told = number >= schema::VAULTS_TOLD;
        if self.is_told.swap(is_told, Ordering::AcqRel) != is_told {
            self.drop_all();
        }
    }

    /// Drops what was read from this vault.
    pub(super) fn drop_vault(&self, vault: VaultId) {
        if let Some(counter) = self.changes.get(counter_of(vault)) {
            counter.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Drops everything.
    pub(super) fn drop_all(&self) {
        self.changes.iter().for_each(|counter| _ = counter.fetch_add(1, Ordering::AcqRel));
        if let Some(secrets) = &self.secrets {
            secrets.clear();
        }
    }

    fn keep(&self, wanted: Wanted, kept: Kept) {
        if let Some(secrets) = self.secrets.as_ref().filter(|_| self.is_told.load(Ordering::Acquire)) {
            secrets.insert(wanted, kept);
        }
    }

    fn count(&self, vaults: &[VaultId]) -> Counted {
        let shows = |vault: &VaultId| {
            let counter = counter_of(*vault);
            Some((counter, self.changes.get(counter)?.load(Ordering::Acquire)))
        };
        vaults.iter().filter_map(shows).collect()
    }

    fn is_current(&self, counted: &Counted) -> bool {
        let now = |counter: usize| self.changes.get(counter).map(|it| it.load(Ordering::Acquire));
        counted.iter().all(|(counter, shown)| now(*counter) == Some(*shown))
    }
}

fn counter_of(vault: VaultId) -> usize {
    let mut hasher = DefaultHasher::new();
    vault.hash(&mut hasher);
    usize::try_from(hasher.finish() % COUNTERS as u64).unwrap_or_default()
}

/// Reads what decides about a secret.
pub(crate) struct SecretReader {
    kept: Arc<KeptSecrets>,
    readers: Arc<Readers>,
    shared: Arc<PublishedState>,
    access: VaultReader,
}

impl SecretReader {
    pub(super) fn new(
        kept: Arc<KeptSecrets>,
        readers: Arc<Readers>,
        shared: Arc<PublishedState>,
        access: VaultReader,
    ) -> SecretReader {
        SecretReader { kept, readers, shared, access }
    }

    /// What `read` finds in the rows that are kept, and how new they are. `None` where there are none, or where
    /// the database has to be asked because they are damaged or out of date.
    ///
    /// # Errors
    /// [`Error::NoContact`] where nothing may go by them.
    pub(crate) fn in_memory<T>(
        &self,
        scope: ReleaseScope,
        name: &SecretName,
        read: impl Fn(&VaultSnapshot) -> Result<T, Gap>,
    ) -> Result<Option<(T, Knowledge)>, Error> {
        let Some(secrets) = &self.kept.secrets else { return Ok(None) };
        let Some(kept) = secrets.get(&Wanted { scope, name: name.clone() }) else { return Ok(None) };
        let contact = self.shared.contact();
        let is_current = self.kept.is_current(&kept.counted);
        let quiet = self.access.without_reports();
        let found = read(&quiet.view(Box::new(Arc::clone(&kept.rows))));
        let knowledge = contact.knowledge();
        if knowledge == Knowledge::Outdated {
            return Err(Error::NoContact);
        }
        let is_relied_on = is_current && quiet.damage.met() == 0;
        Ok(found.ok().filter(|_| is_relied_on).map(|found| (found, knowledge)))
    }

    /// What `read` finds in the database. The rows are kept. Blocks its thread.
    ///
    /// # Errors
    /// [`Error::NoContact`], [`Error::Busy`], and those of `read`.
    pub(crate) fn read<T>(
        &self,
        scope: ReleaseScope,
        name: &SecretName,
        read: impl Fn(&VaultSnapshot) -> Result<T, Gap>,
    ) -> Result<T, Error> {
        self.shared.check_contact()?;
        let vaults = self.vaults(scope);
        let counted = self.kept.count(&vaults);
        let met = self.access.damage.met();
        let (found, rows) = self.load(needs(scope, &vaults, name), read)?;
        if found.is_ok() && searches_all(scope, &vaults) && self.access.damage.met() == met {
            self.kept.keep(Wanted { scope, name: name.clone() }, Kept { rows, counted });
        }
        Ok(found?)
    }

    /// Reads rows of one moment until nothing is missing. Returns what `read` finds in them, and the rows.
    fn load<T>(
        &self,
        mut needs: BTreeSet<Need>,
        read: impl Fn(&VaultSnapshot) -> Result<T, Gap>,
    ) -> Result<(Result<T, Gap>, Arc<Loaded>), Error> {
        let moment = self.readers.moment();
        let mut rows = Loaded::default();
        for _ in 0..ROUNDS_MAX {
            let shared = Arc::new(moment.load(needs, rows).map_err(unread)?);
            match read(&self.access.view(Box::new(Arc::clone(&shared)))) {
                Err(Gap::Missing(missing)) => needs = missing.needs,
                found => return Ok((found, shared)),
            }
            rows = Arc::unwrap_or_clone(shared);
        }
        Err(Error::Damaged)
    }

    /// The vaults that are searched, in their order.
    fn vaults(&self, scope: ReleaseScope) -> Vec<VaultId> {
        match scope {
            ReleaseScope::Operator => vec![VaultId::Operator],
            ReleaseScope::Workspace(id) => vec![VaultId::Workspace(id)],
            ReleaseScope::Intern(id) => {
                let directory = self.shared.directory.load();
                let workspace = directory.interns.get(&id).map(|intern| VaultId::Workspace(intern.workspace));
                [VaultId::Intern(id)].into_iter().chain(workspace).collect()
            }
        }
    }
}

/// Whether these are all vaults that a name is searched in: the directory may not have an intern yet.
fn searches_all(scope: ReleaseScope, vaults: &[VaultId]) -> bool {
    vaults.len() == if matches!(scope, ReleaseScope::Intern(_)) { 2 } else { 1 }
}

/// The rows that usually decide about a name.
fn needs(scope: ReleaseScope, vaults: &[VaultId], name: &SecretName) -> BTreeSet<Need> {
    let intern = match scope {
        ReleaseScope::Intern(id) => Some(Need::Row(Keyspace::Keys, rows::intern_key(id))),
        _ => None,
    };
    let of_vault = |vault: &VaultId| {
        let key = secret_key(*vault, name);
        [
            Need::Row(Keyspace::Keys, rows::vault_keys_key(*vault)),
            Need::Row(Keyspace::Meta, key.clone()),
            Need::Row(Keyspace::Values, key),
        ]
    };
    intern.into_iter().chain(vaults.iter().flat_map(of_vault)).collect()
}
