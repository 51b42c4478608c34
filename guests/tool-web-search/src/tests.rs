//! Tests of the tool with scripted engines.

use cofferdam_guest_kit::bindings::http::{HttpError, Request, Response};
use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::server_tool::{Fields, Network};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::config::Config;
use super::found::{self, Found};
use super::settings::Settings;
use super::spent::Spent;

const SEARXNG: &str = r#"{"engine":"searxng","url":"https://searx.test/search"}"#;
const BRAVE: &str = r#"{"engine":"brave","cost_per_search":0.005}"#;
const EXA: &str = r#"{"engine":"exa","url":"https://exa.test/search"}"#;

/// An engine with one scripted answer.
struct Engine {
    answer: Result<(u16, Vec<u8>), HttpError>,
    asked: Vec<Request>,
}

impl Engine {
    fn new(status: u16, body: &Value) -> Self {
        Self::raw(Ok((status, body.to_string().into_bytes())))
    }

    fn raw(answer: Result<(u16, Vec<u8>), HttpError>) -> Self {
        Self { answer, asked: Vec::new() }
    }
}

impl Network for Engine {
    fn send(&mut self, request: &Request) -> Result<Response, HttpError> {
        self.asked.push(request.clone());
        let (status, body) = self.answer.clone()?;
        Ok(Response { status, url: request.url.clone(), headers: Vec::new(), body })
    }
}

fn config(json: &str) -> Result<Config, ToolError> {
    Config::read(json.as_bytes())
}

fn settings(json: &Value) -> Result<Settings, ToolError> {
    Settings::read(&Fields::settings(json.to_string().as_bytes())?, &config(EXA).unwrap())
}

fn message(error: ToolError) -> String {
    match error {
        ToolError::InvalidSettings(message)
        | ToolError::InvalidArguments(message)
        | ToolError::Failed(message) => message,
    }
}

fn searched(engine: &mut Engine, configured: &str, chosen: &Value) -> Result<Vec<Found>, ToolError> {
    let config = config(configured)?;
    let settings = Settings::read(&Fields::settings(chosen.to_string().as_bytes())?, &config)?;
    super::engines::ask("rust wasm", settings.results_max, &settings, &config, engine)
        .map_err(|failure| ToolError::Failed(failure.for_model()))
        .map(|raw| found::sift(raw, settings.results_max, &settings))
}

fn titles(found: &[Found]) -> Vec<&str> {
    found.iter().map(|found| found.title.as_str()).collect()
}

#[test]
fn configuration_is_read_strictly() {
    let brave = config(BRAVE).unwrap();
    assert_eq!(brave.url.as_str(), "https://api.search.brave.com/res/v1/web/search");
    assert_eq!(brave.cost_pico, 5_000_000_000);
    assert_eq!(config(r#"{"engine":"exa"}"#).unwrap().url.as_str(), "https://api.exa.ai/search");
    for (json, told) in [
        ("{}", "config.engine takes searxng, brave or exa"),
        (r#"{"engine":"bing"}"#, "config.engine takes searxng, brave or exa"),
        (r#"{"engine":"searxng"}"#, "config.url is required for searxng"),
        (r#"{"engine":"exa","url":"exa.ai"}"#, "config.url must be an absolute URL"),
        (r#"{"engine":"exa","url":"https://u:p@exa.ai/"}"#, "config.url must be an absolute URL"),
        (r#"{"engine":"exa","key":"x"}"#, "config.key is no key of this plugin"),
        (r#"{"engine":"exa","cost_per_search":-1}"#, "config.cost_per_search must be a number"),
        (r#"{"engine":"exa","cost_per_search":1e9}"#, "config.cost_per_search must be at most"),
    ] {
        let error = config(json).unwrap_err();
        assert!(matches!(error, ToolError::Failed(_)), "{json}");
        let told_really = message(error);
        assert!(told_really.starts_with(told), "{json}: {told_really}");
    }
}

#[test]
fn settings_have_defaults_and_limits() {
    let silent = settings(&json!({})).unwrap();
    assert_eq!(
        (silent.results_max, silent.total_results_max, silent.uses_max, silent.chars_max),
        (5, 50, 50, 2_500)
    );
    let chosen = json!({"engine": "exa", "mode": "fast", "max_results": 25, "max_total_results": 60, "max_uses": 9,
        "search_context_size": "medium", "allowed_domains": ["a.test", "b.test/docs"], "x_search": {},
        "user_location": {"type": "approximate", "country": "de", "city": "Köln"}});
    let chosen = settings(&chosen).unwrap();
    assert_eq!((chosen.results_max, chosen.total_results_max, chosen.uses_max), (25, 60, 9));
    assert_eq!((chosen.chars_max, chosen.location.country.as_deref()), (15_000, Some("DE")));
    let exact = settings(&json!({"search_context_size": "high", "max_characters": 7})).unwrap();
    assert_eq!(exact.chars_max, 7);
    for (json, told) in [
        (json!({"engine": "native"}), "parameters.engine \"native\" is an endpoint's own search"),
        (
            json!({"engine": "firecrawl"}),
            "parameters.engine names an engine that this host has not configured",
        ),
        (json!({"engine": "brave"}), "parameters.engine names an engine that this host has not configured"),
        (json!({"engine": "bing"}), "parameters.engine takes auto, native"),
        (json!({"max_results": 26}), "parameters.max_results must be a whole number from 1 to 25"),
        (json!({"max_total_results": 0}), "parameters.max_total_results must be a whole number"),
        (
            json!({"max_characters": 100_001}),
            "parameters.max_characters must be a whole number from 1 to 100000",
        ),
        (json!({"search_context_size": "huge"}), "parameters.search_context_size takes low, medium or high"),
        (json!({"x_search": 1}), "parameters.x_search must be an object"),
        (json!({"mode": "a\nb"}), "parameters.mode must be one short line"),
        (json!({"user_location": {"country": "DEU"}}), "parameters.user_location.country takes a code"),
        (json!({"allowed_domains": ["https://a"]}), "parameters.allowed_domains takes domains"),
        (
            json!({"allowed_domains": ["a.b"], "excluded_domains": ["c.d"]}),
            "parameters.allowed_domains cannot be combined with excluded_domains",
        ),
        (
            json!({"type": "web_search", "filters": {"allowed_domains": ["a.b"], "blocked_domains": ["c.d"]}}),
            "parameters.filters.allowed_domains cannot be combined with blocked_domains",
        ),
    ] {
        let error = settings(&json).unwrap_err();
        assert!(matches!(error, ToolError::InvalidSettings(_)), "{json}");
        let told_really = message(error);
        assert!(told_really.starts_with(told), "{json}: {told_really}");
    }
}

#[test]
fn the_clients_own_types_have_their_domains_in_filters() {
    let own = json!({"type": "web_search", "filters": {"allowed_domains": ["a.test"]}});
    let own = settings(&own).unwrap();
    assert!(own.is_clients_type);
    assert_eq!(own.domains, settings(&json!({"allowed_domains": ["a.test"]})).unwrap().domains);
    let blocked = settings(&json!({"filters": {"blocked_domains": ["a.test"]}})).unwrap();
    assert_eq!(blocked.domains, settings(&json!({"excluded_domains": ["a.test"]})).unwrap().domains);
}

#[test]
fn searxng_is_asked_as_documented_and_read() {
    let answer = json!({"query": "q", "number_of_results": 0, "results": [
        {"url": "https://a.test/1", "title": "One", "content": "First &amp; best", "engine": "x", "publishedDate": "2026-01-02T00:00:00"},
        {"url": "https://a.test/1", "title": "One again", "content": ""},
        {"url": "ftp://a.test/2", "title": "Two"}, {"title": "No address"}, 7,
        {"url": "https://b.test/3", "title": null, "content": null},
    ], "answers": []});
    let mut engine = Engine::new(200, &answer);
    let found = searched(&mut engine, SEARXNG, &json!({"excluded_domains": ["c.test"]})).unwrap();
    assert_eq!(engine.asked[0].url, "https://searx.test/search?q=rust+wasm+-site%3Ac.test&format=json");
    assert_eq!((engine.asked[0].method.as_str(), engine.asked[0].redirects), ("GET", 0));
    assert_eq!(titles(&found), ["One", "https://b.test/3"]);
    assert_eq!(found[0].text, "First & best");
    assert_eq!(found[0].date.as_deref(), Some("2026-01-02T00:00:00"));
}

#[test]
fn brave_is_asked_as_documented_and_read() {
    let answer = json!({"type": "search", "web": {"results": [
        {"url": "https://a.test/1", "title": "<strong>One</strong>", "description": "first", "extra_snippets": ["second"], "age": "2 days ago"},
        {"url": "https://evil.test/", "title": "Two", "description": "x"},
    ]}});
    let mut engine = Engine::new(200, &answer);
    let chosen = json!({"allowed_domains": ["a.test", "b.test"],
        "user_location": {"country": "DE", "city": "Berlin", "region": "Köln\u{e9}"}});
    let found = searched(&mut engine, BRAVE, &chosen).unwrap();
    let asked = &engine.asked[0];
    assert_eq!(
        asked.url,
        "https://api.search.brave.com/res/v1/web/search?q=rust+wasm+%28site%3Aa.test+OR+site%3Ab.test%29\
         &count=20&result_filter=web&text_decorations=false&extra_snippets=true&country=DE"
    );
    let headers: Vec<_> = asked.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, [("accept", "application/json"), ("x-loc-country", "DE"), ("x-loc-city", "Berlin")]);
    assert_eq!(titles(&found), ["One"]);
    assert_eq!((found[0].text.as_str(), found[0].date.as_deref()), ("first\nsecond", Some("2 days ago")));
    let nothing = searched(&mut Engine::new(200, &json!({"type": "search"})), BRAVE, &json!({}));
    assert_eq!(nothing.unwrap(), []);
}

#[test]
fn brave_gets_a_country_that_it_accepts() {
    for (country, is_accepted) in [("de", true), ("US", true), ("SG", false), ("GR", false), ("ZZ", false)] {
        let mut engine = Engine::new(200, &json!({"type": "search"}));
        searched(&mut engine, BRAVE, &json!({"user_location": {"country": country}})).unwrap();
        let (asked, code) = (&engine.asked[0], country.to_uppercase());
        assert_eq!(asked.url.ends_with(&format!("&country={code}")), is_accepted, "{}", asked.url);
        assert_eq!(asked.url.contains("country"), is_accepted, "{}", asked.url);
        assert!(asked.headers.contains(&("x-loc-country".to_owned(), code)));
    }
}

#[test]
fn exa_is_asked_as_documented_and_read() {
    let answer = json!({"requestId": "r", "costDollars": {"total": 0.005}, "results": [
        {"url": "https://a.test/1", "title": "One", "text": "whole text", "publishedDate": "2025-05-05"},
        {"url": "https://a.test/2", "title": "Two", "highlights": ["this", "that"]},
    ]});
    let mut engine = Engine::new(200, &answer);
    let chosen = json!({"engine": "exa", "mode": "deep", "max_results": 2, "max_characters": 5,
        "allowed_domains": ["a.test"], "user_location": {"country": "us"}});
    let found = searched(&mut engine, EXA, &chosen).unwrap();
    let body: Value = serde_json::from_slice(&engine.asked[0].body).unwrap();
    assert_eq!(engine.asked[0].method, "POST");
    assert_eq!(
        body,
        json!({"query": "rust wasm", "type": "deep", "numResults": 2, "includeDomains": ["a.test"],
            "contents": {"text": {"maxCharacters": 5}}, "userLocation": "US"})
    );
    assert_eq!(found.iter().map(|found| found.text.as_str()).collect::<Vec<_>>(), ["whole", "this\n"]);
}

#[test]
fn failures_give_a_message() {
    let told = |engine: Engine| message(searched(&mut { engine }, EXA, &json!({})).unwrap_err());
    for (status, words) in [
        (401, "refused this host"),
        (403, "refused this host"),
        (429, "too often"),
        (302, "HTTP 302"),
        (500, "HTTP 500"),
    ] {
        assert!(told(Engine::new(status, &json!({}))).contains(words), "{status}");
    }
    assert!(told(Engine::raw(Ok((200, b"<html>".to_vec())))).contains("is not JSON"));
    assert!(told(Engine::new(200, &json!([]))).contains("has no results"));
    assert!(told(Engine::new(200, &json!({"results": {"a": 1}}))).contains("has no results"));
    assert!(told(Engine::raw(Err(HttpError::Timeout))).contains("was not reached"));
}

#[test]
fn results_are_numbered_cited_and_counted_as_sources() {
    let found = [
        Found {
            url: "https://a.test/".into(),
            title: "A".into(),
            text: "t".into(),
            date: Some("2026".into()),
        },
        Found { url: "https://b.test/".into(), title: "B".into(), text: String::new(), date: None },
    ];
    let output = found::output("q", &found, 7);
    assert!(output.for_model.ends_with(
        "\n\n[1] A\nURL: https://a.test/\nDate: 2026\nt\n\n[2] B\nURL: https://b.test/\n(no text)\n"
    ));
    let item: Value = serde_json::from_slice(&output.item).unwrap();
    assert_eq!(item["action"]["sources"][1], json!({"type": "url", "url": "https://b.test/"}));
    assert_eq!((&item["action"]["type"], &item["action"]["query"]), (&json!("search"), &json!("q")));
    let citation: Value = serde_json::from_slice(&output.annotations[0]).unwrap();
    assert_eq!((&citation["type"], &citation["url"]), (&json!("url_citation"), &json!("https://a.test/")));
    assert_eq!(output.cost_pico, 7);
    assert!(found::output("q", &[], 0).for_model.contains("found nothing"));
}

#[test]
fn searches_and_results_of_a_request_are_limited() {
    let settings = settings(&json!({"max_results": 5, "max_total_results": 8, "max_uses": 3})).unwrap();
    let spent = Spent::read(None);
    assert_eq!(spent.room(&settings).unwrap(), 5);
    let spent = Spent::read(Some(&spent.search().results(5).write()));
    assert_eq!(spent.room(&settings).unwrap(), 3);
    assert!(message(spent.results(3).room(&settings).unwrap_err()).contains("All 8 search results"));
    let used_up = spent.search().search();
    assert!(message(used_up.room(&settings).unwrap_err()).contains("All 3 searches"));
    assert!(Spent::read(Some(b"nonsense")).room(&settings).is_err());
}

#[test]
fn queries_are_one_line_and_not_endless() {
    let query =
        |text: &str| super::query(&Fields::arguments(json!({"query": text}).to_string().as_bytes()).unwrap());
    assert_eq!(query(" a\n b\t c ").unwrap(), "a b c");
    assert_eq!(query(&"x".repeat(9_000)).unwrap().len(), super::QUERY_CHARS_MAX);
    assert!(query("  ").is_err());
}

fn json_like() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(https?://[a-z]{1,5}\\.test/)?\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        let name = prop_oneof![
            Just("results"),
            Just("web"),
            Just("url"),
            Just("title"),
            Just("content"),
            Just("description"),
            Just("text"),
            Just("highlights"),
            Just("extra_snippets"),
            Just("publishedDate"),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..6).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    /// With arbitrary answers of an engine, there is an error or the results are within the limits.
    #[test]
    fn any_answer_is_taken_or_refused(status in 100u16..600, answer in json_like(), bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for configured in [SEARXNG, BRAVE, EXA] {
            let chosen = json!({"max_results": 3, "max_characters": 4});
            if let Ok(found) = searched(&mut Engine::new(status, &answer), configured, &chosen) {
                prop_assert!(found.len() <= 3 && found.iter().all(|found| found.text.chars().count() <= 4));
                let output = found::output("q", &found, 0);
                prop_assert!(output.annotations.iter().all(|json| serde_json::from_slice::<Value>(json).is_ok()));
            }
            searched(&mut Engine::raw(Ok((status, bytes.clone()))), configured, &chosen).ok();
        }
    }
}
