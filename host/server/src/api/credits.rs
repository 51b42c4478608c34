//! `GET /v1/credits`: what the key's workspace may spend, and has spent.

use cofferdam_engine::cost::Amount;
use http::Response;
use serde::Serialize;

use crate::answer::Body;
use crate::handle::Call;
use crate::reply::{Fault, document};

#[derive(Serialize)]
struct Data {
    data: Credits,
}

/// Clients take the difference for what is left, and want numbers: of a workspace without
/// a limit it is the most that the ledger can count.
#[derive(Serialize)]
struct Credits {
    total_credits: Amount,
    total_usage: Amount,
    unlimited: bool,
}

pub(crate) fn read(call: &Call<'_>) -> Result<Response<Body>, Fault> {
    let workspace = call.principal.workspace().ok_or(Fault::NotFound)?;
    // One that is gone is as unknown as its keys.
    let balance = call.app.store.balance(workspace).map_err(|_| Fault::InvalidKey)?;
    let data = Credits {
        total_credits: balance.credited_pico.map_or(Amount(u64::MAX), Amount),
        total_usage: Amount(balance.spent_pico),
        unlimited: balance.credited_pico.is_none(),
    };
    Ok(document(&Data { data }))
}
