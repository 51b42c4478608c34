//! A lane: a thread with a connection and a chain of its own, which commits what waits in its queue
//! group by group.
//!
//! It is a thread, like the writer of the embedded engine, because applying changes encrypts
//! megabytes and the queue is made for a thread that waits. Its connection is driven while it has
//! something to do; a connection that broke meanwhile is found broken by the next group, before
//! anything of it is committed.

mod apply;
mod doubt;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::time::sleep;

use apply::Applied;

use super::barrier::Barrier;
use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::feed::{Announcer, Topics};
use super::host::{HostId, ThisHost};
use super::place::{ChainEnd, ChainId};
use super::transaction::{Committed, commit, rollback};
use super::witness::{SeenNumbers, Witness};
use super::write::number;
use crate::audit::AuditEntry;
use crate::changes::{AnswerAfter, SettledUsage, Slices};
use crate::clock::Clock;
use crate::published::{FAILED, PublishedState};
use crate::queue::{Ended, Job, Rows, WriteQueue, WriterGuard};
use crate::state::{Guard, Need};
use crate::vault::VaultReader;

/// Largest number of changes in one transaction.
const GROUP_JOBS_MAX: usize = 512;
/// Pauses before a transaction is run again. After the last one, its callers get an answer.
const PAUSES_MS: [u64; 5] = [5, 10, 20, 40, 80];
/// With so many failures, a group that others are in the way of is halved.
const HALVED_AFTER: usize = 2;
/// How long a group may take, looked at between two round trips and without the question what became of
/// its commit.
const GROUP_PATIENCE: Duration = Duration::from_secs(10);
/// How long groups are divided to find the change that cannot be committed. After that, a failure is that
/// of the whole group: then the database is slow, and not one of the changes to blame.
const DIVIDING_PATIENCE: Duration = Duration::from_secs(30);
/// Longest pause between two questions what became of a commit, and between two attempts to commit
/// rows that no caller waits for.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a closing lane tries to commit what it still has, and asks what became of a commit, before
/// it gives up. One try may take longer than the rest of this time.
const CLOSING_PATIENCE: Duration = Duration::from_secs(20);
/// The state of a lane's thread.
pub(super) struct Lane {
    pub(super) database: Arc<Database>,
    pub(super) access: VaultReader,
    pub(super) queue: Arc<WriteQueue>,
    pub(super) shared: Arc<PublishedState>,
    pub(super) clock: Clock,
    /// The host that its chain belongs to.
    pub(super) host: Arc<ThisHost>,
    session: Option<DatabaseSession>,
    chain: Option<(ChainId, ChainEnd)>,
    /// The id of this host when the chain was made. Nothing is added to the chain once that host is ended.
    chain_host: HostId,
    /// Where requests of this host reserve, and their epoch before the group was read.
    slices: Option<Arc<Slices>>,
    slices_epoch: u64,
    witness: Arc<Witness>,
    /// How many losses were accepted when the chain was begun, or before its last commit, which it outlived.
    accepted_losses: u32,
    /// Changes that were left out of the group before, older than those in the queue.
    left_out: VecDeque<Box<dyn Job>>,
    /// The first change that lacked something when its group was applied last.
    suspect: Option<usize>,
    /// When a group was first divided; `None` once nothing of it is left out.
    dividing: Option<Instant>,
    /// Rows that no caller waits for, until they are committed.
    rows: Rows,
    damage: Vec<AuditEntry>,
    /// When the lane first saw that its queue is closed.
    closing: Option<Instant>,
    feed: Announcer,
    barrier: Barrier,
    /// The last commit, if other hosts may still have to see it.
    unseen: Option<(ChainId, u64)>,
    /// For each change of the last commit, whether it changed what hosts keep in memory.
    changes_kept: Vec<bool>,
}

/// The lane cannot go on. The cause was logged.
struct Stopped;

/// What ties a lane to its host, and to others.
#[derive(Clone)]
pub(super) struct HostLinks {
    pub(super) host: Arc<ThisHost>,
    pub(super) feed: Announcer,
    pub(super) barrier: Barrier,
    pub(super) witness: Arc<Witness>,
    pub(super) slices: Option<Arc<Slices>>,
}

impl Lane {
    pub(super) fn new(
        database: Arc<Database>,
        access: VaultReader,
        queue: Arc<WriteQueue>,
        shared: Arc<PublishedState>,
        clock: Clock,
        links: HostLinks,
    ) -> Lane {
        let HostLinks { host, feed, barrier, witness, slices } = links;
        Lane {
            database,
            access,
            queue,
            shared,
            clock,
            chain_host: host.id(),
            host,
            slices,
            slices_epoch: 0,
            session: None,
            chain: None,
            accepted_losses: witness.accepted_losses(),
            witness,
            left_out: VecDeque::new(),
            suspect: None,
            dividing: None,
            rows: Rows::default(),
            damage: Vec::new(),
            closing: None,
            feed,
            barrier,
            unseen: None,
            changes_kept: Vec::new(),
        }
    }

    /// Runs until the queue is closed and everything in it has an answer.
    pub(super) fn run(mut self, runtime: &Runtime) {
        let guard = WriterGuard::new(&self.queue, &self.shared);
        let mut wanted = 1;
        loop {
            let is_idle = self.left_out.is_empty() && self.rows.is_empty();
            if is_idle && !self.queue.wait(wanted) {
                break;
            }
            if self.shared.has_failed() && !self.queue.is_closed() {
                self.refuse_changes();
                continue;
            }
            match runtime.block_on(self.group()) {
                Ok(Some(changes)) => wanted = changes,
                Ok(None) if self.has_closed_in_vain() => {
                    self.lose_rows("the database cannot be reached at the end");
                    break;
                }
                Ok(None) => {}
                Err(Stopped) => return,
            }
        }
        // The connection ends on the runtime that it began on.
        runtime.block_on(async { self.session = None });
        guard.close();
    }

    /// Takes no more changes, because another lane failed: a host that has lost one of its chains cannot
    /// vouch for what it knows. Nothing was made of the changes that wait. Rows are still committed.
    fn refuse_changes(&mut self) {
        tracing::error!("another lane of the store failed; this one takes no more writes either");
        self.queue.refuse();
        self.left_out.drain(..).for_each(|job| job.answer(Ended::Undone));
    }

    /// Tells operators of rows that will not be committed.
    fn lose_rows(&self, reason: &str) {
        let (usage, audit) = (self.rows.usage.len(), self.rows.audit.len());
        if usage + audit > 0 {
            tracing::error!(usage, audit, "rows are lost: {reason}");
        }
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
        if self.left_out.is_empty() {
            self.dividing = None;
        }
        while group.len() < GROUP_JOBS_MAX {
            let Some(job) = self.left_out.pop_front().or_else(|| self.queue.take_job()) else { break };
            group.push(job);
        }
        // Taken after the changes, so that none of them is committed before a row that is older.
        self.queue.take_more_rows(&mut self.rows);
        let damage = self.access.damage.take_unreported();
        self.damage.extend(damage.into_iter().map(AuditEntry::of_damage));
        let started = Instant::now();
        let ended = self.attempts(&mut group, started + GROUP_PATIENCE).await?;
        let changes = group.len();
        self.answer(group, ended);
        if ended == Ended::Durable {
            let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.shared.commits.observe(took);
            return Ok(Some(changes));
        }
        if self.left_out.is_empty() && !self.rows.is_empty() {
            sleep(PAUSE_MAX).await;
        }
        Ok(None)
    }

    /// Answers the callers of a group. The caller of a change to records that hosts keep in memory is answered
    /// when the other hosts have seen it.
    fn answer(&mut self, group: Vec<Box<dyn Job>>, ended: Ended) {
        let unseen = self.unseen.take().filter(|_| ended == Ended::Durable);
        let changes_kept = std::mem::take(&mut self.changes_kept);
        let Some((chain, seq)) = unseen else {
            return group.into_iter().for_each(|job| job.answer(ended));
        };
        let mut held: [(AnswerAfter, Vec<Box<dyn Job>>); 2] =
            [AnswerAfter::AllHosts, AnswerAfter::ShortWait].map(|answer_after| (answer_after, Vec::new()));
        for (job, changes_kept) in group.into_iter().zip(changes_kept) {
            let answer_after = job.answer_after();
            match held.iter_mut().find(|(of, _)| *of == answer_after && changes_kept) {
                Some((_, jobs)) => jobs.push(job),
                None => job.answer(ended),
            }
        }
        for (answer_after, jobs) in held {
            if !jobs.is_empty() {
                self.barrier.hold(jobs, answer_after, chain, seq);
            }
        }
    }

    /// Runs the transaction of a group until it is committed, or until it is certain that nothing
    /// was. Changes that were left out of it are no longer in the group after that.
    async fn attempts(
        &mut self,
        group: &mut Vec<Box<dyn Job>>,
        mut deadline: Instant,
    ) -> Result<Ended, Stopped> {
        let (mut guards, mut needs) = self.asked(group);
        let mut failures = 0;
        loop {
            let accepted_losses = self.witness.accepted_losses();
            let failure = match self.attempt(group, &mut guards, &mut needs, deadline).await {
                Ok(applied) => match self.conclude(applied, accepted_losses, group).await? {
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
                    self.host.report_gone();
                }
                Failure::NoHost => self.host.report_gone(),
                Failure::NoChain => self.chain = None,
                failure if failure.lacks_prepared() => self.database.prepare_no_more(),
                Failure::ChainChanged { found, left } if !is_behind(*found, *left) => {
                    return Err(self.stop(&failure));
                }
                _ => {}
            }
            self.give_up_transaction(&failure).await;
            if matches!(failure, Failure::ChainChanged { .. }) && !self.begin_anew() {
                tracing::warn!(
                    error = code,
                    changes = group.len(),
                    "the database was set back; nothing is committed"
                );
                return Ok(Ended::Undone);
            }
            let passes =
                failure.is_transient() || matches!(failure, Failure::Sealed | Failure::ChainChanged { .. });
            if !passes && self.divide(group, &failure) {
                tracing::debug!(error = code, changes = group.len(), "a group of changes is divided");
                (guards, needs) = self.asked(group);
                (failures, deadline) = (0, Instant::now() + GROUP_PATIENCE);
                continue;
            }
            if !passes {
                tracing::error!(
                    error = code,
                    changes = group.len(),
                    "a group of changes cannot be committed"
                );
                return Ok(Ended::Undone);
            }
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
            tracing::debug!(error = code, failures, "a transaction is run again");
            if failures >= HALVED_AFTER && failure.is_conflict() {
                self.leave_out(group, group.len().div_ceil(2));
                // What was left out is not waited for.
                (guards, needs) = self.asked(group);
            }
            sleep(jittered(*pause)).await;
        }
    }

    /// Begins a new chain on a database that was set back, if an operator has accepted that since the chain
    /// was begun or got its last commit. `false` if that is not so: the database may be replaced by the right one.
    fn begin_anew(&mut self) -> bool {
        let is_accepted = self.witness.accepted_losses() > self.accepted_losses;
        if is_accepted {
            tracing::warn!("the lane begins a new chain on the database that was set back");
            self.chain = None;
        }
        is_accepted
    }

    /// Leaves out changes of a group that failed for a reason that does not pass, so that only the change
    /// that is to blame fails in the end. `false` if the group cannot be divided.
    fn divide(&mut self, group: &mut Vec<Box<dyn Job>>, failure: &Failure) -> bool {
        let began = *self.dividing.get_or_insert_with(Instant::now);
        if group.len() < 2 || began.elapsed() >= DIVIDING_PATIENCE {
            return false;
        }
        let count = match (failure, self.suspect) {
            // The changes before it lacked nothing. Without any, it is alone.
            (Failure::TooManyRounds(_) | Failure::TooLong(_), Some(suspect)) => suspect.max(1),
            _ => group.len() / 2,
        };
        self.leave_out(group, count);
        true
    }

    /// The guards and needs of a group and of the rows, as far as they are known before it is applied.
    fn asked(&self, group: &[Box<dyn Job>]) -> (BTreeSet<Guard>, BTreeSet<Need>) {
        let rows = self.rows.usage.iter().flat_map(SettledUsage::needs);
        let accounts = self.rows.usage.iter().map(|it| Guard::Account(it.row.workspace));
        let guards = group.iter().flat_map(|job| job.guards()).chain(accounts).collect();
        let needs = group.iter().flat_map(|job| job.needs()).chain(rows).collect();
        (guards, needs)
    }

    /// Puts the changes after the first `count` back before those in the queue.
    fn leave_out(&mut self, group: &mut Vec<Box<dyn Job>>, count: usize) {
        let rest = group.split_off(count.min(group.len()));
        rest.into_iter().rev().for_each(|job| self.left_out.push_front(job));
    }

    /// Commits what was applied. `None` once it is durable; else why nothing of it was committed.
    /// `accepted_losses` is how many losses were accepted before the transaction began.
    async fn conclude(
        &mut self,
        applied: Applied,
        accepted_losses: u32,
        group: &mut Vec<Box<dyn Job>>,
    ) -> Result<Option<Failure>, Stopped> {
        let Applied { written, effects, changes_kept, slices } = applied;
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
                Committed::Yes { has_others } => {
                    self.chain = Some((chain, written.end));
                    self.note_durable(accepted_losses, chain, written.end);
                    self.unseen = has_others.then_some((chain, written.end.seq));
                }
                Committed::No(failure) => return Ok(Some(failure)),
                Committed::InDoubt(failure) => {
                    if !self.resolve(chain, before, written.end, &failure).await? {
                        return Ok(Some(Failure::NotCommitted));
                    }
                    self.note_durable(accepted_losses, chain, written.end);
                    self.unseen = Some((chain, written.end.seq));
                }
            },
        }
        if let Some(own) = &self.slices {
            own.publish(slices);
        }
        let header = effects.changes_header;
        let vaults = effects.vaults.clone();
        let records = effects.publish(&self.access.with_own_quotas());
        self.rows = Rows::default();
        self.queue.rows_committed();
        self.damage.clear();
        self.leave_out(group, changes_kept.len());
        self.changes_kept = changes_kept;
        let records = records.into_keys().collect();
        let changes = Topics { records, header, vaults, ..Topics::default() };
        if !changes.is_empty() {
            let feed = self.feed.clone();
            feed.announce(chain, changes, || self.has_closed_in_vain()).await;
        }
        Ok(None)
    }

    /// Notes a durable commit, whose transaction began when so many losses were accepted. The chain had all its commits
    /// then, so only a loss that is accepted later is a reason to leave it.
    fn note_durable(&mut self, accepted_losses: u32, chain: ChainId, end: ChainEnd) {
        // The chain may have been begun after the number was read.
        self.accepted_losses = self.accepted_losses.max(accepted_losses);
        self.witness.learn(&SeenNumbers::of_commit(accepted_losses, chain, number(end.seq)));
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
        tracing::error!(%failure, "a lane of the store failed; the store takes no more writes");
        self.lose_rows("their lane takes no more writes");
        Stopped
    }
}

/// Whether a chain ends before the place where its lane left it: then the database was set back.
fn is_behind(found: Option<u64>, left: u64) -> bool {
    found.unwrap_or_default() < left
}

/// Between half of this time and all of it, so that lanes that were in each other's way are not again.
fn jittered(pause_ms: u64) -> Duration {
    let mut random = [0; 1];
    // Without random numbers, the whole time is as good.
    let part = getrandom::fill(&mut random).map_or(255, |()| u64::from(random[0]));
    Duration::from_micros(pause_ms * 500 + pause_ms * 500 * part / 255)
}
