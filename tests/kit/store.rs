//! Reads a host's store after the host has ended.

use super::database;
use super::host::{Host, Setup};
use std::path::Path;

use cofferdam_store::{Clock, DirectoryLock, OpenOptions, RootKeySource, Store, UsageRow};
use tokio::runtime::Builder;

/// Ends the host; returns its usage rows, oldest first.
pub fn usage_of(host: &mut Host) -> Vec<UsageRow> {
    host.end();
    let store = open(&host.data());
    let mut rows = now(store.usage_rows(1000)).unwrap();
    store.close();
    rows.sort_by_key(|row| row.at_ms);
    rows
}

/// The newest usage rows in the directory of a host that has ended, newest first.
pub fn rows_in(data: &Path, limit: usize) -> Vec<UsageRow> {
    let store = open(data);
    let rows = now(store.usage_rows(limit)).unwrap();
    store.close();
    rows
}

/// Prepares the store before a host is started on it.
pub fn prepare<T>(setup: &Setup, work: impl FnOnce(&Store) -> T) -> T {
    let store = open(&setup.data());
    let done = work(&store);
    store.close();
    done
}

/// Waits for the store on a thread of its own, so that a test with a runtime can call it too.
pub fn now<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    let waiting = || Builder::new_current_thread().enable_time().build().unwrap().block_on(future);
    std::thread::scope(|scope| scope.spawn(waiting).join().unwrap())
}

fn open(data: &Path) -> Store {
    if let Some(store) = database::open(data) {
        return store;
    }
    let lock = DirectoryLock::acquire(data).unwrap();
    let root_key = RootKeySource::File(data.join("root.key"));
    let clock = Clock::system();
    let options = OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock };
    Store::open(lock, options).unwrap()
}
