//! Secrets that the host adds itself, and their position in the request (egress rules R1, R3, R14
//! to R17).

use super::{API, Bench, GRANT, OTHER, VALUE, assert_error, assert_ok};
use crate::kit::admin::Admin;
use crate::kit::host::Setup;
use crate::kit::upstream::Reply;
use serde_json::json;

/// The grant with one injection.
fn grant(rule: &str) -> String {
    format!("{GRANT}injections = [{{ secret = \"api_key\", host = \"{API}\", {rule} }}]\n")
}

#[tokio::test]
async fn three_lines_of_configuration_send_a_bearer_token() {
    let mut bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let answer = bench.get(&bench.url(API, "/user?page=2")).await;
    assert_ok(&answer);
    let seen = bench.site.last();
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
    assert_eq!(seen.path, "/user?page=2");
    assert!(
        !answer.to_string().contains(VALUE) && answer.to_string().contains("[secret:api_key]"),
        "{answer}"
    );
    // The other host is granted too, but the secret is not bound to it.
    assert_ok(&bench.get(&bench.url(OTHER, "/")).await);
    assert_eq!(bench.site.last().header("authorization"), None);
    let released = bench.audit("secret_released");
    let [released] = released.as_slice() else { panic!("{released:?}") };
    assert_eq!((&released["used_by"], &released["host"]), (&"plugin tool-probe".into(), &API.into()));
    assert_eq!(released["name"], "api_key");
    assert_eq!(released["fingerprint"].as_str().unwrap().len(), 8);
    assert!(released["request_id"].as_str().unwrap().starts_with("resp_"), "{released}");
    assert!(!released.to_string().contains("page"), "neither path nor query: {released}");
}

#[tokio::test]
async fn timeline_of_a_release_has_its_audit_record_and_the_time_to_connect() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    let timeline = Admin::new(&bench.host).last_timeline().await;
    let steps = timeline["steps"].as_array().unwrap();
    let step =
        |kind: &str| steps.iter().find(|it| it["type"] == kind).unwrap_or_else(|| panic!("{timeline}"));
    for kind in ["exchange", "http"] {
        let (connecting, whole) = (step(kind)["connect_us"].as_u64(), step(kind)["us"].as_u64());
        assert!(connecting.unwrap() <= whole.unwrap(), "{}", step(kind));
    }
    let seq = step("release")["audit_seq"].as_u64().unwrap();
    let records = bench.host.command(&["vault", "audit"]);
    // In a database the numbers of several chains begin at 1, and a record has a position besides.
    let place = |record: &serde_json::Value| {
        record.get("position").or_else(|| record.get("seq")).and_then(serde_json::Value::as_u64)
    };
    let record = records.as_array().unwrap().iter().find(|record| place(record) == Some(seq)).unwrap();
    assert!(record["entries"].to_string().contains("secret_released"), "{record}");

    // The second request finds the connection of the first one.
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    let timeline = Admin::new(&bench.host).last_timeline().await;
    let steps = timeline["steps"].as_array().unwrap();
    let second = steps.iter().find(|it| it["type"] == "http").unwrap();
    assert_eq!(second.get("connect_us"), None, "{second}");
}

#[tokio::test]
async fn injections_define_the_position_of_a_secret() {
    let bench = Bench::start(&grant("header = \"X-Token\", format = \"token {}!\"")).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    let seen = bench.site.last();
    assert_eq!(seen.header("x-token"), Some(format!("token {VALUE}!").as_str()));
    assert_eq!(seen.header("authorization"), None);
}

#[tokio::test]
async fn configured_injections_can_use_the_query_or_a_json_body() {
    let bench = Bench::start(&grant("query = \"key\"")).await;
    bench.secret("api_key", "a b&c=d/é+%", API);
    let answer = bench.get(&bench.url(API, "/x?q=1")).await;
    assert_ok(&answer);
    let path = bench.site.last().path;
    let (_, query) = path.split_once('?').unwrap();
    let pairs: Vec<(String, String)> = reqwest::Url::parse(&format!("https://x/?{query}"))
        .unwrap()
        .query_pairs()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    assert_eq!(pairs, [("q".into(), "1".into()), ("key".into(), "a b&c=d/é+%".into())]);
    assert!(!answer["url"].as_str().unwrap().contains("key="), "{answer}");
    assert_error(&bench.get(&bench.url(API, "/x?key=mine")).await, "denied");

    let bench = Bench::start(&grant("json = \"/auth/token\"")).await;
    bench.secret("api_key", "with \"quotes\" and \n lines", API);
    let post = |body: &str| json!({"url": bench.url(API, "/"), "method": "POST", "body": body});
    assert_ok(&bench.probe(post("{\"auth\":{\"user\":1},\"x\":[2]}")).await);
    let body: serde_json::Value = serde_json::from_slice(&bench.site.last().body).unwrap();
    assert_eq!(body, json!({"auth": {"user": 1, "token": "with \"quotes\" and \n lines"}, "x": [2]}));
    let count = bench.site.seen().len();
    for body in ["", "[]", "no json", "{}", "{\"auth\":1}", "{\"auth\":{\"token\":null}}"] {
        let answer = bench.probe(post(body)).await;
        assert!(["denied", "invalid"].contains(&answer["error"].as_str().unwrap()), "{body}: {answer}");
    }
    assert_eq!(bench.site.seen().len(), count);
}

#[tokio::test]
async fn requests_are_not_sent_without_a_planned_secret() {
    let bench = Bench::start(&grant("header = \"x-token\", format = \"{}\"")).await;
    assert_error(&bench.get(&bench.url(API, "/")).await, "secret-unavailable");
    bench.secret("api_key", VALUE, OTHER);
    assert_error(&bench.get(&bench.url(API, "/")).await, "secret-unavailable");
    assert_eq!(bench.site.connections(), 0);
    assert_ok(&bench.get(&bench.url(OTHER, "/")).await);
    assert_eq!(bench.site.last().header("authorization"), None, "it has its place, at another host");
}

#[tokio::test]
async fn two_secrets_for_one_host_need_injections() {
    let mut bench = Bench::start(&GRANT.replace("[\"api_key\"]", "[\"api_key\", \"second_key\"]")).await;
    bench.secret("api_key", VALUE, API);
    assert_ok(&bench.get(&bench.url(API, "/")).await);
    bench.secret("second_key", "sk-another-one", API);
    assert_error(&bench.get(&bench.url(API, "/")).await, "denied");
    bench.host.until_logged("say which goes where with `injections`");
    assert_eq!(bench.site.seen().len(), 1);
    // A guest that names the secret removes the ambiguity.
    let named = json!({"url": bench.url(API, "/"), "injections": [{"secret": "second_key", "header": ["authorization", "Token ", ""]}]});
    assert_ok(&bench.probe(named).await);
    let seen = bench.site.last();
    assert_eq!(seen.header("authorization"), Some("Token sk-another-one"));
    assert_eq!(bench.audit("request_refused")[0]["reason"], "ambiguous");
}

#[tokio::test]
async fn guests_can_put_secrets_only_into_headers_that_carry_credentials() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let with = |injection: serde_json::Value| json!({"url": bench.url(API, "/"), "injections": [injection]});
    assert_error(&bench.probe(with(json!({"secret": "api_key", "query": "key"}))).await, "denied");
    for header in ["host", "Cookie", "content-length", "user-agent", "x-request-id", ":authority", "a b", ""]
    {
        let injection = with(json!({"secret": "api_key", "header": [header, "", ""]}));
        assert_error(&bench.probe(injection).await, "invalid");
    }
    for (before, after) in [("a\r\nx: ", ""), ("", "\n"), ("{", "}"), ("\u{e9}", "")] {
        let injection = with(json!({"secret": "api_key", "header": ["x-key", before, after]}));
        assert_error(&bench.probe(injection).await, "invalid");
    }
    assert_eq!(bench.site.connections(), 0);
}

#[tokio::test]
async fn guests_can_put_secrets_only_into_headers_of_the_grant() {
    let grant = format!("{GRANT}placeholder_headers = [\"x-key\"]\n");
    let bench = Bench::start(&grant).await;
    bench.secret("api_key", VALUE, API);
    let with = |bench: &Bench, header: &str| {
        let injection = json!({"secret": "api_key", "header": [header, "", ""]});
        json!({"url": bench.url(API, "/"), "injections": [injection]})
    };
    // A server may show these headers to others, as the text of a message or as metadata of an
    // object.
    for header in ["x-message", "x-amz-meta-a", "x-api-key"] {
        assert_error(&bench.probe(with(&bench, header)).await, "denied");
    }
    assert_eq!(bench.site.connections(), 0);
    bench.host.until_logged(
        "the guest may not put api_key into x-message; to allow it: the manifest of tool-probe: placeholder_headers",
    );
    for header in ["X-Key", "authorization"] {
        assert_ok(&bench.probe(with(&bench, header)).await);
        assert_eq!(bench.site.last().header(&header.to_lowercase()), Some(VALUE));
    }
    // A secret with a configured injection can be sent in no other way.
    let placed = format!(
        "{grant}injections = [{{ secret = \"api_key\", host = \"{OTHER}\", header = \"x-key\", format = \"{{}}\" }}]\n"
    );
    let bench = Bench::start(&placed).await;
    bench.secret("api_key", VALUE, API);
    assert_error(&bench.probe(with(&bench, "x-key")).await, "denied");
    let written = json!([["x-key", "{{secret:api_key}}"]]);
    let named = json!([{"secret": "api_key", "placeholder": ["x-key", "{{secret:api_key}}"]}]);
    for request in [
        json!({"url": bench.url(API, "/"), "headers": written}),
        json!({"url": bench.url(API, "/"), "headers": written, "injections": named}),
    ] {
        assert_error(&bench.probe(request).await, "denied");
    }
    assert_eq!(bench.site.connections(), 0);
}

#[tokio::test]
async fn too_many_secrets_range_requests_and_odd_characters_are_refused() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let url = bench.url(API, "/");
    let many: Vec<_> =
        (0..17).map(|_| json!({"secret": "api_key", "header": ["authorization", "", ""]})).collect();
    assert_error(&bench.probe(json!({"url": url, "injections": many})).await, "invalid");
    for header in [["range", "bytes=0-6"], ["If-Range", "x"], ["x-own", "\u{e9}"]] {
        assert_error(&bench.probe(json!({"url": url, "headers": [header]})).await, "denied");
    }
    assert_eq!(bench.site.connections(), 0);
    bench.site.reply(Reply::Whole { status: 206, headers: vec![], body: VALUE[..6].to_owned() });
    assert_error(&bench.get(&url).await, "broken");
}

#[tokio::test]
async fn guests_send_no_credentials_or_framing_headers_beside_a_secret() {
    let bench = Bench::start(GRANT).await;
    bench.secret("api_key", VALUE, API);
    let with = |headers: serde_json::Value| json!({"url": bench.url(API, "/"), "headers": headers});
    for name in ["Authorization", "authorization", "X-Api-Key", "api-key", "x-auth-token", "Cookie"] {
        assert_error(&bench.probe(with(json!([[name, "mine"]]))).await, "denied");
    }
    for name in [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "TE",
        "Expect",
        "Proxy-Authorization",
        "Via",
        "X-Forwarded-For",
    ] {
        assert_error(&bench.probe(with(json!([[name, "0"]]))).await, "denied");
    }
    let both = json!([["content-length", "1"], ["transfer-encoding", "chunked"]]);
    assert_error(&bench.probe(with(both)).await, "denied");
    for value in ["a\r\nx: y", "a\nb", "a\0"] {
        assert_error(&bench.probe(with(json!([["x-own", value]]))).await, "denied");
    }
    assert_eq!(bench.site.connections(), 0);
    assert_ok(&bench.probe(with(json!([["x-own", "fine"], ["x-own", "twice"]]))).await);
    // Without a secret of the host in the request, the guest may send a credential of its own.
    let own = json!({"url": bench.url(OTHER, "/"), "headers": [["authorization", "mine"]]});
    assert_ok(&bench.probe(own).await);
    assert_eq!(bench.site.last().header("authorization"), Some("mine"));
}

#[tokio::test]
async fn a_value_that_is_invalid_in_a_header_is_refused() {
    // " leading" is an ordinary word of other texts.
    let bench = Bench::with(Setup::new().without_canaries(), "", GRANT).await;
    for value in ["two\nlines of it", "sk-1234\r", " leading", "trailing ", "tab\there", "schl\u{fc}ssel"] {
        bench.secret("api_key", value, API);
        assert_error(&bench.get(&bench.url(API, "/")).await, "secret-unavailable");
    }
    assert_eq!(bench.site.seen().len(), 0);
    bench.host.until_logged("is there a line break or a space at its end? (api_key)");
}
