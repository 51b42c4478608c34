//! Opening a store that is in a database.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Given, Money, Unlocked, load_row, unlock};
use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::{Error, OpenError};
use crate::header::Header;
use crate::postgres::{self, Database, Seen, ThisHost};
use crate::root_key::RootKeyMaterial;
use crate::rows::{self, KEYS, Keyspace, RowKind};
use crate::state::{Gap, RowRange, State};
use crate::vault::VaultReader;

/// A store in a database that can be served.
pub(crate) struct OpenedDatabase {
    pub(crate) access: VaultReader,
    pub(crate) header: Header,
    /// The root key to rotate to, if the configuration names a new one.
    pub(crate) rotate_to: Option<RootKeyMaterial>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) money: Money,
    /// How far the changes of each chain are in the directory.
    pub(crate) seen: Seen,
    /// This host, whose row is there.
    pub(crate) host: Arc<ThisHost>,
}

/// Opens the store that is in the database.
///
/// # Errors
/// [`OpenError::NoStore`], [`OpenError::Database`], and the errors of a wrong root key and of damage.
pub(crate) fn open_database(
    database: &Arc<Database>,
    runtime: &Handle,
    given: Given,
    clock: &Clock,
) -> Result<OpenedDatabase, OpenError> {
    let [header, record] = postgres::head_rows(database, runtime)?;
    if header.is_none() && record.is_none() {
        return Err(OpenError::NoStore);
    }
    let Unlocked { header, keys, rotate_to } = unlock(header.as_deref(), record.as_deref(), given)?;
    if header.moved.is_some() {
        return Err(OpenError::MovedAway);
    }
    let access = VaultReader::new(Arc::new(keys));
    // Before the directory is read: who changes it after that waits for this host.
    let host = postgres::enter(database, runtime, clock)?;
    let loaded = read_directory(database, runtime, &access);
    let (directory, money, seen) = loaded.inspect_err(|_| postgres::leave(database, runtime, host.id()))?;
    Ok(OpenedDatabase { access, header, rotate_to, directory, money, seen, host })
}

/// What is committed now, and how far the changes of each chain are in it.
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn read_directory(
    database: &Arc<Database>,
    runtime: &Handle,
    access: &VaultReader,
) -> Result<(Arc<Directory>, Money, Seen), OpenError> {
    let (state, seen) = postgres::first_look(database, &access.keys, runtime)?;
    let (directory, money) = load(&*state, access)?;
    Ok((Arc::new(directory), money, seen))
}

/// The keyspace `keys` in memory. A damaged row is left out: its owner is refused, and all others are
/// served.
fn load(state: &dyn State, access: &VaultReader) -> Result<(Directory, Money), OpenError> {
    let (mut directory, mut money) = (Directory::default(), Money::default());
    let mut damaged = 0_u64;
    for found in state.range(&RowRange::all(Keyspace::Keys)).map_err(unread)? {
        let (key, row) = found.map_err(|error| unread(error.into()))?;
        // The store may have been moved away since the header was read.
        if *key == *rows::HEADER
            && rows::decode(&access.keys, KEYS, &key, &row)
                .is_some_and(|header: Header| header.moved.is_some())
        {
            return Err(OpenError::MovedAway);
        }
        let is_marker = RowKind::of(&key) == Some(RowKind::Marker);
        if !is_marker && load_row(&access.keys, &mut directory, &mut money, &key, &row).is_none() {
            damaged += 1;
        }
    }
    if damaged > 0 {
        tracing::error!(rows = damaged, "damaged rows of the store are left out");
    }
    Ok((directory, money))
}

fn unread(gap: Gap) -> OpenError {
    OpenError::Database { what: Error::from(gap).to_string() }
}
