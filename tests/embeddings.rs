//! Embeddings: every form of input and of vector, and mistakes of providers.

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, model, provider, several_of, with_keys};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

async fn ask(host: &Host, request: &Value) -> Answer {
    Client::new(host).post("/embeddings", request).await
}

/// A host with an embedding model at one provider of the chat dialect.
async fn single() -> (Upstream, Host) {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&several_of("embeddings", &[&upstream.base])).start();
    (upstream, host)
}

fn vectors(vectors: &[Value]) -> Reply {
    let data: Vec<Value> = (0..)
        .zip(vectors)
        .map(|(index, vector): (u32, &Value)| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    let usage = json!({"prompt_tokens": 5, "total_tokens": 5});
    Reply::json(200, json!({"object": "list", "data": data, "model": "up", "usage": usage}))
}

fn base64_of(floats: &[f32]) -> String {
    STANDARD.encode(floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<u8>>())
}

fn floats_of(vector: &Value) -> Vec<f32> {
    match vector {
        Value::String(text) => {
            let bytes = STANDARD.decode(text).unwrap();
            bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
        }
        vector => vector.as_array().unwrap().iter().map(|float| float.as_f64().unwrap() as f32).collect(),
    }
}

#[tokio::test]
async fn every_form_of_input_gets_its_vectors() {
    let host = Setup::new().start();
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    for (input, count) in [
        (json!("good morning"), 1),
        (json!(["good", "morning", "good"]), 3),
        (json!([1, 2, 3]), 1),
        (json!([[1, 2], [3]]), 2),
        (text("one"), 1),
        (json!([text("one"), text("two")]), 2),
        (json!(["one", [4, 5], text("two")]), 3),
    ] {
        let answer = ask(&host, &json!({"model": "local/embed", "input": input})).await;
        assert_eq!(answer.status, 200, "{input}: {}", answer.text);
        assert_eq!((&answer.body["object"], &answer.body["model"]), (&json!("list"), &json!("local/embed")));
        let data = answer.body["data"].as_array().unwrap();
        assert_eq!(data.len(), count, "{input}");
        for (index, item) in data.iter().enumerate() {
            assert_eq!((&item["object"], &item["index"]), (&json!("embedding"), &json!(index)));
            assert_eq!(floats_of(&item["embedding"]).len(), 384);
        }
        assert!(answer.body["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
        assert!(answer.body["usage"]["total_tokens"].is_u64());
        assert!(answer.body["id"].as_str().unwrap().starts_with("embd_"));
    }
    let same = ask(&host, &json!({"model": "local/embed", "input": ["good", "morning", "good"]})).await;
    assert_eq!(same.body["data"][0]["embedding"], same.body["data"][2]["embedding"]);
    assert_ne!(same.body["data"][0]["embedding"], same.body["data"][1]["embedding"]);
}

#[tokio::test]
async fn base64_and_floats_are_the_same_numbers() {
    let host = Setup::new().start();
    let ask = async |format: Option<&str>| {
        let request = json!({"model": "local/embed", "input": "good morning", "encoding_format": format});
        ask(&host, &request).await.body["data"][0]["embedding"].clone()
    };
    let (floats, base64, unset) = (ask(Some("float")).await, ask(Some("base64")).await, ask(None).await);
    assert!(base64.is_string() && unset.is_array());
    assert_eq!(floats_of(&floats), floats_of(&base64));
    assert_eq!(floats, unset);
}

#[tokio::test]
async fn vectors_are_converted_to_the_requested_encoding() {
    let (upstream, host) = single().await;
    let numbers = [0.25f32, -1.5, 0.1];
    for (sent, asked) in [
        (json!([0.25, -1.5, 0.1]), "float"),
        (json!([0.25, -1.5, 0.1]), "base64"),
        (json!(base64_of(&numbers)), "float"),
        (json!(base64_of(&numbers)), "base64"),
    ] {
        upstream.reply(vectors(&[sent]));
        let answer = ask(&host, &json!({"model": MODEL, "input": "x", "encoding_format": asked})).await;
        let vector = &answer.body["data"][0]["embedding"];
        assert_eq!(vector.is_string(), asked == "base64", "{}", answer.text);
        assert_eq!(floats_of(vector), numbers);
    }
}

#[tokio::test]
async fn the_provider_gets_the_clients_settings() {
    let (upstream, host) = single().await;
    upstream.reply(vectors(&[json!([1, 2]), json!([3, 4])]));
    let request = json!({
        "model": MODEL, "input": ["a", "b"], "dimensions": 2, "user": "u", "session_id": "canary",
        "trace": {"trace_id": "canary"}, "provider": {"allow_fallbacks": true}, "zebra": 1
    });
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["usage"]["prompt_tokens"], 5);
    let details = answer.body["usage"]["cost_details"].as_object().unwrap();
    for name in ["upstream_inference_prompt_cost", "upstream_inference_completions_cost"] {
        assert!(details[name].is_number(), "{name}: {}", answer.text);
    }
    assert_eq!(answer.body["model"], MODEL);
    let asked = upstream.asked_once();
    assert_eq!(asked.path, "/v1/embeddings");
    assert_eq!(asked.body, json!({"model": "upstream-a", "input": ["a", "b"], "dimensions": 2, "user": "u"}));
    assert!(!format!("{:?}", asked.headers).contains("canary"));
}

#[tokio::test]
async fn dimensions_are_respected_or_refused() {
    let host = Setup::new().start();
    for dimensions in [1, 128, 384] {
        let request = json!({"model": "local/embed", "input": "x", "dimensions": dimensions});
        let answer = ask(&host, &request).await;
        assert_eq!(floats_of(&answer.body["data"][0]["embedding"]).len(), dimensions);
    }
    for dimensions in [json!(0), json!(385), json!(-1), json!(1.5), json!("9"), json!(1u64 << 40)] {
        let request = json!({"model": "local/embed", "input": "x", "dimensions": dimensions});
        let answer = ask(&host, &request).await;
        assert_eq!(answer.status, 400, "{dimensions}: {}", answer.text);
        assert!(answer.message().contains("dimensions"), "{}", answer.text);
    }
}

#[tokio::test]
async fn input_that_no_endpoint_accepts_is_named() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several_of("embeddings", &[&a.base, &b.base])).start();
    let image =
        json!({"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]});
    let request = json!({"model": MODEL, "input": ["a", image]});
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.message().starts_with("input[1] "), "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["error_type"], "invalid_request");
    assert!(a.asked().is_empty() && b.asked().is_empty());
}

/// [`MODEL`] at the chat providers `plain`, which states nothing, and `able`, which is dearer and takes pictures.
fn plain_and_able(plain: &Upstream, able: &Upstream) -> Host {
    let models =
        with_keys(&model(MODEL, "embeddings", &["plain", "able"]), "able", "supports = [\"images\"]");
    let config = provider("plain", "openai-chat", &plain.base) + &provider("able", "openai-chat", &able.base);
    Setup::new().config(&(config + &models)).start()
}

#[tokio::test]
async fn input_that_is_not_text_goes_only_to_endpoints_that_state_its_kind() {
    let (plain, able) = (Upstream::start().await, Upstream::start().await);
    let host = plain_and_able(&plain, &able);
    let input =
        json!([{"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]);
    let only = json!({"sort": "price", "allow_fallbacks": false});
    able.reply(vectors(&[json!([1])]));
    let answer = ask(&host, &json!({"model": MODEL, "input": input, "provider": only})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // A failure that passes is not hidden by an endpoint that cannot take the input.
    able.reply(script::refusal(503, "busy"));
    able.reply(vectors(&[json!([1])]));
    let answer = ask(&host, &json!({"model": MODEL, "input": input, "provider": {"sort": "price"}})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!((plain.asked().len(), able.asked().len()), (0, 3));
}

/// Neither input is wrong alone, so the error names their kinds.
#[tokio::test]
async fn kinds_of_input_that_no_endpoint_takes_together_are_named() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let models = with_keys(&several_of("embeddings", &[&a.base, &b.base]), "a", "supports = [\"images\"]");
    let host = Setup::new().config(&with_keys(&models, "b", "supports = [\"audio\"]")).start();
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}});
    let input = json!([{"content": [image]}, {"content": [audio]}]);
    let answer = ask(&host, &json!({"model": MODEL, "input": input})).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let message = answer.message();
    assert!(message.starts_with("input: ") && message.contains("images and audio"), "{message}");
    assert!(a.asked().is_empty() && b.asked().is_empty());
}

#[tokio::test]
async fn responses_that_do_not_match_the_request_are_a_bad_gateway() {
    let (upstream, host) = single().await;
    let request = json!({"model": MODEL, "input": ["a", "b"], "dimensions": 2});
    for reply in [
        vectors(&[json!([1, 2])]),
        vectors(&[json!([1, 2]), json!([3, 4]), json!([5, 6])]),
        vectors(&[json!([1, 2]), json!([3])]),
        vectors(&[json!([]), json!([])]),
        vectors(&[json!([1, 2]), json!(["x", 2])]),
        vectors(&[json!([1, 1e300]), json!([1, 2])]),
        vectors(&[json!("AAA"), json!("AAA")]),
        vectors(&[json!(base64_of(&[f32::NAN, 1.0])), json!([1, 2])]),
        Reply::json(200, json!({"data": []})),
        Reply::json(200, json!({})),
        Reply::json(200, json!("nonsense")),
        Reply::Whole { status: 200, headers: Vec::new(), body: "<html>".to_owned() },
        script::refusal(500, "broken"),
        script::refusal(401, "who?"),
    ] {
        upstream.reply(reply);
        let answer = ask(&host, &request).await;
        assert_eq!((answer.status, answer.message()), (502, "Provider returned error"));
    }
    assert_eq!(upstream.asked().len(), 14);
}

#[tokio::test]
async fn dimensions_that_no_endpoint_supports_are_an_invalid_request() {
    let (upstream, host) = single().await;
    let request = json!({"model": MODEL, "input": ["a", "b"], "dimensions": 2});
    upstream.reply(vectors(&[json!([1, 2, 3]), json!([4, 5, 6])]));
    let answer = ask(&host, &request).await;
    let message = "dimensions is not supported by any endpoint of this model";
    assert_eq!((answer.status, answer.message()), (400, message), "{}", answer.text);
}

#[tokio::test]
async fn vectors_are_ordered_by_their_index() {
    let (upstream, host) = single().await;
    let row = |index: Value, first: u32| json!({"index": index, "embedding": [first, 7]});
    // A row without an index keeps its place.
    let written = [
        [row(json!(1), 1), row(json!(0), 0)],
        [row(json!("1"), 1), row(json!(0.0), 0)],
        [row(Value::Null, 0), row(Value::Null, 1)],
    ];
    for rows in written {
        upstream.reply(Reply::json(200, json!({"data": rows})));
        let answer = ask(&host, &json!({"model": MODEL, "input": ["a", "b"]})).await;
        assert_eq!(floats_of(&answer.body["data"][0]["embedding"]), [0.0, 7.0], "{}", answer.text);
        assert_eq!(floats_of(&answer.body["data"][1]["embedding"]), [1.0, 7.0]);
    }
}

#[tokio::test]
async fn embeddings_fall_back_like_responses() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&several_of("embeddings", &[&a.base, &b.base])).start();
    let request = json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}});
    for (status, goes_on) in [(400, false), (422, false), (429, true), (500, true), (529, true)] {
        let before = b.asked().len();
        a.reply(script::refusal(status, "no"));
        if goes_on {
            b.reply(vectors(&[json!([1])]));
        }
        let answer = ask(&host, &request).await;
        assert_eq!(answer.status, if goes_on { 200 } else { status }, "{}", answer.text);
        assert_eq!(b.asked().len() - before, usize::from(goes_on), "{status}");
    }
}

#[tokio::test]
async fn an_embedding_provider_that_does_not_answer_is_a_gateway_timeout() {
    let upstream = Upstream::start().await;
    let config = provider("a", "openai-chat", &upstream.base)
        + &format!(
            "[[models]]\nid = \"{MODEL}\"\nkind = \"embeddings\"\n\
             endpoints = [{{ provider = \"a\", model = \"up\", first_event_ms = 300 }}]\n"
        );
    let host = Setup::new().config(&config).start();
    upstream.reply(Reply::Hang);
    let answer = ask(&host, &json!({"model": MODEL, "input": "x"})).await;
    assert_eq!(answer.status, 504, "{}", answer.text);
}

#[tokio::test]
async fn the_largest_batch_is_answered_in_both_forms() {
    let (upstream, host) = single().await;
    // As decimal numbers, vectors of 3,072 numbers would be longer than the host reads.
    for (form, width) in [("float", 1536_u16), ("base64", 3072)] {
        let vector: Vec<f32> = (0..width).map(|place| f32::from(place) / 7.0).collect();
        upstream.reply(vectors(&vec![json!(base64_of(&vector)); 2048]));
        let request = json!({"model": MODEL, "input": vec!["x"; 2048], "encoding_format": form});
        let answer = ask(&host, &request).await;
        assert_eq!(answer.status, 200, "{form}: {:.200}", answer.text);
        let data = answer.body["data"].as_array().unwrap();
        assert_eq!(data.len(), 2048);
        assert_eq!(floats_of(&data[2047]["embedding"]), vector, "{form}");
        assert_eq!(upstream.asked().pop().unwrap().body["encoding_format"], "base64", "{form}");
    }
}

#[tokio::test]
async fn a_wrong_answer_of_a_provider_keeps_its_status_in_the_metadata() {
    let (upstream, host) = single().await;
    upstream.reply(vectors(&[json!([1.0, 2.0, 3.0])]));
    let request = json!({"model": MODEL, "input": "x", "dimensions": 2});
    let enabled = [("x-service-metadata", "enabled")];
    let answer = Client::new(&host).post_with("/embeddings", &request, &enabled).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(answer.body["service_metadata"]["attempts"][0]["status"], 200, "{}", answer.text);
}

#[tokio::test]
async fn parts_reach_an_endpoint_that_takes_their_kind() {
    let upstream = Upstream::start().await;
    let model = format!(
        "[[models]]\nid = \"{MODEL}\"\nkind = \"embeddings\"\n\
         endpoints = [{{ provider = \"p\", model = \"up\", supports = [\"images\"] }}]\n"
    );
    let config = provider("p", "openai-chat", &upstream.base) + &model;
    let host = Setup::new().config(&config).start();
    let part = |kind: &str| json!({"type": kind, kind: {"url": "data:image/png;base64,QUFB"}});
    let input = json!([{"content": [{"type": "text", "text": "a cat"}, part("image_url")]}]);
    let usage = json!({"prompt_tokens": 9, "total_tokens": 9,
        "prompt_tokens_details": {"text_tokens": 2, "image_tokens": 7}, "cost": "unknown"});
    upstream.reply(Reply::json(200, json!({"data": [{"index": 0, "embedding": [1.0]}], "usage": usage})));
    let answer = ask(&host, &json!({"model": MODEL, "input": input})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["usage"]["prompt_tokens_details"], json!({"text_tokens": 2, "image_tokens": 7}));
    assert_eq!(upstream.asked_once().body["input"], input);
    let audio = json!([{"content": [{"type": "input_audio", "input_audio": {"data": "QUFB"}}]}]);
    assert_eq!(ask(&host, &json!({"model": MODEL, "input": audio})).await.status, 400);
}

#[tokio::test]
async fn only_known_members_of_parts_reach_a_provider() {
    let upstream = Upstream::start().await;
    let models = with_keys(
        &model(MODEL, "embeddings", &["p"]),
        "p",
        "supports = [\"audio\", \"video\", \"files\", \"images\"]",
    );
    let host = Setup::new().config(&(provider("p", "openai-chat", &upstream.base) + &models)).start();
    let part = |kind: &str, source: Value| json!({"type": kind, kind: source});
    for kind in ["input_audio", "input_video", "input_file"] {
        let named = json!([{"content": [part(kind, json!({"file_id": "file-of-another"}))]}]);
        let refused = ask(&host, &json!({"model": MODEL, "input": named})).await;
        let message = format!("input[0].content[0].{kind}.data is required");
        assert_eq!((refused.status, refused.message()), (400, message.as_str()), "{}", refused.text);
        upstream.reply(vectors(&[json!([1])]));
        let mut odd = part(kind, json!({"data": "QUFB", "format": "x", "file_id": "file-of-another"}));
        odd["file_id"] = "file-of-another".into();
        let text = json!({"type": "text", "text": "a", "file_id": "file-of-another"});
        let picture =
            part("image_url", json!({"url": "data:image/png;base64,AAAA", "file_id": "file-of-another"}));
        let input = json!([{"content": [odd, text, picture], "file_id": "file-of-another"}]);
        assert_eq!(ask(&host, &json!({"model": MODEL, "input": input})).await.status, 200);
        let sent = upstream.asked().pop().unwrap().body;
        let expected = json!([{"content": [
            part(kind, json!({"data": "QUFB", "format": "x"})),
            {"type": "text", "text": "a"},
            part("image_url", json!({"url": "data:image/png;base64,AAAA"})),
        ]}]);
        assert_eq!(sent["input"], expected, "{kind}");
    }
    assert_eq!(upstream.asked().len(), 3);
}

#[tokio::test]
async fn an_empty_error_or_an_odd_usage_costs_no_vectors() {
    let (upstream, host) = single().await;
    for (name, odd) in
        [("error", json!("")), ("error", json!({})), ("error", json!(false)), ("usage", json!("none"))]
    {
        let mut body = json!({"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 5}});
        body[name] = odd;
        upstream.reply(Reply::json(200, body));
        let answer = ask(&host, &json!({"model": MODEL, "input": "x"})).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
    }
}

#[test]
fn a_model_at_a_provider_that_cannot_serve_its_kind_is_refused_at_the_start() {
    let config =
        provider("one", "anthropic", "http://127.0.0.1:9/v1") + &model(MODEL, "embeddings", &["one"]);
    let output = Setup::new().config(&config).argument("--check").fail();
    assert_eq!(output.status.code(), Some(78));
    let text = String::from_utf8(output.stderr).unwrap();
    let words = "endpoints[0].provider: provider-anthropic serves no models of kind `embeddings`";
    assert!(text.contains(words), "{text}");
}
