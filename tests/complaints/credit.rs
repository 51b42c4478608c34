//! Complaint 11 (a budget lets requests through, or blocks with money left) inside one request: each later turn of a
//! tool loop and each question to another model is looked at like a request of its own.

use crate::kit::client::{Client, last_response};
use crate::kit::store::usage_of;
use crate::tools::models::{Models, question, with_tools};
use crate::tools::script::{answer, call, calls};
use crate::tools::told;
use cofferdam_store::UsageOutcome;
use serde_json::{Value, json};

/// What a turn of the client's model costs, in dollars: ten tokens at a millionth.
const TURN: f64 = 0.000_01;

const ASKER: &str = "[plugins.tool-asker]\nimports = [\"model\"]\n";

fn credit(models: &Models) -> (f64, f64) {
    let shown = models.host.command(&["credits", "show", "default"]);
    (shown["spent"].as_f64().unwrap(), shown["reserved"].as_f64().unwrap())
}

#[tokio::test]
async fn a_later_turn_is_refused_like_a_first_one_and_only_then() {
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
async fn a_question_is_refused_when_nothing_is_left_and_its_tool_is_told() {
    // The client's own model is free, so that nothing keeps it from going on.
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
    // The answer, and what the tool itself takes for each call.
    assert_eq!(credit(&models), (0.000_022, 0.0));
    let next = Client::new(&models.host).post("/responses", &with_tools(&json!([]))).await;
    assert_eq!(next.status, 402, "{}", next.text);
}
