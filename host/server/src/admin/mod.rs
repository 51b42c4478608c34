//! What operators reach: health and metrics over HTTP, commands over a socket in
//! the data directory.

pub mod http;
pub mod socket;
