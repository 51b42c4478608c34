//! A router that is easy to recognize: candidates in reverse, strategy `own`.

use bindings::cofferdam::plugin::types::Failure;
use bindings::exports::cofferdam::plugin::routing::{Candidate, Decision, Guest, RequestSummary};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "router" });
    use super::Router;
    export!(Router);
}

struct Router;

impl Guest for Router {
    fn route(_: RequestSummary, candidates: Vec<Candidate>, _: u64) -> Result<Decision, Failure> {
        let mut order: Vec<u32> = (0_u32..).zip(&candidates).map(|(index, _)| index).collect();
        order.reverse();
        Ok(Decision { order, strategy: "own".to_owned(), reason: "the reverse of what was given".to_owned() })
    }
}
