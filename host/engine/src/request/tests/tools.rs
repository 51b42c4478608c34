//! Tools, tool choice and plugins.

use super::super::{Hosted, Meaning, ResponsesRequest, ToolChoice, ToolPath};

use super::{accepted, body_of_item, body_with, refused};
use cofferdam_protocol::{ToolClass, ToolKind, ToolPrefix};
use serde_json::{Value, json};

fn with_tool(tool: &Value) -> Value {
    body_with(&json!({"tools": [tool]}))
}

#[test]
fn every_tool_of_clients_and_providers_is_known() {
    let table = [
        (
            json!({"type": "function", "name": "f", "parameters": {"type": "object"}, "description": "d",
            "strict": true, "async": false, "defer_loading": true}),
            ToolKind::Function,
        ),
        (
            json!({"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}),
            ToolKind::Custom,
        ),
        (json!({"type": "custom", "name": "c", "format": {"type": "text"}}), ToolKind::Custom),
        (
            json!({"type": "namespace", "name": "n", "description": "d",
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "c"}]}),
            ToolKind::Namespace,
        ),
        (json!({"type": "web_search_preview", "search_context_size": "low"}), ToolKind::WebSearch),
        (json!({"type": "web_search_preview_2025_03_11"}), ToolKind::WebSearch),
        (
            json!({"type": "web_search", "engine": "exa", "filters": {"allowed_domains": ["a.b"]}, "max_results": 3,
            "user_location": {"type": "approximate", "city": null, "country": "DE"}}),
            ToolKind::WebSearch,
        ),
        (json!({"type": "web_search_2025_08_26", "external_web_access": true}), ToolKind::WebSearch),
        (
            json!({"type": "file_search", "vector_store_ids": ["v"], "max_num_results": 50}),
            ToolKind::FileSearch,
        ),
        (
            json!({"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "mac"}),
            ToolKind::ComputerUsePreview,
        ),
        (
            json!({"type": "code_interpreter", "container": {"type": "auto", "file_ids": []}}),
            ToolKind::CodeInterpreter,
        ),
        (json!({"type": "code_interpreter", "container": "cntr_1"}), ToolKind::CodeInterpreter),
        (
            json!({"type": "mcp", "server_label": "l", "server_url": "https://a", "headers": {"a": "b"},
            "allowed_tools": ["t"], "require_approval": "never"}),
            ToolKind::Mcp,
        ),
        (
            json!({"type": "mcp", "server_label": "l", "connector_id": "c", "allowed_tools": {"tool_names": ["t"]},
            "require_approval": {"never": {}}}),
            ToolKind::Mcp,
        ),
        (
            json!({"type": "image_generation", "quality": "auto", "partial_images": 3}),
            ToolKind::ImageGeneration,
        ),
        (json!({"type": "local_shell"}), ToolKind::LocalShell),
        (json!({"type": "shell", "environment": {"type": "local"}}), ToolKind::Shell),
        (json!({"type": "apply_patch"}), ToolKind::ApplyPatch),
    ];
    for (tool, kind) in table {
        let request = accepted(&with_tool(&tool));
        let parsed = &request.tools[0];
        assert_eq!(parsed.kind, kind, "{tool}");
        assert_eq!(parsed.type_name, tool["type"].as_str().unwrap());
        assert_eq!(serde_json::from_slice::<Value>(&parsed.json).unwrap(), tool);
        assert_ne!(parsed.kind.class(), ToolClass::Server);
        assert_eq!((parsed.prefix, parsed.settings.len()), (None, 0));
    }
}

#[test]
fn tools_keep_their_place_and_name() {
    let request = accepted(&body_with(&json!({"tools": [
        {"type": "function", "name": "f"}, {"type": "shell"}, {"type": "mcp", "server_label": "l", "server_url": "u"},
    ]})));
    let names: Vec<_> = request.tools.iter().map(|tool| (tool.source.path, tool.name.as_deref())).collect();
    let place = ToolPath::Tools;
    assert_eq!(names, [(place(0), Some("f")), (place(1), None), (place(2), Some("l"))]);
}

#[test]
fn server_tools_are_known_under_both_prefixes() {
    let table = [
        ("datetime", json!({"timezone": "Europe/Berlin"})),
        (
            "web_search",
            json!({"engine": "auto", "max_results": 25, "max_characters": 100_000,
            "allowed_domains": ["a.b"], "excluded_domains": []}),
        ),
        ("web_fetch", json!({"engine": "openrouter", "max_uses": 1, "blocked_domains": ["a"]})),
        ("tool_search", json!({"max_results": 50})),
        ("experimental__search_models", json!({"max_results": 20})),
        ("image_generation", json!({"model": "a/b", "size": "1K"})),
        ("files", json!({})),
        (
            "advisor",
            json!({"name": "n", "model": "a/b", "stream": true, "temperature": 0.5,
            "reasoning": {"effort": "max"}, "max_completion_tokens": 5}),
        ),
        (
            "subagent",
            json!({"max_tool_calls": 25, "tools": [{"type": "openrouter:datetime"}],
            "inherit_functions": true}),
        ),
        ("fusion", json!({"analysis_models": ["a", "b"], "max_tool_calls": 16})),
        ("apply_patch", json!({"engine": "native"})),
        ("shell", json!({"engine": "auto", "environment": {"type": "container_auto"}})),
        ("bash", json!({"engine": "auto"})),
        ("a_third_partys", json!({"own": [1]})),
    ];
    for (name, parameters) in table {
        for prefix in [ToolPrefix::Service, ToolPrefix::OpenRouter] {
            let tool = json!({"type": format!("{}{name}", prefix.as_str()), "parameters": parameters});
            let request = accepted(&with_tool(&tool));
            let parsed = &request.tools[0];
            assert_eq!(parsed.kind, ToolKind::Server(name.to_owned()));
            assert_eq!((parsed.kind.class(), parsed.prefix), (ToolClass::Server, Some(prefix)));
            assert_eq!(serde_json::from_slice::<Value>(&parsed.settings).unwrap(), parameters);
        }
    }
    let request = accepted(&with_tool(&json!({"type": "tool_search", "execution": "client"})));
    assert_eq!((&request.tools[0].kind, request.tools[0].prefix), (&ToolKind::ToolSearch, None));
    let request = accepted(&with_tool(&json!({"type": "tool_search"})));
    assert_eq!(request.tools[0].kind, ToolKind::Server("tool_search".to_owned()));
    assert_eq!((request.tools[0].prefix, request.tools[0].settings.as_ref()), (None, &b"{}"[..]));
}

#[test]
fn faulty_tools_are_refused_by_path() {
    let table = [
        (json!({"type": "telepathy"}), "tools[0].type names an unknown tool type: \"telepathy\""),
        (json!({"type": "openrouter:"}), "tools[0].type names an unknown tool type: \"openrouter:\""),
        (json!({"name": "f"}), "tools[0].type is required"),
        (json!("function"), "tools[0] must be an object, not a string"),
        (json!({"type": "function"}), "tools[0].name is required"),
        (json!({"type": "function", "name": ""}), "tools[0].name must not be empty"),
        (json!({"type": "function", "function": {"name": "f"}}), "tools[0].name is required"),
        (
            json!({"type": "function", "name": "f", "parameters": []}),
            "tools[0].parameters must be an object, not an array",
        ),
        (
            json!({"type": "function", "name": "f", "strict": "yes"}),
            "tools[0].strict must be a boolean, not a string",
        ),
        (
            json!({"type": "custom", "name": "c", "format": {"type": "xml"}}),
            "tools[0].format.type names an unknown custom tool format: \"xml\"",
        ),
        (
            json!({"type": "namespace", "name": "n", "tools": [{"type": "shell"}]}),
            "tools[0].tools[0].type names an unknown type of a tool in a namespace: \"shell\"",
        ),
        (json!({"type": "mcp", "server_label": "l"}), "tools[0] needs server_url or connector_id"),
        (
            json!({"type": "web_search", "max_results": 0}),
            "tools[0].max_results must be an integer of at least 1",
        ),
        (
            json!({"type": "computer_use_preview", "display_width": 1, "display_height": 1, "environment": "amiga"}),
            "tools[0].environment must be one of windows, mac, linux, ubuntu, browser",
        ),
        (
            json!({"type": "service:web_search", "parameters": {"max_results": 26}}),
            "tools[0].parameters.max_results must be an integer from 1 to 25",
        ),
        (
            json!({"type": "service:web_search", "parameters": {"allowed_domains": ["a"], "excluded_domains": ["b"]}}),
            "tools[0].parameters takes allowed_domains or excluded_domains, not both",
        ),
        (
            json!({"type": "service:mine", "parameters": 1}),
            "tools[0].parameters must be an object, not a number",
        ),
    ];
    for (tool, message) in table {
        assert_eq!(refused(&with_tool(&tool)), message);
    }
    assert_eq!(refused(&body_with(&json!({"tools": {}}))), "tools must be an array, not an object");
}

#[test]
fn every_tool_choice_is_understood() {
    let tools = json!([
        {"type": "function", "name": "f"}, {"type": "custom", "name": "c"},
        {"type": "mcp", "server_label": "l", "server_url": "u"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "inner"}]},
    ]);
    let table = [
        (json!("auto"), ToolChoice::Auto),
        (json!("none"), ToolChoice::None),
        (json!("required"), ToolChoice::Required),
        (json!({"type": "function", "name": "f"}), ToolChoice::Function("f".to_owned())),
        (json!({"type": "function", "name": "inner"}), ToolChoice::Function("inner".to_owned())),
        (json!({"type": "custom", "name": "c"}), ToolChoice::Custom("c".to_owned())),
        (
            json!({"type": "mcp", "server_label": "l", "name": null}),
            ToolChoice::Mcp { server_label: "l".to_owned(), name: None },
        ),
        (
            json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]}),
            ToolChoice::Allowed {
                required: true,
                tools: (&br#"[{"type":"function","name":"f"}]"#[..]).into(),
            },
        ),
        (json!({"type": "web_search_preview"}), ToolChoice::Type("web_search_preview".to_owned())),
        (
            json!({"type": "web_search_preview_2025_03_11"}),
            ToolChoice::Type("web_search_preview_2025_03_11".to_owned()),
        ),
        (json!({"type": "shell"}), ToolChoice::Type("shell".to_owned())),
        (json!({"type": "apply_patch"}), ToolChoice::Type("apply_patch".to_owned())),
        (json!({"type": "tool_search"}), ToolChoice::Type("tool_search".to_owned())),
        (json!({"type": "service:datetime"}), ToolChoice::Type("service:datetime".to_owned())),
    ];
    for (choice, expected) in table {
        let request = accepted(&body_with(&json!({"tools": tools, "tool_choice": choice})));
        assert_eq!(request.tool_choice, expected, "{choice}");
    }
}

#[test]
fn faulty_tool_choices_are_refused_by_path() {
    let table = [
        (json!("any"), "tool_choice must be one of auto, none, required"),
        (json!(1), "tool_choice must be a string or an object, not a number"),
        (json!({"name": "f"}), "tool_choice.type is required"),
        (json!({"type": "function"}), "tool_choice.name is required"),
        (
            json!({"type": "function", "name": "g"}),
            "tool_choice.name names a tool of type function that is not in tools: \"g\"",
        ),
        (
            json!({"type": "custom", "name": "f"}),
            "tool_choice.name names a tool of type custom that is not in tools: \"f\"",
        ),
        (
            json!({"type": "mcp", "server_label": "x"}),
            "tool_choice.server_label names a tool of type mcp that is not in tools: \"x\"",
        ),
        (json!({"type": "telepathy"}), "tool_choice.type names an unknown tool choice: \"telepathy\""),
        (
            json!({"type": "allowed_tools", "mode": "none", "tools": []}),
            "tool_choice.mode must be one of auto, required",
        ),
        (json!({"type": "allowed_tools", "mode": "auto"}), "tool_choice.tools is required"),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]}),
            "tool_choice.tools[0].type is required",
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto",
                "tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "g"}]}),
            "tool_choice.tools[1].name names a tool of type function that is not in tools: \"g\"",
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "x"}]}),
            "tool_choice.tools[0].server_label names a tool of type mcp that is not in tools: \"x\"",
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "allowed_tools"}]}),
            "tool_choice.tools[0].type names an unknown tool choice: \"allowed_tools\"",
        ),
    ];
    for (choice, message) in table {
        let body = body_with(&json!({"tools": [{"type": "function", "name": "f"}], "tool_choice": choice}));
        assert_eq!(refused(&body), message);
    }
}

#[test]
fn tools_that_come_as_input_items_may_be_chosen() {
    let mut body =
        body_of_item(&json!({"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}));
    body["tool_choice"] = json!({"type": "function", "name": "g"});
    assert_eq!(accepted(&body).tool_choice, ToolChoice::Function("g".to_owned()));
}

#[test]
fn every_plugin_is_known() {
    let list = json!([
        {"id": "auto-router", "enabled": true, "allowed_models": ["a/*"], "excluded_models": ["*/b"],
            "cost_tier": "xhigh", "cost_quality_tradeoff": 10, "pin_model": true},
        {"id": "auto-beta-router", "cost_tier": "low"},
        {"id": "jev-router", "models": ["a"], "allowed_models": ["b"]},
        {"id": "switchyard-router", "algorithm": "stage"},
        {"id": "pareto-router", "min_coding_score": 0.5, "max_price": 3, "price_source": "prompt"},
        {"id": "fusion", "preset": "general-fast", "analysis_models": ["a"], "max_tool_calls": 16},
        {"id": "moderation"},
        {"id": "web", "engine": "native", "max_results": 5, "include_domains": ["a.b"]},
        {"id": "web-fetch", "max_uses": 1},
        {"id": "file-parser", "pdf": {"engine": "pdf-text"}},
        {"id": "response-healing", "enabled": false},
        {"id": "context-compression", "engine": "middle-out"},
        {"id": "alignment", "rules": ["its hook checks them"]},
    ]);
    let request = accepted(&body_with(&json!({"plugins": list})));
    let list = list.as_array().unwrap();
    assert_eq!(request.plugins.len(), list.len());
    for (index, (plugin, sent)) in request.plugins.iter().zip(list).enumerate() {
        assert_eq!((plugin.index, plugin.id.as_str()), (Some(index), sent["id"].as_str().unwrap()));
        assert_eq!(plugin.enabled, plugin.id != "response-healing");
        assert_eq!(&serde_json::from_slice::<Value>(&plugin.json).unwrap(), sent);
    }
}

#[test]
fn faulty_plugins_are_refused_by_path() {
    let many: Vec<String> = (0..1025).map(|n| n.to_string()).collect();
    let long: Vec<String> = (0..80).map(|_| "x".repeat(1000)).collect();
    let table = [
        (json!([{"id": "web"}, {"id": "telepathy"}]), "plugins[1].id names an unknown plugin: \"telepathy\""),
        (json!([{"enabled": true}]), "plugins[0].id is required"),
        (json!([{"id": "web"}, {"id": "web"}]), "plugins[1].id names a plugin a second time: \"web\""),
        (json!([{"id": "alignment", "enabled": 1}]), "plugins[0].enabled must be a boolean, not a number"),
        (
            json!([{"id": "auto-router", "cost_tier": "huge"}]),
            "plugins[0].cost_tier must be one of low, medium, high, xhigh, max",
        ),
        (
            json!([{"id": "auto-router", "allowed_models": many}]),
            "plugins[0].allowed_models must hold at most 1024 elements",
        ),
        (
            json!([{"id": "auto-router", "allowed_models": ["x".repeat(1025)]}]),
            "plugins[0].allowed_models[0] must have at most 1024 characters",
        ),
        (
            json!([{"id": "auto-router", "allowed_models": long}]),
            "plugins[0] has patterns of more than 65536 characters in total",
        ),
        (
            json!([{"id": "pareto-router", "min_coding_score": 1.5}]),
            "plugins[0].min_coding_score must be a number from 0 to 1",
        ),
        (json!({"id": "web"}), "plugins must be an array, not an object"),
        (json!(["web"]), "plugins[0] must be an object, not a string"),
    ];
    for (plugins, message) in table {
        assert_eq!(refused(&body_with(&json!({"plugins": plugins}))), message);
    }
}

#[test]
fn an_installed_hook_does_not_loosen_the_rules_of_a_known_plugin() {
    let body = body_with(&json!({"plugins": [{"id": "web", "engine": "none"}]})).to_string();
    let error = ResponsesRequest::parse(body.as_bytes(), &["web".to_owned()]).unwrap_err();
    assert_eq!(error.path, "plugins[0].engine");
}

#[test]
fn hosted_tools_are_found_with_their_members() {
    let request = accepted(&body_with(&json!({"tools": [
        {"type": "function", "name": "f", "later": 1},
        {"type": "web_search", "engine": "native", "max_uses": null, "filters": {"allowed_domains": []}},
        {"type": "mcp", "server_label": "l", "server_url": "u", "connector_id": "c", "headers": {"x_id": "1"}},
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f1", "f2"], "memory_limit": "4g"}},
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "c1"}},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "service:web_search"}
    ]})));
    let told = |hosted: &Hosted| {
        let members = hosted.members.iter().map(|member| match &member.means {
            Meaning::Setting => member.name.clone(),
            Meaning::Unknown => format!("{}?", member.name),
            Meaning::Stored(id) => format!("{}={id}", member.name),
        });
        format!("{} {}", hosted.path, members.collect::<Vec<_>>().join(" "))
    };
    let found: Vec<String> = request.hosted().map(told).collect();
    assert_eq!(
        found,
        [
            "tools[1] filters",
            "tools[2] server_label server_url connector_id=c headers",
            "tools[3] container.file_ids=f1 container.file_ids=f2 container.memory_limit?",
            "tools[4] environment.container_id=c1 environment",
        ]
    );
}

#[test]
fn provider_tools_and_files_in_items_are_limited() {
    let body = |count: usize| {
        let tools = vec![json!({"type": "web_search"}); count];
        body_with(&json!({"input": [{"type": "tool_search_output", "call_id": "c", "tools": tools},
            {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}))
    };
    let most = accepted(&body(127));
    assert_eq!((most.hosted_items.len(), most.brought.len()), (1, 127));
    assert_eq!(refused(&body(128)), "input must hold at most 128 tools and files of a provider");
}
