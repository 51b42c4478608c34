//! Checks that work grows linearly with the length of lists in a body. Each shape is parsed with n
//! and with 2n elements, and the steps of iterators are counted.

use crate::request::walk::steps_of;
use crate::request::{EmbeddingsRequest, ResponsesRequest, read_transcript};
use serde_json::{Value, json};

fn repeated(count: usize, item: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(item).collect()
}

fn request(input: Vec<Value>) -> Value {
    json!({"model": "m", "input": input})
}

fn functions(count: usize) -> Vec<Value> {
    repeated(
        count,
        |n| json!({"type": "function", "name": format!("f{n}"), "parameters": {"type": "object"}}),
    )
}

/// Bodies of every shape that has a list, each with `n` elements.
fn shapes(n: usize) -> Vec<(&'static str, Value)> {
    let user = |content: Value| json!({"role": "user", "content": content});
    let tools = |tools: Vec<Value>| json!({"model": "m", "input": "x", "tools": tools});
    vec![
        ("messages", request(repeated(n, |_| user(json!("x"))))),
        ("parts", request(vec![user(json!(repeated(n, |_| json!({"type": "input_text", "text": "x"}))))])),
        ("calls of server tools", request(repeated(n, |_| json!({"type": "service:x"})))),
        (
            "answered calls of server tools",
            request(repeated(n, |place| match place % 2 {
                0 => json!({"type": "service:x", "call_id": format!("c{}", place / 2)}),
                _ => {
                    json!({"type": "function_call_output", "call_id": format!("c{}", place / 2), "output": "x"})
                }
            })),
        ),
        (
            "calls first, results last",
            request(repeated(n, |place| match place < n / 2 {
                true => {
                    json!({"type": "function_call", "call_id": format!("c{place}"), "name": "f", "arguments": "{}"})
                }
                false => {
                    json!({"type": "function_call_output", "call_id": format!("c{}", place - n / 2), "output": "x"})
                }
            })),
        ),
        ("calls of stand-ins", request(repeated(n, |_| json!({"type": "web_search_call", "id": "w"})))),
        ("members of an item", {
            let members: serde_json::Map<_, _> = (0..n).map(|n| (format!("m{n}"), json!(n))).collect();
            let mut item = json!({"type": "agent_message"});
            item.as_object_mut().unwrap().extend(members);
            request(vec![item])
        }),
        ("tools", tools(functions(n.min(1024)))),
        (
            "a namespace",
            tools(vec![json!({"type": "namespace", "name": "n", "tools": functions(n.min(1024))})]),
        ),
        ("tools and a choice among them", {
            let names = repeated(n.min(1024), |n| json!({"type": "function", "name": format!("f{n}")}));
            json!({"model": "m", "input": "x", "tools": functions(n.min(1024)),
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": names}})
        }),
        ("options", {
            let options: serde_json::Map<_, _> =
                (0..n.min(256)).map(|n| (format!("o{n}"), json!({"a": n}))).collect();
            json!({"model": "m", "input": "x", "provider": {"options": options}})
        }),
    ]
}

/// All work on a body before models are asked.
fn work(body: &Value) {
    let request = ResponsesRequest::parse(body.to_string().as_bytes(), &[]).unwrap();
    read_transcript(&request.input_array(), &["web_search_call".to_owned()], &[]).unwrap();
}

#[test]
fn work_grows_linearly_with_the_body() {
    for n in [100, 500] {
        for ((shape, one), (_, two)) in shapes(n).iter().zip(shapes(2 * n)) {
            let ((), once) = steps_of(|| work(one));
            let ((), twice) = steps_of(|| work(&two));
            assert!(once > 0 && twice < 3 * once, "{shape}: {once} steps for {n}, {twice} for twice that");
        }
    }
}

#[test]
fn work_grows_linearly_with_embedding_inputs() {
    let body = |n: usize| {
        let content = repeated(n, |_| json!({"type": "text", "text": "x"}));
        let mut input = repeated(n, |_| json!("x"));
        input.push(json!({"content": content}));
        json!({"model": "m", "input": input}).to_string()
    };
    let work = |n| steps_of(|| EmbeddingsRequest::parse(body(n).as_bytes()).unwrap()).1;
    let (once, twice) = (work(400), work(800));
    assert!(twice < 3 * once, "{once} steps, {twice} for twice that");
}

#[test]
fn lists_beyond_a_limit_are_refused_with_path_and_limit() {
    let tool = |name: &str| json!({"type": "function", "name": name});
    let text = || json!({"type": "input_text", "text": "x"});
    let options: serde_json::Map<String, Value> = (0..257).map(|n| (format!("o{n}"), json!({}))).collect();
    let one_option: serde_json::Map<String, Value> = (0..257).map(|n| (format!("o{n}"), json!(n))).collect();
    let namespace = |count| json!({"type": "namespace", "name": "n", "tools": vec![tool("f"); count]});
    for (body, said) in [
        (request(vec![json!({"type": "service:x"}); 10_001]), "input must hold at most 10000 items"),
        (
            request(vec![json!({"role": "user", "content": vec![text(); 5_001]}); 2]),
            "input[1].content holds one part too many: the whole input may hold 10000",
        ),
        (
            request(vec![
                json!({"type": "function_call_output", "call_id": "c", "output": vec![text(); 10_001]}),
            ]),
            "input[0].output holds one part too many: the whole input may hold 10000",
        ),
        (
            json!({"model": "m", "input": "x", "tools": [tool("a"), namespace(512), namespace(512)]}),
            "tools[2].tools holds one tool too many: a request may offer 1024",
        ),
        (
            json!({"model": "m", "input": [{"type": "additional_tools", "tools": [namespace(1024)]}],
                "tools": [tool("a")]}),
            "tools holds one tool too many: a request may offer 1024",
        ),
        (
            json!({"model": "m", "input": "x", "provider": {"options": options}}),
            "provider.options must have at most 256 members",
        ),
        (
            json!({"model": "m", "input": "x", "provider": {"options": {"p": one_option}}}),
            "provider.options.p must have at most 256 members",
        ),
    ] {
        let error = ResponsesRequest::parse(body.to_string().as_bytes(), &[]).unwrap_err();
        assert!(error.to_string().starts_with(said), "{error}");
    }
    let content = vec![json!({"type": "text", "text": "x"}); 2_000];
    let body = json!({"model": "m", "input": vec![json!({"content": content}); 6]});
    let error = EmbeddingsRequest::parse(body.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "input[5].content holds one part too many: the whole input may hold 10000");
}

#[test]
fn lists_at_the_limit_are_accepted() {
    let text = || json!({"type": "input_text", "text": "x"});
    let namespace = json!({"type": "namespace", "name": "n", "tools":
        vec![json!({"type": "function", "name": "f"}); 1024]});
    for body in [
        request(vec![json!({"type": "service:x"}); 10_000]),
        request(vec![json!({"role": "user", "content": vec![text(); 5_000]}); 2]),
        json!({"model": "m", "input": "x", "tools": [namespace]}),
    ] {
        ResponsesRequest::parse(body.to_string().as_bytes(), &[]).unwrap();
    }
}
