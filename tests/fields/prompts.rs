//! Prompt templates of the configuration.

use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

const PROMPTS: &str = r#"
[[prompts]]
id = "pmpt_city"
version = "1"
text = "Old words."
[[prompts]]
id = "pmpt_city"
version = "2"
messages = [
  { role = "system", content = "You know {{city}}." },
  { role = "user", content = "What is {{ what }} there?" },
]
"#;

async fn host() -> (Upstream, Host) {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&(single("openai-chat", &upstream.base) + PROMPTS)).start();
    (upstream, host)
}

fn request(prompt: &Value) -> Value {
    json!({"model": MODEL, "prompt": prompt})
}

#[tokio::test]
async fn a_prompt_becomes_messages_before_the_input() {
    let (upstream, host) = host().await;
    let client = Client::new(&host);
    let image = json!({"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"});
    let prompt = json!({"id": "pmpt_city", "variables": {"city": "Lyon {{what}}", "what": image}});
    let mut body = request(&prompt);
    body["input"] = json!([{"role": "user", "content": "Say it."}]);
    upstream.reply(script::chat("This."));
    let answer = client.post("/responses", &body).await;
    assert_eq!(answer.output_text(), "This.");
    assert_eq!(answer.body["prompt"], prompt);
    assert_eq!(
        upstream.asked_once().body["messages"],
        json!([
            {"role": "system", "content": "You know Lyon {{what}}."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is "},
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
                {"type": "text", "text": " there?"},
            ]},
            {"role": "user", "content": "Say it."},
        ])
    );
    upstream.reply(script::chat("Old."));
    let answer = client.post("/responses", &request(&json!({"id": "pmpt_city", "version": "1"}))).await;
    assert_eq!(answer.output_text(), "Old.", "{}", answer.text);
    let messages = &upstream.asked()[1].body["messages"];
    assert_eq!(messages, &json!([{"role": "system", "content": "Old words."}]), "no input is needed");
}

#[tokio::test]
async fn variables_that_do_not_match_the_template_are_refused_by_name() {
    let (upstream, host) = host().await;
    let client = Client::new(&host);
    for (prompt, status, kind, message) in [
        (
            json!({"id": "pmpt_none"}),
            404,
            "not_found",
            "prompt.id names no prompt template of this host: \"pmpt_none\"",
        ),
        (
            json!({"id": "pmpt_city", "version": "3"}),
            404,
            "not_found",
            "prompt.version names no version of this prompt template: \"3\"",
        ),
        (
            json!({"id": "pmpt_city", "variables": {"city": "x"}}),
            400,
            "invalid_request",
            "prompt.variables.what is required by this prompt template",
        ),
        (
            json!({"id": "pmpt_city", "version": "1", "variables": {"city": "x"}}),
            400,
            "invalid_request",
            "prompt.variables.city is not used by this prompt template",
        ),
    ] {
        let answer = client.post("/responses", &request(&prompt)).await;
        assert_eq!((answer.status, answer.message()), (status, message));
        assert_eq!(answer.body["error"]["metadata"]["error_type"], kind);
    }
    assert!(upstream.asked().is_empty());
}

#[test]
fn an_invalid_template_is_refused_at_start() {
    for (toml, message) in [
        ("[[prompts]]\nid = \"a\"\n", "prompts[0]: `text` or `messages` is missing"),
        (
            "[[prompts]]\nid = \"a\"\ntext = \"x\"\nmessages = [{ role = \"user\", content = \"y\" }]\n",
            "prompts[0].text: give either `text` or `messages`",
        ),
        (
            "[[prompts]]\nid = \"a\"\nmessages = [{ role = \"tool\", content = \"y\" }]\n",
            "prompts[0].messages[0].role: expected system, developer, user or assistant",
        ),
        (
            "[[prompts]]\nid = \"a\"\ntext = \"x\"\n[[prompts]]\nid = \"a\"\ntext = \"y\"\n",
            "prompts[1].id: a prompt `a` of this version exists already",
        ),
    ] {
        let output = Setup::new().config(toml).fail();
        assert_eq!(output.status.code(), Some(78));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(message), "{said}");
    }
}
