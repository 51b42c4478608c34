use super::{PromptRole, PromptTemplate, Prompts, TextPiece, pieces};
use crate::request::{InvalidKind, InvalidRequest, RequestBounds, ResponsesRequest};
use proptest::prelude::*;
use serde_json::{Value, json};

fn template(id: &str, version: Option<&str>, messages: &[(PromptRole, &str)]) -> PromptTemplate {
    let messages = messages.iter().map(|(role, text)| (*role, (*text).to_owned())).collect();
    PromptTemplate::new(id.to_owned(), version.map(str::to_owned), messages)
}

fn prompts() -> Prompts {
    use PromptRole::{Assistant, Developer, System, User};
    Prompts::new(vec![
        template("greet", Some("1"), &[(Developer, "Old.")]),
        template(
            "greet",
            Some("2"),
            &[(Developer, "Greet {{ name }} {{tone}}, {{name}}!"), (User, "Hello.")],
        ),
        template("look", None, &[(System, "Look."), (User, "See {{thing}} and say {{what}}")]),
        template("strict", None, &[(System, "{{doc}}"), (Assistant, "ok")]),
    ])
}

fn parse(body: &Value) -> Result<ResponsesRequest, InvalidRequest> {
    ResponsesRequest::parse_with(body.to_string().as_bytes(), &[], &prompts(), RequestBounds::default())
}

fn messages(prompt: Value, input: Value) -> Value {
    let request = parse(&json!({"model": "m", "prompt": prompt, "input": input})).unwrap();
    let guest: Value = serde_json::from_slice(&request.guest_json).unwrap();
    assert_eq!(guest.get("prompt"), None, "guests see messages only");
    let echo: Value = serde_json::from_str(&format!("{{{}}}", request.echo)).unwrap();
    assert_eq!(echo["prompt"], prompt);
    guest["input"].clone()
}

fn message(role: &str, content: &Value) -> Value {
    json!({"type": "message", "role": role, "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

#[test]
fn template_messages_come_before_the_input() {
    let variables = json!({"name": "A \"B\" {{tone}}", "tone": {"type": "input_text", "text": "warmly"}});
    let found = messages(json!({"id": "greet", "variables": variables}), json!("Bye"));
    let greeting = text("Greet A \"B\" {{tone}} warmly, A \"B\" {{tone}}!");
    let expected = json!([
        message("developer", &json!([greeting])),
        message("user", &json!([text("Hello.")])),
        message("user", &json!([text("Bye")])),
    ]);
    assert_eq!(found, expected);
    let old = messages(json!({"id": "greet", "version": "1"}), json!([{"role": "user", "content": "x"}]));
    assert_eq!(old[0], message("developer", &json!([text("Old.")])));
    assert_eq!(old[1], message("user", &json!([text("x")])));
}

#[test]
fn a_template_without_input_is_accepted() {
    let found = messages(json!({"id": "greet", "version": "1"}), Value::Null);
    assert_eq!(found, json!([message("developer", &json!([text("Old.")]))]));
    let request = parse(&json!({"model": "m", "prompt": {"id": "greet", "version": "1"}})).unwrap();
    assert_eq!((request.facts.turns, request.input_tokens), (1, 1));
    assert_eq!(parse(&json!({"model": "m"})).unwrap_err().to_string(), "input is required");
    let greeting = messages(json!({"id": "greet", "version": "1"}), json!([]));
    assert_eq!(greeting, json!([message("developer", &json!([text("Old.")]))]), "an empty list is no input");
    let empty = parse(&json!({"model": "m", "input": []})).unwrap_err();
    assert_eq!(empty.to_string(), "input must hold at least 1 item");
}

#[test]
fn pictures_and_files_become_parts_of_a_users_message() {
    let image = json!({"type": "input_image", "image_url": "https://x.test/a.png"});
    let marked = json!({"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}});
    let found = messages(json!({"id": "look", "variables": {"thing": image, "what": marked}}), Value::Null);
    assert_eq!(found[1], message("user", &json!([text("See "), image, text(" and say "), marked])));
    let variables = json!({"thing": image, "what": "x"});
    let request = parse(&json!({"model": "m", "prompt": {"id": "look", "variables": variables}})).unwrap();
    assert_eq!(request.needs.len(), 1, "an endpoint without pictures is no candidate");
}

#[test]
fn errors_name_the_template_version_or_variable() {
    let file = json!({"type": "input_file", "file_id": "f"});
    for (prompt, message) in [
        (json!({"id": "no"}), "prompt.id names no prompt template of this host: \"no\""),
        (
            json!({"id": "greet", "version": "9"}),
            "prompt.version names no version of this prompt template: \"9\"",
        ),
        (
            json!({"id": "look", "version": "1"}),
            "prompt.version names no version of this prompt template: \"1\"",
        ),
        (
            json!({"id": "greet", "variables": {"name": "x"}}),
            "prompt.variables.tone is required by this prompt template",
        ),
        (json!({"id": "greet"}), "prompt.variables.name is required by this prompt template"),
        (
            json!({"id": "greet", "variables": {"name": "x", "tone": "y", "nmae": "z"}}),
            "prompt.variables.nmae is not used by this prompt template",
        ),
        (
            json!({"id": "strict", "variables": {"doc": file}}),
            "prompt.variables.doc must be text: the template uses it in a system message",
        ),
        (
            json!({"id": "greet", "variables": {"name": 1}}),
            "prompt.variables.name must be a string or an object, not a number",
        ),
    ] {
        let error = parse(&json!({"model": "m", "input": "x", "prompt": prompt})).unwrap_err();
        assert_eq!(error.to_string(), message);
        let missing = message.contains("names no");
        assert_eq!(error.kind == InvalidKind::NotFound, missing, "{message}");
    }
    let body = json!({"model": "m", "input": [{"role": "x", "content": ""}], "prompt": {"id": "greet", "version": "1"}});
    let error = parse(&body).unwrap_err().to_string();
    assert!(error.starts_with("input[0].role "), "paths are those of the client's own body: {error}");
}

#[test]
fn only_names_in_two_braces_are_variables() {
    let variable = |name: &str| TextPiece::Variable(name.to_owned());
    let text = |text: &str| TextPiece::Text(text.to_owned());
    let long = format!("{{{{{}}}}}", "a".repeat(65));
    for (template, expected) in [
        ("", vec![]),
        ("{{a}}{{ b_1 }}", vec![variable("a"), variable("b_1")]),
        ("x {{a}} y", vec![text("x "), variable("a"), text(" y")]),
        ("{{{a}}}", vec![text("{"), variable("a"), text("}")]),
        ("{a} {{1}} {{a b}} {{}}", vec![text("{a} {{1}} {{a b}} {{}}")]),
        ("{{ {{a}}", vec![text("{{ "), variable("a")]),
        ("{{a", vec![text("{{a")]),
        (&long, vec![text(&long)]),
    ] {
        assert_eq!(pieces(template), expected, "{template}");
    }
}

proptest! {
    #[test]
    fn any_template_and_any_value_make_a_valid_request(template_text in ".{0,40}", pattern in "[{} a-c]{0,24}", value in ".{0,20}") {
        for template_text in [template_text, pattern] {
            let template = template("t", None, &[(PromptRole::User, &template_text)]);
            let names: Vec<String> = ["a", "b", "c", "ab"].iter().filter(|name| template.uses(name)).map(|name| (*name).to_owned()).collect();
            let used: usize = template.messages[0].1.iter().filter(|piece| matches!(piece, TextPiece::Variable(_))).count();
            let variables: Value = names.iter().map(|name| (name.clone(), json!(value))).collect::<serde_json::Map<_, _>>().into();
            let body = json!({"model": "m", "input": "x", "prompt": {"id": "t", "variables": variables}}).to_string();
            let parsed = ResponsesRequest::parse_with(body.as_bytes(), &[], &Prompts::new(vec![template]), RequestBounds::default());
            if let Ok(request) = parsed {
                let guest: Value = serde_json::from_slice(&request.guest_json).unwrap();
                prop_assert_eq!(guest["input"].as_array().unwrap().len(), 2);
            } else {
                prop_assert!(used > 0);
            }
        }
    }
}
