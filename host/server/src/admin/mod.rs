//! Interfaces for operators: over HTTP health, metrics, the admin API and the console, and commands
//! over a socket in the data directory.

mod access;
pub(crate) mod admin_url;
mod api;
mod arguments;
mod console;
mod dispatch;
mod endpoints;
mod events;
mod exposition;
mod fault;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod http;
pub(crate) mod listener;
mod openapi;
mod playground;
mod plugins;
mod process;
mod requests;
pub(crate) mod socket;
mod views;
