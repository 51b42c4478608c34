//! What one client may use: the limits of `[limits]`, other rates, and the count of refused tokens.

pub(crate) mod admission;
pub(crate) mod rate;
pub(crate) mod refusals;
