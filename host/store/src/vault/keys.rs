//! The keys of one vault: one for fingerprints, which never changes, and those that values are
//! encrypted with.
//!
//! All keys are random and independent, so that the fingerprint of a chosen value reveals nothing
//! about an encryption key. They are stored in `keys` as one wrapped record, unwrapped when needed,
//! and wiped right afterwards. Unwrapping takes microseconds, so no keys are cached, however many
//! vaults there are.

use std::collections::BTreeSet;

use chacha20poly1305::aead::{Aead, AeadInOut, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::digest::{DIGEST_BYTES, Digest};
use crate::error::Error;
use crate::ids::VaultId;
use crate::root_key::WrapKeys;
use crate::rows;
use crate::seal::{KeyRecord, StoreKeys};
use crate::secret::Fingerprint;

const FORMAT: u8 = 1;
pub(crate) const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Number of bytes that encryption adds to a value.
pub(crate) const SEALED_BYTES: usize = NONCE_BYTES + TAG_BYTES;
/// Length of an encryption key in the record: number, times of creation and of the last change of
/// state, state, key.
const ENCODED_KEY_BYTES: usize = 4 + 8 + 8 + 1 + DIGEST_BYTES;
/// How long a key that no secret uses is kept, for backups and for repairs.
const RETIRED_FOR_MS: u64 = 30 * 24 * 60 * 60 * 1000;
/// Version of a new vault's key record.
const FIRST_VERSION: u32 = 1;

/// The nonce of one encryption. Not `Clone`, so that it is used only once.
pub(crate) struct Nonce(pub(crate) [u8; NONCE_BYTES]);

/// What an encryption key may be used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyState {
    /// Encrypts new values and decrypts old ones.
    Active,
    /// Decrypts old values.
    Decrypt,
    /// Not in use; deleted after [`RETIRED_FOR_MS`].
    Retired,
}

/// A key that values are encrypted with.
pub(crate) struct EncryptionKey {
    pub(crate) kid: u32,
    pub(crate) created_at_ms: u64,
    pub(crate) state: KeyState,
    /// Time of the last change of state, Unix milliseconds.
    changed_at_ms: u64,
    key: Zeroizing<Digest>,
}

impl EncryptionKey {
    pub(crate) fn random(kid: u32, now_ms: u64) -> Result<EncryptionKey, getrandom::Error> {
        let mut key = Zeroizing::new(Digest::default());
        getrandom::fill(key.as_mut())?;
        Ok(EncryptionKey { kid, created_at_ms: now_ms, state: KeyState::Active, changed_at_ms: now_ms, key })
    }

    fn change(&mut self, state: KeyState, now_ms: u64) {
        self.state = state;
        self.changed_at_ms = now_ms;
    }

    /// When it may be deleted, Unix milliseconds; `None` unless it is retired.
    fn due_ms(&self) -> Option<u64> {
        (self.state == KeyState::Retired).then(|| self.changed_at_ms.saturating_add(RETIRED_FOR_MS))
    }
}

pub(crate) struct VaultKeys {
    /// Version of the key record. Every change increases it.
    pub(crate) version: u32,
    fingerprint: Zeroizing<Digest>,
    pub(crate) encryption: Vec<EncryptionKey>,
}

impl VaultKeys {
    /// Keys for a vault without any.
    pub(crate) fn random(now_ms: u64) -> Result<VaultKeys, getrandom::Error> {
        let mut fingerprint = Zeroizing::new(Digest::default());
        getrandom::fill(fingerprint.as_mut())?;
        let encryption = vec![EncryptionKey::random(1, now_ms)?];
        Ok(VaultKeys { version: FIRST_VERSION, fingerprint, encryption })
    }

    pub(crate) fn seal(
        &self,
        keys: &StoreKeys,
        vault: VaultId,
        under: &WrapKeys,
    ) -> Result<KeyRecord, Error> {
        let bytes = 1 + DIGEST_BYTES + self.encryption.len() * ENCODED_KEY_BYTES;
        // The exact capacity: if the buffer had to grow, the abandoned one would not be wiped.
        let mut plain = Zeroizing::new(Vec::with_capacity(bytes));
        plain.push(FORMAT);
        plain.extend_from_slice(self.fingerprint.as_ref());
        for key in &self.encryption {
            plain.extend_from_slice(&key.kid.to_be_bytes());
            plain.extend_from_slice(&key.created_at_ms.to_be_bytes());
            plain.extend_from_slice(&key.changed_at_ms.to_be_bytes());
            plain.push(match key.state {
                KeyState::Active => 0,
                KeyState::Decrypt => 1,
                KeyState::Retired => 2,
            });
            plain.extend_from_slice(key.key.as_ref());
        }
        keys.seal_record(&rows::vault_keys_key(vault), self.version, &plain, under)
    }

    /// The reverse of [`VaultKeys::seal`]; `None` for a record of another vault or one that cannot
    /// be opened.
    pub(crate) fn open(keys: &StoreKeys, vault: VaultId, record: &KeyRecord) -> Option<VaultKeys> {
        let plain = keys.open_record(&rows::vault_keys_key(vault), record)?;
        let rest = plain.strip_prefix(&[FORMAT])?;
        let (fingerprint, rest) = rest.split_first_chunk::<DIGEST_BYTES>()?;
        let (keys, rest) = rest.as_chunks::<ENCODED_KEY_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let encryption = keys.iter().map(decode_key).collect::<Option<Vec<_>>>()?;
        let fingerprint = Zeroizing::new(*fingerprint);
        Some(VaultKeys { version: record.version, fingerprint, encryption })
    }

    /// HMAC over the exact bytes of the value.
    pub(crate) fn fingerprint(&self, value: &[u8]) -> Fingerprint {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(self.fingerprint.as_ref())
            .expect("HMAC takes keys of every length");
        mac.update(value);
        Fingerprint(mac.finalize().into_bytes().into())
    }

    /// Number of the key for new values, the newest active one; `None` if no key is active.
    pub(crate) fn active(&self) -> Option<u32> {
        let active = self.encryption.iter().filter(|key| key.state == KeyState::Active);
        active.map(|key| key.kid).max()
    }

    /// Adds a key for new values and returns its number. The previous ones only decrypt from now
    /// on.
    pub(crate) fn add(&mut self, now_ms: u64) -> Result<u32, Error> {
        let highest = self.encryption.iter().map(|key| key.kid).max().unwrap_or(0);
        let kid = highest.checked_add(1).ok_or(Error::Damaged)?;
        for key in self.encryption.iter_mut().filter(|key| key.state == KeyState::Active) {
            key.change(KeyState::Decrypt, now_ms);
        }
        self.encryption.push(EncryptionKey::random(kid, now_ms)?);
        self.version = self.version.saturating_add(1);
        Ok(kid)
    }

    /// Retires the keys that decrypt only and are not in use, and returns their numbers. A retired
    /// key that is in use again is put back in force: an accepted rollback can bring old values
    /// back.
    pub(crate) fn retire(&mut self, in_use: &BTreeSet<u32>, now_ms: u64) -> Vec<u32> {
        let idle = |key: &&mut EncryptionKey| key.state == KeyState::Decrypt && !in_use.contains(&key.kid);
        let mut retired = Vec::new();
        for key in self.encryption.iter_mut().filter(idle) {
            key.change(KeyState::Retired, now_ms);
            retired.push(key.kid);
        }
        let needed = |key: &&mut EncryptionKey| key.state == KeyState::Retired && in_use.contains(&key.kid);
        let mut changed = !retired.is_empty();
        for key in self.encryption.iter_mut().filter(needed) {
            key.change(KeyState::Decrypt, now_ms);
            changed = true;
        }
        self.version = self.version.saturating_add(u32::from(changed));
        retired
    }

    /// Deletes the keys that were retired long enough ago and returns their numbers.
    pub(crate) fn delete_due(&mut self, now_ms: u64) -> Vec<u32> {
        let is_due = |key: &EncryptionKey| key.due_ms().is_some_and(|due_ms| due_ms <= now_ms);
        let deleted: Vec<u32> = self.encryption.iter().filter(|key| is_due(key)).map(|key| key.kid).collect();
        self.encryption.retain(|key| !is_due(key));
        self.version = self.version.saturating_add(u32::from(!deleted.is_empty()));
        deleted
    }

    /// When the first retired key may be deleted, Unix milliseconds.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.encryption.iter().filter_map(EncryptionKey::due_ms).min()
    }

    /// Encrypts a value: `nonce | ciphertext | tag`. `None` if there is no key of this number.
    pub(crate) fn encrypt(
        &self,
        kid: u32,
        nonce: Nonce,
        associated_data: &[u8],
        value: &[u8],
    ) -> Option<Vec<u8>> {
        let (cipher, Nonce(nonce)) = (self.cipher(kid)?, nonce);
        // Encrypts in place, so that no other copy of the value is left in memory.
        let mut sealed = Vec::with_capacity(NONCE_BYTES + value.len() + TAG_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(value);
        let (_, message) = sealed.split_at_mut(NONCE_BYTES);
        #[expect(clippy::expect_used, reason = "the cipher only refuses messages of many gigabytes")]
        let tag = cipher
            .encrypt_inout_detached(&XNonce::from(nonce), associated_data, message.into())
            .expect("values are short");
        sealed.extend_from_slice(&tag);
        Some(sealed)
    }

    /// The reverse of [`VaultKeys::encrypt`]; `None` if the key, the bytes or the associated data
    /// do not match.
    pub(crate) fn decrypt(
        &self,
        kid: u32,
        associated_data: &[u8],
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let cipher = self.cipher(kid)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        // `decrypt` works in a single buffer, which is returned and wiped later.
        let plain = cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: associated_data });
        plain.ok().map(Zeroizing::new)
    }

    /// The key is selected by its number, never by trial: this cipher does not commit to its key.
    fn cipher(&self, kid: u32) -> Option<XChaCha20Poly1305> {
        let key = self.encryption.iter().find(|key| key.kid == kid)?;
        Some(XChaCha20Poly1305::new(&(*key.key).into()))
    }
}

fn decode_key(bytes: &[u8; ENCODED_KEY_BYTES]) -> Option<EncryptionKey> {
    let (kid, rest) = bytes.split_first_chunk()?;
    let (created_at_ms, rest) = rest.split_first_chunk()?;
    let (changed_at_ms, rest) = rest.split_first_chunk()?;
    let (state, key) = rest.split_first()?;
    let state = match state {
        0 => KeyState::Active,
        1 => KeyState::Decrypt,
        2 => KeyState::Retired,
        _ => return None,
    };
    Some(EncryptionKey {
        kid: u32::from_be_bytes(*kid),
        created_at_ms: u64::from_be_bytes(*created_at_ms),
        state,
        changed_at_ms: u64::from_be_bytes(*changed_at_ms),
        key: Zeroizing::new(key.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_key_that_is_needed_again_is_not_deleted() {
        let mut keys = VaultKeys::random(0).unwrap();
        let sealed = keys.encrypt(1, Nonce([7; NONCE_BYTES]), b"", b"value").unwrap();
        keys.add(1).unwrap();
        assert_eq!(keys.retire(&BTreeSet::from([2]), 2), [1]);
        let (version, later) = (keys.version, 2 + RETIRED_FOR_MS);
        assert!(keys.retire(&BTreeSet::from([1, 2]), later).is_empty());
        assert!(keys.version > version, "a record that changed has another version");
        assert!(keys.delete_due(later).is_empty() && keys.due_ms().is_none());
        assert_eq!(*keys.decrypt(1, b"", &sealed).unwrap(), b"value");
        assert_eq!(keys.active(), Some(2));
        keys.retire(&BTreeSet::from([2]), later);
        assert_eq!(keys.delete_due(later + RETIRED_FOR_MS), [1]);
    }
}
