use cofferdam_guest_kit::bindings::dialect::Target;
use cofferdam_guest_kit::bindings::types::ErrorKind;
use proptest::prelude::{any, proptest};

use super::{EmbeddingFailure, decode_embeddings, prepare_embeddings};

fn target(supports: &[&str], options: &[u8]) -> Target {
    Target {
        model: "up".into(),
        max_output: 0,
        supports: supports.iter().map(|ability| (*ability).to_owned()).collect(),
        tier: "default".into(),
        options: options.to_vec(),
    }
}

fn sent(request: &str, supports: &[&str]) -> String {
    let target = target(supports, b"{}");
    String::from_utf8(prepare_embeddings(request.as_bytes(), &target).unwrap().body).unwrap()
}

#[test]
fn requests_are_translated() {
    let cases = [
        (r#"{"model":"m","input":["a"]}"#, r#"{"model":"up","input":["a"]}"#),
        (
            r#"{"model":"m","input":["a","b\n"],"dimensions":8,"encoding_format":"base64","input_type":"query","user":"u"}"#,
            r#"{"model":"up","input":["a","b\n"],"dimensions":8,"encoding_format":"base64","user":"u"}"#,
        ),
        (r#"{"model":"m","input":[[1,2],[3]]}"#, r#"{"model":"up","input":[[1,2],[3]]}"#),
        (
            r#"{"model":"m","input":[{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}"#,
            r#"{"model":"up","input":["a\nb"]}"#,
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(sent(request, &[]), expected);
    }
    let typed = sent(r#"{"model":"m","input":["a"],"input_type":"query"}"#, &["input_type"]);
    assert_eq!(typed, r#"{"model":"up","input":["a"],"input_type":"query"}"#);
}

#[test]
fn vectors_that_may_be_too_long_as_decimal_numbers_are_asked_for_as_base64() {
    // 64 MiB hold 992 vectors of 3,072 numbers with 22 bytes each.
    for (count, dimensions, is_base64) in
        [(992, None, false), (993, None, true), (2048, Some(1_024), false), (2048, Some(1_536), true)]
    {
        let dimensions =
            dimensions.map_or_else(String::new, |wanted: u32| format!(r#","dimensions":{wanted}"#));
        let input = vec![r#""a""#; count].join(",");
        let request = format!(r#"{{"model":"m","input":[{input}]{dimensions},"encoding_format":"float"}}"#);
        let expected =
            if is_base64 { r#""encoding_format":"base64""# } else { r#""encoding_format":"float""# };
        assert!(sent(&request, &[]).ends_with(&format!("{expected}}}")), "{count}{dimensions}");
    }
}

#[test]
fn a_vector_stands_where_its_index_says() {
    let answer = |first: &str, second: &str| {
        let body = format!(r#"{{"data":[{{{first}"embedding":[1]}},{{{second}"embedding":[2]}}]}}"#);
        decode_embeddings(body.as_bytes()).map(|answer| answer.vectors)
    };
    let (one, two) = (1f32.to_le_bytes().to_vec(), 2f32.to_le_bytes().to_vec());
    for (first, second) in [
        (r#""index":1,"#, r#""index":0,"#),
        (r#""index":"1","#, r#""index":"0","#),
        (r#""index":1.0,"#, "\"index\":0.0,"),
    ] {
        assert_eq!(answer(first, second), Ok(vec![two.clone(), one.clone()]), "{first}");
    }
    assert_eq!(answer("", r#""index":null,"#), Ok(vec![one, two]));
    for index in ["-1", "0.5", r#""a""#, "{}"] {
        assert!(answer("", &format!(r#""index":{index},"#)).is_err(), "{index}");
    }
}

#[test]
fn parts_that_the_endpoint_takes_are_written_as_the_client_wrote_them() {
    let parts = r#"{"content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}},{"type":"input_audio","input_audio":{"data":"QQ==","format":"mp3"}}]}"#;
    let request = format!(r#"{{"model":"m","input":[{parts},"a"]}}"#);
    assert_eq!(sent(&request, &["images", "audio"]), format!(r#"{{"model":"up","input":[{parts},"a"]}}"#));
    let unknown = r#"{"model":"m","input":[{"content":[{"type":"smell","x":1}]}]}"#;
    for (request, supports) in [(request.as_str(), &["images"]), (unknown, &["smell"])] {
        let answer = prepare_embeddings(request.as_bytes(), &target(supports, b"{}"));
        assert_eq!(answer, Err(EmbeddingFailure::UnsupportedInput(0)));
    }
}

#[test]
fn odd_figures_cost_no_vectors() {
    let usage = |usage: &str| {
        let body = format!(r#"{{"data":[{{"embedding":[1]}}],"usage":{usage}}}"#);
        decode_embeddings(body.as_bytes()).unwrap()
    };
    assert_eq!(usage(r#"{"prompt_tokens":3,"cost":"0.0002"}"#).cost_dollars, None);
    assert_eq!(usage(r#"{"prompt_tokens":3,"cost":-1}"#).cost_dollars, None);
    for (details, expected) in [
        (r#"{"text_tokens":3,"image_tokens":4,"audio_tokens":0}"#, r#"{"image_tokens":4,"text_tokens":3}"#),
        (r#"{"text_tokens":3,"cached_tokens":2}"#, ""),
        (r#"{"text_tokens":3,"image_tokens":8}"#, ""),
        ("null", ""),
        ("[7]", ""),
    ] {
        let answer = usage(&format!(r#"{{"prompt_tokens":7,"prompt_tokens_details":{details}}}"#));
        assert_eq!(String::from_utf8(answer.prompt_tokens_details).unwrap(), expected, "{details}");
    }
}

#[test]
fn what_an_answer_may_do_without_costs_no_vectors() {
    for odd in [r#""error":"""#, r#""error":{}"#, r#""error":false"#, r#""usage":"none""#, r#""usage":7"#] {
        let body = format!(r#"{{"data":[{{"embedding":[1]}}],{odd}}}"#);
        let answer = decode_embeddings(body.as_bytes()).unwrap();
        assert_eq!((answer.vectors.len(), answer.prompt_tokens), (1, 0), "{odd}");
    }
    let body = br#"{"data":[{"embedding":[1]}],"error":"no such model"}"#;
    assert!(decode_embeddings(body).is_err());
}

#[test]
fn an_input_that_is_not_text_is_named() {
    let request = br#"{"model":"m","input":["a",{"content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"u"}}]}]}"#;
    assert_eq!(prepare_embeddings(request, &target(&[], b"{}")), Err(EmbeddingFailure::UnsupportedInput(1)));
    assert!(matches!(prepare_embeddings(b"[", &target(&[], b"{}")), Err(EmbeddingFailure::Failed(_))));
}

#[test]
fn numbers_and_base64_give_the_same_bytes_in_the_order_of_the_input() {
    let numbers = br#"{"object":"list","data":[{"index":1,"embedding":[0.5,-2]},{"index":0,"embedding":[1,1e-3]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}"#;
    let base64 = br#"{"data":[{"index":1,"embedding":"AAAAPwAAAMA="},{"index":0,"embedding":"AACAP28Sgzo"}],"usage":{"prompt_tokens":3,"total_tokens":4,"cost":0.5}}"#;
    let from_numbers = decode_embeddings(numbers).unwrap();
    let from_base64 = decode_embeddings(base64).unwrap();
    assert_eq!(from_numbers.vectors, from_base64.vectors);
    assert_eq!(from_numbers.vectors[1], [0.5f32.to_le_bytes(), (-2f32).to_le_bytes()].concat());
    assert_eq!((from_numbers.prompt_tokens, from_numbers.total_tokens), (3, 3));
    assert_eq!((from_base64.total_tokens, from_base64.cost_dollars), (4, Some(0.5)));
}

#[test]
fn an_answer_that_does_not_fit_is_refused() {
    for body in [
        "",
        "{}",
        r#"{"data":[]}"#,
        r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
        r#"{"data":[{"index":2,"embedding":[1]}]}"#,
        r#"{"data":[{"embedding":[1]},{"embedding":[1,2]}]}"#,
        r#"{"data":[{"embedding":[]}]}"#,
        r#"{"data":[{"embedding":[null]}]}"#,
        r#"{"data":[{"embedding":[1e300]}]}"#,
        r#"{"data":[{"embedding":"AAAA"}]}"#,
        r#"{"data":[{"embedding":"!"}]}"#,
        r#"{"data":[{"embedding":"AACAfw=="}]}"#,
    ] {
        let failure = decode_embeddings(body.as_bytes()).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::ProviderUnavailable, "{body}");
    }
}

#[test]
fn an_error_inside_the_answer_is_translated() {
    let body = br#"{"error":{"message":"No such model","code":"model_not_found"}}"#;
    assert_eq!(decode_embeddings(body).unwrap_err().kind, ErrorKind::NotFound);
    let flat = br#"{"object":"error","message":"bad","code":400}"#;
    assert_eq!(decode_embeddings(flat).unwrap_err().kind, ErrorKind::InvalidRequest);
}

proptest! {
    #[test]
    fn any_body_is_decoded_or_refused(body in any::<Vec<u8>>(), json in "[\\[\\]{}\",:a-e0-9]{0,60}") {
        let _ = decode_embeddings(&body);
        let _ = decode_embeddings(format!("{{\"data\":[{{\"embedding\":{json}}}]}}").as_bytes());
        let _ = prepare_embeddings(&body, &target(&[], b"{}"));
        let _ = prepare_embeddings(json.as_bytes(), &target(&[], b"{}"));
    }
}

#[test]
fn provider_options_are_added_to_the_request() {
    let options = br#"{"truncate":"END"}"#;
    let request = br#"{"model":"m","input":["a"]}"#;
    let body = prepare_embeddings(request, &target(&[], options)).unwrap().body;
    assert_eq!(String::from_utf8(body).unwrap(), r#"{"model":"up","input":["a"],"truncate":"END"}"#);
}
