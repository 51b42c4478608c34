//! How records are stored: row keys, versions, MACs, and the set hash over the keyspace `keys`.
//!
//! A row is `version (1) | body | MAC (32)`. With the MAC, a row that was edited or moved is
//! detected. With the set hash, stored in the marker of `keys`, it is also detected when a row was
//! deleted or replaced by an older version of itself (for example an API key from before its
//! revocation).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::{DIGEST_BYTES, Digest, same};
use crate::hex;
use crate::ids::{InternId, MemberId, VAULT_ID_BYTES, VaultId, WorkspaceId};
use crate::records::ApiKey;
use crate::seal::{STORE_KEYS, StoreKeys};
use crate::token::KeyId;

/// The keyspaces, in the order in which markers are reported.
pub(crate) const KEYSPACES: [&str; 4] = ["keys", "meta", "values", "log"];
/// Name of the keyspace whose rows the set hash covers; most of them are also held in memory.
pub(crate) const KEYS: &str = "keys";
/// Name of the keyspace with the heads of vaults and the metadata of secrets.
pub(crate) const META: &str = "meta";
/// Name of the keyspace with the audit records and usage rows.
pub(crate) const LOG: &str = "log";

/// A keyspace, in the order of [`KEYSPACES`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Keyspace {
    /// Records, sums, intents, the header and key records.
    Keys,
    /// Heads of vaults and metadata of secrets.
    Meta,
    /// Encrypted values of secrets.
    Values,
    /// Audit records and usage rows.
    Log,
}

impl Keyspace {
    pub(crate) const ALL: [Keyspace; 4] = [Keyspace::Keys, Keyspace::Meta, Keyspace::Values, Keyspace::Log];
}

pub(crate) const MARKER: &[u8] = b"seq";
pub(crate) const HEADER: &[u8] = b"header";
const WORKSPACE: u8 = b'w';
const MEMBER: u8 = b'm';
const INTERN: u8 = b'i';
const API_KEY: u8 = b'a';
const VAULT_KEYS: u8 = b'v';
const KEY_SPEND: u8 = b'K';
const WORKSPACE_SPEND: u8 = b'W';
const DAY_TOTALS: u8 = b'D';
const INTENT: u8 = b'N';
const SHARED_INTENT: u8 = b'H';
#[cfg(feature = "postgres")]
const RECALL: u8 = b'R';

const ROW_VERSION: u8 = 1;

/// An API key with the proof of its secret, see [`StoreKeys::token_proof`].
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct StoredKey {
    pub(crate) key: ApiKey,
    #[serde(with = "hex")]
    pub(crate) proof: Digest,
}

/// The kinds of rows in the keyspace `keys`, recognised by their row key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RowKind {
    Marker,
    Header,
    KeyRecord,
    Workspace,
    Member,
    Intern,
    ApiKey,
    KeySpend,
    WorkspaceSpend,
    DayTotals,
    Intent,
}

impl RowKind {
    pub(crate) fn of(key: &[u8]) -> Option<RowKind> {
        match key {
            MARKER => Some(RowKind::Marker),
            HEADER => Some(RowKind::Header),
            STORE_KEYS | [VAULT_KEYS, ..] => Some(RowKind::KeyRecord),
            [WORKSPACE, ..] => Some(RowKind::Workspace),
            [MEMBER, ..] => Some(RowKind::Member),
            [INTERN, ..] => Some(RowKind::Intern),
            [API_KEY, ..] => Some(RowKind::ApiKey),
            [KEY_SPEND, ..] => Some(RowKind::KeySpend),
            [WORKSPACE_SPEND, ..] => Some(RowKind::WorkspaceSpend),
            [DAY_TOTALS, ..] => Some(RowKind::DayTotals),
            [INTENT | SHARED_INTENT, ..] => Some(RowKind::Intent),
            _ => None,
        }
    }
}

pub(crate) fn workspace_key(id: WorkspaceId) -> Vec<u8> {
    [[WORKSPACE].as_slice(), id.as_bytes()].concat()
}

pub(crate) fn member_key(id: MemberId) -> Vec<u8> {
    [[MEMBER].as_slice(), id.as_bytes()].concat()
}

pub(crate) fn intern_key(id: InternId) -> Vec<u8> {
    [[INTERN].as_slice(), id.as_bytes()].concat()
}

pub(crate) fn api_key_key(id: KeyId) -> Vec<u8> {
    [[API_KEY].as_slice(), id.as_bytes()].concat()
}

/// Row key of the spend of an API key.
pub(crate) fn key_spend_key(id: KeyId) -> Vec<u8> {
    [[KEY_SPEND].as_slice(), id.as_bytes()].concat()
}

/// The reverse of [`key_spend_key`].
pub(crate) fn key_of_spend(key: &[u8]) -> Option<KeyId> {
    std::str::from_utf8(key.strip_prefix(&[KEY_SPEND])?).ok()?.parse().ok()
}

/// Row key of the spend of a workspace.
pub(crate) fn workspace_spend_key(id: WorkspaceId) -> Vec<u8> {
    [[WORKSPACE_SPEND].as_slice(), id.as_bytes()].concat()
}

/// The reverse of [`workspace_spend_key`].
pub(crate) fn workspace_of_spend(key: &[u8]) -> Option<WorkspaceId> {
    Some(WorkspaceId::from_bytes(key.strip_prefix(&[WORKSPACE_SPEND])?.try_into().ok()?))
}

/// Row key of the usage of one day, by workspace, API key and model.
pub(crate) fn day_totals_key(day: u32, workspace: WorkspaceId, key: KeyId, model: &str) -> Vec<u8> {
    [&day_totals_start(day), workspace.as_bytes().as_slice(), key.as_bytes(), model.as_bytes()].concat()
}

/// Prefix of the row keys of one day's totals. Later days sort after it.
pub(crate) fn day_totals_start(day: u32) -> Vec<u8> {
    [[DAY_TOTALS].as_slice(), &day.to_be_bytes()].concat()
}

/// Row key of a request in progress in a prepaid workspace.
pub(crate) fn intent_key(request_id: &str) -> Vec<u8> {
    [[INTENT].as_slice(), request_id.as_bytes()].concat()
}

/// Row key of a request in progress that all hosts of a store count against its workspace.
pub(crate) fn shared_intent_key(workspace: WorkspaceId, request_id: &str) -> Vec<u8> {
    [&shared_intents_of(workspace), request_id.as_bytes()].concat()
}

/// Prefix of the row keys of a workspace's requests, see [`shared_intent_key`].
pub(crate) fn shared_intents_of(workspace: WorkspaceId) -> Vec<u8> {
    [[SHARED_INTENT].as_slice(), workspace.as_bytes()].concat()
}

/// Prefix of the row keys of all such requests.
#[cfg(feature = "postgres")]
pub(crate) const SHARED_INTENTS: [u8; 1] = [SHARED_INTENT];

/// What hosts see in the place of a row key when slices of a workspace are asked for. There is no such row.
#[cfg(feature = "postgres")]
pub(crate) fn recall_topic(workspace: WorkspaceId) -> Vec<u8> {
    [[RECALL].as_slice(), workspace.as_bytes()].concat()
}

/// The reverse of [`recall_topic`].
#[cfg(feature = "postgres")]
pub(crate) fn workspace_of_recall(topic: &[u8]) -> Option<WorkspaceId> {
    Some(WorkspaceId::from_bytes(topic.strip_prefix(&[RECALL])?.try_into().ok()?))
}

/// The smallest row key after all those with a prefix, whose bytes are not all 255.
#[cfg(feature = "postgres")]
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// Row key of the record that wraps a vault's keys. It is also the row name that the wrapping is
/// bound to.
pub(crate) fn vault_keys_key(vault: VaultId) -> Vec<u8> {
    [[VAULT_KEYS].as_slice(), &vault.to_bytes()].concat()
}

/// The smallest and the largest row key of such a record.
pub(crate) fn vault_keys_range() -> (Vec<u8>, Vec<u8>) {
    (vec![VAULT_KEYS], [[VAULT_KEYS].as_slice(), &[0xff; VAULT_ID_BYTES]].concat())
}

/// The vault of a key record's row key; `None` for other row keys.
pub(crate) fn vault_of_keys(key: &[u8]) -> Option<VaultId> {
    VaultId::from_bytes(key.strip_prefix(&[VAULT_KEYS])?)
}

/// Version and JSON body, without the MAC.
pub(crate) fn encode_body<T: Serialize>(record: &T) -> Vec<u8> {
    let mut row = vec![ROW_VERSION];
    #[expect(clippy::expect_used, reason = "our records have string keys and no serializer of theirs fails")]
    serde_json::to_writer(&mut row, record).expect("records serialize");
    row
}

pub(crate) fn decode_body<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    let (version, body) = row.split_first()?;
    if *version != ROW_VERSION {
        return None;
    }
    serde_json::from_slice(body).ok()
}

/// A whole row: version, body, MAC.
pub(crate) fn encode<T: Serialize>(keys: &StoreKeys, keyspace: &str, key: &[u8], record: &T) -> Vec<u8> {
    with_mac(keys, keyspace, key, encode_body(record))
}

/// The record of a row; `None` when its MAC does not match.
pub(crate) fn decode<T: DeserializeOwned>(
    keys: &StoreKeys,
    keyspace: &str,
    key: &[u8],
    row: &[u8],
) -> Option<T> {
    decode_body(checked(keys, keyspace, key, row)?)
}

/// The record of a row with its MAC ignored: for what has to be read before the keys are available.
pub(crate) fn decode_unchecked<T: DeserializeOwned>(row: &[u8]) -> Option<T> {
    let (body, _) = row.split_last_chunk::<DIGEST_BYTES>()?;
    decode_body(body)
}

/// Appends the MAC to a body that is not JSON.
pub(crate) fn with_mac(keys: &StoreKeys, keyspace: &str, key: &[u8], mut body: Vec<u8>) -> Vec<u8> {
    let mac = keys.row_mac(keyspace, key, &body);
    body.extend_from_slice(&mac);
    body
}

pub(crate) fn checked<'a>(keys: &StoreKeys, keyspace: &str, key: &[u8], row: &'a [u8]) -> Option<&'a [u8]> {
    let (body, mac) = row.split_last_chunk::<DIGEST_BYTES>()?;
    same(mac, &keys.row_mac(keyspace, key, body)).then_some(body)
}

/// The row `seq` of a keyspace: the sequence number of the last commit. The marker of `keys` also
/// has the set hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Marker {
    pub(crate) seq: u64,
    pub(crate) set: SetHash,
}

impl Marker {
    pub(crate) fn encode(&self, keys: &StoreKeys, keyspace: &str) -> Vec<u8> {
        let body = [[ROW_VERSION].as_slice(), &self.seq.to_be_bytes(), &self.set.0].concat();
        with_mac(keys, keyspace, MARKER, body)
    }

    pub(crate) fn decode(keys: &StoreKeys, keyspace: &str, row: &[u8]) -> Option<Marker> {
        let body = checked(keys, keyspace, MARKER, row)?;
        let (version, body) = body.split_first()?;
        let (seq, set) = body.split_first_chunk::<8>()?;
        (*version == ROW_VERSION)
            .then_some(Marker { seq: u64::from_be_bytes(*seq), set: SetHash(set.try_into().ok()?) })
    }
}

/// A keyed hash over an unordered set of rows: the sum of one MAC per row modulo 2²⁵⁶. A change of
/// one row costs two MACs, whatever the size of the set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct SetHash(Digest);

impl SetHash {
    pub(crate) fn from_bytes(bytes: Digest) -> SetHash {
        SetHash(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &Digest {
        &self.0
    }

    pub(crate) fn add(&mut self, element: &Digest) {
        let mut carry = 0;
        for (sum, byte) in self.0.iter_mut().zip(element).rev() {
            let value = u16::from(*sum) + u16::from(*byte) + carry;
            *sum = (value & 0xff) as u8;
            carry = value >> 8;
        }
    }

    pub(crate) fn remove(&mut self, element: &Digest) {
        // Two's complement: adding the complement plus one subtracts the element.
        let mut complement = element.map(|byte| !byte);
        for byte in complement.iter_mut().rev() {
            let (value, carried) = byte.overflowing_add(1);
            *byte = value;
            if !carried {
                break;
            }
        }
        self.add(&complement);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::StoreId;

    fn keys() -> StoreKeys {
        StoreKeys::random(StoreId::random().unwrap()).unwrap()
    }

    #[test]
    fn a_row_is_bound_to_its_keyspace_key_and_content() {
        let keys = keys();
        let row = encode(&keys, "keys", b"w1", &"text");
        assert_eq!(decode::<String>(&keys, "keys", b"w1", &row).as_deref(), Some("text"));
        assert_eq!(decode::<String>(&keys, "meta", b"w1", &row), None);
        assert_eq!(decode::<String>(&keys, "keys", b"w2", &row), None);
        for at in 0..row.len() {
            let mut edited = row.clone();
            edited[at] ^= 1;
            assert_eq!(decode::<String>(&keys, "keys", b"w1", &edited), None, "byte {at}");
        }
    }

    #[test]
    fn a_marker_reads_back_and_belongs_to_one_keyspace() {
        let keys = keys();
        let marker = Marker { seq: 7, set: SetHash([9; 32]) };
        let row = marker.encode(&keys, "keys");
        assert_eq!(Marker::decode(&keys, "keys", &row), Some(marker));
        assert_eq!(Marker::decode(&keys, "log", &row), None);
    }

    proptest! {
        #[test]
        fn the_set_hash_ignores_order_and_removal_undoes_addition(elements: Vec<[u8; 32]>, extra: [u8; 32]) {
            let mut forward = SetHash::default();
            let mut backward = SetHash::default();
            for element in &elements {
                forward.add(element);
            }
            for element in elements.iter().rev() {
                backward.add(element);
            }
            prop_assert_eq!(forward, backward);
            backward.add(&extra);
            backward.remove(&extra);
            prop_assert_eq!(forward, backward);
        }

        #[test]
        fn foreign_bytes_never_decode(bytes: Vec<u8>, key: Vec<u8>) {
            prop_assert_eq!(decode::<String>(&keys(), "keys", &key, &bytes), None);
            prop_assert_eq!(Marker::decode(&keys(), "keys", &bytes), None);
        }
    }
}
