//! The cost of a request is estimated before it is sent. If the estimate missed pictures, files,
//! sealed reasoning or schemas, many concurrent requests could spend the same credit.

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream, sse_event};
use serde_json::{Value, json};

/// Concurrent requests.
const AT_ONCE: usize = 42;

/// [`MODEL`] at three dollars per million tokens.
fn host(adapter: &str, upstream: &Upstream) -> Host {
    let endpoint = "{ provider = \"one\", model = \"m\", input = 3, output = 3 }";
    let config = provider("one", adapter, &upstream.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{endpoint}]\n");
    Setup::new().config(&config).start()
}

/// A client of a new workspace with one cent of credit.
fn poor(host: &Host, name: &str) -> Client {
    host.command(&["workspace", "create", name]);
    host.command(&["credits", "add", name, "0.01"]);
    let key = host.command(&["key", "create", "--workspace", name]);
    Client::with_key(host, key["key"].as_str().unwrap())
}

fn spent(host: &Host, name: &str) -> f64 {
    host.command(&["credits", "show", name])["spent"].as_f64().unwrap()
}

fn assert_busy(answer: &Answer) {
    assert_eq!(answer.status, 402, "{}", answer.text);
    assert_eq!(answer.headers["retry-after"], "1", "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["limit"], "credit", "{}", answer.text);
    assert_eq!(answer.body["error"]["metadata"]["error_type"], "payment_required", "{}", answer.text);
}

/// Bodies that cost more than a cent, each for a single reason.
fn dear() -> Vec<(&'static str, Value)> {
    let data = "QUFB".repeat(4_000);
    let long = "word ".repeat(800);
    let user = |part: Value| json!([{"type": "message", "role": "user", "content": [part]}]);
    let asks = |input: Value| json!({"model": MODEL, "input": input, "max_output_tokens": 16});
    let with = |name: &str, value: Value| {
        let mut body = asks(json!("x"));
        body[name] = value;
        body
    };
    let schema = json!({"type": "object", "description": long});
    let url = |kind: &str| format!("data:{kind};base64,{data}");
    let sealed = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": data});
    vec![
        ("text", asks(json!(long))),
        ("picture", asks(user(json!({"type": "input_image", "image_url": "data:image/png;base64,QUFB"})))),
        (
            "file",
            asks(user(
                json!({"type": "input_file", "filename": "a.pdf", "file_data": url("application/pdf")}),
            )),
        ),
        ("audio", asks(user(json!({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}})))),
        ("sealed", asks(json!([{"role": "user", "content": "x"}, sealed, {"role": "user", "content": "y"}]))),
        ("tools", with("tools", json!([{"type": "function", "name": "f", "parameters": schema}]))),
        ("reasoning", with("reasoning", json!({"max_tokens": 4_000}))),
        ("format", with("text", json!({"format": {"type": "json_schema", "name": "f", "schema": schema}}))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_spend_no_more_than_a_single_one() {
    let upstream = Upstream::start().await;
    // The provider reports three dollars of input and one token of output for every request.
    let usage = json!({"input_tokens": 1_000_000, "output_tokens": 1, "total_tokens": 1_000_001});
    let body = json!({"id": "resp_up", "object": "response", "status": "completed", "output": [script::message("a")],
        "usage": usage});
    upstream.always(move |_| Reply::json(200, body.clone()));
    let host = host("openai-responses", &upstream);
    for (asked, (name, body)) in dear().into_iter().enumerate() {
        let client = poor(&host, name);
        let answers = (0..AT_ONCE).map(|_| client.post("/responses", &body));
        let answers = futures_util::future::join_all(answers).await;
        let served = answers.iter().filter(|answer| answer.status == 200).count();
        let refused = answers.iter().filter(|answer| answer.status == 402).count();
        assert_eq!((served, refused), (1, AT_ONCE - 1), "{name}: {}", answers[0].text);
        assert_eq!(spent(&host, name), 3.000_003, "{name}");
        assert_eq!(upstream.asked().len(), asked + 1, "{name}: a refused request reaches no provider");
    }
}

/// The context of a model for embeddings bounds each input, not all of them together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_embeddings_reserves_what_all_its_inputs_may_cost() {
    const INPUTS: usize = 100;
    let upstream = Upstream::start().await;
    let vectors: Vec<Value> = (0..INPUTS).map(|index| json!({"index": index, "embedding": [1.0]})).collect();
    let usage = json!({"prompt_tokens": 10_000, "total_tokens": 10_000});
    upstream.always(move |_| Reply::json(200, json!({"data": vectors, "usage": usage})));
    let endpoint = "{ provider = \"one\", model = \"m\", input = 3 }";
    let model = format!(
        "[[models]]\nid = \"{MODEL}\"\nkind = \"embeddings\"\ncontext_length = 100\nendpoints = [{endpoint}]\n"
    );
    let host = Setup::new().config(&(provider("one", "openai-chat", &upstream.base) + &model)).start();
    let client = poor(&host, "poor");
    let body = json!({"model": MODEL, "input": vec!["x".repeat(100); INPUTS]});
    let answers = (0..AT_ONCE).map(|_| client.post("/embeddings", &body));
    let answers = futures_util::future::join_all(answers).await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.status == 402).count();
    assert_eq!((served, refused), (1, AT_ONCE - 1), "{}", answers[0].text);
    assert_eq!(spent(&host, "poor"), 0.03);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_may_cost_too_much_is_refused_until_others_end() {
    let upstream = Upstream::start().await;
    let host = host("openai-chat", &upstream);
    let client = poor(&host, "poor");
    let (words, reply) = Reply::fed();
    upstream.reply(reply);
    words.send(sse_event(&script::word("a"))).await.unwrap();
    // 3,216 of the 3,333 tokens that a cent buys.
    let small = json!({"model": MODEL, "input": "x".repeat(3_200), "max_output_tokens": 16});
    let mut running = client.open(&small).await;
    running.until("response.output_text.delta").await;
    let large = json!({"model": MODEL, "input": "x".repeat(3_400), "max_output_tokens": 16});
    assert_busy(&client.post("/responses", &large).await);
    let mut streamed = large.clone();
    streamed["stream"] = true.into();
    assert_busy(&client.post("/responses", &streamed).await);
    // A request that fits into the remaining credit runs at once.
    upstream.reply(script::chat("fits"));
    let fits = json!({"model": MODEL, "input": "x".repeat(30), "max_output_tokens": 16});
    assert_eq!(client.post("/responses", &fits).await.output_text(), "fits");
    drop(words);
    running.until("response.failed").await;
    upstream.reply(script::chat("alone"));
    assert_eq!(client.post("/responses", &large).await.output_text(), "alone", "nothing else runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_fit_into_the_credit_run_concurrently() {
    let upstream = Upstream::start().await;
    let mut host = host("openai-chat", &upstream);
    let client = poor(&host, "poor");
    let body = json!({"model": MODEL, "input": "x".repeat(100), "max_output_tokens": 16});
    let mut running = Vec::new();
    for _ in 0..10 {
        let (words, reply) = Reply::fed();
        upstream.reply(reply);
        words.send(sse_event(&script::word("a"))).await.unwrap();
        let mut events = client.open(&body).await;
        events.until("response.output_text.delta").await;
        running.push((events, words));
    }
    assert_eq!(upstream.asked().len(), 10);
    drop(running);
    // Nothing is reserved after all requests have ended.
    while host.command(&["credits", "show", "poor"])["reserved"] != json!(0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(usage_of(&mut host).len(), 10);
}
