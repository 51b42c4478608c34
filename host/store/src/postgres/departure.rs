//! A store that leaves its database.
//!
//! One transaction locks the table of hosts, so that no host begins or shows a sign of life, reads all rows,
//! and marks the store as moved. A host that comes later finds the mark when it reads the directory.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::begin::{row, unusable, wait};
use super::conclusion::conclude;
use super::connect::{Database, DatabaseSession};
use super::failure::Failure;
use super::host::{self, HostId};
use super::readers::{CommittedState, Moment, Readers};
use super::transaction::bounded;
use crate::error::OpenError;
use crate::header::Header;
use crate::hosts::HostFacts;
use crate::rows::{self, KEYS};
use crate::seal::StoreKeys;
use crate::vault::{VaultReader, VaultSnapshot};

// The snapshot is taken after the lock.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;
    SET LOCAL lock_timeout = 5000;
    SET LOCAL statement_timeout = 10000;
    SET LOCAL idle_in_transaction_session_timeout = 3600000;
    SET LOCAL synchronous_commit = on;
    LOCK TABLE host IN SHARE ROW EXCLUSIVE MODE";

/// A host in its table: its id, its beat, and what people read of it.
pub(crate) type ListedHost = (HostId, i64, String);

/// The hosts that have the store open, or had it open when they ended without a word, after a pause.
///
/// # Errors
/// [`OpenError::Database`].
pub(crate) fn hosts(
    database: &Arc<Database>,
    runtime: &Handle,
    keys: &StoreKeys,
    pause: Duration,
) -> Result<Vec<ListedHost>, OpenError> {
    wait(runtime, async || {
        sleep(pause).await;
        let session = database.connect().await?;
        listed(&session, keys).await
    })
}

async fn listed(session: &DatabaseSession, keys: &StoreKeys) -> Result<Vec<ListedHost>, Failure> {
    let rows = bounded(host::all(session)).await?;
    let facts = bounded(host::facts(session, keys, 0)).await?;
    let place = |id: String| {
        let found = facts.iter().find(|facts| facts.id == id);
        found.map_or_else(|| format!("host {id}"), HostFacts::place)
    };
    Ok(rows.into_iter().map(|row| (row.id, row.beat, place(row.id.to_string()))).collect())
}

/// The transaction in which a store leaves.
pub(crate) struct Departure {
    database: Arc<Database>,
    runtime: Handle,
    keys: Arc<StoreKeys>,
    moment: Rc<Moment>,
}

impl Departure {
    /// Begins it. No host may have the store open.
    ///
    /// # Errors
    /// [`OpenError::InUse`], [`OpenError::Database`].
    pub(crate) fn begin(
        database: &Arc<Database>,
        runtime: &Handle,
        keys: &Arc<StoreKeys>,
    ) -> Result<Departure, OpenError> {
        let begun = wait(runtime, async || {
            let session = database.connect().await?;
            bounded(session.script(BEGIN)).await?;
            let hosts = listed(&session, keys).await?;
            Ok((session, hosts))
        });
        let (session, hosts) = begun?;
        if !hosts.is_empty() {
            return Err(OpenError::InUse(hosts.into_iter().map(|(_, _, about)| about).collect()));
        }
        let readers = Readers::new(Arc::clone(database), Arc::clone(keys), runtime.clone());
        let moment = Rc::new(Moment::within(&Arc::new(readers), session).map_err(unusable)?);
        let (database, keys) = (Arc::clone(database), Arc::clone(keys));
        Ok(Departure { database, runtime: runtime.clone(), keys, moment })
    }

    /// All rows of the store.
    pub(crate) fn view(&self) -> VaultSnapshot {
        let state = CommittedState::of(&self.moment, Arc::default());
        VaultReader::new(Arc::clone(&self.keys)).view(Box::new(state))
    }

    /// Marks the store as moved, so that no host serves it from the database any more. All views must be gone.
    ///
    /// # Errors
    /// [`OpenError::Database`]. The store may be marked then; the same move finds that out.
    pub(crate) fn end(self, id: &str) -> Result<(), OpenError> {
        let Departure { database, runtime, keys, moment } = self;
        let session = Rc::into_inner(moment).and_then(Moment::into_session);
        wait(&runtime, async || {
            const UNEXPECTED: Failure = Failure::Unexpected("the header");
            let session = session.ok_or(Failure::Unexpected("a move"))?;
            let before = row(&session, rows::HEADER).await?.ok_or(UNEXPECTED)?;
            let header: Option<Header> = rows::decode(&keys, KEYS, rows::HEADER, &before);
            let header = header.ok_or(UNEXPECTED)?.moved(id.to_owned());
            let after = rows::encode(&keys, KEYS, rows::HEADER, &header);
            let body = crate::hex::encode(&after);
            let mark = format!("UPDATE store SET body = decode('{body}', 'hex') WHERE k = 'header'::bytea");
            bounded(session.script(&mark)).await?;
            if let Err(failure) = bounded(session.script("COMMIT")).await {
                tracing::warn!(%failure, "the answer to the commit of the move was lost; the database is asked");
            }
            drop(session);
            conclude(&database, "host", &after, "true").await
        })
    }
}
