//! `/openapi.json` of the admin listener, held against real answers.

use crate::kit::admin::Admin;
use crate::kit::client::{Answer, Client};
use crate::kit::host::{Host, Setup};
use crate::kit::schema::assert_fits;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The paths whose answers were held against the document.
struct Described {
    admin: Admin,
    document: Value,
    seen: BTreeSet<String>,
}

impl Described {
    async fn new(host: &Host) -> Self {
        let admin = Admin::new(host);
        let document = admin.get("/openapi.json").await;
        assert_eq!(
            (document.status, &document.headers["content-type"]),
            (200, &"application/json".parse().unwrap())
        );
        Self { admin, document: document.body, seen: BTreeSet::new() }
    }

    async fn ask(&mut self, path: &str) -> Answer {
        let answer = self.admin.ask(path).await;
        self.hold(path.split('?').next().unwrap(), "get", &answer);
        answer
    }

    async fn change(&mut self, path: &str, members: &Value) -> Answer {
        let answer = self.admin.change(path, members).await;
        self.hold(path, "post", &answer);
        let operation = &self.document["paths"][format!("/admin/v1/{path}")]["post"];
        let taken = &operation["requestBody"]["content"]["application/json"]["schema"];
        assert_fits(&self.document, taken, members, path);
        answer
    }

    fn hold(&mut self, path: &str, method: &str, answer: &Answer) {
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let named = if path.starts_with("requests/") { "requests/{id}" } else { path };
        let operation = &self.document["paths"][format!("/admin/v1/{named}")][method];
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        assert_fits(&self.document, schema, &answer.body, path);
        self.seen.insert(format!("/admin/v1/{named}"));
    }
}

#[tokio::test]
async fn answers_are_as_the_document_says() {
    let host = Setup::new().start();
    let mut api = Described::new(&host).await;
    let asked = json!({"model": "local/demo", "input": "x"});
    let id = Client::new(&host).post("/responses", &asked).await.body["id"].as_str().unwrap().to_owned();
    for path in ["models", "plugin/list", "attention", "endpoints", "traffic"] {
        api.ask(path).await;
    }
    // A usage row is written after the answer.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while api.ask("usage").await.body["total"]["requests"] == 0 {
        assert!(std::time::Instant::now() < end, "there is no usage row");
    }
    for by in ["key", "model", "workspace"] {
        api.ask(&format!("usage?by={by}")).await;
    }
    let listed = api.ask("requests?limit=1").await.body;
    assert_eq!(listed["data"][0]["request_id"], id.as_str());
    api.ask(&format!("requests/{id}")).await;

    api.change("workspace/create", &json!({"name": "lab"})).await;
    api.change("workspace/set", &json!({"workspace": "lab", "programme": "off"})).await;
    let member = json!({"name": "ada", "workspace": "lab"});
    api.change("member/create", &member).await;
    api.change("member/set", &json!({"member": "ada", "role": "admin"})).await;
    api.change("intern/create", &json!({"name": "nia", "workspace": "lab"})).await;
    let made = api.change("key/create", &json!({"workspace": "lab", "limit-day": 1.5})).await.body;
    api.ask(&format!("key/show?id={}", made["id"].as_str().unwrap())).await;
    let key = json!({"id": made["id"]});
    api.change("key/limit", &json!({"id": made["id"], "limit-month": 7})).await;
    for path in ["key/disable", "key/enable", "key/revoke"] {
        api.change(path, &key).await;
    }
    api.change("credits/add", &json!({"workspace": "lab", "dollars": "5"})).await;
    api.ask("credits/show?workspace=lab").await;
    api.ask("credits/show").await;
    api.change("credits/unlimited", &json!({"workspace": "lab"})).await;
    super::put_operator_secret(&host, "hidden", "value");
    for path in ["workspace/list", "member/list", "intern/list", "key/list", "secret/list", "status"] {
        api.ask(path).await;
    }
    api.ask("plugin/logs?name=router&lines=5").await;
    api.ask("vault/verify").await;
    api.ask("vault/audit?since=1").await;
    api.ask("vault/audit?newest=1&secret=hidden").await;
    api.change("secret/delete", &json!({"name": "hidden", "operator": true})).await;
    api.change("plugin/grant", &json!({"name": "tool-http-request"})).await;
    api.change("intern/delete", &json!({"intern": "nia"})).await;
    api.change("member/delete", &json!({"member": "ada"})).await;
    api.change("workspace/delete", &json!({"workspace": "lab", "yes": true})).await;

    let described: BTreeSet<String> = api.document["paths"].as_object().unwrap().keys().cloned().collect();
    let other: Vec<&String> = described.difference(&api.seen).collect();
    // The first two are streams, a session is made in `access`, and a rollback needs a plugin that
    // was updated.
    let elsewhere =
        ["events", "playground", "plugin/rollback", "session"].map(|path| format!("/admin/v1/{path}"));
    assert_eq!(other, elsewhere.iter().collect::<Vec<_>>());
    for error in
        [api.admin.ask("no/such").await, api.admin.change("key/revoke", &json!({"id": "none"})).await]
    {
        assert_fits(&api.document, &json!({"$ref": "#/components/schemas/Error"}), &error.body, "error");
    }
}

#[tokio::test]
async fn arguments_are_those_of_the_command_line() {
    let host = Setup::new().start();
    let document = Described::new(&host).await.document;
    let create = &document["paths"]["/admin/v1/key/create"]["post"];
    assert_eq!(create["summary"], "Create a key; it is shown once and never again");
    let taken = &create["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(taken["properties"]["provisioning"]["type"], "boolean");
    assert_eq!(taken["properties"]["limit-day"]["type"], json!(["string", "number"]));
    assert_eq!(taken["additionalProperties"], false);
    let usage = document["paths"]["/admin/v1/usage"]["get"]["parameters"].as_array().unwrap();
    let by = usage.iter().find(|parameter| parameter["name"] == "by").unwrap();
    assert_eq!(by["schema"]["enum"], json!(["key", "model", "day", "workspace"]));
    // Paths of the operator's machine are no part of the API.
    assert!(!document.to_string().contains("\"plugins\"") && !document.to_string().contains("\"config\""));
}
