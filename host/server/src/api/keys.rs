//! `/v1/keys`: a provisioning key lists, creates, changes and deletes the inference keys of its
//! workspace. The keys it creates reach no more than its own member does. It cannot create, see or
//! change provisioning keys: a stolen provisioning key can be revoked and has no successor.

mod document;
mod input;

use std::sync::Arc;

use cofferdam_store::{
    Actor, ApiKey, Directory, Error, KeyChange, KeyOwner, NewKey, Pending, QueuePermit, Store, WorkspaceId,
};
use document::{Created, Deleted, KeyDocument};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use input::{CreateKeyBody, Patch};

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
/// The maximum length of a body, in bytes.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Answers `/v1/keys`: lists keys or creates one.
pub(crate) async fn all(call: &Call<'_>, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    if call.head.method == Method::POST { create(call, body).await } else { list(call) }
}

/// Answers `/v1/keys/{id}`.
pub(crate) async fn one(
    call: &Call<'_>,
    id: &str,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let directory = call.app.store.directory();
    let key = managed(call, &directory, id)?;
    match call.head.method {
        Method::PATCH => change(call, key, body).await,
        Method::DELETE => delete(call, key).await,
        _ => Ok(document(&DataDocument { data: KeyDocument::of(&call.app.store, key) })),
    }
}

/// Lists keys, newest first, as in OpenRouter's API.
fn list(call: &Call<'_>) -> Result<Response<ResponseBody>, Fault> {
    let query = call.head.uri.query().unwrap_or_default();
    let PageWindow { offset, limit } = PageWindow::parse(query).map_err(Fault::Flawed)?;
    let disabled_too = flag(query, "include_disabled").map_err(Fault::Flawed)?;
    let directory = call.app.store.directory();
    let keys = directory.keys().into_iter().rev();
    let mut keys =
        keys.filter(|key| is_there(call, &directory, key) && (disabled_too || !key.disabled)).skip(offset);
    let data = keys.by_ref().take(limit).map(|key| KeyDocument::of(&call.app.store, key)).collect();
    Ok(document(&PageDocument { data, has_more: keys.next().is_some() }))
}

async fn create(call: &Call<'_>, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    count_change(call)?;
    // Keys without a workspace were already refused by the access check. This key has lost its
    // workspace since, so it is no longer valid.
    let workspace = call.principal.workspace().ok_or(Fault::InvalidKey)?;
    // The body and its share of the memory are dropped before the wait for the store.
    let wanted = {
        let mut share = call.app.bodies.share(call.principal.key_id());
        CreateKeyBody::parse(&plain_body(call, body, BODY_BYTES_MAX, &mut share).await?)
            .map_err(Fault::Flawed)?
    };
    let directory = call.app.store.directory();
    let owner = owner(call, &directory, workspace, &wanted).map_err(Fault::Flawed)?;
    let mut kept = directory.keys();
    kept.retain(|key| key.workspace == Some(workspace));
    let live = kept.iter().filter(|key| key.revoked_at_ms.is_none()).count();
    if live >= KEYS_MAX || kept.len() >= KEYS_KEPT_MAX {
        return Err(Fault::TooManyKeys);
    }
    let CreateKeyBody { name, limits, expires_at_ms, .. } = wanted;
    let new = NewKey { owner, name: Some(name), expires_at_ms, limits };
    let store = &call.app.store;
    let issued = commit(store, |place| store.issue_key_at(place, actor(call), new)).await?;
    let key = String::from_utf8_lossy(issued.token.expose());
    let mut response = document(&Created { data: KeyDocument::of(store, &issued.key), key: &key });
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// The owner of a new key: the intern or member that the request names, else the provisioning key's
/// own member.
fn owner(
    call: &Call<'_>,
    directory: &Directory,
    workspace: WorkspaceId,
    wanted: &CreateKeyBody,
) -> Result<KeyOwner, FieldError> {
    let principal = &call.principal;
    match (wanted.member, wanted.intern) {
        (_, Some(intern)) if manages_intern(principal, directory, intern) => {
            Ok(KeyOwner::Intern { workspace, intern })
        }
        (_, Some(_)) => Err(FieldError::at("intern_id", "must be an intern that this key's member sees")),
        (Some(member), None) if manages_member(principal, directory, member) => {
            Ok(KeyOwner::Member { workspace, member: Some(member) })
        }
        (Some(_), None) => Err(FieldError::at("member_id", "must be a member that this key may act for")),
        (None, None) => Ok(KeyOwner::Member { workspace, member: principal.member() }),
    }
}

async fn change(call: &Call<'_>, key: &ApiKey, body: &mut Incoming) -> Result<Response<ResponseBody>, Fault> {
    count_change(call)?;
    let wanted = {
        let mut share = call.app.bodies.share(call.principal.key_id());
        Patch::parse(&plain_body(call, body, BODY_BYTES_MAX, &mut share).await?).map_err(Fault::Flawed)?
    };
    let store = &call.app.store;
    // Reading the body took time, so the change is applied to the key as it is now.
    let directory = store.directory();
    let key = directory.key(key.id).ok_or(Fault::NotFound)?;
    let limits = wanted.limits(store, key).map_err(Fault::Flawed)?;
    let Patch { name, disabled, .. } = wanted;
    let change = KeyChange { name: name.map(Some), disabled, limits };
    let id = key.id;
    let changed = commit(store, |place| store.set_key_at(place, actor(call), id, change)).await?;
    Ok(document(&DataDocument { data: KeyDocument::of(store, &changed) }))
}

async fn delete(call: &Call<'_>, key: &ApiKey) -> Result<Response<ResponseBody>, Fault> {
    count_change(call)?;
    let (store, id) = (&call.app.store, key.id);
    commit(store, |place| store.revoke_key_at(place, actor(call), id)).await?;
    Ok(document(&Deleted { deleted: true }))
}

/// Makes a change and waits until it is durable.
async fn commit<T>(store: &Store, change: impl FnOnce(QueuePermit) -> Pending<T>) -> Result<T, Fault> {
    store_wait::commit(store, change).await.map_err(|error| {
        let fault = match error {
            // The key, or its owner, was deleted after it was looked up.
            Error::Lookup(_) | Error::KeyRevoked => return Fault::NotFound,
            Error::NoSpace => return Fault::StoreFull,
            Error::Busy => return Fault::Busy,
            Error::AlreadyExpired => {
                return Fault::Flawed(FieldError::at("expires_at", "must lie in the future"));
            }
            Error::TimedOut => return Fault::OutcomeUnknown,
            Error::WriteFailed => Fault::OutcomeUnknown,
            _ => Fault::Internal,
        };
        tracing::error!(%error, "a key could not be changed");
        fault
    })
}

/// The key with this id, if the caller manages it. A malformed id is reported as not found.
fn managed<'d>(call: &Call<'_>, directory: &'d Arc<Directory>, id: &str) -> Result<&'d ApiKey, Fault> {
    let key = id.parse().ok().and_then(|id| directory.key(id));
    key.filter(|key| is_there(call, directory, key)).ok_or(Fault::NotFound)
}

fn is_there(call: &Call<'_>, directory: &Directory, key: &ApiKey) -> bool {
    key.revoked_at_ms.is_none() && manages(&call.principal, directory, key)
}

fn count_change(call: &Call<'_>) -> Result<(), Fault> {
    let Some(quota) = key_changes_quota() else { return Ok(()) };
    let taken = call.app.rates.key_changes.take(call.principal.key_id(), quota);
    taken.map(drop).map_err(|too_often| Fault::TooManyChanges { wait_s: too_often.wait_s })
}

fn actor(call: &Call<'_>) -> Actor {
    Actor::Key(call.principal.key_id())
}
