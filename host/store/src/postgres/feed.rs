//! Keeps the directory of this host as the database has it.
//!
//! One task reads changed records and publishes them, so that a newer record is never replaced by an
//! older one, whichever lane or host changed it. A lane whose commit has changed records waits for
//! this task before it answers. What other hosts changed is found in the table `change`, which is
//! looked at four times a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::Type;

use super::connect::{Database, Session};
use super::failure::Failure;
use super::load::load;
use super::place::ChainId;
use super::statement::Statement;
use super::transaction::bounded;
use crate::directory::{RecordChanges, RecordId};
use crate::loaded::Loaded;
use crate::published::PublishedState;
use crate::rows::Keyspace;
use crate::seal::StoreKeys;
use crate::state::{Need, State};

/// How often the changes of other hosts are looked for.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The most commits of lanes that wait to be read. Lanes wait for their own, so there are no more than lanes.
const WAITING_MAX: usize = 16;
/// The most commits of one chain that are read at once. Small in tests, so that a few take several
/// questions.
const COMMITS_MAX: i64 = if cfg!(test) { 2 } else { 256 };

/// How often a lane that waits for the directory looks whether it has to end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A commit of a lane of this host.
struct OwnCommit {
    chain: ChainId,
    /// The records that it changed.
    records: BTreeSet<RecordId>,
    /// Told when the directory has them.
    done: oneshot::Sender<()>,
}

/// Where lanes announce what their commits changed.
#[derive(Clone)]
pub(super) struct Announcer(mpsc::Sender<OwnCommit>);

impl Announcer {
    /// Waits until the directory has these committed records, or until `is_over`: without the directory
    /// a revoked key would still be accepted after its revocation was acknowledged.
    pub(super) async fn announce(
        &self,
        chain: ChainId,
        records: BTreeSet<RecordId>,
        mut is_over: impl FnMut() -> bool,
    ) {
        let (done, mut is_done) = oneshot::channel();
        // Without the task that reads them, the store is closing.
        if self.0.send(OwnCommit { chain, records, done }).await.is_err() {
            return;
        }
        while timeout(LOOK_EVERY, &mut is_done).await.is_err() && !is_over() {}
    }
}

/// How far the commits of each chain are in the directory.
pub(crate) type Seen = BTreeMap<ChainId, i64>;

/// The task that follows the changes.
pub(super) struct Feed {
    database: Arc<Database>,
    keys: Arc<StoreKeys>,
    shared: Arc<PublishedState>,
    commits: mpsc::Receiver<OwnCommit>,
    session: Option<Session>,
    seen: Seen,
    /// The chains of this host. Their lanes tell what they changed.
    own: BTreeSet<ChainId>,
    /// When other hosts' changes are looked for next.
    due: Instant,
}

impl Feed {
    /// The task, and where lanes hand over their commits.
    pub(super) fn new(
        database: Arc<Database>,
        keys: Arc<StoreKeys>,
        shared: Arc<PublishedState>,
        seen: Seen,
    ) -> (Feed, Announcer) {
        let (sender, commits) = mpsc::channel(WAITING_MAX);
        let (session, own, due) = (None, BTreeSet::new(), Instant::now());
        (Feed { database, keys, shared, commits, session, seen, own, due }, Announcer(sender))
    }

    /// Runs until the last lane has ended.
    pub(super) async fn run(mut self) {
        let mut waiting: Vec<OwnCommit> = Vec::new();
        while !waiting.is_empty() || self.wait(&mut waiting).await {
            while let Ok(commit) = self.commits.try_recv() {
                waiting.push(commit);
            }
            self.own.extend(waiting.iter().map(|commit| commit.chain));
            let records = waiting.iter().flat_map(|commit| commit.records.iter().copied()).collect();
            match self.publish(records).await {
                // A lane that is closing may have given up the wait.
                Ok(()) => waiting.drain(..).for_each(|commit| commit.done.send(()).unwrap_or_default()),
                Err(failure) => {
                    tracing::warn!(%failure, "changes of the directory could not be read");
                    self.session = None;
                    self.due = Instant::now() + PAUSE;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits for a commit of a lane, or until the changes of other hosts are due. `false` once the last
    /// lane has ended.
    async fn wait(&mut self, waiting: &mut Vec<OwnCommit>) -> bool {
        let commit = timeout_at(self.due, self.commits.recv()).await;
        let has_ended = matches!(commit, Ok(None));
        waiting.extend(commit.ok().flatten());
        !has_ended
    }

    /// Reads these records, and those that other hosts have changed, and publishes them.
    async fn publish(&mut self, mut records: BTreeSet<RecordId>) -> Result<(), Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => self.database.connect().await?,
        };
        let session = self.session.insert(session);
        let mut seen = self.seen.clone();
        let is_due = Instant::now() >= self.due;
        if is_due {
            records.append(&mut bounded(changed(session, &self.own, &mut seen)).await?);
        }
        if !records.is_empty() {
            let changes = bounded(read(session, &self.keys, records)).await?;
            self.shared.change(changes);
        }
        if is_due {
            self.seen = seen;
            self.due = Instant::now() + POLL_EVERY;
        }
        Ok(())
    }
}

/// The records that other hosts have changed since the last time.
async fn changed(
    session: &Session,
    own: &BTreeSet<ChainId>,
    seen: &mut Seen,
) -> Result<BTreeSet<RecordId>, Failure> {
    let own: Vec<Vec<u8>> = own.iter().map(|chain| chain.0.to_vec()).collect();
    let chains = seen.keys().map(|chain| chain.0.to_vec()).collect::<Vec<_>>();
    let numbers = seen.values().copied().collect::<Vec<i64>>();
    let sql = "SELECT chain.id, least(chain.changed, coalesce(s.seq, 0) + $4), c.topic FROM chain \
               LEFT JOIN unnest($2, $3) AS s (chain, seq) ON s.chain = chain.id \
               LEFT JOIN change c ON c.chain = chain.id AND c.seq > coalesce(s.seq, 0) \
               AND c.seq <= coalesce(s.seq, 0) + $4 \
               WHERE chain.id <> ALL($1) AND chain.changed > coalesce(s.seq, 0)";
    let statement = Statement::new(sql)
        .with(own, Type::BYTEA_ARRAY)
        .with(chains, Type::BYTEA_ARRAY)
        .with(numbers, Type::INT8_ARRAY)
        .with(COMMITS_MAX, Type::INT8);
    let rows = statement.rows(&session.client, usize::MAX, |_| Ok(0)).await?;
    let mut records = BTreeSet::new();
    for row in &rows {
        const UNEXPECTED: Failure = Failure::Unexpected("the question what changed");
        let chain: &[u8] = row.try_get(0).map_err(|_| UNEXPECTED)?;
        let chain = ChainId(chain.try_into().map_err(|_| UNEXPECTED)?);
        seen.insert(chain, row.try_get(1).map_err(|_| UNEXPECTED)?);
        let topic: Option<&[u8]> = row.try_get(2).map_err(|_| UNEXPECTED)?;
        records.extend(topic.and_then(RecordId::of_row_key));
    }
    Ok(records)
}

/// The records as they are committed now.
async fn read(
    session: &Session,
    keys: &StoreKeys,
    records: BTreeSet<RecordId>,
) -> Result<RecordChanges, Failure> {
    let needs = records.iter().map(|id| Need::Row(Keyspace::Keys, id.row_key())).collect();
    let mut loaded = Loaded::default();
    load(&session.client, keys, &needs, &mut loaded).await?;
    let loaded = Arc::new(loaded);
    let mut changes = RecordChanges::new();
    for id in records {
        let row = loaded.row(Keyspace::Keys, &id.row_key()).map_err(|_| Failure::Unexpected("a record"))?;
        let record = row.and_then(|row| {
            let record = id.decode(keys, &row);
            if record.is_none() {
                tracing::error!(record = ?id, "a record of the directory is damaged; it is taken for deleted");
            }
            record
        });
        changes.insert(id, record);
    }
    Ok(changes)
}
