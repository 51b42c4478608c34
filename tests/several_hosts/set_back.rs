//! A database in whose place comes one that lacks commits which were acknowledged.

use super::{Site, audit, demo, failed, names, put, refused, until};
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::deadline;
use crate::kit::host::{Host, Setup};
use cofferdam_test_postgres::{Options, Pair, Proxy, installed};

/// A primary and its standby, hosts that reach them through a proxy, and what they have stored.
struct Place {
    pair: Pair,
    proxy: Proxy,
    hosts: [Host; 2],
    /// Has the password and the root key.
    _site: Site,
}

impl Place {
    /// The primary has the secrets `kept`, `lost` and `lost_too`, all acknowledged, and the standby only the first of them.
    async fn new() -> Option<Place> {
        if !installed() {
            return None;
        }
        let pair = Options::new().without_sync().start_pair().unwrap();
        let proxy = Proxy::start(pair.primary.port()).unwrap();
        let address = pair.primary.database("set_back").unwrap();
        let site = Site::on(address.at(proxy.port())).made();
        let hosts = [site.host("").start(), site.host("").start()];
        let clients = hosts.each_ref().map(Client::new);
        assert_eq!(put(&clients[0], "kept", "a.example", "1").await.status, 200);
        assert_eq!(clients[1].ask(&demo(), false).await["status"], "completed");
        pair.until_replayed().unwrap();
        pair.detach().unwrap();
        // A host knows of its own commits at once, and of those of others within a second.
        for (client, name) in clients.iter().zip(["lost", "lost_too"]) {
            assert_eq!(put(client, name, "a.example", "2").await.status, 200);
        }
        Some(Place { pair, proxy, hosts, _site: site })
    }

    /// The primary is gone, and the standby takes its place.
    fn fail_over(&mut self) {
        self.pair.primary.kill9().unwrap();
        self.pair.promote().unwrap();
        self.lead_to(self.pair.standby.port());
    }

    fn lead_to(&self, port: u16) {
        self.proxy.lead_to(port);
        self.proxy.cut();
    }
}

async fn until_ready(host: &Host, status: u16) {
    let admin = Admin::new(host);
    until(status, async || admin.get("/readyz").await).await;
}

const LOST: &str = "the database has lost commits that it had acknowledged";

#[tokio::test]
async fn a_promoted_standby_without_acknowledged_commits_is_served_once_the_loss_is_accepted() {
    let Some(mut place) = Place::new().await else { return };
    place.fail_over();
    for host in &place.hosts {
        host.until_logged(LOST);
        until_ready(host, 503).await;
        let client = Client::new(host);
        for refused in [client.get("/vault/secrets").await, client.post("/responses", &demo()).await] {
            assert_eq!(refused.status, 503, "{}", refused.text);
        }
    }
    let Place { hosts: [mut first, second], pair: _pair, proxy: _proxy, _site } = place;
    // A start refuses too, and says what to give to accept the loss.
    first.end();
    let (code, text) = refused(Setup::after(&first));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(LOST), "{text}");
    let position = text.split("--accept-rollback ").nth(1).unwrap().split('`').next().unwrap();
    let less = (position.parse::<u64>().unwrap() - 1).to_string();
    let accepting = |position: &str| Setup::after(&first).argument("--accept-rollback").argument(position);
    assert!(refused(accepting(&less)).1.contains(LOST));
    let first = accepting(position).start();
    let (client, other) = (Client::new(&first), Client::new(&second));
    assert_eq!(names(&client).await, ["kept"]);
    // The other host follows without a restart.
    second.until_logged("an operator has accepted that the database lost commits");
    until_ready(&second, 200).await;
    until(200, async || put(&other, "later", "a.example", "3").await).await;
    let mut listed = names(&client).await;
    listed.sort();
    assert_eq!(listed, ["kept", "later"]);
    let accepted = audit(&first).into_iter().flat_map(|record| record["entries"].as_array().unwrap().clone());
    let accepted: Vec<_> = accepted.filter(|entry| entry["action"] == "loss_accepted").collect();
    assert_eq!(accepted.len(), 1, "{accepted:?}");
    assert_eq!(accepted[0]["newest"].to_string(), position);
    assert_eq!(first.command(&["vault", "verify"])["ok"], true);
    let mut first = first.restart();
    assert_eq!(names(&Client::new(&first)).await.len(), 2);
    first.end();
    let (code, text) = refused(Setup::after(&first).argument("--accept-rollback").argument(position));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("the database has all commits that this host knows of"), "{text}");
}

#[tokio::test]
async fn hosts_go_on_when_the_database_with_all_commits_is_back() {
    let Some(mut place) = Place::new().await else { return };
    place.fail_over();
    for host in &place.hosts {
        host.until_logged(LOST);
        until_ready(host, 503).await;
    }
    place.pair.primary.restart().unwrap();
    place.lead_to(place.pair.primary.port());
    for (number, host) in place.hosts.iter().enumerate() {
        until_ready(host, 200).await;
        let client = Client::new(host);
        let name = format!("after_{number}");
        until(200, async || put(&client, &name, "a.example", "3").await).await;
        assert_eq!(client.ask(&demo(), false).await["status"], "completed");
    }
    let mut listed = names(&Client::new(&place.hosts[1])).await;
    listed.sort();
    assert_eq!(listed, ["after_0", "after_1", "kept", "lost", "lost_too"]);
    assert_eq!(place.hosts[0].command(&["vault", "verify"])["ok"], true);
}

#[tokio::test]
async fn what_a_host_knows_to_be_durable_is_checked_and_never_trusted() {
    let Some(site) = Site::new() else { return };
    let mut host = site.host("").start();
    assert_eq!(put(&Client::new(&host), "one", "a.example", "1").await.status, 200);
    host.end();
    let file = host.data().join("witness");
    let bytes = std::fs::read(&file).unwrap();
    for hostile in [&b""[..], b"{}", &bytes[1..], &vec![b'['; 2 * 1024 * 1024]] {
        std::fs::write(&file, hostile).unwrap();
        let (code, text) = refused(Setup::after(&host));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("witness was changed from outside"), "{text}");
    }
    let (_, text) = failed(&host.command_output(&["vault", "verify"]));
    assert!(!text.contains("witness"), "a command needs no file: {text}");
    std::fs::remove_file(&file).unwrap();
    let host = Setup::after(&host).start();
    assert_eq!(names(&Client::new(&host)).await, ["one"]);
    // A host writes the file beside its requests.
    deadline::until("a new file", async || file.exists()).await;
}
