//! Checks the storage engine's lists of files before the engine reads them.
//!
//! Each keyspace has a file `current` with the number and the checksum of the list `vN` that is in
//! force. The engine (lsm-tree 3.1.10) does not compare the checksum yet and trusts the counts in a
//! list: one flipped bit can make it allocate more memory than the machine has, which ends the
//! process without an error message.

use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::error::OpenError;

/// Checks the lists of all keyspaces.
pub(crate) fn check(store: &Path) -> Result<(), OpenError> {
    let keyspaces = store.join("keyspaces");
    let folders = match std::fs::read_dir(&keyspaces) {
        // `open` decides what a store without keyspaces means.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        folders => folders.map_err(OpenError::io(&keyspaces))?,
    };
    for folder in folders {
        let folder = folder.map_err(OpenError::io(&keyspaces))?.path();
        if !is_whole(&folder).map_err(OpenError::io(&folder))? {
            let what = format!("the list of files in {} is not as it was written", folder.display());
            return Err(OpenError::damaged(what));
        }
    }
    Ok(())
}

fn is_whole(folder: &Path) -> io::Result<bool> {
    let current = match std::fs::read(folder.join("current")) {
        // Creation of this keyspace was interrupted. The engine handles that.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        current => current?,
    };
    // List number, checksum, and 0 for the kind of checksum.
    let Some((number, rest)) = current.split_first_chunk() else { return Ok(false) };
    let Some((checksum, [0])) = rest.split_first_chunk() else { return Ok(false) };
    match std::fs::read(folder.join(format!("v{}", u64::from_le_bytes(*number)))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        list => Ok(xxh3_128(&list?) == u128::from_le_bytes(*checksum)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::scratch::{ScratchDirectory, create_workspace};

    /// The file lists of all keyspaces, and the files `current` that select one of them.
    fn lists(scratch: &ScratchDirectory) -> Vec<PathBuf> {
        let entries = |folder: PathBuf| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries(scratch.path("store/keyspaces")).flat_map(entries).filter(|path| path.is_file()).collect()
    }

    #[test]
    fn a_flipped_bit_in_a_list_of_files_is_reported_as_damage() {
        let scratch = ScratchDirectory::new();
        create_workspace(&scratch.open(), "w");
        // Opened a second time, so that one of the keyspaces has table files.
        drop(scratch.open());
        let lists = lists(&scratch);
        assert!(lists.len() >= 10, "{lists:?}");
        for list in lists {
            let whole = std::fs::read(&list).unwrap();
            for at in 0..whole.len() {
                let mut flipped = whole.clone();
                flipped[at] ^= 0x80;
                std::fs::write(&list, flipped).unwrap();
                let refused = scratch.try_open();
                assert!(matches!(refused, Err(OpenError::Damaged { .. })), "{} at {at}", list.display());
            }
            std::fs::write(&list, whole).unwrap();
        }
        scratch.open();
    }
}
