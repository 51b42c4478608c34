//! After releases of all kinds, a value exists nowhere except at the host it was sent to.

use super::{API, Bench, GRANT, OTHER};
use crate::kit::admin::Admin;
use crate::kit::canary::Canary;
use crate::kit::host::{Setup, list_files};
use crate::kit::upstream::Reply;
use serde_json::json;

/// Valid in a header, with characters that each form encodes differently.
const VALUE: &str = "sk-Zq8!r5/T+w3=Y&n7<c1>V#m4\"J\\p9%H:d2;L|x6~G^b0*";

#[tokio::test]
async fn a_released_value_leaves_no_trace() {
    let grant = format!("{GRANT}placeholder_headers = [\"x-key\"]\n");
    let grant = format!("{grant}{}", grant.replace("tool-probe", "tool-second"));
    let setup = Setup::new().environment("COFFERDAM_LOG", "trace");
    let mut bench = Bench::with(setup, "", &grant).await;
    bench.secret("api_key", VALUE, API);
    let url = bench.url(API, "/");
    // Echoed, in a placeholder, refused for its header, broken, not decodable, redirected, too
    // long, in time or not.
    let requests = [
        json!({"url": url}),
        json!({"url": url, "headers": [["x-key", "{{secret:api_key}}"]]}),
        json!({"url": url, "headers": [["authorization", "mine"]]}),
        json!({"url": bench.url(OTHER, "/"), "injections": [{"secret": "api_key", "header": ["x-key", "", ""]}]}),
        json!({"url": url, "body_bytes_max": 10}),
    ];
    let mut seen = Vec::new();
    for request in requests {
        seen.push(bench.probe(request).await.to_string());
    }
    for reply in [
        Reply::Cut { content_type: "text/plain", pieces: vec![VALUE.to_owned()] },
        Reply::Whole {
            status: 200,
            headers: vec![("content-encoding", "gzip".to_owned())],
            body: VALUE.to_owned(),
        },
        Reply::Whole {
            status: 302,
            headers: vec![("location", "https://evil.test/".to_owned())],
            body: String::new(),
        },
        Reply::Hang,
    ] {
        bench.site.reply(reply);
        let request = json!({"url": url, "timeout_ms": 1000, "redirects": 3, "injections": [{"secret": "api_key", "header": ["x-key", "", ""]}]});
        // Another plugin sends it; otherwise the secret would be suspended.
        let told = json!({"requests": [request]});
        seen.push(bench.run("second", &bench.host.key, told).await["answers"][0].to_string());
    }
    let sent = bench.site.seen().iter().filter(|seen| format!("{seen:?}").contains("sk-Zq8")).count();
    assert!(sent >= 6, "only {sent} requests carried it");
    let canary = Canary::new(VALUE);
    let metrics = Admin::new(&bench.host).get("/metrics").await.text;
    let model = format!("{:?}", bench.model.asked());
    bench.host.end();
    let records = bench.host.command(&["vault", "audit"]);
    let audit = records.to_string();
    assert!(audit.contains("secret_released") && audit.contains("secret_reflected"), "{audit}");
    assert!(
        bench.host.log().contains("\"level\":\"TRACE\"") || bench.host.log().contains("\"level\":\"DEBUG\"")
    );
    let mut places = vec![
        ("answers".to_owned(), seen.concat()),
        ("metrics".to_owned(), metrics),
        ("the model".to_owned(), model),
        ("audit".to_owned(), audit),
        ("log".to_owned(), bench.host.log()),
    ];
    let mut files = Vec::new();
    list_files(&bench.host.data(), &mut files);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(canary.found(&bytes).is_empty(), "{}", file.display());
    }
    for (place, text) in &mut places {
        assert!(canary.found(text.as_bytes()).is_empty(), "{place}: {:?}", canary.found(text.as_bytes()));
        // Control: the search finds the value when it is there.
        text.push_str(VALUE);
        assert!(!canary.found(text.as_bytes()).is_empty(), "{place}");
    }
}
