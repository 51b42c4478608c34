//! The installed plugins: `DATA/plugins.lock` says which they are, and `DATA/plugins` has their files.
//! The lock is the only truth. A change writes new files first, then replaces the lock at once, then
//! removes files that the lock no longer names. So a crash leaves the state before or after a change.

mod asks;
mod error;
mod folder;
mod lock;

use std::path::Path;

use cofferdam_runtime::PluginSource;

pub(crate) use asks::{InstalledAsks, asks, beyond, granted};
pub(crate) use error::{InstalledError, VersionPart};
pub(crate) use folder::{InstalledFolder, PluginFiles};
pub(crate) use lock::{InstalledVersion, LockedPlugin, PluginLock};

use crate::facts::{Facts, HeldFacts, PreviousFacts};

/// How often the lock is read again because it was replaced while its files were read.
const READS_MAX: usize = 5;

/// Where plugins come from, besides those in the program.
#[derive(Clone, Copy)]
pub(crate) struct PluginPlaces<'p> {
    /// The data directory, with the installed plugins.
    pub(crate) data: &'p Path,
    /// `--plugins DIR`.
    pub(crate) folder: Option<&'p Path>,
    /// Instead of `plugins.lock`: a lock that is checked before it is written.
    pub(crate) candidate: Option<&'p PluginLock>,
}

impl<'p> PluginPlaces<'p> {
    pub(crate) fn new(data: &'p Path, folder: Option<&'p Path>) -> Self {
        Self { data, folder, candidate: None }
    }

    /// Reads the installed plugins. Their bytes are those of the lock.
    ///
    /// # Errors
    ///
    /// The lock or a file that it names cannot be used.
    pub(crate) fn installed(&self) -> Result<Vec<PluginSource>, InstalledError> {
        let files = InstalledFolder::new(self.data);
        if let Some(candidate) = self.candidate {
            return files.sources(candidate);
        }
        let mut lock = files.read_lock()?;
        let mut sources = files.sources(&lock);
        for _ in 1..READS_MAX {
            // A command may have replaced the lock and removed a file meanwhile.
            let now = if sources.is_err() { files.read_lock()? } else { break };
            if now == lock {
                break;
            }
            sources = files.sources(&now);
            lock = now;
        }
        let sources = sources?;
        if !lock.plugins.is_empty() && self.folder.is_some_and(|folder| files.is_same(folder)) {
            return Err(InstalledError::SameFolder { folder: files.folder() });
        }
        if self.folder.is_none_or(|folder| !files.is_same(folder)) {
            files.warn_of_strangers(&lock);
        }
        Ok(sources)
    }
}

/// Adds what only the lock knows: the updates that wait for `plugin grant --accept`, and the versions before.
pub(crate) fn add_from_lock(facts: &mut Facts, data: &Path) {
    let files = InstalledFolder::new(data);
    let Ok(lock) = files.read_lock() else { return };
    facts.held = held_in(&files, &lock);
    for plugin in &mut facts.plugins {
        let previous = lock.plugins.get(&plugin.name).and_then(|locked| locked.previous.as_ref());
        plugin.previous = previous.map(|InstalledVersion { version, installed_at, .. }| PreviousFacts {
            version: version.clone(),
            installed_at: installed_at.clone(),
        });
    }
}

/// Files that a start does not need and that are damaged: those of the version before, and of an
/// update that is held. Each with its plugin.
pub(crate) fn damaged(data: &Path) -> Vec<(String, InstalledError)> {
    let files = InstalledFolder::new(data);
    let Ok(lock) = files.read_lock() else { return Vec::new() };
    let kept = lock.plugins.iter().flat_map(|(name, plugin)| {
        let kept = [(&plugin.previous, VersionPart::Earlier), (&plugin.held, VersionPart::Held)];
        kept.into_iter().filter_map(move |(version, part)| Some((name, version.as_ref()?, part)))
    });
    let damaged = kept.filter_map(|(name, version, part)| {
        Some((name.clone(), files.read(name, version).err()?.in_part(part)))
    });
    damaged.collect()
}

/// The updates that wait for `plugin grant --accept`. What cannot be read is left out: loading the
/// plugins reports it.
pub(crate) fn held(data: &Path) -> Vec<HeldFacts> {
    let files = InstalledFolder::new(data);
    files.read_lock().map(|lock| held_in(&files, &lock)).unwrap_or_default()
}

fn held_in(files: &InstalledFolder, lock: &PluginLock) -> Vec<HeldFacts> {
    let held = lock.plugins.iter().filter_map(|(name, plugin)| {
        let held = plugin.held.as_ref()?;
        Some(HeldFacts {
            plugin: name.clone(),
            version: held.version.clone(),
            digest: held.digest(),
            serving: plugin.current.version.clone(),
            asks_more: files.asks_more(name, plugin).unwrap_or_default(),
        })
    });
    held.collect()
}
