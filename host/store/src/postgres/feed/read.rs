//! Reading what was changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::connect::DatabaseSession;
use super::super::failure::Failure;
use super::super::load::load;
use crate::directory::{RecordChanges, RecordId};
use crate::header::{Header, follow};
use crate::loaded::Loaded;
use crate::rows::{self, Keyspace};
use crate::seal::{STORE_KEYS, StoreKeys};
use crate::state::{Need, State as _};

/// The header as it is committed now.
pub(super) async fn header(session: &DatabaseSession, keys: &StoreKeys) -> Result<Header, Failure> {
    const UNEXPECTED: Failure = Failure::Unexpected("the question for the header");
    let needs = [rows::HEADER, STORE_KEYS].map(|key| Need::Row(Keyspace::Keys, key.to_vec()));
    let mut loaded = Loaded::default();
    load(session, keys, &needs.into(), &mut loaded).await?;
    let loaded = Arc::new(loaded);
    let [header, record] =
        [rows::HEADER, STORE_KEYS].map(|key| loaded.row(Keyspace::Keys, key).map_err(|_| UNEXPECTED));
    let header = header?.ok_or(UNEXPECTED)?;
    follow(keys, &header, record?.as_deref()).map_err(|error| Failure::Header(error.to_string()))
}

/// The records as they are committed now.
pub(super) async fn records(
    session: &DatabaseSession,
    keys: &StoreKeys,
    records: BTreeSet<RecordId>,
) -> Result<RecordChanges, Failure> {
    let needs = records.iter().map(|id| Need::Row(Keyspace::Keys, id.row_key())).collect();
    let mut loaded = Loaded::default();
    load(session, keys, &needs, &mut loaded).await?;
    let loaded = Arc::new(loaded);
    let mut changes = RecordChanges::new();
    for id in records {
        let row = loaded.row(Keyspace::Keys, &id.row_key()).map_err(|_| Failure::Unexpected("a record"))?;
        let record = row.and_then(|row| {
            let record = id.decode(keys, &row);
            if record.is_none() {
                tracing::error!(record = ?id, "a record of the directory is damaged; it is taken for deleted");
            }
            record
        });
        changes.insert(id, record);
    }
    Ok(changes)
}
