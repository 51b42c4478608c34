//! The rules by which endpoints are ordered, shared by the routers of this workspace.
//!
//! The rules are a pipeline over the indexes of the candidates: constraints remove candidates
//! ([`constraint`]), ranks put classes of candidates in order ([`rank`]), and within a class the
//! client's own order, a sort or a weighted draw decides ([`order`]). A new rule is a new file and one
//! line in one of the three. Before that, [`choose`] selects the models for a request that names a
//! router instead of a model.

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
mod slug;
mod sort;
mod tier;

#[cfg(test)]
mod tests;

pub use choice::{Choice, Question, Router, choose};
pub use random::Random;
pub use route::route;
