//! The plugin `response-healing` where it has nothing to do.

use crate::kit::client::{Client, text_of};
use crate::kit::config::{MODEL, single};
use crate::kit::host::Setup;
use crate::kit::script::{chat, chat_stream};
use crate::kit::upstream::Upstream;
use serde_json::json;

#[tokio::test]
async fn a_stream_and_plain_text_are_left_alone() {
    let broken = "```json\n{'a': 1,}\n```";
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).start();
    let client = Client::new(&host);
    let mut request = json!({"model": MODEL, "input": "x", "plugins": [{"id": "response-healing"}],
        "text": {"format": {"type": "json_object"}}});
    upstream.reply(chat_stream(&[broken]));
    assert_eq!(text_of(&client.stream(&request).await), broken);
    upstream.reply(chat(broken));
    assert_eq!(client.post("/responses", &request).await.output_text(), "{\"a\":1}");
    request["text"] = json!({"format": {"type": "text"}});
    upstream.reply(chat(broken));
    assert_eq!(client.post("/responses", &request).await.output_text(), broken);
}
