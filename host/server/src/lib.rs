//! The HTTP server, the command line and the configuration.
//!
//! The modules are listed from the command line and the path of a request down to what they share.
//! Each module imports only modules below it; a test reads the imports.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "for tests only")]
pub mod fuzzing;

// The command line, the running host, and where a command runs.
pub mod cli;

mod plugin_kit;
mod serve;

mod execute;
mod host_process;

mod admin;

// The path of a request.
mod connection;
mod handle;

mod api;
mod auth;
mod call;
mod forwarded;

// Checks of an installation.
mod doctor;

mod access;
mod app;
mod body;

// From options and configuration to the parts of a running host.
mod install;

mod grants;
mod start;

pub mod failure;
pub mod options;
mod wiring;

mod installed;
mod operators;

// Commands of operators.
pub mod command;
mod facts;

// Responses, with their log lines and metrics; routes, errors and limits of clients.
mod reply;

mod metrics;
mod route;

mod fault;
mod limits;
mod memory_limit;
mod peer;
mod tls;

mod refused;
mod stall;
mod traffic;
mod workers;

// What all of them share.
pub mod config;

pub mod hygiene;
pub mod telemetry;
mod timestamp;
