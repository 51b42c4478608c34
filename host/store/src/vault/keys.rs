//! The keys of one vault: one for fingerprints, for the vault's life, and the ones values are encrypted with.
//!
//! All of them are random and independent: the fingerprint of a value chosen by its owner must tell nothing
//! about an encryption key. They lie in `keys` as one wrapped record, are unwrapped when needed and wiped right
//! after; unwrapping costs microseconds, so that nothing is kept, however many vaults there are.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{Fingerprint, VaultId};
use crate::error::Error;
use crate::rows;
use crate::seal::{DIGEST_BYTES, Digest, KeyRecord, StoreKeys};

const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
/// One encryption key in the record: number, date, state, key.
const ENCODED_KEY_BYTES: usize = 4 + 8 + 1 + DIGEST_BYTES;
/// Version of a vault's first record.
const FIRST_VERSION: u32 = 1;

/// What an encryption key is still used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum KeyState {
    /// New values and old ones.
    Active,
    /// Old values only.
    Decrypt,
}

/// A key values are encrypted with.
pub(crate) struct EncryptionKey {
    pub(crate) kid: u32,
    pub(crate) created_at_ms: u64,
    pub(crate) state: KeyState,
    key: Zeroizing<Digest>,
}

impl EncryptionKey {
    pub(crate) fn random(kid: u32, now_ms: u64) -> Result<EncryptionKey, getrandom::Error> {
        let mut key = Zeroizing::new(Digest::default());
        getrandom::fill(key.as_mut())?;
        Ok(EncryptionKey { kid, created_at_ms: now_ms, state: KeyState::Active, key })
    }
}

/// All keys of one vault.
pub(crate) struct VaultKeys {
    /// Version of the record they came from or go into.
    pub(crate) version: u32,
    fingerprint: Zeroizing<Digest>,
    pub(crate) encryption: Vec<EncryptionKey>,
}

impl VaultKeys {
    /// The keys of a new vault.
    pub(crate) fn random(now_ms: u64) -> Result<VaultKeys, getrandom::Error> {
        let mut fingerprint = Zeroizing::new(Digest::default());
        getrandom::fill(fingerprint.as_mut())?;
        let encryption = vec![EncryptionKey::random(1, now_ms)?];
        Ok(VaultKeys { version: FIRST_VERSION, fingerprint, encryption })
    }

    pub(crate) fn seal(&self, keys: &StoreKeys, vault: VaultId) -> Result<KeyRecord, Error> {
        let bytes = 1 + DIGEST_BYTES + self.encryption.len() * ENCODED_KEY_BYTES;
        // Never grows: a buffer left behind by growing would not be wiped.
        let mut plain = Zeroizing::new(Vec::with_capacity(bytes));
        plain.push(FORMAT);
        plain.extend_from_slice(self.fingerprint.as_ref());
        for key in &self.encryption {
            plain.extend_from_slice(&key.kid.to_be_bytes());
            plain.extend_from_slice(&key.created_at_ms.to_be_bytes());
            plain.push(u8::from(key.state == KeyState::Decrypt));
            plain.extend_from_slice(key.key.as_ref());
        }
        keys.seal_record(&rows::vault_keys_key(vault), self.version, &plain)
    }

    /// The reverse of [`VaultKeys::seal`]; `None` for a record of another vault or one that does not open.
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

    /// HMAC over the value's exact bytes (interface.md 2.1).
    pub(crate) fn fingerprint(&self, value: &[u8]) -> Fingerprint {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(self.fingerprint.as_ref())
            .expect("HMAC takes keys of every length");
        mac.update(value);
        Fingerprint(mac.finalize().into_bytes().into())
    }

    /// The number of the key for new values: the newest active one. `None` if there is none.
    pub(crate) fn active(&self) -> Option<u32> {
        let active = self.encryption.iter().filter(|key| key.state == KeyState::Active);
        active.map(|key| key.kid).max()
    }

    /// Encrypts a value: `nonce | ciphertext | tag`. `None` if there is no key of this number.
    pub(crate) fn encrypt(
        &self,
        kid: u32,
        associated_data: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, getrandom::Error> {
        let Some(cipher) = self.cipher(kid) else { return Ok(None) };
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let payload = Payload { msg: value, aad: associated_data };
        #[expect(clippy::expect_used, reason = "the cipher only refuses messages of many gigabytes")]
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload).expect("values are short");
        Ok(Some([nonce.as_slice(), &sealed].concat()))
    }

    /// The reverse of [`VaultKeys::encrypt`]; `None` when key, bytes or associated data are not those.
    pub(crate) fn decrypt(
        &self,
        kid: u32,
        associated_data: &[u8],
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let cipher = self.cipher(kid)?;
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        // Decryption works in place, so that its one buffer is the one handed out and wiped.
        let plain = cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: associated_data });
        plain.ok().map(Zeroizing::new)
    }

    /// By its number, never by trying: this cipher does not commit to its key.
    fn cipher(&self, kid: u32) -> Option<XChaCha20Poly1305> {
        let key = self.encryption.iter().find(|key| key.kid == kid)?;
        Some(XChaCha20Poly1305::new(&(*key.key).into()))
    }
}

fn decode_key(bytes: &[u8; ENCODED_KEY_BYTES]) -> Option<EncryptionKey> {
    let (kid, rest) = bytes.split_first_chunk()?;
    let (created_at_ms, rest) = rest.split_first_chunk()?;
    let (state, key) = rest.split_first()?;
    let state = match state {
        0 => KeyState::Active,
        1 => KeyState::Decrypt,
        _ => return None,
    };
    let (kid, created_at_ms) = (u32::from_be_bytes(*kid), u64::from_be_bytes(*created_at_ms));
    Some(EncryptionKey { kid, created_at_ms, state, key: Zeroizing::new(key.try_into().ok()?) })
}
