//! The search for a value in files.

use crate::Result;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

const PIECE: usize = 1 << 20;

/// The regular files under a folder that contain these bytes, in order. Files that vanish meanwhile are left out.
///
/// # Errors
/// A file or folder cannot be read, or `bytes` is empty.
pub fn files_containing(folder: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>> {
    anyhow::ensure!(!bytes.is_empty(), "every file contains an empty text");
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && contains(&entry.path(), bytes)? {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn contains(path: &Path, bytes: &[u8]) -> Result<bool> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let finder = memchr::memmem::Finder::new(bytes);
    // The end of each piece is kept, because the bytes may lie across two.
    let mut held = Vec::new();
    loop {
        let taken = Read::by_ref(&mut file).take(u64::try_from(PIECE)?).read_to_end(&mut held)?;
        if finder.find(&held).is_some() {
            return Ok(true);
        }
        if taken == 0 {
            return Ok(false);
        }
        held.drain(..held.len().saturating_sub(bytes.len() - 1));
    }
}
