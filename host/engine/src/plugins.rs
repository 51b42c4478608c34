//! What plugins do for a request: look at it and at its answer, serve tools, reach hosts, ask models.

pub(crate) mod hooks;
pub(crate) mod http_capability;
pub(crate) mod questions;
pub(crate) mod tools;
mod truncation;
