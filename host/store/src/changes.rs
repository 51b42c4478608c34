//! The mutations of the store, and the rules for each of them.
//!
//! A lane applies mutations one after another to a [`WriteBatch`]. Each mutation checks everything
//! before it changes the batch, so a refused mutation leaves nothing in the commit of its group.
//! Nothing outside of the batch changes before the commit: a mutation that lacks a row or a guard is
//! applied again, to a new batch, see [`Change`].

mod change;
mod deletion;
mod key_records;
mod keys;
mod money;
mod new;
mod old_keys;
mod secrets;
#[cfg(feature = "postgres")]
mod shared_intents;
#[cfg(feature = "postgres")]
mod slices;

use std::collections::BTreeSet;
use std::sync::Arc;

use secrets::Vaults;

pub(crate) use change::{AnswerAfter, Change, guarded};
pub use deletion::{MemberDeleted, WorkspaceDeleted};
pub use keys::{KeyChange, KeyOwner, LimitsChange, NewKey};
pub(crate) use money::{Intent, RowIntent, SettledUsage};
pub use new::{NewIntern, NewMember, NewWorkspace, WorkspaceChange};
pub(crate) use old_keys::OldKeys;
#[cfg(feature = "postgres")]
pub(crate) use shared_intents::{Held, needs_of_reservation, shared_intents};
#[cfg(feature = "postgres")]
pub(crate) use slices::{DueSlices, SliceEffects, SliceHost, SliceId, SlicePart, SliceRequest, Slices};

use crate::audit::{Actor, AuditAction, AuditEntry};
use crate::commit::{Commit, RowChanges};
use crate::directory::{NameKey, Record, RecordChanges, RecordId};
use crate::error::Error;
#[cfg(feature = "postgres")]
use crate::ids::VaultId;
use crate::ids::{InternId, MemberId, WorkspaceId};
use crate::lookup::{LookupError, RecordKind};
use crate::name::Name;
use crate::quota::{NearQuota, VaultSize};
use crate::records::{Credit, Intern, Member, MemberRole, Workspace};
use crate::rows::{self, KEYS};
use crate::state::{Gap, Guard, all};
use crate::usage::UsageRow;
use crate::vault::{VaultReader, VaultSnapshot};

/// Name of the member that is created with every workspace.
const OWNER: &str = "owner";

/// The write batch of one commit: the changes so far, on top of the state that it builds on.
pub(crate) struct WriteBatch {
    view: VaultSnapshot,
    /// The guards that the transaction holds; `None` for the only lane of a store, which holds all.
    held: Option<BTreeSet<Guard>>,
    /// Changed workspaces, members, interns and keys. Their rows are in `rows` too.
    records: RecordChanges,
    /// How often a record or the header was changed.
    record_changes: usize,
    rows: RowChanges,
    vaults: Vaults,
    changes_header: bool,
    entries: Vec<AuditEntry>,
    usage: Vec<UsageRow>,
    now_ms: u64,
    is_short: bool,
    /// The position that the audit record of the commit will have.
    position: u64,
    /// The host of the commit's chain.
    #[cfg(feature = "postgres")]
    host: Option<SliceHost>,
    #[cfg(feature = "postgres")]
    slices: slices::SliceCommit,
}

/// What changes in memory once a commit is durable.
#[must_use]
pub(crate) struct Effects {
    /// The records that the commit changed.
    pub(crate) records: RecordChanges,
    /// Whether the commit changed the header.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the embedded engine has one host"))]
    pub(crate) changes_header: bool,
    /// The vaults that the commit changed.
    #[cfg(feature = "postgres")]
    pub(crate) vaults: BTreeSet<VaultId>,
    sums: Vec<(WorkspaceId, Option<VaultSize>)>,
    near: Vec<NearQuota>,
}

impl Effects {
    /// Makes the effects on vaults visible, and logs vaults that came near their quota. Returns the
    /// changed records.
    pub(crate) fn publish(self, access: &VaultReader) -> RecordChanges {
        access.quotas.keep(self.sums);
        self.near.iter().for_each(NearQuota::log);
        self.records
    }
}

impl WriteBatch {
    /// A write batch over a state, for the lane that holds every guard.
    pub(crate) fn new(view: VaultSnapshot, now_ms: u64) -> WriteBatch {
        WriteBatch {
            view,
            held: None,
            records: RecordChanges::new(),
            record_changes: 0,
            rows: RowChanges::new(),
            vaults: Vaults::default(),
            changes_header: false,
            entries: Vec::new(),
            usage: Vec::new(),
            now_ms,
            is_short: false,
            position: 0,
            #[cfg(feature = "postgres")]
            host: None,
            #[cfg(feature = "postgres")]
            slices: slices::SliceCommit::default(),
        }
    }

    /// Sets the position of the commit's audit record.
    pub(crate) fn placed(self, position: u64) -> WriteBatch {
        WriteBatch { position, ..self }
    }

    /// The position of the audit record that entries of this batch become a part of.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Sets whether the disk is short of space: then the write batch accepts no new data of
    /// tenants.
    pub(crate) fn on_disk(self, is_short: bool) -> WriteBatch {
        WriteBatch { is_short, ..self }
    }

    /// Refuses new data of a client when the disk is short of space. Operators and the host itself
    /// may still write.
    pub(crate) fn has_space_for(&self, actor: Actor) -> Result<(), Error> {
        match actor {
            Actor::Key(_) if self.is_short => Err(Error::NoSpace),
            Actor::Key(_) | Actor::Operator | Actor::System => Ok(()),
        }
    }

    /// Refuses a request of a prepaid workspace, which needs an intent row first, when the disk is
    /// short of space.
    pub(crate) fn has_space_for_request(&self) -> Result<(), Error> {
        if self.is_short { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Number of bytes of encrypted values in this write batch.
    pub(crate) fn value_bytes(&self) -> usize {
        self.vaults.bytes
    }

    /// How often something was changed in this batch that hosts keep in memory: a record, the header or a vault.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the embedded engine has one host"))]
    pub(crate) fn kept_changes(&self) -> usize {
        self.record_changes + self.vaults.changes
    }

    /// Sets the host of the commit's chain.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_host(self, host: SliceHost) -> WriteBatch {
        WriteBatch { host: Some(host), ..self }
    }

    /// Sets the guards that the transaction holds.
    #[cfg(feature = "postgres")]
    pub(crate) fn holding(self, held: BTreeSet<Guard>) -> WriteBatch {
        WriteBatch { held: Some(held), ..self }
    }

    /// An empty batch of the same group over another view, for a transaction with these guards.
    #[cfg(test)]
    pub(crate) fn anew(&self, view: VaultSnapshot, held: BTreeSet<Guard>) -> WriteBatch {
        let WriteBatch { is_short, position, now_ms, .. } = *self;
        WriteBatch { held: Some(held), is_short, position, ..WriteBatch::new(view, now_ms) }
    }

    /// The same batch over a view that has every row.
    #[cfg(test)]
    pub(crate) fn over(self, view: VaultSnapshot) -> WriteBatch {
        WriteBatch { view, ..self }
    }

    /// The commit with all changes, and what follows from it.
    pub(crate) fn finish(self) -> (Commit, Effects) {
        let (vaults, sums, near) = self.vaults.finish(&self.view);
        let commit =
            Commit { at_ms: self.now_ms, rows: self.rows, vaults, entries: self.entries, usage: self.usage };
        let effects = Effects {
            records: self.records,
            changes_header: self.changes_header,
            #[cfg(feature = "postgres")]
            vaults: crate::vault::vaults_of(&commit.vaults),
            sums,
            near,
        };
        (commit, effects)
    }

    /// Checks that the transaction holds a guard. Every write to rows is preceded by this.
    fn hold(&self, guard: Guard) -> Result<(), Gap> {
        let Some(held) = &self.held else { return Ok(()) };
        let is_held = held.contains(&guard) || guard == Guard::Header && held.contains(&Guard::Store);
        if is_held { Ok(()) } else { Err(Gap::unguarded(guard)) }
    }

    /// Checks that the transaction holds these guards, before the first write with one of them: what is
    /// not held is found at once.
    fn hold_all(&self, guards: impl IntoIterator<Item = Guard>) -> Result<(), Gap> {
        all(guards.into_iter().map(|guard| self.hold(guard))).map(drop)
    }

    pub(crate) fn create_workspace(&mut self, actor: Actor, new: &NewWorkspace) -> Result<Workspace, Gap> {
        self.check_free(&NameKey::Workspace(new.name.clone()), &new.name)?;
        let workspace = Workspace {
            id: WorkspaceId::random()?,
            name: new.name.clone(),
            created_at_ms: self.now_ms,
            programme: new.programme,
            vault_writes: new.vault_writes,
            credit: Credit::Unlimited,
        };
        let owner = Member {
            id: MemberId::random()?,
            name: owner_name(),
            workspace: workspace.id,
            role: MemberRole::Admin,
            created_at_ms: self.now_ms,
        };
        self.audit(
            actor,
            AuditAction::WorkspaceCreated {
                id: workspace.id,
                name: workspace.name.clone(),
                programme: workspace.programme,
                vault_writes: workspace.vault_writes,
            },
        );
        // No other transaction knows the ids, so the guard of names is enough.
        self.put_record(Guard::Store, Record::Workspace(Arc::new(workspace.clone())))?;
        self.put_new_member(Guard::Store, actor, owner)?;
        Ok(workspace)
    }

    pub(crate) fn set_workspace(
        &mut self,
        actor: Actor,
        id: WorkspaceId,
        change: WorkspaceChange,
    ) -> Result<Workspace, Gap> {
        let mut workspace = Workspace::clone(&*self.workspace(id)?);
        workspace.programme = change.programme.unwrap_or(workspace.programme);
        workspace.vault_writes = change.vault_writes.unwrap_or(workspace.vault_writes);
        let (programme, vault_writes) = (workspace.programme, workspace.vault_writes);
        self.audit(actor, AuditAction::WorkspaceChanged { id, programme, vault_writes });
        self.put_workspace(&workspace)?;
        Ok(workspace)
    }

    pub(crate) fn create_member(&mut self, actor: Actor, new: &NewMember) -> Result<Member, Gap> {
        self.workspace(new.workspace)?;
        self.check_free(&NameKey::Member(new.workspace, new.name.clone()), &new.name)?;
        let member = Member {
            id: MemberId::random()?,
            name: new.name.clone(),
            workspace: new.workspace,
            role: new.role,
            created_at_ms: self.now_ms,
        };
        self.put_new_member(Guard::Workspace(new.workspace), actor, member.clone())?;
        Ok(member)
    }

    pub(crate) fn set_member_role(
        &mut self,
        actor: Actor,
        id: MemberId,
        role: MemberRole,
    ) -> Result<Member, Gap> {
        let member = Member { role, ..Member::clone(&*self.member(id)?) };
        self.audit(actor, AuditAction::MemberRoleChanged { id, role });
        let guard = Guard::Workspace(member.workspace);
        self.put_record(guard, Record::Member(Arc::new(member.clone())))?;
        Ok(member)
    }

    pub(crate) fn create_intern(&mut self, actor: Actor, new: &NewIntern) -> Result<Intern, Gap> {
        let created_by = self.member_of(new.workspace, new.created_by)?;
        self.check_free(&NameKey::Intern(new.workspace, new.name.clone()), &new.name)?;
        let intern = Intern {
            id: InternId::random()?,
            name: new.name.clone(),
            workspace: new.workspace,
            created_by,
            created_at_ms: self.now_ms,
        };
        self.audit(
            actor,
            AuditAction::InternCreated {
                id: intern.id,
                name: intern.name.clone(),
                workspace: intern.workspace,
                created_by,
            },
        );
        self.put_record(Guard::Workspace(new.workspace), Record::Intern(Arc::new(intern.clone())))?;
        Ok(intern)
    }

    pub(crate) fn audit(&mut self, actor: Actor, action: AuditAction) {
        self.entries.push(AuditEntry { actor, action });
    }

    /// Adds audit entries of events that changed no rows, such as releases and damage.
    pub(crate) fn record(&mut self, entries: impl Iterator<Item = AuditEntry>) {
        self.entries.extend(entries);
    }

    /// Encodes and stages a row of the keyspace `keys` that is no record.
    pub(crate) fn put_row<T: serde::Serialize>(
        &mut self,
        guard: Guard,
        key: Vec<u8>,
        row: &T,
    ) -> Result<(), Gap> {
        self.hold(guard)?;
        self.stage_row(key, row);
        Ok(())
    }

    fn stage_row<T: serde::Serialize>(&mut self, key: Vec<u8>, row: &T) {
        let value = rows::encode(self.view.keys(), KEYS, &key, row);
        self.rows.insert(key, Some(value));
    }

    pub(crate) fn drop_row(&mut self, guard: Guard, key: Vec<u8>) -> Result<(), Gap> {
        self.hold(guard)?;
        self.rows.insert(key, None);
        Ok(())
    }

    /// Stages a record: its row, and what the rules after it see.
    fn put_record(&mut self, guard: Guard, record: Record) -> Result<(), Gap> {
        self.hold(guard)?;
        let id = record.id();
        let key = id.row_key();
        let row = record.encode(self.view.keys(), &key);
        self.rows.insert(key, Some(row));
        self.records.insert(id, Some(record));
        self.record_changes += 1;
        Ok(())
    }

    fn drop_record(&mut self, guard: Guard, id: RecordId) -> Result<(), Gap> {
        self.drop_row(guard, id.row_key())?;
        self.records.insert(id, None);
        self.record_changes += 1;
        Ok(())
    }

    fn put_workspace(&mut self, workspace: &Workspace) -> Result<(), Gap> {
        let guard = Guard::Workspace(workspace.id);
        self.put_record(guard, Record::Workspace(Arc::new(workspace.clone())))
    }

    fn put_new_member(&mut self, guard: Guard, actor: Actor, member: Member) -> Result<(), Gap> {
        let Member { id, workspace, role, .. } = member;
        self.audit(actor, AuditAction::MemberCreated { id, name: member.name.clone(), workspace, role });
        self.put_record(guard, Record::Member(Arc::new(member)))
    }

    /// A record as of this write batch.
    fn record_of(&self, id: RecordId) -> Result<Option<Record>, Gap> {
        match self.records.get(&id) {
            Some(changed) => Ok(changed.clone()),
            None => self.view.record(id),
        }
    }

    /// The record of a name as of this write batch. Names do not change.
    fn named(&self, name: &NameKey) -> Result<Option<RecordId>, Gap> {
        let mut written = self.records.values().flatten();
        if let Some(written) = written.find(|record| record.is_named(name)) {
            return Ok(Some(written.id()));
        }
        let is_kept = |id: &RecordId| !matches!(self.records.get(id), Some(None));
        Ok(self.view.named(name)?.filter(is_kept))
    }

    /// The records of one kind that belong to an owner, as of this write batch. Owners do not
    /// change.
    fn owned_by(&self, kind: RecordKind, owner: RecordId) -> Result<BTreeSet<RecordId>, Gap> {
        let mut owned: BTreeSet<RecordId> = self.view.owned_by(kind, owner)?.into_iter().collect();
        for (id, changed) in &self.records {
            match changed {
                Some(record) if record.is_owned(kind, owner) => drop(owned.insert(*id)),
                Some(_) => {}
                None => drop(owned.remove(id)),
            }
        }
        Ok(owned)
    }

    fn check_free(&self, key: &NameKey, name: &Name) -> Result<(), Gap> {
        match self.named(key)? {
            Some(_) => Err(Error::NameTaken { name: name.clone() }.into()),
            None => Ok(()),
        }
    }

    fn workspace(&self, id: WorkspaceId) -> Result<Arc<Workspace>, Gap> {
        match self.record_of(RecordId::Workspace(id))? {
            Some(Record::Workspace(workspace)) => Ok(workspace),
            _ => Err(LookupError::not_found(RecordKind::Workspace, id).into()),
        }
    }

    fn member(&self, id: MemberId) -> Result<Arc<Member>, Gap> {
        match self.record_of(RecordId::Member(id))? {
            Some(Record::Member(member)) => Ok(member),
            _ => Err(LookupError::not_found(RecordKind::Member, id).into()),
        }
    }

    fn intern(&self, id: InternId) -> Result<Arc<Intern>, Gap> {
        match self.record_of(RecordId::Intern(id))? {
            Some(Record::Intern(intern)) => Ok(intern),
            _ => Err(LookupError::not_found(RecordKind::Intern, id).into()),
        }
    }

    /// The given member, which must belong to this workspace; without one, the workspace's owner.
    fn member_of(&self, workspace: WorkspaceId, member: Option<MemberId>) -> Result<MemberId, Gap> {
        self.workspace(workspace)?;
        let Some(id) = member else { return self.owner_of(workspace) };
        if self.member(id)?.workspace == workspace {
            Ok(id)
        } else {
            Err(Error::OtherWorkspace { owner: "member" }.into())
        }
    }

    /// The member `owner` of a workspace.
    fn owner_of(&self, workspace: WorkspaceId) -> Result<MemberId, Gap> {
        match self.named(&NameKey::Member(workspace, owner_name()))? {
            Some(RecordId::Member(id)) => Ok(id),
            _ => Err(LookupError::not_found(RecordKind::Member, OWNER).into()),
        }
    }

    fn check_intern_of(&self, workspace: WorkspaceId, id: InternId) -> Result<(), Gap> {
        self.workspace(workspace)?;
        let intern = self.intern(id)?;
        if intern.workspace == workspace {
            Ok(())
        } else {
            Err(Error::OtherWorkspace { owner: "intern" }.into())
        }
    }
}

#[expect(clippy::expect_used, reason = "a fixed word that follows the rules for names")]
fn owner_name() -> Name {
    Name::parse(OWNER).expect("`owner` is a name")
}
