//! What operators reach: health and metrics over HTTP, commands over a socket in
//! the data directory.

pub(crate) mod http;
pub(crate) mod socket;
