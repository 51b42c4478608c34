//! Recorded requests, live events and the playground.

use super::put_operator_secret;
use crate::kit::admin::Admin;
use crate::kit::client::{Client, events_of};
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{self, chat_events};
use crate::kit::upstream::{Reply, Upstream, sse_event};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a request may take to be recorded.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host whose model `house/model` has a provider that fails and one that answers.
fn fallback_host(failing: &Upstream, answering: &Upstream) -> Host {
    let provider = |name: &str, upstream: &Upstream| {
        format!(
            "[[providers]]\nname = \"{name}\"\nadapter = \"openai-chat\"\nbase_url = \"{}\"\n",
            upstream.base
        )
    };
    let config = provider("first", failing)
        + &provider("second", answering)
        + "[[models]]\nid = \"house/model\"\nendpoints = [\
           { provider = \"first\", model = \"a\", input = 1, output = 2 }, \
           { provider = \"second\", model = \"b\", input = 1, output = 2 }]\n";
    Setup::new().config(&config).start()
}

async fn recorded(admin: &Admin, id: &str) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = admin.ask(&format!("requests/{id}")).await;
        if found.body["outcome"].as_str().is_some_and(|outcome| outcome != "running") {
            return found.body;
        }
        assert!(Instant::now() < end, "{}", found.text);
    }
}

fn names(timeline: &Value) -> Vec<String> {
    let steps = timeline["steps"].as_array().unwrap();
    steps.iter().map(|step| step["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn request_is_recorded_step_by_step_without_its_content() {
    let (failing, answering) = (Upstream::start().await, Upstream::start().await);
    failing.always(|_| Reply::json(500, json!({"error": {"message": "a-private-reason"}})));
    answering.reply(script::chat("a-private-answer"));
    let host = fallback_host(&failing, &answering);
    let admin = Admin::new(&host);
    let request =
        json!({"model": "house/model", "input": "a-private-question", "provider": {"sort": "price"}});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let id = answer.body["id"].as_str().unwrap();
    let timeline = recorded(&admin, id).await;
    assert_eq!((&timeline["outcome"], &timeline["status"]), (&json!("completed"), &json!(200)));
    assert_eq!(
        (&timeline["requested_model"], &timeline["provider"]),
        (&json!("house/model"), &json!("second"))
    );
    assert_eq!(timeline["attempts"], 2, "{timeline}");
    assert!(timeline["cost"].as_f64().unwrap() > 0.0, "{timeline}");
    let steps = names(&timeline).join("\n");
    for part in ["first", "second", "router"] {
        assert!(steps.contains(part), "{part} in\n{steps}");
    }
    let failed: Vec<&Value> =
        timeline["steps"].as_array().unwrap().iter().filter(|it| it["outcome"] != "ok").collect();
    assert!(!failed.is_empty(), "the failed attempt is a failed step");
    assert!(!timeline.to_string().contains("private"), "content is recorded: {timeline}");

    let listed = admin.ask("requests?failed=false&model=house/model").await.body;
    assert_eq!(listed["data"][0]["request_id"], id);
    assert_eq!(listed["running"], json!([]));
    for (query, message) in [
        ("limit=0", "`limit` must be a whole number from 1 to 500"),
        ("before=x", "`before` must be a whole number"),
        ("failed=maybe", "`failed` must be true or false"),
        ("colour=red", "unknown member `colour`"),
    ] {
        let refused = admin.ask(&format!("requests?{query}")).await;
        assert!(refused.status == 400 && refused.text.contains(message), "{query}: {}", refused.text);
    }
    assert_eq!(admin.ask("requests/resp_none").await.status, 404);
}

#[tokio::test]
async fn an_attempt_lasts_until_its_stream_has_ended() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let (feed, fed) = Reply::fed();
    upstream.reply(fed);
    let request = json!({"model": MODEL, "input": "x", "stream": true});
    let said = chat_events(&["One.", "Two."]);
    for event in &said[..2] {
        feed.send(sse_event(event)).await.unwrap();
    }
    let mut events = Client::new(&host).open(&request).await;
    events.until("response.output_text.delta").await;
    // The client has the first content before the provider sends the rest.
    for event in &said[2..] {
        feed.send(sse_event(event)).await.unwrap();
    }
    drop(feed);
    events.until("response.completed").await;
    let timeline = Admin::new(&host).last_timeline().await;
    let attempt = timeline["steps"].as_array().unwrap().iter().find(|it| it["type"] == "attempt").unwrap();
    let micros = |name: &str| attempt[name].as_u64().unwrap_or_else(|| panic!("{timeline}"));
    assert!(micros("us") > micros("first_content_us"), "{timeline}");
}

#[tokio::test]
async fn wait_between_two_rounds_of_attempts_is_a_step() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    upstream.reply(script::refusal(503, "busy"));
    upstream.reply(script::chat("at last"));
    let answer = Client::new(&host).post("/responses", &json!({"model": MODEL, "input": "x"})).await;
    assert_eq!(answer.output_text(), "at last", "{}", answer.text);
    let timeline = recorded(&Admin::new(&host), answer.body["id"].as_str().unwrap()).await;
    let is_round = |step: &&Value| step["type"] == "attempt" || step["type"] == "wait";
    let steps: Vec<&Value> = timeline["steps"].as_array().unwrap().iter().filter(is_round).collect();
    let [failed, wait, answered] = steps[..] else { panic!("{timeline}") };
    assert_eq!((&failed["type"], &answered["type"]), (&json!("attempt"), &json!("attempt")), "{timeline}");
    assert_eq!(
        (&wait["type"], &wait["kind"], &wait["name"], &wait["outcome"], &wait["parent"]),
        (
            &json!("wait"),
            &json!("pause"),
            &json!("wait before the next attempts"),
            &json!("ok"),
            &Value::Null
        )
    );
    let begin = |step: &Value| step["at_us"].as_u64().unwrap();
    let end = |step: &Value| begin(step) + step["us"].as_u64().unwrap();
    assert!(end(failed) <= begin(wait) && end(wait) <= begin(answered), "{timeline}");
    assert!(end(wait) > begin(wait), "{timeline}");
}

#[tokio::test]
async fn recorder_that_is_switched_off_keeps_nothing() {
    let host = Setup::new().config("[server]\nrecorder = 0").start();
    let admin = Admin::new(&host);
    let answer = Client::new(&host).post("/responses", &json!({"model": "local/demo", "input": "x"})).await;
    assert_eq!(answer.status, 200);
    let listed = admin.ask("requests").await.body;
    assert_eq!((&listed["keeps"], &listed["data"], &listed["running"]), (&json!(0), &json!([]), &json!([])));
}

#[tokio::test]
async fn refused_requests_are_listed_by_reason_and_push_out_no_others() {
    let host = Setup::new().config("[limits]\nrequests_per_minute = 1").start();
    let admin = Admin::new(&host);
    let request = json!({"model": "local/demo", "input": "a-private-question"});
    let answer = Client::new(&host).post("/responses", &request).await;
    let id = answer.body["id"].as_str().unwrap();
    let strangers = Client::with_key(&host, "cfd_a-private-token");
    for _ in 0..100 {
        assert_eq!(strangers.post("/responses", &request).await.status, 401);
    }
    assert_eq!(Client::new(&host).post("/responses", &request).await.status, 429);
    let made = host.command(&["key", "create", "--provisioning", "--workspace", "default"]);
    let manager = Client::with_key(&host, made["key"].as_str().unwrap());
    assert_eq!(manager.post("/responses", &request).await.status, 403);
    recorded(&admin, id).await;

    let listed = admin.ask("requests").await;
    assert_eq!(listed.body["data"].as_array().unwrap().len(), 1, "{}", listed.text);
    let refused = listed.body["refused"].as_array().unwrap();
    let told: Vec<(u64, u64)> =
        refused.iter().map(|it| (it["status"].as_u64().unwrap(), it["count"].as_u64().unwrap())).collect();
    assert_eq!(told, [(403, 1), (429, 1), (401, 100)], "{}", listed.text);
    assert_eq!((&refused[0]["route"], &refused[0]["key_id"]), (&json!("responses"), &made["id"]));
    assert_eq!(refused[1]["error_type"], "rate_limit_exceeded");
    assert!(refused[1]["message"].as_str().unwrap().contains("1 requests per minute"), "{}", refused[1]);
    assert_eq!((&refused[2]["key_id"], &refused[2]["address"]), (&Value::Null, &json!("127.0.0.1")));
    assert!(!listed.text.contains("private"), "{}", listed.text);
}

/// Reads a stream until it contains a text.
async fn until(stream: &mut Response, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = tokio::time::timeout(PATIENCE, stream.chunk()).await.expect(wanted).unwrap();
        text.push_str(std::str::from_utf8(&chunk.expect("the stream goes on")).unwrap());
    }
    text
}

#[tokio::test]
async fn live_events_tell_the_state_and_requests_until_the_bearer_ends() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    admin.until_ready().await;
    let bearer = admin.change("session", &json!({"token": admin.token})).await.body["bearer"].clone();
    let bearer = bearer.as_str().unwrap();
    let open = || async {
        let request = admin.plain(Method::GET, "/admin/v1/events").bearer_auth(bearer);
        request.send().await.unwrap()
    };
    let mut stream = open().await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let first = until(&mut stream, "event: state\n").await;
    assert!(first.contains("\"ready\":true"), "{first}");
    let answer = Client::new(&host).post("/responses", &json!({"model": "local/demo", "input": "x"})).await;
    let id = answer.body["id"].as_str().unwrap().to_owned();
    until(&mut stream, &id).await;
    host.signal("HUP");
    until(&mut stream, "event: reload\n").await;

    // A few streams may be open at once; the next one is told to wait.
    let mut others = Vec::new();
    for _ in 0..15 {
        others.push(open().await);
    }
    let refused = open().await;
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    drop(others);

    let ended = admin.plain(Method::DELETE, "/admin/v1/session").bearer_auth(bearer).send().await.unwrap();
    assert_eq!(ended.status(), 200);
    while tokio::time::timeout(PATIENCE, stream.chunk()).await.unwrap().unwrap().is_some() {}
}

#[tokio::test]
async fn playground_streams_the_answer_with_its_steps_and_pays_as_the_console_key() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    put_operator_secret(&host, "unused", "a-private-value");
    let request = json!({"as": "default", "request": {"model": "local/demo", "input": "Say hello."}});
    let answer = admin.change("playground", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let (steps, events): (Vec<&str>, Vec<&str>) = answer
        .text
        .split("\n\n")
        .filter(|it| !it.is_empty())
        .partition(|it| it.contains("event: cofferdam.step"));
    let finished = |step: &&&str| step.contains("\"outcome\":\"ok\"");
    assert!(steps.iter().filter(finished).count() >= 3, "{}", answer.text);
    let events = events_of(&events.join("\n\n"));
    assert_eq!(events.last().unwrap()["type"], "response.completed", "{}", answer.text);
    let id = events.last().unwrap()["response"]["id"].as_str().unwrap().to_owned();
    let timeline = recorded(&admin, &id).await;
    let keys = admin.ask("key/list").await.body;
    let console = keys.as_array().unwrap().iter().find(|key| key["name"] == "console").unwrap().clone();
    assert_eq!(timeline["key_id"], console["id"]);
    // The audit record is written after the request has begun.
    let end = Instant::now() + PATIENCE;
    let used = || host.command(&["vault", "audit", "--action", "playground_used"]).to_string();
    while !used().contains(console["id"].as_str().unwrap()) {
        assert!(Instant::now() < end, "{}", used());
    }

    admin.until_metric("cofferdam_requests_total{route=\"playground\",status=\"200\"}", 1).await;

    // The second run takes the same key, and limits of the key hold for it.
    assert_eq!(admin.change("playground", &request).await.status, 200);
    let named = |keys: &Value| keys.as_array().unwrap().iter().filter(|key| key["name"] == "console").count();
    assert_eq!(named(&admin.ask("key/list").await.body), 1);
    admin.change("key/disable", &json!({"id": console["id"]})).await;
    let refused = admin.change("playground", &request).await;
    assert!(refused.status == 422 && refused.text.contains("disabled or expired"), "{}", refused.text);
}

#[tokio::test]
async fn requests_of_the_playground_at_the_same_time_make_one_key() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    let request = json!({"as": "default", "request": {"model": "local/demo", "input": "Say hello."}});
    let answers = futures_util::future::join_all((0..8).map(|_| admin.change("playground", &request))).await;
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let keys = admin.ask("key/list").await.body;
    let named = keys.as_array().unwrap().iter().filter(|key| key["name"] == "console").count();
    assert_eq!(named, 1, "{keys}");
}

#[tokio::test]
async fn playground_refuses_what_a_client_would_be_refused() {
    let host = Setup::new().start();
    let admin = Admin::new(&host);
    for (request, status, message) in [
        (json!({}), 400, "the body must be"),
        (json!({"as": "default"}), 400, "the body must be"),
        (json!({"as": "default", "request": "x"}), 400, "the body must be"),
        (json!({"as": "nothing", "request": {}}), 404, "no workspace `nothing`"),
        (json!({"as": "default", "request": {"model": "none/such", "input": "x"}}), 404, "none/such"),
        (json!({"as": "default", "request": {"model": "local/demo"}}), 400, "input"),
    ] {
        let answer = admin.change("playground", &request).await;
        assert!(
            answer.status == status && answer.text.contains(message),
            "{request}: {} {}",
            answer.status,
            answer.text
        );
    }
    assert_eq!(admin.ask("playground").await.status, 405);
}
