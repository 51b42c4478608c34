//! Entry points for the fuzz targets in `tests/fuzz`, for `--cfg fuzzing` and the tests below. Each takes arbitrary
//! input and panics when a guarantee does not hold.

use cofferdam_runtime::manifest::Framing;
use cofferdam_runtime::wire::{
    CallDelta, CallStart, Event, Finish, FinishReason, Frame, Image, ReasoningSeal, SummaryDelta, TextDelta,
    Usage,
};
use serde_json::Value;

use crate::assembler::{Assembler, Identity, Outcome, Receipt, ResponseReplay, check_finished};
use crate::cost;
use crate::export::TraceParent;
use crate::request::{EmbeddingsRequest, ResponsesRequest};
use crate::upstream::framing::Framer;

/// The body of a request. What is accepted is written for guests and read again without a change.
pub fn request(body: &[u8]) {
    match ResponsesRequest::parse(body, &[]) {
        Ok(first) => {
            let second =
                ResponsesRequest::parse(&first.guest_json, &[]).expect("the form for guests is a request");
            assert_eq!(first.guest_json, second.guest_json);
            let echo: Value = serde_json::from_str(&format!("{{{}}}", first.echo)).expect("the echo is JSON");
            assert!(echo.is_object());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = EmbeddingsRequest::parse(body) {
        assert!(!error.to_string().is_empty());
    }
}

/// A provider's stream gives the same frames wherever its reads are cut. The first byte says how many of the next bytes
/// are lengths of reads.
pub fn framing(data: &[u8]) {
    let Some((count, rest)) = data.split_first() else { return };
    let (cuts, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
    for framing in [Framing::Sse, Framing::Ndjson] {
        let whole = frames(framing, &[stream]);
        let mut reads = Vec::new();
        let mut left = stream;
        for cut in cuts {
            let (read, later) = left.split_at(usize::from(*cut).min(left.len()));
            reads.push(read);
            left = later;
        }
        reads.push(left);
        assert_eq!(frames(framing, &reads), whole);
        let bytes: usize = whole.iter().map(|(name, data)| name.len().max(data.len())).sum();
        // A byte that is no UTF-8 becomes a replacement character of three bytes in a name.
        assert!(bytes <= 3 * stream.len(), "{bytes} bytes of frames from {}", stream.len());
    }
}

fn frames(framing: Framing, reads: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
    let (mut framer, mut frames) = (Framer::new(framing), Vec::<Frame>::new());
    for read in reads {
        framer.push(read, &mut frames).expect("no frame is that long");
    }
    framer.end(&mut frames).expect("no frame is that long");
    frames.into_iter().map(|frame| (frame.name, frame.data)).collect()
}

/// A client's `traceparent`: what is accepted has the form of W3C Trace Context.
pub fn trace_parent(header: &[u8]) {
    let Ok(header) = std::str::from_utf8(header) else { return };
    if TraceParent::parse(header).is_some() {
        // Fields of later versions may have any text.
        assert!(
            header.get(..55).is_some_and(|fields| fields.is_ascii() && !fields.starts_with("ff")),
            "{header}"
        );
        assert!(header.len() == 55 || !header.starts_with("00"), "{header}");
    }
}

/// Any events of a guest give a valid stream, whose parts add up to its last response and to the body of a request
/// without a stream. `choices` selects the events and their contents.
pub fn assembler(choices: &[u8]) {
    let mut choices = Choices(choices);
    let mut streamed = Assembler::new(identity(), true);
    let mut whole = Assembler::new(identity(), false);
    streamed.begin();
    let mut stream = Vec::new();
    while let Some(event) = choices.event() {
        assert_eq!(streamed.apply(event.clone()), whole.apply(event));
        if choices.number() % 2 == 0 {
            stream.extend(streamed.take_events());
        }
    }
    let outcome =
        if choices.number() % 2 == 0 { Outcome::Completed } else { Outcome::Incomplete("max_output_tokens") };
    stream.extend(streamed.complete(&outcome, &Receipt::default()));
    let body = whole.complete(&outcome, &Receipt::default());
    let response = check_stream(&stream);
    assert_eq!(response, serde_json::from_slice::<Value>(&body).expect("the body is JSON"));
    check_finished(&body).expect("the body is a finished response");
    // A hook may have read and returned it: then it is written as a stream once more.
    let mut replay = ResponseReplay::new(&whole, &body).expect("a finished response can be replayed");
    let again: Vec<u8> = std::iter::from_fn(|| replay.next_events()).flatten().collect();
    assert_eq!(check_stream(&again), response);
}

/// Checks a stream of a response event by event and returns the response at its end.
fn check_stream(stream: &[u8]) -> Value {
    let text = std::str::from_utf8(stream).expect("events are text");
    let mut blocks: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(blocks.pop(), Some("data: [DONE]"));
    let mut items: Vec<OpenItem> = Vec::new();
    let mut last = Value::Null;
    let count = blocks.len();
    for (number, block) in blocks.into_iter().enumerate() {
        let (name, data) = block.split_once('\n').expect("a name and data");
        let name = name.strip_prefix("event: ").expect("a name");
        let event: Value =
            serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("data is JSON");
        assert_eq!((&event["type"], &event["sequence_number"]), (&name.into(), &number.into()));
        match name {
            "response.created" => assert_eq!(number, 0),
            "response.in_progress" => assert_eq!(number, 1),
            "response.completed" | "response.incomplete" | "response.failed" => assert_eq!(number + 1, count),
            _ => place(&mut items, name, &event),
        }
        last = event;
    }
    let response = last["response"].take();
    let output = response["output"].as_array().expect("an output");
    assert_eq!(output.len(), items.len());
    for (item, seen) in output.iter().zip(items) {
        assert_eq!(Some(item), seen.done.as_ref(), "the item of the response is the one of its event");
        assert_ne!(item["status"], "in_progress");
        // A call that the provider sent as a whole item has no deltas.
        if !seen.deltas.is_empty() {
            assert_eq!(item["arguments"], Value::String(seen.deltas));
        }
    }
    response
}

/// What a stream has said of an item.
struct OpenItem {
    id: Value,
    deltas: String,
    done: Option<Value>,
}

/// An event about an item: after the item's first event and before its last.
fn place(items: &mut Vec<OpenItem>, name: &str, event: &Value) {
    let index = usize::try_from(event["output_index"].as_u64().expect("an index")).expect("a small index");
    if name == "response.output_item.added" {
        assert_eq!(index, items.len(), "items are added in their order");
        let id = event["item"]["id"].clone();
        assert!(items.iter().all(|item| item.id != id), "an id occurs once");
        return items.push(OpenItem { id, deltas: String::new(), done: None });
    }
    let item = items.get_mut(index).expect("the item was added before");
    assert!(item.done.is_none(), "{name} after the item is done");
    match name {
        "response.output_item.done" => {
            assert_eq!(event["item"]["id"], item.id);
            item.done = Some(event["item"].clone());
        }
        _ => assert_eq!(event["item_id"], item.id),
    }
    if name == "response.function_call_arguments.delta" {
        item.deltas.push_str(event["delta"].as_str().expect("a text"));
    }
}

fn identity() -> Identity {
    Identity {
        hex: "00112233445566778899aabbccddeeff".into(),
        created_at: 1_700_000_000,
        model: "a/b".to_owned(),
        service_tier: "default".to_owned(),
        echo: "\"temperature\":1.0".into(),
    }
}

/// Reads arbitrary bytes as choices. At the end every number is 0 and every text empty.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn number(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Up to 31 bytes; what is not UTF-8 is replaced.
    fn text(&mut self) -> String {
        let length = usize::from(self.number() % 32).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn maybe(&mut self) -> Option<String> {
        self.number().is_multiple_of(2).then(|| self.text())
    }

    /// JSON of a guest: arbitrary bytes, or an object with a type of the API.
    fn json(&mut self) -> Vec<u8> {
        const TYPES: [&str; 6] =
            ["url_citation", "web_search_call", "mcp_call", "file_search_call", "message", "function_call"];
        match TYPES.get(usize::from(self.number() % 8)) {
            Some(kind) => {
                serde_json::json!({"type": kind, "id": self.text(), "x": self.text()}).to_string().into()
            }
            None => self.text().into_bytes(),
        }
    }

    fn key(&mut self) -> u32 {
        u32::from(self.number() % 4)
    }

    fn start(&mut self) -> CallStart {
        CallStart { key: self.key(), call_id: self.text(), name: self.text(), namespace: self.maybe() }
    }

    fn delta(&mut self) -> CallDelta {
        CallDelta { key: self.key(), text: self.text() }
    }

    fn image(&mut self) -> Image {
        let (key, partial_index) = (self.key(), u32::from(self.number()));
        Image { key, partial_index, base64: self.text(), media_type: self.text() }
    }

    fn event(&mut self) -> Option<Event> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.number() % 18 {
            0 => Event::MessageStart(self.maybe()),
            1 => Event::TextDelta(TextDelta { text: self.text(), logprobs: self.logprobs() }),
            2 => Event::RefusalDelta(self.text()),
            3 => Event::Annotation(self.json()),
            4 => Event::ReasoningTextDelta(self.text()),
            5 => Event::ReasoningSummaryDelta(SummaryDelta { part: self.key(), text: self.text() }),
            6 => Event::ReasoningSeal(ReasoningSeal {
                signature: self.maybe(),
                encrypted_content: self.maybe(),
                format: self.maybe(),
            }),
            7 | 8 => Event::FunctionCallStart(self.start()),
            9 | 10 => Event::FunctionArgumentsDelta(self.delta()),
            11 => Event::CustomCallStart(self.start()),
            12 => Event::CustomInputDelta(self.delta()),
            13 => Event::CallEnd(self.key()),
            14 => Event::ImagePartial(self.image()),
            15 => Event::ImageDone(self.image()),
            16 => Event::OpaqueItem(self.json()),
            _ if self.number().is_multiple_of(2) => {
                Event::Usage(Usage { input_tokens: u64::from(self.number()), ..cost::no_usage() })
            }
            _ => Event::Finish(Finish { reason: FinishReason::Stop, service_tier: self.maybe() }),
        })
    }

    fn logprobs(&mut self) -> Vec<u8> {
        match self.number() % 4 {
            0 => b"[{\"token\":\"a\",\"logprob\":-1}]".to_vec(),
            1 => self.text().into_bytes(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus.rs"));

    #[test]
    fn the_corpora_of_the_fuzz_targets_pass() {
        each_of("request", super::request);
        each_of("framing", super::framing);
        each_of("assembler", super::assembler);
        each_of("trace_parent", super::trace_parent);
    }
}
