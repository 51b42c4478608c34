//! What this host knows to be durable: the number of the last commit of each chain that it has seen.
//!
//! A database that has less was set back: an old backup was put in its place, or a standby was promoted
//! that lacked commits. Every host compares with each connection and each look at the changes, and keeps
//! its knowledge in a file for the next start. A loss that an operator has accepted is counted in the
//! header of the store; knowledge from before that is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::place::ChainId;
use crate::draft::Draft;
use crate::error::OpenError;
use crate::ids::StoreId;
use crate::rows;
use crate::seal::StoreKeys;

/// What the MAC of the file is bound to.
const FILE: (&str, &[u8]) = ("witness", b"witness");
/// The most chains that are remembered. Those that changed last are kept.
const CHAINS_MAX: usize = 1024;
/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The most chains that a text about lost commits names.
const NAMED_MAX: usize = 3;

/// The numbers of the last commits of chains.
pub(super) type ChainNumbers = BTreeMap<ChainId, i64>;

/// Numbers of durable commits, and how many losses were accepted before they were seen.
#[derive(Debug, Default)]
pub(super) struct SeenNumbers {
    accepted_losses: u32,
    chains: ChainNumbers,
}

impl SeenNumbers {
    /// What was read after so many losses were accepted.
    pub(super) fn new(accepted_losses: u32, chains: ChainNumbers) -> SeenNumbers {
        SeenNumbers { accepted_losses, chains }
    }

    /// A commit of this host, whose transaction began when so many losses were accepted.
    pub(super) fn of_commit(accepted_losses: u32, chain: ChainId, number: i64) -> SeenNumbers {
        SeenNumbers::new(accepted_losses, [(chain, number)].into())
    }
}

/// A chain that ends before a commit that was durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LostCommits {
    chain: ChainId,
    /// Number of its last commit; `None` where the chain is not there at all.
    found: Option<i64>,
    /// Number of a commit that was durable.
    known: i64,
}

/// Acknowledged commits that are not in the database. Empty for a database that has all of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Loss {
    chains: Vec<LostCommits>,
    /// The header does not know of a loss that an operator has accepted.
    lacks_acceptance: bool,
}

impl Loss {
    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty() && !self.lacks_acceptance
    }

    /// Number of chains that lack commits.
    pub(crate) fn chains(&self) -> usize {
        self.chains.len()
    }

    /// Number of lost commits.
    pub(crate) fn commits(&self) -> u64 {
        let lost = |it: &LostCommits| (it.known - it.found.unwrap_or_default()).unsigned_abs();
        self.chains.iter().map(lost).sum()
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.chains.is_empty() {
            return f.write_str("a loss that was accepted later is not noted in it");
        }
        for (at, LostCommits { chain, found, known }) in self.chains.iter().take(NAMED_MAX).enumerate() {
            let (before, id) = (if at > 0 { ", " } else { "" }, crate::hex::encode(&chain.0));
            match found {
                Some(found) => write!(f, "{before}chain {id} ends at {found} and had {known}")?,
                None => write!(f, "{before}chain {id} is missing and had {known}")?,
            }
        }
        match self.chains.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// What the file has.
#[derive(Debug, Deserialize, Serialize)]
struct Saved {
    store: StoreId,
    accepted_losses: u32,
    /// Ids of chains in hexadecimal digits with the number of a commit, the oldest knowledge first.
    chains: Vec<(String, i64)>,
}

#[derive(Debug, Default)]
struct Known {
    accepted_losses: u32,
    /// With each chain the number of its last durable commit, and when that was learned as a number that
    /// grows.
    chains: BTreeMap<ChainId, (i64, u64)>,
    clock: u64,
}

impl Known {
    fn learn(&mut self, chain: ChainId, number: i64) {
        let before = self.chains.get(&chain).map_or(0, |(number, _)| *number);
        if number > before {
            self.clock += 1;
            self.chains.insert(chain, (number, self.clock));
        }
    }

    /// Forgets the chains that changed least recently.
    fn shrink(&mut self) {
        while self.chains.len() > CHAINS_MAX {
            let oldest = self.chains.iter().min_by_key(|(_, (_, learned))| *learned).map(|(chain, _)| *chain);
            oldest.and_then(|chain| self.chains.remove(&chain));
        }
    }
}

/// What this host knows to be durable.
pub(crate) struct Witness {
    keys: Arc<StoreKeys>,
    /// Where it is kept. `None` for a command, which knows nothing from before.
    file: Option<PathBuf>,
    known: Mutex<Known>,
}

impl Witness {
    /// Knows nothing yet, except the number of accepted losses of the header.
    pub(crate) fn new(keys: Arc<StoreKeys>, file: Option<PathBuf>, accepted_losses: u32) -> Witness {
        let known = Mutex::new(Known { accepted_losses, ..Known::default() });
        Witness { keys, file, known }
    }

    /// Reads the knowledge of an earlier process, if there is any.
    ///
    /// # Errors
    /// [`OpenError::Io`], and [`OpenError::Damaged`] for a file that no host has written.
    pub(crate) fn open(
        keys: Arc<StoreKeys>,
        path: &Path,
        accepted_losses: u32,
    ) -> Result<Witness, OpenError> {
        let witness = Witness::new(Arc::clone(&keys), Some(path.to_owned()), accepted_losses);
        let Some(bytes) = read(path).map_err(OpenError::io(path))? else { return Ok(witness) };
        let of_other_store = |saved: Saved| saved.store != keys.store_id();
        let (keyspace, key) = FILE;
        let saved: Option<Saved> = rows::decode(&keys, keyspace, key, &bytes);
        let Some(saved) = saved.filter(|saved| saved.store == keys.store_id()) else {
            if rows::decode_unchecked(&bytes).is_some_and(of_other_store) {
                tracing::warn!(file = %path.display(), "what this host knew is about another store; it begins anew");
                return Ok(witness);
            }
            let what = format!(
                "{} was changed from outside; without it the next start knows of no loss",
                path.display()
            );
            return Err(OpenError::damaged(what));
        };
        let mut known = Known { accepted_losses: saved.accepted_losses, ..Known::default() };
        for (id, number) in saved.chains {
            if let Some(id) = crate::hex::decode(&id).and_then(|id| id.try_into().ok()) {
                known.learn(ChainId(id), number);
            }
        }
        known.shrink();
        *witness.lock() = known;
        Ok(witness)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that these commits are durable, unless a loss was accepted since they were seen: they may be among the lost
    /// commits.
    pub(super) fn learn(&self, seen: &SeenNumbers) {
        let mut known = self.lock();
        if seen.accepted_losses == known.accepted_losses {
            seen.chains.iter().for_each(|(chain, number)| known.learn(*chain, *number));
            known.shrink();
        }
    }

    /// What is known to be durable.
    pub(super) fn numbers(&self) -> ChainNumbers {
        self.lock().chains.iter().map(|(chain, (number, _))| (*chain, *number)).collect()
    }

    /// How many losses of the database an operator had accepted by the time of this knowledge.
    pub(crate) fn accepted_losses(&self) -> u32 {
        self.lock().accepted_losses
    }

    /// Begins anew, because a loss was accepted.
    pub(crate) fn begin_anew(&self, accepted_losses: u32) {
        *self.lock() = Known { accepted_losses, ..Known::default() };
    }

    /// What a database lacks whose header has this number of accepted losses. Where a loss was accepted meanwhile and
    /// the database lacks something, knowledge from before that is dropped.
    pub(crate) fn judge(&self, loss: Loss, accepted_losses: u32) -> Verdict {
        let own = self.accepted_losses();
        if loss.is_empty() && accepted_losses == own {
            return Verdict::Whole;
        }
        if accepted_losses < own {
            return Verdict::Lacks(Loss { lacks_acceptance: true, ..loss });
        }
        if loss.is_empty() {
            self.lock().accepted_losses = accepted_losses;
            return Verdict::Accepted;
        }
        if accepted_losses == own {
            return Verdict::Lacks(loss);
        }
        tracing::warn!(
            commits = loss.commits(),
            "an operator has accepted that the database lost commits: {loss}"
        );
        self.begin_anew(accepted_losses);
        Verdict::Accepted
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let saved = {
            let known = self.lock();
            let mut chains: Vec<_> =
                known.chains.iter().map(|(id, (number, at))| (*at, *id, *number)).collect();
            chains.sort_unstable();
            let chains = chains.into_iter().map(|(_, id, number)| (crate::hex::encode(&id.0), number));
            Saved {
                store: self.keys.store_id(),
                accepted_losses: known.accepted_losses,
                chains: chains.collect(),
            }
        };
        let (keyspace, key) = FILE;
        let bytes = rows::encode(&self.keys, keyspace, key, &saved);
        Draft::write(path, &bytes, 0o600)?.replace()
    }

    /// Writes the file; a failure is logged.
    pub(super) fn keep(&self) {
        if let Err(error) = self.write() {
            tracing::warn!(%error, "what this host knows to be durable cannot be written to its data directory");
        }
    }
}

/// What becomes of a comparison.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The database has all that is known.
    Whole,
    /// An operator has accepted a loss since. What this host has read may be lost even if it lacks nothing that is
    /// known to be durable: it may have seen commits that it never learned to be.
    Accepted,
    /// It has not.
    Lacks(Loss),
}

/// The durable commits that are not among these. `is_all` tells that a chain which is not listed is not
/// in the database.
pub(super) fn compare(known: &ChainNumbers, found: &ChainNumbers, is_all: bool) -> Loss {
    let lost = |(chain, known): (&ChainId, &i64)| {
        let found = found.get(chain).copied();
        let is_lost = found.map_or(is_all, |found| found < *known);
        is_lost.then_some(LostCommits { chain: *chain, found, known: *known })
    };
    Loss { chains: known.iter().filter_map(lost).collect(), lacks_acceptance: false }
}

/// A file that is there.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const A: ChainId = ChainId([1; 16]);
    const B: ChainId = ChainId([2; 16]);

    fn keys() -> Arc<StoreKeys> {
        Arc::new(StoreKeys::random(StoreId::random().unwrap()).unwrap())
    }

    fn learn(witness: &Witness, numbers: impl IntoIterator<Item = (ChainId, i64)>) {
        witness.learn(&SeenNumbers::new(witness.accepted_losses(), numbers.into_iter().collect()));
    }

    #[test]
    fn what_was_learned_is_read_back_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let (path, keys) = (folder.path().join("witness"), keys());
        let witness = Witness::open(Arc::clone(&keys), &path, 2).unwrap();
        learn(&witness, [(A, 7), (B, 0)]);
        learn(&witness, [(A, 5)]);
        assert_eq!(witness.numbers(), [(A, 7)].into(), "numbers only grow, and 0 is no commit");
        witness.write().unwrap();
        learn(&witness, (0..CHAINS_MAX as u128).map(|id| (ChainId((id << 64).to_be_bytes()), 1)));
        assert_eq!((witness.numbers().len(), witness.numbers().get(&A)), (CHAINS_MAX, None));
        learn(&witness, [(A, 9)]);
        witness.write().unwrap();
        let again = Witness::open(keys, &path, 1).unwrap();
        assert_eq!((again.numbers(), again.accepted_losses()), (witness.numbers(), 2));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_was_changed_is_refused_and_that_of_another_store_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (path, keys) = (folder.path().join("witness"), keys());
        let witness = Witness::open(Arc::clone(&keys), &path, 0).unwrap();
        learn(&witness, [(A, 7)]);
        witness.write().unwrap();
        let bytes = fs::read(&path).unwrap();
        let other = Witness::open(self::keys(), &path, 0).unwrap();
        assert!(other.numbers().is_empty());
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let opened = Witness::open(Arc::clone(&keys), &path, 0);
            assert!(
                opened.is_err_and(|error| matches!(error, OpenError::Damaged { .. }))
                    || is_other(&changed, &keys)
            );
        }
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(Witness::open(keys, &path, 0).is_err());
    }

    fn is_other(bytes: &[u8], keys: &StoreKeys) -> bool {
        rows::decode_unchecked::<Saved>(bytes).is_some_and(|saved| saved.store != keys.store_id())
    }

    #[test]
    fn a_database_lacks_what_is_behind_or_missing_and_nothing_else() {
        let known: ChainNumbers = [(A, 7), (B, 2)].into();
        let loss = compare(&known, &[(A, 7), (B, 5)].into(), true);
        assert!(loss.is_empty());
        assert!(compare(&known, &[(A, 7)].into(), false).is_empty(), "not all chains were asked for");
        let loss = compare(&known, &[(A, 4)].into(), true);
        assert_eq!((loss.chains(), loss.commits()), (2, 5));
        let text = loss.to_string();
        assert!(text.contains("ends at 4 and had 7") && text.contains("is missing and had 2"), "{text}");
    }

    #[test]
    fn a_loss_is_accepted_by_a_header_that_is_newer_than_what_is_known() {
        let witness = Witness::new(keys(), None, 1);
        let before = SeenNumbers::new(1, [(A, 7)].into());
        witness.learn(&before);
        assert_eq!(witness.numbers()[&A], 7);
        let loss = || compare(&witness.numbers(), &ChainNumbers::new(), true);
        assert_eq!(witness.judge(Loss::default(), 1), Verdict::Whole);
        assert!(matches!(witness.judge(loss(), 1), Verdict::Lacks(_)));
        assert!(
            matches!(witness.judge(Loss::default(), 0), Verdict::Lacks(_)),
            "the acceptance itself is lost"
        );
        assert_eq!(witness.judge(loss(), 2), Verdict::Accepted);
        assert_eq!((witness.numbers().len(), witness.accepted_losses()), (0, 2));
        // A beat that was on its way meanwhile has numbers from before.
        witness.learn(&before);
        // A commit that ended meanwhile may be one of the old database.
        witness.learn(&SeenNumbers::of_commit(1, B, 4));
        assert_eq!(witness.numbers().len(), 0);
        // Another host accepted a loss that this one does not know of.
        learn(&witness, [(A, 3)]);
        assert_eq!(witness.judge(Loss::default(), 3), Verdict::Accepted);
        assert_eq!((witness.judge(Loss::default(), 3), witness.numbers()[&A]), (Verdict::Whole, 3));
        assert!(matches!(witness.judge(loss(), 3), Verdict::Lacks(_)));
    }
}
