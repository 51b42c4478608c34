//! Requests that a host serves without its database, by what it knows.

use super::{Site, audit, demo, names, put, until};
use crate::credentials;
use crate::kit::admin::Admin;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, model};
use crate::kit::deadline;
use crate::kit::host::Host;
use crate::kit::script;
use crate::kit::upstream::Upstream;
use cofferdam_test_postgres::{Options, Proxy, Server, installed};
use serde_json::{Value, json};

const PROVIDER: &str = "provider.test";
/// A setting that outlives each test.
const STALE: &str = "stale_ms = 3600000\n";

/// A provider with a credential of the operator, which callers may replace by their own.
fn config(upstream: &Upstream) -> String {
    let base = upstream.base.replace("127.0.0.1", PROVIDER);
    format!(
        "[egress]\nallow_plaintext_loopback = true\nresolve = {{ \"{PROVIDER}\" = [\"127.0.0.1\"] }}\n\
         [[providers]]\nname = \"a\"\nadapter = \"openai-chat\"\nbase_url = \"{base}\"\n\
         key = \"operator:provider_key\"\nbyok = \"own_key\"\n\
         [[providers]]\nname = \"demo\"\nadapter = \"demo\"\n"
    ) + &model(MODEL, "responses", &["a"])
        + &model("local/demo", "responses", &["demo"])
}

fn request() -> Value {
    json!({"model": MODEL, "input": "x"})
}

/// The authorization of the last request to the provider.
fn sent(upstream: &Upstream) -> String {
    let asked = upstream.asked();
    asked.last().unwrap().headers["authorization"].to_str().unwrap().to_owned()
}

async fn ready(host: &Host) -> u16 {
    Admin::new(host).get("/readyz").await.status
}

fn new_key(host: &Host, workspace: &str) -> String {
    let made = host.command(&["key", "create", "--workspace", workspace]);
    made["key"].as_str().unwrap().to_owned()
}

/// A server of its own, which can be paused, and a host with the operator's key for the provider.
fn server() -> Option<Server> {
    installed().then(|| Options::new().without_sync().start().unwrap())
}

#[tokio::test]
async fn with_stale_ms_models_are_served_without_the_database_by_what_is_known() {
    let Some(server) = server() else { return };
    let site = Site::on(server.database("stale").unwrap()).made();
    let upstream = Upstream::start().await;
    let host = site.host(&config(&upstream)).config(STALE).start();
    credentials::put(&host, "provider_key", "operators", PROVIDER, &["--operator"]);
    host.command(&["workspace", "create", "own"]);
    host.command(&["workspace", "create", "paid"]);
    host.command(&["credits", "add", "paid", "10"]);
    let [plain, own, paid] = [site.key.clone(), new_key(&host, "own"), new_key(&host, "paid")];
    let [plain, own, paid] = [&plain, &own, &paid].map(|key| Client::with_key(&host, key));
    assert_eq!(put(&own, "own_key", PROVIDER, "callers").await.status, 200);
    for (client, credential) in [(&plain, "operators"), (&own, "callers"), (&paid, "operators")] {
        upstream.reply(script::chat("known"));
        let answer = client.post("/responses", &request()).await;
        assert_eq!(
            (answer.status, sent(&upstream)),
            (200, format!("Bearer {credential}")),
            "{}",
            answer.text
        );
    }
    server.stop_signal().unwrap();
    host.until_logged("for `store.stale_ms`, requests of models go by what was known");
    upstream.reply(script::chat("stale"));
    let answer = plain.post("/responses", &request()).await;
    assert_eq!((answer.status, answer.output_text()), (200, "stale"), "{}", answer.text);
    assert_eq!(sent(&upstream), "Bearer operators");
    assert_eq!(plain.post("/responses", &demo()).await.status, 200);
    assert_eq!(plain.get("/models").await.status, 200);
    assert_eq!(ready(&host).await, 200);
    let asked = upstream.asked().len();
    // Secrets of workspaces, and what is limited, need the database.
    let refused = [
        own.post("/responses", &request()).await,
        paid.post("/responses", &request()).await,
        paid.post("/responses", &demo()).await,
        plain.get("/vault/secrets").await,
        put(&plain, "b", "b.example", "value").await,
        plain.get("/key").await,
        Client::with_key(&host, "cfd_unknown").post("/responses", &demo()).await,
    ];
    for (at, answer) in refused.iter().enumerate() {
        assert_eq!(answer.status, 503, "{at}: {}", answer.text);
        assert!(answer.headers.contains_key("retry-after"), "{at}: {}", answer.text);
    }
    assert_eq!(upstream.asked().len(), asked, "nothing was sent");
    server.continue_signal().unwrap();
    host.until_logged("contact with the database is there again");
    upstream.reply(script::chat("back"));
    let answer = until(200, async || own.post("/responses", &request()).await).await;
    assert_eq!((answer.output_text(), sent(&upstream).as_str()), ("back", "Bearer callers"));
    assert_eq!(names(&plain).await, Vec::<String>::new());
    // Releases without the database are in the audit log too.
    let releases = async || {
        let records = audit(&host);
        let entries = records.iter().flat_map(|record| record["entries"].as_array().unwrap().clone());
        entries.filter(|entry| entry["action"] == "secret_released").count()
    };
    deadline::until("a record of each release", async || releases().await >= upstream.asked().len()).await;
    assert_eq!(releases().await, upstream.asked().len());
    let report = host.command(&["vault", "verify"]);
    assert_eq!(report["ok"], true, "{report}");
}

#[tokio::test]
async fn a_key_revoked_elsewhere_is_refused_as_soon_as_a_stale_host_has_contact() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).unwrap();
    let mut site = Site::on(server.database("stale_keys").unwrap()).made();
    let whole = site.host("").start();
    site.database = site.database.at(proxy.port());
    let cut_off = site.host("").config(STALE).start();
    let made = whole.command(&["key", "create", "--workspace", "default"]);
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let client = Client::with_key(&cut_off, key);
    until(200, async || client.post("/responses", &demo()).await).await;
    proxy.fall_silent();
    cut_off.until_logged("for `store.stale_ms`, requests of models go by what was known");
    whole.command(&["key", "revoke", id]);
    // This is what the setting means.
    assert_eq!(client.post("/responses", &demo()).await.status, 200);
    proxy.release();
    proxy.cut();
    cut_off.until_logged("contact with the database is there again");
    assert_eq!(client.post("/responses", &demo()).await.status, 401);
}
