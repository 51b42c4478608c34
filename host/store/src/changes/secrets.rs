//! Mutations of the vaults. Each one is applied to the changes of its group so far, so that it sees
//! the mutations before it in the same commit.

mod chance;
mod mend;
mod quota;
mod rotation;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use chance::{Fresh, RandomPool};
use zeroize::Zeroizing;

use super::WriteBatch;
use crate::audit::{Actor, AuditAction, CopiedSecret, VaultPart};
use crate::commit::{RowChanges, VaultRows};
use crate::error::Error;
use crate::ids::{InternId, VaultId, WorkspaceId};
use crate::quota::NearQuota;
use crate::quota::VaultSize;
use crate::rows;
use crate::secret::{Hosts, SecretMetadata, SecretName};
use crate::state::{Gap, Guard, all};
use crate::vault::{NewSecret, Stored, VaultHead, VaultKeys, VaultSnapshot, head_key, secret_key};

/// The changes of the vaults in one write batch.
#[derive(Default)]
pub(super) struct Vaults {
    /// Vaults that were read or changed; `None` for a deleted one.
    opened: BTreeMap<VaultId, Option<OpenedVault>>,
    /// Secrets that changed, by row key; `None` for a deleted one.
    secrets: BTreeMap<Vec<u8>, Option<Written>>,
    /// Heads that were recomputed by a repair, by row key; never of a vault in `opened`.
    heads: RowChanges,
    /// Bytes of encrypted values in `secrets`, including values that a later mutation replaced.
    pub(super) bytes: usize,
    /// What each workspace holds with its interns, as far as it was computed; `None` for a deleted
    /// workspace.
    sums: BTreeMap<WorkspaceId, Option<VaultSize>>,
    /// Vaults and workspaces that came near their quota.
    near: Vec<NearQuota>,
    /// How often a vault was changed.
    pub(super) changes: usize,
    chance: RandomPool,
}

/// What workspaces hold with their interns; `None` for a deleted workspace.
pub(super) type Sums = Vec<(WorkspaceId, Option<VaultSize>)>;

/// A vault with its keys and its head as of this write batch.
struct OpenedVault {
    keys: VaultKeys,
    head: VaultHead,
    /// Its keys changed, and their record is not in the write batch yet.
    unrecorded: bool,
    changed: bool,
}

struct Written {
    vault: VaultId,
    stored: Stored,
    /// Its row in `meta`.
    row: Vec<u8>,
    /// Its row in `values`.
    sealed: Vec<u8>,
}

/// A version of a secret that passed all checks but the quota.
struct Staged {
    written: Written,
    replaces: Option<Weighed>,
}

/// A secret with the number of bytes that count against the quotas.
struct Weighed {
    stored: Stored,
    bytes: u64,
}

impl Written {
    fn bytes(&self) -> u64 {
        self.stored.content_bytes(self.sealed.len())
    }

    /// Encrypts a new version of a secret with the vault's newest key.
    fn encrypt(
        view: &VaultSnapshot,
        keys: &VaultKeys,
        vault: VaultId,
        metadata: SecretMetadata,
        value: &[u8],
        fresh: Fresh,
    ) -> Result<Written, Error> {
        let kid = keys.active().ok_or_else(|| view.damaged(vault, None, VaultPart::KeyRecord))?;
        let Fresh { generation, nonce } = fresh;
        let stored = Stored { metadata, kid, generation };
        let associated_data = stored.associated_data(view.keys(), vault);
        let sealed = keys.encrypt(kid, nonce, &associated_data, value);
        let sealed = sealed.ok_or_else(|| view.damaged(vault, None, VaultPart::KeyRecord))?;
        Ok(Written { vault, row: stored.encode(view.keys(), &associated_data), stored, sealed })
    }
}

impl Vaults {
    /// The rows of all changes, the sums of workspaces, and what came near its quota.
    pub(super) fn finish(self, view: &VaultSnapshot) -> (VaultRows, Sums, Vec<NearQuota>) {
        let mut vault_rows = VaultRows { heads: self.heads, ..VaultRows::default() };
        for (key, written) in self.secrets {
            let (metadata, value) = written.map(|written| (written.row, written.sealed)).unzip();
            vault_rows.values.push((key.clone(), value));
            vault_rows.meta.push((key, metadata));
        }
        for (vault, opened) in self.opened {
            let head = match opened {
                Some(opened) if opened.changed => Some(opened.head.encode(view.keys(), vault)),
                Some(_) => continue,
                None => None,
            };
            vault_rows.heads.insert(head_key(vault), head);
        }
        (vault_rows, self.sums.into_iter().collect(), self.near)
    }

    /// A secret as of this write batch.
    fn secret(&self, view: &VaultSnapshot, vault: VaultId, name: &SecretName) -> Result<Option<Stored>, Gap> {
        match self.secrets.get(&secret_key(vault, name)) {
            Some(written) => Ok(written.as_ref().map(|written| written.stored.clone())),
            None => view.secret(vault, name),
        }
    }

    /// A secret as of this write batch, with its bytes.
    fn weighed(
        &self,
        view: &VaultSnapshot,
        vault: VaultId,
        name: &SecretName,
    ) -> Result<Option<Weighed>, Gap> {
        let key = secret_key(vault, name);
        if let Some(written) = self.secrets.get(&key) {
            let weighed = |it: &Written| Weighed { stored: it.stored.clone(), bytes: it.bytes() };
            return Ok(written.as_ref().map(weighed));
        }
        let Some(stored) = view.secret(vault, name)? else { return Ok(None) };
        let bytes = stored.content_bytes(view.sealed_bytes(&key)?);
        Ok(Some(Weighed { stored, bytes }))
    }

    /// A vault as of this write batch; `None` when no secret was ever stored in it.
    fn open(&mut self, view: &VaultSnapshot, vault: VaultId) -> Result<Option<&mut OpenedVault>, Gap> {
        let place = match self.opened.entry(vault) {
            Entry::Occupied(known) => return Ok(known.into_mut().as_mut()),
            Entry::Vacant(place) => place,
        };
        let (keys, mut head) = match (view.vault_keys(vault)?, view.head(vault)?) {
            (Some(keys), Some(head)) => (keys, head),
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(view.damaged(vault, None, VaultPart::KeyRecord).into()),
            (Some(_), None) => return Err(view.damaged(vault, None, VaultPart::Head).into()),
        };
        if head.bytes.is_none() {
            head.bytes = Some(view.counted(vault)?.bytes);
        }
        Ok(place.insert(Some(OpenedVault { keys, head, unrecorded: false, changed: false })).as_mut())
    }

    /// Like `open`, but creates keys and a head for a vault that has none. They are written only
    /// together with a secret.
    fn open_or_make(
        &mut self,
        view: &VaultSnapshot,
        vault: VaultId,
        now_ms: u64,
    ) -> Result<&mut OpenedVault, Gap> {
        if self.open(view, vault)?.is_none() {
            let keys = VaultKeys::random(now_ms)?;
            let opened = OpenedVault {
                keys,
                head: VaultHead { bytes: Some(0), ..VaultHead::default() },
                unrecorded: true,
                changed: false,
            };
            self.opened.insert(vault, Some(opened));
        }
        Ok(self.open(view, vault)?.ok_or(Error::Damaged)?)
    }

    /// The decrypted value of a secret as of this write batch.
    fn value(
        &self,
        view: &VaultSnapshot,
        vault: VaultId,
        stored: &Stored,
    ) -> Result<Zeroizing<Vec<u8>>, Gap> {
        let key = secret_key(vault, &stored.metadata.name);
        match (self.secrets.get(&key), self.opened.get(&vault)) {
            // Written in this group, possibly under keys that are not on the disk yet.
            (Some(Some(written)), Some(Some(opened))) => {
                Ok(view.decrypt(vault, stored, &opened.keys, &written.sealed)?)
            }
            _ => view.value(vault, stored),
        }
    }

    /// Encrypts a value for its vault and name. A secret that replaces another one keeps its
    /// creation date. A secret without hosts is a legacy secret, and gets no fingerprint.
    fn stage(
        &mut self,
        view: &VaultSnapshot,
        now_ms: u64,
        place: (VaultId, SecretName),
        hosts: Option<Hosts>,
        value: &[u8],
    ) -> Result<Staged, Gap> {
        let (vault, name) = place;
        let replaces = self.weighed(view, vault, &name)?;
        let fresh = self.chance.fresh()?;
        let keys = &self.open_or_make(view, vault, now_ms)?.keys;
        let metadata = SecretMetadata {
            name,
            fingerprint: hosts.as_ref().map(|_| keys.fingerprint(value)),
            hosts,
            created_at_ms: replaces.as_ref().map_or(now_ms, |before| before.stored.metadata.created_at_ms),
        };
        Ok(Staged { written: Written::encrypt(view, keys, vault, metadata, value, fresh)?, replaces })
    }

    fn apply(&mut self, view: &VaultSnapshot, staged: Staged) -> SecretMetadata {
        let Staged { written, replaces } = staged;
        let metadata = written.stored.metadata.clone();
        let key = secret_key(written.vault, &metadata.name);
        // If a name occurs twice in one change, the version to replace was staged after `replaces`
        // was read.
        let replaces = match self.secrets.get(&key) {
            Some(before) => {
                before.as_ref().map(|it| Weighed { stored: it.stored.clone(), bytes: it.bytes() })
            }
            None => replaces,
        };
        self.count(view, written.vault, &key, replaces.as_ref(), Some(&written));
        self.bytes += written.sealed.len();
        self.secrets.insert(key, Some(written));
        metadata
    }

    /// Updates the vault's head for one changed secret.
    fn count(
        &mut self,
        view: &VaultSnapshot,
        vault: VaultId,
        key: &[u8],
        before: Option<&Weighed>,
        after: Option<&Written>,
    ) {
        let Some(Some(opened)) = self.opened.get_mut(&vault) else { return };
        opened.changed = true;
        self.changes += 1;
        opened.head.advance();
        if let Some(before) = before {
            opened.head.remove(&before.stored.element(view.keys(), key));
        }
        if let Some(after) = after {
            opened.head.add(&after.stored.element(view.keys(), key));
        }
        opened.head.weigh(before.map_or(0, |it| it.bytes), after.map_or(0, Written::bytes));
    }
}

impl WriteBatch {
    pub(crate) fn put_secret(&mut self, actor: Actor, new: &NewSecret) -> Result<SecretMetadata, Gap> {
        self.has_space_for(actor)?;
        let NewSecret { vault, name, hosts, value } = new;
        let vault = *vault;
        self.check_vault(vault)?;
        let (place, hosts) = ((vault, name.clone()), Some(hosts.clone()));
        let staged = self.vaults.stage(&self.view, self.now_ms, place, hosts, value.expose())?;
        let metadata = self.write(vault, vec![staged])?.pop().ok_or(Error::Damaged)?;
        self.audit(
            actor,
            AuditAction::SecretStored {
                vault,
                name: metadata.name.clone(),
                hosts: metadata.hosts.as_ref().map_or_else(Vec::new, |hosts| hosts.as_slice().to_vec()),
                fingerprint: metadata.fingerprint.map(|it| it.prefix()),
            },
        );
        Ok(metadata)
    }

    /// Writes versions of secrets of one vault, all of them or none.
    fn write(&mut self, vault: VaultId, staged: Vec<Staged>) -> Result<Vec<SecretMetadata>, Gap> {
        self.hold(Guard::Vault(vault))?;
        let sum = self.check_quota(vault, &staged)?;
        self.record_keys(vault)?;
        self.vaults.sums.extend(sum.map(|(workspace, sum)| (workspace, Some(sum))));
        Ok(staged.into_iter().map(|staged| self.vaults.apply(&self.view, staged)).collect())
    }

    /// A legacy secret is treated as absent: the caller may not delete it. A disk that is short of space
    /// does not prevent a deletion.
    pub(crate) fn delete_secret(
        &mut self,
        actor: Actor,
        vault: VaultId,
        name: &SecretName,
    ) -> Result<(), Gap> {
        self.hold(Guard::Vault(vault))?;
        self.check_vault(vault)?;
        let before = self.vaults.weighed(&self.view, vault, name)?;
        let before = before.filter(|it| it.stored.metadata.hosts.is_some()).ok_or(Error::NoSuchSecret)?;
        if self.vaults.open(&self.view, vault)?.is_none() {
            return Err(self.view.damaged(vault, None, VaultPart::Head).into());
        }
        let key = secret_key(vault, name);
        self.vaults.count(&self.view, vault, &key, Some(&before), None);
        self.vaults.secrets.insert(key, None);
        self.take_from_sum(vault, VaultSize::of_secret(before.bytes))?;
        self.audit(actor, AuditAction::SecretDeleted { vault, name: name.clone() });
        Ok(())
    }

    /// Copies all secrets or none. A missing secret is reported before a secret without hosts.
    pub(crate) fn copy_secrets(
        &mut self,
        actor: Actor,
        workspace: WorkspaceId,
        intern: InternId,
        names: &[SecretName],
    ) -> Result<Vec<SecretMetadata>, Gap> {
        self.has_space_for(actor)?;
        self.check_intern_of(workspace, intern)?;
        let (from, to) = (VaultId::Workspace(workspace), VaultId::Intern(intern));
        let sources = names.iter().map(|name| {
            let source = self.vaults.secret(&self.view, from, name)?;
            Ok(source.ok_or(Error::NoSuchSecret)?)
        });
        let sources = all(sources)?;
        let bound = sources.iter().map(|source| source.metadata.hosts.clone().ok_or(Error::Unbound));
        let bound = bound.collect::<Result<Vec<_>, _>>()?;
        let staged = all(sources.iter().zip(bound).map(|(source, hosts)| {
            let value = self.vaults.value(&self.view, from, source)?;
            let place = (to, source.metadata.name.clone());
            self.vaults.stage(&self.view, self.now_ms, place, Some(hosts), &value)
        }))?;
        if staged.is_empty() {
            return Ok(Vec::new());
        }
        let copies = self.write(to, staged)?;
        let secrets = copies.iter().map(CopiedSecret::of).collect();
        self.audit(actor, AuditAction::SecretsCopied { from, to, secrets });
        Ok(copies)
    }

    /// Row keys of all secrets of a vault, in `meta` or `values`, on the disk or in this write
    /// batch.
    pub(super) fn rows_of_vault(&self, vault: VaultId) -> Result<BTreeSet<Vec<u8>>, Gap> {
        let mut keys = self.view.keys_of(vault)?;
        let in_batch = self
            .vaults
            .secrets
            .iter()
            .filter(|(_, written)| written.as_ref().is_some_and(|written| written.vault == vault));
        keys.extend(in_batch.map(|(key, _)| key.clone()));
        Ok(keys)
    }

    /// Deletes a vault: its secrets, its head and its keys.
    pub(super) fn drop_vault(&mut self, vault: VaultId, secrets: BTreeSet<Vec<u8>>) -> Result<(), Gap> {
        self.drop_row(Guard::Vault(vault), rows::vault_keys_key(vault))?;
        self.vaults.secrets.extend(secrets.into_iter().map(|key| (key, None)));
        self.vaults.opened.insert(vault, None);
        self.vaults.changes += 1;
        Ok(())
    }

    /// Puts new or changed keys of a vault into the same commit as the secrets written with them.
    fn record_keys(&mut self, vault: VaultId) -> Result<(), Gap> {
        let Some(Some(opened)) = self.vaults.opened.get(&vault) else { return Ok(()) };
        if !opened.unrecorded {
            return Ok(());
        }
        let under = self.in_force()?;
        let Some(Some(opened)) = self.vaults.opened.get_mut(&vault) else { return Ok(()) };
        let record = opened.keys.seal(self.view.keys(), vault, &under)?;
        opened.unrecorded = false;
        self.put_row(Guard::Vault(vault), rows::vault_keys_key(vault), &record)
    }

    fn check_vault(&self, vault: VaultId) -> Result<(), Gap> {
        match vault {
            VaultId::Workspace(id) => self.workspace(id).map(|_| ()),
            VaultId::Intern(id) => self.intern(id).map(|_| ()),
            VaultId::Operator => Ok(()),
        }
    }
}
