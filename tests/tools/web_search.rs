//! `web_search` with scripted search engines.

use super::reach::{BOTH, HOST, NATIVE, Reach, events_of, json_reply, with_tool};
use super::script::{answer, call, calls};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::script::{message, response};
use crate::kit::store::usage_of;
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

fn grant(config: &str, more: &str) -> impl Fn(u16) -> String {
    let (config, more) = (config.to_owned(), more.to_owned());
    move |port| {
        let config = config.replace("PORT", &port.to_string());
        format!(
            "[plugins.tool-web-search]\nhosts = [\"{HOST}\"]\n{more}\n[plugins.tool-web-search.config]\n{config}\n"
        )
    }
}

async fn searxng() -> Reach {
    let config = "engine = \"searxng\"\nurl = \"https://api.test:PORT/search\"\ncost_per_search = 0.004";
    Reach::start(grant(config, "")).await
}

fn results() -> Value {
    json!({"results": [
        {"url": "https://a.test/one", "title": "One", "content": "First text"},
        {"url": "https://b.test/two", "title": "Two", "content": "Second text"},
    ]})
}

const QUERY: &str = r#"{"query":"the\nquestion"}"#;

#[tokio::test]
async fn the_model_searches_and_what_it_names_is_cited_there() {
    let mut bench = searxng().await;
    for streamed in [false, true] {
        bench.site.reply(json_reply(results()));
        let request = with_tool(json!({"type": "openrouter:web_search"}));
        let text = "Müßig: [Two](https://b.test/two).";
        let (response, events) =
            bench.run(&request, streamed, &[call("c1", "web_search", QUERY)], text).await;
        let item = &response["output"][0];
        assert_eq!((&item["type"], &item["status"]), (&json!("openrouter:web_search"), &json!("completed")));
        let sources = json!([{"type": "url", "url": "https://a.test/one"}, {"type": "url", "url": "https://b.test/two"}]);
        assert_eq!(item["action"]["sources"], sources);
        assert_eq!(
            (&item["action"]["type"], &item["action"]["query"]),
            (&json!("search"), &json!("the question"))
        );
        let annotations = response["output"][1]["content"][0]["annotations"].as_array().unwrap();
        let places: Vec<_> = annotations
            .iter()
            .map(|one| (one["url"].as_str().unwrap(), one["start_index"].as_u64(), one["end_index"].as_u64()))
            .collect();
        assert_eq!(
            places,
            [("https://a.test/one", Some(33), Some(33)), ("https://b.test/two", Some(7), Some(32))]
        );
        let two = json!({"type": "url_citation", "url": "https://b.test/two", "title": "Two", "start_index": 7,
            "end_index": 32, "content": "Second text"});
        assert_eq!(annotations[1], two);
        assert_eq!(response["usage"]["server_tool_use_details"]["web_search_requests"], 1);
        assert_eq!(response["usage"]["cost_details"]["server_tool_cost"], 0.004);
        assert!(bench.told().contains("[2] Two\nURL: https://b.test/two\nSecond text\n"), "{}", bench.told());
        assert_eq!(bench.site.last().path, "/search?q=the+question&format=json");
        if streamed {
            assert_eq!(events_of(&events, 0), ["output_item.added", "output_item.done"]);
            let added = events.iter().position(|event| event["annotation"] == two).unwrap();
            assert_eq!(events[added]["type"], "response.output_text.annotation.added");
            assert_eq!(events[added + 1]["type"], "response.output_text.done");
        }
    }
    let costs: Vec<_> = usage_of(&mut bench.host).iter().map(|row| row.cost_pico).collect();
    assert_eq!(costs, [4_000_000_000, 4_000_000_000]);
}

/// The model is free, so only the searches cost anything.
#[tokio::test]
async fn the_price_of_a_search_is_reserved_while_it_runs() {
    let bench = searxng().await;
    bench.host.command(&["credits", "add", "default", "0.006"]);
    let credit = || {
        let shown = bench.host.command(&["credits", "show", "default"]);
        (shown["spent"].as_f64().unwrap(), shown["reserved"].as_f64().unwrap())
    };
    let request = with_tool(json!({"type": "service:web_search"}));
    let made = [call("c1", "web_search", QUERY)];
    let (page, reply) = Reply::fed_as("application/json");
    bench.site.reply(reply);
    bench.chat.reply(calls(false, "", &made));
    let meanwhile = async {
        bench.site.until(1).await;
        assert_eq!(credit(), (0.0, 0.004));
        let (refused, _) = bench.run(&request, false, &made, "Nothing.").await;
        assert_eq!(refused["output"][0]["status"], "failed", "{refused}");
        assert_eq!(refused["usage"]["server_tool_use_details"]["tool_calls_executed"], 0);
        assert!(bench.told().contains("What is left of the credit"), "{}", bench.told());
        bench.chat.reply(answer(false, "Found."));
        page.send(results().to_string()).await.unwrap();
        drop(page);
    };
    let ((found, _), ()) = tokio::join!(bench.ask(&request, false), meanwhile);
    assert_eq!(found["output"][0]["status"], "completed", "{found}");
    assert_eq!(credit(), (0.004, 0.0));
    // Alone, a search may cost more than what is left.
    bench.site.reply(json_reply(results()));
    let (found, _) = bench.run(&request, false, &made, "Found.").await;
    assert_eq!(found["output"][0]["status"], "completed", "{found}");
    assert_eq!(credit(), (0.008, 0.0));
}

#[tokio::test]
async fn a_source_waits_for_the_text_that_names_it() {
    let bench = searxng().await;
    for streamed in [false, true] {
        bench.site.reply(json_reply(results()));
        bench.site.reply(json_reply(results()));
        bench.chat.reply(calls(streamed, "", &[call("c1", "web_search", QUERY)]));
        bench.chat.reply(calls(streamed, "On https://a.test/one, more?", &[call("c2", "web_search", QUERY)]));
        bench.chat.reply(answer(streamed, "No more."));
        let (response, _) = bench.ask(&with_tool(json!({"type": "service:web_search"})), streamed).await;
        let cited = |item: usize| -> Vec<(Value, Value)> {
            let list = response["output"][item]["content"][0]["annotations"].as_array().unwrap().iter();
            list.map(|one| (one["url"].clone(), one["start_index"].clone())).collect()
        };
        assert_eq!(cited(1), [(json!("https://a.test/one"), json!(3))]);
        // The second search finds the same pages. They are cited once each, although the text does
        // not name them.
        assert_eq!(
            cited(3),
            [(json!("https://b.test/two"), json!(8)), (json!("https://a.test/one"), json!(8))]
        );
    }
}

#[tokio::test]
async fn keys_are_sent_to_the_engine_only() {
    let key = "BSA-very-secret-key-0123456789";
    for (config, header) in [
        ("engine = \"brave\"\nurl = \"https://api.test:PORT/res/v1/web/search\"", "x-subscription-token"),
        ("engine = \"exa\"\nurl = \"https://api.test:PORT/search\"", "x-api-key"),
    ] {
        let more = format!(
            "secrets = [\"search_key\"]\ninjections = [{{ secret = \"search_key\", host = \"{HOST}\", header = \"{header}\", format = \"{{}}\" }}]"
        );
        let bench = Reach::start(grant(config, &more)).await;
        bench.secret("search_key", key);
        // The engine echoes the key; it must be removed from the result.
        let found = json!({"url": "https://a.test/one", "title": key, "description": "text", "text": "text"});
        bench.site.reply(json_reply(json!({"web": {"results": [found]}, "results": [found]})));
        let request = with_tool(json!({"type": "service:web_search", "parameters": {"max_results": 3}}));
        let (response, _) = bench.run(&request, false, &[call("c1", "web_search", QUERY)], "done").await;
        assert_eq!(response["output"][0]["status"], "completed", "{response}");
        assert_eq!(bench.site.last().header(header), Some(key));
        assert!(!response.to_string().contains(key) && !bench.told().contains(key));
        assert!(bench.told().contains("https://a.test/one\ntext"), "{}", bench.told());
    }
}

#[tokio::test]
async fn misbehaving_engines_are_failed_items_and_errors_for_the_model() {
    let bench = searxng().await;
    let html = |body: &str| Reply::Whole {
        status: 200,
        headers: vec![("content-type", "text/html".to_owned())],
        body: body.to_owned(),
    };
    let huge = json!({"results": [], "pad": "x".repeat(5 << 20)});
    let elsewhere = Reply::Whole {
        status: 302,
        headers: vec![("location", "https://other.test/".to_owned())],
        body: String::new(),
    };
    let endless = (0..64).map(|_| "x".repeat(1 << 17)).collect();
    for (reply, words) in [
        (html("<h1>Hello</h1>"), "is not JSON"),
        (json_reply(json!({"results": 7})), "has no results"),
        (json_reply(huge), "larger than this tool accepts"),
        (
            Reply::Stream { content_type: "application/json", pieces: endless },
            "larger than this tool accepts",
        ),
        (elsewhere, "HTTP 302"),
        (Reply::json(403, json!({})), "refused this host"),
        (Reply::json(429, json!({})), "too often"),
        (Reply::Cut { content_type: "application/json", pieces: vec!["{\"res".to_owned()] }, "broke"),
    ] {
        bench.site.reply(reply);
        let request = with_tool(json!({"type": "service:web_search"}));
        let (response, _) = bench.run(&request, false, &[call("c1", "web_search", QUERY)], "done").await;
        let item = &response["output"][0];
        assert_eq!(
            (&response["status"], &item["status"]),
            (&json!("completed"), &json!("failed")),
            "{words}"
        );
        assert!(item["error"].as_str().unwrap().contains(words), "{words}: {item}");
        assert!(bench.told().contains(words), "{words}");
    }
}

#[tokio::test]
async fn limits_of_a_request_hold_over_its_searches() {
    let bench = searxng().await;
    bench.site.reply(json_reply(results()));
    let parameters = json!({"max_uses": 1});
    let request = with_tool(json!({"type": "service:web_search", "parameters": parameters}));
    bench.chat.reply(calls(false, "", &[call("c1", "web_search", QUERY)]));
    bench.chat.reply(calls(false, "", &[call("c2", "web_search", QUERY)]));
    bench.chat.reply(answer(false, "done"));
    let (response, _) = bench.ask(&request, false).await;
    assert_eq!(response["output"][1]["status"], "failed");
    assert!(bench.told().contains("All 1 searches of this request are used up"), "{}", bench.told());
    assert_eq!(bench.site.seen().len(), 1);
}

#[tokio::test]
async fn plugin_and_suffix_search_too() {
    let bench = searxng().await;
    let plugin = json!({"model": MODEL, "input": "Go.", "plugins": [{"id": "web", "max_results": 1, "search_prompt": "x"}]});
    let online = json!({"model": format!("{MODEL}:online"), "input": "Go."});
    for (request, sources) in [(plugin, 1), (online, 2)] {
        bench.site.reply(json_reply(results()));
        let (response, _) = bench.run(&request, true, &[call("c1", "web_search", QUERY)], "done").await;
        let item = &response["output"][0];
        assert_eq!(item["type"], "service:web_search");
        assert_eq!(item["action"]["sources"].as_array().unwrap().len(), sources);
    }
    let wrong = json!({"model": MODEL, "input": "Go.", "plugins": [{"id": "web", "engine": "exa"}]});
    let refused = Client::new(&bench.host).post("/responses", &wrong).await;
    assert_eq!(
        (refused.status, refused.message()),
        (400, "plugins[0].engine names an engine that this host has not configured; use auto")
    );
}

/// The events of a search in OpenAI's shape.
fn check_events(events: &[Value], item: &Value, streamed: bool) {
    if !streamed {
        return;
    }
    let expected = [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ];
    assert_eq!(events_of(events, 0), expected);
    let of_type = |name: &str| events.iter().find(|event| event["type"] == name).unwrap();
    let added = of_type("response.output_item.added");
    assert_eq!(added["item"]["action"], json!({"type": "search", "query": ""}));
    assert_eq!(of_type("response.web_search_call.searching")["item_id"], item["id"]);
}

#[tokio::test]
async fn the_clients_own_types_become_this_tool_in_openais_shape() {
    let bench = searxng().await;
    for tool_type in
        ["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
    {
        for streamed in [false, true] {
            bench.site.reply(json_reply(results()));
            let tool = json!({"type": tool_type, "search_context_size": "low", "filters": {"allowed_domains": ["b.test"]}});
            let (response, events) =
                bench.run(&with_tool(tool), streamed, &[call("c1", "web_search", QUERY)], "done").await;
            let item = &response["output"][0];
            assert_eq!((&item["type"], &item["status"]), (&json!("web_search_call"), &json!("completed")));
            assert!(
                item["id"].as_str().unwrap().starts_with("ws_") && item.get("content").is_none(),
                "{item}"
            );
            assert_eq!(item["action"]["sources"], json!([{"type": "url", "url": "https://b.test/two"}]));
            check_events(&events, item, streamed);
            assert!(!bench.chat.asked().pop().unwrap().body.to_string().contains("x-item"));
        }
    }
    let wrong = with_tool(json!({"type": "web_search", "filters": {"allowed_domains": ["https://x"]}}));
    let refused = Client::new(&bench.host).post("/responses", &wrong).await;
    assert!(
        refused.message().starts_with("tools[0].filters.allowed_domains takes domains"),
        "{}",
        refused.text
    );
    let choice = json!({"model": MODEL, "input": "Go.", "tools": [{"type": "web_search_preview"}],
        "tool_choice": {"type": "web_search_preview"}});
    bench.site.reply(json_reply(results()));
    bench.run(&choice, false, &[call("c1", "web_search", QUERY)], "done").await;
    let asked = bench.chat.asked();
    assert_eq!(asked[asked.len() - 2].body["tool_choice"]["function"]["name"], "web_search");
}

#[tokio::test]
async fn an_endpoints_own_search_is_used_where_all_have_it() {
    let bench = searxng().await;
    let request = |model: &str, tool: Value| json!({"model": model, "input": "Go.", "tools": [tool]});
    // All endpoints have a search of their own.
    bench.native.reply(response(&json!([message("own")])));
    let (answered, _) = bench.ask(&request(NATIVE, json!({"type": "web_search"})), false).await;
    assert_eq!(answered["output"][0]["content"][0]["text"], "own");
    assert_eq!(bench.native.asked().pop().unwrap().body["tools"], json!([{"type": "web_search"}]));
    // One endpoint lacks it, so the host's tool is used for all.
    bench.chat.reply(Reply::json(500, json!({})));
    let made = json!([{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "web_search", "arguments": QUERY, "status": "completed"}]);
    bench.native.reply(response(&made));
    bench.native.reply(response(&json!([message("found")])));
    bench.site.reply(json_reply(results()));
    let (answered, _) = bench.ask(&request(BOTH, json!({"type": "web_search"})), false).await;
    assert_eq!(answered["output"][0]["type"], "web_search_call");
    assert_eq!(answered["output"][1]["content"][0]["text"], "found");
    assert_eq!(bench.native.asked().pop().unwrap().body["tools"][0]["name"], "web_search");
    // `engine: native` allows only the endpoint's own search.
    bench.native.reply(response(&json!([message("own")])));
    let native = json!({"type": "web_search", "engine": "native"});
    bench.ask(&request(BOTH, native.clone()), false).await;
    assert_eq!(bench.native.asked().pop().unwrap().body["tools"][0]["type"], "web_search");
    let refused = Client::new(&bench.host).post("/responses", &request(MODEL, native)).await;
    assert_eq!(
        refused.message(),
        "tools[0].type \"web_search\" is not offered by any endpoint of this model"
    );
}

#[tokio::test]
async fn what_the_operator_has_not_set_up_is_not_there() {
    let bench = Reach::start(grant("engine = \"bing\"", "")).await;
    let refused =
        Client::new(&bench.host).post("/responses", &with_tool(json!({"type": "service:web_search"}))).await;
    assert_eq!(
        (refused.status, refused.message()),
        (400, "tools[0].type \"service:web_search\" is not available on this host")
    );
    bench.host.until_logged("config.engine takes searxng, brave or exa");
    for parameters in
        [json!({"max_results": 26}), json!({"allowed_domains": ["a.b"], "excluded_domains": ["c.d"]})]
    {
        let tool = json!({"type": "service:web_search", "parameters": parameters});
        let refused = Client::new(&bench.host).post("/responses", &with_tool(tool)).await;
        assert!(refused.message().starts_with("tools[0].parameters"), "{}", refused.text);
    }
}
