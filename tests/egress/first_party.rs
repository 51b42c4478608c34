//! Requests of the built-in tools to other hosts.

use super::{API, Bench, OTHER, VALUE};
use crate::kit::client::Client;
use crate::kit::config::MODEL;
use crate::kit::host::Setup;
use crate::kit::script::{chat, chat_message};
use crate::kit::upstream::Reply;
use serde_json::{Value, json};

const GRANTS: &str = "[plugins.tool-web-fetch]\nhosts = [\"api.test\", \"other.test\"]\n\
    [plugins.tool-http-request]\nhosts = [\"api.test\"]\nsecrets = [\"api_key\"]\n\
    placeholder_headers = [\"x-api-key\"]\n";

/// Makes the model call a tool; returns the output item and the result that the model received.
async fn call(bench: &Bench, tool: &str, parameters: Value, arguments: Value) -> (Value, String) {
    let made = json!([{"id": "c1", "type": "function", "function": {"name": tool, "arguments": arguments.to_string()}}]);
    bench
        .model
        .reply(chat_message(&json!({"role": "assistant", "content": "", "tool_calls": made}), "tool_calls"));
    bench.model.reply(chat("done"));
    let tools = json!([{"type": format!("service:{tool}"), "parameters": parameters}]);
    let request = json!({"model": MODEL, "input": "Go.", "tools": tools});
    let answer = Client::new(&bench.host).post("/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let asked = bench.model.asked().pop().unwrap();
    let messages = asked.body["messages"].as_array().unwrap();
    let told = messages.iter().rev().find(|message| message["role"] == "tool").unwrap();
    (answer.body["output"][0].clone(), told["content"].as_str().unwrap().to_owned())
}

fn page(body: &str) -> Reply {
    Reply::Whole {
        status: 200,
        headers: vec![("content-type", "text/html; charset=utf-8".to_owned())],
        body: body.to_owned(),
    }
}

fn redirect(to: &str) -> Reply {
    Reply::Whole { status: 302, headers: vec![("location", to.to_owned())], body: String::new() }
}

#[tokio::test]
async fn a_page_is_fetched_and_read_where_it_was_redirected_to() {
    let bench = Bench::start(GRANTS).await;
    bench.site.reply(redirect("/moved"));
    bench.site.reply(page("<title>A page</title><nav>menu</nav><h1>Head</h1><p>Words.<script>no()</script>"));
    let (item, told) = call(&bench, "web_fetch", json!({}), json!({"url": bench.url(API, "/page")})).await;
    assert_eq!((&item["status"], &item["http_status"]), (&json!("completed"), &json!(200)));
    assert_eq!((&item["url"], &item["title"]), (&json!(bench.url(API, "/moved")), &json!("A page")));
    assert!(told.contains("# Head\n\nWords.") && !told.contains("no()"), "{told}");
}

#[tokio::test]
async fn a_redirect_to_a_domain_the_client_did_not_allow_is_not_followed() {
    let bench = Bench::start(GRANTS).await;
    bench.site.reply(redirect(&bench.url(OTHER, "/?data=1")));
    let rules = json!({"allowed_domains": [API]});
    let (item, told) = call(&bench, "web_fetch", rules, json!({"url": bench.url(API, "/page")})).await;
    assert_eq!(item["status"], "failed");
    assert!(told.contains("redirects to a domain that this request does not allow"), "{told}");
    assert_eq!(bench.site.seen().len(), 1);
}

#[tokio::test]
async fn a_stored_secret_is_sent_and_hidden_from_model_and_client() {
    let bench = Bench::start(GRANTS).await;
    bench.secret("api_key", VALUE, API);
    let url = bench.url(API, "/v1/items?key=k");
    for (secret, header, sent) in [
        (json!({"secret": {"name": "api_key"}}), "authorization", format!("Bearer {VALUE}")),
        (json!({"secret": {"name": "api_key", "header": "X-Api-Key"}}), "x-api-key", VALUE.to_owned()),
        (json!({"headers": {"X-Api-Key": "key={{secret:api_key}}"}}), "x-api-key", format!("key={VALUE}")),
    ] {
        let mut arguments = json!({"method": "POST", "url": url, "body": {"a": 1}});
        arguments.as_object_mut().unwrap().extend(secret.as_object().unwrap().clone());
        let (item, told) = call(&bench, "http_request", json!({}), arguments).await;
        assert_eq!(item["status"], "completed", "{item}");
        assert_eq!((&item["url"], &item["http_status"]), (&json!(bench.url(API, "/v1/items")), &json!(200)));
        let seen = bench.site.last();
        assert_eq!(seen.header(header), Some(sent.as_str()));
        assert_eq!((seen.path.as_str(), &seen.body[..]), ("/v1/items?key=k", &br#"{"a":1}"#[..]));
        assert!(told.contains("[secret:api_key]") && !told.contains(VALUE), "{told}");
        assert!(!item.to_string().contains(VALUE));
    }
}

/// The value in a character set whose bytes look unlike any plain spelling.
fn in_other_charset(value: &str) -> Reply {
    let letters: String = value.chars().map(|letter| format!("{letter}\u{1b}(J")).collect();
    let headers = vec![("content-type", "text/plain; charset=iso-2022-jp".to_owned())];
    Reply::Whole { status: 200, headers, body: format!("Your key: {letters}.") }
}

/// The value with every letter, or every second one, as a JSON escape.
fn escaped(value: &str, every: usize) -> Reply {
    let escape = |(place, letter): (usize, char)| match place % every {
        0 => format!("\\u{:04X}", u32::from(letter)),
        _ => letter.to_string(),
    };
    let letters: String = value.chars().enumerate().map(escape).collect();
    let headers = vec![("content-type", "application/json".to_owned())];
    Reply::Whole { status: 200, headers, body: format!("{{\"key\": \"{letters}\"}}") }
}

/// Decodes the escapes, as a reader of the text might do.
fn unescaped(text: &str) -> String {
    let mut parts = text.split("\\u");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let letter =
            part.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        match letter {
            Some(letter) => out.extend([letter.to_string().as_str(), &part[4..]]),
            None => out.push_str(part),
        }
    }
    out
}

#[tokio::test]
async fn a_secret_that_the_host_sends_back_encoded_reaches_neither_model_nor_client() {
    let bench = Bench::with(Setup::new().without_canaries(), "", GRANTS).await;
    bench.secret("api_key", VALUE, API);
    for reply in [in_other_charset(VALUE), escaped(VALUE, 1), escaped(VALUE, 2)] {
        bench.site.reply(reply);
        let arguments = json!({"method": "GET", "url": bench.url(API, "/"), "secret": {"name": "api_key"}});
        let (item, told) = call(&bench, "http_request", json!({}), arguments).await;
        assert_eq!(bench.site.last().header("authorization"), Some(format!("Bearer {VALUE}").as_str()));
        assert_eq!(item["status"], "completed", "{item}");
        assert!(told.contains("[secret:api_key]"), "{told}");
        for text in [told, item.to_string()] {
            assert!(!unescaped(&text).contains(VALUE), "{text}");
        }
    }
}

#[tokio::test]
async fn a_response_with_an_encoded_secret_can_be_blocked() {
    let bench =
        Bench::with(Setup::new().without_canaries(), "", &format!("{GRANTS}on_reflection = \"block\"\n"))
            .await;
    bench.secret("api_key", VALUE, API);
    bench.site.reply(in_other_charset(VALUE));
    let arguments = json!({"method": "GET", "url": bench.url(API, "/"), "secret": {"name": "api_key"}});
    let (item, told) = call(&bench, "http_request", json!({}), arguments).await;
    assert_eq!(item["status"], "failed", "{item}");
    assert!(told.contains("The tool's result held a secret and was withheld."), "{told}");
    assert!(!told.contains("Your key"), "{told}");
    assert!(!item.to_string().contains("Your key"), "{item}");
}

#[tokio::test]
async fn a_secret_that_is_found_only_in_what_a_plugin_decoded_counts_as_sent_back() {
    let mut bench = Bench::with(Setup::new().without_canaries(), "", GRANTS).await;
    bench.secret("api_key", VALUE, API);
    let arguments = json!({"method": "GET", "url": bench.url(API, "/"), "secret": {"name": "api_key"}});
    for _ in 0..4 {
        bench.site.reply(in_other_charset(VALUE));
        let (item, told) = call(&bench, "http_request", json!({}), arguments.clone()).await;
        assert_eq!(item["status"], "completed", "{item}");
        assert!(told.contains("[secret:api_key]"), "{told}");
    }
    let (item, told) = call(&bench, "http_request", json!({}), arguments).await;
    assert_eq!(item["status"], "failed", "the secret is suspended: {item}");
    assert!(told.contains("secret is not available"), "{told}");
    assert_eq!(bench.site.seen().len(), 4);
    let reflected = bench.audit("secret_reflected");
    assert_eq!(reflected.len(), 4, "{reflected:?}");
    for (index, entry) in reflected.iter().enumerate() {
        assert_eq!((&entry["name"], &entry["host"]), (&"api_key".into(), &API.into()));
        assert_eq!((&entry["blocked"], &entry["suspended"]), (&false.into(), &(index == 3).into()));
        assert_eq!(entry["used_by"], "plugin tool-http-request");
    }
}

#[tokio::test]
async fn the_model_gets_a_sentence_about_missing_grants() {
    let bench = Bench::start(GRANTS).await;
    bench.secret("api_key", VALUE, API);
    for (arguments, says) in [
        (json!({"method": "GET", "url": bench.url(OTHER, "/")}), "may not send that request"),
        (
            json!({"method": "GET", "url": bench.url(API, "/"), "secret": {"name": "absent"}}),
            "secret is not available",
        ),
        (
            json!({"method": "GET", "url": bench.url(API, "/"), "headers": {"x-other": "{{secret:api_key}}"}}),
            "may not send that request",
        ),
    ] {
        let (item, told) = call(&bench, "http_request", json!({}), arguments).await;
        assert_eq!(item["status"], "failed", "{item}");
        assert!(told.contains(says), "{told}");
    }
    assert!(bench.site.seen().is_empty());
}
