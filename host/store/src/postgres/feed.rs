//! Keeps the directory of this host, and the header of the store, as the database has them.
//!
//! One task reads changed records and publishes them, so that a newer record is never replaced by an
//! older one, whichever lane or host changed it. A lane whose commit has changed records waits for
//! this task before it answers. What other hosts changed is found in the table `change`, which is
//! looked at four times a second, and when the database notifies this host of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::types::Type;

use super::connect::{Database, Session};
use super::failure::Failure;
use super::load::load;
use super::place::ChainId;
use super::statement::Statement;
use super::transaction::bounded;
use crate::directory::{Directory, RecordChanges, RecordId};
use crate::error::OpenError;
use crate::header::{Header, follow};
use crate::loaded::Loaded;
use crate::published::PublishedState;
use crate::rows::{self, Keyspace};
use crate::seal::{STORE_KEYS, StoreKeys};
use crate::state::{Need, State};

/// Where hosts notify each other of changes.
pub(super) const CHANNEL: &str = "cofferdam";
/// How often the changes of other hosts are looked for without a notification.
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
    /// What it changed.
    changes: Topics,
    /// Told when the directory has them.
    done: oneshot::Sender<()>,
}

/// What commits changed of what a host keeps in memory.
#[derive(Default)]
pub(super) struct Topics {
    pub(super) records: BTreeSet<RecordId>,
    pub(super) header: bool,
}

impl Topics {
    fn add(&mut self, other: &Topics) {
        self.records.extend(other.records.iter().copied());
        self.header |= other.header;
    }
}

/// Where lanes announce what their commits changed.
#[derive(Clone)]
pub(super) struct Announcer(mpsc::Sender<OwnCommit>);

impl Announcer {
    /// Waits until this host has taken these committed changes over, or until `is_over`: without the directory
    /// a revoked key would still be accepted after its revocation was acknowledged.
    pub(super) async fn announce(&self, chain: ChainId, changes: Topics, mut is_over: impl FnMut() -> bool) {
        let (done, mut is_done) = oneshot::channel();
        // Without the task that reads them, the store is closing.
        if self.0.send(OwnCommit { chain, changes, done }).await.is_err() {
            return;
        }
        while timeout(LOOK_EVERY, &mut is_done).await.is_err() && !is_over() {}
    }
}

/// How far the commits of each chain are in the directory.
pub(crate) type Seen = BTreeMap<ChainId, i64>;

/// The last look at the changes of other hosts.
#[derive(Clone)]
struct Look {
    /// A time before the look.
    began: Instant,
    /// Whether it came to the end of the changes.
    is_whole: bool,
    /// Grows with each look that found something.
    news: u64,
    seen: Arc<Seen>,
}

/// Reads the whole directory, and how far the changes of each chain are in it. Blocks its thread.
pub(crate) type Reload = Arc<dyn Fn() -> Result<(Arc<Directory>, Seen), OpenError> + Send + Sync>;

/// What the feed knows, for the task that reports it.
pub(super) struct FeedReader {
    looks: watch::Receiver<Look>,
    wanted: Arc<Notify>,
    /// The directory has to be read anew.
    has_gap: Arc<AtomicBool>,
}

impl FeedReader {
    /// How often something new was found.
    pub(super) fn news(&self) -> u64 {
        self.looks.borrow().news
    }

    /// How far the commits of each chain are in the directory, and how often something new was found.
    pub(super) fn seen(&self) -> (u64, Arc<Seen>) {
        let look = self.looks.borrow();
        (look.news, Arc::clone(&look.seen))
    }

    /// Waits until there may be news.
    pub(super) async fn until_news(&mut self) {
        if self.looks.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Has the whole directory read before the next look at changes: some of them may be deleted.
    pub(super) fn read_anew(&self) {
        self.has_gap.store(true, Ordering::Release);
    }

    /// Waits until all changes that were committed before this time are in the directory.
    pub(super) async fn until_whole(&mut self, after: Instant) {
        self.wanted.notify_one();
        let is_whole = |look: &Look| look.is_whole && look.began >= after;
        if self.looks.wait_for(is_whole).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What the task keeps up to date, and what it reads it with.
pub(super) struct Kept {
    pub(super) keys: Arc<StoreKeys>,
    pub(super) shared: Arc<PublishedState>,
    pub(super) header: Arc<ArcSwap<Header>>,
    pub(super) reload: Reload,
}

/// The task that follows the changes.
pub(super) struct Feed {
    database: Arc<Database>,
    kept: Kept,
    commits: mpsc::Receiver<OwnCommit>,
    session: Option<Session>,
    /// The chains of this host. Their lanes tell what they changed.
    own: BTreeSet<ChainId>,
    /// When other hosts' changes are looked for next.
    due: Instant,
    looks: watch::Sender<Look>,
    /// Told when a look at the changes is wanted before the next one is due.
    wanted: Arc<Notify>,
    /// The directory has to be read anew.
    has_gap: Arc<AtomicBool>,
}

impl Feed {
    /// The task, where lanes hand over their commits, and where others learn what it has read.
    pub(super) fn new(database: Arc<Database>, kept: Kept, seen: Seen) -> (Feed, Announcer, FeedReader) {
        let (sender, commits) = mpsc::channel(WAITING_MAX);
        let (session, own, due) = (None, BTreeSet::new(), Instant::now());
        let look = Look { began: due, is_whole: false, news: 0, seen: Arc::new(seen) };
        let (looks, reader) = watch::channel(look);
        let wanted = Arc::new(Notify::new());
        let has_gap = Arc::new(AtomicBool::new(false));
        let reader = FeedReader { looks: reader, wanted: Arc::clone(&wanted), has_gap: Arc::clone(&has_gap) };
        let feed = Feed { database, kept, commits, session, own, due, looks, wanted, has_gap };
        (feed, Announcer(sender), reader)
    }

    /// Runs until the runtime ends.
    pub(super) async fn run(mut self) {
        let mut waiting: Vec<OwnCommit> = Vec::new();
        loop {
            if waiting.is_empty() && !self.wait(&mut waiting).await {
                return;
            }
            while let Ok(commit) = self.commits.try_recv() {
                waiting.push(commit);
            }
            self.own.extend(waiting.iter().map(|commit| commit.chain));
            let mut changes = Topics::default();
            waiting.iter().for_each(|commit| changes.add(&commit.changes));
            match self.publish(changes).await {
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

    /// Waits for a commit of a lane, or until the changes of other hosts are due. `false` once nothing can
    /// come any more.
    async fn wait(&mut self, waiting: &mut Vec<OwnCommit>) -> bool {
        let told = async {
            match &self.session {
                Some(session) => session.until_notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            commit = self.commits.recv() => {
                let is_open = commit.is_some();
                waiting.extend(commit);
                return is_open;
            }
            () = sleep_until(self.due) => {}
            () = self.wanted.notified() => {}
            () = told => {}
        }
        self.due = Instant::now();
        true
    }

    /// Reads the whole directory, if changes of it may be lost.
    async fn close_gap(&self) -> Result<(), Failure> {
        if !self.has_gap.load(Ordering::Acquire) {
            return Ok(());
        }
        let reload = Arc::clone(&self.kept.reload);
        let read = tokio::task::spawn_blocking(move || reload()).await;
        let read = read.map_err(|_| Failure::Unexpected("the whole directory"))?;
        let (directory, seen) = read.map_err(|error| Failure::Lost(error.to_string()))?;
        self.kept.shared.directory.store(directory);
        self.looks.send_modify(|look| look.seen = Arc::new(seen));
        self.has_gap.store(false, Ordering::Release);
        Ok(())
    }

    /// Reads what was changed, also by other hosts, and publishes it. A header with a root key that this
    /// host does not have is an error: without a look at the changes the host soon has no contact.
    async fn publish(&mut self, mut changes: Topics) -> Result<(), Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let session = self.database.connect().await?;
                // Without notifications, as behind some poolers, changes are found at the next look.
                if let Err(failure) = bounded(session.script(&format!("LISTEN {CHANNEL}"))).await {
                    tracing::info!(%failure, "the database does not notify this host of changes");
                }
                session
            }
        };
        self.close_gap().await?;
        let session = self.session.insert(session);
        let began = Instant::now();
        let Kept { keys, shared, header, .. } = &self.kept;
        let began_ms = shared.clock().boot_ms();
        let look = if began >= self.due {
            let seen = Arc::clone(&self.looks.borrow().seen);
            let changed = bounded(changed(session, &self.own, &seen)).await?;
            changes.add(&changed.topics);
            Some(changed)
        } else {
            None
        };
        if changes.header {
            header.store(Arc::new(bounded(read_header(session, keys)).await?));
        }
        if !changes.records.is_empty() {
            let changes = bounded(read(session, keys, changes.records)).await?;
            shared.change(changes);
        }
        if let Some(Changed { seen, is_whole, is_new, .. }) = look {
            self.due = began + if is_whole { POLL_EVERY } else { Duration::ZERO };
            if is_whole {
                shared.note_poll(began_ms);
            }
            let news = self.looks.borrow().news + u64::from(is_new);
            self.looks.send_replace(Look { began, is_whole, news, seen: Arc::new(seen) });
        }
        Ok(())
    }
}

/// What other hosts have changed since the last look.
struct Changed {
    topics: Topics,
    seen: Seen,
    /// Whether that is all.
    is_whole: bool,
    is_new: bool,
}

/// Looks for changes of other hosts after what was seen.
async fn changed(session: &Session, own: &BTreeSet<ChainId>, before: &Seen) -> Result<Changed, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question what changed");
    let mut seen = Seen::new();
    let (mut is_whole, mut is_new) = (true, false);
    let (mut chains, mut after, mut upto) = (Vec::new(), Vec::new(), Vec::new());
    // Only chains that still change, or whose changes a host may still have to see.
    let rows = session.script("SELECT encode(id, 'hex'), changed FROM chain WHERE NOT retired").await?;
    for row in rows {
        let mut columns = row.iter().map(|column| column.as_deref().unwrap_or_default());
        let id = columns.next().and_then(crate::hex::decode).and_then(|id| id.try_into().ok());
        let chain = ChainId(id.ok_or(UNEXPECTED)?);
        let last: i64 = columns.next().and_then(|seq| seq.parse().ok()).ok_or(UNEXPECTED)?;
        let known = before.get(&chain).copied().unwrap_or_default();
        if own.contains(&chain) || last <= known {
            seen.insert(chain, known.max(last));
            continue;
        }
        let end = last.min(known.saturating_add(COMMITS_MAX));
        is_whole &= end == last;
        is_new = true;
        seen.insert(chain, end);
        chains.push(chain.0.to_vec());
        after.push(known);
        upto.push(end);
    }
    let mut topics = Topics::default();
    if is_new {
        let sql = "SELECT c.topic FROM unnest($1, $2, $3) AS s (chain, after, upto) \
                   JOIN change c ON c.chain = s.chain AND c.seq > s.after AND c.seq <= s.upto";
        let statement = Statement::new(sql)
            .with(chains, Type::BYTEA_ARRAY)
            .with(after, Type::INT8_ARRAY)
            .with(upto, Type::INT8_ARRAY);
        for row in &statement.rows(&session.client, usize::MAX, |_| Ok(0)).await? {
            let topic: &[u8] = row.try_get(0).map_err(|_| UNEXPECTED)?;
            topics.header |= topic == rows::HEADER;
            topics.records.extend(RecordId::of_row_key(topic));
        }
    }
    Ok(Changed { topics, seen, is_whole, is_new })
}

/// The header as it is committed now.
async fn read_header(session: &Session, keys: &StoreKeys) -> Result<Header, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the header");
    let needs = [rows::HEADER, STORE_KEYS].map(|key| Need::Row(Keyspace::Keys, key.to_vec()));
    let mut loaded = Loaded::default();
    load(&session.client, keys, &needs.into(), &mut loaded).await?;
    let loaded = Arc::new(loaded);
    let [header, record] =
        [rows::HEADER, STORE_KEYS].map(|key| loaded.row(Keyspace::Keys, key).map_err(|_| UNEXPECTED));
    let header = header?.ok_or(UNEXPECTED)?;
    follow(keys, &header, record?.as_deref()).map_err(|error| Failure::Header(error.to_string()))
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
