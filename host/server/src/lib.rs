//! The server: clients and operators come in here. Groups of modules stand in the
//! order in which a reader meets them; the contract they keep is in the README.

// The program and what operators type.
pub mod cli;
pub mod failure;
mod greeting;
mod reload;
mod serve;
mod start;
mod upkeep;
mod watchdog;

// Operators' requests.
mod admin;
pub mod command;
mod facts;
mod grants;

// Clients' requests.
mod access;
mod admission;
mod api;
mod auth;
mod body;
mod connection;
mod forwarded;
mod handle;
mod rate;
mod refusals;
mod route;
mod stall;

// Answers, and what is left of them.
mod answer;
mod metrics;
mod record;
mod reply;

// What a host is made of.
mod advice;
mod app;
mod cache;
mod compile;
pub mod config;
mod defaults;
mod operator_secrets;
mod plugins;
mod wiring;

#[cfg(fuzzing)]
#[doc(hidden)]
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "for tests only")]
pub mod fuzzing;
pub mod hygiene;
pub mod telemetry;
mod timestamp;
