//! The engine that keeps the rows in PostgreSQL, for any number of hosts.
//!
//! Row keys, rows and rules are those of the embedded engine. Each lane has a connection and an
//! audit chain of its own. A group of changes is one transaction: it locks the row of the lane's
//! chain and the guards of the group, loads what the rules look at, applies the changes, and writes
//! what they amount to.
//!
//! Which commits are durable is decided by the row of the chain: its number is the number of the
//! commit, so a lane whose connection broke during COMMIT finds out what became of it.

mod about;
mod barrier;
mod begin;
mod conclusion;
mod connect;
mod contact;
mod copy;
mod departure;
mod engine;
mod failure;
mod feed;
mod history;
mod host;
mod interrupted;
mod kept;
mod lane;
mod limits;
mod load;
mod partitions;
mod place;
mod prepared;
mod readers;
mod schema;
mod slices;
mod standby;
mod statement;
mod sweep;
mod transaction;
mod url;
mod witness;
mod write;

pub(crate) use about::About;
pub(crate) use begin::{enter, first_look, has_store, head_rows, leave, lost, prepare};
pub(crate) use connect::Database;
pub(crate) use copy::{Copy, has_copy};
pub(crate) use departure::{Departure, ListedHost, hosts};
pub(crate) use engine::{Engine, LANES, ReadingRuntime, Start};
pub(crate) use feed::{DirectoryPoint, Reload};
pub(crate) use host::{HostId, ThisHost};
pub(crate) use schema::{NEWEST as NEWEST_SCHEMA, Upgrade};
pub(crate) use url::{DatabaseUrl, Password};
pub(crate) use witness::{Verdict, Witness};

// The client library writes statements with their parameters, which are rows, to the crate `log` at the
// level debug. These levels are compiled out, so no logger can ever print them.
const _: () = {
    use log::LevelFilter::{Debug, Trace};
    assert!(!matches!(log::STATIC_MAX_LEVEL, Debug | Trace), "parameters of statements would be logged");
};

#[cfg(test)]
mod tests;
