//! The default router: decides in which order endpoints are tried.
//!
//! The rules are in `cofferdam-routing`; this crate connects them to the host.

#[cfg(test)]
mod tests;

use cofferdam_guest_kit::bindings::routing::{Candidate, Decision, Guest, RequestSummary};
use cofferdam_guest_kit::bindings::types::Failure;

struct Router;

cofferdam_guest_kit::export!(router: Router);

impl Guest for Router {
    fn route(summary: RequestSummary, candidates: Vec<Candidate>, seed: u64) -> Result<Decision, Failure> {
        cofferdam_routing::route(&summary, &candidates, seed)
    }
}
