//! The audit log: one chained record per commit, in the same batch as what it records.
//!
//! Each record names the head of the chain before it; the head after it is a MAC over both. The newest head
//! stands in the anchor. Records hold names, ids and choices, never a value, a token or a request.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::guests::{Reflection, RefusedRequest};
use crate::hex;
use crate::ids::{InternId, MemberId, StoreId, WorkspaceId};
use crate::log::{Row, UsageDigest};
use crate::name::Name;
use crate::records::{KeyKind, Role};
use crate::root_key::RootKeyId;
use crate::seal::{Digest, StoreKeys};
use crate::spend::SpendLimits;
use crate::text;
use crate::token::KeyId;
use crate::vault::{
    FingerprintPrefix, HostName, Purpose, ReleaseRefusal, SecretMetadata, SecretName, VaultFinding, VaultId,
    VaultPart,
};

/// Who asked for a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// Somebody at the machine: the command line or the admin socket.
    Operator,
    /// A client with this key.
    Key(KeyId),
    /// The program itself, at the first start or while opening.
    System,
}

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

impl AuditEntry {
    pub(crate) fn of_damage(finding: VaultFinding) -> AuditEntry {
        let VaultFinding { vault, name, part } = finding;
        AuditEntry { actor: Actor::System, action: AuditAction::DamageFound { vault, name, part } }
    }
}

impl CopiedSecret {
    pub(crate) fn of(copy: &SecretMetadata) -> CopiedSecret {
        CopiedSecret { name: copy.name.clone(), fingerprint: copy.fingerprint.map(|it| it.prefix()) }
    }
}

/// One mutation.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditEntry {
    /// Who asked for it.
    pub actor: Actor,
    /// What was done.
    #[serde(flatten)]
    pub action: AuditAction,
}

/// What one commit did.
#[derive(Clone, Debug, Eq, PartialEq, Deserialize, Serialize)]
pub struct AuditRecord {
    /// The commit's number.
    pub seq: u64,
    /// When it was made, Unix milliseconds.
    pub at_ms: u64,
    /// The head of the chain before this record.
    #[serde(with = "hex")]
    pub(crate) previous: Digest,
    /// The mutations, in the order they were applied.
    pub entries: Vec<AuditEntry>,
    /// How many usage rows the commit carried.
    pub usage_rows: usize,
    /// Digest over those rows, so that they cannot be edited either.
    #[serde(with = "hex")]
    pub(crate) usage_digest: Digest,
}

impl AuditRecord {
    /// Whether the chain may skip numbers before this record.
    pub(crate) fn accepts_rollback(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.action, AuditAction::RollbackAccepted { .. }))
    }
}

/// The result of checking the whole chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuditSummary {
    /// How many records hold.
    pub records: u64,
    /// How many usage rows they vouch for.
    pub usage_rows: u64,
    /// Number of the first record that does not, if any.
    pub broken_at: Option<u64>,
}

/// Walks the chain from its beginning; `rows` are the stored bytes, each record before its usage rows.
pub(crate) fn verify<E>(
    keys: &StoreKeys,
    expected_head: &Digest,
    rows: impl Iterator<Item = Result<Row, E>>,
) -> Result<AuditSummary, E> {
    let mut chain = Chain::default();
    let mut holds = true;
    for row in rows {
        let ((seq, index), bytes) = row?;
        holds = if index == 0 { chain.record(keys, seq, &bytes) } else { chain.usage(seq, index, &bytes) };
        if !holds {
            break;
        }
    }
    holds = holds && chain.settle();
    let broken_at = match holds {
        true => (chain.head != *expected_head).then_some(chain.last + 1),
        false => Some(chain.broken_at),
    };
    Ok(AuditSummary { records: chain.records, usage_rows: chain.usage_rows, broken_at })
}

/// How far the walk has come.
#[derive(Default)]
struct Chain {
    head: Digest,
    last: u64,
    records: u64,
    usage_rows: u64,
    /// The last record, until its usage rows are known to be all there.
    open: Option<(AuditRecord, UsageDigest)>,
    broken_at: u64,
}

impl Chain {
    fn record(&mut self, keys: &StoreKeys, seq: u64, bytes: &[u8]) -> bool {
        if !self.settle() {
            return false;
        }
        self.broken_at = seq;
        let Some(record) = crate::rows::decode_body::<AuditRecord>(bytes) else { return false };
        let follows = seq == self.last + 1 || (seq > self.last && record.accepts_rollback());
        if record.seq != seq || record.previous != self.head || !follows {
            return false;
        }
        self.head = keys.audit_head(&self.head, bytes);
        self.last = seq;
        self.open = Some((record, UsageDigest::default()));
        true
    }

    fn usage(&mut self, seq: u64, index: u32, bytes: &[u8]) -> bool {
        self.broken_at = seq;
        let Some((record, digest)) = self.open.as_mut().filter(|(record, _)| record.seq == seq) else {
            return false;
        };
        digest.add(bytes);
        // The engine gives values in the order of their keys, so that a gap is a value that is gone.
        digest.values() == index as usize && digest.rows() <= record.usage_rows
    }

    /// Whether the usage rows of the last record are all there and the ones it vouched for.
    fn settle(&mut self) -> bool {
        let Some((record, digest)) = self.open.take() else { return true };
        self.broken_at = record.seq;
        let found = digest.finish();
        let holds = found == (record.usage_rows, record.usage_digest);
        if holds {
            self.records += 1;
            self.usage_rows += record.usage_rows as u64;
        }
        holds
    }
}
