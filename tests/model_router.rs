//! Requests that name a model router instead of a model; a guest then chooses the model.

use crate::kit::client::Client;
use crate::kit::config::provider;
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::script::chat;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

/// Three models at one provider, from cheap to expensive.
const MODELS: [(&str, u32); 3] = [("acme/small", 1), ("acme/medium", 10), ("other/large", 100)];

struct Bench {
    host: Host,
    upstream: Upstream,
}

impl Bench {
    async fn start() -> Self {
        Self::with(|setup| setup).await
    }

    async fn with(change: impl Fn(Setup) -> Setup) -> Self {
        let upstream = Upstream::start().await;
        let providers = ["p", "q"].map(|name| provider(name, "openai-chat", &upstream.base)).concat();
        let mut setup = change(Setup::new().config(&providers));
        for (id, price) in MODELS {
            setup = setup.config(&format!(
                "[[models]]\nid = \"{id}\"\nendpoints = [{{ provider = \"p\", model = \"up-{id}\", input = {price}, output = {price} }}]"
            ));
        }
        Self { host: setup.start(), upstream }
    }

    async fn ask(&self, request: &Value) -> Value {
        self.upstream.reply(chat("chosen"));
        let enabled = [("x-service-metadata", "enabled")];
        let answer = Client::new(&self.host).post_with("/responses", request, &enabled).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    async fn refusal(&self, request: &Value) -> (u16, String) {
        let answer = Client::new(&self.host).post("/responses", request).await;
        (answer.status, answer.message().to_owned())
    }
}

fn auto(settings: Value) -> Value {
    let mut entry = json!({"id": "auto-router"});
    entry.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    json!({"model": "service/auto", "input": "Hello.", "plugins": [entry]})
}

#[tokio::test]
async fn the_model_is_chosen_by_price_band_patterns_and_exclusions() {
    let bench = Bench::start().await;
    let table = [
        (json!({"cost_tier": "low"}), "acme/small"),
        (json!({"cost_tier": "max"}), "other/large"),
        (json!({"cost_tier": "max", "allowed_models": ["acme/*"]}), "acme/medium"),
        (json!({"cost_tier": "low", "excluded_models": ["*/small"]}), "acme/medium"),
        (json!({"enabled": false, "allowed_models": ["other/*"]}), "acme/small"),
    ];
    for (settings, expected) in table {
        let response = bench.ask(&auto(settings.clone())).await;
        assert_eq!(response["model"], expected, "{settings}");
        assert_eq!(bench.upstream.asked().pop().unwrap().body["model"], format!("up-{expected}"));
    }
}

#[tokio::test]
async fn metadata_names_the_router_and_the_requested_model() {
    let bench = Bench::start().await;
    for slug in ["service/auto", "openrouter/auto", "service/auto:floor"] {
        let response = bench.ask(&json!({"model": slug, "input": "Hello."})).await;
        let metadata = &response["service_metadata"];
        assert_eq!((&metadata["requested"], &metadata["strategy"]), (&json!(slug), &json!("auto")));
        let stage = &metadata["pipeline"][0];
        assert_eq!((&stage["type"], &stage["name"]), (&json!("model_router"), &json!("router-auto")));
        assert!(!stage["summary"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn restrictions_that_leave_nothing_are_a_404_and_wrong_settings_a_400() {
    let bench = Bench::start().await;
    let nothing = bench.refusal(&auto(json!({"allowed_models": ["none/*"]}))).await;
    assert_eq!(nothing, (404, "No models match your request and model restrictions".to_owned()));
    let (status, message) = bench.refusal(&auto(json!({"cost_tier": "cheap"}))).await;
    assert_eq!(status, 400);
    assert!(message.contains("cost_tier"), "{message}");
    let (status, message) = bench.refusal(&json!({"model": "service/nobody", "input": "x"})).await;
    assert_eq!((status, message.as_str()), (404, "Model service/nobody is not available on this host"));
}

#[tokio::test]
async fn a_router_can_be_the_fallback_of_a_model() {
    let bench = Bench::start().await;
    bench.upstream.reply(crate::kit::script::refusal(503, "busy"));
    let request = json!({"model": "other/large", "models": ["service/auto"], "input": "Hello.",
        "plugins": [{"id": "auto-router", "cost_tier": "low", "excluded_models": ["other/*"]}]});
    let response = bench.ask(&request).await;
    assert_eq!(response["model"], "acme/small");
    assert_eq!(response["service_metadata"]["strategy"], "auto");
    // The model before the router was not chosen by a router.
    let response = bench.ask(&request).await;
    assert_eq!(
        (&response["model"], &response["service_metadata"]["strategy"]),
        (&json!("other/large"), &json!("fallback"))
    );
}

#[tokio::test]
async fn a_router_that_finds_nothing_leaves_the_other_models_of_the_request() {
    let bench = Bench::start().await;
    for (model, other) in [("other/large", "service/auto"), ("service/auto", "other/large")] {
        let response = bench
            .ask(&json!({"model": model, "models": [other], "input": "Hello.",
                "plugins": [{"id": "auto-router", "allowed_models": ["none/*"]}]}))
            .await;
        assert_eq!(response["model"], "other/large");
    }
}

#[tokio::test]
async fn a_model_that_is_named_twice_is_offered_to_routers_once() {
    let bench = Bench::start().await;
    let models = json!(["acme/small:floor", "acme/small", "acme/medium"]);
    let response =
        bench.ask(&json!({"model": "service/switchyard", "models": models, "input": "Hello."})).await;
    assert!(response["model"].as_str().unwrap().starts_with("acme/"), "{response}");
}

#[tokio::test]
async fn routers_are_offered_no_model_that_must_not_get_the_content() {
    let private = "[[models]]\nid = \"acme/private\"\nendpoints = [{ provider = \"q\", model = \"up\", zdr = true, \
        data_collection = \"deny\", input = 50, output = 50 }]";
    let guests = folder(&["router-picky"]);
    let bench = Bench::with(|setup| setup.config(private).plugins(guests.path())).await;
    for slug in ["service/auto", "service/picky"] {
        for wish in [json!({"zdr": true}), json!({"data_collection": "deny"}), json!({"only": ["q"]})] {
            let mut provider = wish.clone();
            provider["allow_fallbacks"] = json!(false);
            let response = bench.ask(&json!({"model": slug, "input": "Hello.", "provider": provider})).await;
            assert_eq!(response["model"], "acme/private", "{slug} {wish}");
        }
    }
}

/// Otherwise the price of an endpoint that is not asked would make a model cheap.
#[tokio::test]
async fn models_are_judged_by_the_endpoints_that_the_request_permits() {
    let model = |id: &str, endpoints: &[(&str, u32)]| {
        let endpoint = |(provider, price): &(&str, u32)| {
            format!("{{ provider = \"{provider}\", model = \"up\", input = {price}, output = {price} }}")
        };
        let endpoints = endpoints.iter().map(endpoint).collect::<Vec<_>>().join(", ");
        format!("[[models]]\nid = \"{id}\"\nendpoints = [{endpoints}]\n")
    };
    let more = model("acme/wide", &[("p", 2), ("q", 200)]) + &model("acme/even", &[("q", 50)]);
    let bench = Bench::with(|setup| setup.config(&more)).await;
    for (only, expected) in [("q", "acme/even"), ("p", "acme/small")] {
        let mut request = auto(json!({"cost_tier": "low"}));
        request["provider"] = json!({"only": [only]});
        assert_eq!(bench.ask(&request).await["model"], expected, "{only}");
    }
}

#[tokio::test]
async fn a_conversation_longer_than_the_context_loses_its_middle() {
    let upstream = Upstream::start().await;
    let host = Setup::new()
        .config(&provider("p", "openai-chat", &upstream.base))
        .config("[[models]]\nid = \"a/b\"\ncontext_length = 200\nendpoints = [{ provider = \"p\", model = \"m\" }]")
        .start();
    let turn = |role: &str, text: String| json!({"role": role, "content": text});
    let mut input = vec![turn("user", "the first question".to_owned())];
    for place in 0..20 {
        input.push(turn("assistant", format!("answer {place} {}", "word ".repeat(20))));
        input.push(turn("user", format!("question {place}")));
    }
    let mut request = json!({"model": "a/b", "input": input, "plugins": [{"id": "context-compression"}]});
    upstream.reply(chat("short"));
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 200);
    let sent = upstream.asked().pop().unwrap().body["messages"].to_string();
    assert!(sent.contains("the first question") && sent.contains("question 19"), "{sent}");
    assert!(!sent.contains("question 9"), "{sent}");

    request["plugins"][0]["enabled"] = json!(false);
    upstream.reply(chat("whole"));
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 200);
    assert!(upstream.asked().pop().unwrap().body["messages"].to_string().contains("question 9"));
}

#[tokio::test]
async fn third_party_router_gets_its_settings_and_the_fallback_models() {
    let guests = folder(&["router-picky"]);
    let bench = Bench::with(|setup| setup.plugins(guests.path())).await;
    let settings = |pick: &str| json!([{"id": "picky-router", "pick": pick}]);
    let table = [
        (json!({"plugins": settings("acme/medium")}), "acme/medium"),
        (json!({"plugins": settings("acme/small"), "models": ["acme/medium"]}), "acme/small"),
        (json!({"models": ["acme/small", "acme/medium"]}), "acme/small"),
    ];
    for (members, expected) in table {
        let mut request = json!({"model": "service/picky", "input": "Hello."});
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let response = bench.ask(&request).await;
        assert_eq!(response["model"], expected, "{members}");
        assert_eq!(response["service_metadata"]["strategy"], "picky");
    }
    let mut unknown = json!({"model": "service/picky", "input": "Hello."});
    unknown["plugins"] = settings("acme/none");
    assert_eq!(bench.refusal(&unknown).await, (404, "There is no such model".to_owned()));
}

#[tokio::test]
async fn metadata_contains_the_clients_quality_floors() {
    let bench = Bench::start().await;
    let request = json!({
        "model": "service/pareto-code", "input": "Hello.",
        "plugins": [{"id": "pareto-router", "min_coding_score": 0.2}],
        "provider": {"preferred_min_throughput": {"p50": 30}},
    });
    let params = bench.ask(&request).await["service_metadata"]["params"].clone();
    assert_eq!(params, json!({"quality_floor": 0.2, "throughput_floor": 30}));
    let plain = bench.ask(&json!({"model": "acme/small", "input": "Hello."})).await;
    assert!(plain["service_metadata"].get("params").is_none(), "{plain}");
}

#[tokio::test]
async fn the_suffix_free_of_a_router_binds_the_models_it_chooses_as_a_fallback_too() {
    let bench = Bench::with(|setup| {
        let endpoints =
            "{ provider = \"p\", model = \"none\" }, { provider = \"q\", model = \"paid\", input = 1 }";
        setup.config(&format!("[[models]]\nid = \"acme/some\"\nendpoints = [{endpoints}]"))
    })
    .await;
    bench.upstream.always(|_| crate::kit::script::refusal(500, "broken"));
    let request = json!({"model": "acme/small", "models": ["service/auto:free"], "input": "Hello.",
        "plugins": [{"id": "auto-router", "allowed_models": ["acme/some"]}]});
    assert_eq!(bench.refusal(&request).await.0, 502);
    let asked: Vec<Value> = bench.upstream.asked().iter().map(|asked| asked.body["model"].clone()).collect();
    assert_eq!(asked, [json!("up-acme/small"), json!("none")]);
}

#[tokio::test]
async fn the_suffix_free_of_a_router_never_leads_to_another_model() {
    let bench = Bench::with(|setup| {
        let model = |id: &str, name: &str| {
            format!("[[models]]\nid = \"{id}\"\nendpoints = [{{ provider = \"p\", model = \"{name}\" }}]\n")
        };
        setup.config(&(model("acme/some", "some") + &model("acme/some:free", "other")))
    })
    .await;
    let asking = |allowed: &str| {
        json!({"model": "service/auto:free", "input": "Hello.",
            "plugins": [{"id": "auto-router", "allowed_models": [allowed]}]})
    };
    // With the suffix, its id would be that of the other model.
    assert_eq!(bench.refusal(&asking("acme/some")).await.0, 404);
    assert_eq!(bench.upstream.asked().len(), 0);
    bench.ask(&asking("acme/some:free")).await;
    assert_eq!(bench.upstream.asked_once().body["model"], "other");
}

#[tokio::test]
async fn an_error_has_the_strategy_of_its_request() {
    let bench = Bench::start().await;
    bench.upstream.always(|_| crate::kit::script::refusal(500, "broken"));
    let nowhere = json!({"quantizations": ["int4"]});
    let others = json!([{"id": "auto-router", "excluded_models": ["acme/small"]}]);
    for (request, status, strategy) in [
        (json!({"model": "service/auto"}), 502, "auto"),
        (json!({"model": "service/auto", "provider": nowhere}), 404, "auto"),
        (json!({"model": "acme/small:free"}), 404, "free"),
        (json!({"model": "acme/small", "models": ["acme/medium"], "provider": nowhere}), 404, "fallback"),
        (json!({"model": "acme/small", "models": ["service/auto"], "plugins": others}), 502, "fallback"),
        (json!({"model": "acme/small", "provider": {"enforce_distillable_text": true}}), 404, "direct"),
    ] {
        let mut request = request;
        request["input"] = "Hello.".into();
        let enabled = [("x-service-metadata", "enabled")];
        let answer = Client::new(&bench.host).post_with("/responses", &request, &enabled).await;
        assert_eq!(answer.status, status, "{request}: {}", answer.text);
        assert_eq!(answer.body["service_metadata"]["strategy"], strategy, "{request}: {}", answer.text);
    }
}
