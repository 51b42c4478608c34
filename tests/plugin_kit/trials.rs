//! `plugin test`: cases of every kind of plugin, their scripted imports, and the suite that needs no
//! author.

mod providers;

use super::{Workshop, text};
use serde_json::{Value, json};
use std::path::Path;

/// A project of a component that was built before, with these cases.
fn project(folder: &str, name: &str, cases: &str) -> Workshop {
    let workshop = Workshop::new();
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    for directory in ["plugins", "cases/streams"] {
        std::fs::create_dir_all(workshop.path(&format!("{name}/{directory}"))).unwrap();
    }
    for (from, to) in [("toml", "plugin.toml".to_owned()), ("wasm", format!("plugins/{name}.wasm"))] {
        let to = workshop.path(&format!("{name}/{to}"));
        std::fs::copy(built.join(format!("{name}.{from}")), to).unwrap();
    }
    std::fs::write(workshop.path(&format!("{name}/cases/a.toml")), cases).unwrap();
    workshop
}

/// The report on a project.
fn report(workshop: &Workshop, name: &str) -> Value {
    let output = workshop.run(&["plugin", "test", name, "--json"]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    assert_eq!(output.status.success(), report["failed"] == 0, "{}", text(&output));
    report
}

/// What is wrong with each case of a project, and with each check of the suite.
fn problems(folder: &str, name: &str, cases: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let report = report(&project(folder, name, cases), name);
    let texts = |list: &Value| {
        let texts = list.as_array().unwrap().iter();
        texts.map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let cases = report["cases"].as_array().unwrap().iter().map(|case| texts(&case["problems"])).collect();
    let suite = report["suite"].as_array().unwrap().iter().filter(|check| !check["problem"].is_null());
    (cases, suite.map(|check| format!("{}: {}", check["check"], check["problem"])).collect())
}

/// The cases of a project of which all are as expected, and its suite too.
fn passes(folder: &str, name: &str, cases: &str) {
    let (cases, suite) = problems(folder, name, cases);
    assert!(cases.iter().all(Vec::is_empty) && suite.is_empty(), "{cases:?} {suite:?}");
}

#[test]
fn a_tool_reaches_only_what_its_case_lists() {
    let cases = r#"
[[case]]
name = "a secret goes out and does not come back"
call = { function = "http_request", arguments = { method = "GET", url = "https://api.test/user" } }
secrets = { key = ["api.test"] }
expect = { item = { http_status = 200 }, for_model = { contains = "[secret:key]" } }
[[case.http]]
url = "https://api.test/user"
secrets = ["key"]
answer = { headers = { x-echo = "Bearer {{secret:key}}" }, json = { seen = "{{secret:key}}" } }

[[case]]
name = "nothing is listed"
call = { function = "http_request", arguments = { method = "GET", url = "https://other.test/a" } }

[[case]]
name = "another request is listed"
call = { function = "http_request", arguments = { url = "https://api.test/user", method = "POST", body = "{}" } }
http = [
  { method = "POST", url = "https://api.test/user", json = { a = 1 }, answer = { status = 204 } },
  { url = "https://api.test/user", answer = { error = "timeout" }, optional = true },
]

[[case]]
name = "a host that answers with an error"
call = { function = "http_request", arguments = { method = "GET", url = "https://api.test/user" } }
http = [{ url = "https://api.test/user", answer = { error = "timeout" } }]
expect = { failed = { contains = "time" } }

[[case]]
name = "a value that was not sent"
call = { function = "http_request", arguments = { method = "GET", url = "https://open.test/" } }
secrets = { key = ["api.test"] }
http = [{ url = "https://open.test/", answer = { text = "{{secret:key}}" } }]
"#;
    let (cases, suite) = problems("plugins", "tool-http-request", cases);
    assert_eq!(suite, Vec::<String>::new());
    assert_eq!(cases[0], Vec::<String>::new());
    assert_eq!(cases[1], ["the request GET https://other.test/a is not listed in `http`"]);
    assert_eq!(
        cases[2],
        [
            "the request POST https://api.test/user is not listed in `http`: json.a is missing, expected 1",
            "the request 1 of `http`, POST https://api.test/user, was not sent; with `optional = true` it need \
             not be",
        ]
    );
    assert_eq!(cases[3], Vec::<String>::new());
    let not_carried = "the answer to the request GET https://open.test/ has {{secret:key}}, which the request \
                       did not carry";
    assert_eq!(cases[4], [not_carried]);
}

#[test]
fn a_host_that_the_manifest_does_not_ask_for_is_denied() {
    let cases = r#"
[[case]]
name = "another host"
call = { function = "http_request", arguments = { method = "GET", url = "https://other.test/" } }
http = [{ url = "https://other.test/", answer = { text = "never" } }]
"#;
    let workshop = project("plugins", "tool-http-request", cases);
    workshop.edit("tool-http-request/plugin.toml", "hosts = [\"*\"]", "hosts = [\"api.test\"]");
    let report = report(&workshop, "tool-http-request");
    assert!(report["cases"][0]["problems"][0].as_str().unwrap().contains("was not sent"), "{report}");
    let refused = "https://other.test/ was refused: the host is not granted";
    assert!(report["cases"][0]["notes"][0].as_str().unwrap().contains(refused), "{report}");
}

#[test]
fn a_case_has_the_time_that_it_names() {
    passes(
        "plugins",
        "tool-datetime",
        r#"
[[case]]
name = "a leap day"
call = { function = "datetime", arguments = { timezone = "UTC" } }
now = "2024-02-29T12:34:56Z"
expect = { item = { datetime = { contains = "2024-02-29T12:34:56" } } }
"#,
    );
}

#[test]
fn models_and_tools_answer_what_is_listed() {
    let cases = r#"
[[case]]
name = "two questions"
call = { function = "panel", arguments = { text = "[{\"input\": \"one\"}, {\"input\": \"two\"}]" } }
model = [
  { contains = "two", answer = { text = "second" } },
  { request = { input = "one" }, answer = { failure = { kind = "timeout", message = "late" } } },
]
expect = { item = { asked = 2 }, for_model = { contains = "second" } }

[[case]]
name = "a question too many"
call = { function = "question", arguments = { text = "{\"input\": \"three\"}" } }
model = [{ contains = "four", answer = { output = [] } }]
"#;
    let (found, _) = problems("tests/rogue/built", "tool-asker", cases);
    assert_eq!(found[0], Vec::<String>::new());
    assert_eq!(
        found[1],
        [
            "the question {\"input\": \"three\"} is not listed in `model`",
            "the question 1 of `model` was not asked",
        ]
    );
    let cases = r#"
[[case]]
name = "a tool is called"
request = { model = "m", input = "x" }
settings = { tool = "search", function = "find", arguments = "{\"q\": 1}" }
tools = [{ tool = "search", function = "find", arguments = { q = 1 }, answer = { text = "found" } }]
expect = { replace = { model = "m", instructions = "found" } }

[[case]]
name = "a tool fails"
request = { model = "m", input = "x" }
settings = { tool = "search", function = "find" }
tools = [{ tool = "search", answer = { error = "exhausted" } }]
expect = { replace = { instructions = "exhausted" } }
"#;
    passes("tests/rogue/built", "hook-caller", cases);
}

#[test]
fn deferred_functions_are_found_and_loaded() {
    passes(
        "plugins",
        "tool-tool-search",
        r#"
[[case]]
name = "the function for the weather"
call = { function = "tool_search", arguments = { query = "weather" } }
settings = { type = "tool_search" }
deferred = [
  { type = "function", name = "weather", description = "Tells the weather", parameters = {} },
  { type = "function", name = "mail", description = "Sends a letter", parameters = {} },
]
expect = { loaded = ["weather"] }
"#,
    );
}

#[test]
fn a_hook_sees_the_settings_of_the_operator() {
    let case = |config: &str, expect: &str| {
        format!(
            "[[case]]\nname = \"judged\"\nconfig = {{ rules = [{config}] }}\n\
             request = {{ model = \"m\", input = [{{ type = \"message\", role = \"user\", content = \
             [{{ type = \"input_text\", text = \"a bad word\" }}] }}] }}\nexpect = {{ {expect} }}\n"
        )
    };
    let rule = "{ pattern = \"bad\", reason = \"rude\" }";
    let rejected = "reject = { kind = \"content_policy_violation\", code = { contains = \"rude\" } }";
    let other = case("{ pattern = \"good\", reason = \"rude\" }", "action = \"pass\"");
    passes("plugins", "hook-moderation", &[case(rule, rejected), other].concat());
}

#[test]
fn a_hook_looks_at_answers() {
    passes(
        "tests/rogue/built",
        "hook-editor",
        r#"
[[case]]
name = "texts are replaced"
request = { model = "m", input = "x" }
response = { id = "r", output = [{ type = "message", content = [{ type = "output_text", text = "a" }] }] }
settings = { text = "b", set = { more = 1 } }
expect = { replace = { more = 1, output = [{ content = [{ text = "b" }] }] } }

[[case]]
name = "an answer is refused"
request = { model = "m", input = "x" }
response = { id = "r", output = [] }
settings = { reject = "not that" }
expect = { action = "reject", reject = { message = "not that" } }
"#,
    );
}

/// A stream of Chat Completions.
#[test]
fn what_a_hook_puts_in_place_is_checked_as_a_host_checks_it() {
    let request = |member: &str| {
        format!(
            "[[case]]\nname = \"a request\"\nrequest = {{ model = \"m\", input = \"x\"{member} }}\n\
             settings = {{ phase = \"on-request\" }}\n"
        )
    };
    let (found, _) = problems("tests/rogue/built", "hook-mirror", &request(", temperature = 99"));
    assert_eq!(found[0].len(), 1, "{found:?}");
    assert!(found[0][0].starts_with("the request that the hook made is refused: temperature"), "{found:?}");
    let cases = request("") + "[case.expect.replace]\ninput = { contains = \"\\\"stream\\\":false\" }\n";
    passes("tests/rogue/built", "hook-mirror", &cases);
    let (found, _) = problems(
        "tests/rogue/built",
        "hook-editor",
        "[[case]]\nname = \"no list\"\nrequest = { model = \"m\", input = \"x\" }\n\
         response = { id = \"r\", output = [] }\nsettings = { set = { output = 5 } }\n",
    );
    assert_eq!(found[0].len(), 1, "{found:?}");
    assert!(found[0][0].starts_with("the response that the hook made is refused: "), "{found:?}");
}

#[test]
fn a_hook_gets_its_id_a_model_and_whether_the_client_streams() {
    let case = "[[case]]\nname = \"bare\"\nrequest = { input = \"x\" }\nsettings = { phase = \"on-request\" }\n\
                expect = { replace = { input = { contains = \"\\\"settings\\\":{\\\"id\\\":\\\"mirror\\\"\" }, model = { contains = \"/\" }, stream = false } }\n";
    passes("tests/rogue/built", "hook-mirror", case);
}

#[test]
fn a_question_that_a_host_refuses_is_refused_in_a_case() {
    let case = |question: &str| {
        format!(
            "[[case]]\nname = \"asks\"\ncall = {{ function = \"question\", arguments = {{ text = '{question}' }} }}\n\
             model = [{{ answer = {{ text = \"never\" }}, optional = true }}]\n\
             expect = {{ for_model = {{ contains = \"InvalidRequest\" }} }}\n"
        )
    };
    let cases = [case("{\"input\":\"x\",\"temperature\":99}"), case("{}")].concat();
    let (found, _) = problems("tests/rogue/built", "tool-asker", &cases);
    assert!(found.iter().all(Vec::is_empty), "{found:?}");
}

#[test]
fn a_limit_of_an_import_that_is_exceeded_is_told() {
    let questions = format!("[{}]", ["{\\\"input\\\":\\\"x\\\"}"; 65].join(","));
    let case = format!(
        "[[case]]\nname = \"a\"\ncall = {{ function = \"panel\", arguments = {{ text = \"{questions}\" }} }}\n"
    );
    let (found, _) = problems("tests/rogue/built", "tool-asker", &case);
    let told = "plugin tool-asker broke a rule of the contract: model-panel.ask-all takes at most 64 questions a call";
    assert_eq!(found[0], [told]);
    let requests = |request: &str, count: usize| {
        let requests = vec![format!("{{ url = \"https://api.test/\"{request} }}"); count].join(", ");
        format!(
            "[[case]]\nname = \"a\"\ncall = {{ function = \"probe\", arguments = {{ requests = [{requests}] }} }}\n"
        )
    };
    let http = "http = [{ url = \"https://api.test/\", answer = {}, optional = true }]\n";
    let answers = |error: &str| format!("expect = {{ for_model = {{ contains = \"{error}\" }} }}\n");
    let cases = [
        requests(", redirects = 6", 1),
        http.to_owned(),
        answers("invalid"),
        requests("", 33),
        answers("exhausted"),
        requests(", timeout_ms = 0", 1),
        http.to_owned(),
        answers("timeout"),
    ];
    let report = report(&project("tests/rogue/built", "tool-probe", &cases.concat()), "tool-probe");
    let notes = |case: usize| report["cases"][case]["notes"].to_string();
    assert!(notes(0).contains("a plugin may have at most 5 redirects followed for one request"), "{report}");
    assert!(notes(1).contains("a plugin may send at most 32 requests in one call"), "{report}");
    assert_eq!(report["cases"][2]["problems"], json!([]), "{report}");
}

#[test]
fn a_router_orders_candidates_and_chooses_models() {
    let cases = r#"
[[case]]
name = "the client's order"
request = { preferences = { order = ["two", "one"] } }
candidates = [{ provider = "one", price = { input = 1 } }, { provider = "two", price = { input = 9 } }]
expect = { order = [1, 0] }
"#;
    passes("plugins", "router", cases);
    let cases = r#"
[[case]]
name = "an easy request"
[case.choose]
slug = "auto"
models = [
  { id = "v/small", price = { input = 0.1, output = 0.2 }, price_rank = 0.0 },
  { id = "v/large", price = { input = 10, output = 30 }, price_rank = 1.0 },
]
facts = { last_user_chars = 5, all_chars = 5, turns = 1 }
settings = { allowed_models = ["v/large"] }
[case.expect]
models = ["v/large"]
"#;
    passes("plugins", "router-auto", cases);
}

#[test]
fn a_plugin_that_traps_fails_the_suite_and_its_cases() {
    let (cases, suite) = problems(
        "tests/rogue/built",
        "tool-rogue",
        "[[case]]\nname = \"traps\"\ncall = { function = \"trap\" }\n\
         [[case]]\nname = \"no such function\"\ncall = { function = \"fly\" }\n\
         [[case]]\nname = \"reads the conversation\"\ncall = { function = \"look\", arguments = { text = \"x\" } }\n\
         transcript = [{ type = \"message\" }]\nexpect = { for_model = \"[{\\\"type\\\":\\\"message\\\"}]\" }\n",
    );
    assert!(cases[0][0].contains("tool-rogue"), "{cases:?}");
    assert!(cases[1][0].starts_with("the tool does not offer fly, it offers echo, cite"), "{cases:?}");
    assert_eq!(cases[2], Vec::<String>::new());
    assert!(suite.iter().any(|problem| problem.starts_with("\"empty input\": ")), "{suite:?}");
}

#[test]
fn the_report_has_a_line_for_each_check_and_the_sum() {
    let cases =
        "[[case]]\nname = \"the rhyme\"\ncall = { function = \"datetime\" }\nexpect = { item = { a = 1 } }\n";
    let workshop = project("plugins", "tool-datetime", cases);
    let complaint = workshop.complaint(&["plugin", "test", "tool-datetime"]);
    assert!(complaint.contains("ok     suite: empty input\n"), "{complaint}");
    let wrong = "wrong  the rhyme: item.a is missing, expected 1\n       tool-datetime/cases/a.toml:1\n";
    assert!(complaint.contains(wrong), "{complaint}");
    assert!(complaint.contains("\n5 passed, 1 failed\n"), "{complaint}");
    std::fs::remove_dir_all(workshop.path("tool-datetime/cases")).unwrap();
    let output = workshop.run(&["plugin", "test", "tool-datetime"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).starts_with("tool-datetime/cases has no cases\n"), "{}", text(&output));
}

/// Each case file is refused with its line and this text.
fn are_told(name: &str, mistakes: &[(&str, &str)]) {
    for (case, mistake) in mistakes {
        let workshop = project("plugins", name, &format!("[[case]]\n{case}\n"));
        let complaint = workshop.complaint(&["plugin", "test", name]);
        assert!(complaint.contains(&format!("{name}/cases/a.toml:{mistake}")), "{case}: {complaint}");
    }
}

#[test]
fn mistakes_in_the_script_of_a_case_are_told_with_their_line() {
    let answers = [
        ("answer = { error = \"late\" }", "4: there is no error \"late\"; there are denied, "),
        ("answer = { text = \"\", json = 1 }", "4: an answer has one of `text`, `json` and `base64`"),
        ("answer = { status = 99 }", "4: `status` takes a number from 200 to 599"),
        ("answer = { base64 = \"*\" }", "4: `base64` is not base64"),
        ("body = \"\", json = 1, answer = {}", "4: a request has `body` or `json`, not both"),
    ];
    for (answer, mistake) in answers {
        let case = format!("name = \"a\"\nhttp = [\n  {{ url = \"https://a.test/\", {answer} }},\n]");
        are_told("tool-datetime", &[(case.as_str(), mistake)]);
    }
    are_told(
        "tool-datetime",
        &[
            (
                "name = \"a\"\nhttp = [{ url = \"a\", answer = {} }]",
                "3: `url`: the URL must begin with https://",
            ),
            (
                "name = \"a\"\nmodel = [{ answer = {} }]",
                "3: an answer of a model has one of `text`, `output`",
            ),
            ("name = \"a\"\nsecrets = { k = [\"a b\"] }", "3: `secrets` takes lists of exact host names"),
            (
                "name = \"a\"\nsecrets = { k = [\"a.test\"] }",
                "1: `secrets` names k, which plugin.toml does not ask for",
            ),
        ],
    );
}

#[test]
fn mistakes_in_a_case_are_told_with_its_line_and_what_mends_them() {
    let tool = [
        ("name = \"a\"\nrespond = {}", "3: unknown field `respond`, expected one of `name`"),
        ("name = \"a\"\nexpect = { itme = 1 }", "3: `expect` has no `itme` here, it takes `item`"),
        ("name = \"a\"\ncall = { function = \"f\", arguments = \"{}\" }", "3: `arguments` takes a table"),
        ("name = \"a\"\nnow = \"today\"", "3: `now` takes a time such as \"2026-01-31T12:00:00Z\""),
    ];
    are_told("tool-datetime", &tool);
    let hook = [
        ("name = \"a\"\nrequest = {}\ncall = {}", "4: unknown field `call`, expected one of `name`"),
        (
            "name = \"a\"\nrequest = {}\nexpect = { item = 1 }",
            "4: `expect` has no `item` here, it takes `action`",
        ),
    ];
    are_told("hook-response-healing", &hook);
    let provider = [
        (
            "name = \"a\"\nrequest = {}\nupstream = \"../a\"",
            "4: `upstream` takes the path of a file in the folder",
        ),
        ("name = \"a\"\nrequest = {}\nupstream = \"a.sse\"", "4: provider-demo/cases/a.sse: "),
        ("name = \"a\"", "2: the case of a provider has one of `request` and `embeddings`"),
    ];
    are_told("provider-demo", &provider);
    are_told("router", &[("name = \"a\"", "2: the case of a router has one of `candidates` and `choose`")]);
}

#[test]
fn every_built_in_plugin_passes_the_suite() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".wasm").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    let wrong: Vec<Value> = names
        .iter()
        .map(|name| (name, report(&project("plugins", name, ""), name)))
        .filter(|(_, report)| report["failed"] != 0)
        .map(|(name, report)| json!({"name": name, "suite": report["suite"]}))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
