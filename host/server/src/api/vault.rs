//! `/v1/vault/...`: secrets bound to host names. A request passes the gates; then its path, query
//! and headers are checked, then its body is read, a write passes the gates again, and only then
//! does the store work. Values of secrets are never returned, and nothing of a request is logged.

mod document;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gate;
mod input;

use cofferdam_store::{Actor, Error, NewSecret, Pending, SecretName};
use document::{SecretDocument, listing};
use gate::{VaultOperation, VaultPermit};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use input::{COPY_BYTES_MAX, PUT_BYTES_MAX, Put};

use super::query::PageWindow;
use super::store_wait;
use crate::body;
use crate::call::Call;
use crate::fault::{Fault, FieldError};
use crate::reply::answer::ResponseBody;
use crate::reply::{DataDocument, document};
use crate::route::{VaultRoute, decode};

pub(crate) async fn answer(
    call: &Call<'_>,
    route: &VaultRoute,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let permit = gate::pass(call, route).await?;
    let answered = operate(call, &permit, body).await;
    let refusal = answered.as_ref().err().map(|fault| fault.line().0);
    call.app.metrics.count_vault(permit.operation.name(), refusal);
    answered
}

async fn operate(
    call: &Call<'_>,
    permit: &VaultPermit<'_>,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    match permit.operation {
        VaultOperation::List | VaultOperation::Effective => read(call, permit).await,
        VaultOperation::Put(written) => put(call, permit, name(written)?, body).await,
        VaultOperation::Delete(written) => delete(call, permit, name(written)?, body).await,
        VaultOperation::Copy => copy(call, permit, body).await,
    }
}

async fn read(call: &Call<'_>, permit: &VaultPermit<'_>) -> Result<Response<ResponseBody>, Fault> {
    let PageWindow { offset, limit } =
        PageWindow::parse(call.head.uri.query().unwrap_or_default()).map_err(invalid)?;
    let store = &call.app.store;
    if permit.operation == VaultOperation::Effective {
        let page = store.effective_secrets(permit.intern()?, offset, limit).await.map_err(failed)?;
        return Ok(document(&listing(&page)));
    }
    let page = store.list_secrets(permit.vault()?, offset, limit).await.map_err(failed)?;
    Ok(document(&listing(&page)))
}

async fn put(
    call: &Call<'_>,
    permit: &VaultPermit<'_>,
    name: SecretName,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let vault = permit.vault()?;
    input::check_headers(&call.head.headers)?;
    let mut share = call.app.bodies.share(call.principal.key().id);
    let read = body::read_secret(body, call.body_limits(PUT_BYTES_MAX), &mut share).await;
    let whole = whole(call, permit, read).await?;
    let Put { hosts, value } = Put::parse(&whole)?;
    // Wipe the body before waiting for the store.
    drop(whole);
    drop(share);
    let new = NewSecret { vault, name, hosts, value };
    let store = &call.app.store;
    let stored =
        commit(call, permit, store.queue_permit(), |queued| store.put_secret(queued, actor(call), new))
            .await?;
    Ok(document(&DataDocument { data: SecretDocument::from(&stored) }))
}

async fn delete(
    call: &Call<'_>,
    permit: &VaultPermit<'_>,
    name: SecretName,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let vault = permit.vault()?;
    if !whole(call, permit, body::is_empty(body, call.body_limits(PUT_BYTES_MAX)).await).await? {
        return Err(invalid(FieldError::at("body", "must be empty")));
    }
    let store = &call.app.store;
    commit(call, permit, store.queue_permit(), |queued| {
        store.delete_secret(queued, actor(call), vault, name)
    })
    .await?;
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

async fn copy(
    call: &Call<'_>,
    permit: &VaultPermit<'_>,
    body: &mut Incoming,
) -> Result<Response<ResponseBody>, Fault> {
    let intern = permit.intern()?;
    input::check_headers(&call.head.headers)?;
    let mut share = call.app.bodies.share(call.principal.key().id);
    let read = body::read(body, call.body_limits(COPY_BYTES_MAX), &mut share).await;
    let whole = whole(call, permit, read).await?;
    let names = input::names(&whole)?;
    let store = &call.app.store;
    let copied = |queued| store.copy_secrets(queued, actor(call), intern, names);
    let copies = commit(call, permit, store.copy_permit(permit.workspace), copied).await?;
    let data: Vec<SecretDocument<'_>> = copies.iter().map(SecretDocument::from).collect();
    Ok(document(&DataDocument { data }))
}

/// Makes a change with the permit of the writer's queue that it waits for, and waits until it is
/// durable.
async fn commit<P, T>(
    call: &Call<'_>,
    permit: &VaultPermit<'_>,
    queued: impl Future<Output = Result<P, Error>>,
    change: impl FnOnce(P) -> Pending<T>,
) -> Result<T, Fault> {
    if call.app.store.is_stalled() {
        // The commit that is being written may never end.
        return Err(Fault::VaultTimedOut);
    }
    let queued = store_wait::permit(queued).await.map_err(failed)?;
    gate::pass_again(call, permit).await?;
    store_wait::durable(change(queued)).await.map_err(failed)
}

/// The fault for an error of the store. The error itself is logged unless the request or a time
/// limit caused it.
fn failed(error: Error) -> Fault {
    let fault = match error {
        // The secret, the workspace or the intern was deleted after the gates were passed.
        Error::NoSuchSecret | Error::Lookup(_) => return Fault::NotFound,
        Error::NoSpace => return Fault::VaultUnavailable,
        Error::Unbound => return Fault::UnboundSecret,
        Error::Quota(exceeded) => return Fault::VaultFull(exceeded),
        Error::Busy => return Fault::VaultTooLate,
        // A host that does not have the root key in force loses contact within seconds.
        Error::NoContact | Error::OtherRootKey { .. } => return Fault::Busy,
        Error::TimedOut => return Fault::VaultTimedOut,
        Error::Damaged => Fault::VaultDamaged,
        _ => Fault::VaultFailed,
    };
    tracing::error!(%error, "the vault failed");
    fault
}

/// The secret name in a path.
fn name(written: &str) -> Result<SecretName, Fault> {
    let name = decode(written).and_then(|name| name.parse().ok());
    name.ok_or_else(|| invalid(FieldError::at("name", "must be a name of a secret")))
}

fn actor(call: &Call<'_>) -> Actor {
    Actor::Key(call.principal.key().id)
}

/// The result of reading a body, if the write still passes the gates. A malformed body becomes the
/// vault's own fault.
async fn whole<T>(call: &Call<'_>, permit: &VaultPermit<'_>, read: Result<T, Fault>) -> Result<T, Fault> {
    let whole = read.map_err(|fault| match fault {
        Fault::Malformed(_) => invalid(FieldError::at("body", "is broken")),
        fault => fault,
    })?;
    gate::pass_again(call, permit).await?;
    Ok(whole)
}

fn invalid(flaw: FieldError) -> Fault {
    Fault::InvalidVaultRequest(flaw)
}
