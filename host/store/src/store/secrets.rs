//! The vault, as the rest of the program uses it. Changes go through the writer. Reads run on
//! blocking threads, see the last commit and do not wait for the writer, apart from a release whose
//! audit record must be on the disk first. Reads and releases have a time limit, because a disk may
//! hang; callers limit their own wait for a change.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Store;
use super::copies::CopyPermit;
use super::engine::Engine;
use crate::audit::{Actor, AuditEntry};
use crate::changes::{WriteBatch, guarded};
use crate::error::{Error, QueueFull};
use crate::ids::{InternId, VaultId};
#[cfg(feature = "postgres")]
use crate::knowledge::Knowledge;
use crate::page::Page;
use crate::pending::{Pending, QueuePermit};
use crate::rows::Keyspace;
use crate::secret::{SecretMetadata, SecretName};
use crate::state::{Gap, Guard, Need};
use crate::vault::{
    BoundSecret, EffectiveSecret, NewSecret, Release, ReleaseError, ReleaseRequest, ReleaseScope,
    VaultSnapshot, list,
    release::{self, Decision},
    secret_key, vault_of_head,
};

/// The time limit for reading a page, for a release, and for each step of one that is recorded.
const STEP_TIME: Duration = Duration::from_secs(5);
/// How often a recorded release is decided where the secret changes meanwhile.
const RECORDED_TRIES_MAX: usize = 4;
/// Pages of secrets that are read at the same time. A read takes microseconds unless the disk hangs.
pub(super) const PAGE_READS_MAX: usize = 64;

impl Store {
    /// Creates or replaces a secret. A replaced secret keeps its creation date, and gets hosts if
    /// it had none.
    ///
    /// The answer is [`Error::Lookup`] when the workspace or intern does not exist,
    /// [`Error::Quota`], [`Error::NoSpace`], [`Error::Damaged`] when a row it depends on is
    /// damaged, or an error of every mutation.
    pub fn put_secret(&self, permit: QueuePermit, actor: Actor, new: NewSecret) -> Pending<SecretMetadata> {
        let vault = new.vault;
        let needs = secret(vault, &new.name);
        let quota = self.workspace_of_vault(vault).map(Guard::Quota);
        let guards: Vec<Guard> = quota.into_iter().chain([Guard::Vault(vault)]).collect();
        let put = guarded(guards, move |batch| batch.put_secret(actor, &new));
        self.enqueue(permit, put.reading(needs))
    }

    /// Deletes a secret. The answer is [`Error::NoSuchSecret`] for a missing or a legacy secret,
    /// otherwise as for [`Store::put_secret`].
    pub fn delete_secret(
        &self,
        permit: QueuePermit,
        actor: Actor,
        vault: VaultId,
        name: SecretName,
    ) -> Pending<()> {
        let needs = secret(vault, &name);
        let delete = guarded([Guard::Vault(vault)], move |batch| batch.delete_secret(actor, vault, &name));
        self.enqueue(permit, delete.reading(needs))
    }

    /// Copies secrets with their hosts from a workspace's vault into an intern's vault, all of them
    /// or none. Secrets of the same names are replaced. The answer has the copies in the order of
    /// `names`.
    ///
    /// The answer is [`Error::NoSuchSecret`] when one is missing, else [`Error::Unbound`] when one
    /// has no hosts, [`Error::OtherWorkspace`] for an intern of another workspace, otherwise as for
    /// [`Store::put_secret`].
    pub fn copy_secrets(
        &self,
        permit: CopyPermit,
        actor: Actor,
        intern: InternId,
        names: Vec<SecretName>,
    ) -> Pending<Vec<SecretMetadata>> {
        let CopyPermit { workspace, permit, turn } = permit;
        let [from, to] = [VaultId::Workspace(workspace), VaultId::Intern(intern)].map(Guard::Vault);
        let guards = [from, to, Guard::Quota(workspace)];
        let copy = move |batch: &mut WriteBatch| {
            // The turn is part of the change, so it ends with it.
            let _held = &turn;
            batch.copy_secrets(actor, workspace, intern, &names)
        };
        self.enqueue(permit, guarded(guards, copy))
    }

    /// The vaults that have or had secrets: that of the operator, then those of workspaces and those of interns,
    /// oldest first.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Engine`], [`Error::Closed`].
    pub async fn used_vaults(&self) -> Result<Vec<VaultId>, Error> {
        self.aside(|store| {
            let directory = store.directory();
            let place = |vault: VaultId| {
                let (kind, created_at_ms) = match vault {
                    VaultId::Operator => (0, 0),
                    VaultId::Workspace(id) => (1, directory.workspaces.get(&id)?.created_at_ms),
                    VaultId::Intern(id) => (2, directory.interns.get(&id)?.created_at_ms),
                };
                Some((kind, created_at_ms, vault))
            };
            let heads = store.view()?.head_keys()?;
            let mut vaults: Vec<_> =
                heads.iter().filter_map(|key| vault_of_head(key)).filter_map(place).collect();
            vaults.sort_unstable();
            Ok(vaults.into_iter().map(|(.., vault)| vault).collect())
        })
        .await
    }

    /// Lists secrets of a vault in the byte order of their names. Skips the first `offset`, returns
    /// at most `limit`.
    ///
    /// # Errors
    /// [`Error::Lookup`] when the intern does not exist; [`Error::Damaged`] when a row of this page
    /// is damaged; [`Error::Engine`], [`Error::Closed`], [`Error::TimedOut`].
    pub async fn list_secrets(
        &self,
        vault: VaultId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<SecretMetadata>, Error> {
        self.read_page(move |store| store.read(|view| list::secrets(view, vault, offset, limit))).await
    }

    /// Lists the secrets an intern can use: its own, and those of its workspace that have none of
    /// these names. Order, `offset` and `limit` as for [`Store::list_secrets`].
    ///
    /// # Errors
    /// As for [`Store::list_secrets`].
    pub async fn effective_secrets(
        &self,
        intern: InternId,
        offset: usize,
        limit: usize,
    ) -> Result<Page<EffectiveSecret>, Error> {
        self.read_page(move |store| store.read(|view| list::effective(view, intern, offset, limit))).await
    }

    /// Releases a secret's value for one host. An audit entry, also of a refusal, is handed to the
    /// writer without waiting: a kill of the process may lose those of the last second.
    ///
    /// # Errors
    /// See [`ReleaseError`]. [`ReleaseError::Busy`] when 4,096 audit entries wait.
    pub async fn release(&self, request: ReleaseRequest) -> Result<Release, ReleaseError> {
        self.check_running()?;
        let (scope, name) = (request.scope, request.secret.name.clone());
        let decide = move |view: &VaultSnapshot| request.decide(view);
        let decision = self.read_secret(scope, name, decide, |_| true).await?;
        self.hand_out(decision)
    }

    /// Like [`Store::release`], but returns `None` without an audit entry when there is no such
    /// secret that is bound to the host: for callers that then use another credential. Both are
    /// decided on one read of the row.
    ///
    /// # Errors
    /// As for [`Store::release`], except [`ReleaseError::Unavailable`].
    pub async fn release_if_bound(&self, request: ReleaseRequest) -> Result<Option<Release>, ReleaseError> {
        self.check_running()?;
        let (scope, name) = (request.scope, request.secret.name.clone());
        let decide = move |view: &VaultSnapshot| request.decide_if_bound(view);
        let decision = self.read_secret(scope, name, decide, Option::is_some).await?;
        decision.map(|decision| self.hand_out(decision)).transpose()
    }

    /// Like [`Store::release`], but the value is returned only after the audit record is on the
    /// disk. A secret that is deleted or replaced until then is not returned: what counts is decided
    /// and recorded anew. The permit for the writer's queue, each read and the commit have 5 s each.
    ///
    /// # Errors
    /// As for [`Store::release`], and those of every mutation. [`ReleaseError::Busy`] for a secret that is
    /// replaced again and again.
    pub async fn release_recorded(&self, request: ReleaseRequest) -> Result<Release, ReleaseError> {
        for _ in 0..RECORDED_TRIES_MAX {
            let release = self.release_once_recorded(request.clone()).await?;
            let (now, version) = (request.clone(), release.version());
            let is_same = move |view: &VaultSnapshot| now.would_release(view, version);
            if self.read_secret(request.scope, request.secret.name.clone(), is_same, |_| true).await? {
                return Ok(release);
            }
        }
        Err(ReleaseError::Busy)
    }

    /// What was released when it was decided, after the audit record of that is on the disk.
    async fn release_once_recorded(&self, request: ReleaseRequest) -> Result<Release, ReleaseError> {
        let permit = within(self.queue_permit()).await?;
        let pending = self.aside(move |store| {
            let (entry, released) = store.read(|view| request.decide(view))?;
            let record = guarded([], move |batch| {
                batch.record(std::iter::once(entry.clone()));
                Ok(batch.position())
            });
            Ok::<_, Error>((store.enqueue(permit, record), released))
        });
        let (recorded, released) = within(pending).await?;
        let position = within(recorded).await?;
        released.map(|release| release.recorded(position))
    }

    /// Those of the secrets that [`Store::release`] would release. Writes no audit entry, because
    /// nothing is released or refused.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Engine`], [`Error::Closed`], [`Error::TimedOut`].
    pub async fn releasable(
        &self,
        secrets: Vec<(ReleaseScope, BoundSecret)>,
    ) -> Result<Vec<BoundSecret>, Error> {
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for (scope, secret) in secrets {
            let is_bound = |view: &VaultSnapshot| release::is_bound(view, scope, &secret);
            match self.in_memory(scope, &secret.name, is_bound, |is_bound| *is_bound)? {
                Some(true) => found.push(secret),
                Some(false) => {}
                None => others.push((scope, secret)),
            }
        }
        if others.is_empty() {
            return Ok(found);
        }
        let read = self.aside(move |store| {
            let is_bound = |(scope, secret): &(ReleaseScope, BoundSecret)| {
                store.read_one(*scope, &secret.name, |view| release::is_bound(view, *scope, secret))
            };
            let read = others.into_iter().map(|it| Ok(is_bound(&it)?.then_some(it.1)));
            read.collect::<Result<Vec<_>, Error>>()
        });
        found.extend(within(read).await?.into_iter().flatten());
        Ok(found)
    }

    /// What `read` finds about one name: in memory, or aside. `is_used` tells whether that is a secret.
    async fn read_secret<T: Send + 'static>(
        &self,
        scope: ReleaseScope,
        name: SecretName,
        read: impl Fn(&VaultSnapshot) -> Result<T, Gap> + Send + 'static,
        is_used: impl Fn(&T) -> bool,
    ) -> Result<T, Error> {
        match self.in_memory(scope, &name, &read, is_used)? {
            Some(found) => Ok(found),
            None => within(self.aside(move |store| store.read_one(scope, &name, read))).await,
        }
    }

    /// What `read` finds about one name in rows that this host keeps in memory, where several hosts share
    /// the store; `None` where they have to be read. Without contact, no secret of a workspace or an intern
    /// is used.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "the embedded engine keeps no rows")
    )]
    fn in_memory<T>(
        &self,
        scope: ReleaseScope,
        name: &SecretName,
        read: impl Fn(&VaultSnapshot) -> Result<T, Gap>,
        is_used: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, Error> {
        match &self.0.engine {
            Engine::Fjall(_) => Ok(None),
            #[cfg(feature = "postgres")]
            Engine::Postgres(engine) => match engine.secrets()?.in_memory(scope, name, read)? {
                Some((found, Knowledge::Stale)) if scope != ReleaseScope::Operator && is_used(&found) => {
                    Err(Error::NoContact)
                }
                found => Ok(found.map(|(found, _)| found)),
            },
        }
    }

    /// What `read` finds about one name in the rows of the engine. Blocks its thread.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "all rows are in the engine's view")
    )]
    fn read_one<T>(
        &self,
        scope: ReleaseScope,
        name: &SecretName,
        read: impl Fn(&VaultSnapshot) -> Result<T, Gap>,
    ) -> Result<T, Error> {
        #[cfg(feature = "postgres")]
        if let Engine::Postgres(engine) = &self.0.engine {
            let found = engine.secrets()?.read(scope, name, read);
            self.report_damage();
            return found;
        }
        self.read(read)
    }

    fn check_running(&self) -> Result<(), Error> {
        if self.is_writable() { Ok(()) } else { Err(self.0.shared.refusal()) }
    }

    /// Returns the outcome once the audit entry is in the queue.
    fn hand_out(&self, (entry, released): Decision) -> Result<Release, ReleaseError> {
        self.0.queues.push_audit(entry).map_err(|QueueFull| ReleaseError::Busy)?;
        released
    }

    /// Reads a page of secrets aside, if a permit is free in time. A read whose caller has given up
    /// goes on and keeps its permit: a disk that hangs blocks a bounded number of threads.
    async fn read_page<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let reading = async {
            // The semaphore is never closed.
            let permits = Arc::clone(&self.0.page_reads).acquire_owned();
            let permit = permits.await.map_err(|_| Error::Closed)?;
            let read = self.aside(move |store| {
                let _permit = permit;
                read(store)
            });
            read.await
        };
        within(reading).await
    }

    /// Reads in one view, and adds an audit entry for damage that was found. Fails without contact: a
    /// database that was replaced by its standby may still answer.
    fn read<T>(&self, read: impl Fn(&VaultSnapshot) -> Result<T, Gap>) -> Result<T, Error> {
        self.0.shared.check_contact()?;
        #[cfg(test)]
        let result = crate::loaded::read(self.0.engine.state()?, &self.0.access, read);
        #[cfg(not(test))]
        let result = read(&self.view()?);
        self.report_damage();
        Ok(result?)
    }

    /// Adds audit entries for damage that was found.
    fn report_damage(&self) {
        for finding in self.0.access.damage.take_unreported() {
            // The damage is counted and logged already; with a full queue only the audit entry is
            // lost.
            self.0.queues.push_audit(AuditEntry::of_damage(finding)).unwrap_or_default();
        }
    }
}

/// What a change of one secret reads besides what belongs to its vault.
fn secret(vault: VaultId, name: &SecretName) -> impl Fn() -> Vec<Need> + Send + use<> {
    let key = secret_key(vault, name);
    move || vec![Need::Row(Keyspace::Meta, key.clone()), Need::Length(Keyspace::Values, key.clone())]
}

/// The time limit for one step of a request: the store usually takes microseconds.
async fn within<T, E: From<Error>>(step: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    timeout(STEP_TIME, step).await.unwrap_or_else(|_elapsed| Err(Error::TimedOut.into()))
}

#[cfg(test)]
mod tests;
