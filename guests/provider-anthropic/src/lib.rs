//! The dialect of Anthropic's Messages API. A Responses request becomes one call of `messages`;
//! the answer, streamed or not, becomes events of the contract.
//!
//! The modules handle the differences between the two APIs: `turns` the order of messages,
//! `thinking` the reasoning settings, `schema` the output format.

mod answer;
mod blocks;
mod cache;
mod error;
mod files;
mod models;
mod names;
mod options;
mod replay;
mod request;
mod schema;
mod thinking;
mod tools;
mod turns;
mod usage;
mod wire;

use cofferdam_guest_kit::Decoder;
use cofferdam_guest_kit::bindings::dialect::{self, ResponseHead, Target};
use cofferdam_guest_kit::bindings::generation::{self, Prepared};
use cofferdam_guest_kit::bindings::types::{CallContext, Failure};

use answer::{Answer, SUMMARIES};

struct Anthropic;

cofferdam_guest_kit::export!(generation_provider: Anthropic);

impl dialect::Guest for Anthropic {
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        error::from_answer(&head, &body)
    }
}

impl generation::Guest for Anthropic {
    type Decoder = Decoder<Answer>;

    fn prepare(request: Vec<u8>, target: Target, _context: CallContext) -> Result<Prepared, Failure> {
        let translated = request::translate(&request, &target)?;
        SUMMARIES.set(translated.summaries);
        Ok(Prepared::Upstream(translated.upstream))
    }
}

#[cfg(any(test, fuzzing))]
#[path = "../../../tests/fuzz/decoder.rs"]
pub mod fuzzing;
