//! What is read before a store is open, and what makes its tables.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_postgres::types::Type;

use super::about::About;
use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::feed::{DirectoryPoint, Seen};
use super::host::{self, HostId, ThisHost};
use super::place::{ChainId, ServerId};
use super::readers::{CommittedState, Readers};
use super::schema;
use super::statement::Statement;
use super::transaction::bounded;
use super::witness::{self, ChainNumbers, Loss, Witness};
use crate::clock::Clock;
use crate::error::OpenError;
use crate::rows;
use crate::seal::{STORE_KEYS, StoreKeys};
use crate::state::State;

/// What a store is opened with: the row of its header, and that of its keys.
pub(crate) type HeadRows = [Option<Vec<u8>>; 2];

/// Makes the tables, or brings those of an earlier version up to date.
pub(crate) fn prepare(database: &Arc<Database>, runtime: &Handle) -> Result<(), OpenError> {
    wait(runtime, async || {
        let session = database.connect().await?;
        schema::migrate(&session).await
    })
}

/// Upgrades the schema of a store. See [`schema::upgrade`].
///
/// # Errors
/// [`OpenError::Database`].
pub(super) fn upgrade(
    database: &Arc<Database>,
    runtime: &Handle,
    keys: &StoreKeys,
) -> Result<schema::Upgrade, OpenError> {
    wait(runtime, async || {
        let session = database.connect().await?;
        schema::upgrade(&session, keys, &schema::CURRENT).await
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

/// The rows that a store is opened with; none where the database has no tables of a store.
///
/// # Errors
/// [`OpenError::Database`], also where the schema is not that of this program.
pub(crate) fn head_rows(database: &Arc<Database>, runtime: &Handle) -> Result<HeadRows, OpenError> {
    wait(runtime, async || {
        let session = database.connect().await?;
        match schema::check(&session).await {
            // An empty database, or one in which the tables of a store were never finished.
            Err(Failure::OtherSchema { found: 0, .. }) => return Ok([None, None]),
            checked => checked.map(drop)?,
        }
        Ok([row(&session, rows::HEADER).await?, row(&session, STORE_KEYS).await?])
    })
}

/// Makes this process a host. From now on, others wait for it until [`leave`].
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn enter(
    database: &Arc<Database>,
    runtime: &Handle,
    clock: &Clock,
    about: About,
) -> Result<Arc<ThisHost>, OpenError> {
    let about = Arc::new(about);
    let entered_ms = clock.boot_ms();
    let entered = wait(runtime, async || {
        let session = database.connect().await?;
        host::enter(&session, &about).await
    });
    entered.map(|(id, schema)| Arc::new(ThisHost::new(id, entered_ms, schema, Arc::clone(&about))))
}

/// Ends this host. If the database cannot be reached now, others find its row without signs of life and
/// delete it later.
pub(crate) fn leave(database: &Arc<Database>, runtime: &Handle, id: HostId) {
    let left = wait(runtime, async || {
        let session = database.connect().await?;
        host::leave(&session, id).await
    });
    if let Err(error) = left {
        tracing::warn!(%error, host = %id, "this host could not take its row out of the database");
    }
}

/// What the database lacks of what is known to be durable, and the position of its newest audit record.
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn lost(
    database: &Arc<Database>,
    runtime: &Handle,
    witness: &Witness,
) -> Result<(Loss, u64), OpenError> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the ends of chains");
    let known = witness.numbers();
    let ids: Vec<Vec<u8>> = known.keys().map(|chain| chain.0.to_vec()).collect();
    wait(runtime, async || {
        let session = database.connect().await?;
        let asks =
            Statement::new("SELECT id, seq FROM chain WHERE id = ANY($1)").with(ids, Type::BYTEA_ARRAY);
        let rows = bounded(asks.rows(&session.client, usize::MAX, |_| Ok(0))).await?;
        let chain = |row: &tokio_postgres::Row| {
            let id: &[u8] = row.try_get(0).map_err(|_| UNEXPECTED)?;
            let id = ChainId(id.try_into().map_err(|_| UNEXPECTED)?);
            Ok((id, row.try_get(1).map_err(|_| UNEXPECTED)?))
        };
        let found = rows.iter().map(chain).collect::<Result<ChainNumbers, Failure>>()?;
        let newest = bounded(session.script("SELECT coalesce(max(position), 0) FROM audit")).await?;
        let [row] = newest.as_slice() else { return Err(UNEXPECTED) };
        let newest = row.first().and_then(|newest| newest.as_deref()?.parse().ok()).ok_or(UNEXPECTED)?;
        Ok((witness::compare(&known, &found, true), newest))
    })
}

/// What is committed now, and how far a directory is read that is read from it. Both are of one moment, so no
/// change is left out between them.
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn first_look(
    database: &Arc<Database>,
    keys: &Arc<StoreKeys>,
    runtime: &Handle,
) -> Result<(Box<dyn State>, DirectoryPoint), OpenError> {
    let readers = Arc::new(Readers::new(Arc::clone(database), Arc::clone(keys), runtime.clone()));
    let state = CommittedState::new(&readers, Arc::default());
    let point = point(&state).map_err(unusable)?;
    Ok((Box::new(state), point))
}

/// A row of the store itself.
pub(super) async fn row(session: &DatabaseSession, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the header");
    let asks = Statement::new("SELECT body FROM store WHERE k = $1").with(key.to_vec(), Type::BYTEA);
    let rows = bounded(asks.rows(&session.client, usize::MAX, |_| Ok(0))).await?;
    rows.first().map(|row| row.try_get(0)).transpose().map_err(|_| UNEXPECTED)
}

fn point(state: &CommittedState) -> Result<DirectoryPoint, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for chains");
    let sql =
        format!("SELECT {}, id, changed FROM (SELECT) AS this LEFT JOIN chain ON NOT retired", ServerId::SQL);
    let rows = state.moment().rows(Statement::new(sql), usize::MAX, |_| Ok(0))?;
    let server = rows.first().ok_or(UNEXPECTED)?.try_get(0).map_err(|_| UNEXPECTED)?;
    let chain = |row: &tokio_postgres::Row| {
        let id: Option<&[u8]> = row.try_get(1).map_err(|_| UNEXPECTED)?;
        let Some(id) = id else { return Ok(None) };
        let id = ChainId(id.try_into().map_err(|_| UNEXPECTED)?);
        Ok(Some((id, row.try_get(2).map_err(|_| UNEXPECTED)?)))
    };
    let seen = rows.iter().filter_map(|row| chain(row).transpose()).collect::<Result<Seen, Failure>>()?;
    Ok(DirectoryPoint { server: Some(ServerId::of(server)), seen })
}

/// Runs what asks the database, and blocks this thread until it ends. The thread may be one of a
/// runtime, so the questions are asked on another one.
pub(super) fn wait<T: Send, F: Future<Output = Result<T, Failure>>>(
    runtime: &Handle,
    asks: impl FnOnce() -> F + Send,
) -> Result<T, OpenError> {
    let ended = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(asks())).join());
    ended.unwrap_or(Err(Failure::Unexpected("what opens a store"))).map_err(unusable)
}

pub(super) fn unusable(failure: Failure) -> OpenError {
    OpenError::Database { what: failure.to_string() }
}
