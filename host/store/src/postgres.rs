//! The engine that keeps the rows in PostgreSQL, for any number of hosts.
//!
//! Row keys, rows and rules are those of the embedded engine. Each lane has a connection and an
//! audit chain of its own. A group of changes is one transaction: it locks the row of the lane's
//! chain and the guards of the group, loads what the rules look at, applies the changes, and writes
//! what they amount to.
//!
//! Which commits are durable is decided by the row of the chain: its number is the number of the
//! commit, so a lane whose connection broke during COMMIT finds out what became of it.

mod connect;
mod engine;
mod failure;
mod feed;
mod history;
mod lane;
mod load;
mod open;
mod place;
mod readers;
mod schema;
mod statement;
mod transaction;
mod url;
mod write;

pub(crate) use connect::Database;
pub(crate) use engine::{Engine, LANES, Start, reading_runtime};
pub(crate) use feed::Seen;
pub(crate) use open::{Opened, has_store, open, prepare};
#[cfg(test)]
pub(crate) use url::DatabaseUrl;

#[cfg(test)]
mod tests;
