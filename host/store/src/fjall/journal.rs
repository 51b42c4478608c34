//! Opening a store whose journal ends with a torn batch.
//!
//! After a power failure the end of the last batch can be on the disk and its middle missing. The
//! engine then refuses the whole store, although that batch was never acknowledged. Cutting off the
//! last byte makes the batch incomplete, and the engine drops an incomplete batch by itself. The
//! anchor check then decides whether the remaining state may be served.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Database;
use crate::error::OpenError;

const BLOCK_BYTES: usize = 64 * 1024;
/// Largest number of copies kept beside the store. A machine that reaches it has a hardware
/// problem.
const COPIES_MAX: u32 = 100;

/// Opens the database. When the engine refuses its journal, cuts the end off and tries once more.
/// True when it was cut.
pub(crate) fn open(store: &Path, copies: &Path) -> Result<(Database, bool), OpenError> {
    let refusal = match Database::open(store) {
        Ok(database) => return Ok((database, false)),
        Err(error) if is_journal_refusal(&error) => error,
        Err(error) => return Err(error),
    };
    let Some(journal) = newest(store).map_err(OpenError::io(store))? else { return Err(refusal) };
    let Some((copy, length)) = keep_copy(&journal, copies).map_err(OpenError::io(copies))? else {
        return Err(refusal);
    };
    cut(&journal, length - 1).map_err(OpenError::io(&journal))?;
    tracing::warn!(
        journal = %journal.display(), copy = %copy.display(), length,
        "the journal does not end with a whole batch; the end of its last one was cut off"
    );
    match Database::open(store) {
        Ok(database) => Ok((database, true)),
        Err(error) => {
            // The journal is damaged before its end as well. Put it back as it was found and delete
            // the copy, so that copies do not pile up with every attempt to start.
            restore(&copy, &journal).map_err(OpenError::io(&journal))?;
            Err(error)
        }
    }
}

fn restore(copy: &Path, journal: &Path) -> io::Result<()> {
    std::fs::copy(copy, journal)?;
    File::open(journal)?.sync_all()?;
    std::fs::remove_file(copy)
}

fn is_journal_refusal(error: &OpenError) -> bool {
    matches!(error, OpenError::Engine(fjall::Error::JournalRecovery(_)) | OpenError::EnginePanicked)
}

/// The journal with the highest number.
fn newest(store: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in std::fs::read_dir(store)? {
        let path = entry?.path();
        let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        let Some(number) = number.filter(|_| is_journal) else { continue };
        if newest.as_ref().is_none_or(|(highest, _)| number > *highest) {
            newest = Some((number, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// Copies the journal up to its last byte that is not zero. Its content ends there, because the
/// engine creates journals 64 MiB long. Returns the copy and the content's length; `None` for a
/// journal of zeros.
fn keep_copy(journal: &Path, copies: &Path) -> io::Result<Option<(PathBuf, u64)>> {
    let source = File::open(journal)?;
    let length = content_bytes(&source)?;
    if length == 0 {
        return Ok(None);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(copies)?;
    let stem = journal.file_stem().unwrap_or_default().to_string_lossy();
    let mut number = 1;
    let copy = loop {
        let path = copies.join(format!("{stem}-{number}.jnl"));
        if number == COPIES_MAX || !path.try_exists()? {
            break path;
        }
        number += 1;
    };
    let mut target = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&copy)?;
    io::copy(&mut io::Read::take(source, length), &mut target)?;
    target.sync_all()?;
    File::open(copies)?.sync_all()?;
    Ok(Some((copy, length)))
}

/// Offset after the last byte that is not zero.
fn content_bytes(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut block = vec![0; BLOCK_BYTES];
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES as u64);
        let wanted = usize::try_from(end - start).unwrap_or(BLOCK_BYTES);
        let Some(part) = block.get_mut(..wanted) else { break };
        file.read_exact_at(part, start)?;
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn cut(journal: &Path, length: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(journal)?;
    file.set_len(length)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ends_at_the_last_byte_that_is_not_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.jnl");
        for (content, expected) in
            [(0, 0), (1, 1), (BLOCK_BYTES, BLOCK_BYTES), (BLOCK_BYTES + 1, BLOCK_BYTES + 1)]
        {
            std::fs::write(&path, vec![7; content]).unwrap();
            OpenOptions::new().write(true).open(&path).unwrap().set_len(5_000_000).unwrap();
            assert_eq!(content_bytes(&File::open(&path).unwrap()).unwrap(), expected as u64);
        }
    }

    #[test]
    fn the_newest_journal_is_the_one_with_the_highest_number() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["9.jnl", "10.jnl", "11.sst", "version"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(newest(folder.path()).unwrap(), Some(folder.path().join("10.jnl")));
    }

    #[test]
    fn every_cut_keeps_a_copy_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("3.jnl");
        std::fs::write(&path, b"content\0\0\0").unwrap();
        let copies = folder.path().join("copies");
        let (first, length) = keep_copy(&path, &copies).unwrap().unwrap();
        let (second, _) = keep_copy(&path, &copies).unwrap().unwrap();
        assert_eq!((length, std::fs::read(&first).unwrap()), (7, b"content".to_vec()));
        assert_ne!(first, second);
    }
}
