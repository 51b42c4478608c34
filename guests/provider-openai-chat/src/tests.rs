//! Recorded answers, split into network reads in all possible ways.
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
    let mut answer = Answer::new(true, "resp_abc123", "up-1");
    let mut events: Vec<_> = reads.into_iter().flat_map(|read| answer.feed(&frames(read))).collect();
    events.extend(answer.finish());
    events
}

fn decode_body(body: &[u8]) -> Vec<Event> {
    let mut answer = Answer::new(false, "resp_abc123", "up-1");
    let mut events = answer.feed(&frames(vec![(String::new(), body.to_vec())]));
    events.extend(answer.finish());
    events
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
        let text = String::from_utf8_lossy(&transcript).into_owned();
        let marks = ["\"finish_reason\":\"", "[DONE]", "\"error\""];
        let end = marks.iter().filter_map(|mark| text.find(mark)).min().unwrap_or(transcript.len());
        for cut in (0..end).step_by(3) {
            let events = decode_stream(&[&transcript[..cut]]);
            let ended = events.iter().any(|event| matches!(event, Event::Finish(_) | Event::Error(_)));
            assert!(!ended, "{path:?} cut at {cut}");
        }
    }
}

#[test]
fn a_picture_before_an_error_or_a_broken_connection_is_passed_on() {
    let picture =
        r#"data: {"choices":[{"delta":{"images":[{"image_url":{"url":"data:image/png;base64,AAAA"}}]}}]}"#;
    let aborted = r#"data: {"choices":[{"delta":{},"finish_reason":"abort"}],"usage":{}}"#;
    for end in ["", r#"data: {"error":{"message":"x"}}"#, r#"data: {"object":"error"}"#, aborted] {
        let rendered = render(&decode_stream(&[format!("{picture}\n\n{end}\n\n").as_bytes()]));
        assert!(rendered.starts_with("image 0 image/png AAAA\n"), "{end}: {rendered}");
    }
}

#[test]
fn usage_comes_before_the_end_and_nothing_after_it() {
    for path in fixtures("sse") {
        let events = decode_stream(&[&fs::read(&path).unwrap()]);
        let end = events.iter().position(|event| matches!(event, Event::Finish(_) | Event::Error(_)));
        assert!(end.is_none_or(|end| end + 1 == events.len()), "{path:?}");
        assert!(events.iter().filter(|event| matches!(event, Event::Usage(_))).count() <= 1, "{path:?}");
    }
}

#[test]
fn malformed_answers_end_with_an_error() {
    let nameless = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    for data in ["{", "nonsense", "7", nameless] {
        let reads = format!(
            "data: {data}\n\ndata: [DONE]\n\ndata: {{\"choices\":[{{\"delta\":{{\"content\":\"x\"}}}}]}}\n\n"
        );
        let rendered = render(&decode_stream(&[reads.as_bytes()]));
        assert!(rendered.starts_with("error ProviderUnavailable"), "{data}: {rendered}");
        assert_eq!(rendered.lines().count(), 1, "{data}");
    }
    for body in ["", "[]", "{}", "{\"choices\":[]}", "<html>"] {
        assert!(render(&decode_body(body.as_bytes())).starts_with("error ProviderUnavailable"), "{body}");
    }
}

#[test]
fn the_words_of_other_providers_for_the_end_of_an_answer_are_known() {
    let ended = |reason: &str| {
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"{reason}"}}],"usage":{{}}}}"#
        );
        render(&decode_body(body.as_bytes())).lines().last().unwrap_or_default().to_owned()
    };
    let cut = ["length", "model_context_window_exceeded", "MAX_TOKENS", "max_output_tokens", "pause_turn"];
    let filtered = [
        "content_filter",
        "content-filter",
        "sensitive",
        "SAFETY",
        "RECITATION",
        "blocklist",
        "PROHIBITED_CONTENT",
        "spii",
        "refusal",
    ];
    let broken = ["error", "abort", "network_error", "Timeout", "MALFORMED_FUNCTION_CALL"];
    for (reasons, expected) in [
        (&cut[..], "finish Length"),
        (&filtered, "finish ContentFilter"),
        (&broken, "error ProviderUnavailable"),
        (&["stop", "STOP"], "finish Stop"),
        (&["tool_calls", "tool_use"], "finish ToolCalls"),
        (&["Tired"], r#"finish Other("Tired")"#),
    ] {
        for reason in reasons {
            let ended = ended(reason);
            assert!(ended.starts_with(expected), "{reason}: {ended}");
        }
    }
}

#[test]
fn an_id_that_came_already_is_replaced() {
    let call = |index: &str, name: &str| {
        format!(r#"{{{index}"id":"x","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}"#)
    };
    let expected = "function 0 x f -\narguments 0 \"{}\"\nfunction 1 call_abc123_1 g -\narguments 1 \"{}\"\n";
    let whole = format!(
        r#"{{"choices":[{{"message":{{"tool_calls":[{},{}]}},"finish_reason":"tool_calls"}}]}}"#,
        call("", "f"),
        call("", "g")
    );
    let rendered = render(&decode_body(whole.as_bytes()));
    assert!(rendered.starts_with(expected), "{rendered}");
    // A server that repeats the id and the name in each piece still continues its call.
    let piece = |call: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n");
    let (first, second) = (call(r#""index":0,"#, "f"), call(r#""index":1,"#, "g"));
    let stream = format!("{}{}{}data: [DONE]\n\n", piece(&first), piece(&second), piece(&second));
    let rendered = render(&decode_stream(&[stream.as_bytes()]));
    let repeated = format!("{expected}arguments 1 \"{{}}\"\nend 0\nend 1\nfinish ToolCalls -\n");
    assert_eq!(rendered, repeated);
    // Pieces without an index, or all with the index 0, are of another call where the name is another.
    for index in ["", r#""index":0,"#] {
        let stream = format!("{}{}data: [DONE]\n\n", piece(&call(index, "f")), piece(&call(index, "g")));
        let rendered = render(&decode_stream(&[stream.as_bytes()]));
        assert_eq!(rendered, format!("{expected}end 0\nend 1\nfinish ToolCalls -\n"));
    }
}

#[test]
fn what_an_answer_may_do_without_costs_no_answer() {
    for odd in [
        r#""error":"""#,
        r#""error":{}"#,
        r#""error":false"#,
        r#""usage":"none""#,
        r#""x_groq":1"#,
        r#""usage":{"prompt_tokens":1,"prompt_tokens_details":"none"}"#,
    ] {
        let body = format!(r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"stop"}}],{odd}}}"#);
        let rendered = render(&decode_body(body.as_bytes()));
        assert!(!rendered.contains("error") && rendered.contains("finish"), "{odd}: {rendered}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(data in any::<Vec<u8>>(), streamed: bool) {
        let mut answer = Answer::new(streamed, "", "");
        answer.feed(&[Frame { name: String::new(), data }]);
        answer.finish();
    }

    #[test]
    fn any_json_is_decoded_without_panic(
        frames in proptest::collection::vec((0..FIELDS.len(), "[\\[\\]{}\",:a-c0-9]{0,30}", 0..3u64, any::<bool>()), 0..8)
    ) {
        let mut answer = Answer::new(true, "", "");
        let mut terminal = 0;
        for (field, json, index, ends) in frames {
            let value = serde_json::from_str(&json).unwrap_or_else(|_| {
                serde_json::json!([{"index": index, "id": json, "type": "text", "text": json,
                    "function": {"name": json, "arguments": {"a": json}}, "image_url": {"url": json}}])
            });
            let mut choice = serde_json::json!({"delta": {}, "finish_reason": ends.then_some("stop")});
            choice["delta"][FIELDS[field]] = value;
            let data = serde_json::json!({"choices": [choice]}).to_string().into_bytes();
            let events = answer.feed(&[Frame { name: String::new(), data }]);
            terminal += events.iter().filter(|e| matches!(e, Event::Finish(_) | Event::Error(_))).count();
        }
        let last = answer.finish();
        terminal += last.iter().filter(|e| matches!(e, Event::Finish(_) | Event::Error(_))).count();
        assert!(terminal <= 1);
    }
}

const FIELDS: &[&str] = &[
    "content",
    "tool_calls",
    "reasoning",
    "reasoning_content",
    "refusal",
    "annotations",
    "images",
    "function_call",
];

#[test]
fn embeddings_of_another_number_are_passed_on_with_their_usage() {
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
    for (rows, count) in [
        (r#"{"embedding":[1]}"#, 1),
        (r#"{"embedding":[1]},{"embedding":[2]}"#, 2),
        (r#"{"index":2,"embedding":[1]},{"index":1,"embedding":[2]},{"index":0,"embedding":[3]}"#, 3),
    ] {
        let answer =
            decode(format!(r#"{{"data":[{rows}],"usage":{{"prompt_tokens":2}}}}"#).as_bytes()).unwrap();
        assert_eq!((answer.vectors.len(), answer.prompt_tokens, answer.total_tokens), (count, 2, 2));
    }
    for rows in ["", r#"{"index":1,"embedding":[1]}"#, r#"{"embedding":[1]},{"index":0,"embedding":[2]}"#] {
        assert!(decode(format!(r#"{{"data":[{rows}]}}"#).as_bytes()).is_err(), "{rows}");
    }
}
