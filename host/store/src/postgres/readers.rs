//! Reading what is committed, outside of the transactions of lanes.
//!
//! A reader waits on its own thread, as it waits for the disk with the embedded engine: a caller that must
//! not wait reads on another thread. The connections are driven by a runtime of the engine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::history;
use super::load::{NEEDS_MAX, load};
use super::statement::Statement;
use super::transaction::bounded;
use crate::directory::{Directory, NameKey, RecordId};
use crate::error::Error;
use crate::loaded::Loaded;
use crate::lookup::RecordKind;
use crate::pending;
use crate::rows::Keyspace;
use crate::seal::StoreKeys;
use crate::state::{Gap, KeyedRow, Need, RowBytes, RowRange, Rows, State};

/// The most connections that read at the same time. Further readers wait.
const READERS_MAX: usize = 4;
/// How long a reader waits for a connection or an answer.
const READ_PATIENCE: Duration = Duration::from_secs(15);
/// Rows with their bodies that are read at once from a longer range. Those of the keyspace `keys` are small.
const PAGE_ROWS: usize = 256;
const PAGE_RECORDS: usize = 2048;
/// Row keys that are read at once from a longer range.
const PAGE_KEYS: usize = 4096;

/// Begins one moment: all questions in it are answered from one snapshot.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL statement_timeout = 10000;
    SET LOCAL idle_in_transaction_session_timeout = 60000";

/// The connections that read.
pub(super) struct Readers {
    database: Arc<Database>,
    keys: Arc<StoreKeys>,
    runtime: Handle,
    idle: Arc<Mutex<Vec<DatabaseSession>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(database: Arc<Database>, keys: Arc<StoreKeys>, runtime: Handle) -> Readers {
        let permits = Arc::new(Semaphore::new(READERS_MAX));
        Readers { database, keys, runtime, idle: Arc::default(), permits }
    }

    /// Runs what asks the database on the runtime, and blocks this thread until it ends.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        asks: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut task = self.runtime.spawn(asks);
        match pending::wait(&mut task, READ_PATIENCE) {
            Some(ended) => ended.unwrap_or(Err(Failure::Unexpected("a read"))),
            None => {
                task.abort();
                Err(Failure::Silent(READ_PATIENCE))
            }
        }
    }

    /// One moment of the store. It connects at its first question.
    pub(super) fn moment(self: &Arc<Self>) -> Moment {
        Moment { readers: Arc::clone(self), open: RefCell::new(None), is_broken: Cell::new(false) }
    }

    /// Takes an idle connection or makes one, and begins a transaction that reads.
    async fn begin(
        database: Arc<Database>,
        idle: Arc<Mutex<Vec<DatabaseSession>>>,
        permits: Arc<Semaphore>,
    ) -> Result<OpenMoment, Failure> {
        let permit = permits.acquire_owned().await.map_err(|_| Failure::Unexpected("a read"))?;
        let mut has_tried = false;
        loop {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            // One from before a failover may still lead to the former primary.
            let kept = kept.filter(|session| database.is_current(session));
            let is_kept = kept.is_some();
            let session = match kept {
                Some(session) => session,
                None => database.connect().await?,
            };
            match bounded(session.script(BEGIN)).await {
                Ok(_) => return Ok(OpenMoment { session, _permit: permit }),
                // A connection that was kept may have ended meanwhile, and reading again does no harm.
                Err(failure) if !failure.keeps_connection() && (is_kept || !has_tried) => {
                    has_tried |= !is_kept;
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

/// An answer on its way.
type Answering<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// The transaction of one moment.
struct OpenMoment {
    session: DatabaseSession,
    _permit: OwnedSemaphorePermit,
}

/// One moment of the store: all answers are from one snapshot.
pub(super) struct Moment {
    readers: Arc<Readers>,
    open: RefCell<Option<OpenMoment>>,
    /// A question failed, and with it the transaction. Another one would see another moment.
    is_broken: Cell<bool>,
}

impl Moment {
    /// What the transaction of a session sees that is there already.
    pub(super) fn within(readers: &Arc<Readers>, session: DatabaseSession) -> Result<Moment, Failure> {
        let permit = Arc::clone(&readers.permits).try_acquire_owned();
        let permit = permit.map_err(|_| Failure::Unexpected("a read"))?;
        let open = RefCell::new(Some(OpenMoment { session, _permit: permit }));
        Ok(Moment { readers: Arc::clone(readers), open, is_broken: Cell::new(false) })
    }

    /// The session, whose transaction goes on. `None` after a failure.
    pub(super) fn into_session(self) -> Option<DatabaseSession> {
        self.open.take().map(|open| open.session)
    }

    /// Answers a question.
    fn ask(&self, need: Need) -> Result<Arc<Loaded>, Failure> {
        self.load([need].into(), Loaded::default()).map(Arc::new)
    }

    /// Adds the answers to these questions.
    pub(super) fn load(&self, needs: BTreeSet<Need>, mut loaded: Loaded) -> Result<Loaded, Failure> {
        let keys = Arc::clone(&self.readers.keys);
        self.with(move |session| {
            Box::pin(async move {
                load(session, &keys, &needs, &mut loaded).await?;
                Ok(loaded)
            })
        })
    }

    /// The rows of a statement. Their bytes together are at most `bytes_max`, as `bytes` counts them.
    pub(super) fn rows(
        &self,
        statement: Statement,
        bytes_max: usize,
        bytes: impl Fn(&tokio_postgres::Row) -> Result<usize, Failure> + Send + Sync + 'static,
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        self.with(move |session| {
            Box::pin(async move { statement.rows(&session.client, bytes_max, bytes).await })
        })
    }

    /// Asks within the transaction of this moment.
    fn with<T, W>(&self, work: W) -> Result<T, Failure>
    where
        T: Send + 'static,
        W: for<'a> FnOnce(&'a DatabaseSession) -> Answering<'a, T> + Send + 'static,
    {
        let Readers { database, idle, permits, .. } = &*self.readers;
        let (database, idle, permits) = (Arc::clone(database), Arc::clone(idle), Arc::clone(permits));
        if self.is_broken.replace(true) {
            return Err(Failure::Lost("a read of the same moment failed before".to_owned()));
        }
        let open = self.open.take();
        let (open, answer) = self.readers.wait(async move {
            let open = match open {
                Some(open) => open,
                None => Readers::begin(database, idle, permits).await?,
            };
            let answer = bounded(work(&open.session)).await?;
            Ok((open, answer))
        })?;
        self.open.replace(Some(open));
        self.is_broken.set(false);
        Ok(answer)
    }

    /// The keys of the store.
    pub(super) fn keys(&self) -> &Arc<StoreKeys> {
        &self.readers.keys
    }
}

impl Drop for Moment {
    /// Ends the transaction and keeps the connection for the next reader.
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let idle = Arc::clone(&self.readers.idle);
        self.readers.runtime.spawn(async move {
            if super::transaction::rollback(&open.session).await.is_ok() {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(open.session);
            }
        });
    }
}

/// What is committed, as of one moment, with the directory that was published last.
pub(super) struct CommittedState {
    moment: Rc<Moment>,
    directory: Arc<Directory>,
    /// What was read ahead of the questions for it.
    ahead: RefCell<Arc<Loaded>>,
}

impl CommittedState {
    pub(super) fn new(readers: &Arc<Readers>, directory: Arc<Directory>) -> CommittedState {
        CommittedState::of(&Rc::new(readers.moment()), directory)
    }

    /// What a moment sees.
    pub(super) fn of(moment: &Rc<Moment>, directory: Arc<Directory>) -> CommittedState {
        CommittedState { moment: Rc::clone(moment), directory, ahead: RefCell::default() }
    }

    /// The moment of its rows, for questions that are not about rows.
    pub(super) fn moment(&self) -> &Moment {
        &self.moment
    }
}

impl State for CommittedState {
    fn row(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<RowBytes>, Gap> {
        if let Some(row) = known(self.ahead.borrow().row(keyspace, key)) {
            return row;
        }
        self.moment.ask(Need::Row(keyspace, key.to_vec())).map_err(unread)?.row(keyspace, key)
    }

    fn length(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<usize>, Gap> {
        self.moment.ask(Need::Length(keyspace, key.to_vec())).map_err(unread)?.length(keyspace, key)
    }

    fn range(&self, range: &RowRange) -> Result<Rows, Gap> {
        let moment = Rc::clone(&self.moment);
        if range.keyspace == Keyspace::Log {
            return Ok(history::log_rows(&moment));
        }
        if let Some(rows) = known(self.ahead.borrow().range(range)) {
            return rows;
        }
        let mut pages = Pages { moment, rest: Some(range.clone()), page: Vec::new().into_iter() };
        pages.load()?;
        Ok(Box::new(pages))
    }

    fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap> {
        Ok(self.directory.named(name))
    }

    fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<Vec<RecordId>, Gap> {
        Ok(self.directory.owned_by(kind, owner))
    }

    fn read_ahead(&self, needs: BTreeSet<Need>) -> Result<(), Gap> {
        let mut ahead = Arc::unwrap_or_clone(self.ahead.take());
        // Each part has the time of one answer.
        let needs: Vec<Need> = needs.into_iter().collect();
        for part in needs.chunks(NEEDS_MAX) {
            ahead = self.moment.load(part.iter().cloned().collect(), ahead).map_err(unread)?;
        }
        self.ahead.replace(Arc::new(ahead));
        Ok(())
    }

    fn has_markers(&self) -> bool {
        false
    }

    fn directory(&self) -> Option<&Directory> {
        Some(&self.directory)
    }
}

/// An answer, unless the question was not asked before.
fn known<T>(answer: Result<T, Gap>) -> Option<Result<T, Gap>> {
    if let Err(Gap::Missing(_)) = answer { None } else { Some(answer) }
}

/// The rows of a range, read page by page.
struct Pages {
    moment: Rc<Moment>,
    /// What is behind the current page.
    rest: Option<RowRange>,
    page: std::vec::IntoIter<KeyedRow>,
}

impl Pages {
    fn load(&mut self) -> Result<(), Error> {
        let Some(range) = self.rest.take().filter(|range| range.limit > 0) else { return Ok(()) };
        let most = match range.keyspace {
            _ if range.keys_only => PAGE_KEYS,
            Keyspace::Keys => PAGE_RECORDS,
            _ => PAGE_ROWS,
        };
        let page = range.clone().limit(range.limit.min(most));
        let loaded = self.moment.ask(Need::Range(page.clone())).map_err(unread)?;
        let rows = loaded.range(&page).map_err(Error::from)?.collect::<Result<Vec<_>, _>>()?;
        if let Some((last, _)) = rows.last().filter(|_| rows.len() == page.limit) {
            let left = range.limit - rows.len();
            self.rest = Some(range.after(last.to_vec()).limit(left));
        }
        self.page = rows.into_iter();
        Ok(())
    }
}

impl Iterator for Pages {
    type Item = Result<KeyedRow, Error>;

    fn next(&mut self) -> Option<Result<KeyedRow, Error>> {
        loop {
            if let Some(row) = self.page.next() {
                return Some(Ok(row));
            }
            self.rest.as_ref()?;
            if let Err(error) = self.load() {
                return Some(Err(error));
            }
        }
    }
}

/// The error for the caller of a read.
pub(super) fn unread(failure: Failure) -> Error {
    if failure.is_transient() || matches!(failure, Failure::Silent(_)) {
        tracing::warn!(%failure, "the database could not be read");
        Error::Busy
    } else {
        tracing::error!(%failure, "the database could not be read");
        Error::Damaged
    }
}
