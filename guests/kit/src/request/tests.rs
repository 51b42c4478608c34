use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Request, TextFormat};
use crate::{
    Content, EmbeddingInput, EmbeddingPart, EmbeddingRequest, Item, Marks, Part, Role, Tool, ToolChoice,
};

#[test]
fn reasoning_settings_give_an_effort() {
    let cases = [
        ("{}", None),
        (r#"{"summary":"auto"}"#, None),
        (r#"{"effort":"xhigh"}"#, Some("xhigh")),
        (r#"{"effort":"none"}"#, Some("none")),
        (r#"{"effort":"high","enabled":false}"#, Some("none")),
        (r#"{"enabled":true}"#, Some("medium")),
        (r#"{"effort":"low","enabled":true,"max_tokens":9000}"#, Some("low")),
        (r#"{"max_tokens":0}"#, Some("none")),
        (r#"{"max_tokens":349}"#, Some("low")),
        (r#"{"max_tokens":350}"#, Some("medium")),
        (r#"{"max_tokens":650}"#, Some("high")),
        (r#"{"max_tokens":18446744073709551615}"#, Some("high")),
    ];
    for (reasoning, expected) in cases {
        let settings: super::ReasoningSettings<'_> = serde_json::from_str(reasoning).unwrap();
        assert_eq!(settings.effort_word(Some(1000)), expected, "{reasoning}");
    }
    let budget: super::ReasoningSettings<'_> = serde_json::from_str(r#"{"max_tokens":8192}"#).unwrap();
    assert_eq!((budget.effort_word(None), budget.effort_word(Some(0))), (Some("medium"), Some("medium")));
}

fn parse(json: &str) -> Request<'_> {
    Request::parse(json.as_bytes()).unwrap()
}

#[test]
fn the_smallest_request_has_defaults() {
    let request = parse(r#"{"model":"a/b","stream":true,"input":[]}"#);
    assert_eq!((&*request.model, request.stream, request.input.len()), ("a/b", true, 0));
    assert!(matches!(request.text.format, TextFormat::Text));
    assert!(request.tool_choice.is_none() && request.tools.is_empty());
}

#[test]
fn the_type_of_an_item_may_stand_anywhere() {
    let request = parse(
        r#"{"input":[
            {"role":"user","content":[{"text":"a\"b","type":"input_text","x":[1,{}]}],"type":"message"},
            {"output":"done","call_id":"c1","type":"function_call_output"},
            {"arguments":"{}","call_id":"c1","name":"f","type":"function_call","status":"completed"},
            {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"content":null,"encrypted_content":"e"},
            {"type":"shell_call","action":{"commands":["ls"]},"name":7,"output":{"a":1},"content":[1,null,"x",[{}]]}
        ]}"#,
    );
    let [message, output, call, reasoning, other] = request.input.as_slice() else { panic!() };
    let Item::Message(message) = message else { panic!("{message:?}") };
    assert_eq!((message.role, message.content[0].text()), (Role::User, Some("a\"b")));
    assert!(matches!(output, Item::FunctionCallOutput { output: Content::Text(text), .. } if text == "done"));
    assert!(matches!(call, Item::FunctionCall { name, .. } if name == "f"));
    let Item::Reasoning(reasoning) = reasoning else { panic!("{reasoning:?}") };
    assert_eq!((&*reasoning.summary, reasoning.content.len()), (&[Cow::Borrowed("s")][..], 0));
    assert!(matches!(other, Item::Other { kind } if kind == "shell_call"));
}

#[test]
fn text_without_escapes_is_borrowed() {
    let request = parse(
        r#"{"model":"m","instructions":"i","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"plain"}]}]}"#,
    );
    assert!(matches!(
        (&request.model, &request.instructions),
        (Cow::Borrowed("m"), Some(Cow::Borrowed("i")))
    ));
    let Item::Message(message) = &request.input[0] else { panic!() };
    assert!(matches!(&message.content[0], Part::Text { text: Cow::Borrowed("plain"), .. }));
}

#[test]
fn every_kind_of_part_is_recognized() {
    let request = parse(
        r#"{"input":[{"type":"message","role":"user","content":[
            {"type":"input_image","image_url":"data:image/png;base64,AA","detail":"auto","cache_control":{"type":"ephemeral"}},
            {"type":"input_file","filename":"a.pdf","file_data":"data:,x"},
            {"type":"input_audio","input_audio":{"data":"AA","format":"wav"}},
            {"type":"input_video","video_url":"https://v"},
            {"type":"refusal","refusal":"no"},
            {"type":"hologram"}]}]}"#,
    );
    let Item::Message(message) = &request.input[0] else { panic!() };
    let [image, file, audio, video, refusal, other] = message.content.as_slice() else { panic!() };
    let Part::Image { url: Some(url), marks: Marks { cache_control: Some(mark), .. }, .. } = image else {
        panic!("{image:?}")
    };
    assert_eq!((&**url, mark.get()), ("data:image/png;base64,AA", r#"{"type":"ephemeral"}"#));
    assert!(matches!(file, Part::File { filename: Some(_), data: Some(_), url: None, .. }));
    assert!(matches!(audio, Part::Audio { data, format: Some(_) } if data == "AA"));
    assert!(matches!(video, Part::Video { url } if url == "https://v"));
    assert_eq!(refusal.text(), Some("no"));
    assert!(matches!(other, Part::Other { kind } if kind == "hologram"));
}

#[test]
fn tools_and_choices_are_recognized() {
    let request = parse(
        r#"{"input":[],"tools":[
            {"type":"function","name":"f","parameters":{"type":"object"},"strict":null},
            {"type":"custom","name":"c","format":{"type":"text"}},
            {"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"g","parameters":null}]},
            {"type":"web_search","filters":{}}],
            "tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}}"#,
    );
    let [function, custom, namespace, other] = request.tools.as_slice() else { panic!() };
    let parameters = |tool: &Tool<'_>| match tool {
        Tool::Function { parameters, .. } => parameters.map(RawValue::get).map(str::to_owned),
        _ => panic!("{tool:?}"),
    };
    assert_eq!(parameters(function).as_deref(), Some(r#"{"type":"object"}"#));
    assert!(matches!(custom, Tool::Custom { format: Some(_), .. }));
    let Tool::Namespace { tools, .. } = namespace else { panic!() };
    assert_eq!(parameters(&tools[0]), None);
    assert!(matches!(other, Tool::Other { raw, .. } if raw.get().contains("filters")));
    let Some(ToolChoice::Allowed { required: true, tools }) = request.tool_choice else { panic!() };
    assert_eq!((tools[0].name.as_deref(), tools[1].name.as_deref()), (Some("f"), None));
    for (json, expected) in [("\"none\"", "None"), (r#"{"type":"function","name":"f"}"#, "Function")] {
        let choice: ToolChoice<'_> = serde_json::from_str(json).unwrap();
        assert!(format!("{choice:?}").starts_with(expected), "{json}");
    }
}

#[test]
fn the_format_of_the_answer_keeps_its_schema() {
    let request = parse(
        r#"{"input":[],"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"type":"array"},"strict":true}}}"#,
    );
    let TextFormat::JsonSchema { schema, strict, .. } = request.text.format else { panic!() };
    assert_eq!((schema.get(), strict), (r#"{"type":"array"}"#, Some(true)));
}

#[test]
fn input_can_be_kept_raw() {
    let json = br#"{"input":[{"type":"x", "y":1}],"temperature":1}"#;
    let request = Request::parse_with_raw_items(json).unwrap();
    assert_eq!(request.input[0].get(), r#"{"type":"x", "y":1}"#);
    assert_eq!(request.temperature.unwrap().to_string(), "1");
}

#[test]
fn embedding_inputs_are_recognized() {
    let json = br#"{"model":"m","input":["a\n",[1,2],{"content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"u"}},{"type":"input_audio"}]}],"dimensions":8}"#;
    let request = EmbeddingRequest::parse(json).unwrap();
    let [EmbeddingInput::Text(text), EmbeddingInput::Tokens(tokens), EmbeddingInput::Content(parts)] =
        request.input.as_slice()
    else {
        panic!("{:?}", request.input)
    };
    assert_eq!((&**text, tokens.as_slice(), request.dimensions), ("a\n", &[1, 2][..], Some(8)));
    assert!(matches!(
        parts.as_slice(),
        [EmbeddingPart::Text(_), EmbeddingPart::Image { .. }, EmbeddingPart::Other { .. }]
    ));
}

#[test]
fn garbage_is_an_error_and_not_a_panic() {
    for json in
        ["", "[]", "{\"input\":[1]}", "{\"tools\":[{\"type\":\"function\"", "{\"tool_choice\":\"maybe\"}"]
    {
        assert!(Request::parse(json.as_bytes()).is_err(), "{json}");
    }
}
