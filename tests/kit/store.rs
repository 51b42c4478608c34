//! What a host left in its store, read after it has ended.

use super::host::Host;
use cofferdam_store::{Clock, DirectoryLock, OpenOptions, RootKeySource, Store, UsageRow};

/// Ends the host; its usage rows, the oldest first.
pub fn usage_of(host: &mut Host) -> Vec<UsageRow> {
    host.end();
    let data = host.data();
    let lock = DirectoryLock::acquire(&data).unwrap();
    let root_key = RootKeySource::File(data.join("root.key"));
    let options =
        OpenOptions { root_key, previous_root_key: None, accept_rollback: None, clock: Clock::system() };
    let store = Store::open(lock, options).unwrap();
    let mut rows = store.usage_rows(1000).unwrap();
    store.close();
    rows.sort_by_key(|row| row.at_ms);
    rows
}
