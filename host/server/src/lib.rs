//! The HTTP server, the command line and the configuration. The modules are grouped below in the
//! order in which a reader meets them.

// The program and its command line.
pub mod cli;
pub mod failure;
mod greeting;
mod reload;
mod serve;
mod start;
mod upkeep;
mod watchdog;

// Commands of operators.
mod admin;
pub mod command;
mod facts;
mod grants;

// Requests of clients.
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

// Responses, and their log lines and metrics.
mod answer;
mod metrics;
mod record;
mod reply;

// The parts of a running host.
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
