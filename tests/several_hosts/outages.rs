//! A database that is away for a while.

use super::{Site, demo, names, put, until};
use crate::kit::client::{Client, http};
use cofferdam_test_postgres::{Server, installed};

#[tokio::test]
async fn a_host_outlives_its_database_and_goes_on_when_it_is_back() {
    if !installed() {
        return;
    }
    let mut server = Server::start().unwrap();
    let site = Site::on(server.database("outage").unwrap()).made();
    let mut host = site.host("").start();
    let client = Client::new(&host);
    assert_eq!(put(&client, "one", "a.example", "1").await.status, 200);
    server.kill9().unwrap();
    // Nothing was written: an unreachable database is a full queue, and after a while the host cannot vouch
    // for what it knows.
    let refused = put(&client, "two", "a.example", "2").await;
    assert!(matches!(refused.status, 408 | 503), "{}", refused.text);
    let ready = async || {
        let asked = http().build().unwrap().get(format!("{}/readyz", host.admin)).send();
        asked.await.unwrap().status().as_u16()
    };
    while ready().await != 503 {
        tokio::task::yield_now().await;
    }
    for refused in [client.get("/vault/secrets").await, client.post("/responses", &demo()).await] {
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
    assert_eq!(client.ask(&demo(), false).await["status"], "completed");
    assert_eq!(ready().await, 200);
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0));
}
