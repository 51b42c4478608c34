//! `GET /v1/credits`: the credit of the key's workspace and what it has spent.

use cofferdam_engine::cost::Amount;
use cofferdam_store::Error;
use http::Response;
use serde::Serialize;

use crate::call::Call;
use crate::fault::Fault;
use crate::reply::answer::ResponseBody;
use crate::reply::{DataDocument, document};

/// Clients subtract `total_usage` from `total_credits` and expect numbers. For a workspace without
/// a limit, `total_credits` is the largest amount that the ledger can count.
#[derive(Serialize)]
struct Credits {
    total_credits: Amount,
    total_usage: Amount,
    unlimited: bool,
}

pub(crate) async fn read(call: &Call<'_>) -> Result<Response<ResponseBody>, Fault> {
    let workspace = call.principal.workspace.as_ref().ok_or(Fault::NotFound)?;
    let balance = call.app.store.balance(workspace.id).await.map_err(|error| match error {
        // The workspace was deleted a moment ago, and its keys with it.
        Error::Lookup(_) => Fault::InvalidKey,
        error => Fault::unread(error),
    })?;
    let data = Credits {
        total_credits: balance.credited_pico.map_or(Amount(u64::MAX), Amount),
        total_usage: Amount(balance.spent_pico),
        unlimited: balance.credited_pico.is_none(),
    };
    Ok(document(&DataDocument { data }))
}
