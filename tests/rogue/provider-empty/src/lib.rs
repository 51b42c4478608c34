//! A provider guest that translates nothing. In the place of a real one it shows
//! that the host knows no provider's format: whatever the provider answers,
//! there is no answer.

use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure};
use bindings::exports::cofferdam::plugin::dialect::{self, ResponseHead, Target, UpstreamRequest};
use bindings::exports::cofferdam::plugin::generation::{self, Event, Frame, Prepared};

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "generation-provider" });
    use super::Empty;
    export!(Empty);
}

struct Empty;

impl dialect::Guest for Empty {
    fn map_error(_: ResponseHead, _: Vec<u8>) -> Failure {
        Failure { kind: ErrorKind::Unmapped, message: String::new(), code: None, retry_after_ms: None }
    }
}

impl generation::Guest for Empty {
    type Decoder = Empty;

    fn prepare(_: Vec<u8>, _: Target, _: CallContext) -> Result<Prepared, Failure> {
        Ok(Prepared::Upstream(UpstreamRequest {
            path: "chat/completions".to_owned(),
            headers: Vec::new(),
            body: b"{}".to_vec(),
            streamed: false,
        }))
    }
}

impl generation::GuestDecoder for Empty {
    fn new(_: ResponseHead) -> Self {
        Empty
    }

    fn feed(&self, _: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Ok(Vec::new())
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Ok(Vec::new())
    }
}
