//! The engine while its store is open: the lanes, the readers, and the task that follows the changes
//! of other hosts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

use super::barrier::{Barrier, Drained, Waiting};
use super::begin;
use super::connect::Database;
use super::contact::{CONTACT_MS, Contact};
use super::feed::{Announcer, Feed, FeedLinks, Reload, Seen};
use super::history;
use super::host::{HostId, ThisHost};
use super::lane::{HostLinks, Lane};
use super::readers::{CommittedState, Readers};
use super::sweep::{Reading, Sweep};
use super::witness::Witness;
use crate::audit::AuditRecord;
use crate::clock::Clock;
use crate::error::Error;
use crate::pending;
use crate::published::PublishedState;
use crate::queue::LaneQueues;
use crate::state::State;
use crate::usage::UsageRow;
use crate::vault::VaultReader;

/// Number of lanes of one host.
pub(crate) const LANES: usize = 4;
/// How long a closing engine waits for the end of a task that it has ended.
const ENDING_PATIENCE: Duration = Duration::from_secs(5);

/// The lanes of one host, and what reads for it.
pub(crate) struct Engine {
    database: Arc<Database>,
    host: Arc<ThisHost>,
    shared: Arc<PublishedState>,
    readers: Arc<Readers>,
    witness: Arc<Witness>,
    pub(super) queues: Arc<LaneQueues>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Drives the connections that read. `None` once the engine is closed.
    runtime: Mutex<Option<ReadingRuntime>>,
    /// Tells when no answer waits for other hosts any more.
    drained: Mutex<Option<Drained>>,
    /// The task that keeps contact.
    contact: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// The feed runs as long as there is one, also after the last lane has ended.
    _announcer: Announcer,
}

/// What the engine starts with.
pub(crate) struct Start {
    pub(crate) database: Arc<Database>,
    pub(crate) access: VaultReader,
    pub(crate) queues: Arc<LaneQueues>,
    pub(crate) shared: Arc<PublishedState>,
    pub(crate) clock: Clock,
    /// This host, whose row is there.
    pub(crate) host: Arc<ThisHost>,
    /// What is known to be durable.
    pub(crate) witness: Arc<Witness>,
    /// How far the changes of each chain are in the published directory.
    pub(crate) seen: Seen,
    /// Reads the whole directory.
    pub(crate) reload: Reload,
    /// Drives connections other than those of the lanes.
    pub(crate) runtime: ReadingRuntime,
}

/// A runtime for the connections that read. It may be dropped on a thread of another runtime, where a
/// wait for threads is not allowed.
pub(crate) struct ReadingRuntime(Option<Runtime>);

impl ReadingRuntime {
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn new() -> io::Result<ReadingRuntime> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("store-reader").enable_all().build()?;
        Ok(ReadingRuntime(Some(runtime)))
    }

    pub(crate) fn handle(&self) -> &Handle {
        #[expect(clippy::expect_used, reason = "only its drop takes the runtime")]
        self.0.as_ref().expect("the runtime is there").handle()
    }
}

impl Drop for ReadingRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    /// Starts the threads of the lanes. They connect when there is something to commit.
    ///
    /// # Errors
    /// The system starts no thread, or no runtime on it.
    pub(crate) fn start(start: Start) -> io::Result<Engine> {
        let Start { database, access, queues, shared, clock, host, witness, seen, reload, runtime } = start;
        let keys = &access.keys;
        // The directory was read after this host got its row.
        shared.extend_contact(host.entered_ms(), CONTACT_MS);
        let links = FeedLinks {
            database: Arc::clone(&database),
            keys: Arc::clone(keys),
            shared: Arc::clone(&shared),
            host: Arc::clone(&host),
            witness: Arc::clone(&witness),
            reload,
        };
        let (feed, announcer, reader) = Feed::new(links, seen);
        runtime.handle().spawn(feed.run());
        let waiting = Arc::new(Waiting::default());
        let (contact, hosts) = Contact::new(
            Arc::clone(&database),
            Arc::clone(&host),
            Arc::clone(&shared),
            reader,
            Arc::clone(&witness),
            Arc::clone(&waiting),
        );
        let contact = runtime.handle().spawn(contact.run());
        let readers =
            Arc::new(Readers::new(Arc::clone(&database), Arc::clone(keys), runtime.handle().clone()));
        let reading =
            Reading { readers: Arc::clone(&readers), queues: Arc::clone(&queues), keys: Arc::clone(keys) };
        let sweep =
            Sweep::new(Arc::clone(&database), Arc::clone(&host), Arc::clone(&shared), hosts.clone(), reading);
        runtime.handle().spawn(sweep.run());
        let (barrier, drained) = Barrier::new(runtime.handle().clone(), Arc::clone(&host), hosts, waiting);
        let runtime = Mutex::new(Some(runtime));
        let threads = Mutex::default();
        let engine = Engine {
            database: Arc::clone(&database),
            host,
            shared,
            readers,
            witness,
            queues,
            threads,
            runtime,
            drained: Mutex::new(Some(drained)),
            contact: Mutex::new(Some(contact)),
            _announcer: announcer.clone(),
        };
        let (host, witness) = (Arc::clone(&engine.host), Arc::clone(&engine.witness));
        let links = HostLinks { host, feed: announcer, barrier, witness };
        for (number, queue) in engine.queues.all().enumerate() {
            let lane = Lane::new(
                Arc::clone(&database),
                access.clone(),
                Arc::clone(queue),
                Arc::clone(&engine.shared),
                clock.clone(),
                links.clone(),
            );
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = Builder::new().name(format!("store-lane-{number}"));
            let thread = thread.spawn(move || lane.run(&runtime))?;
            engine.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(engine)
    }

    /// The id that this host has now.
    pub(crate) fn host_id(&self) -> HostId {
        self.host.id()
    }

    /// What this host knows to be durable.
    pub(crate) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// What is committed now.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn state(&self) -> Result<Box<dyn State>, Error> {
        let directory = self.shared.directory.load_full();
        Ok(Box::new(CommittedState::new(self.readers()?, directory)))
    }

    /// See [`history::audit_records`].
    pub(crate) fn audit_records(&self, since: u64, limit: usize) -> Result<Vec<(u64, AuditRecord)>, Error> {
        history::audit_records(self.readers()?, since, limit)
    }

    /// See [`history::usage_rows`].
    pub(crate) fn usage_rows(&self, limit: usize) -> Result<Vec<UsageRow>, Error> {
        history::usage_rows(self.readers()?, limit)
    }

    fn readers(&self) -> Result<&Arc<Readers>, Error> {
        let is_open = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_open { Ok(&self.readers) } else { Err(Error::Closed) }
    }

    /// Commits what is queued and ends the lanes and all connections. Closing twice is harmless.
    pub(crate) fn close(&self) {
        self.queues.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a lane of the store panicked");
            }
        }
        if let Some(drained) = self.drained.lock().unwrap_or_else(PoisonError::into_inner).take()
            && pending::wait(drained.wait(), Drained::PATIENCE).is_none()
        {
            tracing::error!("answers that wait for other hosts are given up");
        }
        self.witness.keep();
        if let Some(mut contact) = self.contact.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It would take the end of this host for a mistake of other hosts.
            contact.abort();
            drop(pending::wait(&mut contact, ENDING_PATIENCE));
        }
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A host that has failed leaves its row to those that take it for dead.
        if let Some(runtime) = runtime.filter(|_| !self.shared.has_failed()) {
            begin::leave(&self.database, runtime.handle(), self.host_id());
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
