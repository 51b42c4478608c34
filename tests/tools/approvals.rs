//! Calls of MCP servers' tools that the client has to approve.

use super::mcp::{bench, entry, lists, says, text, tool};
use super::reach::{Reach, events_of, with_tool};
use super::script::{answer, call, calls};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

/// A call that the client was asked to approve.
struct Asked {
    bench: Reach,
    entry: Value,
    /// The output of the response that asks.
    output: Vec<Value>,
}

impl Asked {
    /// Lets the model call `wipe`, which the client has to approve.
    async fn new(streamed: bool) -> Self {
        let bench = bench().await;
        lists(&bench, json!([tool("wipe")]), false);
        bench.chat.reply(calls(streamed, "", &[call("c1", "calc__wipe", r#"{"a":7}"#)]));
        let entry = entry(&bench, json!({"require_approval": "always"}));
        let (asked, events) = bench.ask(&with_tool(entry.clone()), streamed).await;
        assert_eq!(asked["status"], "completed");
        let output = asked["output"].as_array().unwrap().clone();
        let id = &output[1]["id"];
        let expected = json!({"type": "mcp_approval_request", "id": id, "server_label": "calc", "name": "wipe",
            "arguments": r#"{"a":7}"#});
        assert_eq!(output[1], expected);
        if streamed {
            assert_eq!(events_of(&events, 1), ["output_item.added", "output_item.done"]);
        }
        // The turn ended: no tool ran, and the model was not asked again.
        assert_eq!((bench.site.seen().len(), bench.chat.asked().len()), (3, 1));
        Self { bench, entry, output }
    }

    /// The input with the client's answer to the approval request.
    fn answered(&self, answer: Value) -> Vec<Value> {
        let mut response =
            json!({"type": "mcp_approval_response", "approval_request_id": self.output[1]["id"]});
        response.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        let mut input = vec![json!({"role": "user", "content": "Go."})];
        input.extend(self.output.clone());
        input.push(response);
        input
    }

    async fn ask(&self, input: &[Value], streamed: bool, results: Vec<Reply>) -> (Value, Vec<Value>) {
        lists(&self.bench, json!([tool("wipe")]), false);
        for result in results {
            self.bench.site.reply(result);
        }
        self.bench.chat.reply(answer(streamed, "Done."));
        let request = json!({"model": MODEL, "input": input, "tools": [self.entry]});
        self.bench.ask(&request, streamed).await
    }

    /// The messages of the last request to the model.
    fn messages(&self) -> Vec<Value> {
        self.bench.chat.asked().pop().unwrap().body["messages"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn an_approved_call_runs_before_the_model_is_asked_again_and_only_once() {
    for streamed in [false, true] {
        let asked = Asked::new(streamed).await;
        let mut input = asked.answered(json!({"approve": true}));
        let (approved, events) = asked.ask(&input, streamed, vec![says(text("wiped"), streamed)]).await;
        // The list is not shown twice.
        let [called, said] = approved["output"].as_array().unwrap().as_slice() else { panic!("{approved}") };
        let expected = json!({"type": "mcp_call", "id": called["id"], "status": "completed", "server_label": "calc",
            "name": "wipe", "arguments": r#"{"a":7}"#, "output": "wiped", "error": null,
            "approval_request_id": asked.output[1]["id"]});
        assert_eq!((called, &said["content"][0]["text"]), (&expected, &json!("Done.")));
        assert_eq!(approved["usage"]["server_tool_use_details"]["tool_calls_executed"], 1);
        let messages = asked.messages();
        assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], "calc__wipe");
        assert_eq!((&messages[2]["role"], &messages[2]["content"]), (&json!("tool"), &json!("wiped")));
        if streamed {
            let call = [
                "output_item.added",
                "mcp_call.in_progress",
                "mcp_call_arguments.delta",
                "mcp_call_arguments.done",
                "mcp_call.completed",
                "output_item.done",
            ];
            assert_eq!(events_of(&events, 0), call);
        }
        // The history contains the call and its result, so nothing runs again.
        let so_far = asked.bench.site.seen().len();
        input.extend(approved["output"].as_array().unwrap().clone());
        input.push(json!({"role": "user", "content": "Thanks."}));
        let (third, _) = asked.ask(&input, streamed, Vec::new()).await;
        assert_eq!(third["output"].as_array().unwrap().len(), 1, "{third}");
        assert_eq!(asked.bench.site.seen().len(), so_far + 3);
        let roles: Vec<_> = asked.messages().iter().map(|message| message["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    }
}

#[tokio::test]
async fn a_call_that_is_not_approved_is_reported_to_the_model() {
    let asked = Asked::new(false).await;
    for (input, told) in [
        (
            asked.answered(json!({"approve": false, "reason": "too dangerous"})),
            "The user does not allow this call: too dangerous",
        ),
        (asked.answered(json!({"approve": false})), "The user does not allow this call."),
        (
            [
                asked.answered(json!({"approve": true})),
                asked.answered(json!({"approve": false}))[3..].to_vec(),
            ]
            .concat(),
            "The user does not allow this call.",
        ),
        (asked.answered(json!({}))[..3].to_vec(), "The user has not said whether this call may be made."),
    ] {
        let (denied, _) = asked.ask(&input, false, Vec::new()).await;
        assert_eq!(denied["output"].as_array().unwrap().len(), 1);
        assert_eq!(asked.bench.told(), told);
    }
    // The call is approved after the server has dropped the tool.
    lists(&asked.bench, json!([tool("other")]), false);
    asked.bench.chat.reply(answer(false, "Gone."));
    let request =
        json!({"model": MODEL, "input": asked.answered(json!({"approve": true})), "tools": [asked.entry]});
    let (gone, _) = asked.bench.ask(&request, false).await;
    assert_eq!(
        (&gone["output"][0]["type"], &gone["output"][0]["status"]),
        (&json!("mcp_call"), &json!("failed"))
    );
    assert!(asked.bench.told().contains("There is no such tool any more"), "{}", asked.bench.told());
}

#[tokio::test]
async fn an_answer_to_nothing_is_refused() {
    let bench = bench().await;
    lists(&bench, json!([tool("wipe")]), false);
    let input = json!([{"role": "user", "content": "x"}, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true}]);
    let request = json!({"model": MODEL, "input": input, "tools": [entry(&bench, json!({}))]});
    let refused = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(refused.status, 400);
    assert!(refused.message().contains("\"mcpr_1\", which does not stand before it"), "{}", refused.text);
}

/// Each result is cut at 1 MiB, and all of a request together may have 8 MiB.
#[tokio::test]
async fn results_of_approved_calls_are_limited_together() {
    let bench = bench().await;
    let entry = entry(&bench, json!({"require_approval": "always"}));
    let names: Vec<String> = (0..9).map(|number| format!("c{number}")).collect();
    let made: Vec<_> = names.iter().map(|name| call(name, "calc__read", "{}")).collect();
    lists(&bench, json!([tool("read")]), false);
    bench.chat.reply(calls(false, "", &made));
    let (asked, _) = bench.ask(&with_tool(entry.clone()), false).await;
    let mut input = vec![json!({"role": "user", "content": "Go."})];
    input.extend(asked["output"].as_array().unwrap().clone());
    let requests = asked["output"].as_array().unwrap().iter().skip(1);
    input.extend(requests.map(
        |item| json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true}),
    ));

    lists(&bench, json!([tool("read")]), false);
    let long = "\u{1f30d}".repeat(390_000);
    for _ in 0..9 {
        bench.site.reply(says(text(&long), false));
    }
    bench.chat.reply(answer(false, "Done."));
    bench.ask(&json!({"model": MODEL, "input": input, "tools": [entry]}), false).await;
    let asked = bench.chat.asked().pop().unwrap();
    let messages = asked.body["messages"].as_array().unwrap();
    let results: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    let lengths: Vec<usize> = results.iter().map(|result| result.len()).collect();
    assert_eq!(lengths.len(), 9);
    assert!(lengths[..7].iter().all(|length| *length > 1_000_000), "{lengths:?}");
    assert!(lengths.iter().sum::<usize>() < (8 << 20) + 1_000, "{lengths:?}");
    assert!(results[8].contains("too large together"), "{lengths:?}");
}
