//! Keeps the directory of this host, the header of the store, and rows of secrets that were read, as the
//! database has them.
//!
//! One task reads changed records and publishes them, so that a newer record is never replaced by an
//! older one, whichever lane or host changed it. A lane whose commit has changed records waits for
//! this task before it answers. What other hosts changed is found in the table `change`, which is
//! looked at four times a second, and when the database notifies this host of a change. Each look also
//! compares how far the chains are with what is known to be durable.

mod read;
mod reader;
mod topics;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::types::Type;

pub(super) use reader::FeedReader;
pub(crate) use reader::{DirectoryPoint, Seen};
pub(super) use topics::Topics;

use reader::Look;

use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::host::{HostId, ThisHost};
use super::kept::KeptSecrets;
use super::place::{ChainId, ServerId};
use super::schema::{self, SCHEMA_ROW};
use super::statement::Statement;
use super::transaction::bounded;
use super::witness::{self, ChainNumbers, Verdict, Witness};
use crate::changes::Slices;
use crate::directory::Directory;
use crate::error::OpenError;
use crate::header::Header;
use crate::published::PublishedState;
use crate::rows::{self, KEYS};
use crate::seal::StoreKeys;

/// Where hosts notify each other of changes.
pub(super) const CHANNEL: &str = "cofferdam";
/// How often the changes of other hosts are looked for without a notification.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// Time between two warnings of failures that go on.
const WARNED_EVERY: Duration = Duration::from_secs(30);
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

/// Reads the whole directory, and how far it was read. Blocks its thread.
pub(crate) type Reload = Arc<dyn Fn() -> Result<(Arc<Directory>, DirectoryPoint), OpenError> + Send + Sync>;

/// The task that follows the changes.
pub(super) struct Feed {
    database: Arc<Database>,
    keys: Arc<StoreKeys>,
    shared: Arc<PublishedState>,
    kept: Arc<KeptSecrets>,
    commits: mpsc::Receiver<OwnCommit>,
    session: Option<DatabaseSession>,
    /// The chains of this host. Their lanes tell what they changed.
    own: BTreeSet<ChainId>,
    /// When other hosts' changes are looked for next.
    due: Instant,
    looks: watch::Sender<Look>,
    /// Told when a look at the changes is wanted before the next one is due.
    wanted: Arc<Notify>,
    reload: Reload,
    /// The directory has to be read anew.
    has_gap: Arc<AtomicBool>,
    host: Arc<ThisHost>,
    witness: Arc<Witness>,
    /// The header, for the rest of the store.
    header: Arc<ArcSwap<Header>>,
    /// When a failure was warned of last, and whether it was one that an operator has to end: a database that
    /// was set back, or a root key that is not here.
    warned: Option<(Instant, bool)>,
    slices: Option<Arc<Slices>>,
}

/// What the feed works with.
pub(super) struct FeedLinks {
    pub(super) database: Arc<Database>,
    pub(super) keys: Arc<StoreKeys>,
    pub(super) shared: Arc<PublishedState>,
    pub(super) kept: Arc<KeptSecrets>,
    pub(super) host: Arc<ThisHost>,
    pub(super) witness: Arc<Witness>,
    pub(super) header: Arc<ArcSwap<Header>>,
    pub(super) reload: Reload,
    pub(super) slices: Option<Arc<Slices>>,
}

impl Feed {
    /// The task, where lanes hand over their commits, and where others learn what it has read.
    pub(super) fn new(links: FeedLinks, point: DirectoryPoint) -> (Feed, Announcer, FeedReader) {
        let FeedLinks { database, keys, shared, kept, host, witness, header, reload, slices } = links;
        let (sender, commits) = mpsc::channel(WAITING_MAX);
        let (session, own, due) = (None, BTreeSet::new(), Instant::now());
        let look = Look { is_whole: false, news: 0, point: Arc::new(point), beat: None };
        let (looks, reader) = watch::channel(look);
        let wanted = Arc::new(Notify::new());
        let has_gap = Arc::new(AtomicBool::new(false));
        let reader = FeedReader { looks: reader, wanted: Arc::clone(&wanted), has_gap: Arc::clone(&has_gap) };
        let feed = Feed {
            database,
            keys,
            shared,
            kept,
            commits,
            session,
            own,
            due,
            looks,
            wanted,
            reload,
            has_gap,
            host,
            witness,
            header,
            warned: None,
            slices,
        };
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
                Ok(()) => {
                    self.warned = None;
                    waiting.drain(..).for_each(|commit| commit.done.send(()).unwrap_or_default());
                }
                Err(failure) => {
                    self.warn(&failure);
                    self.session = None;
                    self.due = Instant::now() + PAUSE;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Logs a failure, and the same state not again for a while.
    fn warn(&mut self, failure: &Failure) {
        let is_set_back = matches!(failure, Failure::SetBack(_) | Failure::Header(_));
        if self.warned.is_some_and(|(at, was)| was == is_set_back && at.elapsed() < WARNED_EVERY) {
            return;
        }
        self.warned = Some((Instant::now(), is_set_back));
        match failure {
            Failure::SetBack(_) => tracing::error!(
                %failure,
                "this host serves no requests: connect it to a database that has these commits, or accept the \
                 loss with `serve --accept-rollback`, which names the position to give"
            ),
            Failure::Header(_) => tracing::error!(%failure, "this host serves no requests"),
            _ => tracing::warn!(%failure, "changes of the directory could not be read"),
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
        // Taken before the directory is read: changes may be lost again meanwhile.
        if !self.has_gap.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let reload = Arc::clone(&self.reload);
        let read = tokio::task::spawn_blocking(move || reload()).await;
        let read = match read {
            Ok(read) => read.map_err(|error| Failure::Lost(error.to_string())),
            Err(_) => Err(Failure::Unexpected("the whole directory")),
        };
        let (directory, point) = read.inspect_err(|_| self.has_gap.store(true, Ordering::Release))?;
        self.shared.directory.store(directory);
        self.slices.iter().for_each(|slices| slices.recall(|_| true));
        self.kept.drop_all();
        self.looks.send_modify(|look| {
            *look = Look { is_whole: false, news: look.news + 1, point: Arc::new(point), beat: None };
        });
        Ok(())
    }

    /// Reads what was changed, also by other hosts, and publishes it. A header with a root key that this
    /// host does not have is an error: without a look at the changes the host soon has no contact.
    async fn publish(&mut self, mut changes: Topics) -> Result<(), Failure> {
        let is_new_session = self.session.is_none();
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let session = self.database.connect_anew().await?;
                // Without notifications, as behind some poolers, changes are found at the next look.
                if let Err(failure) = bounded(session.script(&format!("LISTEN {CHANNEL}"))).await {
                    tracing::info!(%failure, "the database does not notify this host of changes");
                }
                session
            }
        };
        self.close_gap().await?;
        self.session = Some(session);
        let began = Instant::now();
        let began_ms = self.shared.clock().boot_ms();
        let look = if is_new_session || began >= self.due {
            // The directory that is read anew has the commits of this host too.
            let Some(changed) = self.look(is_new_session).await? else { return self.close_gap().await };
            changes.add(&changed.topics);
            self.kept.note_schema(changed.schema);
            Some(changed)
        } else {
            None
        };
        let session = self.session.as_ref().ok_or(Failure::NotCommitted)?;
        changes.vaults.iter().for_each(|vault| self.kept.drop_vault(*vault));
        if changes.header {
            self.header.store(Arc::new(bounded(read::header(session, &self.keys)).await?));
        }
        if !changes.records.is_empty() {
            let records = changes.records.clone();
            self.shared.change(bounded(read::records(session, &self.keys, records)).await?);
        }
        if let Some(slices) = &self.slices
            && changes.concern_slices()
        {
            slices.recall(|slice| changes.concern(slice));
        }
        if let Some(Changed { point, is_whole, is_new, beat, .. }) = look {
            self.due = began + if is_whole { POLL_EVERY } else { Duration::ZERO };
            if is_whole {
                self.shared.note_poll(began_ms);
            }
            let news = self.looks.borrow().news + u64::from(is_new);
            self.looks.send_replace(Look { is_whole, news, point: Arc::new(point), beat: Some(beat) });
        }
        Ok(())
    }

    /// Looks for changes of other hosts, and whether the database has what is known to be durable. `None`
    /// where the directory has to be read anew before the next look: an operator has accepted a loss, or another
    /// server may lack commits that the directory has, which were visible on the former one and never acknowledged.
    async fn look(&mut self, is_new_session: bool) -> Result<Option<Changed>, Failure> {
        let session = self.session.as_ref().ok_or(Failure::NotCommitted)?;
        let point = Arc::clone(&self.looks.borrow().point);
        // What was durable before the question.
        let (id, acknowledged) = self.host.acknowledged();
        let known = self.witness.numbers();
        let asked_for = if is_new_session { Some(&known) } else { None };
        let changed = bounded(changed(session, id, &self.own, &point, asked_for)).await?;
        // There is no header while the store is made.
        let accepted_losses = changed.header.as_deref().map_or(Some(0), |row| {
            let header: Header = rows::decode(&self.keys, KEYS, rows::HEADER, row)?;
            Some(header.accepted_losses)
        });
        let accepted_losses = accepted_losses.ok_or(Failure::Unexpected("the question for the header"))?;
        let loss = witness::compare(&known, &changed.numbers, is_new_session);
        match self.witness.judge(loss, accepted_losses) {
            Verdict::Whole if changed.beat.1 < acknowledged => Err(Failure::FormerPrimary),
            Verdict::Whole if !changed.is_other => Ok(Some(changed)),
            Verdict::Whole | Verdict::Accepted => {
                if changed.is_other {
                    // The directory is read through a new connection, which may lead to another server than this one.
                    self.session = None;
                }
                self.has_gap.store(true, Ordering::Release);
                self.due = Instant::now();
                Ok(None)
            }
            Verdict::Lacks(loss) => {
                self.shared.end_contact();
                let witness = Arc::clone(&self.witness);
                // For a start of this host before the database is mended.
                drop(tokio::task::spawn_blocking(move || witness.keep()).await);
                Err(Failure::SetBack(loss))
            }
        }
    }
}

/// What other hosts have changed since the last look.
struct Changed {
    topics: Topics,
    point: DirectoryPoint,
    /// Whether the directory may have changes that this database lacks.
    is_other: bool,
    /// Whether that is all.
    is_whole: bool,
    is_new: bool,
    numbers: ChainNumbers,
    beat: (HostId, i64),
    /// The row of the header.
    header: Option<Vec<u8>>,
    /// Number of the store's schema.
    schema: u32,
}

/// Looks for changes of other hosts after what was seen. Of chains that do not change any more only those
/// that are asked for are looked at.
async fn changed(
    session: &DatabaseSession,
    host: HostId,
    own: &BTreeSet<ChainId>,
    before: &DirectoryPoint,
    asked_for: Option<&ChainNumbers>,
) -> Result<Changed, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question what changed");
    let mut seen = Seen::new();
    let (mut is_whole, mut is_new) = (true, false);
    let (mut chains, mut after, mut upto) = (Vec::new(), Vec::new(), Vec::new());
    let asked_for: Vec<String> = asked_for.into_iter().flatten().map(|(chain, _)| chain.literal()).collect();
    let asked_for = match asked_for.is_empty() {
        true => String::new(),
        false => format!("OR id IN ({})", asked_for.join(", ")),
    };
    // The chains come after the sign of life, so they have all that was committed before it. Chains that
    // are retired change no more, and every host has seen their changes.
    let script = format!(
        "SELECT coalesce((SELECT beat FROM host WHERE id = decode('{host}', 'hex')), 0), \
         (SELECT encode(body, 'hex') FROM store WHERE k = decode('{header}', 'hex')), \
         (SELECT convert_from(body, 'UTF8') FROM store WHERE k = {SCHEMA_ROW}), {server}; \
         SELECT encode(id, 'hex'), changed, seq, retired FROM chain WHERE NOT retired {asked_for}",
        header = crate::hex::encode(rows::HEADER),
        server = ServerId::SQL,
    );
    let answer = session.script(&script).await?;
    let Some(([Some(beat), header, Some(schema), Some(server)], chains_found)) =
        answer.split_first().map(|(first, rest)| (first.as_slice(), rest))
    else {
        return Err(UNEXPECTED);
    };
    let beat = (host, beat.parse().map_err(|_| UNEXPECTED)?);
    let header = header.as_deref().and_then(crate::hex::decode);
    let schema = schema::number_in(schema)?;
    let server = ServerId::parse(server).ok_or(UNEXPECTED)?;
    let mut is_other = before.server.is_some_and(|before| before != server);
    let mut numbers = ChainNumbers::new();
    for row in chains_found {
        let mut columns = row.iter().map(|column| column.as_deref().unwrap_or_default());
        let id = columns.next().and_then(crate::hex::decode).and_then(|id| id.try_into().ok());
        let chain = ChainId(id.ok_or(UNEXPECTED)?);
        let last: i64 = columns.next().and_then(|seq| seq.parse().ok()).ok_or(UNEXPECTED)?;
        numbers.insert(chain, columns.next().and_then(|seq| seq.parse().ok()).ok_or(UNEXPECTED)?);
        if columns.next() == Some("t") {
            continue;
        }
        let known = before.seen.get(&chain).copied().unwrap_or_default();
        if own.contains(&chain) || last <= known {
            is_other |= last < known && !own.contains(&chain);
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
            topics.read(topic);
        }
    }
    let point = DirectoryPoint { server: Some(server), seen };
    Ok(Changed { topics, point, is_other, is_whole, is_new, numbers, beat, header, schema })
}
