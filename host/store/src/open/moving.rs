//! A store that leaves a data directory for a database, or comes back from there.
//!
//! A store that comes back is in two places for a while. A note in the directory keeps it from being served
//! there until the database says that it is not served from there any more.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::first_start::discard;
use super::restore::{Origin, TakeRow, build};
use super::{Paths, exists, sync_folder};
use crate::audit::AuditAction;
use crate::backup::StoreContent;
use crate::check::Verification;
use crate::clock::Clock;
use crate::error::{Error, OpenError};
use crate::operation::{Progress, VaultError};

/// Notes that the store of this directory is in a database now, so that it is not served from here.
pub(crate) fn mark_moved(dir: &Path) -> Result<(), OpenError> {
    const NOTE: &str =
        "The store of this directory was moved into a database. What was changed since then is only there.\n";
    let paths = Paths::new(dir);
    note(&paths.moved, NOTE, dir)
}

fn note(path: &Path, text: &str, dir: &Path) -> Result<(), OpenError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(OpenError::io(path))?;
    sync_folder(dir)
}

/// A store that comes into a data directory.
pub(crate) struct Arrival {
    paths: Paths,
    /// The id of a move that was cut short.
    found: Option<String>,
}

impl Arrival {
    /// Looks at the directory, which must have no store, or one of a move that was cut short.
    ///
    /// # Errors
    /// [`VaultError::HasStore`], [`OpenError::Io`].
    pub(crate) fn look(dir: &Path) -> Result<Arrival, VaultError> {
        let paths = Paths::new(dir);
        let found = match std::fs::read_to_string(&paths.moving) {
            Ok(text) => Some(text.lines().next().unwrap_or_default().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(OpenError::Io { path: paths.moving, source }.into()),
        };
        let Paths { store, anchor, moved, .. } = &paths;
        for path in [moved, store, anchor] {
            if exists(path)? && (found.is_none() || path == moved) {
                return Err(VaultError::HasStore(path.clone()));
            }
        }
        Ok(Arrival { paths, found })
    }

    /// Whether the move with this id was cut short here.
    pub(crate) fn is_of(&self, id: &str) -> bool {
        self.found.as_deref() == Some(id)
    }

    /// Builds the store, checks it and puts it in its place, where it is not served before [`Arrival::end`]. Also
    /// returns the number of its rows.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`OpenError::Io`], [`VaultError::Stopped`].
    pub(crate) fn build(
        &self,
        id: &str,
        content: &StoreContent<'_>,
        clock: &Clock,
        progress: &mut Progress<'_>,
    ) -> Result<(Verification, u64), VaultError> {
        let Paths { dir, store, store_new, anchor, moving, .. } = &self.paths;
        const SAYS: &str = "A store is being moved from a database into this directory. It is not served before \
                            `cofferdam store migrate --to-directory` has ended.";
        note(moving, &format!("{id}\n{SAYS}\n"), dir)?;
        // What an earlier move has left.
        if exists(store_new)? {
            discard(&self.paths)?;
        }
        if exists(anchor)? {
            std::fs::remove_file(anchor).map_err(OpenError::io(anchor))?;
        }
        if exists(store)? {
            std::fs::remove_dir_all(store).map_err(OpenError::io(store))?;
        }
        sync_folder(dir)?;
        let keys = Arc::clone(content.view.keys());
        let action = AuditAction::MovedBack { position: content.end.0 };
        let origin = Origin { keys: &keys, end: content.end, rows: 0, action };
        let mut count = 0;
        let rows = |take: &mut TakeRow<'_>| {
            content.rows(|keyspace, key, row| {
                count += 1;
                take(keyspace as usize, key.to_vec(), row.to_vec())
            })
        };
        match build(&self.paths, &origin, rows, clock, progress)? {
            Ok(checked) => Ok((checked, count)),
            Err(problem) => {
                tracing::error!(problem, "the copy is not the store that was copied");
                Err(Error::Damaged.into())
            }
        }
    }

    /// Lets the store be served from the directory.
    pub(crate) fn end(&self) -> Result<(), OpenError> {
        let Paths { dir, moving, .. } = &self.paths;
        std::fs::remove_file(moving).map_err(OpenError::io(moving))?;
        sync_folder(dir)
    }
}
