//! A provider guest that misbehaves on demand. The model's name says how and
//! where: `DEED-PLACE`, for instance `loop-feed`.
//!
//! Places: `prepare`; `new`, `feed` and `finish` of the decoder; `drop`, its
//! destructor; `error`, the mapping of an error answer. For all but the first,
//! `prepare` makes an ordinary streamed request, so that the host gets there.
//! Deeds stand in `deeds`. Two models behave: `echo` answers with the last text
//! of the user, `marker` tells whether anything of an earlier call is left.

mod deeds;
mod marker;

use std::cell::Cell;

use bindings::cofferdam::plugin::types::{CallContext, ErrorKind, Failure};
use bindings::exports::cofferdam::plugin::dialect::{self, ResponseHead, Target, UpstreamRequest};
use bindings::exports::cofferdam::plugin::generation::{
    self, Event, Finish, FinishReason, Frame, Prepared, TextDelta,
};
use deeds::Deed;
use serde_json::Value;

#[allow(unsafe_code, clippy::all, unused_qualifications, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "generation-provider" });
    use super::Rogue;
    export!(Rogue);
}

/// Where to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Prepare,
    New,
    Feed,
    Finish,
    Drop,
    Error,
}

thread_local! {
    /// What the model's name asked for; an instance serves one attempt.
    static PLAN: Cell<Option<(Deed, Place)>> = const { Cell::new(None) };
}

struct Rogue;

impl dialect::Guest for Rogue {
    fn map_error(_: ResponseHead, _: Vec<u8>) -> Failure {
        act(Place::Error);
        failure(ErrorKind::ProviderUnavailable, "the provider failed")
    }
}

impl generation::Guest for Rogue {
    type Decoder = Rogue;

    fn prepare(request: Vec<u8>, target: Target, context: CallContext) -> Result<Prepared, Failure> {
        match target.model.as_str() {
            "echo" => return Ok(Prepared::Answer(answer(last_user_text(&request)))),
            "marker" => return Ok(Prepared::Answer(answer(marker::visit(&context.workspace)))),
            _ => {}
        }
        let Some(plan) = plan(&target.model) else {
            return Err(failure(ErrorKind::NotFound, "no such misbehaviour"));
        };
        PLAN.set(Some(plan));
        if let Some(events) = act(Place::Prepare) {
            return Ok(Prepared::Answer(events));
        }
        let body = r#"{"model":"rogue","stream":true,"messages":[{"role":"user","content":"go"}]}"#;
        Ok(Prepared::Upstream(UpstreamRequest {
            path: "chat/completions".to_owned(),
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
            streamed: true,
        }))
    }
}

impl generation::GuestDecoder for Rogue {
    fn new(_: ResponseHead) -> Self {
        act(Place::New);
        Rogue
    }

    fn feed(&self, _: Vec<Frame>) -> Result<Vec<Event>, Failure> {
        Ok(act(Place::Feed).unwrap_or_default())
    }

    fn finish(&self) -> Result<Vec<Event>, Failure> {
        Ok(act(Place::Finish).unwrap_or_else(|| answer("survived".to_owned())))
    }
}

impl Drop for Rogue {
    fn drop(&mut self) {
        act(Place::Drop);
    }
}

fn plan(model: &str) -> Option<(Deed, Place)> {
    let (deed, place) = model.split_once('-')?;
    let place = match place {
        "prepare" => Place::Prepare,
        "new" => Place::New,
        "feed" => Place::Feed,
        "finish" => Place::Finish,
        "drop" => Place::Drop,
        "error" => Place::Error,
        _ => return None,
    };
    Some((Deed::parse(deed)?, place))
}

/// Misbehaves if this is the place: does not return, or returns what to answer.
fn act(place: Place) -> Option<Vec<Event>> {
    PLAN.get().filter(|(_, at)| *at == place).map(|(deed, _)| deed.commit())
}

fn answer(text: String) -> Vec<Event> {
    vec![
        Event::TextDelta(TextDelta { text, logprobs: Vec::new() }),
        Event::Finish(Finish { reason: FinishReason::Stop, service_tier: None }),
    ]
}

fn failure(kind: ErrorKind, message: &str) -> Failure {
    Failure { kind, message: message.to_owned(), code: None, retry_after_ms: None }
}

/// All text of the last message of the user.
fn last_user_text(request: &[u8]) -> String {
    let request: Value = serde_json::from_slice(request).unwrap_or_default();
    let items = request.get("input").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_user = |item: &&Value| item.get("role").is_some_and(|role| role == "user");
    let parts =
        items.iter().rev().find(is_user).and_then(|item| item.get("content")).and_then(Value::as_array);
    parts.into_iter().flatten().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
}
