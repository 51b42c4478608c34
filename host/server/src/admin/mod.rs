//! Interfaces for operators: health and metrics over HTTP, commands over a socket in the data
//! directory.

mod endpoints;
mod exposition;
pub(crate) mod http;
mod plugins;
mod process;
pub(crate) mod socket;
