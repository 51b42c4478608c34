//! `/openapi.json` of the API, held against real requests and answers.

use crate::kit::client::{Answer, Client, http_to, read};
use crate::kit::host::{Host, Setup};
use crate::kit::schema::{assert_fits, fits};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The description, and the operations whose answers were held against it.
struct Described {
    client: Client,
    document: Value,
    seen: BTreeSet<String>,
}

impl Described {
    async fn new(host: &Host) -> Self {
        let document = document(host).await;
        assert_eq!(document.status, 200, "{}", document.text);
        Self { client: Client::new(host), document: document.body, seen: BTreeSet::new() }
    }

    /// Sends a request to a path of the description, in which `names` replace what stands in braces.
    async fn ask(
        &mut self,
        client: Option<&Client>,
        (method, path): (&str, &str),
        names: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let operation = self.document["paths"][path][method].clone();
        assert!(operation.is_object(), "no {method} {path}");
        let mut real = path.strip_prefix("/v1").unwrap().to_owned();
        for (name, value) in names {
            real = real.replace(&format!("{{{name}}}"), value);
        }
        let method_of_http: Method = method.to_uppercase().parse().unwrap();
        let mut request = client.unwrap_or(&self.client).request(method_of_http, &real);
        if let Some(body) = body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert_fits(&self.document, schema, body, &format!("the body for {path}"));
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = read(request.send().await.unwrap()).await;
        let described = operation["responses"].get(answer.status.to_string());
        let described = described.unwrap_or_else(|| panic!("{method} {path}: {}", answer.text));
        if let Some(schema) = described.pointer("/content/application~1json/schema") {
            assert_fits(&self.document, schema, &answer.body, path);
        } else {
            assert_eq!(answer.text, "", "{method} {path}");
        }
        self.seen.insert(format!("{method} {path}"));
        answer
    }
}

async fn document(host: &Host) -> Answer {
    let url = host.base.replace("/v1", "/openapi.json");
    read(http_to(host).build().unwrap().get(url).send().await.unwrap()).await
}

fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap_or_else(|| panic!("no {name} in {document}")).to_owned()
}

#[tokio::test]
async fn answers_of_every_route_are_as_the_document_says() {
    let host = Setup::new().start();
    let mut api = Described::new(&host).await;
    let response = json!({"model": "local/demo", "input": "Hello", "metadata": {"a": "b"}});
    api.ask(None, ("post", "/v1/responses"), &[], Some(&response)).await;
    let tool = json!({
        "model": "local/demo", "input": "What time is it?", "tools": [{"type": "service:datetime"}],
        "reasoning": {"effort": "low"},
    });
    api.ask(None, ("post", "/v1/responses"), &[], Some(&tool)).await;
    for format in ["float", "base64"] {
        let vectors = json!({"model": "local/embed", "input": ["one", [1, 2]], "encoding_format": format});
        api.ask(None, ("post", "/v1/embeddings"), &[], Some(&vectors)).await;
    }
    for path in ["/v1/models", "/v1/key", "/v1/credits"] {
        api.ask(None, ("get", path), &[], None).await;
    }
    api.ask(None, ("get", "/v1/models/{id}"), &[("id", "local/demo")], None).await;
    keys(&host, &mut api).await;
    vault(&host, &mut api).await;

    let operations = api.document["paths"].as_object().unwrap().iter().flat_map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys().filter(|method| *method != "parameters");
        methods.map(move |method| format!("{method} {path}"))
    });
    let missing: Vec<String> = operations.filter(|operation| !api.seen.contains(operation)).collect();
    assert_eq!(missing, ["get /openapi.json"]);
}

async fn keys(host: &Host, api: &mut Described) {
    let made = host.command(&["key", "create", "--provisioning", "--workspace", "default"]);
    let manager = Client::with_key(host, &text(&made, "key"));
    api.ask(Some(&manager), ("get", "/v1/keys"), &[], None).await;
    let wanted = json!({"name": "ci", "limit": 12.5, "limit_reset": "daily"});
    let made = api.ask(Some(&manager), ("post", "/v1/keys"), &[], Some(&wanted)).await;
    let id = text(&made.body["data"], "hash");
    let names = [("id", id.as_str())];
    api.ask(Some(&manager), ("get", "/v1/keys/{id}"), &names, None).await;
    let change = json!({"name": "nightly", "limit": null, "limit_reset": null});
    api.ask(Some(&manager), ("patch", "/v1/keys/{id}"), &names, Some(&change)).await;
    api.ask(Some(&manager), ("delete", "/v1/keys/{id}"), &names, None).await;
}

async fn vault(host: &Host, api: &mut Described) {
    let made = host.command(&["intern", "create", "--workspace", "default", "nia"]);
    let intern = text(&made, "id");
    let names = [("internId", intern.as_str()), ("name", "token")];
    let secret = json!({"hosts": ["api.example.com"], "value": "a-value"});
    let of_interns = "/v1/vault/interns/{internId}/secrets";
    let one_of_interns = "/v1/vault/interns/{internId}/secrets/{name}";
    api.ask(None, ("put", "/v1/vault/secrets/{name}"), &names, Some(&secret)).await;
    api.ask(None, ("get", "/v1/vault/secrets"), &names, None).await;
    let copied = json!({"names": ["token"]});
    api.ask(None, ("post", "/v1/vault/interns/{internId}/secrets/copy"), &names, Some(&copied)).await;
    api.ask(None, ("put", one_of_interns), &names, Some(&secret)).await;
    api.ask(None, ("get", of_interns), &names, None).await;
    api.ask(None, ("get", "/v1/vault/interns/{internId}/effective-secrets"), &names, None).await;
    api.ask(None, ("delete", one_of_interns), &names, None).await;
    api.ask(None, ("delete", "/v1/vault/secrets/{name}"), &names, None).await;
}

#[tokio::test]
async fn events_of_a_stream_and_errors_are_as_the_document_says() {
    let host = Setup::new().start();
    let document = document(&host).await.body;
    let client = Client::new(&host);
    let request =
        json!({"model": "local/demo", "input": "What time is it?", "tools": [{"type": "service:datetime"}]});
    let event = json!({"$ref": "#/components/schemas/ResponseEvent"});
    let events = client.stream_with(&request, &[("x-service-metadata", "enabled")]).await;
    for told in &events {
        assert_fits(&document, &event, told, "event");
    }
    assert!(events.last().unwrap()["response"]["service_metadata"].is_object());
    let error = json!({"$ref": "#/components/schemas/Error"});
    for (path, body) in [
        ("/responses", json!({"model": "none/such", "input": "x"})),
        ("/responses", json!({"model": "local/demo", "input": 5})),
        ("/embeddings", json!({"model": "local/demo", "input": "x"})),
        ("/keys", json!({})),
        ("/nothing", json!({})),
    ] {
        let refused = client.post(path, &body).await;
        assert!(refused.status >= 400, "{path}");
        assert_fits(&document, &error, &refused.body, path);
    }
    let stranger = Client::with_key(&host, "cfd_nobody").get("/models").await;
    assert_eq!(stranger.status, 401);
    assert_fits(&document, &error, &stranger.body, "a wrong key");
}

/// Bodies that the schema and the parser must judge alike.
#[tokio::test]
async fn schema_of_a_request_refuses_what_the_parser_refuses() {
    let host = Setup::new().start();
    let document = document(&host).await.body;
    let schema = json!({"$ref": "#/components/schemas/ResponsesRequest"});
    let client = Client::new(&host);
    let base = json!({"model": "local/demo", "input": "x"});
    let mut wrong = Vec::new();
    for (member, value, is_good) in [
        ("temperature", json!(2), true),
        ("temperature", json!(2.5), false),
        ("temperature", json!(null), true),
        ("max_tool_calls", json!(31), false),
        ("store", json!(true), false),
        ("store", json!(false), true),
        ("previous_response_id", json!("resp_1"), false),
        ("input", json!([]), false),
        ("input", json!([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]), true),
        ("input", json!([{"role": "robot", "content": "x"}]), false),
        ("input", json!([{"role": "user"}]), false),
        (
            "input",
            json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"}]),
            true,
        ),
        ("input", json!([{"type": "function_call", "name": "f", "arguments": "{}"}]), false),
        ("input", json!([{"type": "no_such_item"}]), false),
        ("tools", json!([{"type": "function", "name": "f", "parameters": {}}]), true),
        ("tools", json!([{"type": "function"}]), false),
        ("tools", json!([{"type": "service:datetime", "parameters": {"timezone": "Europe/Rome"}}]), true),
        ("tools", json!([{"type": "service:datetime", "parameters": {"timezone": 5}}]), false),
        ("tool_choice", json!("required"), true),
        ("tool_choice", json!("auto"), true),
        ("plugins", json!([{"id": "web", "max_results": 0}]), false),
        ("metadata", json!({"a": 5}), false),
        ("provider", json!({"sort": {"by": "price"}, "max_price": {"prompt": "0.5"}}), true),
        ("provider", json!({"sort": "speed"}), false),
        ("text", json!({"format": {"type": "json_schema", "name": "n"}}), false),
        ("include", json!(["reasoning.encrypted_content"]), true),
        ("include", json!(["everything"]), false),
        ("unknown_member", json!(1), true),
    ] {
        let mut body = base.clone();
        body[member] = value.clone();
        let answer = client.post("/responses", &body).await;
        let is_described = fits(&document, &schema, &body, "body").is_ok();
        if (answer.status == 200, is_described) != (is_good, is_good) {
            wrong.push(format!("{member} {value}: described {is_described}, answered {}", answer.text));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn document_needs_no_key_and_tells_nothing_about_the_host() {
    let host = Setup::new().start();
    let plain = document(&host).await;
    assert_eq!(plain.headers["content-type"], "application/json");
    assert!(!plain.text.contains("local/demo") && !plain.text.contains(env!("CARGO_MANIFEST_DIR")));
    let url = host.base.replace("/v1", "/openapi.json");
    let http = http_to(&host).build().unwrap();
    let head = http.head(&url).send().await.unwrap();
    let length = head.headers()["content-length"].to_str().unwrap();
    assert_eq!((head.status().as_u16(), length), (200, plain.text.len().to_string().as_str()));
    let refused = http.post(&url).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["allow"].to_str().unwrap()), (405, "GET, HEAD"));
    // Names of operations are unique, and each is in a section that the document lists.
    let mut names = BTreeSet::new();
    let tags = plain.body["tags"].as_array().unwrap();
    for operations in plain.body["paths"].as_object().unwrap().values() {
        for (_, operation) in operations.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters")
        {
            assert!(names.insert(text(operation, "operationId")), "{operation}");
            assert!(tags.iter().any(|tag| tag["name"] == operation["tags"][0]), "{operation}");
        }
    }
}
