//! The state of the embedded engine: a snapshot of the database, and the directory.

use std::sync::Arc;

use fjall::{Guard, Keyspace as Handle, Readable, Snapshot};

use super::Database;
use crate::directory::{Directory, NameKey, RecordId};
use crate::error::Error;
use crate::lookup::RecordKind;
use crate::rows::Keyspace;
use crate::state::{Gap, KeyedRow, RowBytes, RowRange, Rows, State};

/// All rows as of one commit, and the directory that was published last.
///
/// On the writer's thread both are of the same commit. For other readers the directory can be one
/// commit older: what they need of one commit, they read from rows.
struct WholeState {
    snapshot: Snapshot,
    database: Database,
    directory: Arc<Directory>,
}

impl Database {
    /// The state after the last commit. Never waits for the writer.
    pub(crate) fn state(&self, directory: Arc<Directory>) -> Box<dyn State> {
        Box::new(WholeState { snapshot: self.snapshot(), database: self.clone(), directory })
    }

    fn handle(&self, keyspace: Keyspace) -> &Handle {
        match keyspace {
            Keyspace::Keys => &self.keys,
            Keyspace::Meta => &self.meta,
            Keyspace::Values => &self.values,
            Keyspace::Log => &self.log,
        }
    }
}

impl State for WholeState {
    fn row(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<RowBytes>, Gap> {
        Ok(self.snapshot.get(self.database.handle(keyspace), key)?)
    }

    fn length(&self, keyspace: Keyspace, key: &[u8]) -> Result<Option<usize>, Gap> {
        let length = self.snapshot.size_of(self.database.handle(keyspace), key)?;
        Ok(length.map(|length| length as usize))
    }

    fn range(&self, range: &RowRange) -> Result<Rows, Gap> {
        let rows = self.snapshot.range::<&[u8], _>(self.database.handle(range.keyspace), range.bounds());
        let rows = rows.take(range.limit);
        // A value that is stored apart from its key is not read for the key alone.
        Ok(if range.keys_only { Box::new(rows.map(key)) } else { Box::new(rows.map(pair)) })
    }

    fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap> {
        Ok(self.directory.named(name))
    }

    fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<Vec<RecordId>, Gap> {
        Ok(self.directory.owned_by(kind, owner))
    }

    fn has_markers(&self) -> bool {
        true
    }

    fn directory(&self) -> Option<&Directory> {
        Some(&self.directory)
    }
}

fn key(row: Guard) -> Result<KeyedRow, Error> {
    Ok((row.key()?, RowBytes::default()))
}

fn pair(row: Guard) -> Result<KeyedRow, Error> {
    Ok(row.into_inner()?)
}
