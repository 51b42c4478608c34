//! A change as a value that can be applied more than once.

use super::WriteBatch;
use crate::directory::RecordId;
use crate::ids::VaultId;
use crate::rows::{self, Keyspace};
use crate::state::{Gap, Guard, Need};
use crate::vault::head_key;

/// A change of the store.
///
/// It is applied to a write batch that may be thrown away, because a row or a guard was missing or
/// because the transaction was in conflict with another one. Then it is applied again. So it changes
/// nothing but the batch, and only the result of the last time counts.
pub(crate) trait Change: Send + 'static {
    /// What the caller gets once the change is durable.
    type Done: Send + 'static;

    /// The guards it needs, as far as they are known before it is applied.
    fn guards(&self) -> Vec<Guard>;

    /// What it reads, as far as that is known before. A hint: with fewer answers it is applied once
    /// more.
    fn needs(&self) -> Vec<Need>;

    /// For how long its answer waits for other hosts, if it changes a record.
    fn answer_after(&self) -> AnswerAfter {
        AnswerAfter::AllHosts
    }

    /// Changes the batch or refuses.
    fn apply(&self, batch: &mut WriteBatch) -> Result<Self::Done, Gap>;
}

/// For how long the answer to a durable change of a record waits for other hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AnswerAfter {
    /// Until all other hosts have the change: it may revoke something.
    AllHosts,
    /// For a moment: the change only adds something.
    ShortWait,
}

/// A change that knows its guards, made of a function.
pub(crate) struct Guarded<G, A> {
    guards: G,
    apply: A,
}

/// A change with these guards. It reads what belongs to them.
pub(crate) fn guarded<G, A, T>(guards: G, apply: A) -> Guarded<G, A>
where
    G: AsRef<[Guard]>,
    A: Fn(&mut WriteBatch) -> Result<T, Gap>,
{
    Guarded { guards, apply }
}

impl<G, A, T> Change for Guarded<G, A>
where
    G: AsRef<[Guard]> + Send + 'static,
    T: Send + 'static,
    A: Fn(&mut WriteBatch) -> Result<T, Gap> + Send + 'static,
{
    type Done = T;

    fn guards(&self) -> Vec<Guard> {
        self.guards.as_ref().to_vec()
    }

    fn needs(&self) -> Vec<Need> {
        self.guards.as_ref().iter().flat_map(needs_of).collect()
    }

    fn apply(&self, batch: &mut WriteBatch) -> Result<T, Gap> {
        (self.apply)(batch)
    }
}

/// What nearly every change with this guard reads.
fn needs_of(guard: &Guard) -> Vec<Need> {
    let record = |id: RecordId| Need::Row(Keyspace::Keys, id.row_key());
    match *guard {
        Guard::Store | Guard::Header => vec![Need::Row(Keyspace::Keys, rows::HEADER.to_vec())],
        Guard::Workspace(id) => vec![record(RecordId::Workspace(id))],
        Guard::Vault(vault) => {
            let owner = match vault {
                VaultId::Workspace(id) => Some(record(RecordId::Workspace(id))),
                VaultId::Intern(id) => Some(record(RecordId::Intern(id))),
                VaultId::Operator => None,
            };
            let keys = Need::Row(Keyspace::Keys, rows::vault_keys_key(vault));
            let head = Need::Row(Keyspace::Meta, head_key(vault));
            owner.into_iter().chain([keys, head]).collect()
        }
        Guard::Account(_) | Guard::Quota(_) => Vec::new(),
    }
}

/// A change that takes nothing away.
pub(crate) struct Adding<C>(C);

impl<G, A> Guarded<G, A> {
    /// Says that the change takes nothing away.
    pub(crate) fn adding(self) -> Adding<Guarded<G, A>> {
        Adding(self)
    }
}

impl<C, R> Reading<C, R> {
    /// Says that the change takes nothing away.
    pub(crate) fn adding(self) -> Adding<Reading<C, R>> {
        Adding(self)
    }
}

impl<C: Change> Change for Adding<C> {
    type Done = C::Done;

    fn guards(&self) -> Vec<Guard> {
        self.0.guards()
    }

    fn needs(&self) -> Vec<Need> {
        self.0.needs()
    }

    fn answer_after(&self) -> AnswerAfter {
        AnswerAfter::ShortWait
    }

    fn apply(&self, batch: &mut WriteBatch) -> Result<C::Done, Gap> {
        self.0.apply(batch)
    }
}

/// A change with further needs.
pub(crate) struct Reading<C, R> {
    change: C,
    reads: R,
}

impl<G, A> Guarded<G, A> {
    /// Adds what it reads besides that.
    pub(crate) fn reading<R: Fn() -> Vec<Need>>(self, reads: R) -> Reading<Guarded<G, A>, R> {
        Reading { change: self, reads }
    }
}

impl<C: Change, R: Fn() -> Vec<Need> + Send + 'static> Change for Reading<C, R> {
    type Done = C::Done;

    fn guards(&self) -> Vec<Guard> {
        self.change.guards()
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = self.change.needs();
        needs.append(&mut (self.reads)());
        needs
    }

    fn apply(&self, batch: &mut WriteBatch) -> Result<C::Done, Gap> {
        self.change.apply(batch)
    }
}
