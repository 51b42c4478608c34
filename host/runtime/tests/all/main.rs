//! Tests with real guests in the real sandbox: what guests may do, what they may not do, and that a
//! misbehaving guest harms neither the host nor other guests.

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
mod inputs;
mod instances;
mod kit;
mod lines;
mod loading;
mod provider;
mod recording;
mod rogue;
mod router;
mod scheduling;
mod tool;
mod warm;
