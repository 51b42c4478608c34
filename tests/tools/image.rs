//! Pictures that another model of the catalog makes.

use super::script::{answer, call, calls};
use super::told;
use crate::kit::client::{Client, last_response, types_of};
use crate::kit::config::{MODEL, provider, single};
use crate::kit::host::{Host, Setup};
use crate::kit::script::{chat_message, refusal};
use crate::kit::upstream::{Reply, Upstream};
use serde_json::{Value, json};

const GRANT: &str = "[plugins.tool-image-generation]\nimports = [\"model\"]\n";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";
const PAINTER: &str = "test/painter";

/// A host whose writer and painter are two providers.
async fn host() -> (Host, Upstream, Upstream) {
    let (writer, painter) = (Upstream::start().await, Upstream::start().await);
    let config = single("openai-chat", &writer.base)
        + &provider("studio", "openai-chat", &painter.base)
        + &format!(
            "[[models]]\nid = \"{PAINTER}\"\nendpoints = [{{ provider = \"studio\", model = \"p1\", image = 0.25, \
             supports = [\"image_output\"] }}]\n{GRANT}"
        );
    (Setup::new().config(&config).start(), writer, painter)
}

fn picture() -> Reply {
    let url = format!("data:image/png;base64,{PNG}");
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    chat_message(&json!({"role": "assistant", "content": "A fox.", "images": [image]}), "stop")
}

fn request(tool: Value) -> Value {
    json!({"model": MODEL, "input": "Paint a fox.", "tools": [tool]})
}

#[tokio::test]
async fn a_picture_is_made_by_the_catalogs_painter_and_paid_in_the_same_response() {
    let (host, writer, painter) = host().await;
    let client = Client::new(&host);
    let made = [call("c1", "image_generation", r#"{"prompt":"a red fox"}"#)];
    let tool = json!({"type": "service:image_generation", "parameters": {"model": PAINTER, "size": "1K"}});
    writer.reply(calls(false, "", &made));
    painter.reply(picture());
    writer.reply(answer(false, "There it is."));
    let response = client.post("/responses", &request(tool)).await;
    assert_eq!(response.output_text(), "There it is.", "{}", response.text);
    let item = &response.body["output"][0];
    let url = format!("data:image/png;base64,{PNG}");
    let expected = json!({"type": "service:image_generation", "id": item["id"], "status": "completed",
        "prompt": "a red fox", "image_url": url, "image_b64": PNG, "result": PNG, "content": []});
    assert_eq!(*item, expected);
    let asked = painter.asked();
    assert_eq!(asked[0].body["modalities"], json!(["image"]));
    assert_eq!(asked[0].body["messages"][0]["content"], "a red fox");
    let writers = writer.asked();
    let result = told(writers.last().unwrap())[0];
    assert_eq!(result, "The picture was made and the user sees it. The model that made it says: A fox.");
    assert_eq!(response.body["usage"]["cost"], 0.25, "{}", response.text);
}

#[tokio::test]
async fn the_clients_own_kind_looks_as_clients_know_it() {
    let (host, writer, painter) = host().await;
    // OpenAI has a model of this name, this host has not.
    let tool =
        json!({"type": "image_generation", "model": "gpt-image-1", "quality": "low", "partial_images": 2});
    writer.reply(calls(true, "", &[call("c1", "image_generation", r#"{"prompt":"a red fox"}"#)]));
    painter.reply(picture());
    writer.reply(answer(true, "There it is."));
    let events = Client::new(&host).stream(&request(tool)).await;
    let about: Vec<&Value> = events.iter().filter(|event| event["output_index"] == 0).collect();
    let types: Vec<&str> = about.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "response.output_item.added",
            "response.image_generation_call.in_progress",
            "response.image_generation_call.generating",
            "response.image_generation_call.completed",
            "response.output_item.done",
        ]
    );
    let item = &last_response(&events)["output"][0];
    let id = item["id"].as_str().unwrap();
    assert!(id.starts_with("ig_"), "{item}");
    let expected = json!({"type": "image_generation_call", "id": id, "status": "completed", "result": PNG,
        "prompt": "a red fox"});
    assert_eq!(*item, expected);
    assert_eq!(about[0]["item"]["result"], Value::Null);
    assert!(types_of(&events).contains(&"response.completed"));
}

#[tokio::test]
async fn a_painter_that_fails_is_a_failed_item_and_a_large_picture_is_refused() {
    let (host, writer, painter) = host().await;
    let client = Client::new(&host);
    let made = [call("c1", "image_generation", r#"{"prompt":"x"}"#)];
    let large = |bytes: usize| {
        let url = format!("data:image/png;base64,{PNG}{}", "A".repeat(bytes));
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        chat_message(&json!({"role": "assistant", "content": "", "images": [image]}), "stop")
    };
    let replies = [
        (refusal(500, "down"), "failed", "The image could not be made: "),
        (crate::kit::script::chat("I only write."), "failed", "The model that was asked made no image."),
        (large(9 << 20), "failed", "The image is too large: ask for a smaller one."),
        (large(7 << 20), "completed", ""),
    ];
    for (reply, status, error) in replies {
        writer.reply(calls(false, "", &made));
        painter.reply(reply);
        writer.reply(answer(false, "done"));
        let response = client.post("/responses", &request(json!({"type": "service:image_generation"}))).await;
        assert_eq!(response.output_text(), "done", "{error}");
        let item = &response.body["output"][0];
        assert_eq!(item["status"], status, "{error}");
        assert!(item["error"].as_str().unwrap_or_default().starts_with(error), "{}", item["error"]);
    }
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let (host, _writer, _painter) = host().await;
    let wrong = json!({"type": "service:image_generation", "parameters": {"model": "no/such"}});
    let answer = Client::new(&host).post("/responses", &request(wrong)).await;
    assert_eq!(
        (answer.status, answer.message()),
        (400, "tools[0].parameters.model names no model of this host")
    );

    let writer = Upstream::start().await;
    let ungranted = Setup::new().config(&single("openai-chat", &writer.base)).start();
    let answer = Client::new(&ungranted)
        .post("/responses", &request(json!({"type": "service:image_generation"})))
        .await;
    let text = "tools[0].type \"service:image_generation\" is not available on this host";
    assert!(answer.status == 400 && answer.message().starts_with(text), "{}", answer.text);

    let config = single("openai-chat", &writer.base) + GRANT;
    let unable = Setup::new().config(&config).start();
    let answer = Client::new(&unable).post("/responses", &request(json!({"type": "image_generation"}))).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer.message().starts_with("tools[0].model is needed: no model of this host"),
        "{}",
        answer.text
    );
}
