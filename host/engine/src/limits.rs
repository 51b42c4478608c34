//! What keys and workspaces may use: rates, and the requests that run at once.

pub(crate) mod allowance;
pub mod rate;
mod seats;
