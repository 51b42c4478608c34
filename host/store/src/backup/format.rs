//! The file format of a backup: a preamble, every row as it is stored, and a seal over all of it.
//!
//! ```text
//! "cofbkup1" | frame ... | frame 'E'
//! frame = tag (1) | length of key (4) | length of value (4) | key | value
//! ```
//!
//! The first frame is the preamble, the last one the end frame. Between them are the rows of the
//! four keyspaces, in this order and each in ascending order of row keys. So there is only one
//! valid file for the same rows, and an inserted, repeated or moved frame breaks the order. Lengths
//! are checked before memory is allocated.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::{DIGEST_BYTES, Digest};
use crate::hex;
use crate::ids::StoreId;
use crate::root_key::RootKeyId;

const MAGIC: &[u8; 8] = b"cofbkup1";
const PREAMBLE: u8 = b'P';
const END: u8 = b'E';
/// Frame tags of rows, in the order of the keyspaces.
const ROWS: [u8; 4] = *b"kmvl";

/// Longest row key. The longest one in use is that of a secret with a name of 255 bytes.
const KEY_BYTES_MAX: u32 = 1024;
/// Longest value. The longest ones are audit records of large groups.
const VALUE_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Largest allocation for a value before its bytes arrive.
const VALUE_BYTES_TRUSTED: u32 = 64 * 1024;

/// First frame of a backup. Not trusted until the seal was verified.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Preamble {
    pub(crate) store: StoreId,
    /// When the backup was made, Unix milliseconds.
    pub(crate) made_at_ms: u64,
    /// Id of the root key that the rows are wrapped under.
    pub(crate) root_key: RootKeyId,
    /// Sequence number of the last commit in it; of a store in a database, the position of the last one.
    pub(crate) seq: u64,
    /// Head of the audit chain after that commit; zeros where there are only chains of a database.
    #[serde(with = "hex")]
    pub(crate) head: Digest,
}

/// Last frame of a backup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BackupEnd {
    pub(crate) rows: u64,
    /// SHA-256 of all bytes before the end frame.
    pub(crate) digest: Digest,
    pub(crate) mac: Digest,
}

/// A part of a backup; [`read`] gives the preamble, then rows, then the end.
#[derive(Debug)]
pub(crate) enum BackupPart {
    Preamble(Preamble),
    /// A row of the keyspace with this index.
    Row {
        keyspace: usize,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    End(BackupEnd),
}

/// Why bytes are not a valid backup.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("it does not begin as one")]
    Magic,
    #[error("it ends too early; it was cut off")]
    Truncated,
    #[error("bytes follow its end")]
    Trailing,
    #[error("a part has no known kind")]
    Tag,
    #[error("a part is longer than any of a backup")]
    Length,
    #[error("its parts are not in order")]
    Order,
    #[error("its preamble cannot be read")]
    Preamble,
    #[error("its end cannot be read")]
    End,
    #[error("it has {found} rows and its end says {said}")]
    Count { found: u64, said: u64 },
    #[error("{0}")]
    Io(io::Error),
}

/// Writes a backup sequentially.
pub(crate) struct BackupWriter<W> {
    out: W,
    hash: Sha256,
    rows: u64,
}

impl<W: Write> BackupWriter<W> {
    pub(crate) fn begin(out: W, preamble: &Preamble) -> io::Result<BackupWriter<W>> {
        let mut writer = BackupWriter { out, hash: Sha256::new(), rows: 0 };
        writer.write(MAGIC)?;
        writer.frame(PREAMBLE, &[], &serde_json::to_vec(preamble)?)?;
        Ok(writer)
    }

    pub(crate) fn row(&mut self, keyspace: usize, key: &[u8], value: &[u8]) -> io::Result<()> {
        let Some(tag) = ROWS.get(keyspace) else { return Err(io::ErrorKind::InvalidInput.into()) };
        self.rows += 1;
        self.frame(*tag, key, value)
    }

    /// Writes the end frame. `mac` computes the seal from the number of rows and the digest.
    pub(crate) fn end(mut self, mac: impl FnOnce(u64, &Digest) -> Digest) -> io::Result<W> {
        let digest: Digest = self.hash.clone().finalize().into();
        let mac = mac(self.rows, &digest);
        let value = [self.rows.to_be_bytes().as_slice(), &mac].concat();
        self.frame(END, &[], &value)?;
        Ok(self.out)
    }

    fn frame(&mut self, tag: u8, key: &[u8], value: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let key_length = u32::try_from(key.len()).map_err(too_long)?;
        let value_length = u32::try_from(value.len()).map_err(too_long)?;
        // Only frames that [`read`] accepts are written.
        if key_length > KEY_BYTES_MAX || value_length > VALUE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.write(&[tag])?;
        self.write(&key_length.to_be_bytes())?;
        self.write(&value_length.to_be_bytes())?;
        self.write(key)?;
        self.write(value)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Reads a backup sequentially and passes its parts to `take`. The caller verifies the seal.
pub(crate) fn read<R: Read, E: From<FormatError>>(
    source: R,
    mut take: impl FnMut(BackupPart) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader { source, hash: Sha256::new() };
    if reader.bytes::<8>()? != *MAGIC {
        return Err(FormatError::Magic.into());
    }
    take(BackupPart::Preamble(reader.preamble()?))?;
    let mut rows = 0;
    let mut last: Option<(usize, Vec<u8>)> = None;
    loop {
        let digest: Digest = reader.hash.clone().finalize().into();
        let (tag, key, value) = reader.frame()?;
        if tag == END {
            let end = end(&key, &value, digest)?;
            if end.rows != rows {
                return Err(FormatError::Count { found: rows, said: end.rows }.into());
            }
            reader.at_end()?;
            return take(BackupPart::End(end));
        }
        let keyspace = ROWS.iter().position(|row| *row == tag).ok_or(FormatError::Tag)?;
        let place = (keyspace, key);
        if last.as_ref().is_some_and(|last| *last >= place) {
            return Err(FormatError::Order.into());
        }
        rows += 1;
        take(BackupPart::Row { keyspace, key: place.1.clone(), value })?;
        last = Some(place);
    }
}

fn end(key: &[u8], value: &[u8], digest: Digest) -> Result<BackupEnd, FormatError> {
    let (rows, mac) = value.split_first_chunk::<8>().ok_or(FormatError::End)?;
    let mac: [u8; DIGEST_BYTES] = mac.try_into().map_err(|_| FormatError::End)?;
    if !key.is_empty() {
        return Err(FormatError::End);
    }
    Ok(BackupEnd { rows: u64::from_be_bytes(*rows), digest, mac })
}

struct Reader<R> {
    source: R,
    hash: Sha256,
}

impl<R: Read> Reader<R> {
    fn preamble(&mut self) -> Result<Preamble, FormatError> {
        match self.frame()? {
            (PREAMBLE, key, value) if key.is_empty() => {
                serde_json::from_slice(&value).map_err(|_| FormatError::Preamble)
            }
            _ => Err(FormatError::Preamble),
        }
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>, Vec<u8>), FormatError> {
        let [tag] = self.bytes()?;
        let key_length = u32::from_be_bytes(self.bytes()?);
        let value_length = u32::from_be_bytes(self.bytes()?);
        if key_length > KEY_BYTES_MAX || value_length > VALUE_BYTES_MAX {
            return Err(FormatError::Length);
        }
        Ok((tag, self.take(key_length)?, self.take(value_length)?))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(failed)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    /// Allocates no more than the bytes that are really there, whatever the length field says.
    fn take(&mut self, length: u32) -> Result<Vec<u8>, FormatError> {
        let mut bytes = Vec::with_capacity(length.min(VALUE_BYTES_TRUSTED) as usize);
        self.source.by_ref().take(u64::from(length)).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() != length as usize {
            return Err(FormatError::Truncated);
        }
        self.hash.update(&bytes);
        Ok(bytes)
    }

    fn at_end(&mut self) -> Result<(), FormatError> {
        match self.source.read(&mut [0]).map_err(failed)? {
            0 => Ok(()),
            _ => Err(FormatError::Trailing),
        }
    }
}

fn failed(error: io::Error) -> FormatError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => FormatError::Truncated,
        _ => FormatError::Io(error),
    }
}

#[cfg(test)]
mod tests;
