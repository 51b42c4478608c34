//! `DATA/admin.url`: the URL of the admin listener while a host runs, for `health`. A host that is killed leaves it behind.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::app::Addresses;

const FILE_NAME: &str = "admin.url";
/// The most bytes that are read of it.
const BYTES_MAX: u64 = 256;

/// Writes the file. Only the holder of the store's lock may call this.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn write(data: &Path, at: Addresses) -> io::Result<()> {
    remove(data)?;
    let path = data.join(FILE_NAME);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}://{}", at.scheme(), Addresses::reachable(at.admin))
}

/// The URL without a path, if a host has written one.
pub(crate) fn read(data: &Path) -> Option<String> {
    let mut text = String::new();
    let file = OpenOptions::new().read(true).open(data.join(FILE_NAME)).ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

/// Removes the file if it is there.
///
/// # Errors
///
/// The system refuses.
pub(crate) fn remove(data: &Path) -> io::Result<()> {
    match fs::remove_file(data.join(FILE_NAME)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
