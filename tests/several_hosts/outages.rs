//! A database that is away for a while.

use super::sharing::provider;
use super::{Site, names, put, until};
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use cofferdam_test_postgres::{Server, installed};
use serde_json::json;

#[tokio::test]
async fn a_host_outlives_its_database_and_goes_on_when_it_is_back() {
    if !installed() {
        return;
    }
    let mut server = Server::start().unwrap();
    let site = Site::on(server.database("outage").unwrap()).made();
    let upstream = Upstream::start().await;
    let mut host = site.host(&provider(&upstream)).start();
    let client = Client::new(&host);
    assert_eq!(put(&client, "one", "a.example", "1").await.status, 200);
    server.kill9().unwrap();
    // It is not known whether the caller has a key of its own for the provider.
    let with_own_key = json!({"model": MODEL, "input": "x"});
    let refused = client.post("/responses", &with_own_key).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.headers.contains_key("retry-after"), "{}", refused.text);
    assert!(!refused.text.contains("plugin"), "{}", refused.text);
    // Nothing was written: an unreachable database is a full queue, and after a while the host cannot vouch
    // for what it knows.
    let refused = put(&client, "two", "a.example", "2").await;
    assert!(matches!(refused.status, 408 | 503), "{}", refused.text);
    let admin = Admin::new(&host);
    until(503, async || admin.get("/readyz").await).await;
    for refused in [client.get("/vault/secrets").await, client.post("/responses", &with_own_key).await] {
        assert_eq!(refused.status, 503, "{}", refused.text);
        assert!(refused.headers.contains_key("retry-after"));
    }
    let (code, text) = super::failed(&site.host("").command_output(&["status"]));
    assert_eq!(code, Some(69), "{text}");
    server.restart().unwrap();
    until(200, async || put(&client, "three", "a.example", "3").await).await;
    let mut listed = names(&client).await;
    listed.sort();
    assert_eq!(listed, ["one", "three"]);
    assert_eq!(put(&client, "own_key", "provider.test", "4").await.status, 200);
    upstream.reply(script::chat("back"));
    assert_eq!(client.ask(&with_own_key, false).await["status"], "completed");
    assert_eq!(admin.get("/readyz").await.status, 200);
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0));
}
