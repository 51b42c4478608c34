//! The kinds of events in the audit log.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Purpose, Reflection, RefusedRequest, ReleaseRefusal, VaultPart};
use crate::digest::Digest;
use crate::hex;
use crate::ids::{InternId, MemberId, StoreId, VaultId, WorkspaceId};
use crate::name::Name;
use crate::records::{KeyKind, MemberRole};
use crate::root_key::RootKeyId;
use crate::secret::{FingerprintPrefix, HostName, SecretMetadata, SecretName};
use crate::spend::{SpendLimits, UsageDay};
use crate::text;
use crate::token::KeyId;

/// What was done, with its details.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditAction {
    /// A store was created at the first start.
    StoreCreated {
        /// Id of the new store.
        store: StoreId,
        /// Id of the root key it is wrapped under.
        root_key: RootKeyId,
    },
    /// The operator accepted a state of the store that is not the anchored one.
    RollbackAccepted {
        /// Sequence number of the newest valid slot of the anchor.
        anchor: Option<u64>,
        /// The markers of keys, meta, values, log.
        markers: [Option<u64>; 4],
        /// Number of rows that were dropped because their MAC did not match.
        rows_dropped: usize,
    },
    /// The operator accepted that the database lacks commits that it had acknowledged.
    LossAccepted {
        /// Position of the newest audit record that was there.
        newest: u64,
        /// Number of chains that lack commits.
        chains: usize,
        /// Number of these commits.
        commits: u64,
    },
    /// The operator dropped the usage rows of commits before this day. Audit records before it may lack the
    /// rows that they cover.
    UsageDropped {
        /// The first day, in UTC, whose rows were kept.
        #[serde(with = "text")]
        before: UsageDay,
        /// Number of usage rows that were there from the days before.
        rows: u64,
    },
    /// How far the audit chains of a database were. A chain that ends before that was shortened.
    ChainsWitnessed {
        /// The number of the last commit of each chain that changed since the last such record, by the id of
        /// the chain in hexadecimal digits.
        chains: BTreeMap<String, u64>,
    },
    /// A workspace was created.
    WorkspaceCreated {
        /// Id of the workspace.
        id: WorkspaceId,
        /// Its name.
        name: Name,
        /// Whether it takes part in the interns programme.
        programme: bool,
        /// Whether its vault takes writes.
        vault_writes: bool,
    },
    /// The settings of a workspace were changed.
    WorkspaceChanged {
        /// Id of the workspace.
        id: WorkspaceId,
        /// The programme setting after the change.
        programme: bool,
        /// The setting for vault writes after the change.
        vault_writes: bool,
    },
    /// A workspace was deleted with its members, interns and secrets, and its keys were revoked.
    WorkspaceDeleted {
        /// Id of the workspace.
        id: WorkspaceId,
        /// Its name.
        name: Name,
        /// Number of members deleted with it.
        members: usize,
        /// Number of interns deleted with it.
        interns: usize,
        /// Number of keys revoked with it.
        keys_revoked: usize,
        /// Number of secrets deleted with it, including those of its interns.
        secrets_deleted: usize,
    },
    /// A member was created.
    MemberCreated {
        /// Id of the member.
        id: MemberId,
        /// Its name.
        name: Name,
        /// Its workspace.
        workspace: WorkspaceId,
        /// Its role.
        role: MemberRole,
    },
    /// A member's role was changed.
    MemberRoleChanged {
        /// Id of the member.
        id: MemberId,
        /// The role after the change.
        role: MemberRole,
    },
    /// A member was deleted and its keys were revoked.
    MemberDeleted {
        /// Id of the member.
        id: MemberId,
        /// Its name.
        name: Name,
        /// Its workspace.
        workspace: WorkspaceId,
        /// Number of keys revoked with it.
        keys_revoked: usize,
    },
    /// An intern was created.
    InternCreated {
        /// Id of the intern.
        id: InternId,
        /// Its name.
        name: Name,
        /// Its workspace.
        workspace: WorkspaceId,
        /// The member that made it, or for which it was made.
        created_by: MemberId,
    },
    /// An intern was deleted with its secrets, and its keys were revoked.
    InternDeleted {
        /// Id of the intern.
        id: InternId,
        /// Number of keys revoked with it.
        keys_revoked: usize,
        /// Number of secrets deleted with it.
        #[serde(default)]
        secrets_deleted: usize,
    },
    /// A key was issued.
    KeyIssued {
        /// Id of the key.
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
    /// A key's label, limits or `disabled` switch was changed.
    KeyChanged {
        /// Id of the key.
        id: KeyId,
        /// Whether it is switched off after the change.
        disabled: bool,
        /// Whether its label was changed.
        renamed: bool,
        /// Its spend limits after the change.
        #[serde(default, skip_serializing_if = "SpendLimits::is_empty")]
        limits: SpendLimits,
    },
    /// Credit was added to a workspace, which is prepaid from then on.
    CreditAdded {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// The amount added, pico-dollars.
        amount_pico: u64,
        /// Sum of all credit ever added, after this change, pico-dollars.
        credited_pico: u64,
    },
    /// A prepaid workspace became unlimited.
    CreditUnlimited {
        /// Id of the workspace.
        workspace: WorkspaceId,
        /// Sum of all credit added before, pico-dollars.
        credited_pico: u64,
    },
    /// A key was revoked.
    KeyRevoked {
        /// Id of the key.
        id: KeyId,
    },
    /// Keys that were revoked more than 92 days ago were deleted.
    KeysForgotten {
        /// Ids of the keys.
        keys: Vec<KeyId>,
    },
    /// A secret was created or replaced.
    SecretStored {
        /// Its vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Its name.
        #[serde(with = "text")]
        name: SecretName,
        /// The hosts it may be released to.
        #[serde(with = "text::list")]
        hosts: Vec<HostName>,
        /// Identifies the value without revealing it.
        #[serde(with = "text::option")]
        fingerprint: Option<FingerprintPrefix>,
    },
    /// A secret was deleted.
    SecretDeleted {
        /// Its vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Its name.
        #[serde(with = "text")]
        name: SecretName,
    },
    /// Secrets of an older system were imported, without hosts.
    LegacyImported {
        /// The vault they were imported into.
        #[serde(with = "text")]
        vault: VaultId,
        /// Their names.
        #[serde(with = "text::list")]
        names: Vec<SecretName>,
    },
    /// The rotation to a new root key began.
    RootRotationBegun {
        /// Id of the root key in use.
        from: RootKeyId,
        /// Id of the new root key.
        to: RootKeyId,
    },
    /// Key records were rewrapped, for a change of the root key or of the recovery key.
    KeyRecordsWrapped {
        /// Number of records.
        records: usize,
    },
    /// Every key record can be opened with the new root key, which is in use from now on.
    RootRotated {
        /// Id of the previous root key.
        from: RootKeyId,
        /// Id of the root key now in use.
        to: RootKeyId,
    },
    /// All wrappings by former root and recovery keys were removed from the key records.
    OldWrappingsDropped,
    /// A recovery key is being introduced.
    RecoveryKeyBegun {
        /// Id of the recovery key.
        id: RootKeyId,
    },
    /// Every key record can be opened with this recovery key, which is in force from now on.
    RecoveryKeyMade {
        /// Id of the recovery key.
        id: RootKeyId,
    },
    /// A rotation began that gives every vault a new encryption key.
    KeyRotationBegun,
    /// A vault got a new encryption key.
    VaultKeyAdded {
        /// The vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Number of the key.
        kid: u32,
    },
    /// Secrets were encrypted again with the newest key of their vault.
    SecretsReencrypted {
        /// The vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Number of secrets.
        secrets: usize,
    },
    /// These keys of a vault were retired: no secret is encrypted with them any more.
    VaultKeysRetired {
        /// The vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Numbers of the keys.
        kids: Vec<u32>,
    },
    /// Retired keys of a vault were deleted after their waiting time.
    VaultKeysDeleted {
        /// The vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Numbers of the keys.
        kids: Vec<u32>,
    },
    /// The retired keys of all vaults were checked.
    RetiredKeysChecked {
        /// When the next of them may be deleted, Unix milliseconds.
        due_ms: Option<u64>,
    },
    /// Every vault has a new encryption key, and every secret is encrypted with it.
    KeyRotationEnded,
    /// The store was restored from a backup.
    Restored {
        /// When the backup was made, Unix milliseconds.
        made_at_ms: u64,
        /// Sequence number of the backup's last commit.
        seq: u64,
    },
    /// Chains of the audit log came from a database with the rest of the store. They are kept as they were;
    /// the numbers of this chain go on after the last position in them.
    ChainsImported {
        /// Number of these chains.
        chains: u64,
        /// Keyed hash over the ends of all of them, so that none can be shortened, dropped or added.
        #[serde(with = "hex")]
        ends: Digest,
    },
    /// The store was moved into a database.
    Moved {
        /// Sequence number of its last commit before that.
        seq: u64,
    },
    /// The store was moved from a database into a data directory.
    MovedBack {
        /// The last position in the database before that.
        position: u64,
    },
    /// A secret's value was released for a request.
    SecretReleased {
        /// Its vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Its name.
        #[serde(with = "text")]
        name: SecretName,
        /// The only host it may be sent to.
        #[serde(with = "text")]
        host: HostName,
        /// Identifies the value without revealing it.
        #[serde(with = "text::option")]
        fingerprint: Option<FingerprintPrefix>,
        /// The guest and the request it was released for.
        #[serde(flatten)]
        purpose: Purpose,
    },
    /// The release of a secret was refused.
    ReleaseRefused {
        /// The vault that has the secret, or would have it.
        #[serde(with = "text")]
        vault: VaultId,
        /// Name of the secret that was asked for.
        #[serde(with = "text")]
        name: SecretName,
        /// The host it was asked for.
        #[serde(with = "text")]
        host: HostName,
        /// Reason of the refusal.
        reason: ReleaseRefusal,
        /// The guest and the request that asked for it.
        #[serde(flatten)]
        purpose: Purpose,
    },
    /// A guest's request to another host was refused before any secret was released for it.
    RequestRefused(RefusedRequest),
    /// A host sent a secret back in its response.
    SecretReflected(Reflection),
    /// A damaged row was found. Recorded once per row between two starts.
    DamageFound {
        /// The vault, if it is known.
        #[serde(with = "text::option")]
        vault: Option<VaultId>,
        /// Name of the secret, if the row belongs to one.
        #[serde(with = "text::option")]
        name: Option<SecretName>,
        /// Which part is damaged.
        part: VaultPart,
    },
    /// Invalid tokens were used. Recorded at most once a minute for each address.
    TokensRefused {
        /// The client's address, for IPv6 the first address of its /64; `None` for the sum of all
        /// other addresses in that minute.
        address: Option<IpAddr>,
        /// Number of tokens refused.
        tokens: u64,
        /// Revoked, disabled or expired keys among them. Incomplete when there are many.
        keys: Vec<KeyId>,
    },
    /// An operator sent a request from the playground of the console.
    PlaygroundUsed {
        /// The key that pays for it.
        key: KeyId,
        /// Its workspace.
        workspace: WorkspaceId,
    },
    /// A vault was deleted with its secrets because its workspace or intern no longer exists.
    OrphanRemoved {
        /// The vault.
        #[serde(with = "text")]
        vault: VaultId,
        /// Number of secrets deleted with it.
        secrets: usize,
    },
    /// Secrets were copied together with their hosts.
    SecretsCopied {
        /// The vault they were copied from.
        #[serde(with = "text")]
        from: VaultId,
        /// The vault they were copied to.
        #[serde(with = "text")]
        to: VaultId,
        /// The copies.
        secrets: Vec<CopiedSecret>,
    },
}

impl AuditAction {
    /// Checks that this is the name of an action in audit records, such as `secret_stored`.
    ///
    /// # Errors
    /// A text with the mistake and all valid names.
    pub fn check_name(name: &str) -> Result<(), String> {
        // For a valid name the error is about missing fields, which is not a mistake here. Only an
        // unknown variant is.
        let read = serde_json::from_value::<AuditAction>(serde_json::json!({ "action": name }));
        let mistake = read.err().map(|error| error.to_string());
        mistake.filter(|mistake| mistake.starts_with("unknown variant")).map_or(Ok(()), Err)
    }
}

/// A copied secret, as it is in its new vault.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct CopiedSecret {
    /// Its name.
    #[serde(with = "text")]
    pub name: SecretName,
    /// Identifies the value without revealing it.
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
    fn action_names_are_those_in_audit_records() {
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
