//! What every way to start has in common: lock, store, sandbox, standard output.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_runtime::{Runtime, RuntimeConfig};
use cofferdam_store::{Clock, DirectoryLock, LockError, OpenError, OpenOptions, Store};

use crate::cache;
use crate::config::Config;
use crate::failure::Failure;

/// How long a lock that is held, and a socket that is not there yet, are tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Opens the store with the root key of the configuration.
pub(crate) fn open(
    config: &Config,
    lock: DirectoryLock,
    accept_rollback: Option<u64>,
) -> Result<Store, OpenError> {
    let store = Store::open(lock, open_options(config, accept_rollback))?;
    set_limits(config, &store);
    Ok(store)
}

/// Hands the limits of the configuration to the store, at the start and at each reload.
pub(crate) fn set_limits(config: &Config, store: &Store) {
    store.set_vault_quota(config.vault.quota);
    store.set_free_bytes_min(config.store.free_bytes_min);
}

/// How the configuration says that the store is opened.
pub(crate) fn open_options(config: &Config, accept_rollback: Option<u64>) -> OpenOptions {
    OpenOptions {
        root_key: config.vault.root_key.clone(),
        previous_root_key: config.vault.root_key_previous.clone(),
        accept_rollback,
        clock: Clock::system(),
    }
}

/// Locks the store, waiting a while for a command or an ending host to let go.
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

/// Starts the sandbox.
pub(crate) fn runtime(config: &Config, data: &Path) -> Result<Runtime, Failure> {
    let settings = RuntimeConfig {
        streams: config.limits.streams,
        cache_dir: cache::directory(data),
        tick: Duration::from_millis(2),
    };
    Ok(Runtime::start(settings)?)
}

/// Waits a moment between two tries.
#[expect(clippy::disallowed_methods, reason = "the command line has one thread and nothing else to do")]
pub(crate) fn pause() {
    std::thread::sleep(PAUSE);
}

/// Says something on standard error to whoever types, as far as somebody is there.
pub(crate) fn ask(text: &str) {
    let mut out = std::io::stderr().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Writes text on standard output. A reader that went away is no failure of ours.
pub(crate) fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::system("standard output")(error))
        }
        _ => Ok(()),
    }
}
