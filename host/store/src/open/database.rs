//! Opening a store that is in a database.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Given, Money, Unlocked, load_row, unlock};
use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::{Error, OpenError};
use crate::header::{Header, follow};
use crate::postgres::{self, About, Database, DirectoryPoint, ThisHost, Verdict, Witness};
use crate::root_key::RootKeyMaterial;
use crate::rows::{self, Keyspace, RowKind};
use crate::seal::STORE_KEYS;
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
    /// How far the directory was read.
    pub(crate) point: DirectoryPoint,
    /// This host, whose row is there.
    pub(crate) host: Arc<ThisHost>,
    /// What this host knows to be durable.
    pub(crate) witness: Arc<Witness>,
    /// What the database has lost, which is to be accepted.
    pub(crate) loss: Option<AcceptedLoss>,
}

/// A loss of the database that an operator accepts with this start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedLoss {
    /// Position of the newest audit record that is there.
    pub(crate) newest: u64,
    pub(crate) chains: usize,
    pub(crate) commits: u64,
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
    serves: bool,
    witness: WitnessFile<'_>,
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
    let (witness, loss) = compare(database, runtime, &access, &header, witness)?;
    // The row of this host is written before header and directory are read, so that later changes wait for it.
    let about = About::new(Arc::clone(&access.keys), clock.clone(), serves);
    let host = postgres::enter(database, runtime, clock, about)?;
    let loaded = read_directory(database, runtime, &access).and_then(|loaded| match &loaded.header {
        Some(header) if serves => check_next(&access, header).map(|()| loaded),
        _ => Ok(loaded),
    });
    let loaded = loaded.inspect_err(|_| postgres::leave(database, runtime, host.id()))?;
    let LoadedDirectory { header, directory, money, point } = loaded;
    let header = header.ok_or(OpenError::NoStore)?;
    Ok(OpenedDatabase { access, header, rotate_to, directory, money, point, host, witness, loss })
}

/// Where a host keeps what it knows to be durable, and the loss that its operator accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WitnessFile<'f> {
    /// `None` for a command, which compares nothing.
    pub(crate) path: Option<&'f Path>,
    /// Position of the newest audit record, from the error of the start before.
    pub(crate) accepted: Option<u64>,
}

/// Compares the database with what this host knows to be durable.
fn compare(
    database: &Arc<Database>,
    runtime: &Handle,
    access: &VaultReader,
    header: &Header,
    WitnessFile { path, accepted }: WitnessFile<'_>,
) -> Result<(Arc<Witness>, Option<AcceptedLoss>), OpenError> {
    let (keys, losses) = (Arc::clone(&access.keys), header.accepted_losses);
    let Some(path) = path else { return Ok((Arc::new(Witness::new(keys, None, losses)), None)) };
    let witness = Arc::new(Witness::open(keys, path, losses)?);
    let (loss, newest) = postgres::lost(database, runtime, &witness)?;
    match (witness.judge(loss, losses), accepted) {
        (Verdict::Whole | Verdict::Accepted, None) => Ok((witness, None)),
        (Verdict::Whole | Verdict::Accepted, Some(given)) => Err(OpenError::NothingToAccept {
            given,
            found: "the database has all commits that this host knows of".to_owned(),
        }),
        (Verdict::Lacks(loss), Some(given)) if newest <= given => {
            tracing::warn!(
                newest,
                "the database has lost commits that it had acknowledged, which is accepted: {loss}"
            );
            // Until the acceptance is committed.
            witness.begin_anew(losses);
            let accepted = AcceptedLoss { newest, chains: loss.chains(), commits: loss.commits() };
            Ok((witness, Some(accepted)))
        }
        (Verdict::Lacks(loss), _) => Err(OpenError::SetBack { lost: loss.to_string(), newest }),
    }
}

/// Refuses to serve without the next root key, which may be in force at any time.
fn check_next(access: &VaultReader, header: &Header) -> Result<(), OpenError> {
    match &header.next_root {
        Some(next) if access.keys.ring().find(next.id).is_none() => {
            Err(OpenError::NoNextRootKey { given: header.root.id, needs: next.id })
        }
        _ => Ok(()),
    }
}

/// What a host keeps in memory of a store.
pub(crate) struct LoadedDirectory {
    /// The header; `None` in a database whose store is being made.
    pub(crate) header: Option<Header>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) money: Money,
    /// How far it was read.
    pub(crate) point: DirectoryPoint,
}

/// What is committed now.
///
/// # Errors
/// [`OpenError::Database`], [`OpenError::MovedAway`], and those of [`follow`].
pub(crate) fn read_directory(
    database: &Arc<Database>,
    runtime: &Handle,
    access: &VaultReader,
) -> Result<LoadedDirectory, OpenError> {
    let (state, point) = postgres::first_look(database, &access.keys, runtime)?;
    let row = |key: &[u8]| state.row(Keyspace::Keys, key).map_err(unread);
    let header = match row(rows::HEADER)? {
        Some(header) => Some(follow(&access.keys, &header, row(STORE_KEYS)?.as_deref())?),
        None => None,
    };
    // The store may have been moved away since this host first read the header.
    if header.as_ref().is_some_and(|header| header.moved.is_some()) {
        return Err(OpenError::MovedAway);
    }
    let (directory, money) = load(&*state, access)?;
    Ok(LoadedDirectory { header, directory: Arc::new(directory), money, point })
}

/// The keyspace `keys` in memory. A damaged row is left out: its owner is refused, and all others are
/// served.
fn load(state: &dyn State, access: &VaultReader) -> Result<(Directory, Money), OpenError> {
    let (mut records, mut money) = (Vec::new(), Money::default());
    let mut damaged = 0_u64;
    for found in state.range(&RowRange::all(Keyspace::Keys)).map_err(unread)? {
        let (key, row) = found.map_err(|error| unread(error.into()))?;
        let is_marker = RowKind::of(&key) == Some(RowKind::Marker);
        if !is_marker && load_row(&access.keys, &mut records, &mut money, &key, &row).is_none() {
            damaged += 1;
        }
    }
    if damaged > 0 {
        tracing::error!(rows = damaged, "damaged rows of the store are left out");
    }
    Ok((Directory::of(records), money))
}

fn unread(gap: Gap) -> OpenError {
    OpenError::Database { what: Error::from(gap).to_string() }
}
