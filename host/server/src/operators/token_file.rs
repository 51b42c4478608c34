//! `DATA/operator.token`: made at the first start, mode 0600, one line. Deleting it and reloading
//! the host makes another one.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cofferdam_store::Draft;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::random_text;

/// The name in the data directory.
const FILE_NAME: &str = "operator.token";
/// The first characters of a token that this program makes, for searches for leaked tokens.
const PREFIX: &str = "cfd-operator_";
/// The minimum length of a token that an operator wrote, in bytes.
const TOKEN_BYTES_MIN: usize = 32;
/// The maximum length, in bytes: that of a token in a header.
const TOKEN_BYTES_MAX: usize = 512;

/// Why there is no operator token.
#[derive(Debug, thiserror::Error)]
pub enum OperatorTokenError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} has mode {mode:04o}; it must be 0600 or 0400: use `chmod 600`", path.display())]
    TooOpen { path: PathBuf, mode: u32 },
    #[error("{} belongs to user {owner}; it must belong to the user of the host or to root", path.display())]
    WrongOwner { path: PathBuf, owner: u32 },
    #[error(
        "{} is no operator token: one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters \
         without commas; delete the file to get a new one",
        .0.display()
    )]
    NoToken(PathBuf),
    #[error("no random numbers from the system")]
    Random(#[from] getrandom::Error),
}

/// Reads the token, or makes one if there is no file.
pub(super) fn read_or_make(data: &Path) -> Result<Zeroizing<Vec<u8>>, OperatorTokenError> {
    if let Some(token) = read(data)? {
        return Ok(token);
    }
    let path = data.join(FILE_NAME);
    let text = random_text()?;
    let token = Zeroizing::new([PREFIX.as_bytes(), text.as_bytes()].concat());
    let line = Zeroizing::new([&token[..], b"\n"].concat());
    let failed = |source| OperatorTokenError::File { path: path.clone(), source };
    Draft::write(&path, &line, 0o600).and_then(Draft::replace).map_err(failed)?;
    Ok(token)
}

/// Reads the token; `None` if there is no file.
pub(super) fn read(data: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, OperatorTokenError> {
    let path = data.join(FILE_NAME);
    // NONBLOCK: a FIFO at this path would block the start.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
        Ok(file) => read_file(&file, &path).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OperatorTokenError::File { path, source }),
    }
}

fn read_file(file: &File, path: &Path) -> Result<Zeroizing<Vec<u8>>, OperatorTokenError> {
    let failed = |source| OperatorTokenError::File { path: path.to_owned(), source };
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o7177 != 0 {
        return Err(OperatorTokenError::TooOpen { path: path.to_owned(), mode });
    }
    if ![rustix::process::geteuid().as_raw(), 0].contains(&metadata.uid()) {
        return Err(OperatorTokenError::WrongOwner { path: path.to_owned(), owner: metadata.uid() });
    }
    let mut token = Zeroizing::new(Vec::with_capacity(TOKEN_BYTES_MAX + 2));
    file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_end(&mut token).map_err(failed)?;
    let length = token.trim_ascii_end().len();
    token.truncate(length);
    let is_token = metadata.is_file()
        && (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len())
        && token.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',');
    if is_token { Ok(token) } else { Err(OperatorTokenError::NoToken(path.to_owned())) }
}
