//! The kit against the real server, with the client that the host uses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;
mod pair;
mod proxy;
mod server;
mod tls;
