//! Failing providers: which provider is tried next, and which error the client gets in the end.

mod seals;
mod statuses;
mod wordless;

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, STEADY, model, provider, several};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::{Closed, Reply, Upstream};
use serde_json::{Value, json};

/// A request that is not streamed and tries the endpoints in the configured order.
fn request() -> Value {
    json!({"model": MODEL, "input": "x", "provider": {"sort": "price"}})
}

/// Two chat providers that are always tried in this order and once each, whatever failed before.
async fn pair() -> (Upstream, Upstream, Host) {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let host = Setup::new().config(&(STEADY.to_owned() + &several(&[&a.base, &b.base]))).start();
    (a, b, host)
}

async fn ask(host: &Host, request: &Value) -> Answer {
    Client::new(host).post("/responses", request).await
}

#[tokio::test]
async fn an_unreachable_provider_is_skipped() {
    let (closed, b) = (Closed::new(), Upstream::start().await);
    let host = Setup::new().config(&several(&[&closed.base, &b.base])).start();
    b.reply(script::chat("from b"));
    assert_eq!(ask(&host, &request()).await.output_text(), "from b");
    b.reply(script::chat_stream(&["from b"]));
    let events = Client::new(&host).stream(&request()).await;
    assert_eq!(crate::kit::client::text_of(&events), "from b");
}

#[tokio::test]
async fn unreachable_providers_are_a_bad_gateway() {
    let closed = Closed::new();
    let host = Setup::new().config(&(STEADY.to_owned() + &several(&[&closed.base, &closed.base]))).start();
    let answer = ask(&host, &request()).await;
    assert_eq!((answer.status, answer.message()), (502, "Provider returned error"));
    let metadata = &answer.body["error"]["metadata"];
    assert_eq!(metadata["error_type"], "provider_unavailable");
    assert_eq!(
        (&metadata["provider_name"], &metadata["previous_errors"][0]["provider_name"]),
        (&json!("b"), &json!("a"))
    );
}

#[tokio::test]
async fn without_fallbacks_no_other_provider_is_tried() {
    let (a, b, host) = pair().await;
    let other = "test/other";
    let host = {
        drop(host);
        let config = several(&[&a.base, &b.base]) + &model(other, "responses", &["b"]);
        Setup::new().config(&config).start()
    };
    a.reply(script::refusal(503, "busy"));
    let mut request = request();
    request["models"] = json!([other]);
    request["provider"]["allow_fallbacks"] = json!(false);
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    assert!(b.asked().is_empty());
    assert!(answer.body["error"]["metadata"].get("previous_errors").is_none());
}

#[tokio::test]
async fn the_next_model_is_tried_on_any_error_and_answers_under_its_own_name() {
    for reply in [
        script::refusal(400, "bad"),
        script::refusal(401, "who?"),
        script::refusal(404, "no such model"),
        script::refusal(429, "slow"),
        script::refusal(500, "broken"),
        Reply::json(200, json!({"choices": []})),
    ] {
        let (a, b) = (Upstream::start().await, Upstream::start().await);
        let config = provider("a", "openai-chat", &a.base)
            + &provider("b", "openai-chat", &b.base)
            + &model("test/first", "responses", &["a"])
            + &model("test/second", "responses", &["b"]);
        let host = Setup::new().config(&config).start();
        a.reply(reply);
        b.reply(script::chat("from b"));
        let request = json!({"model": "test/first", "models": ["test/first", "test/second"], "input": "x"});
        let answer =
            Client::new(&host).post_with("/responses", &request, &[("x-service-metadata", "enabled")]).await;
        assert_eq!(answer.output_text(), "from b", "{}", answer.text);
        assert_eq!(answer.body["model"], "test/second");
        let metadata = &answer.body["service_metadata"];
        assert_eq!(
            (&metadata["strategy"], &metadata["requested"]),
            (&json!("fallback"), &json!("test/first"))
        );
        assert_eq!((a.asked().len(), b.asked().len()), (1, 1));
    }
}

#[tokio::test]
async fn each_model_is_tried_once_in_the_order_given() {
    let upstream = Upstream::start().await;
    let names = ["test/one", "test/two", "test/three"];
    let models: String = names.iter().map(|name| model(name, "responses", &["a"])).collect();
    let models = names.iter().fold(models, |config, name| {
        config.replacen("model = \"upstream-a\"", &format!("model = \"{}\"", name.replace("test/", "up-")), 1)
    });
    let host = Setup::new().config(&(provider("a", "openai-chat", &upstream.base) + &models)).start();
    for _ in 0..3 {
        upstream.reply(script::refusal(400, "no"));
    }
    let request =
        json!({"model": "test/two", "models": ["test/three", "test/two", "test/one"], "input": "x"});
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    let asked: Vec<Value> = upstream.asked().iter().map(|asked| asked.body["model"].clone()).collect();
    assert_eq!(asked, [json!("up-two"), json!("up-three"), json!("up-one")]);
}

#[tokio::test]
async fn invalid_requests_never_reach_a_provider() {
    let (a, b, host) = pair().await;
    for broken in [json!({"temperature": 9}), json!({"input": []}), json!({"store": true})] {
        let mut request = request();
        request.as_object_mut().unwrap().extend(broken.as_object().unwrap().clone());
        assert_eq!(ask(&host, &request).await.status, 400);
    }
    assert!(a.asked().is_empty() && b.asked().is_empty());
}

#[tokio::test]
async fn provider_preferences_are_honoured() {
    let upstreams = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
    let [a, b, c] = &upstreams;
    let config = STEADY.to_owned() + &several(&[&a.base, &b.base, &c.base]);
    let host = Setup::new().config(&config).start();
    for (preferences, order) in [
        (json!({"order": ["c", "a"]}), "cab"),
        (json!({"order": ["b"], "sort": "price"}), "bac"),
        (json!({"order": ["b"], "allow_fallbacks": false}), "b"),
        (json!({"only": ["b"]}), "b"),
        (json!({"only": ["c", "b"], "sort": "price"}), "bc"),
        (json!({"ignore": ["a"], "sort": "price"}), "bc"),
        (json!({"sort": {"by": "price"}}), "abc"),
        (json!({"max_price": {"prompt": 10}, "sort": "price"}), "ab"),
        (json!({"order": [], "only": [], "ignore": null, "sort": "price"}), "abc"),
    ] {
        let before: Vec<usize> = upstreams.iter().map(|upstream| upstream.asked().len()).collect();
        let mut request = request();
        request["provider"] = preferences.clone();
        // No provider has a scripted reply, so all are tried, and the metadata shows the order.
        let answer =
            Client::new(&host).post_with("/responses", &request, &[("x-service-metadata", "enabled")]).await;
        let attempts = answer.body["service_metadata"]["attempts"].as_array().unwrap();
        let tried: String = attempts.iter().map(|attempt| attempt["provider"].as_str().unwrap()).collect();
        assert_eq!(tried, order, "{preferences}");
        for ((upstream, before), name) in upstreams.iter().zip(before).zip(["a", "b", "c"]) {
            assert_eq!(upstream.asked().len() - before, usize::from(order.contains(name)), "{preferences}");
        }
    }
}

#[tokio::test]
async fn preferences_that_exclude_every_endpoint_are_a_404() {
    let (a, b, host) = pair().await;
    let mut request = request();
    request["provider"] = json!({"only": ["nobody"]});
    let answer = ask(&host, &request).await;
    assert_eq!(answer.status, 404, "{}", answer.text);
    assert!(answer.message().contains("provider.only"), "{}", answer.text);
    assert!(a.asked().is_empty() && b.asked().is_empty());
}

#[tokio::test]
async fn last_error_lists_earlier_errors_in_its_metadata() {
    let upstreams = [Upstream::start().await, Upstream::start().await, Upstream::start().await];
    let [a, b, c] = &upstreams;
    let host = Setup::new().config(&several(&[&a.base, &b.base, &c.base])).start();
    a.reply(script::refusal(429, "slow down"));
    b.reply(script::refusal(503, "busy"));
    c.reply(script::refusal(422, "input[0] is odd"));
    let answer = ask(&host, &request()).await;
    assert_eq!((answer.status, answer.message()), (422, "Provider returned error: input[0] is odd"));
    let metadata = &answer.body["error"]["metadata"];
    assert_eq!((&metadata["provider_name"], &metadata["error_type"]), (&json!("c"), &json!("unprocessable")));
    let previous: Vec<(&str, u64)> = metadata["previous_errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| (error["provider_name"].as_str().unwrap(), error["status"].as_u64().unwrap()))
        .collect();
    assert_eq!(previous, [("a", 429), ("b", 503)], "{}", answer.text);
}

#[tokio::test]
async fn all_errors_around_a_rate_limit_are_reported() {
    let (a, b, host) = pair().await;
    a.reply(script::refusal(503, "busy"));
    b.reply(script::refusal(429, "slow down"));
    let answer = ask(&host, &request()).await;
    assert_eq!(answer.status, 502, "{}", answer.text);
    let metadata = &answer.body["error"]["metadata"];
    assert_eq!(metadata["provider_name"], "a", "the error that is told is a's");
    assert_eq!(metadata["previous_errors"][0]["provider_name"], "b", "{}", answer.text);
}

#[tokio::test]
async fn tools_of_one_dialect_go_only_to_endpoints_that_have_it() {
    let (chat, own) = (Upstream::start().await, Upstream::start().await);
    let config = provider("a", "openai-chat", &chat.base)
        + &provider("b", "openai-responses", &own.base)
        + &model(MODEL, "responses", &["a", "b"]);
    let host = Setup::new().config(&config).start();
    own.reply(script::response(&json!([script::message("from b")])));
    let mut request = request();
    request["tools"] =
        json!([{"type": "computer", "environment": "browser", "display_width": 800, "display_height": 600}]);
    assert_eq!(ask(&host, &request).await.output_text(), "from b");
    assert!(chat.asked().is_empty());
}

/// [`MODEL`] and `test/other`, each free at the first provider and at a price at the second one.
fn free_and_priced(free: &Upstream, priced: &Upstream) -> Host {
    let endpoints = "{ provider = \"free\", model = \"m\" }, { provider = \"priced\", model = \"m\", input = 1, output = 1 }";
    let models =
        [MODEL, "test/other"].map(|id| format!("[[models]]\nid = \"{id}\"\nendpoints = [{endpoints}]\n"));
    let providers =
        provider("free", "openai-chat", &free.base) + &provider("priced", "openai-chat", &priced.base);
    Setup::new().config(&(STEADY.to_owned() + &providers + &models.concat())).start()
}

#[tokio::test]
async fn a_model_may_follow_itself_with_the_suffix_free() {
    let (free, priced) = (Upstream::start().await, Upstream::start().await);
    let host = free_and_priced(&free, &priced);
    free.reply(script::limited(429, "1"));
    priced.reply(script::chat("paid"));
    let slug = format!("{MODEL}:free");
    let answer = ask(&host, &json!({"model": slug, "models": [MODEL], "input": "x"})).await;
    assert_eq!(answer.output_text(), "paid", "{}", answer.text);
    assert_eq!((free.asked().len(), priced.asked().len()), (1, 1), "the free endpoint is tried once");
}

#[tokio::test]
async fn the_suffix_free_binds_further_models_too() {
    let (free, priced) = (Upstream::start().await, Upstream::start().await);
    let host = free_and_priced(&free, &priced);
    for _ in 0..2 {
        free.reply(script::limited(429, "1"));
    }
    priced.reply(script::limited(429, "1"));
    priced.reply(script::chat("paid"));
    let answer = ask(&host, &json!({"model": MODEL, "models": ["test/other:free"], "input": "x"})).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(
        (free.asked().len(), priced.asked().len()),
        (2, 1),
        "the other model is asked where it is free"
    );
}
