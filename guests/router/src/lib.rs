//! The default router: decides in which order endpoints are tried.
//!
//! The rules are in `cofferdam-routing`; this crate connects them to the host.

#[allow(unsafe_code, clippy::all, reason = "generated")]
mod bindings {
    use super::Router;

    wit_bindgen::generate!({ path: "../../wit", world: "router" });
    export!(Router);
}
#[path = "../../routing/wire.rs"]
mod wire;

#[cfg(test)]
mod tests;

use bindings::cofferdam::plugin::types::Failure;
use bindings::exports::cofferdam::plugin::routing::{Candidate, Decision, Guest, RequestSummary};

struct Router;

impl Guest for Router {
    fn route(summary: RequestSummary, candidates: Vec<Candidate>, seed: u64) -> Result<Decision, Failure> {
        wire::route(summary, candidates, seed)
    }
}
