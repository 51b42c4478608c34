use std::path::Path;

use cofferdam_guest_kit::ReadAnswer;
use cofferdam_guest_kit::bindings::generation::{Event, FinishReason, Frame};
use proptest::prelude::{ProptestConfig, any, proptest};

use super::Answer;

/// Splits an SSE stream into frames, as the host does.
#[derive(Default)]
struct Framer {
    rest: Vec<u8>,
    name: String,
    data: Vec<Vec<u8>>,
}

impl Framer {
    fn read(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.rest.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.rest.drain(..=end).collect();
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            self.line(&line, &mut frames);
        }
        frames
    }

    fn line(&mut self, line: &[u8], frames: &mut Vec<Frame>) {
        if let Some(name) = line.strip_prefix(b"event: ") {
            self.name = String::from_utf8_lossy(name).into_owned();
        } else if let Some(data) = line.strip_prefix(b"data: ") {
            self.data.push(data.to_vec());
        } else if line.is_empty() && !self.data.is_empty() {
            let data = std::mem::take(&mut self.data).join(&b'\n');
            frames.push(Frame { name: std::mem::take(&mut self.name), data });
        }
    }
}

/// One line per event, in a form that is easy to read in a table.
fn line(event: &Event) -> String {
    match event {
        Event::TextDelta(delta) => format!("text {:?}", delta.text),
        Event::RefusalDelta(text) => format!("refusal {text:?}"),
        Event::Annotation(json) => format!("annotation {}", String::from_utf8_lossy(json)),
        Event::ReasoningTextDelta(text) => format!("thought {text:?}"),
        Event::ReasoningSummaryDelta(delta) => format!("summary {} {:?}", delta.part, delta.text),
        Event::ReasoningSeal(seal) => {
            let sealed = seal.encrypted_content.as_deref().unwrap_or("-");
            format!("seal {} {sealed}", seal.signature.as_deref().unwrap_or("-"))
        }
        Event::FunctionCallStart(start) => format!("call {} {} {}", start.key, start.call_id, start.name),
        Event::FunctionArgumentsDelta(delta) => format!("arguments {} {}", delta.key, delta.text),
        Event::CallEnd(key) => format!("end {key}"),
        Event::OpaqueItem(json) => format!("item {}", String::from_utf8_lossy(json)),
        Event::Usage(u) => format!(
            "usage in {} cached {} written {} out {} reasoning {} tools {}",
            u.input_tokens,
            u.cached_tokens,
            u.cache_write_tokens,
            u.output_tokens,
            u.reasoning_tokens,
            u.provider_tool_requests
        ),
        Event::Finish(finish) => {
            let reason = match &finish.reason {
                FinishReason::Stop => "stop".to_owned(),
                FinishReason::Length => "length".to_owned(),
                FinishReason::ContentFilter => "content-filter".to_owned(),
                FinishReason::ToolCalls => "tool-calls".to_owned(),
                FinishReason::Other(word) => format!("other {word}"),
            };
            format!("finish {reason} {}", finish.service_tier.as_deref().unwrap_or("-"))
        }
        Event::Error(failure) => format!("error {:?} {}", failure.kind, failure.message),
        other => format!("{other:?}"),
    }
}

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    std::fs::read(path).expect("a fixture")
}

/// The events of a stream that arrives in these network reads.
fn streamed<'b>(reads: impl IntoIterator<Item = &'b [u8]>, summaries: bool) -> Vec<String> {
    let mut framer = Framer::default();
    let mut answer = Answer::new(true, summaries);
    let mut lines = Vec::new();
    for read in reads {
        let frames = framer.read(read);
        if !frames.is_empty() {
            lines.extend(answer.feed(&frames).iter().map(line));
        }
    }
    lines.extend(answer.finish().iter().map(line));
    lines
}

fn whole(body: &[u8]) -> Vec<String> {
    let mut answer = Answer::new(false, false);
    let frame = Frame { name: String::new(), data: body.to_vec() };
    let mut events = answer.feed(&[frame]);
    events.extend(answer.finish());
    events.iter().map(line).collect()
}

const STREAMS: [(&str, &[&str]); 11] = [
    (
        "text.sse",
        &[
            "usage in 25 cached 0 written 0 out 1 reasoning 0 tools 0",
            "text \"Grüße\"",
            "text \", \\\"Welt\\\" 🌍!\\n\"",
            "usage in 25 cached 0 written 0 out 15 reasoning 0 tools 0",
            "finish stop default",
        ],
    ),
    (
        "thinking_and_tools.sse",
        &[
            "usage in 1450 cached 1000 written 50 out 3 reasoning 0 tools 0",
            "thought \"Two cities,\"",
            "thought \" two calls.\"",
            "seal EqQBCgIYAhIM1gbcDa9GJwZA anthropic-claude-v1:{\"type\":\"thinking\",\"thinking\":\"Two cities, two calls.\",\"signature\":\"EqQBCgIYAhIM1gbcDa9GJwZA\"}",
            "text \"Let me look.\"",
            "call 2 toolu_01T1x1fJ34qAmk2tNTrN7Up6 get_weather",
            "arguments 2 {\"location\":",
            "arguments 2  \"Köln\"}",
            "end 2",
            "call 3 toolu_02 now",
            "arguments 3 {}",
            "end 3",
            "usage in 1450 cached 1000 written 50 out 89 reasoning 12 tools 0",
            "finish tool-calls priority",
        ],
    ),
    (
        "redacted_and_omitted.sse",
        &[
            "usage in 9 cached 0 written 0 out 1 reasoning 0 tools 0",
            "seal - anthropic-claude-v1:{\"type\":\"redacted_thinking\",\"data\":\"EmwKAhgBEgy3va3pzix/LafPsn4a\"}",
            "seal EosnCk anthropic-claude-v1:{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"EosnCk\"}",
            "text \"Done\"",
            "usage in 9 cached 0 written 0 out 30 reasoning 0 tools 0",
            "finish length -",
        ],
    ),
    (
        "web_search.sse",
        &[
            "usage in 2679 cached 0 written 0 out 3 reasoning 0 tools 0",
            "text \"I'll check.\"",
            "item {\"type\":\"web_search_call\",\"status\":\"completed\",\"action\":{\"type\":\"search\",\"query\":\"weather NYC\",\"sources\":[{\"type\":\"url\",\"url\":\"https://weather.example/nyc\"},{\"type\":\"url\",\"url\":\"https://other.example/\"}]}}",
            "text \"In New York it is \"",
            "text \"72°F\"",
            "text \" now\"",
            "annotation {\"type\":\"url_citation\",\"url\":\"https://weather.example/nyc\",\"title\":\"Weather\",\"start_index\":18,\"end_index\":26,\"content\":\"Now 72°F\"}",
            "text \".\"",
            "usage in 10682 cached 0 written 0 out 510 reasoning 0 tools 1",
            "finish stop -",
        ],
    ),
    (
        "search_failed.sse",
        &[
            "usage in 9 cached 0 written 0 out 1 reasoning 0 tools 0",
            "item {\"type\":\"web_search_call\",\"status\":\"failed\",\"action\":{\"type\":\"search\",\"query\":\"x\",\"sources\":[]}}",
            "usage in 9 cached 0 written 0 out 3 reasoning 0 tools 0",
            "finish length -",
        ],
    ),
    (
        "refusal.sse",
        &[
            "usage in 12 cached 0 written 0 out 1 reasoning 0 tools 0",
            "refusal \"This request was declined under the usage policy.\"",
            "usage in 12 cached 0 written 0 out 2 reasoning 0 tools 0",
            "finish content-filter -",
        ],
    ),
    (
        "refusal_after_text.sse",
        &[
            "usage in 12 cached 0 written 0 out 1 reasoning 0 tools 0",
            "text \"First, \"",
            "usage in 12 cached 0 written 0 out 4 reasoning 0 tools 0",
            "finish content-filter -",
        ],
    ),
    (
        "overloaded.sse",
        &[
            "usage in 12 cached 0 written 0 out 1 reasoning 0 tools 0",
            "text \"Hel\"",
            "error ErrorKind::ProviderOverloaded The provider is overloaded.",
        ],
    ),
    ("cut.sse", &["usage in 12 cached 0 written 0 out 1 reasoning 0 tools 0", "text \"Hel\""]),
    (
        "fast_and_context.sse",
        &[
            "usage in 12 cached 0 written 0 out 1 reasoning 0 tools 0",
            "text \"Start\"",
            "usage in 12 cached 0 written 0 out 4 reasoning 0 tools 0",
            "finish length ultrafast",
        ],
    ),
    (
        "crlf.sse",
        &[
            "usage in 1 cached 0 written 0 out 1 reasoning 0 tools 0",
            "text \"ok\"",
            "usage in 1 cached 0 written 0 out 2 reasoning 0 tools 0",
            "finish stop -",
        ],
    ),
];

#[test]
fn streams_become_events() {
    for (name, expected) in STREAMS {
        assert_eq!(streamed([&*fixture(name)], false), expected, "{name}");
    }
}

#[test]
fn events_do_not_depend_on_how_the_stream_is_cut_into_reads() {
    for (name, expected) in STREAMS {
        let bytes = fixture(name);
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(streamed([first, second], false), expected, "{name} at {at}");
        }
        assert_eq!(streamed(bytes.chunks(1), false), expected, "{name} byte by byte");
    }
}

#[test]
fn a_stream_cut_anywhere_before_its_end_does_not_finish() {
    for (name, expected) in STREAMS {
        let bytes = fixture(name);
        let stop = bytes.windows(12).rposition(|window| window == b"message_stop").unwrap_or(bytes.len());
        for length in (0..stop).step_by(7) {
            let lines = streamed([&bytes[..length]], false);
            assert!(!lines.iter().any(|line| line.starts_with("finish")), "{name} cut at {length}");
            assert_eq!(lines, expected[..lines.len()], "{name} cut at {length}");
        }
    }
}

#[test]
fn reasoning_goes_out_as_a_summary_when_asked_for() {
    let lines = streamed([&*fixture("thinking_and_tools.sse")], true);
    assert_eq!(&lines[1..3], ["summary 0 \"Two cities,\"", "summary 0 \" two calls.\""]);
}

#[test]
fn a_whole_body_gives_the_events_of_a_stream() {
    let expected = [
        "thought \"Simple.\"",
        "seal c2ln anthropic-claude-v1:{\"type\":\"thinking\",\"thinking\":\"Simple.\",\"signature\":\"c2ln\"}",
        "seal - anthropic-claude-v1:{\"type\":\"redacted_thinking\",\"data\":\"ZGF0YQ==\"}",
        "text \"Berlin, as \"",
        "text \"the atlas says\"",
        "annotation {\"type\":\"url_citation\",\"url\":\"https://atlas.example/\",\"title\":\"Atlas\",\"start_index\":11,\"end_index\":25,\"content\":\"Berlin\"}",
        "call 4 toolu_01 look_up",
        "arguments 4 {\"city\": \"Berlin\", \"n\": 1.5}",
        "end 4",
        "call 5 toolu_02 now",
        "arguments 5 {}",
        "end 5",
        "usage in 115 cached 100 written 5 out 20 reasoning 0 tools 0",
        "finish tool-calls flex",
    ];
    assert_eq!(whole(&fixture("message.json")), expected);
    let refused = [
        "refusal \"The model declined to answer this request.\"",
        "usage in 10 cached 0 written 0 out 0 reasoning 0 tools 0",
        "finish content-filter -",
    ];
    assert_eq!(whole(&fixture("message_refused.json")), refused);
}

#[test]
fn malformed_answers_are_errors() {
    let failed = "error ErrorKind::ProviderUnavailable The provider failed.";
    let unreadable = "error ErrorKind::ProviderUnavailable The provider's answer could not be read.";
    assert_eq!(whole(&fixture("error.json")), [failed]);
    for body in ["", "{}", "null", "<html>", r#"{"type":"message","content":5}"#] {
        assert_eq!(whole(body.as_bytes()), [unreadable], "{body}");
    }
    let stream =
        b"event: ping\ndata: {\"type\":\"ping\"}\n\ndata: {broken\n\ndata: {\"type\":\"message_stop\"}\n\n";
    assert_eq!(streamed([&stream[..]], false), [unreadable]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_frames_never_panic(
        frames in proptest::collection::vec((any::<String>(), any::<Vec<u8>>()), 0..6), stream in any::<bool>(),
    ) {
        let frames: Vec<Frame> = frames.into_iter().map(|(name, data)| Frame { name, data }).collect();
        let mut answer = Answer::new(stream, false);
        drop((answer.feed(&frames), answer.finish()));
    }

    #[test]
    fn frames_of_a_stream_in_any_order_never_panic_and_end_at_most_once(
        picks in proptest::collection::vec(any::<proptest::sample::Index>(), 0..40),
    ) {
        let mut framer = Framer::default();
        let frames: Vec<Frame> = STREAMS.iter().flat_map(|(name, _)| framer.read(&fixture(name))).collect();
        let mut answer = Answer::new(true, false);
        let mut ends = 0;
        for pick in picks {
            let events = answer.feed(std::slice::from_ref(pick.get(&frames)));
            ends += events.iter().filter(|event| matches!(event, Event::Finish(_) | Event::Error(_))).count();
        }
        assert!(ends <= 1);
    }

    #[test]
    fn a_damaged_stream_never_panics(flip in any::<proptest::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = fixture("thinking_and_tools.sse");
        let at = flip.index(bytes.len());
        bytes[at] = byte;
        let mut framer = Framer::default();
        let mut answer = Answer::new(true, false);
        drop(answer.feed(&framer.read(&bytes)));
    }
}

#[test]
fn what_an_answer_may_do_without_costs_no_answer() {
    for odd in [
        r#""error":"""#,
        r#""error":false"#,
        r#""usage":"none""#,
        r#""usage":{"input_tokens":5.0,"output_tokens":"7","output_tokens_details":[],"server_tool_use":1,"speed":null}"#,
    ] {
        let body = format!(
            r#"{{"type":"message","content":[{{"type":"text","text":"x"}}],"stop_reason":"end_turn",{odd}}}"#
        );
        let lines = whole(body.as_bytes());
        assert!(lines.iter().any(|line| line == "text \"x\""), "{odd}: {lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("finish stop")), "{odd}: {lines:?}");
        let stream = format!(
            "data: {{\"type\":\"message_start\",\"message\":{{{odd}}}}}\n\n\
             data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},{odd}}}\n\n\
             data: {{\"type\":\"message_stop\"}}\n\n"
        );
        let lines = streamed([stream.as_bytes()], false);
        assert!(lines.iter().any(|line| line.starts_with("finish stop")), "{odd}: {lines:?}");
    }
}
