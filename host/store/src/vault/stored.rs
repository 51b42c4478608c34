//! The row of a secret in `meta`: everything but the value, and the associated data that binds row
//! and value.
//!
//! Row key: `1 | vault | name`. The keyspace `values` has the ciphertext under the same key. Names
//! are ASCII, so that the order of row keys is the order of listings. The row has a MAC over the
//! same bytes that are the associated data of the value's encryption: a change of name, vault,
//! host, date or fingerprint makes both invalid.

#[cfg(feature = "postgres")]
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::SEALED_BYTES;
#[cfg(feature = "postgres")]
use crate::commit::VaultRows;
use crate::digest::{DIGEST_BYTES, Digest, same};
use crate::ids::{VAULT_ID_BYTES, VaultId};
use crate::seal::StoreKeys;
use crate::secret::{Fingerprint, HostName, Hosts, SecretMetadata, SecretName};

/// First byte of a secret's row key: the version of the row key and of its rows.
const SECRET: u8 = 1;
/// First byte of a head's row key.
const HEAD: u8 = b'h';
const ROW_VERSION: u8 = 1;
/// Domain string at the beginning of the associated data.
const DOMAIN: &[u8] = b"vault/secret/v1";
/// Longest associated data without name and hosts: nine length fields, 16 bytes of store id, 17 of
/// vault id, 1 of kind, 4 of `kid`, 8 of generation, 8 of date, 32 of fingerprint, 4 of count.
const ASSOCIATED_BYTES: usize = DOMAIN.len() + 9 * 4 + 90;
/// Longest row without hosts and MAC.
const ROW_BYTES: usize = 1 + 4 + 8 + 8 + 1 + 32 + 1;
/// Greater than every byte of a name.
const NAME_END: u8 = 0xff;

/// Row key of a secret in `meta` and `values`.
pub(crate) fn secret_key(vault: VaultId, name: &SecretName) -> Vec<u8> {
    [[SECRET].as_slice(), &vault.to_bytes(), name.as_str().as_bytes()].concat()
}

/// Range of the row keys of one vault's secrets.
pub(crate) fn secrets_range(vault: VaultId) -> RangeInclusive<Vec<u8>> {
    let start = [[SECRET].as_slice(), &vault.to_bytes()].concat();
    let end = [start.as_slice(), &[NAME_END]].concat();
    start..=end
}

/// Vault and name of a secret's row key; `None` for other keys.
pub(crate) fn name_in(key: &[u8]) -> Option<(VaultId, SecretName)> {
    let (vault, name) = key.strip_prefix(&[SECRET])?.split_at_checked(VAULT_ID_BYTES)?;
    Some((VaultId::from_bytes(vault)?, std::str::from_utf8(name).ok()?.parse().ok()?))
}

/// Vault of a secret's or a head's row key, even if the name is invalid; `None` for other keys.
pub(crate) fn vault_of(key: &[u8]) -> Option<VaultId> {
    let (kind, rest) = key.split_first()?;
    match *kind {
        SECRET => VaultId::from_bytes(rest.get(..VAULT_ID_BYTES)?),
        HEAD => VaultId::from_bytes(rest),
        _ => None,
    }
}

/// The vaults that rows of a commit are of.
#[cfg(feature = "postgres")]
pub(crate) fn vaults_of(VaultRows { meta, heads, values }: &VaultRows) -> BTreeSet<VaultId> {
    let of_secrets = meta.iter().chain(values).map(|(key, _)| key);
    heads.keys().chain(of_secrets).filter_map(|key| vault_of(key)).collect()
}

/// Row key of a vault's head.
pub(crate) fn head_key(vault: VaultId) -> Vec<u8> {
    [[HEAD].as_slice(), &vault.to_bytes()].concat()
}

/// Range of the row keys of all heads.
pub(crate) fn head_range() -> RangeInclusive<[u8; 2]> {
    [HEAD, 0]..=[HEAD, 0xff]
}

/// Vault of a head's row key; `None` for other keys.
pub(crate) fn vault_of_head(key: &[u8]) -> Option<VaultId> {
    VaultId::from_bytes(key.strip_prefix(&[HEAD])?)
}

/// The row of a secret, without its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Stored {
    pub(crate) metadata: SecretMetadata,
    /// Number of the vault's key that the value is encrypted with.
    pub(crate) kid: u32,
    /// A random number that is new at every write, so that two versions of a row never share it,
    /// even after deletions, torn writes or rollbacks.
    pub(crate) generation: u64,
}

impl Stored {
    /// The bytes that the value's encryption and the row's MAC authenticate.
    pub(crate) fn associated_data(&self, keys: &StoreKeys, vault: VaultId) -> Vec<u8> {
        let SecretMetadata { name, hosts, fingerprint, created_at_ms } = &self.metadata;
        // Allocated at once: associated data and row are made at every write.
        let bytes = ASSOCIATED_BYTES + name.as_str().len() + self.hosts_bytes(4);
        let mut data = Vec::with_capacity(bytes);
        data.extend_from_slice(DOMAIN);
        push(&mut data, keys.store_id().as_bytes());
        push(&mut data, &vault.to_bytes());
        push(&mut data, &[vault.kind()]);
        push(&mut data, name.as_str().as_bytes());
        push(&mut data, &self.kid.to_be_bytes());
        push(&mut data, &self.generation.to_be_bytes());
        push(&mut data, &created_at_ms.to_be_bytes());
        // A legacy secret has an empty fingerprint and no hosts. No other secret has empty fields
        // here.
        push(&mut data, fingerprint.as_ref().map_or(&[], |fingerprint| fingerprint.0.as_slice()));
        match hosts {
            Some(hosts) => {
                push(&mut data, &(hosts.as_slice().len() as u32).to_be_bytes());
                hosts.as_slice().iter().for_each(|host| push(&mut data, host.as_str().as_bytes()));
            }
            None => push(&mut data, &[]),
        }
        data
    }

    /// Encodes the row. `associated_data` is its [`Stored::associated_data`], for the MAC.
    pub(crate) fn encode(&self, keys: &StoreKeys, associated_data: &[u8]) -> Vec<u8> {
        let hosts = self.hosts();
        let mut row = Vec::with_capacity(ROW_BYTES + self.hosts_bytes(1) + DIGEST_BYTES);
        row.push(ROW_VERSION);
        row.extend_from_slice(&self.kid.to_be_bytes());
        row.extend_from_slice(&self.generation.to_be_bytes());
        row.extend_from_slice(&self.metadata.created_at_ms.to_be_bytes());
        row.push(u8::from(self.metadata.fingerprint.is_some()));
        row.extend_from_slice(self.metadata.fingerprint.as_ref().map_or(&[], |it| it.0.as_slice()));
        // At most 100 hosts of at most 253 bytes each. No host stands for a legacy secret.
        row.push(hosts.len() as u8);
        for host in hosts {
            row.push(host.as_str().len() as u8);
            row.extend_from_slice(host.as_str().as_bytes());
        }
        row.extend_from_slice(&keys.metadata_mac(associated_data));
        row
    }

    /// Bytes of name, hosts and value; `sealed_bytes` is the length of the encrypted value.
    pub(crate) fn content_bytes(&self, sealed_bytes: usize) -> u64 {
        let value = sealed_bytes.saturating_sub(SEALED_BYTES);
        (self.metadata.name.as_str().len() + self.hosts_bytes(0) + value) as u64
    }

    fn hosts(&self) -> &[HostName] {
        self.metadata.hosts.as_ref().map_or(&[], Hosts::as_slice)
    }

    /// Length of all hosts, with `before_each` bytes in front of each.
    fn hosts_bytes(&self, before_each: usize) -> usize {
        self.hosts().iter().map(|host| before_each + host.as_str().len()).sum()
    }

    /// Decodes a row; `None` when its MAC does not match for this vault and name.
    pub(crate) fn decode(keys: &StoreKeys, vault: VaultId, name: SecretName, row: &[u8]) -> Option<Stored> {
        let (body, mac) = row.split_last_chunk::<DIGEST_BYTES>()?;
        let stored = parse(name, body)?;
        same(mac, &keys.metadata_mac(&stored.associated_data(keys, vault))).then_some(stored)
    }

    /// The element of this version in the vault's set hash.
    pub(crate) fn element(&self, keys: &StoreKeys, key: &[u8]) -> Digest {
        keys.secret_element(key, self.generation)
    }
}

fn push(data: &mut Vec<u8>, field: &[u8]) {
    data.extend_from_slice(&(field.len() as u32).to_be_bytes());
    data.extend_from_slice(field);
}

/// Decodes the body of a row. Accepts only what `encode` writes: bytes left over or another
/// encoding are refused.
pub(crate) fn parse(name: SecretName, body: &[u8]) -> Option<Stored> {
    let (version, body) = body.split_first()?;
    let (kid, body) = body.split_first_chunk()?;
    let (generation, body) = body.split_first_chunk()?;
    let (created_at_ms, body) = body.split_first_chunk()?;
    let (has_fingerprint, body) = body.split_first()?;
    let (fingerprint, body) = match has_fingerprint {
        0 => (None, body),
        1 => body.split_first_chunk().map(|(digest, rest)| (Some(Fingerprint(*digest)), rest))?,
        _ => return None,
    };
    let (count, mut body) = body.split_first()?;
    let mut hosts = Vec::with_capacity(usize::from(*count));
    for _ in 0..*count {
        let (length, rest) = body.split_first()?;
        let (host, rest) = rest.split_at_checked(usize::from(*length))?;
        hosts.push(HostName::from_row(std::str::from_utf8(host).ok()?));
        body = rest;
    }
    let whole = *version == ROW_VERSION && body.is_empty();
    whole.then(|| Stored {
        metadata: SecretMetadata {
            name,
            hosts: (!hosts.is_empty()).then(|| Hosts::from_row(hosts)),
            fingerprint,
            created_at_ms: u64::from_be_bytes(*created_at_ms),
        },
        kid: u32::from_be_bytes(*kid),
        generation: u64::from_be_bytes(*generation),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{InternId, StoreId, WorkspaceId};
    use crate::vault::VaultHead;

    fn keys() -> StoreKeys {
        StoreKeys::random(StoreId::random().unwrap()).unwrap()
    }

    fn vault() -> VaultId {
        VaultId::Workspace(WorkspaceId::from_bytes([3; 16]))
    }

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn stored() -> Stored {
        let metadata = SecretMetadata {
            name: name("a"),
            hosts: Some(Hosts::parse(&["a.example", "b.example"]).unwrap()),
            fingerprint: Some(Fingerprint([9; 32])),
            created_at_ms: 7,
        };
        Stored { metadata, kid: 1, generation: 2 }
    }

    fn encoded(keys: &StoreKeys, stored: &Stored) -> Vec<u8> {
        stored.encode(keys, &stored.associated_data(keys, vault()))
    }

    /// Each differs from [`stored`] in one field.
    fn others() -> Vec<Stored> {
        let with = |change: &dyn Fn(&mut Stored)| {
            let mut other = stored();
            change(&mut other);
            other
        };
        vec![
            with(&|it| it.kid = 2),
            with(&|it| it.generation = 3),
            with(&|it| it.metadata.created_at_ms = 8),
            with(&|it| it.metadata.name = name("b")),
            with(&|it| it.metadata.fingerprint = Some(Fingerprint([8; 32]))),
            with(&|it| it.metadata.fingerprint = None),
            with(&|it| it.metadata.hosts = None),
            with(&|it| it.metadata.hosts = Some(Hosts::parse(&["b.example", "a.example"]).unwrap())),
            with(&|it| it.metadata.hosts = Some(Hosts::parse(&["a.example"]).unwrap())),
            with(&|it| it.metadata.hosts = Some(Hosts::parse(&["a.exampleb.example"]).unwrap())),
        ]
    }

    #[test]
    fn the_associated_data_differs_with_every_field() {
        let keys = keys();
        let data = stored().associated_data(&keys, vault());
        for other in others() {
            assert_ne!(other.associated_data(&keys, vault()), data, "{other:?}");
        }
        for vault in [VaultId::Intern(InternId::from_bytes([3; 16])), VaultId::Operator] {
            assert_ne!(stored().associated_data(&keys, vault), data, "{vault}");
        }
        assert_ne!(stored().associated_data(&self::keys(), vault()), data, "another store");
    }

    #[test]
    fn the_associated_data_is_laid_out_as_documented() {
        let keys = keys();
        let field = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        let expected = [
            b"vault/secret/v1".to_vec(),
            field(keys.store_id().as_bytes()),
            field(&[[b'w'].as_slice(), &[3; 16]].concat()),
            field(b"w"),
            field(b"a"),
            field(&1_u32.to_be_bytes()),
            field(&2_u64.to_be_bytes()),
            field(&7_u64.to_be_bytes()),
            field(&[9; 32]),
            field(&2_u32.to_be_bytes()),
            field(b"a.example"),
            field(b"b.example"),
        ];
        assert_eq!(stored().associated_data(&keys, vault()), expected.concat());
    }

    #[test]
    fn rows_read_back_for_their_vault_and_name_only() {
        let keys = keys();
        for row in others().into_iter().chain([stored()]) {
            let bytes = encoded(&keys, &row);
            let own = row.metadata.name.clone();
            assert_eq!(Stored::decode(&keys, vault(), own.clone(), &bytes), Some(row));
            assert_eq!(Stored::decode(&keys, vault(), name("z"), &bytes), None);
            assert_eq!(Stored::decode(&keys, VaultId::Operator, own, &bytes), None);
        }
    }

    #[test]
    fn keys_keep_the_order_of_names_and_read_back() {
        let names = ["a", "a1", "a_b", "ab", "z"].map(name);
        let keys = names.each_ref().map(|name| secret_key(vault(), name));
        assert!(keys.is_sorted());
        assert!(keys.iter().all(|key| secrets_range(vault()).contains(key)));
        assert!(!secrets_range(vault()).contains(&secret_key(VaultId::Operator, &names[0])));
        for (key, name) in keys.iter().zip(names) {
            assert_eq!(name_in(key), Some((vault(), name)));
        }
        assert_eq!(vault_of_head(&head_key(vault())), Some(vault()));
        assert_eq!(name_in(&head_key(vault())), None);
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_refused_as_row_and_as_key(bytes: Vec<u8>) {
            let keys = keys();
            prop_assert_eq!(Stored::decode(&keys, vault(), name("a"), &bytes), None);
            prop_assert_eq!(VaultHead::decode(&keys, vault(), &bytes), None);
            // Whatever is read as a key is written the same way again.
            if let Some((vault, name)) = name_in(&bytes) {
                prop_assert_eq!(secret_key(vault, &name), bytes);
            }
        }

        #[test]
        fn a_flipped_bit_makes_a_row_invalid(at in 0_usize..110, bit in 0_u8..8) {
            let keys = keys();
            let mut bytes = encoded(&keys, &stored());
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Stored::decode(&keys, vault(), name("a"), &bytes), None);
        }
    }
}
