//! The engine while its store is open: the lanes, the readers, and the task that follows the changes
//! of other hosts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Runtime};

use super::about::About;
use super::barrier::{Barrier, Drained, Waiting};
use super::begin;
use super::connect::Database;
use super::contact::{CONTACT_MS, Contact};
use super::feed::{Announcer, DirectoryPoint, Feed, FeedLinks, Reload};
use super::history;
use super::host::{self, HostId, ThisHost};
use super::kept::{KeptSecrets, SecretReader};
use super::lane::{HostLinks, Lane};
use super::limits;
use super::partitions;
use super::readers::{CommittedState, Readers, unread};
use super::schema::{self, Upgrade};
use super::slices::SliceKeeper;
use super::standby;
use super::sweep::{Reading, Sweep};
use super::transaction::bounded;
use super::witness::Witness;
use crate::audit::AuditRecord;
use crate::changes::Slices;
use crate::clock::Clock;
use crate::error::Error;
use crate::header::Header;
use crate::hosts::HostFacts;
use crate::operation::{Progress, VaultError};
use crate::pending;
use crate::published::PublishedState;
use crate::queue::LaneQueues;
use crate::seal::StoreKeys;
use crate::shared_limits::SharedLimits;
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
    secrets: SecretReader,
    witness: Arc<Witness>,
    limits: SharedLimits,
    pub(super) queues: Arc<LaneQueues>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Drives the connections that read. `None` once the engine is closed.
    runtime: Mutex<Option<ReadingRuntime>>,
    /// Tells when no answer waits for other hosts any more.
    drained: Mutex<Option<Drained>>,
    /// The task that keeps contact.
    contact: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// Where requests reserve in memory.
    slices: Option<SliceKeeper>,
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
    /// How far the published directory was read.
    pub(crate) point: DirectoryPoint,
    /// Reads the header and the whole directory.
    pub(crate) reload: Reload,
    /// The header, as this host knows it.
    pub(crate) header: Arc<ArcSwap<Header>>,
    /// Most bytes of rows of secrets that are kept in memory.
    pub(crate) kept_bytes_max: u64,
    /// Drives connections other than those of the lanes.
    pub(crate) runtime: ReadingRuntime,
    /// Whether requests reserve out of slices.
    pub(crate) is_leased: bool,
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
        let Start { database, access, queues, shared, clock, host, is_leased, .. } = start;
        let Start { witness, point, reload, header, kept_bytes_max, runtime, .. } = start;
        let keeper = is_leased.then(|| SliceKeeper::new(&clock, &host, &shared, &queues));
        let keys = &access.keys;
        // The directory was read after this host got its row.
        shared.extend_contact(host.entered_ms(), CONTACT_MS);
        let kept = Arc::new(KeptSecrets::new(kept_bytes_max, host.schema()));
        let links = FeedLinks {
            database: Arc::clone(&database),
            keys: Arc::clone(keys),
            shared: Arc::clone(&shared),
            kept: Arc::clone(&kept),
            host: Arc::clone(&host),
            witness: Arc::clone(&witness),
            header,
            reload,
            slices: keeper.as_ref().map(|keeper| Arc::clone(keeper.slices())),
        };
        let (feed, announcer, reader) = Feed::new(links, point);
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
        let secrets = SecretReader::new(kept, Arc::clone(&readers), Arc::clone(&shared), access.clone());
        let reading =
            Reading { readers: Arc::clone(&readers), queues: Arc::clone(&queues), keys: Arc::clone(keys) };
        let sweep =
            Sweep::new(Arc::clone(&database), Arc::clone(&host), Arc::clone(&shared), hosts.clone(), reading);
        runtime.handle().spawn(sweep.run());
        let limits = limits::start(runtime.handle(), &database, &host, &hosts);
        if let Some(keeper) = &keeper {
            runtime.handle().spawn(keeper.clone().run(hosts.clone()));
        }
        let (barrier, drained) = Barrier::new(runtime.handle().clone(), Arc::clone(&host), hosts, waiting);
        let engine = Engine {
            database: Arc::clone(&database),
            host,
            shared,
            readers,
            secrets,
            witness,
            limits,
            queues,
            threads: Mutex::default(),
            runtime: Mutex::new(Some(runtime)),
            drained: Mutex::new(Some(drained)),
            contact: Mutex::new(Some(contact)),
            slices: keeper,
            _announcer: announcer.clone(),
        };
        let (host, witness) = (Arc::clone(&engine.host), Arc::clone(&engine.witness));
        let slices = engine.slices().cloned();
        let links = HostLinks { host, feed: announcer, barrier, witness, slices };
        engine.start_lanes(&database, &access, &clock, &links)?;
        Ok(engine)
    }

    /// Starts a thread for each lane.
    fn start_lanes(
        &self,
        database: &Arc<Database>,
        access: &VaultReader,
        clock: &Clock,
        links: &HostLinks,
    ) -> io::Result<()> {
        for (number, queue) in self.queues.all().enumerate() {
            let lane = Lane::new(
                Arc::clone(database),
                access.clone(),
                Arc::clone(queue),
                Arc::clone(&self.shared),
                clock.clone(),
                links.clone(),
            );
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = Builder::new().name(format!("store-lane-{number}"));
            let thread = thread.spawn(move || lane.run(&runtime))?;
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }

    /// The id that this host has now.
    pub(crate) fn host_id(&self) -> HostId {
        self.host.id()
    }

    /// The slices that requests reserve out of, if they do.
    pub(crate) fn slices(&self) -> Option<&Arc<Slices>> {
        self.slices.as_ref().map(SliceKeeper::slices)
    }

    /// Begins to give back what is free of slices. To be called before the queues are closed.
    pub(crate) fn give_back(&self) {
        self.slices.iter().for_each(SliceKeeper::close);
    }

    /// What this process tells about itself.
    pub(crate) fn about(&self) -> &About {
        self.host.about()
    }

    /// What all hosts that share the store tell about themselves. Blocks its thread.
    ///
    /// # Errors
    /// [`Error::Closed`], and those of a read.
    pub(crate) fn hosts(&self, keys: &Arc<StoreKeys>) -> Result<Vec<HostFacts>, Error> {
        let (database, keys) = (Arc::clone(&self.database), Arc::clone(keys));
        let now_ms = self.shared.clock().now_ms();
        let facts = self.readers()?.wait(async move {
            let session = database.connect().await?;
            bounded(host::facts(&session, &keys, now_ms)).await
        });
        facts.map_err(unread)
    }

    /// Number of the schema that the database has now. Blocks its thread.
    ///
    /// # Errors
    /// [`Error::Closed`], and those of a read.
    pub(crate) fn schema(&self) -> Result<u32, Error> {
        let database = Arc::clone(&self.database);
        let number = self.readers()?.wait(async move { schema::check(&database.connect().await?).await });
        number.map_err(unread)
    }

    /// Makes the migrations that the database lacks. Blocks its thread, for as long as they take.
    ///
    /// # Errors
    /// [`Error::Closed`], [`VaultError::Open`].
    pub(crate) fn upgrade(&self, keys: &StoreKeys) -> Result<Upgrade, VaultError> {
        Ok(begin::upgrade(&self.database, &self.handle()?, keys)?)
    }

    /// What a backup reads: what is committed now, on the standby if the configuration names one. Blocks its
    /// thread until the standby has it.
    ///
    /// # Errors
    /// [`Error::Closed`], and those of [`standby::until_current`].
    pub(crate) fn backup_state(&self, progress: &mut Progress<'_>) -> Result<Box<dyn State>, VaultError> {
        let Some(database) = self.database.standby() else { return Ok(self.state()?) };
        let handle = self.handle()?;
        standby::until_current(&self.database, database, &self.witness, &handle, progress)?;
        let keys = Arc::clone(self.readers()?.moment().keys());
        let readers = Arc::new(Readers::new(Arc::clone(database), keys, handle));
        Ok(Box::new(CommittedState::new(&readers, self.shared.directory.load_full())))
    }

    /// Number of usage rows of commits before this day. Blocks its thread.
    ///
    /// # Errors
    /// [`Error::Closed`], [`VaultError::Open`].
    pub(crate) fn usage_before(&self, day: i32) -> Result<u64, VaultError> {
        let count = async || partitions::usage_before(&self.database.connect().await?, day).await;
        Ok(begin::wait(&self.handle()?, count)?)
    }

    /// Deletes them. Blocks its thread.
    ///
    /// # Errors
    /// [`VaultError::ReadersInTheWay`], [`Error::Closed`], [`VaultError::Open`].
    pub(crate) fn drop_usage_before(&self, day: i32) -> Result<(), VaultError> {
        let drop = async || partitions::drop_usage_before(&self.database.connect().await?, day).await;
        if begin::wait(&self.handle()?, drop)? { Ok(()) } else { Err(VaultError::ReadersInTheWay) }
    }

    fn handle(&self) -> Result<Handle, Error> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(runtime.as_ref().ok_or(Error::Closed)?.handle().clone())
    }

    /// What this host knows to be durable.
    pub(crate) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// The limits that this host shares with others.
    pub(crate) fn shared_limits(&self) -> &SharedLimits {
        &self.limits
    }

    /// What is committed now.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn state(&self) -> Result<Box<dyn State>, Error> {
        let directory = self.shared.directory.load_full();
        Ok(Box::new(CommittedState::new(self.readers()?, directory)))
    }

    /// What reads what decides about a secret.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn secrets(&self) -> Result<&SecretReader, Error> {
        self.readers()?;
        Ok(&self.secrets)
    }

    /// See [`history::audit_records_before`].
    pub(crate) fn audit_records_before(
        &self,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditRecord)>, Error> {
        history::audit_records_before(self.readers()?, before, limit)
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
            // Otherwise it would find no row of this host, and report that other hosts took it for dead.
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
