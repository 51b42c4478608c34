//! A lane: a thread with a connection and a chain of its own, which commits what waits in its queue
//! group by group.
//!
//! It is a thread, like the writer of the embedded engine, because applying changes encrypts
//! megabytes and the queue is made for a thread that waits. Its connection is driven while it has
//! something to do; a connection that broke meanwhile is found broken by the next group, before
//! anything of it is committed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::connect::{Database, Session};
use super::failure::Failure;
use super::feed::Announcer;
use super::place::{ChainEnd, ChainId};
use super::transaction::{Begun, Committed, begin, commit, load_more, make_chain, resolve, rollback};
use super::write::{self, Written};
use crate::audit::AuditEntry;
use crate::changes::{Effects, SettledUsage, WriteBatch};
use crate::clock::Clock;
use crate::error::Error;
use crate::loaded::Loaded;
use crate::published::{CLOSED, FAILED, PublishedState, RUNNING};
use crate::queue::{Ended, Job, Rows, WriteQueue};
use crate::state::{Gap, Guard, Need};
use crate::vault::VaultReader;

/// Largest number of changes in one transaction.
const GROUP_JOBS_MAX: usize = 512;
/// Bytes of encrypted values after which a transaction takes no further change.
const GROUP_VALUE_BYTES: usize = 8 * 1024 * 1024;
/// How often a group is applied again because it lacked rows or guards.
const ROUNDS_MAX: usize = 2_000;
/// Pauses before a transaction is run again. After the last one, its callers get an answer.
const PAUSES_MS: [u64; 5] = [5, 10, 20, 40, 80];
/// With so many failures, a group that others are in the way of is halved.
const HALVED_AFTER: usize = 2;
/// How long a group may take, looked at between two round trips and without the question what became of
/// its commit.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);
/// Longest pause between two questions what became of a commit, and between two attempts to commit
/// rows that no caller waits for.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a closing lane tries to commit what it still has, and asks what became of a commit, before
/// it gives up. One try may take longer than the rest of this time.
const CLOSING_PATIENCE: Duration = Duration::from_secs(20);
/// Time between two warnings that a commit is still in doubt.
const DOUBT_WARNED_EVERY: Duration = Duration::from_secs(30);

/// The state of a lane's thread.
pub(super) struct Lane {
    pub(super) database: Arc<Database>,
    pub(super) access: VaultReader,
    pub(super) queue: Arc<WriteQueue>,
    pub(super) shared: Arc<PublishedState>,
    pub(super) clock: Clock,
    /// Name of this host, for people who look at the table.
    pub(super) host: String,
    session: Option<Session>,
    chain: Option<(ChainId, ChainEnd)>,
    /// Changes that were left out of the group before, older than those in the queue.
    left_out: VecDeque<Box<dyn Job>>,
    /// Rows that no caller waits for, until they are committed.
    rows: Rows,
    damage: Vec<AuditEntry>,
    /// When the lane first saw that its queue is closed.
    closing: Option<Instant>,
    feed: Announcer,
}

/// The lane cannot go on. The cause was logged.
struct Stopped;

/// A group that was applied without a gap.
struct Applied {
    written: Option<Written>,
    effects: Effects,
    /// How many of the group's changes.
    count: usize,
}

impl Lane {
    pub(super) fn new(
        database: Arc<Database>,
        access: VaultReader,
        queue: Arc<WriteQueue>,
        shared: Arc<PublishedState>,
        clock: Clock,
        host: String,
        feed: Announcer,
    ) -> Lane {
        Lane {
            database,
            access,
            queue,
            shared,
            clock,
            host,
            session: None,
            chain: None,
            left_out: VecDeque::new(),
            rows: Rows::default(),
            damage: Vec::new(),
            closing: None,
            feed,
        }
    }

    /// Runs until the queue is closed and everything in it has an answer.
    pub(super) fn run(mut self, runtime: &Runtime) {
        let guard = FailOnDrop { queue: Arc::clone(&self.queue), shared: Arc::clone(&self.shared) };
        let mut wanted = 1;
        loop {
            let is_idle = self.left_out.is_empty() && self.rows.is_empty();
            if is_idle && !self.queue.wait(wanted) {
                break;
            }
            match runtime.block_on(self.group()) {
                Ok(Some(changes)) => wanted = changes,
                Ok(None) if self.has_closed_in_vain() => {
                    let (usage, audit) = (self.rows.usage.len(), self.rows.audit.len());
                    tracing::error!(usage, audit, "rows are lost: the database cannot be reached at the end");
                    break;
                }
                Ok(None) => {}
                Err(Stopped) => return,
            }
        }
        // The connection ends on the runtime that it began on.
        runtime.block_on(async { self.session = None });
        // Another lane may have failed, or have ended before.
        let state = &guard.shared.state;
        let (Ok(_) | Err(_)) = state.compare_exchange(RUNNING, CLOSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether the queue has been closed for so long that the lane gives up.
    fn has_closed_in_vain(&mut self) -> bool {
        if !self.queue.is_closed() {
            return false;
        }
        let began = *self.closing.get_or_insert_with(Instant::now);
        began.elapsed() >= CLOSING_PATIENCE
    }

    /// Commits one group and answers its callers. Returns the number of its changes; `None` if
    /// nothing could be committed.
    async fn group(&mut self) -> Result<Option<usize>, Stopped> {
        let mut group: Vec<Box<dyn Job>> = Vec::new();
        while group.len() < GROUP_JOBS_MAX {
            let Some(job) = self.left_out.pop_front().or_else(|| self.queue.take_job()) else { break };
            group.push(job);
        }
        // Taken only when the ones before are committed: those in the queue count against its limit.
        if self.rows.is_empty() {
            self.rows = self.queue.take_rows();
        }
        let damage = self.access.damage.take_unreported();
        self.damage.extend(damage.into_iter().map(AuditEntry::of_damage));
        let started = Instant::now();
        let ended = self.attempts(&mut group, started + GROUP_PATIENCE).await?;
        let changes = group.len();
        for job in group {
            job.answer(ended);
        }
        if ended == Ended::Durable {
            let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.shared.commits.observe(took);
            return Ok(Some(changes));
        }
        if !self.rows.is_empty() {
            sleep(PAUSE_MAX).await;
        }
        Ok(None)
    }

    /// Runs the transaction of a group until it is committed, or until it is certain that nothing
    /// was. Changes that were left out of it are no longer in the group after that.
    async fn attempts(&mut self, group: &mut Vec<Box<dyn Job>>, deadline: Instant) -> Result<Ended, Stopped> {
        let (mut guards, mut needs) = self.asked(group);
        let mut failures = 0;
        loop {
            let failure = match self.attempt(group, &mut guards, &mut needs, deadline).await {
                Ok(applied) => match self.conclude(applied, group).await? {
                    None => return Ok(Ended::Durable),
                    Some(failure) => failure,
                },
                Err(failure) => failure,
            };
            let code = failure.to_string();
            match &failure {
                Failure::Sealed => {
                    tracing::error!("this host was taken for dead; the lane begins a new chain");
                    self.chain = None;
                }
                Failure::NoChain => self.chain = None,
                Failure::ChainChanged { .. } => return Err(self.stop(&failure)),
                _ => {}
            }
            self.give_up_transaction(&failure).await;
            failures += 1;
            let Some(pause) = PAUSES_MS.get(failures - 1).filter(|_| Instant::now() < deadline) else {
                tracing::warn!(
                    error = code,
                    failures,
                    changes = group.len(),
                    "a group of changes was not committed"
                );
                return Ok(Ended::Undone);
            };
            if !failure.is_transient() && !matches!(failure, Failure::Sealed) {
                tracing::error!(
                    error = code,
                    changes = group.len(),
                    "a group of changes cannot be committed"
                );
                return Ok(Ended::Undone);
            }
            tracing::debug!(error = code, failures, "a transaction is run again");
            if failures >= HALVED_AFTER && failure.is_conflict() {
                self.leave_out(group, group.len().div_ceil(2));
                // What was left out is not waited for.
                (guards, needs) = self.asked(group);
            }
            sleep(jittered(*pause)).await;
        }
    }

    /// The guards and needs of a group and of the rows, as far as they are known before it is applied.
    fn asked(&self, group: &[Box<dyn Job>]) -> (BTreeSet<Guard>, BTreeSet<Need>) {
        let sums = SettledUsage::sums(&self.rows.usage);
        let accounts = self.rows.usage.iter().map(|it| Guard::Account(it.row.workspace));
        let guards = group.iter().flat_map(|job| job.guards()).chain(accounts).collect();
        let needs = group.iter().flat_map(|job| job.needs()).chain(sums).collect();
        (guards, needs)
    }

    /// Puts the changes after the first `count` back before those in the queue.
    fn leave_out(&mut self, group: &mut Vec<Box<dyn Job>>, count: usize) {
        let rest = group.split_off(count.min(group.len()));
        rest.into_iter().rev().for_each(|job| self.left_out.push_front(job));
    }

    /// Runs the transaction up to COMMIT.
    async fn attempt(
        &mut self,
        group: &mut [Box<dyn Job>],
        guards: &mut BTreeSet<Guard>,
        needs: &mut BTreeSet<Need>,
        deadline: Instant,
    ) -> Result<Applied, Failure> {
        let mut rounds = Rounds { made: 0, deadline };
        loop {
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
        &self,
        group: &mut [Box<dyn Job>],
        guards: &BTreeSet<Guard>,
        needs: &mut BTreeSet<Need>,
        Begun { end, mut loaded }: Begun,
        rounds: &mut Rounds,
    ) -> Result<Result<Applied, BTreeSet<Guard>>, Failure> {
        loop {
            rounds.begin()?;
            let shared = Arc::new(std::mem::take(&mut loaded));
            let lacking = match self.apply(group, guards, end, Arc::clone(&shared))? {
                Ok(applied) => return Ok(Ok(applied)),
                Err(lacking) => lacking,
            };
            needs.extend(lacking.needs.iter().cloned());
            if !lacking.guards.is_empty() {
                return Ok(Err(lacking.guards));
            }
            loaded = Arc::unwrap_or_clone(shared);
            let session = self.session.as_ref().ok_or(Failure::NotCommitted)?;
            load_more(session, &self.access.keys, &lacking.needs, &mut loaded).await?;
        }
    }

    /// Connects and makes a chain where there is none, and begins a transaction.
    async fn begin(&mut self, guards: &BTreeSet<Guard>, needs: &BTreeSet<Need>) -> Result<Begun, Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.database.connect().await?,
        };
        let session = self.session.insert(session);
        let (chain, end) = match self.chain {
            Some(chain) => chain,
            None => {
                let id = ChainId::random()?;
                make_chain(session, id, &self.host).await?;
                *self.chain.insert((id, ChainEnd::FIRST))
            }
        };
        begin(session, &self.access.keys, chain, end, guards, needs).await
    }

    /// Applies a group to a batch over loaded rows.
    fn apply(
        &self,
        group: &mut [Box<dyn Job>],
        guards: &BTreeSet<Guard>,
        end: ChainEnd,
        loaded: Arc<Loaded>,
    ) -> Result<Result<Applied, Lacking>, Failure> {
        // Other hosts write too, so sums of quotas are not kept from one transaction to the next.
        let access = self.access.with_own_quotas();
        let mut draft = WriteBatch::new(access.view(Box::new(loaded)), self.clock.now_ms())
            .numbered(end.seq + 1)
            .holding(guards.clone());
        let (mut lacking, mut count) = (Lacking::default(), 0);
        for job in group {
            if draft.value_bytes() >= GROUP_VALUE_BYTES {
                break;
            }
            count += 1;
            match job.apply(&mut draft) {
                Ok(()) => {}
                Err(Gap::Missing(need)) => drop(lacking.needs.insert(need)),
                Err(Gap::Unguarded(guard)) => drop(lacking.guards.insert(guard)),
                // A job keeps its failure to itself.
                Err(Gap::Failed(_)) => {}
            }
        }
        if !lacking.guards.is_empty() || !lacking.needs.is_empty() {
            return Ok(Err(lacking));
        }
        draft.record(self.rows.audit.iter().chain(&self.damage).cloned());
        match draft.add_usage(self.rows.usage.iter().cloned()) {
            Ok(()) => {}
            Err(Gap::Missing(need)) => {
                return Ok(Err(Lacking { needs: [need].into(), ..Lacking::default() }));
            }
            Err(gap) => {
                let error = Error::from(gap);
                tracing::error!(%error, "what was spent cannot be summed up");
                return Err(Failure::Unexpected("sums of what was spent"));
            }
        }
        let (commit, effects) = draft.finish();
        let is_empty = commit.entries.is_empty() && commit.usage.is_empty() && commit.rows.is_empty();
        let (chain, _) = self.chain.ok_or(Failure::NotCommitted)?;
        let written = match is_empty {
            true => None,
            false => Some(write::statements(&self.access.keys, chain, end, commit).map_err(|error| {
                tracing::error!(%error, "a commit cannot be written");
                Failure::Unexpected("a commit")
            })?),
        };
        Ok(Ok(Applied { written, effects, count }))
    }

    /// Commits what was applied. `None` once it is durable; else why nothing of it was committed.
    async fn conclude(
        &mut self,
        applied: Applied,
        group: &mut Vec<Box<dyn Job>>,
    ) -> Result<Option<Failure>, Stopped> {
        let Applied { written, effects, count } = applied;
        let (Some(session), Some((chain, before))) = (&self.session, self.chain) else {
            return Ok(Some(Failure::NotCommitted));
        };
        match written {
            None => {
                if let Err(failure) = rollback(session).await {
                    return Ok(Some(failure));
                }
            }
            Some(written) => match commit(session, chain, before, &written).await {
                Committed::Yes => self.chain = Some((chain, written.end)),
                Committed::No(failure) => return Ok(Some(failure)),
                Committed::InDoubt(failure) => {
                    if !self.resolve(chain, before, written.end, &failure).await? {
                        return Ok(Some(Failure::NotCommitted));
                    }
                }
            },
        }
        let records = effects.publish(&self.access.with_own_quotas());
        self.rows = Rows::default();
        self.damage.clear();
        self.leave_out(group, count);
        if !records.is_empty() {
            let feed = self.feed.clone();
            feed.announce(chain, records.into_keys().collect(), || self.has_closed_in_vain()).await;
        }
        Ok(None)
    }

    /// Finds out whether a commit is durable. Asks until the database answers, or until the lane is
    /// closed and has asked often enough.
    async fn resolve(
        &mut self,
        chain: ChainId,
        before: ChainEnd,
        after: ChainEnd,
        cause: &Failure,
    ) -> Result<bool, Stopped> {
        tracing::warn!(%cause, seq = after.seq, "a commit is in doubt");
        // The transaction in doubt ends with its connection, if it has not ended yet.
        self.session = None;
        let (mut pause_ms, mut warned) = (5, Instant::now());
        loop {
            let failure = match resolve(&self.database, chain).await {
                Ok((session, end)) => return self.resolved(session, chain, end, [before, after]),
                Err(failure) => failure,
            };
            if warned.elapsed() >= DOUBT_WARNED_EVERY {
                tracing::warn!(%failure, "a commit is still in doubt: the database does not say what became of it");
                warned = Instant::now();
            }
            if self.has_closed_in_vain() {
                return Err(self.stop(&failure));
            }
            sleep(jittered(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MAX.as_millis() as u64);
        }
    }

    /// Goes on from where the chain ends after a commit that was in doubt.
    fn resolved(
        &mut self,
        session: Session,
        chain: ChainId,
        end: Option<ChainEnd>,
        [before, after]: [ChainEnd; 2],
    ) -> Result<bool, Stopped> {
        let is_durable = end == Some(after);
        // What made the first row of a chain may be gone together with the commit that followed it.
        let is_undone = end == Some(before) || (end.is_none() && before == ChainEnd::FIRST);
        if !is_durable && !is_undone {
            let found = end.map(|end| end.seq);
            return Err(self.stop(&Failure::ChainChanged { found, left: after.seq }));
        }
        tracing::warn!(is_durable, seq = after.seq, "a commit is no longer in doubt");
        (self.session, self.chain) = (Some(session), end.map(|end| (chain, end)));
        Ok(is_durable)
    }

    /// Rolls back, or closes the connection where that is not possible.
    async fn give_up_transaction(&mut self, failure: &Failure) {
        let Some(session) = self.session.take() else { return };
        if failure.keeps_connection() && rollback(&session).await.is_ok() {
            self.session = Some(session);
        }
    }

    /// Ends the lane: what it would commit next could contradict what it has acknowledged, or the end of
    /// a commit could not be found out before the store closed.
    fn stop(&self, failure: &Failure) -> Stopped {
        self.shared.state.store(FAILED, Ordering::Release);
        tracing::error!(%failure, "a lane of the store takes no more writes");
        Stopped
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

/// What a group lacked.
#[derive(Default)]
struct Lacking {
    needs: BTreeSet<Need>,
    guards: BTreeSet<Guard>,
}

/// Between half of this time and all of it, so that lanes that were in each other's way are not again.
fn jittered(pause_ms: u64) -> Duration {
    let mut random = [0; 1];
    // Without random numbers, the whole time is as good.
    let part = getrandom::fill(&mut random).map_or(255, |()| u64::from(random[0]));
    Duration::from_micros(pause_ms * 500 + pause_ms * 500 * part / 255)
}

struct FailOnDrop {
    queue: Arc<WriteQueue>,
    shared: Arc<PublishedState>,
}

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        // Only a regular end has changed the state before.
        let running =
            self.shared.state.compare_exchange(RUNNING, FAILED, Ordering::AcqRel, Ordering::Acquire);
        if running.is_ok() {
            tracing::error!("a lane of the store ended unexpectedly; the store takes no more writes");
        }
        self.queue.abandon();
    }
}
