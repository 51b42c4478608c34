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
    // Nothing was written: an unreachable database is a full queue.
    let refused = put(&client, "two", "a.example", "2").await;
    assert_eq!(refused.status, 408, "{}", refused.text);
    let list = client.get("/vault/secrets").await;
    assert_eq!(list.status, 408, "{}", list.text);
    let (code, text) = super::failed(&site.host("").command_output(&["status"]));
    assert_eq!(code, Some(69), "{text}");
    server.restart().unwrap();
    until(200, async || put(&client, "three", "a.example", "3").await).await;
    let mut listed = names(&client).await;
    listed.sort();
    assert_eq!(listed, ["one", "three"]);
    assert_eq!(client.ask(&demo(), false).await["status"], "completed");
    let ready = http().build().unwrap().get(format!("{}/readyz", host.admin)).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    assert_eq!(host.command(&["vault", "verify"])["ok"], true);
    host.signal("TERM");
    assert_eq!(host.wait().code(), Some(0));
}
