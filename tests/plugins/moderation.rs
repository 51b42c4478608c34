//! The plugin `moderation`: rules of the operator, and an endpoint that is asked with a key of the workspace.

use crate::kit::client::{Answer, Client};
use crate::kit::config::{MODEL, single};
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

/// A host whose operator granted the endpoint and its key, with more lines of the plugin's configuration.
struct Bench {
    host: Host,
    upstream: Upstream,
    site: Site,
}

impl Bench {
    async fn start(config: &str) -> Self {
        let (authority, upstream) = (Authority::new(), Upstream::start().await);
        let site = Site::start(&authority, &[HOST]).await;
        let setup = Setup::new();
        std::fs::write(setup.directory().join("ca.pem"), authority.pem()).unwrap();
        let host = setup
            .config(&format!(
                "[egress]\nports = [{0}]\nroots = [\"ca.pem\"]\nallow_private = [\"127.0.0.0/8\"]\n\
                 resolve = {{ \"{HOST}\" = [\"127.0.0.1\"] }}\n\
                 [plugins.hook-moderation]\nhosts = [\"{HOST}\"]\nsecrets = [\"moderation_key\"]\n\
                 [plugins.hook-moderation.config]\nmodel = \"omni\"\n\
                 endpoint = \"https://{HOST}:{0}/v1/moderations\"\n{config}",
                site.port
            ))
            .config(&single("openai-chat", &upstream.base))
            .start();
        let mut command = program();
        command.arg("--data").arg(host.data()).args(["secret", "put", "moderation_key", "--host", HOST]);
        command.args(["--workspace", "default"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(KEY.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        Self { host, upstream, site }
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
async fn input_that_a_rule_flags_is_a_403_that_says_why_and_reaches_nobody() {
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
    // Instructions and the results of tools are input too.
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
async fn an_operator_may_let_requests_pass_that_nobody_judged() {
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
