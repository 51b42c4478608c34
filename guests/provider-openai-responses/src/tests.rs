//! Recorded answers: whole, cut once at any byte, one byte at a time, and cut off; and any other input.
//!
//! Next to each `fixtures/NAME.sse` or `.json` is a file `NAME.SUFFIX.events` with the expected
//! events, one per line.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_dialect_openai::{frames_per_read, render};
use cofferdam_guest_kit::ReadAnswer;
use cofferdam_guest_kit::bindings::dialect::{ResponseHead, Target};
use cofferdam_guest_kit::bindings::embedding::{self, Guest as _, PreparedEmbeddings};
use cofferdam_guest_kit::bindings::generation::{Event, Frame};
use cofferdam_guest_kit::bindings::types::CallContext;
use proptest::prelude::{any, proptest};

use crate::Provider;
use crate::answer::Answer;

fn frames(named: Vec<(String, Vec<u8>)>) -> Vec<Frame> {
    named.into_iter().map(|(name, data)| Frame { name, data }).collect()
}

fn decode_stream(reads: &[&[u8]]) -> Vec<Event> {
    decode_reads(frames_per_read(reads))
}

fn decode_reads(reads: Vec<Vec<(String, Vec<u8>)>>) -> Vec<Event> {
    let mut answer = Answer::begin(true);
    reads.into_iter().flat_map(|read| answer.feed(&frames(read))).collect()
}

fn decode_body(body: &[u8]) -> Vec<Event> {
    Answer::begin(false).feed(&frames(vec![(String::new(), body.to_vec())]))
}

#[test]
fn an_item_that_is_not_an_object_is_malformed() {
    for item in ["[[\"message\"]]", "[]", "7", "null"] {
        let body = format!(r#"{{"object":"response","status":"completed","output":[{item}]}}"#);
        let events = decode_body(body.as_bytes());
        assert!(matches!(events.as_slice(), [Event::Error(_)]), "{item}: {events:?}");
    }
}

fn fixtures(extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[track_caller]
fn assert_expected(path: &Path, events: &[Event]) {
    let expected = path.with_added_extension("events");
    let expected = fs::read_to_string(&expected).unwrap_or_else(|error| panic!("{expected:?}: {error}"));
    assert_eq!(render(events), expected, "{path:?}");
}

#[test]
fn recorded_streams_give_the_expected_events() {
    for path in fixtures("sse") {
        assert_expected(&path, &decode_stream(&[&fs::read(&path).unwrap()]));
    }
}

#[test]
fn whole_bodies_give_the_expected_events() {
    for path in fixtures("json") {
        assert_expected(&path, &decode_body(&fs::read(&path).unwrap()));
    }
}

#[test]
fn the_cut_between_reads_changes_nothing() {
    for path in fixtures("sse") {
        let transcript = fs::read(&path).unwrap();
        let whole = decode_stream(&[&transcript]);
        let mut decoded = Vec::new();
        for cut in 0..transcript.len() {
            let (first, second) = transcript.split_at(cut);
            let reads = frames_per_read(&[first, second]);
            // Most cuts within one event give the decoder the same reads.
            if reads != decoded {
                decoded.clone_from(&reads);
                assert!(decode_reads(reads) == whole, "{path:?} cut at {cut}");
            }
        }
        let bytes: Vec<&[u8]> = transcript.chunks(1).collect();
        assert!(decode_stream(&bytes) == whole, "{path:?} byte by byte");
    }
}

#[test]
fn an_answer_cut_off_anywhere_is_never_finished() {
    for path in fixtures("sse") {
        let transcript = fs::read(&path).unwrap();
        let terminal = ["response.completed", "response.incomplete", "response.failed", "\"type\":\"error\""];
        let text = String::from_utf8_lossy(&transcript).into_owned();
        let end = terminal.iter().filter_map(|mark| text.find(mark)).min().unwrap_or(transcript.len());
        for cut in (0..end).step_by(7) {
            let events = decode_stream(&[&transcript[..cut]]);
            let ended = events.iter().any(|event| matches!(event, Event::Finish(_) | Event::Error(_)));
            assert!(!ended, "{path:?} cut at {cut}");
        }
    }
}

#[test]
fn a_finished_picture_is_passed_on_before_an_error_or_a_broken_connection() {
    let transcript = include_str!("../fixtures/interleaved-images-cut.sse");
    let (pictures, _) = transcript.split_once("event: response.incomplete").unwrap();
    for end in ["", "data: {\"type\":\"error\"}\n\n", "data: {\"error\":{}}\n\n"] {
        let mut answer = Answer::begin(true);
        let reads = frames_per_read(&[format!("{pictures}{end}").as_bytes()]);
        let mut events: Vec<_> = reads.into_iter().flat_map(|read| answer.feed(&frames(read))).collect();
        events.extend(answer.finish());
        assert!(render(&events).contains("\"result\":\"QkJC\""), "{end}: {}", render(&events));
    }
}

#[test]
fn invalid_json_ends_the_answer_with_an_error() {
    for data in ["{", "nonsense", "7", "{\"type\":\"response.completed\"}"] {
        let reads =
            format!("data: {data}\n\ndata: {{\"type\":\"response.output_text.delta\",\"delta\":\"x\"}}\n\n");
        let rendered = render(&decode_stream(&[reads.as_bytes()]));
        assert!(rendered.starts_with("error ProviderUnavailable"), "{data}: {rendered}");
        assert_eq!(rendered.lines().count(), 1, "{data}");
    }
    for body in ["", "[]", "{}", "{\"status\":\"queued\",\"output\":[]}", "<html>"] {
        assert!(render(&decode_body(body.as_bytes())).starts_with("error ProviderUnavailable"), "{body}");
    }
    assert!(render(&decode_body(b"{\"error\":\"x\"}")).starts_with("error Server"));
}

#[test]
fn what_an_answer_may_do_without_costs_no_answer() {
    let output = r#"[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}]"#;
    for odd in
        [r#""error":"""#, r#""error":{}"#, r#""error":false"#, r#""usage":7"#, r#""incomplete_details":"x""#]
    {
        for status in ["", r#""status":"completed","#] {
            let rendered = render(&decode_body(format!(r#"{{{status}"output":{output},{odd}}}"#).as_bytes()));
            assert!(rendered.contains("finish Stop") && !rendered.contains("error"), "{odd}: {rendered}");
        }
        let done = format!(
            "data: {{\"error\":{{}}}}\n\ndata: {{\"type\":\"response.completed\",\"response\":{{\"output\":{output},{odd}}}}}\n\n"
        );
        let rendered = render(&decode_stream(&[done.as_bytes()]));
        assert!(rendered.contains("finish Stop") && !rendered.contains("error"), "{odd}: {rendered}");
    }
}

const KINDS: &[&str] = &[
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.content_part.done",
    "response.output_text.annotation.added",
    "response.image_generation_call.partial_image",
    "response.completed",
    "response.failed",
    "error",
];
const FIELDS: &[&str] =
    &["item", "delta", "text", "part", "response", "annotation", "item_id", "logprobs", "error"];

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(data in any::<Vec<u8>>(), streamed: bool) {
        Answer::begin(streamed).feed(&[Frame { name: String::new(), data }]);
    }

    #[test]
    fn any_json_is_decoded_without_panic(
        frames in proptest::collection::vec((0..KINDS.len(), 0..FIELDS.len(), "[\\[\\]{}\",:a-c0-9]{0,30}", 0..4u64), 0..8)
    ) {
        let mut answer = Answer::begin(true);
        let mut terminal = 0;
        for (kind, field, json, index) in frames {
            let value = serde_json::from_str(&json).unwrap_or_else(|_| {
                serde_json::json!({"type": (["message", "function_call", "reasoning", "x"])[index as usize],
                    "id": json, "name": json, "call_id": "c", "arguments": json,
                    "content": [{"type": "output_text", "text": json, "annotations": [{}, 1]}],
                    "output": [{"type": "message"}, {"type": "x"}]})
            });
            let mut event = serde_json::json!({"type": KINDS[kind], "output_index": index, "delta": "d"});
            event[FIELDS[field]] = value;
            let data = event.to_string().into_bytes();
            let events = answer.feed(&[Frame { name: String::new(), data }]);
            terminal += events.iter().filter(|e| matches!(e, Event::Finish(_) | Event::Error(_))).count();
        }
        assert!(terminal <= 1);
    }
}

#[test]
fn embeddings_are_decoded_without_the_request() {
    let context = || CallContext { request_id: "resp_1".into(), workspace: String::new(), now_ms: 0 };
    let target = Target {
        model: "up".into(),
        max_output: 0,
        supports: Vec::new(),
        tier: "default".into(),
        options: b"{}".to_vec(),
    };
    let request = br#"{"model":"m","input":["a","b"]}"#.to_vec();
    let PreparedEmbeddings::Upstream(upstream) =
        <Provider as embedding::Guest>::prepare(request, target, context()).unwrap()
    else {
        panic!()
    };
    assert_eq!((&*upstream.path, upstream.streamed), ("embeddings", false));
    let decode = |body: &[u8]| {
        let head = ResponseHead { status: 200, headers: Vec::new(), streamed: false };
        Provider::decode(head, body.to_vec())
    };
    assert!(decode(br#"{"data":[]}"#).is_err());
    let answer =
        decode(br#"{"data":[{"embedding":[1]},{"embedding":[2]}],"usage":{"prompt_tokens":2}}"#).unwrap();
    assert_eq!((answer.vectors.len(), answer.prompt_tokens, answer.total_tokens), (2, 2, 2));
}
