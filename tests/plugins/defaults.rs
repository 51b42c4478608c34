//! Default plugins of a workspace, and how a request overrides them.

use super::asked;
use crate::kit::client::Client;
use crate::kit::config::{MODEL, provider, single};
use crate::kit::guests::folder;
use crate::kit::host::{Host, Setup};
use crate::kit::script::chat;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

const RULES: &str =
    "[plugins.hook-moderation.config]\nrules = [{ reason = \"r\", pattern = \"forbidden\" }]\n";

fn request(text: &str, plugins: Value) -> Value {
    json!({"model": MODEL, "input": text, "plugins": plugins})
}

async fn status(host: &Host, key: &str, request: &Value) -> u16 {
    Client::with_key(host, key).post("/responses", request).await.status
}

/// A key of a workspace of that name.
fn key_of(host: &Host, workspace: &str) -> String {
    let made = host.command(&["key", "create", "--workspace", workspace]);
    made["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_workspace_has_what_all_have_and_one_its_own() {
    let upstream = Upstream::start().await;
    let host = Setup::new()
        .config(&single("openai-chat", &upstream.base))
        .config("[[workspaces]]\nname = \"*\"\nplugins = [{ id = \"moderation\" }]")
        .config("[[workspaces]]\nname = \"lenient\"\nplugins = [{ id = \"moderation\", enabled = false }]")
        .config(RULES)
        .start();
    host.until_logged("the configuration names a workspace that does not exist");
    host.command(&["workspace", "create", "lenient"]);
    let (strict, lenient) = (host.key.clone(), key_of(&host, "lenient"));
    let table = [
        (&strict, json!([]), 403),
        (&strict, json!([{"id": "moderation"}]), 403),
        (&strict, json!([{"id": "moderation", "enabled": false}]), 200),
        (&lenient, json!([]), 200),
        // Naming a plugin switches it on.
        (&lenient, json!([{"id": "moderation"}]), 403),
    ];
    for (key, plugins, expected) in table {
        upstream.clear();
        upstream.reply(chat("fine"));
        assert_eq!(status(&host, key, &request("forbidden", plugins.clone())).await, expected, "{plugins}");
    }
}

#[tokio::test]
async fn defaults_come_first_in_their_order_and_a_request_goes_over_them_field_by_field() {
    let upstream = Upstream::start().await;
    // A component that was built elsewhere and dropped into a folder brings the id `caller`.
    let guests = folder(&["hook-caller", "tool-rogue"]);
    let grants =
        "[plugins.hook-caller]\nimports = [\"tool-call\"]\n[plugins.tool-rogue]\nimports = [\"request\"]\n";
    let caller =
        r#"{ id = "caller", tool = "rogue", function = "echo", arguments = '{"text":"forbidden"}' }"#;
    let start = |plugins: &str| {
        Setup::new()
            .config(&single("openai-chat", &upstream.base))
            .config(&format!("[[workspaces]]\nname = \"default\"\nplugins = [{plugins}]"))
            .config(grants)
            .config(RULES)
            .plugins(guests.path())
            .start()
    };
    let asks = |host: &Host, plugins: Value| {
        let client = Client::new(host);
        upstream.clear();
        upstream.reply(chat("fine"));
        async move { client.post("/responses", &request("x", plugins)).await.status }
    };
    let host = start(&format!("{caller}, {{ id = \"moderation\" }}"));
    assert_eq!(asks(&host, json!([])).await, 403);
    assert_eq!(asks(&host, json!([{"id": "caller", "arguments": "{\"text\":\"allowed\"}"}])).await, 200);
    assert!(asked(&upstream).contains("allowed"), "{}", asked(&upstream));
    assert_eq!(asks(&host, json!([{"id": "caller", "enabled": false}])).await, 200);
    drop(host);

    // Moderation runs last whatever its position, because it judges the output of the other hooks.
    let host = start(&format!("{{ id = \"moderation\" }}, {caller}"));
    assert_eq!(asks(&host, json!([])).await, 403);
    drop(host);

    // A plugin that only the request names runs after the defaults.
    let host = start(caller);
    assert_eq!(asks(&host, json!([{"id": "moderation"}])).await, 403);
}

#[tokio::test]
async fn what_the_operator_fixed_cannot_be_switched_off() {
    let upstream = Upstream::start().await;
    let fixed = "plugins = [{ id = \"moderation\" }, { id = \"response-healing\" }]\nprevent_overrides = [\"moderation\"]";
    let host = Setup::new()
        .config(&single("openai-chat", &upstream.base))
        .config(&format!("[[workspaces]]\nname = \"*\"\n{fixed}"))
        .config(RULES)
        .start();
    let client = Client::new(&host);
    let off = json!([{"id": "response-healing", "enabled": false}, {"id": "moderation", "enabled": false}]);
    let answer = client.post("/responses", &request("allowed", off)).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    assert_eq!(
        answer.message(),
        "plugins[1] cannot change \"moderation\": its settings are fixed for this workspace"
    );
    assert_eq!(answer.body["error"]["metadata"]["error_type"], "permission_denied");
    upstream.reply(chat("fine"));
    let same = json!([{"id": "response-healing", "enabled": false}, {"id": "moderation"}]);
    assert_eq!(client.post("/responses", &request("allowed", same)).await.status, 200);
}

#[tokio::test]
async fn a_model_router_has_defaults_too() {
    let upstream = Upstream::start().await;
    let mut setup = Setup::new()
        .config(&provider("p", "openai-chat", &upstream.base))
        .config("[[workspaces]]\nname = \"default\"")
        .config("plugins = [{ id = \"auto-router\", cost_tier = \"max\", excluded_models = [\"a/dear\"] }]");
    for (id, price) in [("a/cheap", 1), ("a/middle", 10), ("a/dear", 100)] {
        setup = setup.config(&format!(
            "[[models]]\nid = \"{id}\"\nendpoints = [{{ provider = \"p\", model = \"m\", input = {price}, output = {price} }}]"
        ));
    }
    let host = setup.start();
    let table = [
        (json!([]), "a/middle"),
        (json!([{"id": "auto-router", "cost_tier": "low"}]), "a/cheap"),
        (json!([{"id": "auto-router", "excluded_models": []}]), "a/dear"),
    ];
    for (plugins, expected) in table {
        upstream.reply(chat("chosen"));
        let request = json!({"model": "service/auto", "input": "Hello.", "plugins": plugins});
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.body["model"], expected, "{}", answer.text);
    }
}

#[tokio::test]
async fn a_plugin_that_is_a_server_tool_has_defaults_too() {
    let upstream = Upstream::start().await;
    let host = Setup::new()
        .config(&single("openai-chat", &upstream.base))
        .config("[plugins.tool-web-fetch]\nhosts = [\"*\"]")
        .config("[[workspaces]]\nname = \"default\"\nplugins = [{ id = \"web-fetch\", max_uses = 2 }]")
        .start();
    for (plugins, is_offered) in [(json!([]), true), (json!([{"id": "web-fetch", "enabled": false}]), false)]
    {
        upstream.reply(chat("fine"));
        let answer = Client::new(&host).post("/responses", &request("x", plugins)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let asked = upstream.asked().pop().unwrap().body;
        assert_eq!(asked["tools"].to_string().contains("web_fetch"), is_offered, "{asked}");
    }
}

#[test]
fn an_invalid_default_is_a_configuration_error() {
    let table = [
        (
            "plugins = [{ id = \"telepathy\" }]",
            "3:12: workspaces[0].plugins[0]: id names an unknown plugin: \"telepathy\"",
        ),
        (
            "plugins = [{ id = \"moderation\" }, { id = \"fusion\" }]",
            "3:35: workspaces[0].plugins[1]: id `fusion` is not available on this host",
        ),
        (
            "plugins = [{ id = \"auto-router\", cost_tier = \"huge\" }]",
            "3:12: workspaces[0].plugins[0]: cost_tier must be one of low, medium, high, xhigh, max",
        ),
        (
            "plugins = [{ id = \"moderation\" }, { id = \"moderation\" }]",
            "3:35: workspaces[0].plugins[1]: id names a plugin a second time: `moderation`",
        ),
        ("plugins = [\"moderation\"]", "3:12: workspaces[0].plugins[0]: must be an object, not a string"),
        ("plugins = { id = \"moderation\" }", "3:11: workspaces[0].plugins: expected a list, found a table"),
        (
            "plugins = [{ id = \"web-fetch\" }]",
            "3:12: workspaces[0].plugins[0]: id `web-fetch` is not available on this host",
        ),
        (
            "plugins = [{ id = \"moderation\" }]\nprevent_overrides = [\"fusion\"]",
            "4:22: workspaces[0].prevent_overrides[0]: `plugins` has no entry with this id",
        ),
        ("plugin = []", "3:1: workspaces[0].plugin: unknown key, did you mean `plugins`?"),
        (
            "[[workspaces]]\nname = \"default\"",
            "4:8: workspaces[1].name: workspace `default` stands here already",
        ),
    ];
    for (lines, expected) in table {
        // A host that searches says so in a line of its own.
        let setup = Setup::new().config(&format!("[[workspaces]]\nname = \"default\"\n{lines}"));
        let setup = setup.without_canaries();
        let output = setup.argument("--check").fail();
        let told: Value = serde_json::from_slice(&output.stderr).unwrap();
        let errors = told["error"].as_str().unwrap();
        assert_eq!(output.status.code(), Some(78), "{errors}");
        assert!(errors.contains(&format!("cofferdam.toml:{expected}")), "{errors}");
    }
    // A plugin that is switched off need not be installed.
    let fine =
        Setup::new().config("[[workspaces]]\nname = \"*\"\nplugins = [{ id = \"web\", enabled = false }]");
    assert!(fine.argument("--check").fail().status.success());
}
