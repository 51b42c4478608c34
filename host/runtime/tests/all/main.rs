//! Real guests in the real sandbox: what they may do, what they may not, and
//! that nothing they do harms the host or anybody else.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests: a panic is a failure, and measurements are printed"
)]

mod contract;
mod first_party;
mod fuel;
mod hook;
mod hostile;
mod instances;
mod kit;
mod loading;
mod provider;
mod rogue;
mod router;
mod scheduling;
mod tool;
mod warm;
