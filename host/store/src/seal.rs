//! The key hierarchy: random keys wrapped under the root key, and the MACs and ciphers made with
//! them.
//!
//! Every key here is random and independent. Only the wrapping depends on the root key, so a
//! rotation of the root key rewraps key records and changes no other row. Each use of a key has its
//! own domain string. Every part of a MAC's input is preceded by its length, so that two different
//! inputs cannot have the same bytes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::digest::{DIGEST_BYTES, Digest};
use crate::error::Error;
use crate::hex;
use crate::ids::{InternId, StoreId, WorkspaceId};
use crate::root_key::{KeyRing, RootKeyId, WrapKey, WrapKeys};

/// Row key of the record of the store's own keys, which its wrappings are bound to.
pub(crate) const STORE_KEYS: &[u8] = b"kstore";
/// Version of the record of the store's own keys, which is the row [`STORE_KEYS`].
const RECORD_VERSION: u32 = 1;
const NONCE_BYTES: usize = 24;
/// Associated data of every sealed conversation.
const CONVERSATION: &[u8] = b"conversation/v1";

/// A set of keys as stored: the same plaintext encrypted once per wrapping key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct KeyRecord {
    pub(crate) version: u32,
    wrappings: Vec<Wrapping>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Wrapping {
    by: RootKeyId,
    #[serde(with = "hex")]
    nonce: [u8; NONCE_BYTES],
    #[serde(with = "hex")]
    sealed: Vec<u8>,
}

impl KeyRecord {
    /// Ids of the wrapping keys that open this record.
    pub(crate) fn wrapped_by(&self) -> impl Iterator<Item = RootKeyId> {
        self.wrappings.iter().map(|wrapping| wrapping.by)
    }
}

/// The store's own keys, and the wrapping keys that open all other key records.
pub(crate) struct StoreKeys {
    store: StoreId,
    pepper: Zeroizing<Digest>,
    audit: Zeroizing<Digest>,
    rows: Zeroizing<Digest>,
    ring: ArcSwap<KeyRing>,
}

impl StoreKeys {
    /// The keys of a new store, not wrapped yet.
    pub(crate) fn random(store: StoreId) -> Result<StoreKeys, getrandom::Error> {
        let mut keys = StoreKeys {
            store,
            pepper: Zeroizing::default(),
            audit: Zeroizing::default(),
            rows: Zeroizing::default(),
            ring: ArcSwap::default(),
        };
        getrandom::fill(keys.pepper.as_mut())?;
        getrandom::fill(keys.audit.as_mut())?;
        getrandom::fill(keys.rows.as_mut())?;
        Ok(keys)
    }

    /// The record of the store's own keys, for the row [`STORE_KEYS`].
    ///
    /// The plaintext also contains the wrapping key of the recovery key. This way later records can
    /// be wrapped for the recovery key while the recovery key itself is not present. It gives a
    /// reader of this record no further access: the other keys in it open every record already, and
    /// each store has its own recovery key.
    pub(crate) fn seal(&self, under: &WrapKeys) -> Result<KeyRecord, getrandom::Error> {
        let mut plain = Zeroizing::new(Vec::with_capacity(4 * DIGEST_BYTES));
        // Only the recovery key in force (it is in the header), not one that is still being
        // introduced.
        let recovery = under.recovery.as_ref();
        let keys = [&self.pepper, &self.audit, &self.rows].into_iter();
        for key in keys.chain(recovery.map(|recovery| &recovery.key)) {
            plain.extend_from_slice(key.as_ref());
        }
        self.wrap_record(STORE_KEYS, RECORD_VERSION, &plain, under)
    }

    /// The reverse of [`StoreKeys::seal`]; `None` when this key opens no wrapping of the record.
    /// `recovery` is the id of the store's recovery key.
    pub(crate) fn open(
        store: StoreId,
        record: &KeyRecord,
        by: &WrapKey,
        recovery: Option<RootKeyId>,
    ) -> Option<StoreKeys> {
        let plain = unwrap(store, STORE_KEYS, record, by)?;
        let (keys, rest) = plain.as_chunks::<DIGEST_BYTES>();
        let ([pepper, audit, rows, recovery_key @ ..], []) = (keys, rest) else { return None };
        let recovery = match (recovery_key, recovery) {
            ([], None) => None,
            ([key], Some(id)) => Some(WrapKey::new(id, Zeroizing::new(*key))),
            _ => return None,
        };
        let is_by_recovery = recovery.as_ref().is_some_and(|recovery| recovery.id == by.id);
        let mut ring = KeyRing::opened(by.clone(), is_by_recovery);
        recovery.into_iter().for_each(|recovery| ring.add(recovery));
        Some(StoreKeys {
            store,
            pepper: Zeroizing::new(*pepper),
            audit: Zeroizing::new(*audit),
            rows: Zeroizing::new(*rows),
            ring: ArcSwap::from_pointee(ring),
        })
    }

    /// Wraps keys for the row `row` under every one of the keys given. `version` is the version of
    /// the plaintext's format and is authenticated with it.
    ///
    /// # Errors
    /// [`Error::NoRootKey`] in a store that was opened with its recovery key: the root key could
    /// not open such a record.
    pub(crate) fn seal_record(
        &self,
        row: &[u8],
        version: u32,
        plain: &[u8],
        under: &WrapKeys,
    ) -> Result<KeyRecord, Error> {
        if under.root.is_none() {
            return Err(Error::NoRootKey);
        }
        Ok(self.wrap_record(row, version, plain, under)?)
    }

    /// The plaintext of a row's key record; `None` when no wrapping key of this process opens it.
    pub(crate) fn open_record(&self, row: &[u8], record: &KeyRecord) -> Option<Zeroizing<Vec<u8>>> {
        self.ring.load().iter().find_map(|by| unwrap(self.store, row, record, by))
    }

    /// Whether the record of the row `row` has a wrapping that this key opens.
    pub(crate) fn opens_with(&self, row: &[u8], record: &KeyRecord, by: &WrapKey) -> bool {
        unwrap(self.store, row, record, by).is_some()
    }

    /// The record with one wrapping for each of the keys given, with the wrapping by the key `kept` if it
    /// has one, and with no others. Wrappings that exist are kept unchanged. `None` when no wrapping key of
    /// this process opens the record.
    pub(crate) fn rewrap(
        &self,
        row: &[u8],
        record: &KeyRecord,
        under: &WrapKeys,
        kept: Option<RootKeyId>,
    ) -> Option<Result<KeyRecord, getrandom::Error>> {
        let plain = self.open_record(row, record)?;
        let wrapped = under.iter().map(|by| {
            let kept = record.wrappings.iter().find(|wrapping| wrapping.by == by.id);
            kept.cloned().map_or_else(|| wrap(self.store, row, record.version, &plain, by), Ok)
        });
        let others = record
            .wrappings
            .iter()
            .filter(|wrapping| Some(wrapping.by) == kept && !under.iter().any(|by| by.id == wrapping.by));
        let wrappings = wrapped.chain(others.cloned().map(Ok)).collect::<Result<_, _>>();
        Some(wrappings.map(|wrappings| KeyRecord { version: record.version, wrappings }))
    }

    /// The wrapping keys of this process.
    pub(crate) fn ring(&self) -> Arc<KeyRing> {
        self.ring.load_full()
    }

    /// Changes the wrapping keys of this process.
    pub(crate) fn change_ring(&self, change: impl Fn(&mut KeyRing)) {
        self.ring.rcu(|ring| {
            let mut ring = KeyRing::clone(ring);
            change(&mut ring);
            ring
        });
    }

    /// The recovery key of this id, which is in the record of the store's own keys.
    pub(crate) fn recovery_key(&self, id: RootKeyId, record: &KeyRecord) -> Option<WrapKey> {
        let plain = self.open_record(STORE_KEYS, record)?;
        let (keys, rest) = plain.as_chunks::<DIGEST_BYTES>();
        let ([_, _, _, key], []) = (keys, rest) else { return None };
        Some(WrapKey::new(id, Zeroizing::new(*key)))
    }

    /// MAC over what a host tells about itself under its id.
    #[cfg(feature = "postgres")]
    pub(crate) fn host_mac(&self, host: &[u8], about: &[u8]) -> Digest {
        mac(&self.rows, "host/v1", &[self.store.as_bytes(), host, about])
    }

    fn wrap_record(
        &self,
        row: &[u8],
        version: u32,
        plain: &[u8],
        under: &WrapKeys,
    ) -> Result<KeyRecord, getrandom::Error> {
        let wrappings = under.iter().map(|by| wrap(self.store, row, version, plain, by));
        Ok(KeyRecord { version, wrappings: wrappings.collect::<Result<_, _>>()? })
    }

    pub(crate) fn store_id(&self) -> StoreId {
        self.store
    }

    /// What is stored of a token's secret. Without the MAC key (pepper), an attacker
    /// with write access to the store cannot add a key whose secret the attacker chose.
    pub(crate) fn token_proof(&self, secret: &[u8]) -> Digest {
        mac(&self.pepper, "token/v1", &[self.store.as_bytes(), secret])
    }

    /// MAC over an approval request: proves later that this host asked for the approval.
    pub(crate) fn approval_mac(&self, asked: &[&[u8]]) -> Digest {
        let store: &[u8] = self.store.as_bytes();
        mac(&self.pepper, "approval/v1", &[&[store], asked].concat())
    }

    /// MAC over what identifies a session of the router.
    pub(crate) fn session_mac(&self, session: &[&[u8]]) -> Digest {
        let store: &[u8] = self.store.as_bytes();
        mac(&self.pepper, "session/v1", &[&[store], session].concat())
    }

    /// Binds a row to its keyspace and key, so that it can be neither edited nor moved.
    pub(crate) fn row_mac(&self, keyspace: &str, key: &[u8], body: &[u8]) -> Digest {
        mac(&self.rows, "row/v1", &[self.store.as_bytes(), keyspace.as_bytes(), key, body])
    }

    /// MAC over the associated data of a secret's encryption, so that a listing can check a row
    /// without decrypting it.
    pub(crate) fn metadata_mac(&self, associated_data: &[u8]) -> Digest {
        mac(&self.rows, "meta/v1", &[associated_data])
    }

    /// One element of a vault's set hash: one version of one of its secrets.
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

    /// MAC over a backup: its number of rows and the digest of their bytes.
    pub(crate) fn backup_mac(&self, rows: u64, digest: &Digest) -> Digest {
        mac(&self.rows, "backup/v1", &[self.store.as_bytes(), &rows.to_be_bytes(), digest])
    }

    /// Seals a conversation for a workspace, or for one intern of it: `nonce | ciphertext | tag`.
    pub(crate) fn seal_conversation(
        &self,
        workspace: WorkspaceId,
        intern: Option<InternId>,
        plain: &[u8],
    ) -> Result<Vec<u8>, getrandom::Error> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let payload = Payload { msg: plain, aad: CONVERSATION };
        #[expect(clippy::expect_used, reason = "the cipher only refuses messages of many gigabytes")]
        let sealed = self
            .conversation_cipher(workspace, intern)
            .encrypt(&XNonce::from(nonce), payload)
            .expect("an answer is far shorter than the cipher's limit");
        Ok([nonce.as_slice(), &sealed].concat())
    }

    /// The reverse of [`StoreKeys::seal_conversation`]; `None` for bytes that these keys did not
    /// seal for this workspace or intern.
    pub(crate) fn open_conversation(
        &self,
        workspace: WorkspaceId,
        intern: Option<InternId>,
        sealed: &[u8],
    ) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: CONVERSATION };
        self.conversation_cipher(workspace, intern).decrypt(&XNonce::from(*nonce), payload).ok()
    }

    /// Each workspace and each intern has its own derived key, which is used for conversations only.
    fn conversation_cipher(&self, workspace: WorkspaceId, intern: Option<InternId>) -> XChaCha20Poly1305 {
        let (store, workspace) = (self.store.as_bytes().as_slice(), workspace.as_bytes().as_slice());
        let key = match intern {
            None => mac(&self.rows, "conversation/v1", &[store, workspace]),
            Some(intern) => mac(&self.rows, "conversation/v1", &[store, workspace, intern.as_bytes()]),
        };
        XChaCha20Poly1305::new(&key.into())
    }

    /// The head of the audit chain after a record with these stored bytes.
    pub(crate) fn audit_head(&self, previous: &Digest, record: &[u8]) -> Digest {
        mac(&self.audit, "audit/v1", &[self.store.as_bytes(), previous, record])
    }
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

/// Binds a wrapping to the row, the store and the wrapping key, so that a wrapping copied elsewhere
/// does not open. The id of the root key is part of this associated data only. If it were part of a
/// row's data, a rotation of the root key would make that row unreadable.
fn associated_data(store: StoreId, row: &[u8], version: u32, by: RootKeyId) -> Vec<u8> {
    let by = by.to_string();
    let parts: [&[u8]; 5] = [b"key-record/v1", store.as_bytes(), row, &version.to_be_bytes(), by.as_bytes()];
    let mut data = Vec::new();
    for part in parts {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part);
    }
    data
}

fn wrap(
    store: StoreId,
    row: &[u8],
    version: u32,
    plain: &[u8],
    by: &WrapKey,
) -> Result<Wrapping, getrandom::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)?;
    let cipher = XChaCha20Poly1305::new(&(*by.key).into());
    let aad = associated_data(store, row, version, by.id);
    #[expect(clippy::expect_used, reason = "the cipher only refuses messages of many gigabytes")]
    let sealed = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: &aad })
        .expect("a key record is far shorter than the cipher's limit");
    Ok(Wrapping { by: by.id, nonce, sealed })
}

fn unwrap(store: StoreId, row: &[u8], record: &KeyRecord, by: &WrapKey) -> Option<Zeroizing<Vec<u8>>> {
    let wrapping = record.wrappings.iter().find(|wrapping| wrapping.by == by.id)?;
    let cipher = XChaCha20Poly1305::new(&(*by.key).into());
    let aad = associated_data(store, row, record.version, by.id);
    let payload = Payload { msg: &wrapping.sealed, aad: &aad };
    Some(Zeroizing::new(cipher.decrypt(&XNonce::from(wrapping.nonce), payload).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root_key::RootKey;

    fn key() -> WrapKey {
        RootKey::random().unwrap().wrap_key()
    }

    fn under(root: &WrapKey) -> WrapKeys {
        WrapKeys { root: Some(root.clone()), ..WrapKeys::default() }
    }

    fn keys() -> StoreKeys {
        StoreKeys::random(StoreId::random().unwrap()).unwrap()
    }

    #[test]
    fn a_record_opens_only_for_its_store_version_and_key() {
        let (root, other) = (key(), key());
        let keys = keys();
        let store = keys.store_id();
        let record = keys.seal(&under(&root)).unwrap();

        let opened = StoreKeys::open(store, &record, &root, None).unwrap();
        assert_eq!(opened.token_proof(b"x"), keys.token_proof(b"x"));
        assert_eq!(opened.audit_head(&[0; 32], b"x"), keys.audit_head(&[0; 32], b"x"));
        assert!(StoreKeys::open(store, &record, &other, None).is_none());
        assert!(StoreKeys::open(store, &record, &root, Some(other.id())).is_none());
        assert!(StoreKeys::open(StoreId::random().unwrap(), &record, &root, None).is_none());
        let newer = KeyRecord { version: 2, ..record.clone() };
        assert!(StoreKeys::open(store, &newer, &root, None).is_none());
        let mut edited = record;
        edited.wrappings[0].sealed[5] ^= 1;
        assert!(StoreKeys::open(store, &edited, &root, None).is_none());
    }

    #[test]
    fn a_later_record_opens_with_the_recovery_key() {
        let (root, recovery) = (key(), key());
        let keys = keys();
        let both = WrapKeys { recovery: Some(recovery.clone()), ..under(&root) };
        let store_record = keys.seal(&both).unwrap();
        let (store, id) = (keys.store_id(), Some(recovery.id()));
        let by_root = StoreKeys::open(store, &store_record, &root, id).unwrap();
        assert_eq!(*by_root.recovery_key(recovery.id(), &store_record).unwrap().key, *recovery.key);
        let later = by_root.seal_record(b"v1", 1, b"plain", &both).unwrap();
        assert_eq!(later.wrapped_by().collect::<Vec<_>>(), [root.id(), recovery.id()]);

        let by_recovery = StoreKeys::open(store, &store_record, &recovery, id).unwrap();
        assert_eq!(*by_recovery.open_record(b"v1", &later).unwrap(), b"plain");
        assert!(by_recovery.open_record(b"v2", &later).is_none(), "a wrapping opened in another row");
        assert!(by_recovery.ring().is_by_recovery && !by_root.ring().is_by_recovery);
        let without_root = WrapKeys { recovery: Some(recovery), ..WrapKeys::default() };
        assert!(matches!(by_recovery.seal_record(b"v1", 1, b"plain", &without_root), Err(Error::NoRootKey)));
    }

    #[test]
    fn rewrapping_keeps_existing_wrappings_and_drops_others() {
        let (old, new) = (key(), key());
        let keys = keys();
        keys.change_ring(|ring| ring.add(old.clone()));
        let record = keys.seal_record(b"v1", 1, b"plain", &under(&old)).unwrap();
        let both = WrapKeys { next: Some(new.clone()), ..under(&old) };
        let wrapped = keys.rewrap(b"v1", &record, &both, None).unwrap().unwrap();
        assert_eq!(wrapped.wrappings[0], record.wrappings[0]);
        assert!(keys.opens_with(b"v1", &wrapped, &new));
        assert_eq!(keys.rewrap(b"v1", &wrapped, &both, None).unwrap().unwrap(), wrapped);
        assert_eq!(keys.rewrap(b"v1", &wrapped, &under(&old), Some(new.id())).unwrap().unwrap(), wrapped);
        let dropped = keys.rewrap(b"v1", &wrapped, &under(&new), None).unwrap().unwrap();
        assert_eq!(dropped.wrapped_by().collect::<Vec<_>>(), [new.id()]);
        assert!(
            keys.rewrap(b"v1", &dropped, &both, None).is_none(),
            "the old key opened what it does not wrap"
        );
    }

    #[test]
    fn a_mac_depends_on_the_boundaries_of_its_parts() {
        let keys = keys();
        assert_ne!(keys.row_mac("keys", b"ab", b"c"), keys.row_mac("keys", b"a", b"bc"));
        assert_ne!(keys.element(b"ab", b"c"), keys.element(b"a", b"bc"));
    }
}
