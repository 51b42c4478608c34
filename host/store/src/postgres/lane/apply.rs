//! The part of a transaction before COMMIT: a group is applied until it lacks nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::super::failure::Failure;
use super::super::place::{ChainEnd, ChainId};
use super::super::transaction::{Begun, begin, load_more, make_chain, rollback};
use super::super::write::{self, Written};
use super::{GROUP_PATIENCE, Lane};
use crate::changes::{Effects, SliceEffects, SliceHost, WriteBatch};
use crate::loaded::Loaded;
use crate::queue::Job;
use crate::state::{Gap, Guard, Missing, Need};

/// Bytes of encrypted values after which a transaction takes no further change.
const GROUP_VALUE_BYTES: usize = 8 * 1024 * 1024;
/// How often a group is applied again because it lacked rows or guards. Rules ask for all that does not
/// depend on each other at once, so a few times are enough for each of them.
const ROUNDS_MAX: usize = 100;

/// A group that was applied without a gap.
pub(super) struct Applied {
    pub(super) written: Option<Written>,
    pub(super) effects: Effects,
    /// For each of the group's changes that are in it, whether it changes what hosts keep in memory.
    pub(super) changes_kept: Vec<bool>,
    pub(super) slices: SliceEffects,
}

impl Lane {
    /// Runs the transaction up to COMMIT.
    pub(super) async fn attempt(
        &mut self,
        group: &mut [Box<dyn Job>],
        guards: &mut BTreeSet<Guard>,
        needs: &mut BTreeSet<Need>,
        deadline: Instant,
    ) -> Result<Applied, Failure> {
        let mut rounds = Rounds { made: 0, deadline };
        loop {
            self.slices_epoch = self.slices.as_ref().map_or(0, |slices| slices.epoch());
            let begun = self.begin(guards, needs).await?;
            match self.apply_whole(group, guards, needs, begun, &mut rounds).await? {
                Ok(applied) => return Ok(applied),
                Err(unguarded) => guards.extend(unguarded),
            }
            // All guards are locked again, in order.
            rollback(self.session.as_ref().ok_or(Failure::NotCommitted)?).await?;
        }
    }

    /// Applies a group, and loads what it lacks, until it lacks no row. The guards that it lacks are the
    /// other result.
    async fn apply_whole(
        &mut self,
        group: &mut [Box<dyn Job>],
        guards: &BTreeSet<Guard>,
        needs: &mut BTreeSet<Need>,
        Begun { end, position, mut loaded }: Begun,
        rounds: &mut Rounds,
    ) -> Result<Result<Applied, BTreeSet<Guard>>, Failure> {
        loop {
            rounds.begin()?;
            let shared = Arc::new(std::mem::take(&mut loaded));
            let missing = match self.apply(group, guards, (end, position), Arc::clone(&shared))? {
                Ok(applied) => return Ok(Ok(applied)),
                Err(missing) => missing,
            };
            needs.extend(missing.needs.iter().cloned());
            if !missing.guards.is_empty() {
                return Ok(Err(missing.guards));
            }
            loaded = Arc::unwrap_or_clone(shared);
            let session = self.session.as_ref().ok_or(Failure::NotCommitted)?;
            load_more(session, &self.access.keys, &missing.needs, &mut loaded).await?;
        }
    }

    /// Connects and makes a chain where there is none, and begins a transaction.
    async fn begin(&mut self, guards: &BTreeSet<Guard>, needs: &BTreeSet<Need>) -> Result<Begun, Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.database.connect_lane().await?,
        };
        let session = self.session.insert(session);
        let (chain, end) = match self.chain {
            Some(chain) => chain,
            None => {
                let id = ChainId::random()?;
                self.accepted_losses = self.witness.accepted_losses();
                let host = self.host.id();
                make_chain(session, id, host).await?;
                self.chain_host = host;
                *self.chain.insert((id, ChainEnd::FIRST))
            }
        };
        begin(session, &self.access.keys, chain, end, guards, needs).await
    }

    /// Applies a group to a batch over loaded rows, for a commit after this end of the chain and at this position.
    fn apply(
        &mut self,
        group: &mut [Box<dyn Job>],
        guards: &BTreeSet<Guard>,
        (end, position): (ChainEnd, u64),
        loaded: Arc<Loaded>,
    ) -> Result<Result<Applied, Missing>, Failure> {
        // Other hosts write too, so sums of quotas are not kept from one transaction to the next.
        let access = self.access.with_own_quotas();
        let mut batch = WriteBatch::new(access.view(Box::new(loaded)), self.clock.now_ms())
            .placed(position)
            .holding(guards.clone())
            .of_host(SliceHost(self.chain_host.0))
            .with_slices_of(self.slices.is_some().then_some(SliceHost(self.chain_host.0)));
        let (mut missing, mut changes_kept) = (Missing::default(), Vec::new());
        self.suspect = None;
        for job in group {
            if batch.value_bytes() >= GROUP_VALUE_BYTES {
                break;
            }
            let before = batch.kept_changes();
            // A job keeps its failure to itself.
            if let Err(Gap::Missing(more)) = job.apply(&mut batch) {
                missing.add(more);
                self.suspect.get_or_insert(changes_kept.len());
            }
            changes_kept.push(batch.kept_changes() > before);
        }
        if !missing.is_empty() {
            return Ok(Err(missing));
        }
        batch.record(self.rows.audit.iter().chain(&self.damage).cloned());
        let summed = batch.add_usage(self.rows.usage.iter().cloned());
        let slices = summed.and_then(|()| match &self.slices {
            Some(slices) => batch.write_slices(slices, self.slices_epoch),
            None => Ok(SliceEffects::default()),
        });
        let slices = match slices {
            Ok(slices) => slices,
            Err(Gap::Missing(missing)) => return Ok(Err(missing)),
            Err(Gap::Failed(error)) => {
                tracing::error!(%error, "what was spent cannot be summed up");
                return Err(Failure::Unexpected("sums of what was spent"));
            }
        };
        let recalls = batch.recall_topics();
        let (commit, effects) = batch.finish();
        let is_empty = commit.entries.is_empty() && commit.usage.is_empty() && commit.rows.is_empty();
        let is_empty = is_empty && recalls.is_empty();
        let (chain, _) = self.chain.ok_or(Failure::NotCommitted)?;
        let written = match is_empty {
            true => None,
            false => {
                let written = write::statements(&self.access.keys, chain, end, commit, recalls);
                Some(written.map_err(|error| {
                    tracing::error!(%error, "a commit cannot be written");
                    Failure::Unexpected("a commit")
                })?)
            }
        };
        Ok(Ok(Applied { written, effects, changes_kept, slices }))
    }
}

/// How often a group was applied in a transaction.
struct Rounds {
    made: usize,
    deadline: Instant,
}

impl Rounds {
    fn begin(&mut self) -> Result<(), Failure> {
        self.made += 1;
        if self.made > ROUNDS_MAX {
            Err(Failure::TooManyRounds(ROUNDS_MAX))
        } else if Instant::now() >= self.deadline {
            Err(Failure::TooLong(GROUP_PATIENCE))
        } else {
            Ok(())
        }
    }
}
