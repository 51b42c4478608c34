//! The key hierarchy: random keys, wrapped under the root key, and what each of them proves.
//!
//! Every key here is random and independent; only the wrapping depends on the root key, so that a rotation of
//! the root key rewraps a record and touches no row. Each use has its own domain word, and every part that goes
//! into a MAC goes in with its length in front, so that no two different statements have the same bytes.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::hex;
use crate::ids::StoreId;
use crate::root_key::{RootKey, RootKeyId};

/// Length of every key, MAC and digest.
pub(crate) const DIGEST_BYTES: usize = 32;
pub(crate) type Digest = [u8; DIGEST_BYTES];

const STORE_RECORD: &[u8] = b"store";
const NONCE_BYTES: usize = 24;

/// A set of keys as it lies in the store: the same content once per key that can open it. The list has room for
/// a second root key during a rotation and for a recovery key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct KeyRecord {
    pub(crate) version: u32,
    wrappings: Vec<Wrapping>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Wrapping {
    by: RootKeyId,
    #[serde(with = "hex")]
    nonce: [u8; NONCE_BYTES],
    #[serde(with = "hex")]
    sealed: Vec<u8>,
}

/// What wraps and opens the key records of an open store.
pub(crate) struct Wrapper {
    store: StoreId,
    root: RootKey,
}

impl Wrapper {
    pub(crate) fn new(store: StoreId, root: RootKey) -> Wrapper {
        Wrapper { store, root }
    }

    /// Wraps keys as the record of this name and version.
    pub(crate) fn seal(
        &self,
        record: &[u8],
        version: u32,
        plain: &[u8],
    ) -> Result<KeyRecord, getrandom::Error> {
        let data = associated_data(self.store, record, version, self.root.id());
        Ok(KeyRecord { version, wrappings: vec![wrap(&self.root, plain, &data)?] })
    }

    /// The reverse of [`Wrapper::seal`]; `None` when no wrapping opens under this name.
    pub(crate) fn open(&self, record: &[u8], sealed: &KeyRecord) -> Option<Zeroizing<Vec<u8>>> {
        let id = self.root.id();
        let wrapping = sealed.wrappings.iter().find(|wrapping| wrapping.by == id)?;
        unwrap(&self.root, wrapping, &associated_data(self.store, record, sealed.version, id))
    }
}

/// The keys of the store itself.
pub(crate) struct StoreKeys {
    store: StoreId,
    pepper: Zeroizing<Digest>,
    audit: Zeroizing<Digest>,
    rows: Zeroizing<Digest>,
}

impl StoreKeys {
    pub(crate) fn random(store: StoreId) -> Result<StoreKeys, getrandom::Error> {
        let mut keys = StoreKeys {
            store,
            pepper: Zeroizing::default(),
            audit: Zeroizing::default(),
            rows: Zeroizing::default(),
        };
        getrandom::fill(keys.pepper.as_mut())?;
        getrandom::fill(keys.audit.as_mut())?;
        getrandom::fill(keys.rows.as_mut())?;
        Ok(keys)
    }

    /// Wraps the keys under the root key.
    pub(crate) fn seal(&self, root: &RootKey) -> Result<KeyRecord, getrandom::Error> {
        let mut plain = Zeroizing::new(Vec::with_capacity(3 * DIGEST_BYTES));
        for key in [&self.pepper, &self.audit, &self.rows] {
            plain.extend_from_slice(key.as_ref());
        }
        let version = 1;
        let wrapping = wrap(root, &plain, &associated_data(self.store, STORE_RECORD, version, root.id()))?;
        Ok(KeyRecord { version, wrappings: vec![wrapping] })
    }

    /// The reverse of [`StoreKeys::seal`]; `None` when no wrapping opens with this key.
    pub(crate) fn open(store: StoreId, record: &KeyRecord, root: &RootKey) -> Option<StoreKeys> {
        let id = root.id();
        let wrapping = record.wrappings.iter().find(|wrapping| wrapping.by == id)?;
        let plain = unwrap(root, wrapping, &associated_data(store, STORE_RECORD, record.version, id))?;
        let (keys, rest) = plain.as_chunks::<DIGEST_BYTES>();
        let ([pepper, audit, rows], []) = (keys, rest) else { return None };
        Some(StoreKeys {
            store,
            pepper: Zeroizing::new(*pepper),
            audit: Zeroizing::new(*audit),
            rows: Zeroizing::new(*rows),
        })
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.store
    }

    /// What is kept of a token's secret. Without the pepper nobody can plant the proof of a key he knows.
    pub(crate) fn token_proof(&self, secret: &[u8]) -> Digest {
        mac(&self.pepper, "token/v1", &[self.store.as_bytes(), secret])
    }

    /// Binds a row to its keyspace and key, so that it cannot be edited or moved.
    pub(crate) fn row_mac(&self, keyspace: &str, key: &[u8], body: &[u8]) -> Digest {
        mac(&self.rows, "row/v1", &[self.store.as_bytes(), keyspace.as_bytes(), key, body])
    }

    /// Covers what the encryption of a secret is bound to, so that a listing needs no decryption to trust a row.
    pub(crate) fn metadata_mac(&self, associated_data: &[u8]) -> Digest {
        mac(&self.rows, "meta/v1", &[associated_data])
    }

    /// One element of a vault's set hash: a version of one of its secrets.
    pub(crate) fn secret_element(&self, key: &[u8], generation: u64) -> Digest {
        mac(&self.rows, "secret/v1", &[self.store.as_bytes(), key, &generation.to_be_bytes()])
    }

    /// One element of a keyspace's set hash.
    pub(crate) fn element(&self, key: &[u8], value: &[u8]) -> Digest {
        mac(&self.rows, "set/v1", &[self.store.as_bytes(), key, value])
    }

    pub(crate) fn anchor_mac(&self, slot: &[u8]) -> Digest {
        mac(&self.rows, "anchor/v1", &[self.store.as_bytes(), slot])
    }

    /// The head of the audit chain after a record whose stored bytes these are.
    pub(crate) fn audit_head(&self, previous: &Digest, record: &[u8]) -> Digest {
        mac(&self.audit, "audit/v1", &[self.store.as_bytes(), previous, record])
    }
}

/// Comparison in constant time.
pub(crate) fn same(left: &Digest, right: &Digest) -> bool {
    left.ct_eq(right).into()
}

fn mac(key: &Digest, domain: &str, parts: &[&[u8]]) -> Digest {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes keys of every length");
    update(&mut mac, domain.as_bytes());
    for part in parts {
        update(&mut mac, part);
    }
    mac.finalize().into_bytes().into()
}

fn update(mac: &mut Hmac<Sha256>, part: &[u8]) {
    mac.update(&(part.len() as u64).to_be_bytes());
    mac.update(part);
}

/// Names the record, the store and the wrapping key: a wrapping copied elsewhere does not open. The root key's
/// id stands here and nowhere else, else a rotation would make rows undecryptable.
fn associated_data(store: StoreId, record: &[u8], version: u32, root: RootKeyId) -> Vec<u8> {
    let root = root.to_string();
    let parts: [&[u8]; 5] =
        [b"key-record/v1", store.as_bytes(), record, &version.to_be_bytes(), root.as_bytes()];
    let mut data = Vec::new();
    for part in parts {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part);
    }
    data
}

fn wrap(root: &RootKey, plain: &[u8], aad: &[u8]) -> Result<Wrapping, getrandom::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)?;
    let cipher = XChaCha20Poly1305::new(&(*root.wrapping_key()).into());
    #[expect(clippy::expect_used, reason = "the cipher only refuses messages of many gigabytes")]
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad })
        .expect("a key record is far shorter than the cipher's limit");
    Ok(Wrapping { by: root.id(), nonce, sealed })
}

fn unwrap(root: &RootKey, wrapping: &Wrapping, aad: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let cipher = XChaCha20Poly1305::new(&(*root.wrapping_key()).into());
    let plain = cipher.decrypt(&XNonce::from(wrapping.nonce), Payload { msg: &wrapping.sealed, aad }).ok()?;
    Some(Zeroizing::new(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_only_for_its_store_version_and_key() {
        let (root, other) = (RootKey::random().unwrap(), RootKey::random().unwrap());
        let store = StoreId::random().unwrap();
        let keys = StoreKeys::random(store).unwrap();
        let record = keys.seal(&root).unwrap();

        let opened = StoreKeys::open(store, &record, &root).unwrap();
        assert_eq!(opened.token_proof(b"x"), keys.token_proof(b"x"));
        assert_eq!(opened.audit_head(&[0; 32], b"x"), keys.audit_head(&[0; 32], b"x"));
        assert!(StoreKeys::open(store, &record, &other).is_none());
        assert!(StoreKeys::open(StoreId::random().unwrap(), &record, &root).is_none());
        let newer = KeyRecord { version: 2, ..record.clone() };
        assert!(StoreKeys::open(store, &newer, &root).is_none());
        let mut edited = record;
        edited.wrappings[0].sealed[5] ^= 1;
        assert!(StoreKeys::open(store, &edited, &root).is_none());
    }

    #[test]
    fn parts_of_a_mac_cannot_slide_into_each_other() {
        let keys = StoreKeys::random(StoreId::random().unwrap()).unwrap();
        assert_ne!(keys.row_mac("keys", b"ab", b"c"), keys.row_mac("keys", b"a", b"bc"));
        assert_ne!(keys.element(b"ab", b"c"), keys.element(b"a", b"bc"));
    }
}
