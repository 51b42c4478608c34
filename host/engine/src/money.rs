//! What a request may spend, spends and leaves in the ledger.

pub(crate) mod cost_account;
pub(crate) mod credit;
pub(crate) mod ledger;
