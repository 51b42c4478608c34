//! Conversations stay with the endpoint that has them in its cache.

use super::METADATA;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, priced, provider};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

/// Turns of a conversation. By chance, all of them go to one endpoint with probability 2^-15.
const TURNS: usize = 16;

/// Two endpoints of equal price, between which every request is drawn at random.
struct Pair {
    host: Host,
    upstreams: [Upstream; 2],
}

impl Pair {
    async fn start() -> Self {
        let upstreams = [Upstream::start().await, Upstream::start().await];
        let [a, b] = &upstreams;
        let host = Setup::new().config(&priced(&[(&a.base, 1.0), (&b.base, 1.0)])).start();
        Self { host, upstreams }
    }

    /// The index of the endpoint that answers; both are scripted with `reply`.
    async fn turn(
        &self,
        request: &Value,
        headers: &[(&'static str, &str)],
        reply: fn(&str) -> Reply,
    ) -> usize {
        for upstream in &self.upstreams {
            upstream.clear();
            upstream.reply(reply("fine"));
        }
        let headers = [headers, &METADATA].concat();
        let answer = Client::new(&self.host).post_with("/responses", request, &headers).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let available = answer.body["service_metadata"]["endpoints"]["available"].as_array().unwrap();
        let selected = available.iter().find(|endpoint| endpoint["selected"] == true).unwrap();
        usize::from(selected["provider"] == "b")
    }

    async fn turns(
        &self,
        request: &Value,
        headers: &[(&'static str, &str)],
        reply: fn(&str) -> Reply,
    ) -> Vec<usize> {
        let mut answered = Vec::new();
        for _ in 0..TURNS {
            answered.push(self.turn(request, headers, reply).await);
        }
        answered.dedup();
        answered
    }
}

fn request(fields: &Value) -> Value {
    let mut request = json!({"model": MODEL, "input": "x"});
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request
}

#[tokio::test]
async fn a_named_session_stays_with_the_endpoint_that_answered_first() {
    let pair = Pair::start().await;
    let named = pair.turns(&request(&json!({"session_id": "s1"})), &[], script::chat).await;
    assert_eq!(named.len(), 1, "it changed sides: {named:?}");
    let by_header = pair.turns(&request(&json!({})), &[("x-session-id", "s2")], script::chat).await;
    assert_eq!(by_header.len(), 1, "it changed sides: {by_header:?}");
}

#[tokio::test]
async fn without_a_name_a_conversation_stays_after_a_cache_hit() {
    let pair = Pair::start().await;
    let drawn = pair.turns(&request(&json!({})), &[], script::chat).await;
    assert!(drawn.len() > 1, "nothing was cached, so nothing is there to stay for");
    let cached = pair.turns(&request(&json!({})), &[], script::cached_chat).await;
    assert_eq!(cached.len(), 1, "it changed sides: {cached:?}");
    let keyed = pair.turns(&request(&json!({"prompt_cache_key": "k"})), &[], script::cached_chat).await;
    assert_eq!(keyed.len(), 1, "it changed sides: {keyed:?}");
}

#[tokio::test]
async fn a_conversation_that_goes_on_is_still_the_same() {
    let pair = Pair::start().await;
    let mut items =
        vec![json!({"role": "system", "content": "Be brief."}), json!({"role": "user", "content": "Hi."})];
    let first = pair.turn(&request(&json!({"input": items})), &[], script::cached_chat).await;
    for turn in 0..TURNS {
        items.push(json!({"role": "assistant", "content": "Yes?"}));
        items.push(json!({"role": "user", "content": format!("Question {turn}.")}));
        assert_eq!(pair.turn(&request(&json!({"input": items})), &[], script::cached_chat).await, first);
    }
}

#[tokio::test]
async fn an_order_of_the_clients_own_switches_it_off() {
    let pair = Pair::start().await;
    let session = json!({"session_id": "s"});
    let first = pair.turn(&request(&session), &[], script::chat).await;
    let other = ["b", "a"][first];
    let ordered = request(&json!({"session_id": "s", "provider": {"order": [other]}}));
    assert_ne!(pair.turn(&ordered, &[], script::chat).await, first);
    assert_eq!(pair.turn(&request(&session), &[], script::chat).await, first, "nothing of it was remembered");
}

#[tokio::test]
async fn a_chosen_model_stays_with_its_session() {
    let upstream = Upstream::start().await;
    let mut setup = Setup::new().config(&provider("p", "openai-chat", &upstream.base));
    for (id, price) in [("acme/small", 1), ("acme/medium", 10), ("acme/large", 100)] {
        setup = setup.config(&format!(
            "[[models]]\nid = \"{id}\"\nendpoints = [{{ provider = \"p\", model = \"m\", input = {price} }}]\n"
        ));
    }
    let host = setup.start();
    let mut models = Vec::new();
    for (tier, session) in [("max", "s"), ("low", "s"), ("low", "t")] {
        upstream.reply(script::chat("fine"));
        let request = json!({"model": "service/auto", "input": "Hello.", "session_id": session,
            "plugins": [{"id": "auto-router", "cost_tier": tier}]});
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        models.push(answer.body["model"].as_str().unwrap().to_owned());
    }
    assert_eq!(models, ["acme/large", "acme/large", "acme/small"]);
}
