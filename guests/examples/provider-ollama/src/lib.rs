//! The provider `provider-ollama`: the native chat API of Ollama.
//!
//! `request` writes the request for the server, `answer` reads its answer. Both use the kit's typed readers, which know
//! every item of the API.

mod answer;
mod request;

use cofferdam_guest_kit::bindings::dialect::{self, ResponseHead, Target};
use cofferdam_guest_kit::bindings::generation::{self, Prepared};
use cofferdam_guest_kit::bindings::types::{CallContext, ErrorKind, Failure};
use cofferdam_guest_kit::{Decoder, kind_of_status};

use answer::Answer;

struct Ollama;
cofferdam_guest_kit::export!(generation_provider: Ollama, "wit", "plugin");

impl dialect::Guest for Ollama {
    /// What an answer with a status of 400 or more means.
    fn map_error(head: ResponseHead, body: Vec<u8>) -> Failure {
        let kind = kind_of_status(head.status).unwrap_or(ErrorKind::ProviderUnavailable);
        let message = answer::error_message(&body);
        Failure::new(kind, message.unwrap_or_else(|| format!("the server answered with status {}", head.status)))
    }
}

impl generation::Guest for Ollama {
    type Decoder = Decoder<Answer>;

    /// The request for the server. The host adds the origin.
    fn prepare(request: Vec<u8>, target: Target, _context: CallContext) -> Result<Prepared, Failure> {
        request::translate(&request, &target).map(Prepared::Upstream)
    }
}
