//! `/v1/key`, `/v1/credits`, and `/v1/keys` with provisioning keys.

use crate::kit::client::{Answer, Client, read};
use crate::kit::host::{Host, Setup};
use crate::kit::raw::Raw;
use crate::kit::store::{now, prepare};
use cofferdam_store::Actor;
use reqwest::Method;
use serde_json::{Value, json};

fn command(host: &Host, line: &str) -> Value {
    host.command(&line.split_whitespace().collect::<Vec<_>>())
}

fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap_or_else(|| panic!("no {name} in {document}")).to_owned()
}

/// A client with a provisioning key.
struct Manager(Client);

impl Manager {
    fn of(host: &Host, workspace: &str) -> Self {
        let made = command(host, &format!("key create --provisioning --workspace {workspace}"));
        Self(Client::with_key(host, &text(&made, "key")))
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Answer {
        let request = self.0.request(method, path).header("content-type", "application/json");
        read(request.body(body.to_string()).send().await.unwrap()).await
    }

    async fn create(&self, body: &Value) -> Answer {
        self.ask(Method::POST, "/keys", body).await
    }

    /// Creates a key with this name; returns its id and its token.
    async fn created(&self, name: &str) -> (String, String) {
        let answer = self.create(&json!({"name": name})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        (text(&answer.body["data"], "hash"), text(&answer.body, "key"))
    }

    async fn patch(&self, id: &str, body: &Value) -> Answer {
        self.ask(Method::PATCH, &format!("/keys/{id}"), body).await
    }

    async fn delete(&self, id: &str) -> Answer {
        self.ask(Method::DELETE, &format!("/keys/{id}"), &json!({})).await
    }

    /// The names on a page, and whether there are more.
    async fn names(&self, query: &str) -> (Vec<String>, bool) {
        let page = self.0.get(&format!("/keys{query}")).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let names = page.body["data"].as_array().unwrap().iter();
        let names = names.map(|key| key["name"].as_str().unwrap_or("").to_owned());
        (names.collect(), page.body["has_more"].as_bool().unwrap())
    }
}

async fn status_of(host: &Host, token: &str) -> u16 {
    Client::with_key(host, token).get("/models").await.status
}

/// The key of this name pays for requests of the operator.
#[tokio::test]
async fn a_key_gets_no_name_of_the_operator() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    let (id, _) = manager.created("team").await;
    for answer in [
        manager.create(&json!({"name": "console"})).await,
        manager.patch(&id, &json!({"name": "console"})).await,
    ] {
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("name must not be `console`"), "{}", answer.text);
    }
    assert_eq!(manager.names("").await.0, ["team", ""]);
    let made = host.command(&["key", "create", "--workspace", "default", "--name", "console"]);
    let id = text(&made, "id");
    assert_eq!(manager.names("").await.0, ["team", ""]);
    assert_eq!(manager.patch(&id, &json!({"disabled": true})).await.status, 404);
    assert_eq!(status_of(&host, &text(&made, "key")).await, 200);
}

#[tokio::test]
async fn a_key_gets_no_name_that_reads_as_an_id() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    for name in ["67e55044-10b1-426f-9247-bb680e5fe0c8", "67e5504410b1426f9247bb680e5fe0c8"] {
        let answer = manager.create(&json!({"name": name})).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains("must not have the form of a UUID"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_key_works_from_its_creation_to_its_deletion() {
    let mut host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    let made = manager.create(&json!({"name": "Team A", "limit": 2.5, "limit_reset": "weekly"})).await;
    assert_eq!((made.status, made.headers["cache-control"].to_str().unwrap()), (201, "no-store"));
    let (id, token) = (text(&made.body["data"], "hash"), text(&made.body, "key"));
    let data = &made.body["data"];
    for (name, expected) in [
        ("name", json!("Team A")),
        ("label", json!(format!("cfd_{id}_..."))),
        ("kind", json!("member")),
        ("disabled", json!(false)),
        ("limit", json!(2.5)),
        ("limit_remaining", json!(2.5)),
        ("limit_reset", json!("weekly")),
        ("limits", json!({"day": null, "week": 2.5, "month": null, "total": null})),
        ("include_byok_in_limit", json!(false)),
        ("usage", json!(0)),
        ("usage_daily", json!(0)),
        ("byok_usage_monthly", json!(0)),
        ("updated_at", Value::Null),
        ("expires_at", Value::Null),
        ("last_used_at", Value::Null),
        ("external_user", Value::Null),
    ] {
        assert_eq!(data.get(name), Some(&expected), "{name}: {}", made.text);
    }
    // The key made at the first start has no name, but SDKs expect a text.
    let page = manager.0.get("/keys").await;
    assert!(page.body["data"].as_array().unwrap().iter().all(|key| key["name"].is_string()), "{}", page.text);
    assert_eq!(data["creator_user_id"], data["member_id"]);

    let client = Client::with_key(&host, &token);
    let answer = client.post("/responses", &json!({"model": "local/demo", "input": "hi"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let read = manager.0.get(&format!("/keys/{id}")).await;
    assert_eq!((read.status, &read.body["data"]["id"]), (200, &json!(id)), "{}", read.text);

    let changed = manager.patch(&id, &json!({"name": "Team B", "disabled": true})).await;
    assert_eq!((changed.status, &changed.body["data"]["name"]), (200, &json!("Team B")), "{}", changed.text);
    assert_eq!(status_of(&host, &token).await, 401, "at once");
    assert_eq!(manager.names("").await.0, ["".to_owned()], "the first key has no name");
    assert_eq!(manager.names("?include_disabled=true").await.0, ["Team B", ""]);
    assert_eq!(manager.patch(&id, &json!({"disabled": false})).await.status, 200);
    assert_eq!(status_of(&host, &token).await, 200);

    let deleted = manager.delete(&id).await;
    assert_eq!((deleted.status, &deleted.body), (200, &json!({"deleted": true})));
    assert_eq!(status_of(&host, &token).await, 401);
    for answer in [
        manager.0.get(&format!("/keys/{id}")).await,
        manager.patch(&id, &json!({"disabled": false})).await,
        manager.delete(&id).await,
    ] {
        assert_eq!((answer.status, answer.message()), (404, "Not found"), "{}", answer.text);
    }
    assert_eq!(manager.names("?include_disabled=true").await.0, [""]);
    for later in [&read, &changed] {
        assert!(!later.text.contains(&token));
    }
    let audit = command(&host, "vault audit").to_string();
    let manager_id = text(&manager.0.get("/key").await.body["data"], "id");
    assert_eq!(audit.matches(&format!("{{\"key\":\"{manager_id}\"}}")).count(), 4, "{audit}");
    assert!(!audit.contains(&token) && !host.end().contains(&token));
    assert!(host.files_with(&token).is_empty());
}

#[tokio::test]
async fn limit_and_reset_period_can_be_changed_together_or_alone() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    let (id, _) = manager.created("a").await;
    for (change, limits) in [
        (json!({"limit": 5}), json!({"day": null, "week": null, "month": null, "total": 5})),
        (json!({"limit_reset": "daily"}), json!({"day": 5, "week": null, "month": null, "total": null})),
        (json!({"limit": 7.25}), json!({"day": 7.25, "week": null, "month": null, "total": null})),
        (json!({"name": "b"}), json!({"day": 7.25, "week": null, "month": null, "total": null})),
        (json!({"limit_reset": null}), json!({"day": null, "week": null, "month": null, "total": 7.25})),
        (
            json!({"limit": 0, "limit_reset": "monthly"}),
            json!({"day": null, "week": null, "month": 0, "total": null}),
        ),
        (json!({"limit": null}), json!({"day": null, "week": null, "month": null, "total": null})),
    ] {
        let answer = manager.patch(&id, &change).await;
        assert_eq!(
            (answer.status, &answer.body["data"]["limits"]),
            (200, &limits),
            "{change}: {}",
            answer.text
        );
    }
    let answer = manager.patch(&id, &json!({"limit_reset": "daily"})).await;
    assert_eq!((answer.status, answer.message()), (400, "limit_reset must be null without a limit"));
}

#[tokio::test]
async fn two_changes_of_one_limit_at_the_same_time_are_both_made() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    let (id, _) = manager.created("a").await;
    for round in 1..=10 {
        let reset = if round % 2 == 0 { "daily" } else { "weekly" };
        let first = json!({"limit": 1, "limit_reset": "monthly"});
        assert_eq!(manager.patch(&id, &first).await.status, 200);
        let (amount, period) = (json!({"limit": 1 + round}), json!({"limit_reset": reset}));
        let (amount, period) = tokio::join!(manager.patch(&id, &amount), manager.patch(&id, &period));
        assert_eq!((amount.status, period.status), (200, 200), "{}{}", amount.text, period.text);
        let data = &manager.0.get(&format!("/keys/{id}")).await.body["data"];
        assert_eq!((&data["limit"], &data["limit_reset"]), (&json!(1 + round), &json!(reset)), "{round}");
    }
}

/// Keys that a provisioning key does not manage are not found, whatever the reason.
#[tokio::test]
async fn provisioning_key_manages_only_inference_keys_of_its_workspace() {
    let host = Setup::new().start();
    command(&host, "workspace create elsewhere");
    command(&host, "intern create scout --workspace default");
    command(&host, "intern create stranger --workspace elsewhere");
    command(&host, "member create bob --workspace default");
    let made = |line: &str| text(&command(&host, &format!("key create {line}")), "id");
    let own = [
        made("--workspace default --member bob"),
        made("--workspace default --intern scout"),
        made("--workspace default"),
    ];
    let revoked = made("--workspace default");
    command(&host, &format!("key revoke {revoked}"));
    let manager = Manager::of(&host, "default");
    let manager_id = text(&manager.0.get("/key").await.body["data"], "id");
    let hidden = [
        made("--workspace elsewhere"),
        made("--workspace elsewhere --intern stranger"),
        made("--no-scope"),
        made("--provisioning --workspace default"),
        made("--provisioning --workspace elsewhere"),
        manager_id,
        revoked,
        "abcdefghijkl".to_owned(),
        "nonsense".to_owned(),
        "%2e%2e".to_owned(),
    ];
    let unknown = manager.0.get("/keys/000000000000").await;
    assert_eq!((unknown.status, unknown.message()), (404, "Not found"));
    for id in &hidden {
        for answer in [
            manager.0.get(&format!("/keys/{id}")).await,
            manager.patch(id, &json!({"disabled": true})).await,
            manager.patch(id, &json!({"nonsense": true})).await,
            manager.delete(id).await,
        ] {
            assert_eq!((answer.status, &answer.text), (404, &unknown.text), "{id}");
        }
    }
    let page = manager.0.get("/keys").await;
    for id in &own {
        assert!(page.text.contains(id), "{id}: {}", page.text);
        assert_eq!(manager.0.get(&format!("/keys/{id}")).await.status, 200);
    }
    for id in &hidden {
        assert!(!page.text.contains(id), "{id}: {}", page.text);
    }
}

#[tokio::test]
async fn created_keys_reach_no_more_than_the_provisioning_keys_member() {
    let host = Setup::new().start();
    command(&host, "workspace create elsewhere");
    let scout = text(&command(&host, "intern create scout --workspace default"), "id");
    let stranger = text(&command(&host, "intern create stranger --workspace elsewhere"), "id");
    let bob = text(&command(&host, "member create bob --workspace default --role admin"), "id");
    let bobs = text(&command(&host, "intern create helper --workspace default --member bob"), "id");
    let other = text(&command(&host, "member create eve --workspace elsewhere"), "id");
    let bobs_key = text(&command(&host, "key create --workspace default --member bob"), "id");
    let manager = Manager::of(&host, "default");
    let made = async |member: &str, id: &str| {
        let answer = manager.create(&json!({"name": "k", member: id})).await;
        (answer.status, answer.body["data"][member].clone())
    };
    // The manager's own member, the workspace's owner, is an admin.
    assert_eq!(made("member_id", &bob).await, (201, json!(bob)));
    assert_eq!(made("intern_id", &scout).await, (201, json!(scout)));
    assert_eq!(made("intern_id", &bobs).await, (201, json!(bobs)));
    for (name, id) in
        [("member_id", &other), ("intern_id", &stranger), ("intern_id", &bob), ("member_id", &scout)]
    {
        let answer = manager.create(&json!({"name": "k", name: id})).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text);
        assert!(answer.message().starts_with(name), "{}", answer.text);
    }
    // As a plain member it reaches only its own keys and those of interns it created.
    let owner = text(&manager.0.get("/key").await.body["data"], "member_id");
    command(&host, &format!("member set {owner} --role member"));
    assert_eq!(made("member_id", &bob).await.0, 400);
    assert_eq!(made("intern_id", &bobs).await.0, 400);
    assert_eq!(made("intern_id", &scout).await.0, 201);
    assert_eq!(manager.create(&json!({"name": "k"})).await.status, 201);
    assert_eq!(manager.0.get(&format!("/keys/{bobs_key}")).await.status, 404);
    assert_eq!(manager.delete(&bobs_key).await.status, 404);
    assert!(!manager.0.get("/keys").await.text.contains(&bobs_key));
}

#[tokio::test]
async fn pages_are_newest_first_without_gaps() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    for name in ["a", "b", "c", "d"] {
        manager.created(name).await;
    }
    assert_eq!(manager.names("?limit=2").await, (vec!["d".to_owned(), "c".to_owned()], true));
    assert_eq!(manager.names("?limit=2&offset=2").await, (vec!["b".to_owned(), "a".to_owned()], true));
    assert_eq!(manager.names("?limit=2&offset=4").await, (vec![String::new()], false));
    assert_eq!(manager.names("?offset=10000").await, (Vec::new(), false));
    let answer = manager.0.get("/keys?include_disabled=1").await;
    assert_eq!((answer.status, answer.message()), (400, "include_disabled must be true or false"));
}

#[tokio::test]
async fn invalid_requests_name_the_field_and_create_nothing() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    let before = manager.names("").await;
    for (body, message) in [
        (json!([]), "body must be a JSON object with each member once"),
        (json!({}), "name is missing"),
        (json!({"name": "a", "limit": -1}), "limit must be a number of dollars, 0 or more, or null"),
        (json!({"name": "a", "limit": "1"}), "limit must be a number of dollars, 0 or more, or null"),
        (json!({"name": "a", "limt": 1}), "limt is not known here"),
        (json!({"name": "a", "kind": "provisioning"}), "kind is not known here"),
        (json!({"name": "a", "expires_at": "2020-01-01T00:00:00Z"}), "expires_at must lie in the future"),
    ] {
        let answer = manager.create(&body).await;
        assert_eq!((answer.status, answer.message()), (400, message), "{body}");
        let metadata = &answer.body["error"]["metadata"];
        assert_eq!(metadata["path"], message.split(' ').next().unwrap());
    }
    let long = manager.create(&json!({"name": "x".repeat(20_000)})).await;
    assert_eq!(long.status, 413, "{}", long.text);
    for (method, path, allow) in [
        (Method::PUT, "/keys", "GET, HEAD, POST"),
        (Method::POST, "/keys/abcdefghijkl", "GET, HEAD, PATCH, DELETE"),
    ] {
        let answer = manager.ask(method, path, &json!({})).await;
        assert_eq!((answer.status, answer.headers["allow"].to_str().unwrap()), (405, allow));
    }
    // A compressed body, and one that breaks off.
    let token = host.key.clone();
    let packed = manager.0.request(Method::POST, "/keys").header("content-encoding", "gzip").body("x");
    assert_eq!(read(packed.send().await.unwrap()).await.status, 400);
    let mut raw = Raw::connect(&host).await;
    let head = format!(
        "POST /v1/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n{{"
    );
    assert!(raw.send(head.as_bytes()).await);
    drop(raw);
    assert_eq!(manager.names("").await, before);
}

#[tokio::test]
async fn changes_of_keys_are_rate_limited() {
    let host = Setup::new().start();
    let manager = Manager::of(&host, "default");
    let (id, _) = manager.created("a").await;
    let mut changes = 1;
    let refused = loop {
        let answer = manager.patch(&id, &json!({})).await;
        if answer.status != 200 {
            break answer;
        }
        changes += 1;
        assert!(changes < 1000, "there is no limit");
    };
    assert!(changes >= 60, "only {changes} at once");
    assert_eq!((refused.status, refused.headers["retry-after"].to_str().unwrap()), (429, "1"));
    assert_eq!(refused.body["error"]["metadata"]["refused_by"], "host");
    assert_eq!(manager.names("").await.0.len(), 2, "reading has none");
    let (_, token) = Manager::of(&host, "default").created("b").await;
    assert_eq!(status_of(&host, &token).await, 200);
}

#[tokio::test]
async fn key_route_describes_the_callers_key() {
    let host = Setup::new().config("[limits]\nrequests_per_minute = 30").start();
    let answer = Client::new(&host).get("/key").await;
    let data = &answer.body["data"];
    let id = text(data, "id");
    for (name, expected) in [
        ("label", json!(format!("cfd_{id}_..."))),
        ("name", Value::Null),
        ("kind", json!("member")),
        ("usage", json!(0)),
        ("usage_monthly", json!(0)),
        ("byok_usage", json!(0)),
        ("limit", Value::Null),
        ("limit_remaining", Value::Null),
        ("limit_reset", Value::Null),
        ("include_byok_in_limit", json!(false)),
        ("is_free_tier", json!(false)),
        ("is_provisioning_key", json!(false)),
        ("is_management_key", json!(false)),
        // OpenRouter's SDKs reject a key without these fields.
        ("organization_id", Value::Null),
        ("allowed_data_regions", json!([])),
        ("budgets", json!([])),
        ("effective_budget", Value::Null),
        ("free_model_daily_requests", json!({"limit": 0, "remaining": 0, "used": 0})),
    ] {
        assert_eq!(data.get(name), Some(&expected), "{name}: {}", answer.text);
    }
    let pace = &data["rate_limit"];
    assert_eq!((&pace["requests"], &pace["interval"]), (&json!(30), &json!("1m")), "{pace}");
    assert!(pace["note"].is_string(), "{pace}");
    let manager = Manager::of(&host, "default");
    let data = &manager.0.get("/key").await.body["data"];
    assert_eq!((&data["is_provisioning_key"], &data["kind"]), (&json!(true), &json!("provisioning")));
}

#[tokio::test]
async fn credits_route_shows_credit_and_usage() {
    let host = Setup::new().start();
    let unlimited = Client::new(&host).get("/credits").await;
    let expected =
        "{\"data\":{\"total_credits\":18446744.073709551615,\"total_usage\":0,\"unlimited\":true}}";
    assert_eq!((unlimited.status, unlimited.text.as_str()), (200, expected));
    let key = host.key.clone();
    let setup = Setup::after(&host);
    drop(host);
    prepare(&setup, |store| {
        let workspace = now(store.find_workspace("default")).unwrap().id;
        store.add_credit(Actor::Operator, workspace, 12_500_000_000_000).unwrap();
    });
    let host = setup.start();
    let prepaid = Client::with_key(&host, &key).get("/credits").await;
    let expected = "{\"data\":{\"total_credits\":12.5,\"total_usage\":0,\"unlimited\":false}}";
    assert_eq!((prepaid.status, prepaid.text.as_str()), (200, expected));
}
