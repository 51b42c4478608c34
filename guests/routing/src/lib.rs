//! The rules by which endpoints are ordered, without a world: plain types in,
//! plain types out. The routers of this workspace share them.
//!
//! A pipeline over the candidates' indexes: constraints remove ([`constraint`]),
//! ranks put classes before classes ([`rank`]), and within a class either the
//! client's own order, a sort or a weighted draw decides ([`order`]). A new rule
//! is a new file and one line in one of the three. Before that, where a request
//! names a router instead of a model, [`choose`] says which models to try.
//!
//! `wire.rs` beside this crate's sources is the bridge to a guest's bindings. It
//! is compiled into each guest, whose world gives it record types of its own.

mod balance;
mod choice;
mod constraint;
mod endpoint;
mod explore;
mod order;
mod preferences;
mod random;
mod rank;
mod route;
mod settings;
mod slug;
mod sort;
mod tier;

#[cfg(test)]
mod tests;

pub use choice::{Choice, Facts, Model, NOTHING_LEFT, NoChoice, Question, Router, choose};
pub use endpoint::{Candidate, Percentiles, Price, Request, Statistics};
pub use preferences::{MaxPrice, Preferences};
pub use random::Random;
pub use route::{Decision, Refusal, route};
pub use settings::{Fields, Malformed};
pub use sort::total;
