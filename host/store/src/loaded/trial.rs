//! The rules on loaded rows: in a [`Trial`], the lane applies each group of changes again on such
//! rows of its own database, with a random part of their guards and needs, until nothing is
//! missing, and commits that. Reads of vaults are tried in the same way.
//!
//! With the variable [`SEED`] set to a number, every store of the process is on trial.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Answer, Loaded};
use crate::changes::WriteBatch;
use crate::error::Error;
use crate::queue::Job;
use crate::state::{Gap, Guard, KeyedRow, Missing, Need, State};
use crate::vault::{VaultReader, VaultSnapshot};

/// The variable with the seed.
pub(super) const SEED: &str = "COFFERDAM_STORE_LOADED";
/// More rounds than any test needs: then a change asks for something new each time.
const ROUNDS_MAX: usize = 10_000;

/// Loads the answer to a question.
pub(super) fn load(loaded: &mut Loaded, from: &dyn State, need: Need) {
    let answer = match &need {
        Need::Row(keyspace, key) => from.row(*keyspace, key).map(Answer::Row),
        Need::Length(keyspace, key) => from.length(*keyspace, key).map(Answer::Length),
        Need::Range(range) => from.range(range).and_then(|rows| {
            let rows = rows.collect::<Result<Vec<KeyedRow>, Error>>();
            Ok(Answer::Rows(rows?))
        }),
        Need::Named(name) => from.named(name).map(Answer::Id),
        Need::Owned(kind, owner) => from.owned_by(*kind, *owner).map(Answer::Ids),
    };
    loaded.put(need, answer.unwrap());
}

/// Something that a change lacked.
#[derive(Debug)]
pub(crate) enum Lack {
    Row(Need),
    Guard(Guard),
}

/// What changes lacked although the trial began with all that they declare.
pub(crate) type Lacking = Arc<Mutex<Vec<Lack>>>;

thread_local! {
    /// Set while a store is opened by [`strictly`].
    static STRICT: RefCell<Option<Lacking>> = const { RefCell::new(None) };
}

/// Opens a store whose changes get exactly what they declare. What they lack is listed, and then
/// given to them.
pub(crate) fn strictly<T>(open: impl FnOnce() -> T) -> (T, Lacking) {
    let lacking = Lacking::default();
    STRICT.set(Some(Arc::clone(&lacking)));
    let opened = open();
    STRICT.set(None);
    (opened, lacking)
}

/// Takes what was listed.
pub(crate) fn taken(lacking: &Lacking) -> Vec<Lack> {
    std::mem::take(&mut lacking.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The trial of one store.
pub(crate) struct Trial {
    random: u64,
    strict: Option<Lacking>,
}

impl Trial {
    /// `None` unless this process or this store is on trial.
    pub(crate) fn begin() -> Option<Trial> {
        let strict = STRICT.with_borrow(Clone::clone);
        let seed = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
        (strict.is_some() || seed.is_some()).then(|| Trial { random: seed.unwrap_or_default(), strict })
    }

    /// True once in `of` times.
    fn chance(&mut self, of: u64) -> bool {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).is_multiple_of(of)
    }

    /// Whether a change gets something before it asks.
    fn gives(&mut self) -> bool {
        self.strict.is_some() || self.chance(2)
    }

    /// Applies a group to a batch on loaded rows. `first` is the batch that it was applied to before.
    pub(crate) fn again(
        &mut self,
        group: &mut [Box<dyn Job>],
        first: &WriteBatch,
        whole: &dyn State,
        access: &VaultReader,
    ) -> WriteBatch {
        let (mut loaded, mut held) = (Loaded::default(), BTreeSet::new());
        for job in group.iter() {
            job.needs().into_iter().filter(|_| self.gives()).for_each(|need| load(&mut loaded, whole, need));
            held.extend(job.guards().into_iter().filter(|_| self.gives()));
        }
        for _ in 0..ROUNDS_MAX {
            let mut batch = first.anew(access.view(Box::new(Arc::new(loaded.clone()))), held.clone());
            let gaps: Vec<Gap> = group.iter_mut().filter_map(|job| job.apply(&mut batch).err()).collect();
            // A conflict with another transaction: everything once more.
            if gaps.is_empty() && (self.strict.is_some() || !self.chance(4)) {
                return batch;
            }
            for gap in gaps {
                self.fill(gap, &mut loaded, &mut held, whole);
            }
        }
        panic!("a change asks for something new each time it is applied")
    }

    fn fill(&mut self, gap: Gap, loaded: &mut Loaded, held: &mut BTreeSet<Guard>, whole: &dyn State) {
        let Missing { needs, guards } = match gap {
            Gap::Missing(missing) => missing,
            Gap::Failed(error) => panic!("a job lacks nothing when its change failed: {error}"),
        };
        needs.iter().for_each(|need| load(loaded, whole, need.clone()));
        held.extend(&guards);
        if let Some(lacking) = &self.strict {
            let lacks = needs.into_iter().map(Lack::Row).chain(guards.into_iter().map(Lack::Guard));
            lacking.lock().unwrap_or_else(PoisonError::into_inner).extend(lacks);
        }
    }
}

/// Reads, on loaded rows if the process is on trial.
pub(crate) fn read<T>(
    whole: Box<dyn State>,
    access: &VaultReader,
    read: impl Fn(&VaultSnapshot) -> Result<T, Gap>,
) -> Result<T, Gap> {
    if std::env::var_os(SEED).is_none() {
        return read(&access.view(whole));
    }
    let mut loaded = Loaded::default();
    for _ in 0..ROUNDS_MAX {
        match read(&access.view(Box::new(Arc::new(loaded.clone())))) {
            Err(Gap::Missing(Missing { needs, .. })) if !needs.is_empty() => {
                needs.into_iter().for_each(|need| load(&mut loaded, &*whole, need));
            }
            result => return result,
        }
    }
    panic!("a read asks for something new each time")
}
