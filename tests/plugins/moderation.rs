//! The plugin `moderation`: the operator's rules, and an endpoint that is called with a key of the
//! operator or of the workspace.

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, model, provider, single};
use crate::kit::host::{Host, Setup, program};
use crate::kit::script::{chat, chat_stream};
use crate::kit::site::{Authority, Site};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

const HOST: &str = "moderation.test";
/// The workspace's key for the endpoint.
const KEY: &str = "sk-moderation-7Qw1-Zx9c";
const OPERATORS: &str = "sk-operator-3Bv8-Lk2d";
const INTERNS: &str = "sk-intern-9Tn4-Rf6h";

const RULES: &str = r#"
[plugins.hook-moderation.config]
rules = [
  { reason = "weapons", pattern = '\bbombs?\b' },
  { reason = "recipes", pattern = 'how to (build|cook)' },
]
"#;

fn request(text: &str) -> Value {
    json!({"model": MODEL, "input": text, "plugins": [{"id": "moderation"}]})
}

/// A host with the endpoint and its key granted, and more lines of plugin configuration.
struct Bench {
    host: Host,
    upstream: Upstream,
    site: Site,
}

impl Bench {
    async fn start(config: &str) -> Self {
        Self::granted("secrets", config).await
    }

    /// The same with the key granted by this setting.
    async fn granted(grant: &str, config: &str) -> Self {
        let (authority, upstream) = (Authority::new(), Upstream::start().await);
        let site = Site::start(&authority, &[HOST]).await;
        let setup = Setup::new();
        std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();
        let host = setup
            .config(&format!(
                "[egress]\nports = [{0}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
                 resolve = {{ \"{HOST}\" = [\"127.0.0.1\"] }}\n\
                 [plugins.hook-moderation]\nhosts = [\"{HOST}\"]\n{grant} = [\"moderation_key\"]\n\
                 [plugins.hook-moderation.config]\nmodel = \"omni\"\n\
                 endpoint = \"https://{HOST}:{0}/v1/moderations\"\n{config}",
                site.port
            ))
            .config(&single("openai-chat", &upstream.base))
            .start();
        let bench = Self { host, upstream, site };
        bench.put(KEY, HOST, &["--workspace", "default"]);
        bench
    }

    fn put(&self, value: &str, bound_to: &str, scope: &[&str]) {
        let mut command = program();
        command.arg("--data").arg(self.host.data()).args(["secret", "put", "moderation_key"]).args(scope);
        command.args(["--host", bound_to]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// The key of an intern that has secrets of the same name as the endpoint's key.
    fn intern(&self, bound_to: &str) -> String {
        self.host.command(&["intern", "create", "ada", "--workspace", "default"]);
        let key = self.host.command(&["key", "create", "--workspace", "default", "--intern", "ada"]);
        self.put(INTERNS, bound_to, &["--intern", "ada"]);
        key["key"].as_str().unwrap().to_owned()
    }

    /// The credential sent to the endpoint for a request with this key.
    async fn credential(&self, key: &str) -> String {
        self.site.reply(verdict(false));
        self.upstream.reply(chat("fine"));
        let answer = Client::with_key(&self.host, key).post("/responses", &request("words")).await;
        assert_eq!(answer.output_text(), "fine", "{}", answer.text);
        self.site.last().header("authorization").unwrap_or_default().to_owned()
    }

    async fn ask(&self, text: &str) -> Answer {
        Client::new(&self.host).post("/responses", &request(text)).await
    }
}

fn verdict(flagged: bool) -> Reply {
    let categories = json!({"violence": flagged, "hate": false, "self-harm/intent": flagged});
    Reply::json(200, json!({"id": "modr-1", "results": [{"flagged": flagged, "categories": categories}]}))
}

#[tokio::test]
async fn input_that_a_rule_flags_is_a_403_with_reasons_and_reaches_no_provider() {
    let upstream = Upstream::start().await;
    let mut host = Setup::new().config(&single("openai-chat", &upstream.base)).config(RULES).start();
    let client = Client::new(&host);
    let text = format!("{} how to BUILD bombs {}", "a".repeat(100), "z".repeat(100));
    let shown = format!("{}...{}", "a".repeat(49), "z".repeat(48));
    for streamed in [false, true] {
        let mut request = request(&text);
        request["stream"] = json!(streamed);
        let answer = client.post("/responses", &request).await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert_eq!(answer.message(), "The input was flagged by moderation: weapons, recipes");
        assert_eq!(
            answer.body["error"]["metadata"],
            json!({
                "error_type": "content_policy_violation",
                "refused_by": "host",
                "reasons": ["weapons", "recipes"],
                "flagged_input": shown,
                "provider_name": "hook-moderation",
                "model_slug": MODEL,
            })
        );
    }
    assert!(upstream.asked().is_empty());

    upstream.reply(chat("fine"));
    assert_eq!(client.post("/responses", &request("hello")).await.output_text(), "fine");
    upstream.reply(chat_stream(&["fine"]));
    client.stream(&request("hello")).await;
    // Instructions and tool results are input too.
    let mut hidden = request("hello");
    hidden["instructions"] = json!("Tell how to cook.");
    assert_eq!(
        client.post("/responses", &hidden).await.body["error"]["metadata"]["reasons"],
        json!(["recipes"])
    );
    let log = host.end();
    assert!(!log.contains("BUILD bombs") && !log.contains("aaaa"), "{log}");
}

#[tokio::test]
async fn the_endpoint_is_asked_with_the_workspaces_key_and_its_categories_are_the_reasons() {
    let mut bench = Bench::start("").await;
    bench.site.reply(verdict(true));
    let answer = bench.ask("some words").await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    let metadata = &answer.body["error"]["metadata"];
    assert_eq!(metadata["reasons"], json!(["violence", "self-harm/intent"]));
    assert_eq!(metadata["flagged_input"], "some words");
    assert!(bench.upstream.asked().is_empty());
    let seen = bench.site.last();
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/moderations"));
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(
        serde_json::from_slice::<Value>(&seen.body).unwrap(),
        json!({"input": ["some words"], "model": "omni"})
    );

    bench.site.reply(verdict(false));
    bench.upstream.reply(chat("fine"));
    assert_eq!(bench.ask("other words").await.output_text(), "fine");
    let log = bench.host.end();
    assert!(!log.contains("words") && !log.contains(KEY), "{log}");
}

#[tokio::test]
async fn an_endpoint_that_gives_no_verdict_refuses_the_request() {
    let bench = Bench::start("").await;
    let retry = vec![("retry-after", "7".to_owned())];
    bench.site.reply(Reply::Whole { status: 429, headers: retry, body: String::new() });
    let busy = bench.ask("x").await;
    assert_eq!((busy.status, &busy.headers["retry-after"]), (503, &"7".parse().unwrap()), "{}", busy.text);
    bench.site.reply(Reply::json(401, json!({"error": "wrong key"})));
    let wrong = bench.ask("x").await;
    assert_eq!(wrong.status, 500, "{}", wrong.text);
    assert!(wrong.message().contains("Its operator finds the cause in the log"), "{}", wrong.text);
    bench.host.until_logged("the moderation endpoint: it answered with status 401");
    assert!(bench.upstream.asked().is_empty());
}

#[tokio::test]
async fn an_operator_may_let_requests_pass_without_a_verdict() {
    let bench = Bench::start("on_error = \"allow\"").await;
    bench.site.reply(Reply::json(503, json!({})));
    bench.upstream.reply(chat("fine"));
    assert_eq!(bench.ask("x").await.output_text(), "fine");
    bench.host.until_logged("the moderation endpoint: it answered with status 503");
}

#[tokio::test]
async fn a_host_without_rules_and_endpoint_says_so() {
    let host = Setup::new().start();
    let request = json!({"model": "local/demo", "input": "x", "plugins": [{"id": "web", "enabled": false}, {"id": "moderation"}]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert!(answer.message().starts_with("plugins[1] is not set up on this host"), "{}", answer.text);
}

#[tokio::test]
async fn an_endpoint_that_was_not_granted_is_not_asked() {
    let host = Setup::new()
        .config("[plugins.hook-moderation.config]\nendpoint = \"https://moderation.test/v1\"")
        .start();
    let request = json!({"model": "local/demo", "input": "x", "plugins": [{"id": "moderation"}]});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.status, 500, "{}", answer.text);
    host.until_logged("[plugins.hook-moderation] hosts");
}

#[tokio::test]
async fn a_stream_whose_hook_takes_long_is_kept_alive_and_may_still_be_refused() {
    let bench = Bench::start("timeout_ms = 60000\n").await;
    let (verdict, reply) = Reply::fed_as("application/json");
    bench.site.reply(reply);
    let mut stream = Client::new(&bench.host).open(&request("some words")).await;
    stream.more().await;
    assert_eq!(stream.unread(), ": keep-alive\n", "the head is out before anything is known");
    verdict.send(r#"{"results":[{"flagged":true,"categories":{"violence":true}}]}"#.into()).await.unwrap();
    drop(verdict);
    let failed = stream.until("response.failed").await;
    assert_eq!(failed["response"]["error_type"], "content_policy_violation", "{failed}");
    assert_eq!(failed["response"]["error"]["message"], "The input was flagged by moderation: violence");
    assert!(stream.next().await.is_none(), "the stream is complete");
    assert!(bench.upstream.asked().is_empty());
}

#[tokio::test]
async fn every_string_that_a_model_would_read_is_judged() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-responses", &upstream.base)).config(RULES).start();
    let function = |parameters: Value| {
        json!([{"type": "function", "name": "f", "parameters":
            {"type": "object", "properties": {"x": parameters}}}])
    };
    let format = |schema: Value| json!({"format": {"type": "json_schema", "name": "f", "schema": schema}});
    let hidden = [
        ("tools", function(json!({"type": "string", "description": "bombs"}))),
        ("tools", function(json!({"type": "string", "title": "bombs"}))),
        ("tools", function(json!({"type": "string", "default": "bombs"}))),
        ("tools", function(json!({"type": "string", "const": "bombs"}))),
        ("tools", function(json!({"type": "string", "enum": ["bombs"]}))),
        ("tools", function(json!({"type": "object", "properties": {"how to build": {"type": "string"}}}))),
        ("tools", json!([{"type": "function", "name": "bombs", "parameters": {"type": "object"}}])),
        (
            "tools",
            json!([{"type": "namespace", "name": "n", "description": "n", "tools": [
            {"type": "function", "name": "f", "description": "bombs", "parameters": {"type": "object"}}]}]),
        ),
        ("text", format(json!({"type": "object", "properties": {"bombs": {"type": "string"}}}))),
        ("text", format(json!({"type": "object", "description": "bombs"}))),
        ("image_config", json!({"font_inputs": [{"text": "bombs"}]})),
        (
            "input",
            json!([
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": r#"{"x":"b\u006fmbs"}"#},
            {"type": "function_call_output", "call_id": "c", "output": "fine"}]),
        ),
        (
            "input",
            json!([{"type": "function_call_output", "call_id": "c", "output": r#"{"x":"b\u006fmbs"}"#}]),
        ),
        ("input", json!([{"type": "function_call_output", "call_id": "c", "output": r#"{"x":"\nbombs"}"#}])),
        ("input", json!([{"type": "shell_call", "call_id": "c", "action": {"type": "bombs"}}])),
        ("input", json!([{"type": "shell_call_output", "call_id": "c", "output": [{"bombs": 1}]}])),
        ("input", json!([{"type": "program_output", "call_id": "c", "result": "bombs"}])),
    ];
    for (member, value) in hidden {
        let mut request = request("hello");
        request[member] = value;
        let answer = Client::new(&host).post("/responses", &request).await;
        assert_eq!(answer.status, 403, "{request}: {}", answer.text);
        assert_eq!(answer.body["error"]["metadata"]["error_type"], "content_policy_violation", "{request}");
    }
    assert!(upstream.asked().is_empty());
}

/// Items of calls are rendered for the model after moderation, with the tools of the request.
#[tokio::test]
async fn no_part_of_an_earlier_call_reaches_the_model_without_being_judged() {
    let (authority, upstream) = (Authority::new(), Upstream::start().await);
    let site = Site::start(&authority, &[HOST]).await;
    let setup = Setup::new();
    std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();
    let host = setup
        .config(&format!(
            "[egress]\nports = [{}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
             resolve = {{ \"{HOST}\" = [\"127.0.0.1\"] }}\n[plugins.tool-mcp]\nhosts = [\"{HOST}\"]",
            site.port
        ))
        .config(&single("openai-chat", &upstream.base))
        .config(RULES)
        .start();
    let tools = json!([
        {"type": "service:datetime"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "mcp", "server_label": "l", "server_url": format!("https://{HOST}:{}/mcp", site.port)},
    ]);
    let plain = r#"{"type": "message", "role": "user", "content": "Go."}"#;
    let hidden = [
        r#"{"type": "service:datetime", "timezone": "UTC", "datetime": "make b\u006fmbs"}"#,
        r#"{"type": "service:datetime", "timezone": "UTC", "b\u006fmbs": 1}"#,
        r#"{"type": "mcp_call", "server_label": "l", "name": "t", "arguments": "{}", "role": "bombs"}"#,
        r#"{"type": "mcp_call", "server_label": "l", "name": "t", "arguments": "{}", "file_url": "bombs"}"#,
        r#"{"type": "mcp_call", "server_label": "l", "name": "t", "arguments": "{}", "x": {"bombs": 1}}"#,
        r#"{"type": "mcp_call", "server_label": "l", "name": "t", "arguments": "{}", "error": {"type": "bombs"}}"#,
        r#"{"type": "mcp_call", "server_label": "l", "name": "t", "arguments": "{}", "error": {"bombs": 1}}"#,
        r#"{"type": "code_interpreter_call", "code": "1", "signature": "bombs"}"#,
        r#"{"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "bombs"}]}"#,
        r#"{"type": "code_interpreter_call", "code": "1", "bombs": 1}"#,
    ];
    let mut unjudged = Vec::new();
    for item in hidden {
        upstream.always(|_| chat("fine"));
        let before = upstream.asked().len();
        let body = format!(
            r#"{{"model": "{MODEL}", "plugins": [{{"id": "moderation"}}], "tools": {tools}, "input": [{plain}, {item}]}}"#
        );
        let answer = Client::new(&host).post_bytes("/responses", body.into_bytes()).await;
        assert!([200, 403].contains(&answer.status), "{item}: {}", answer.text);
        let asked = upstream.asked().split_off(before);
        let told: String = asked.iter().map(|asked| asked.body["messages"].to_string()).collect();
        if told.contains("bombs") || told.contains("u006f") {
            unjudged.push((item, told));
        }
    }
    assert!(unjudged.is_empty(), "{unjudged:#?}");
}

#[tokio::test]
async fn options_of_providers_are_judged_as_far_as_they_are_sent_on() {
    let upstream = Upstream::start().await;
    let provider = provider("one", "openai-chat", &upstream.base) + "options = [\"nickname\"]\n";
    let setup = Setup::new().config(&(provider + &model(MODEL, "responses", &["one"])));
    let host = setup.config(RULES).start();
    let ask = async |options: Value| {
        let mut request = request("hello");
        request["provider"] = json!({"options": options});
        Client::new(&host).post("/responses", &request).await
    };
    for options in [json!({"one": {"nickname": "bombs"}}), json!({"ONE": {"Nickname": [{"bombs": 1}]}})] {
        let answer = ask(options).await;
        assert_eq!(answer.status, 403, "{}", answer.text);
        assert_eq!(answer.body["error"]["metadata"]["reasons"], json!(["weapons"]));
    }
    assert!(upstream.asked().is_empty());
    for options in [json!({"one": {"other": "bombs"}}), json!({"two": {"nickname": "bombs"}})] {
        upstream.reply(chat("fine"));
        assert_eq!(ask(options).await.output_text(), "fine");
    }
    upstream.reply(chat("fine"));
    assert_eq!(ask(json!({"one": {"nickname": "harmless"}})).await.output_text(), "fine");
    assert_eq!(upstream.asked().last().unwrap().body["nickname"], "harmless");
}

#[tokio::test]
async fn a_tool_of_many_words_is_one_text_for_the_endpoint() {
    let bench = Bench::start("").await;
    bench.site.reply(Reply::json(200, json!({"results": [{"flagged": false}, {"flagged": true}]})));
    let properties: Value = (0..1500).map(|n| (format!("p{n}"), json!({"const": format!("c{n}")}))).collect();
    let mut request = request("hello");
    request["tools"] = json!([{"type": "function", "name": "f", "parameters":
        {"type": "object", "properties": properties}}]);
    let answer = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    let told = answer.body["error"]["metadata"]["flagged_input"].as_str().unwrap();
    assert!(told.starts_with('{') && told.len() == 100, "{told}");
    let asked: Value = serde_json::from_slice(&bench.site.last().body).unwrap();
    let words: Vec<&str> = asked["input"][1].as_str().unwrap().split('\n').collect();
    assert!(words.contains(&"p1499") && words.contains(&"c1499"));
}

#[tokio::test]
async fn input_that_is_too_long_is_refused_also_where_errors_are_allowed() {
    let bench = Bench::start("on_error = \"allow\"").await;
    let mut request = request("");
    request["input"] = vec![json!({"role": "user", "content": "x"}); 1025].into();
    let answer = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 400, "{}", answer.text);
    assert_eq!(answer.message(), "The input is longer than what can be moderated on this host.");
    bench.site.reply(Reply::json(413, json!({})));
    assert_eq!(bench.ask("x").await.status, 400);
    assert!(bench.upstream.asked().is_empty());
}

#[tokio::test]
async fn the_endpoints_key_may_come_from_the_operators_vault_for_every_caller() {
    let mut bench = Bench::granted("operator_secrets", "").await;
    bench.put(OPERATORS, HOST, &["--operator"]);
    let expected = format!("Bearer {OPERATORS}");
    assert_eq!(bench.credential(&bench.host.key).await, expected);
    let intern = bench.intern(HOST);
    assert_eq!(bench.credential(&intern).await, expected);
    let log = bench.host.end();
    assert!(!log.contains(OPERATORS), "{log}");
}

#[tokio::test]
async fn a_secret_that_only_callers_have_is_not_sent_in_the_place_of_the_operators() {
    let bench = Bench::granted("operator_secrets", "").await;
    bench.site.reply(Reply::json(401, json!({})));
    assert_eq!(bench.ask("x").await.status, 500);
    assert_eq!(bench.site.last().header("authorization"), None);
}

#[tokio::test]
async fn an_interns_secret_of_the_same_name_does_not_break_moderation() {
    for bound_to in [HOST, "elsewhere.test"] {
        let bench = Bench::start("").await;
        let intern = bench.intern(bound_to);
        assert_eq!(bench.credential(&intern).await, format!("Bearer {KEY}"), "{bound_to}");
    }
}
