//! `{{secret:NAME}}` in the value of a header that the operator allows (egress rule R2).

use super::{API, Bench, GRANT, VALUE, assert_error, assert_ok};
use serde_json::{Value, json};

fn allowed() -> String {
    format!("{GRANT}placeholder_headers = [\"x-key\"]\n")
}

fn with(bench: &Bench, headers: Value) -> Value {
    json!({"url": bench.url(API, "/"), "headers": headers})
}

#[tokio::test]
async fn placeholder_is_replaced_in_an_allowed_header() {
    let bench = Bench::start(&allowed()).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&bench.probe(with(&bench, json!([["X-Key", "a {{secret:api_key}} b"]]))).await);
    let seen = bench.site.last();
    assert_eq!(seen.header("x-key"), Some(format!("a {VALUE} b").as_str()));
    assert_eq!(seen.header("authorization"), None, "the guest has said where it goes");
    let named = json!({
        "url": bench.url(API, "/"),
        "headers": [["x-key", "{{secret:api_key}}"]],
        "injections": [{"secret": "api_key", "placeholder": ["x-key", "{{secret:api_key}}"]}],
    });
    assert_ok(&bench.probe(named).await);
    assert_eq!(bench.site.last().header("x-key"), Some(VALUE));
}

#[tokio::test]
async fn placeholder_anywhere_else_refuses_the_request() {
    let bench = Bench::start(&allowed()).await;
    bench.secret("api_key", VALUE, API);
    const PLACEHOLDER: &str = "{{secret:api_key}}";
    let url = |rest: &str| bench.url(API, rest);
    for (request, error) in [
        (json!({"url": url(&format!("/{PLACEHOLDER}"))}), "invalid"),
        (json!({"url": url(&format!("/?q={PLACEHOLDER}"))}), "invalid"),
        (json!({"url": url("/?q=%7B%7Bsecret%3Aapi_key%7D%7D")}), "invalid"),
        (json!({"url": format!("https://{PLACEHOLDER}.{API}/")}), "invalid"),
        (json!({"url": url("/"), "method": "POST", "body": format!("x={PLACEHOLDER}")}), "invalid"),
        (json!({"url": url("/"), "headers": [[PLACEHOLDER, "x"]]}), "invalid"),
        (json!({"url": url("/"), "headers": [["x-other", PLACEHOLDER]]}), "denied"),
        (json!({"url": url("/"), "headers": [["authorization", PLACEHOLDER]]}), "denied"),
        (json!({"url": url("/"), "headers": [["x-key", "{{secret:{{secret:api_key}}}}"]]}), "invalid"),
        (json!({"url": url("/"), "headers": [["x-key", "{{secret:api_"], ["x-key", "key}}"]]}), "invalid"),
        (json!({"url": url("/"), "headers": [["x-key", PLACEHOLDER.repeat(5)]]}), "invalid"),
        (
            json!({"url": url("/"), "injections": [{"secret": "api_key", "placeholder": ["x-key", PLACEHOLDER]}]}),
            "invalid",
        ),
        (
            json!({"url": url("/"), "injections": [{"secret": "api_key", "placeholder": ["x-key", "KEY"]}]}),
            "invalid",
        ),
    ] {
        let answer = bench.probe(request.clone()).await;
        assert_eq!(answer["error"], error, "{request}: {answer}");
    }
    assert_eq!(bench.site.connections(), 0);
    bench.host.until_logged("the manifest of tool-probe: placeholder_headers = [");
}

#[tokio::test]
async fn unknown_and_ungranted_secrets_give_the_same_error() {
    let bench = Bench::start(&allowed()).await;
    bench.secret("hidden_key", VALUE, API);
    bench.secret("far_key", VALUE, "elsewhere.test");
    for name in ["hidden_key", "nobodys_key", "far_key", "api_key"] {
        let placeholder = with(&bench, json!([["x-key", format!("{{{{secret:{name}}}}}")]]));
        assert_error(&bench.probe(placeholder).await, "secret-unavailable");
        let named = json!({"url": bench.url(API, "/"), "injections": [{"secret": name, "header": ["x-key", "", ""]}]});
        assert_error(&bench.probe(named).await, "secret-unavailable");
    }
    let strange = json!({"url": bench.url(API, "/"), "injections": [{"secret": "NO NAME", "header": ["x-key", "", ""]}]});
    assert_error(&bench.probe(strange).await, "secret-unavailable");
    assert_eq!(bench.site.connections(), 0);
    bench.host.until_logged("the secret is not granted; to allow it: [plugins.tool-probe] secrets = [\\\"api_key\\\", \\\"hidden_key\\\"]");
}

#[tokio::test]
async fn placeholders_inside_a_value_are_not_replaced() {
    let bench = Bench::start(&allowed().replace("[\"api_key\"]", "[\"api_key\", \"b_key\"]")).await;
    bench.secret("api_key", "text with {{secret:b_key}} in it", API);
    bench.secret("b_key", VALUE, API);
    assert_ok(&bench.probe(with(&bench, json!([["x-key", "{{secret:api_key}}"]]))).await);
    assert_eq!(bench.site.last().header("x-key"), Some("text with {{secret:b_key}} in it"));
    assert!(bench.site.seen().iter().all(|seen| !format!("{seen:?}").contains(VALUE)));
}

#[tokio::test]
async fn placeholders_are_refused_without_a_grant_for_the_header() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    assert_error(&bench.probe(with(&bench, json!([["x-key", "{{secret:api_key}}"]]))).await, "denied");
    bench.host.until_logged("[plugins.tool-probe] placeholder_headers = [\\\"x-key\\\"]");
    assert_eq!(bench.site.connections(), 0);
}
