//! Tools that a client or a provider runs. The parameters of server tools are in `server_tools`.

use crate::request::invalid::InvalidRequest;
use crate::request::json::JsonValue;
use crate::request::rule::{
    COUNT, NAME, NAMES, OPEN_OBJECT, Shape, TEXT, TaggedRule, ValueRule, optional, required,
};

/// The limit is above that of every provider, so that the provider decides.
const TOOL_NAME: ValueRule = ValueRule::Text { min: 1, max: 256 };

const FUNCTION: Shape = Shape::of(&[
    required("name", TOOL_NAME),
    optional("parameters", OPEN_OBJECT),
    optional("description", TEXT),
    optional("strict", ValueRule::Bool),
    optional("async", ValueRule::Bool),
    optional("defer_loading", ValueRule::Bool),
]);

const CUSTOM_FORMATS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "custom tool format",
    variants: &[
        ("text", Shape::of(&[])),
        (
            "grammar",
            Shape::of(&[
                required("syntax", ValueRule::OneOf(&["lark", "regex"])),
                required("definition", TEXT),
            ]),
        ),
    ],
};

const CUSTOM: Shape = Shape::of(&[
    required("name", TOOL_NAME),
    optional("description", TEXT),
    optional("format", ValueRule::Tagged(&CUSTOM_FORMATS)),
    optional("defer_loading", ValueRule::Bool),
]);

const NAMESPACED: TaggedRule = TaggedRule {
    tag: "type",
    noun: "type of a tool in a namespace",
    variants: &[("function", FUNCTION), ("custom", CUSTOM)],
};

const NAMESPACE: Shape = Shape::of(&[
    required("name", TOOL_NAME),
    optional("description", TEXT),
    required("tools", ValueRule::List { of: &ValueRule::Tagged(&NAMESPACED), min: 1, max: 1024 }),
]);

/// `search_context_size` in all forms of web search.
pub(super) const CONTEXT_SIZE: ValueRule = ValueRule::OneOf(&["low", "medium", "high"]);

/// The user's approximate location.
pub(super) const USER_LOCATION: ValueRule = ValueRule::Object(&Shape::of(&[
    optional("type", ValueRule::OneOf(&["approximate"])),
    optional("city", TEXT),
    optional("country", TEXT),
    optional("region", TEXT),
    optional("timezone", TEXT),
]));

pub(super) const SEARCH_ENGINE: ValueRule =
    ValueRule::OneOf(&["auto", "native", "exa", "firecrawl", "parallel", "perplexity", "searxng", "brave"]);

const WEB_SEARCH: Shape = Shape::of(&[
    optional("engine", SEARCH_ENGINE),
    optional(
        "filters",
        ValueRule::Object(&Shape::of(&[
            optional("allowed_domains", NAMES),
            optional("blocked_domains", NAMES),
            optional("excluded_domains", NAMES),
        ])),
    ),
    optional("external_web_access", ValueRule::Bool),
    optional("max_results", COUNT),
    optional("max_uses", COUNT),
    optional("mode", TEXT),
    optional("search_context_size", CONTEXT_SIZE),
    optional("user_location", USER_LOCATION),
    optional("x_search", OPEN_OBJECT),
]);

const FILE_SEARCH: Shape = Shape::of(&[
    required("vector_store_ids", NAMES),
    optional("filters", OPEN_OBJECT),
    optional("max_num_results", ValueRule::Integer { min: 1, max: 50 }),
    optional("ranking_options", OPEN_OBJECT),
]);

const COMPUTER_USE: Shape = Shape::of(&[
    required("display_width", COUNT),
    required("display_height", COUNT),
    required("environment", ValueRule::OneOf(&["windows", "mac", "linux", "ubuntu", "browser"])),
]);

const CODE_INTERPRETER: Shape = Shape::of(&[required(
    "container",
    ValueRule::Either(&[
        NAME,
        ValueRule::Object(&Shape::of(&[
            required("type", ValueRule::OneOf(&["auto"])),
            optional("file_ids", NAMES),
        ])),
    ]),
)]);

const MCP: Shape = Shape {
    fields: &[
        required("server_label", TOOL_NAME),
        optional("server_url", NAME),
        optional("connector_id", NAME),
        optional("server_description", TEXT),
        optional("authorization", TEXT),
        optional("headers", ValueRule::Map(&TEXT)),
        optional("allowed_tools", ValueRule::Either(&[NAMES, OPEN_OBJECT])),
        optional(
            "require_approval",
            ValueRule::Either(&[ValueRule::OneOf(&["always", "never"]), OPEN_OBJECT]),
        ),
    ],
    also: Some(mcp_has_server),
};

const IMAGE_GENERATION: Shape = Shape::of(&[
    optional("model", TEXT),
    optional("action", TEXT),
    optional("background", ValueRule::OneOf(&["transparent", "opaque", "auto"])),
    optional("input_fidelity", ValueRule::OneOf(&["high", "low"])),
    optional("input_image_mask", OPEN_OBJECT),
    optional("moderation", ValueRule::OneOf(&["auto", "low"])),
    optional("output_compression", ValueRule::Integer { min: 0, max: 100 }),
    optional("output_format", ValueRule::OneOf(&["png", "webp", "jpeg"])),
    optional("partial_images", ValueRule::Integer { min: 0, max: 3 }),
    optional("quality", ValueRule::OneOf(&["low", "medium", "high", "auto"])),
    optional("size", TEXT),
]);

const TOOL_SEARCH: Shape = Shape::of(&[
    optional("execution", ValueRule::OneOf(&["client", "server"])),
    optional("description", TEXT),
    optional("parameters", OPEN_OBJECT),
]);

const SHELL: Shape = Shape::of(&[optional("environment", OPEN_OBJECT)]);
const PLAIN: Shape = Shape::of(&[]);

/// Every tool type without a prefix.
pub(in crate::request) static TOOLS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "tool type",
    variants: &[
        ("function", FUNCTION),
        ("custom", CUSTOM),
        ("namespace", NAMESPACE),
        ("web_search", WEB_SEARCH),
        ("web_search_2025_08_26", WEB_SEARCH),
        ("web_search_preview", WEB_SEARCH),
        ("web_search_preview_2025_03_11", WEB_SEARCH),
        ("file_search", FILE_SEARCH),
        ("computer_use_preview", COMPUTER_USE),
        ("computer", PLAIN),
        ("tool_search", TOOL_SEARCH),
        ("programmatic_tool_calling", PLAIN),
        ("code_interpreter", CODE_INTERPRETER),
        ("mcp", MCP),
        ("image_generation", IMAGE_GENERATION),
        ("local_shell", PLAIN),
        ("shell", SHELL),
        ("apply_patch", PLAIN),
    ],
};

fn mcp_has_server(tool: JsonValue<'_>) -> Result<(), InvalidRequest> {
    if tool.get("server_url").or_else(|| tool.get("connector_id")).is_none() {
        return Err(tool.invalid("needs server_url or connector_id"));
    }
    Ok(())
}
