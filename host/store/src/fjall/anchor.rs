//! The anchor: a file beside the store with the number and the audit head of the last commit.
//!
//! It has two slots 4 KiB apart, which are written in turn, so that a torn write leaves the other
//! slot intact. The storage engine can lose committed batches silently when its journal is damaged,
//! and an old copy of the store could be put back; the anchor detects both.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::digest::{DIGEST_BYTES, Digest, same};
use crate::seal::StoreKeys;

const MAGIC: &[u8; 8] = b"cofanch1";
const SLOT_SPACING: u64 = 4096;
const STORE_ID_BYTES: usize = 16;
const SIGNED_BYTES: usize = MAGIC.len() + STORE_ID_BYTES + 8 + DIGEST_BYTES;
pub(crate) const SLOT_BYTES: usize = SIGNED_BYTES + DIGEST_BYTES;

/// The state of the store after one commit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AnchorSlot {
    pub(crate) seq: u64,
    pub(crate) head: Digest,
}

/// Result of reading the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AnchorContent {
    /// The newest slot with a valid MAC.
    Slot(AnchorSlot),
    /// Slots of another store only.
    OtherStore,
    /// No valid slot.
    Nothing,
}

pub(crate) struct Anchor {
    file: File,
}

impl Anchor {
    /// Creates or empties the file and allocates both slots, so that no later write has to extend
    /// it.
    pub(crate) fn create(path: &Path) -> io::Result<Anchor> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all_at(&[0; 2 * SLOT_SPACING as usize], 0)?;
        file.sync_all()?;
        Ok(Anchor { file })
    }

    pub(crate) fn open(path: &Path) -> io::Result<Anchor> {
        Ok(Anchor { file: OpenOptions::new().read(true).write(true).open(path)? })
    }

    #[cfg(test)]
    pub(crate) fn from_file(file: File) -> Anchor {
        Anchor { file }
    }

    /// Writes the slot that this sequence number selects and waits until it is on the disk.
    pub(crate) fn write(&self, keys: &StoreKeys, slot: AnchorSlot) -> io::Result<()> {
        self.file.write_all_at(&encode(keys, slot), slot.seq % 2 * SLOT_SPACING)?;
        self.file.sync_data()
    }

    pub(crate) fn read(&self, keys: &StoreKeys) -> io::Result<AnchorContent> {
        let mut slots = [[0; SLOT_BYTES]; 2];
        for (slot, offset) in slots.iter_mut().zip([0, SLOT_SPACING]) {
            match self.file.read_exact_at(slot, offset) {
                // The file is too short for this slot, which then reads as empty. The caller
                // decides what that means.
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
                _ => {}
            }
        }
        Ok(newest(keys, &slots))
    }
}

pub(crate) fn encode(keys: &StoreKeys, slot: AnchorSlot) -> Vec<u8> {
    let seq = slot.seq.to_be_bytes();
    let mut bytes = [MAGIC.as_slice(), keys.store_id().as_bytes(), &seq, &slot.head].concat();
    let mac = keys.anchor_mac(&bytes);
    bytes.extend_from_slice(&mac);
    bytes
}

fn decode(keys: &StoreKeys, bytes: &[u8; SLOT_BYTES]) -> AnchorContent {
    let Some((signed, mac)) = bytes.split_last_chunk::<DIGEST_BYTES>() else { return AnchorContent::Nothing };
    let Some(rest) = signed.strip_prefix(MAGIC) else { return AnchorContent::Nothing };
    let Some((store, rest)) = rest.split_first_chunk::<STORE_ID_BYTES>() else {
        return AnchorContent::Nothing;
    };
    if store != keys.store_id().as_bytes() {
        return AnchorContent::OtherStore;
    }
    let Some((seq, head)) = rest.split_first_chunk::<8>() else { return AnchorContent::Nothing };
    let Ok(head) = Digest::try_from(head) else { return AnchorContent::Nothing };
    if !same(mac, &keys.anchor_mac(signed)) {
        return AnchorContent::Nothing;
    }
    AnchorContent::Slot(AnchorSlot { seq: u64::from_be_bytes(*seq), head })
}

pub(crate) fn newest(keys: &StoreKeys, slots: &[[u8; SLOT_BYTES]; 2]) -> AnchorContent {
    match slots.each_ref().map(|slot| decode(keys, slot)) {
        [AnchorContent::Slot(even), AnchorContent::Slot(odd)] => {
            AnchorContent::Slot(if even.seq > odd.seq { even } else { odd })
        }
        [AnchorContent::Slot(slot), _] | [_, AnchorContent::Slot(slot)] => AnchorContent::Slot(slot),
        [AnchorContent::OtherStore, _] | [_, AnchorContent::OtherStore] => AnchorContent::OtherStore,
        [AnchorContent::Nothing, AnchorContent::Nothing] => AnchorContent::Nothing,
    }
}

#[cfg(test)]
mod tests;
