//! Making and opening a store in a database.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_postgres::types::Type;

use super::connect::{Database, Session};
use super::failure::Failure;
use super::feed::Seen;
use super::place::ChainId;
use super::readers::{CommittedState, Readers};
use super::schema;
use super::statement::Statement;
use super::transaction::bounded;
use crate::directory::Directory;
use crate::error::{Error, OpenError};
use crate::header::Header;
use crate::open::{Given, Money, Unlocked, load_row, unlock};
use crate::root_key::RootKeyMaterial;
use crate::rows::{self, Keyspace, RowKind};
use crate::seal::STORE_KEYS;
use crate::state::{Gap, RowRange, State};
use crate::vault::VaultReader;

/// A store that can be served.
pub(crate) struct Opened {
    pub(crate) access: VaultReader,
    pub(crate) header: Header,
    /// The root key to rotate to, if the configuration names a new one.
    pub(crate) rotate_to: Option<RootKeyMaterial>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) money: Money,
    pub(crate) seen: Seen,
}

/// Makes the tables, or brings those of an earlier version up to date.
pub(crate) fn prepare(database: &Arc<Database>, runtime: &Handle) -> Result<(), OpenError> {
    wait(runtime, async || {
        let session = database.connect().await?;
        schema::migrate(&session).await
    })
}

/// Whether the database has a store.
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn has_store(database: &Arc<Database>, runtime: &Handle) -> Result<bool, OpenError> {
    let header = wait(runtime, async || {
        let session = database.connect().await?;
        row(&session, rows::HEADER).await
    });
    Ok(header?.is_some())
}

/// Opens the store that is in the database.
///
/// # Errors
/// [`OpenError::NoStore`], [`OpenError::Database`], and the errors of a wrong root key and of damage.
pub(crate) fn open(database: &Arc<Database>, runtime: &Handle, given: Given) -> Result<Opened, OpenError> {
    let [header, record] = wait(runtime, async || {
        let session = database.connect().await?;
        schema::check(&session).await?;
        Ok([row(&session, rows::HEADER).await?, row(&session, STORE_KEYS).await?])
    })?;
    if header.is_none() && record.is_none() {
        return Err(OpenError::NoStore);
    }
    let Unlocked { header, keys, rotate_to } = unlock(header.as_deref(), record.as_deref(), given)?;
    let access = VaultReader::new(Arc::new(keys));
    let readers = Arc::new(Readers::new(Arc::clone(database), Arc::clone(&access.keys), runtime.clone()));
    let state = CommittedState::new(&readers, Arc::default());
    // The number of each chain and the rows are of one moment, so no change is left out in between.
    let seen = chains(&state).map_err(unusable)?;
    let (directory, money) = load(&state, &access)?;
    Ok(Opened { access, header, rotate_to, directory: Arc::new(directory), money, seen })
}

/// A row of the store itself.
async fn row(session: &Session, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the header");
    let asks = Statement::new("SELECT body FROM store WHERE k = $1").with(key.to_vec(), Type::BYTEA);
    let rows = bounded(asks.rows(&session.client, usize::MAX, |_| Ok(0))).await?;
    rows.first().map(|row| row.try_get(0)).transpose().map_err(|_| UNEXPECTED)
}

fn chains(state: &CommittedState) -> Result<Seen, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for chains");
    let asks = Statement::new("SELECT id, seq FROM chain");
    let rows = state.moment().rows(asks, usize::MAX, |_| Ok(0))?;
    let chain = |row: &tokio_postgres::Row| {
        let id: &[u8] = row.try_get(0).map_err(|_| UNEXPECTED)?;
        let id = ChainId(id.try_into().map_err(|_| UNEXPECTED)?);
        Ok((id, row.try_get(1).map_err(|_| UNEXPECTED)?))
    };
    rows.iter().map(chain).collect()
}

/// The keyspace `keys` in memory. A damaged row is left out: its owner is refused, and all others are
/// served.
fn load(state: &CommittedState, access: &VaultReader) -> Result<(Directory, Money), OpenError> {
    let (mut directory, mut money) = (Directory::default(), Money::default());
    let mut damaged = 0_u64;
    for found in state.range(&RowRange::all(Keyspace::Keys)).map_err(unread)? {
        let (key, value) = found.map_err(|error| unread(error.into()))?;
        let is_marker = RowKind::of(&key) == Some(RowKind::Marker);
        if !is_marker && load_row(&access.keys, &mut directory, &mut money, &key, &value).is_none() {
            damaged += 1;
        }
    }
    if damaged > 0 {
        tracing::error!(rows = damaged, "damaged rows of the store are left out");
    }
    Ok((directory, money))
}

/// Runs what asks the database, and blocks this thread until it ends. The thread may be one of a
/// runtime, so the questions are asked on another one.
fn wait<T: Send, F: Future<Output = Result<T, Failure>>>(
    runtime: &Handle,
    asks: impl FnOnce() -> F + Send,
) -> Result<T, OpenError> {
    let ended = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(asks())).join());
    ended.unwrap_or(Err(Failure::Unexpected("what opens a store"))).map_err(unusable)
}

fn unusable(failure: Failure) -> OpenError {
    OpenError::Database { what: failure.to_string() }
}

fn unread(gap: Gap) -> OpenError {
    OpenError::Database { what: Error::from(gap).to_string() }
}
