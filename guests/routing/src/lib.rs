//! The rules by which endpoints are ordered. The crate has plain types and no bindings; the routers of
//! this workspace share it.
//!
//! The rules are a pipeline over the indexes of the candidates: constraints remove candidates
//! ([`constraint`]), ranks put classes of candidates in order ([`rank`]), and within a class the
//! client's own order, a sort or a weighted draw decides ([`order`]). A new rule is a new file and one
//! line in one of the three. Before that, [`choose`] selects the models for a request that names a
//! router instead of a model.
//!
//! `wire.rs`, next to this crate's sources, converts between these types and the bindings of a guest. It
//! is compiled into each guest, because every world has generated types of its own.

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
