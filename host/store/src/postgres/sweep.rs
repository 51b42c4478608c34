//! What the hosts of a store do for each other: changes that every host has seen are deleted, hosts that
//! show no sign of life are ended, the audit log gets the ends of all chains, and the log its partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_postgres::types::Type;

use super::connect::{Database, DatabaseSession};
use super::contact::{Hosts, KnownHost};
use super::failure::Failure;
use super::feed::Seen;
use super::host::{self, ThisHost};
use super::interrupted::charge_interrupted;
use super::limits;
use super::partitions;
use super::readers::{CommittedState, Readers, unread};
use super::statement::Statement;
use super::transaction::bounded;
use crate::audit::{Actor, AuditAction, AuditEntry};
use crate::error::Error;
use crate::published::PublishedState;
use crate::queue::LaneQueues;
use crate::seal::StoreKeys;

/// Time between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// A host whose beat stands still for so long is dead: much longer than its contact can have lasted.
const DEAD_AFTER: Duration = Duration::from_secs(if cfg!(test) { 10 } else { 30 });
/// A list of hosts that is older than this is not acted on.
const LIST_AGE_MAX: Duration = Duration::from_secs(3);
/// How often requests of hosts that ended are looked for, besides when a host is ended.
const CHARGE_EVERY: Duration = Duration::from_secs(60);
/// Time between two records of the ends of all chains.
const WITNESSED_EVERY: Duration = Duration::from_secs(60);
/// Time between two looks whether partitions are missing.
const PARTED_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// The most chains in one record.
const CHAINS_MAX: usize = 1024;
/// The most rows of changes that one transaction deletes.
const BATCH_ROWS: i64 = 1000;
/// The most transactions of one sweep that delete changes.
const BATCHES_MAX: usize = 20;

/// The task that sweeps.
pub(super) struct Sweep {
    database: Arc<Database>,
    host: Arc<ThisHost>,
    shared: Arc<PublishedState>,
    hosts: watch::Receiver<Hosts>,
    reading: Reading,
    session: Option<DatabaseSession>,
    /// When requests of hosts that ended were charged last.
    charged: Instant,
    /// When the audit log got the ends of chains last, and these.
    witnessed: (Instant, BTreeMap<String, u64>),
    /// When partitions were made last.
    parted: Option<Instant>,
}

/// What requests of hosts that ended are found and charged with.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) readers: Arc<Readers>,
    pub(super) queues: Arc<LaneQueues>,
    pub(super) keys: Arc<StoreKeys>,
}

impl Sweep {
    pub(super) fn new(
        database: Arc<Database>,
        host: Arc<ThisHost>,
        shared: Arc<PublishedState>,
        hosts: watch::Receiver<Hosts>,
        reading: Reading,
    ) -> Sweep {
        let (charged, witnessed) = (Instant::now(), (Instant::now(), BTreeMap::new()));
        Sweep { database, host, shared, hosts, reading, session: None, charged, witnessed, parted: None }
    }

    /// Runs until the runtime ends.
    pub(super) async fn run(mut self) {
        loop {
            sleep(SWEEP_EVERY).await;
            if let Err(failure) = self.sweep().await {
                tracing::warn!(%failure, "what other hosts have left could not be swept");
                self.session = None;
            }
        }
    }

    async fn sweep(&mut self) -> Result<(), Failure> {
        let hosts = self.hosts.borrow().clone();
        let is_new = hosts.asked.is_some_and(|asked| asked.elapsed() < LIST_AGE_MAX);
        if !is_new || !self.shared.has_contact() {
            return Ok(());
        }
        let now = Instant::now();
        let is_dead = |it: &KnownHost| now.duration_since(it.since) >= DEAD_AFTER;
        let own = self.host.id();
        let (dead, alive): (Vec<_>, Vec<_>) =
            hosts.rows.iter().partition(|it| it.row.id != own && is_dead(it));
        // Hosts may disagree about which of them is the first. Then several sweep, which is harmless.
        let is_first = alive.iter().map(|it| it.row.id).min() == Some(own);
        if dead.is_empty() && !is_first {
            return Ok(());
        }
        let session = match self.session.take() {
            Some(session) => session,
            None => self.database.connect().await?,
        };
        let session = self.session.insert(session);
        let mut has_ended = false;
        for KnownHost { row, .. } in dead {
            if host::bury(session, row.id, row.beat).await? {
                has_ended = true;
                tracing::warn!(host = %row.id, "a host showed no sign of life for {DEAD_AFTER:?} and was ended");
            }
        }
        if is_first {
            delete_changes(session, &seen_by_all(&hosts)).await?;
            limits::sweep(session).await?;
            if self.parted.is_none_or(|parted| parted.elapsed() >= PARTED_EVERY) {
                // A failure ends this sweep, and not those after it.
                self.parted = Some(now);
                partitions::make(session).await?;
            }
            if self.witnessed.0.elapsed() >= WITNESSED_EVERY {
                let ends = ends_of_chains(session).await?;
                self.witness(ends);
            }
        }
        // Also at intervals: a host that ended another one may itself have stopped before it charged the intents.
        if has_ended || is_first && self.charged.elapsed() >= CHARGE_EVERY {
            self.charge().await?;
            self.charged = now;
        }
        Ok(())
    }

    /// Puts the ends of chains into the audit log, so that no chain can be shortened alone.
    fn witness(&mut self, ends: BTreeMap<String, u64>) {
        if let Some(chains) = to_witness(&self.witnessed.1, &ends) {
            let entry = AuditEntry { actor: Actor::System, action: AuditAction::ChainsWitnessed { chains } };
            if self.reading.queues.push_audit(entry).is_err() {
                return;
            }
            self.witnessed.1 = ends;
        }
        self.witnessed.0 = Instant::now();
    }

    /// Charges what requests have left whose hosts have no row any more.
    async fn charge(&self) -> Result<(), Failure> {
        let Reading { readers, queues, keys } = self.reading.clone();
        let (database, directory) = (Arc::clone(&self.database), self.shared.directory.load_full());
        let charged = tokio::task::spawn_blocking(move || {
            charge_interrupted(&CommittedState::new(&readers, directory), &queues, &keys, || {
                live_hosts(&readers, database)
            })
        });
        let charged = charged.await.map_err(|_| Failure::Unexpected("requests of hosts that ended"))?;
        charged.map(drop).map_err(|error| Failure::Lost(error.to_string()))
    }
}

/// The ends of chains that the audit log gets, if there are any new ones. The commit of the last such record
/// alone is no reason for another one.
fn to_witness(before: &BTreeMap<String, u64>, ends: &BTreeMap<String, u64>) -> Option<BTreeMap<String, u64>> {
    let changed = ends.iter().filter(|(chain, seq)| before.get(*chain) != Some(seq));
    let chains: BTreeMap<_, _> = changed.map(|(chain, seq)| (chain.clone(), *seq)).take(CHAINS_MAX).collect();
    let commits = |(chain, seq): (&String, &u64)| seq.saturating_sub(before.get(chain).copied().unwrap_or(0));
    (chains.iter().map(commits).sum::<u64>() > 1).then_some(chains)
}

/// The number of the last commit of each chain that can have changed in the last minutes.
pub(super) async fn ends_of_chains(session: &DatabaseSession) -> Result<BTreeMap<String, u64>, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the ends of chains");
    let sql = "SELECT encode(id, 'hex'), seq FROM chain WHERE seq > 0 \
               AND (NOT retired OR sealed_ms > (extract(epoch FROM now()) * 1000)::bigint - 180000)";
    let end = |row: &Vec<Option<String>>| match row.as_slice() {
        [Some(chain), Some(seq)] => Some((chain.clone(), seq.parse().ok()?)),
        _ => None,
    };
    let rows = bounded(session.script(sql)).await?;
    rows.iter().map(|row| end(row).ok_or(UNEXPECTED)).collect()
}

/// The hosts that have a row. Blocks its thread.
fn live_hosts(readers: &Readers, database: Arc<Database>) -> Result<BTreeSet<String>, Error> {
    let rows = readers.wait(async move {
        let session = database.connect().await?;
        bounded(host::all(&session)).await
    });
    Ok(rows.map_err(unread)?.into_iter().map(|row| row.id.to_string()).collect())
}

/// How far every host has seen the changes of each chain. A dead host counts as long as it has a row: it
/// may only sleep, and without a row it reads everything anew.
fn seen_by_all(hosts: &Hosts) -> Seen {
    let Some((first, others)) = hosts.rows.split_first() else { return Seen::new() };
    let all = first.row.seen.iter().filter_map(|(chain, seq)| {
        let of_others = others.iter().map(|it| it.row.seen.get(chain).copied());
        Some((*chain, of_others.chain([Some(*seq)]).min().flatten()?))
    });
    all.collect()
}

/// Deletes changes that every host has seen, and retires sealed chains that have no others.
async fn delete_changes(session: &DatabaseSession, seen: &Seen) -> Result<(), Failure> {
    for _ in 0..BATCHES_MAX {
        let sql = "DELETE FROM change USING ( \
                     SELECT c.chain, c.seq, c.n FROM unnest($1, $2) AS s (chain, seq) \
                     JOIN change c ON c.chain = s.chain AND c.seq <= s.seq LIMIT $3 \
                   ) AS old WHERE change.chain = old.chain AND change.seq = old.seq AND change.n = old.n";
        let delete = Statement::new(sql)
            .with(seen.keys().map(|chain| chain.0.to_vec()).collect::<Vec<_>>(), Type::BYTEA_ARRAY)
            .with(seen.values().copied().collect::<Vec<i64>>(), Type::INT8_ARRAY)
            .with(BATCH_ROWS, Type::INT8);
        if bounded(delete.execute(&session.client)).await? < BATCH_ROWS.unsigned_abs() {
            break;
        }
    }
    let retire = "UPDATE chain SET retired = true WHERE NOT retired AND sealed_ms IS NOT NULL \
                  AND NOT EXISTS (SELECT FROM change WHERE change.chain = chain.id)";
    bounded(session.script(retire)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ends_are_witnessed_and_the_commit_of_their_record_is_no_reason_for_another_one() {
        let ends = |all: &[(&str, u64)]| -> BTreeMap<String, u64> {
            all.iter().map(|(chain, seq)| ((*chain).to_owned(), *seq)).collect()
        };
        let first = ends(&[("a", 3), ("b", 1)]);
        assert_eq!(to_witness(&BTreeMap::new(), &first), Some(first.clone()));
        assert_eq!(to_witness(&first, &first), None);
        assert_eq!(to_witness(&first, &ends(&[("a", 4), ("b", 1)])), None, "the record itself");
        assert_eq!(to_witness(&first, &ends(&[("a", 5), ("b", 1)])), Some(ends(&[("a", 5)])));
        assert_eq!(to_witness(&first, &ends(&[("a", 4), ("c", 1)])), Some(ends(&[("a", 4), ("c", 1)])));
    }
}
