//! Users of other gateways complain that a budget lets requests through, or blocks while money is
//! left. Here inside one request: each later turn of a tool loop and each question to another model
//! is checked like a request of its own. Also the complaint that missing token counts make bills
//! too low.

use crate::kit::client::{Client, last_response};
use crate::kit::config::{MODEL, provider};
use crate::kit::host::Setup;
use crate::kit::script::{opening, word};
use crate::kit::store::usage_of;
use crate::kit::upstream::{Reply, Upstream};
use crate::tools::models::{Models, question, with_tools};
use crate::tools::script::{answer, call, calls};
use crate::tools::told;
use cofferdam_store::UsageOutcome;
use serde_json::{Value, json};

/// The cost of a turn of the client's model, in dollars: ten tokens at a millionth.
const TURN: f64 = 0.000_01;

const ASKER: &str = "[plugins.tool-asker]\nimports = [\"model\"]\n";

fn credit(models: &Models) -> (f64, f64) {
    let shown = models.host.command(&["credits", "show", "default"]);
    (shown["spent"].as_f64().unwrap(), shown["reserved"].as_f64().unwrap())
}

#[tokio::test]
async fn later_turns_are_refused_under_the_same_conditions_as_the_first() {
    for streamed in [false, true] {
        let mut models = Models::with("").await;
        models.host.command(&["credits", "add", "default", "0.000015"]);
        let client = Client::new(&models.host);
        let mut request = with_tools(&json!([{"type": "service:datetime"}]));
        for _ in 0..2 {
            models.outer.reply(calls(streamed, "", &[call("c", "datetime", "{}")]));
        }
        if streamed {
            request["stream"] = true.into();
            let events = client.stream(&request).await;
            let response = last_response(&events);
            assert_eq!(response["status"], "failed", "{response}");
            assert_eq!(response["error_type"], "payment_required", "{response}");
            let message = response["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("Insufficient credits: this host refused "), "{message}");
            assert_eq!(response["usage"]["cost"], json!(2.0 * TURN), "what was served is charged");
        } else {
            let refused = client.post("/responses", &request).await;
            assert_eq!(refused.status, 402, "{}", refused.text);
            assert_eq!(refused.body["error"]["metadata"]["limit"], "credit", "{}", refused.text);
        }
        assert_eq!(
            models.outer.asked().len(),
            2,
            "the second turn had something left, the third had nothing"
        );
        assert_eq!(credit(&models), (2.0 * TURN, 0.0));
        let rows = usage_of(&mut models.host);
        let told: Vec<_> = rows.iter().map(|row| (row.outcome, row.cost_pico)).collect();
        assert_eq!(told, [(UsageOutcome::Failed, 20_000_000)]);
    }
}

#[tokio::test]
async fn a_question_without_credit_is_refused_and_its_tool_gets_the_error() {
    // The client's own model is free, so that the request itself can go on without credit.
    let models = Models::priced(ASKER, [0, 2, 0, 0]).await;
    models.host.command(&["credits", "add", "default", "0.00002"]);
    let ask = json!({"text": question("m/a").to_string()}).to_string();
    for id in ["c1", "c2"] {
        models.outer.reply(calls(false, "", &[call(id, "question", &ask)]));
    }
    models.outer.reply(answer(false, "done"));
    models.a.reply(answer(false, "Because."));
    let response = models.ask(&with_tools(&json!([{"type": "service:asker"}])), false).await;
    assert_eq!(response["status"], "completed", "{response}");
    assert_eq!(models.a.asked().len(), 1, "the first question took all that was left");
    let asked = models.outer.asked();
    let results: Vec<Value> =
        told(&asked[2]).iter().map(|told| serde_json::from_str(told).unwrap()).collect();
    assert_eq!(results[0][0]["text"], "Because.");
    assert_eq!(results[1][0]["failure"], "ErrorKind::PaymentRequired", "{results:?}");
    // The answer to the question, and the tool's own fee for each call.
    assert_eq!(credit(&models), (0.000_022, 0.0));
    let next = Client::new(&models.host).post("/responses", &with_tools(&json!([]))).await;
    assert_eq!(next.status, 402, "{}", next.text);
}

#[tokio::test]
async fn missing_usage_is_estimated_and_marked() {
    let upstream = Upstream::start().await;
    let endpoint = "{ provider = \"one\", model = \"m\", input = 1, output = 1 }";
    let config = provider("one", "openai-chat", &upstream.base)
        + &format!("[[models]]\nid = \"{MODEL}\"\nendpoints = [{endpoint}]\n")
        + &format!("[[models]]\nid = \"test/embed\"\nkind = \"embeddings\"\nendpoints = [{endpoint}]\n");
    let mut host = Setup::new().config(&config).start();
    let client = Client::new(&host);
    // Sixteen letters are estimated as four tokens.
    let message = json!({"role": "assistant", "content": "sixteen letters."});
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let mut zeros = whole.clone();
    zeros["usage"] = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
    upstream.reply(Reply::json(200, whole));
    upstream.reply(Reply::json(200, zeros));
    upstream.reply(Reply::sse(&[opening(), word("sixteen"), word(" letters."), last, json!("[DONE]")]));
    upstream.reply(Reply::json(200, json!({"data": [{"index": 0, "embedding": [1]}]})));
    let request = json!({"model": MODEL, "input": "eight..."});
    let answered = client.post("/responses", &request).await;
    let with_zeros = client.post("/responses", &request).await;
    let streamed = client.stream(&request).await;
    let embedded = client.post("/embeddings", &json!({"model": "test/embed", "input": "eight..."})).await;
    for usage in [&answered.body["usage"], &with_zeros.body["usage"], &last_response(&streamed)["usage"]] {
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(2), &json!(4)), "{usage}");
        assert_eq!(usage["cost"], json!(0.000_006), "{usage}");
    }
    let usage = &embedded.body["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["cost"]), (&json!(2), &json!(0.000_002)), "{usage}");
    let rows = usage_of(&mut host);
    assert_eq!(
        rows.iter().map(|row| row.cost_pico).collect::<Vec<_>>(),
        [6_000_000, 6_000_000, 6_000_000, 2_000_000]
    );
}
