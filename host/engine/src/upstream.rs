//! The answer of a provider on its way: frames, the events a guest makes of them, and what was sent, for a
//! client that asked to see it.

pub(crate) mod echo;
pub(crate) mod framing;
pub(crate) mod reading;
