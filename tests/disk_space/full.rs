//! A file system on which no byte is free.

use super::{command, model, prepaid, put, question};
use crate::kit::client::Client;
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::small_disk::SmallDisk;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

/// More than the reserve of 32 MiB frees, so that the disk stays short when the reserve is gone.
const FREE_MIN: u64 = 40 << 20;
/// Requests until a usage row needs a block that is not there.
const REQUESTS_MAX: u32 = 5_000;

async fn names(client: &Client) -> Vec<Value> {
    let listed = client.get("/vault/secrets").await;
    listed.body["data"].as_array().unwrap().iter().map(|secret| secret["name"].clone()).collect()
}

/// Checks what a host with too little space refuses and serves.
async fn assert_short(host: &Host, upstream: &Upstream, paid: &Client) {
    let open = Client::new(host);
    let asked = upstream.asked().len();
    let refused = put(&open, "b").await;
    assert_eq!((refused.status, refused.message()), (503, "Vault service is unavailable"));
    let refused = paid.post("/responses", &question()).await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(upstream.asked().len(), asked, "the refused request went to the provider");
    assert_eq!(names(&open).await, ["a"]);
    upstream.reply(script::chat("served"));
    assert_eq!(open.post("/responses", &question()).await.output_text(), "served");
}

#[tokio::test]
async fn a_full_file_system_loses_nothing_that_was_acknowledged() {
    let upstream = Upstream::start().await;
    let setup = Setup::new().data_at("disk/data");
    let Some(disk) = SmallDisk::mount(&setup.directory().join("disk"), 160) else { return };
    let config = format!("[store]\nfree_bytes_min = {FREE_MIN}\n") + &model(&upstream);
    let host = setup.config(&config).in_namespaces(disk.holder()).start();
    assert!(disk.path("data/reserve").exists());
    let paid = prepaid(&host);
    assert_eq!(put(&Client::new(&host), "a").await.status, 200);
    upstream.reply(script::chat("paid for"));
    assert_eq!(paid.post("/responses", &question()).await.output_text(), "paid for");

    disk.fill("filler");
    assert_short(&host, &upstream, &paid).await;
    assert!(!disk.path("data/reserve").exists(), "the reserve is given up");
    host.until_logged("the disk is full: the reserve was given up");

    // A host that is killed in this state starts again in it.
    let mut host = host;
    host.kill();
    let mut host = Setup::after(&host).start();
    let paid = paid.at(&host);
    assert_short(&host, &upstream, &paid).await;

    // Without any block the next usage row cannot be written, which ends the process.
    disk.fill("more");
    upstream.always(|_| script::chat("served"));
    let open = Client::new(&host);
    for sent in 0.. {
        assert!(sent < REQUESTS_MAX, "the host still runs");
        let body = question().to_string();
        let request =
            open.request(reqwest::Method::POST, "/responses").header("content-type", "application/json");
        if request.body(body).send().await.is_err() {
            break;
        }
    }
    assert_eq!(host.wait().code(), Some(1), "{}", host.log());

    disk.remove("filler");
    disk.remove("more");
    let host = Setup::after(&host).start();
    let (open, paid) = (Client::new(&host), paid.at(&host));
    assert_eq!(names(&open).await, ["a"]);
    assert_eq!(put(&open, "b").await.status, 200);
    assert_eq!(paid.post("/responses", &question()).await.output_text(), "served");
    let credit = command(&host, "credits show paid");
    assert_eq!((&credit["spent"], &credit["reserved"]), (&json!(20), &json!(0)));
}
