//! What the audit log can say was done.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::guests::{Reflection, RefusedRequest};
use crate::ids::{InternId, MemberId, StoreId, WorkspaceId};
use crate::name::Name;
use crate::records::{KeyKind, Role};
use crate::root_key::RootKeyId;
use crate::spend::SpendLimits;
use crate::text;
use crate::token::KeyId;
use crate::vault::{
    FingerprintPrefix, HostName, Purpose, ReleaseRefusal, SecretMetadata, SecretName, VaultId, VaultPart,
};

/// What was done.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditAction {
    /// The first start.
    StoreCreated {
        /// The new store.
        store: StoreId,
        /// The key it is wrapped under.
        root_key: RootKeyId,
    },
    /// A state older or other than the anchored one was accepted on purpose.
    RollbackAccepted {
        /// The newest valid anchor.
        anchor: Option<u64>,
        /// The markers of keys, meta, values, log.
        markers: [Option<u64>; 4],
        /// How many rows did not prove to be ours and were dropped.
        rows_dropped: usize,
    },
    /// A workspace was made.
    WorkspaceCreated {
        /// Which.
        id: WorkspaceId,
        /// Its name.
        name: Name,
        /// In the programme or not.
        programme: bool,
        /// Whether its vault takes writes.
        vault_writes: bool,
    },
    /// A workspace's switches were set.
    WorkspaceChanged {
        /// Which.
        id: WorkspaceId,
        /// The programme after the change.
        programme: bool,
        /// Vault writes after the change.
        vault_writes: bool,
    },
    /// A workspace was deleted with its members, its interns and all secrets, and its keys revoked.
    WorkspaceDeleted {
        /// Which.
        id: WorkspaceId,
        /// Its name.
        name: Name,
        /// How many members went with it.
        members: usize,
        /// How many interns went with it.
        interns: usize,
        /// How many keys were revoked with it.
        keys_revoked: usize,
        /// How many secrets went with it, those of its interns included.
        secrets_deleted: usize,
    },
    /// A member was made.
    MemberCreated {
        /// Which.
        id: MemberId,
        /// Its name.
        name: Name,
        /// Its workspace.
        workspace: WorkspaceId,
        /// Its role.
        role: Role,
    },
    /// A member's role was set.
    MemberRoleChanged {
        /// Which.
        id: MemberId,
        /// The role after the change.
        role: Role,
    },
    /// A member was deleted and its keys revoked.
    MemberDeleted {
        /// Which.
        id: MemberId,
        /// Its name.
        name: Name,
        /// Its workspace.
        workspace: WorkspaceId,
        /// How many keys were revoked with it.
        keys_revoked: usize,
    },
    /// An intern was made.
    InternCreated {
        /// Which.
        id: InternId,
        /// Its name.
        name: Name,
        /// Its workspace.
        workspace: WorkspaceId,
        /// The member it was made by or for.
        created_by: MemberId,
    },
    /// An intern was deleted with its secrets and its keys revoked.
    InternDeleted {
        /// Which.
        id: InternId,
        /// How many keys went with it.
        keys_revoked: usize,
        /// How many secrets went with it.
        #[serde(default)]
        secrets_deleted: usize,
    },
    /// A key was issued.
    KeyIssued {
        /// Which.
        id: KeyId,
        /// Its kind.
        kind: KeyKind,
        /// Its workspace.
        workspace: Option<WorkspaceId>,
        /// Its member.
        member: Option<MemberId>,
        /// Its intern.
        intern: Option<InternId>,
        /// Its expiry, Unix milliseconds.
        expires_at_ms: Option<u64>,
        /// What it may spend.
        #[serde(default, skip_serializing_if = "SpendLimits::is_empty")]
        limits: SpendLimits,
    },
    /// A key's label or switch was set.
    KeyChanged {
        /// Which.
        id: KeyId,
        /// Off after the change.
        disabled: bool,
        /// Whether the label is another one now.
        renamed: bool,
        /// What it may spend after the change.
        #[serde(default, skip_serializing_if = "SpendLimits::is_empty")]
        limits: SpendLimits,
    },
    /// Credit was added to a workspace, which is prepaid from then on.
    CreditAdded {
        /// Which.
        workspace: WorkspaceId,
        /// How much, pico-dollars.
        amount_pico: u64,
        /// All that was ever added after the change, pico-dollars.
        credited_pico: u64,
    },
    /// A prepaid workspace may spend without limit.
    CreditUnlimited {
        /// Which.
        workspace: WorkspaceId,
        /// All that had been added to it, pico-dollars.
        credited_pico: u64,
    },
    /// A key was revoked.
    KeyRevoked {
        /// Which.
        id: KeyId,
    },
    /// Keys that were revoked more than 92 days before are not there any more.
    KeysForgotten {
        /// Which.
        keys: Vec<KeyId>,
    },
    /// A secret was made or replaced.
    SecretStored {
        /// Where.
        #[serde(with = "text")]
        vault: VaultId,
        /// Its name.
        #[serde(with = "text")]
        name: SecretName,
        /// Where it may be released to.
        #[serde(with = "text::list")]
        hosts: Vec<HostName>,
        /// Which value, without telling it.
        #[serde(with = "text::option")]
        fingerprint: Option<FingerprintPrefix>,
    },
    /// A secret was deleted.
    SecretDeleted {
        /// Where.
        #[serde(with = "text")]
        vault: VaultId,
        /// Its name.
        #[serde(with = "text")]
        name: SecretName,
    },
    /// Secrets of an older system were taken over, without hosts.
    LegacyImported {
        /// Where to.
        #[serde(with = "text")]
        vault: VaultId,
        /// Their names.
        #[serde(with = "text::list")]
        names: Vec<SecretName>,
    },
    /// Another root key is being put in the place of the one in use.
    RootRotationBegun {
        /// The one in use.
        from: RootKeyId,
        /// The one to come.
        to: RootKeyId,
    },
    /// Key records were wrapped again, for a change of the root key or of the recovery key.
    KeyRecordsWrapped {
        /// How many.
        records: usize,
    },
    /// Every key record opens with the new root key, which counts from here on.
    RootRotated {
        /// The one before.
        from: RootKeyId,
        /// The one in use.
        to: RootKeyId,
    },
    /// No key record opens with a root or recovery key of before any more.
    OldWrappingsDropped,
    /// A recovery key is being introduced.
    RecoveryKeyBegun {
        /// Which.
        id: RootKeyId,
    },
    /// Every key record opens with this recovery key.
    RecoveryKeyMade {
        /// Which.
        id: RootKeyId,
    },
    /// Every vault gets a new encryption key.
    KeyRotationBegun,
    /// A vault got a new encryption key.
    VaultKeyAdded {
        /// Which vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Number of the key.
        kid: u32,
    },
    /// Secrets were encrypted again with their vault's newest key.
    SecretsReencrypted {
        /// Which vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// How many.
        secrets: usize,
    },
    /// No secret needs these keys of a vault any more.
    VaultKeysRetired {
        /// Which vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Numbers of the keys.
        kids: Vec<u32>,
    },
    /// Keys of a vault that were retired long enough are gone.
    VaultKeysDeleted {
        /// Which vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Numbers of the keys.
        kids: Vec<u32>,
    },
    /// Retired keys of all vaults were looked through.
    RetiredKeysChecked {
        /// When the first of them may be deleted, Unix milliseconds.
        due_ms: Option<u64>,
    },
    /// Every vault has a new encryption key, and every secret is encrypted with it.
    KeyRotationEnded,
    /// The store was restored from a backup.
    Restored {
        /// When the backup was made, Unix milliseconds.
        made_at_ms: u64,
        /// Number of its last commit.
        seq: u64,
    },
    /// A value left the vault.
    SecretReleased {
        /// Where it lay.
        #[serde(with = "text")]
        vault: VaultId,
        /// Its name.
        #[serde(with = "text")]
        name: SecretName,
        /// The one host it may be sent to.
        #[serde(with = "text")]
        host: HostName,
        /// Which value, without telling it.
        #[serde(with = "text::option")]
        fingerprint: Option<FingerprintPrefix>,
        /// What for.
        #[serde(flatten)]
        purpose: Purpose,
    },
    /// A value was asked for and not released.
    ReleaseRefused {
        /// Where it lies, or would.
        #[serde(with = "text")]
        vault: VaultId,
        /// The name asked for.
        #[serde(with = "text")]
        name: SecretName,
        /// The host asked for.
        #[serde(with = "text")]
        host: HostName,
        /// Why.
        reason: ReleaseRefusal,
        /// What for.
        #[serde(flatten)]
        purpose: Purpose,
    },
    /// A guest's request to another host was refused before anything was released for it.
    RequestRefused(RefusedRequest),
    /// A host sent a secret back.
    SecretReflected(Reflection),
    /// A row was met that does not prove to be ours; told once for each between two starts.
    DamageFound {
        /// The vault.
        #[serde(with = "text::option")]
        vault: Option<VaultId>,
        /// The secret, if it is about one.
        #[serde(with = "text::option")]
        name: Option<SecretName>,
        /// What does not hold.
        part: VaultPart,
    },
    /// Tokens that open nothing were shown; told once a minute at most for each address.
    TokensRefused {
        /// Where from: an address, or the first of the /64 of an IPv6 one; `None` for all others of that minute.
        address: Option<IpAddr>,
        /// How many.
        tokens: u64,
        /// Keys that some of them were good for once: revoked, disabled or expired ones. Not all if there are many.
        keys: Vec<KeyId>,
    },
    /// A vault was removed with its secrets because its workspace or intern is lost.
    OrphanRemoved {
        /// Which vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// How many secrets went with it.
        secrets: usize,
    },
    /// Secrets were copied with their hosts.
    SecretsCopied {
        /// Where from.
        #[serde(with = "text")]
        from: VaultId,
        /// Where to.
        #[serde(with = "text")]
        to: VaultId,
        /// Which.
        secrets: Vec<CopiedSecret>,
    },
}

impl AuditAction {
    /// Checks the name of an action as it stands in records, such as `secret_stored`.
    ///
    /// # Errors
    /// What is wrong, with all names there are.
    pub fn check_name(name: &str) -> Result<(), String> {
        // Of a name that exists, members are missing: the reader of records tells the two mistakes apart.
        let read = serde_json::from_value::<AuditAction>(serde_json::json!({ "action": name }));
        let mistake = read.err().map(|error| error.to_string());
        mistake.filter(|mistake| mistake.starts_with("unknown variant")).map_or(Ok(()), Err)
    }
}

/// A secret that was copied, as it is in its new vault.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct CopiedSecret {
    /// Its name.
    #[serde(with = "text")]
    pub name: SecretName,
    /// Which value, without telling it.
    #[serde(with = "text::option")]
    pub fingerprint: Option<FingerprintPrefix>,
}

impl CopiedSecret {
    pub(crate) fn of(copy: &SecretMetadata) -> CopiedSecret {
        CopiedSecret { name: copy.name.clone(), fingerprint: copy.fingerprint.map(|it| it.prefix()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_actions_are_those_in_records() {
        for name in
            ["store_created", "secret_stored", "key_rotation_begun", "request_refused", "member_deleted"]
        {
            assert_eq!(AuditAction::check_name(name), Ok(()), "{name}");
        }
        for name in ["", "secret", "SecretStored"] {
            let mistake = AuditAction::check_name(name).unwrap_err();
            assert!(mistake.contains("`secret_stored`"), "{mistake}");
        }
    }
}
