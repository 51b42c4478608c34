//! Which tools a request may name, and which functions the model is offered.

use super::script::{answer, call, calls};
use super::{Bench, with_tool};
use crate::kit::client::Client;
use crate::kit::config::{MODEL, single};
use crate::kit::guests::folder;
use crate::kit::host::Setup;
use crate::kit::upstream::Upstream;
use serde_json::{Value, json};

fn function(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object"}})
}

#[tokio::test]
async fn wrong_entries_are_named() {
    let bench = Bench::start().await;
    let client = Client::new(&bench.host);
    let offers = |name: &str| json!({"type": "service:rogue", "parameters": {"functions": [name]}});
    let wrong =
        json!({"type": "service:rogue", "parameters": {"wrong": "parameters.wrong is as wrong as can be"}});
    let table = [
        (json!([function("f"), wrong]), "tools[1].parameters.wrong is as wrong as can be"),
        (
            json!([{"type": "service:datetime", "parameters": {"timezone": "Mars/Olympus"}}]),
            "tools[0].parameters.timezone is not a known IANA time zone",
        ),
        (
            json!([{"type": "service:datetime"}, function("f"), {"type": "openrouter:datetime"}]),
            "tools[0] and tools[2] are the same server tool, whose function \"datetime\" can be offered only once",
        ),
        (json!([offers("f"), function("f")]), "tools[0] and tools[1] both offer a function named \"f\""),
        (
            json!([{"type": "service:datetime"}, offers("datetime")]),
            "tools[0] and tools[1] both offer a function named \"datetime\"",
        ),
        (
            json!([{"type": "service:unheard_of"}]),
            "tools[0].type \"service:unheard_of\" is not available on this host",
        ),
    ];
    for (tools, message) in table {
        let answer = client.post("/responses", &json!({"model": MODEL, "input": "x", "tools": tools})).await;
        assert_eq!((answer.status, answer.message()), (400, message), "{tools}");
    }
    for (choice, message) in [
        (
            json!({"type": "service:rogue"}),
            "tool_choice.type names a tool that is not in tools: \"service:rogue\"",
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "openrouter:rogue"}]}),
            "tool_choice.tools[0].type names a tool that is not in tools: \"openrouter:rogue\"",
        ),
    ] {
        for tools in [json!([{"type": "service:datetime"}]), json!([function("f")])] {
            let request = json!({"model": MODEL, "input": "x", "tools": tools, "tool_choice": choice});
            let answer = client.post("/responses", &request).await;
            assert_eq!((answer.status, answer.message()), (400, message), "{choice}");
        }
    }
    assert_eq!(bench.upstream.asked().len(), 0);
}

#[tokio::test]
async fn a_tool_without_its_grants_is_not_available() {
    let upstream = Upstream::start().await;
    let guests = folder(&["tool-rogue"]);
    let host = Setup::new().config(&single("openai-chat", &upstream.base)).plugins(guests.path()).start();
    let answer = Client::new(&host).post("/responses", &with_tool("service:rogue")).await;
    let line = "[plugins.tool-rogue] imports = [\"request\"]";
    let message = "tools[0].type \"service:rogue\" is not available on this host";
    assert_eq!(answer.message(), format!("{message}; its operator can allow it with {line}"));
    let listed = host.command(&["plugin", "list"]);
    let rogue = listed.as_array().unwrap().iter().find(|plugin| plugin["name"] == "tool-rogue").unwrap();
    assert_eq!(rogue["denied"], json!([line]));
}

#[tokio::test]
async fn choices_are_rendered_as_functions_and_force_one_turn_only() {
    let bench = Bench::start().await;
    let two = json!({"type": "service:rogue", "parameters": {"functions": ["echo", "fail"]}});
    let chat = |name: &str| json!({"type": "function", "function": {"name": name}});
    let table = [
        (
            json!({"type": "service:datetime"}),
            json!([{"type": "openrouter:datetime"}, two]),
            chat("datetime"),
        ),
        (json!({"type": "openrouter:datetime"}), json!([{"type": "service:datetime"}]), chat("datetime")),
        (json!("required"), json!([{"type": "service:datetime"}]), json!("required")),
        (json!("auto"), json!([{"type": "service:datetime"}]), json!("auto")),
    ];
    for (choice, tools, expected) in table {
        let request = json!({"model": MODEL, "input": "x", "tools": tools, "tool_choice": choice});
        bench.run(&request, false, &[call("c", "datetime", "{}")]).await;
        let asked = bench.upstream.asked();
        let [.., one, two] = asked.as_slice() else { panic!() };
        assert_eq!(one.body["tool_choice"], expected, "{choice}");
        assert_eq!(two.body["tool_choice"], "auto", "{choice}");
    }
    let none =
        json!({"model": MODEL, "input": "x", "tools": [{"type": "service:datetime"}], "tool_choice": "none"});
    bench.upstream.reply(answer(false, "no tools"));
    bench.ask(&none, false).await;
    assert_eq!(bench.asked_last().body["tool_choice"], "none");
}

#[tokio::test]
async fn the_responses_dialect_gets_the_same_offer() {
    let upstream = Upstream::start().await;
    let guests = folder(&["tool-rogue"]);
    let grants = "[plugins.tool-rogue]\nimports = [\"request\"]";
    let setup = Setup::new().config(&single("openai-responses", &upstream.base)).config(grants);
    let host = setup.plugins(guests.path()).start();
    let two = json!({"type": "service:rogue", "parameters": {"functions": ["echo", "fail"]}});
    let request = json!({"model": MODEL, "input": "x", "tools": [function("mine"), two],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "service:rogue"},
            {"type": "function", "name": "mine"}]}});
    upstream.reply(crate::kit::script::response(&json!([
        {"type": "reasoning", "id": "rs_up", "summary": [], "encrypted_content": "sealed"},
        {"type": "function_call", "id": "fc_up", "call_id": "call_up", "name": "echo", "arguments": "{\"text\":\"hi\"}"}
    ])));
    upstream.reply(crate::kit::script::response(&json!([crate::kit::script::message("done")])));
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    let asked = upstream.asked();
    let [one, two] = asked.as_slice() else { panic!() };
    let names: Vec<_> = one.body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["mine", "echo", "fail"]);
    assert_eq!(one.body["tools"][1]["strict"], false);
    let functions = json!([{"type": "function", "name": "echo"}, {"type": "function", "name": "fail"},
        {"type": "function", "name": "mine"}]);
    let choice = |mode: &str| json!({"type": "allowed_tools", "mode": mode, "tools": functions});
    assert_eq!((&one.body["tool_choice"], &two.body["tool_choice"]), (&choice("required"), &choice("auto")));
    // The sealed reasoning goes back to its provider, followed by the call it led to.
    let input = two.body["input"].as_array().unwrap();
    assert_eq!((&input[1]["type"], &input[1]["id"]), (&json!("reasoning"), &json!("rs_up")));
    assert_eq!(input[1]["encrypted_content"], "sealed");
    let call = json!({"type": "function_call", "call_id": "call_up", "name": "echo", "arguments": "{\"text\":\"hi\"}"});
    assert_eq!(input[2], call);
    assert_eq!(input[3], json!({"type": "function_call_output", "call_id": "call_up", "output": "hi"}));
}

#[tokio::test]
async fn thinking_goes_back_with_its_signature_before_what_it_led_to() {
    let upstream = Upstream::start().await;
    let host = Setup::new().config(&single("anthropic", &upstream.base)).start();
    let thinking = json!({"type": "thinking", "thinking": "What time is it?", "signature": "signed"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "datetime", "input": {}});
    upstream.reply(crate::kit::script::anthropic(&json!([thinking, call]), "tool_use"));
    upstream.reply(crate::kit::script::anthropic(&json!([{"type": "text", "text": "done"}]), "end_turn"));
    let request = json!({"model": MODEL, "input": "x", "tools": [{"type": "service:datetime"}],
        "reasoning": {"effort": "low"}});
    let answer = Client::new(&host).post("/responses", &request).await;
    assert_eq!(answer.output_text(), "done", "{}", answer.text);
    let asked = upstream.asked();
    let messages = asked[1].body["messages"].as_array().unwrap();
    assert_eq!(messages[1]["content"][0], thinking);
    assert_eq!(messages[1]["content"][1]["id"], "toolu_1");
    assert_eq!(
        (&messages[2]["role"], &messages[2]["content"][0]["type"]),
        (&json!("user"), &json!("tool_result"))
    );
    assert_eq!(answer.body["usage"]["input_tokens"], 230);
}

#[tokio::test]
async fn deferred_functions_wait_until_they_are_found() {
    let bench = Bench::start().await;
    let deferred = |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}, "defer_loading": true});
    let finder = json!({"type": "tool_search", "parameters": {}});
    let names = |body: &Value| -> Vec<String> {
        let tools = body["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    for streamed in [false, true] {
        let tools = json!([deferred("late"), function("mine"), finder, deferred("later")]);
        let request = json!({"model": MODEL, "input": "x", "tools": tools});
        let asked = bench.upstream.asked().len();
        bench.upstream.reply(calls(streamed, "", &[call("c0", "look", r#"{"text":"deferred"}"#)]));
        bench.upstream.reply(calls(streamed, "", &[call("c1", "find", r#"{"text":"later"}"#)]));
        bench.upstream.reply(calls(streamed, "", &[call("c2", "later", "{}")]));
        let response = bench.ask(&request, streamed).await;
        let output = response["output"].as_array().unwrap();
        assert_eq!(output[0]["type"], "service:tool_search");
        let known: Value = serde_json::from_str(super::told(&bench.asked_last())[0]).unwrap();
        assert_eq!((&known[0]["name"], &known[1]["name"]), (&json!("late"), &json!("later")));
        assert_eq!((&output[2]["type"], &output[2]["name"]), (&json!("function_call"), &json!("later")));
        let turns = bench.upstream.asked();
        let turns = &turns[asked..];
        let first = names(&turns[0].body);
        assert!(!first.contains(&"late".to_owned()) && !first.contains(&"later".to_owned()), "{first:?}");
        assert_eq!(names(&turns[1].body), first);
        assert_eq!(names(&turns[2].body).strip_prefix(first.as_slice()).unwrap(), ["later"]);
    }
    // Without a search tool, deferred functions are offered at once.
    bench.upstream.reply(answer(false, "x"));
    bench.ask(&json!({"model": MODEL, "input": "x", "tools": [deferred("late")]}), false).await;
    assert_eq!(names(&bench.asked_last().body), ["late"]);
    // A deferred function that the choice names is offered at once, too.
    let late = json!({"type": "function", "name": "late"});
    for choice in [late.clone(), json!({"type": "allowed_tools", "mode": "auto", "tools": [late]})] {
        bench.upstream.reply(answer(false, "x"));
        let tools = json!([deferred("late"), finder, deferred("later")]);
        bench.ask(&json!({"model": MODEL, "input": "x", "tools": tools, "tool_choice": choice}), false).await;
        let offered = names(&bench.asked_last().body);
        assert!(
            offered.contains(&"late".to_owned()) && !offered.contains(&"later".to_owned()),
            "{offered:?}"
        );
    }
}
