//! `/v1/keys`: a provisioning key lists, creates, changes and deletes the inference keys of its
//! workspace. The keys it creates reach no more than its own member does. It cannot create, see or
//! change provisioning keys: a stolen provisioning key can be revoked and has no successor.

mod document;
mod input;

use std::time::Duration;

use cofferdam_store::{
    Actor, ApiKey, Error, KeyChange, KeyCounts, KeyId, KeyOwner, KeySpend, LimitsChange, NewKey, OwnedKey,
    QueuePermit, Store, WorkspaceId,
};
use document::{Created, Deleted, KeyDocument};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use input::{CreateKeyBody, Patch};
use tokio::time::sleep;

use super::inference::plain_body;
use super::query::{PageWindow, flag};
use super::store_wait;
use crate::access::{manages, manages_intern, manages_member};
use crate::call::Call;
use crate::fault::{Fault, FieldError};
use crate::limits::rate::key_changes_quota;
use crate::reply::answer::ResponseBody;
use crate::reply::{DataDocument, PageDocument, document};

/// Live inference keys in one workspace. Every one of them is on some page of the list.
const KEYS_MAX: usize = 10_000;
/// Inference keys in one workspace, with revoked keys, which stay in the store.
const KEYS_KEPT_MAX: usize = 10 * KEYS_MAX;
/// How often a change of limits is tried that meets other ones of the same key.
const CHANGE_TRIES: u32 = 5;
/// The pause between two of these tries.
const CHANGE_PAUSE: Duration = Duration::from_millis(100);
/// The maximum length of a body, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Answers `/v1/keys`: lists keys or creates one.
pub(crate) async fn all(call: &Call<'_>, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    if call.head.method == Method::POST { create(call, body).await } else { list(call).await }
}

/// Answers `/v1/keys/{id}`.
pub(crate) async fn one(
    call: &Call<'_>,
    id: &str,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let managed = managed(call, id).await?;
    let key = managed.key();
    match call.head.method {
        Method::PATCH => change(call, key, body).await,
        Method::DELETE => delete(call, key).await,
        _ => shown(&call.app.store, key).await,
    }
}

/// Lists keys, newest first, as in OpenRouter's API.
async fn list(call: &Call<'_>) -> Result<Response<ResponseBody>, Fault> {
    let query = call.head.uri.query().unwrap_or_default();
    let PageWindow { offset, limit } = PageWindow::parse(query).map_err(Fault::Flawed)?;
    let disabled_too = flag(query, "include_disabled").map_err(Fault::Flawed)?;
    let workspace = call.principal.key().workspace.ok_or(Fault::InvalidKey)?;
    let is_wanted = |key: &OwnedKey| manages(&call.principal, key) && (disabled_too || !key.key().disabled);
    let store = &call.app.store;
    let page = store.keys_of(workspace, is_wanted, offset, limit).await.map_err(Fault::unread)?;
    let keys: Vec<ApiKey> = page.entries.iter().map(|owned| owned.key().clone()).collect();
    let spends = store.key_spends(keys.clone()).await.map_err(Fault::unread)?;
    let data: Vec<KeyDocument> =
        keys.iter().zip(&spends).map(|(key, spend)| KeyDocument::of(key, spend)).collect();
    Ok(document(&PageDocument { data, has_more: page.has_more }))
}

/// The document of one key.
async fn shown(store: &Store, key: &ApiKey) -> Result<Response<ResponseBody>, Fault> {
    let data = KeyDocument::of(key, &store.spend_of(key).await.map_err(Fault::unread)?);
    Ok(document(&DataDocument { data }))
}

async fn create(call: &Call<'_>, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    count_change(call)?;
    // Keys without a workspace were already refused by the access check.
    let workspace = call.principal.key().workspace.ok_or(Fault::InvalidKey)?;
    // The body and its share of the memory are dropped before the wait for the store.
    let wanted = {
        let mut share = call.app.bodies.share(call.principal.key().id);
        CreateKeyBody::parse(&plain_body(call, body, BODY_BYTES_MAX, &mut share).await?)
            .map_err(Fault::Flawed)?
    };
    owner(call, workspace, &wanted).await?;
    let store = &call.app.store;
    let KeyCounts { live, kept } = store.count_keys(workspace).await.map_err(Fault::unread)?;
    if live >= KEYS_MAX || kept >= KEYS_KEPT_MAX {
        return Err(Fault::TooManyKeys);
    }
    let permit = permit(call).await?;
    let owner = owner(call, workspace, &wanted).await?;
    let CreateKeyBody { name, limits, expires_at_ms, .. } = wanted;
    let new = NewKey { owner, name: Some(name), expires_at_ms, limits };
    let issued = store_wait::durable(store.issue_key_at(permit, actor(call), new)).await.map_err(failed)?;
    let key = String::from_utf8_lossy(issued.token.expose());
    let mut response =
        document(&Created { data: KeyDocument::of(&issued.key, &KeySpend::default()), key: &key });
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// The owner of a new key: the intern or member that the request names, else the provisioning key's
/// own member.
async fn owner(call: &Call<'_>, workspace: WorkspaceId, wanted: &CreateKeyBody) -> Result<KeyOwner, Fault> {
    let store = &call.app.store;
    // The role of its member may have changed while the body arrived, or during the wait for a permit.
    let principal = &call.renewed().await?;
    if let Some(id) = wanted.intern {
        let found = store.intern(id).await.map_err(Fault::unread)?;
        return match found.filter(|intern| manages_intern(principal, intern)) {
            Some(intern) => Ok(KeyOwner::Intern { workspace, intern: intern.id }),
            None => Err(unmanaged("intern_id", "must be an intern that this key's member sees")),
        };
    }
    let Some(id) = wanted.member else {
        return Ok(KeyOwner::Member { workspace, member: principal.key().member });
    };
    let found = store.member(id).await.map_err(Fault::unread)?;
    match found.filter(|member| manages_member(principal, member)) {
        Some(member) => Ok(KeyOwner::Member { workspace, member: Some(member.id) }),
        None => Err(unmanaged("member_id", "must be a member that this key may act for")),
    }
}

fn unmanaged(path: &'static str, reason: &'static str) -> Fault {
    Fault::Flawed(FieldError::at(path, reason))
}

async fn change(call: &Call<'_>, key: &ApiKey, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    count_change(call)?;
    let wanted = {
        let mut share = call.app.bodies.share(call.principal.key().id);
        Patch::parse(&plain_body(call, body, BODY_BYTES_MAX, &mut share).await?).map_err(Fault::Flawed)?
    };
    // Whether the caller manages the key may have changed while the body arrived.
    managed(call, key.id.as_str()).await?;
    let (store, id) = (&call.app.store, key.id);
    let mut tries = 1..CHANGE_TRIES;
    let changed = loop {
        let limits = limits_change(store, id, &wanted).await?;
        let Patch { name, disabled, .. } = &wanted;
        let change = KeyChange { name: name.clone().map(Some), disabled: *disabled, limits };
        let permit = permit(call).await?;
        managed(call, id.as_str()).await?;
        match store_wait::durable(store.set_key_at(permit, actor(call), id, change)).await {
            // With a database, this host learns of a change by another one a moment later.
            Err(Error::LimitsChanged) if tries.next().is_some() => sleep(CHANGE_PAUSE).await,
            changed => break changed.map_err(failed)?,
        }
    };
    shown(store, &changed).await
}

/// The change of a key's limits that a request asks for, from the limits that the key has now.
async fn limits_change(store: &Store, id: KeyId, wanted: &Patch) -> Result<Option<LimitsChange>, Fault> {
    if !wanted.changes_limits() {
        return Ok(None);
    }
    let now = store.key(id).await.map_err(Fault::unread)?.ok_or(Fault::NotFound)?;
    let spend = store.spend_of(now.key()).await.map_err(Fault::unread)?;
    wanted.limits(&spend, now.key()).map(Some).map_err(Fault::Flawed)
}

async fn delete(call: &Call<'_>, key: &ApiKey) -> Result<Response<ResponseBody>, Fault> {
    count_change(call)?;
    let (store, id) = (&call.app.store, key.id);
    let permit = permit(call).await?;
    managed(call, id.as_str()).await?;
    store_wait::durable(store.revoke_key_at(permit, actor(call), id)).await.map_err(failed)?;
    Ok(document(&Deleted { deleted: true }))
}

/// Waits for a permit of the writer's queue. The caller may have lost the right to the change meanwhile,
/// so check it again with the permit.
async fn permit(call: &Call<'_>) -> Result<QueuePermit, Fault> {
    store_wait::permit(call.app.store.queue_permit()).await.map_err(failed)
}

/// The fault for a change that was not made, or may not have been made.
fn failed(error: Error) -> Fault {
    let fault = match error {
        // The key, or its owner, was deleted after it was looked up.
        Error::Lookup(_) | Error::KeyRevoked => return Fault::NotFound,
        Error::NoSpace => return Fault::StoreFull,
        Error::Busy | Error::NoContact | Error::LimitsChanged => return Fault::Busy,
        Error::AlreadyExpired => {
            return Fault::Flawed(FieldError::at("expires_at", "must lie in the future"));
        }
        Error::TimedOut => return Fault::OutcomeUnknown,
        Error::WriteFailed => Fault::OutcomeUnknown,
        _ => Fault::Internal,
    };
    tracing::error!(%error, "a key could not be changed");
    fault
}

/// The key with this id, if the caller manages it. A malformed id is reported as not found.
async fn managed(call: &Call<'_>, id: &str) -> Result<OwnedKey, Fault> {
    let id = id.parse().map_err(|_| Fault::NotFound)?;
    let key = call.app.store.key(id).await.map_err(Fault::unread)?;
    let principal = call.renewed().await?;
    let managed = key.filter(|key| key.key().revoked_at_ms.is_none() && manages(&principal, key));
    managed.ok_or(Fault::NotFound)
}

fn count_change(call: &Call<'_>) -> Result<(), Fault> {
    let Some(quota) = key_changes_quota() else { return Ok(()) };
    let taken = call.app.rates.key_changes.take(call.principal.key().id, quota);
    taken.map(drop).map_err(|too_often| Fault::TooManyChanges { wait_s: too_often.wait_s })
}

fn actor(call: &Call<'_>) -> Actor {
    Actor::Key(call.principal.key().id)
}
