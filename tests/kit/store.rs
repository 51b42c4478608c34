//! What a host left in its store, read after it has ended.

use super::host::{Host, Setup};
use std::path::Path;

use cofferdam_store::{Clock, DirectoryLock, OpenOptions, RootKeySource, Store, UsageRow};

/// Ends the host; its usage rows, the oldest first.
pub fn usage_of(host: &mut Host) -> Vec<UsageRow> {
    host.end();
    let store = open(&host.data());
    let mut rows = store.usage_rows(1000).unwrap();
    store.close();
    rows.sort_by_key(|row| row.at_ms);
    rows
}

/// The newest usage rows in the directory of a host that has ended, the newest first.
pub fn rows_in(data: &Path, limit: usize) -> Vec<UsageRow> {
    let store = open(data);
    let rows = store.usage_rows(limit).unwrap();
    store.close();
    rows
}

/// Does something to the store that a host is about to be started on.
pub fn prepare<T>(setup: &Setup, work: impl FnOnce(&Store) -> T) -> T {
    let store = open(&setup.data());
    let done = work(&store);
    store.close();
    done
}

fn open(data: &Path) -> Store {
    let lock = DirectoryLock::acquire(data).unwrap();
    let root_key = RootKeySource::File(data.join("root.key"));
    let clock = Clock::system();
    let options = OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock };
    Store::open(lock, options).unwrap()
}
