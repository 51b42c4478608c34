//! Server tools that `plugins` and slugs ask for.

use super::super::{Ability, ToolPath};

use super::{accepted, body_with};
use cofferdam_protocol::ToolKind;
use serde_json::{Value, json};

fn with_plugins(plugins: &Value) -> Value {
    body_with(&json!({"plugins": plugins}))
}

/// The tools that are added for a request, as path, name and parameters, on a host that has every
/// tool.
fn added(body: &Value) -> Vec<(ToolPath, String, Value)> {
    let mut request = accepted(body);
    request.add_plugin_tools(|_| true, |slug| slug.ends_with(":online")).unwrap();
    assert_eq!(request.needs.contains(&Ability::Tools), !request.tools.is_empty());
    let tool = |tool: super::super::RequestTool| {
        let ToolKind::Server(name) = tool.kind else { panic!("{tool:?}") };
        (tool.source.path, name, serde_json::from_slice(&tool.settings).unwrap())
    };
    request.tools.into_iter().map(tool).collect()
}

#[test]
fn plugin_entries_become_tools_with_renamed_parameters() {
    let web = json!({"id": "web", "engine": "exa", "mode": "auto", "max_results": 3, "max_uses": 2,
        "include_domains": ["a.b"], "exclude_domains": null, "search_prompt": "p",
        "user_location": {"country": "DE"}, "x_search": {}});
    let fetch = json!({"id": "web-fetch", "enabled": true, "blocked_domains": ["c.d"], "max_uses": 1});
    let fusion = json!({"id": "fusion", "preset": "general-fast", "analysis_models": ["a/b"]});
    let words = json!({"engine": "exa", "mode": "auto", "max_results": 3, "max_uses": 2,
        "allowed_domains": ["a.b"], "user_location": {"country": "DE"}, "x_search": {}});
    assert_eq!(
        added(&with_plugins(&json!([fusion, {"id": "moderation"}, web, fetch]))),
        [
            (ToolPath::Plugins(2), "web_search".to_owned(), words),
            (
                ToolPath::Plugins(3),
                "web_fetch".to_owned(),
                json!({"blocked_domains": ["c.d"], "max_uses": 1})
            ),
            (
                ToolPath::Plugins(0),
                "fusion".to_owned(),
                json!({"preset": "general-fast", "analysis_models": ["a/b"]})
            ),
        ]
    );
}

#[test]
fn online_slugs_add_web_search_unless_an_entry_configures_it() {
    let online = |members: Value| {
        let mut body = body_with(&members);
        body["model"] = json!("a/b:online");
        added(&body)
    };
    assert_eq!(online(json!({})), [(ToolPath::Model, "web_search".to_owned(), json!({}))]);
    let entry = json!({"plugins": [{"id": "web", "max_results": 2}]});
    assert_eq!(online(entry), [(ToolPath::Plugins(0), "web_search".to_owned(), json!({"max_results": 2}))]);
    assert_eq!(online(json!({"plugins": [{"id": "web", "enabled": false}]})), []);
    let tools = json!({"tools": [{"type": "openrouter:web_search", "parameters": {"max_uses": 1}}],
        "plugins": [{"id": "web", "max_uses": 9}]});
    assert_eq!(online(tools), [(ToolPath::Tools(0), "web_search".to_owned(), json!({"max_uses": 1}))]);
}

#[test]
fn missing_tools_are_refused_with_the_path_that_asks_for_them() {
    for (body, message) in [
        (
            with_plugins(&json!([{"id": "moderation"}, {"id": "web"}])),
            "plugins[1].id \"web\" is not available on this host",
        ),
        (with_plugins(&json!([{"id": "fusion"}])), "plugins[0].id \"fusion\" is not available on this host"),
        (body_with(&json!({})), "model asks for web search (:online), which is not available on this host"),
    ] {
        let mut request = accepted(&body);
        let is_online = |_: &str| body.get("plugins").is_none();
        assert_eq!(request.add_plugin_tools(|_| false, is_online).unwrap_err().to_string(), message);
    }
    let mut request = accepted(&with_plugins(&json!([{"id": "web", "enabled": false}])));
    request.add_plugin_tools(|_| false, |_| true).unwrap();
}

#[test]
fn tool_errors_name_the_members_of_the_plugin_entry() {
    let mut request = accepted(&with_plugins(&json!([{"id": "web", "include_domains": ["x"]}])));
    request.add_plugin_tools(|_| true, |_| false).unwrap();
    let source = request.tools[0].source;
    for (complaint, told) in [
        ("parameters.allowed_domains takes domains", "plugins[0].include_domains takes domains"),
        ("parameters.max_results must be a number", "plugins[0].max_results must be a number"),
        ("parameters.user_location.city is odd", "plugins[0].user_location.city is odd"),
        ("parameters takes one of them", "plugins[0] takes one of them"),
        ("is odd", "plugins[0].is odd"),
    ] {
        assert_eq!(source.complaint(complaint), told);
    }
    let request = accepted(&body_with(&json!({"tools": [{"type": "service:web_search"}]})));
    let told = request.tools[0].source.complaint("parameters.engine is odd");
    assert_eq!(told, "tools[0].parameters.engine is odd");
}
