//! The kit against the real server, with the client that the host uses.

mod client;
mod proxy;
mod server;
