//! Steps shared by `serve` and by commands that open the store themselves: lock, store, sandbox,
//! waiting, and writing to the terminal.

mod cache;

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_runtime::{Runtime, RuntimeConfig};
use cofferdam_store::{Clock, DirectoryLock, LockError, OpenError, OpenOptions, Store};
use sha2::{Digest, Sha256};

use crate::config::{Config, DatabaseConfig};
use crate::failure::Failure;
use crate::installed::{InstalledFolder, InstalledVersion};

pub(crate) use cache::directory as cache_directory;

/// For how long a directory lock that is held, or a socket that does not exist yet, is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two such tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens the store of the data directory; makes it if there is none.
pub(crate) fn open(
    config: &Config,
    lock: DirectoryLock,
    accept_rollback: Option<u64>,
) -> Result<Store, OpenError> {
    let store = Store::open(lock, open_options(config, accept_rollback))?;
    set_limits(config, &store);
    Ok(store)
}

/// Who opens a store in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreUse<'a> {
    /// A host, which serves until it ends.
    Serve {
        /// Its data directory.
        data: &'a Path,
        /// Accepts that the database lost commits, if its newest audit record has at most this position.
        accepted: Option<u64>,
    },
    /// A single command, beside hosts that may serve.
    Command,
}

/// Opens the store that is in a database.
pub(crate) fn connect(
    config: &Config,
    database: &DatabaseConfig,
    to: StoreUse<'_>,
) -> Result<Store, Failure> {
    let database = database.prepare()?;
    let store = match to {
        StoreUse::Serve { data, accepted } => {
            let database = database.with_witness(data.join("witness"));
            Store::open_in(&database, &open_options(config, accepted))?
        }
        StoreUse::Command => Store::open_for_command(&database, &open_options(config, None))?,
    };
    set_limits(config, &store);
    Ok(store)
}

/// Passes the limits of the configuration to the store, at start and at each reload.
pub(crate) fn set_limits(config: &Config, store: &Store) {
    store.set_vault_quota(config.vault.quota);
    store.set_free_bytes_min(config.store.free_bytes_min);
    store.set_stale_ms(config.store.stale_ms);
}

/// Tells other hosts of the store a digest of what must be equal on all of them: the configuration, apart
/// from what belongs to one machine, and the installed plugins.
pub(crate) fn tell_configuration(config: &Config, data: &Path, store: &Store) {
    // A lock that cannot be read is an error elsewhere.
    let installed = InstalledFolder::new(data).read_lock().unwrap_or_default();
    let mut digest = Sha256::new_with_prefix(config.shared);
    for (name, plugin) in &installed.plugins {
        let InstalledVersion { manifest_sha256, component_sha256, .. } = &plugin.current;
        digest.update(format!("{name:?} {manifest_sha256} {component_sha256}\n"));
    }
    let digest: [u8; 32] = digest.finalize().into();
    let (short, _) = digest.split_at(8);
    store.set_configuration(cofferdam_store::hex(short));
}

pub(crate) fn open_options(config: &Config, accept_rollback: Option<u64>) -> OpenOptions {
    OpenOptions {
        root_key: config.vault.root_key.clone(),
        previous_root_key: config.vault.root_key_previous.clone(),
        accept_rollback,
        clock: Clock::system(),
    }
}

/// Locks the data directory. Waits up to [`PATIENCE`] for a command or a stopping host that holds
/// the lock.
pub(crate) fn acquire(data: &Path) -> Result<DirectoryLock, Failure> {
    let end = Instant::now() + PATIENCE;
    let mut told = false;
    loop {
        match DirectoryLock::acquire(data) {
            Err(LockError::Held { pid }) if Instant::now() < end => {
                if !told {
                    tracing::warn!(pid, "the data directory is in use, waiting for it");
                    told = true;
                }
                pause();
            }
            result => return Ok(result?),
        }
    }
}

pub(crate) fn runtime(config: &Config, data: &Path) -> Result<Runtime, Failure> {
    let settings = RuntimeConfig {
        streams: config.limits.streams,
        cache_dir: cache_directory(data),
        recordings_dir: data.join("recordings"),
        tick: Duration::from_millis(2),
    };
    Ok(Runtime::start(settings)?)
}

#[expect(clippy::disallowed_methods, reason = "the command line has one thread and nothing else to do")]
pub(crate) fn pause() {
    std::thread::sleep(PAUSE);
}

/// Waits for a future in a process without worker threads.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(waiting.map_err(Failure::system("a thread to wait on"))?.block_on(future))
}

/// Prints text to standard error for the person at the terminal. A failure to write is ignored.
pub(crate) fn ask(text: &str) {
    let mut out = std::io::stderr().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Writes text to standard output. A closed pipe is not an error.
pub(crate) fn write_out(text: &str) -> Result<(), Failure> {
    write_part(text).map(drop)
}

/// Writes a part of a long text to standard output. Breaks if the reader has closed the pipe and wants no further part.
pub(crate) fn write_part(text: &str) -> Result<ControlFlow<()>, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Failure::system("standard output")(error)),
    }
}
