//! The input items. Ids and statuses are optional everywhere, because clients replay output of this
//! service in every state.

use super::parts::{ASSISTANT_PARTS, CALL_OUTPUT, INPUT_PARTS};
use crate::request::invalid::InvalidRequest;
use crate::request::json::{JsonKind, JsonValue};
use crate::request::rule::{
    Field, NAME, OBJECTS, OPEN_LIST, OPEN_OBJECT, Shape, TEXT, TaggedRule, ValueRule, optional, required,
};

const STATUS: ValueRule = ValueRule::OneOf(&[
    "in_progress",
    "completed",
    "incomplete",
    "failed",
    "searching",
    "generating",
    "interpreting",
    "calling",
    "cancelled",
    "queued",
]);

/// A message of any role. `type` is optional.
pub(in crate::request) static MESSAGE: Shape = Shape {
    fields: &[
        required("role", ValueRule::OneOf(&["user", "assistant", "system", "developer"])),
        optional("id", TEXT),
        optional("status", STATUS),
        optional("phase", ValueRule::OneOf(&["commentary", "final_answer"])),
        optional("model", TEXT),
    ],
    also: Some(check_content),
};

fn check_content(message: JsonValue<'_>) -> Result<(), InvalidRequest> {
    let Some(content) = message.get("content") else {
        if message.members().any(|(key, _)| key.is("content")) {
            return Ok(());
        }
        return Err(message.invalid_member("content", "is required"));
    };
    let assistant = message.get("role").is_some_and(|role| role.is("assistant"));
    let parts = if assistant { &ASSISTANT_PARTS } else { &INPUT_PARTS };
    match content.kind() {
        JsonKind::String => Ok(()),
        JsonKind::Array => content.items().try_for_each(|part| parts.check(part).map(|_| ())),
        _ => Err(content.mistyped("a string or an array")),
    }
}

const SUMMARIES: TaggedRule = TaggedRule {
    tag: "type",
    noun: "summary part type",
    variants: &[("summary_text", Shape::of(&[required("text", TEXT)]))],
};

const THOUGHTS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "reasoning part type",
    variants: &[("reasoning_text", Shape::of(&[required("text", TEXT)]))],
};

const SCREENSHOT: ValueRule = ValueRule::Object(&Shape::of(&[
    required("type", ValueRule::OneOf(&["computer_screenshot", "input_image"])),
    optional("image_url", TEXT),
    optional("file_id", TEXT),
]));

/// Every item except messages, `item_reference` and items with a server tool's prefix.
pub(in crate::request) static ITEMS: TaggedRule = TaggedRule {
    tag: "type",
    noun: "input item type",
    variants: &[
        ("function_call", FUNCTION_CALL),
        ("function_call_output", FUNCTION_CALL_OUTPUT),
        ("reasoning", REASONING),
        ("custom_tool_call", CUSTOM_TOOL_CALL),
        ("custom_tool_call_output", CUSTOM_TOOL_CALL_OUTPUT),
        ("web_search_call", Shape::of(&[ID, STATE, optional("action", OPEN_OBJECT)])),
        (
            "file_search_call",
            Shape::of(&[ID, STATE, optional("queries", TEXTS), optional("results", OBJECTS)]),
        ),
        ("computer_call", COMPUTER_CALL),
        ("computer_call_output", COMPUTER_CALL_OUTPUT),
        ("code_interpreter_call", CODE_INTERPRETER_CALL),
        (
            "image_generation_call",
            Shape::of(&[ID, STATE, optional("result", TEXT), optional("prompt", TEXT)]),
        ),
        ("local_shell_call", Shape::of(&[ID, STATE, CALL_ID, required("action", OPEN_OBJECT)])),
        (
            "local_shell_call_output",
            Shape::of(&[ID, STATE, optional("call_id", NAME), required("output", TEXT)]),
        ),
        ("shell_call", Shape::of(&[ID, STATE, CALL_ID, required("action", OPEN_OBJECT)])),
        ("shell_call_output", Shape::of(&[ID, STATE, CALL_ID, required("output", OBJECTS)])),
        ("apply_patch_call", Shape::of(&[ID, STATE, CALL_ID, required("operation", OPEN_OBJECT)])),
        ("apply_patch_call_output", Shape::of(&[ID, STATE, CALL_ID, optional("output", TEXT)])),
        ("mcp_call", MCP_CALL),
        ("mcp_list_tools", Shape::of(&[ID, required("server_label", NAME), optional("tools", OBJECTS)])),
        ("mcp_approval_request", MCP_APPROVAL_REQUEST),
        ("mcp_approval_response", MCP_APPROVAL_RESPONSE),
        ("tool_search_call", Shape::of(&[ID, STATE, optional("call_id", TEXT), optional("execution", TEXT)])),
        (
            "tool_search_output",
            Shape::of(&[ID, STATE, optional("call_id", TEXT), optional("tools", OBJECTS)]),
        ),
        ("additional_tools", Shape::of(&[ID, required("tools", OBJECTS)])),
        ("agent_message", Shape::of(&[ID, STATE, optional("author", TEXT), optional("recipient", TEXT)])),
        ("program", Shape::of(&[ID, STATE, CALL_ID, optional("code", TEXT)])),
        ("program_output", Shape::of(&[ID, STATE, CALL_ID, optional("result", TEXT)])),
        ("compaction_trigger", Shape::of(&[ID])),
        ("compaction", Shape::of(&[ID, optional("encrypted_content", TEXT)])),
        ("context_compaction", Shape::of(&[ID, optional("encrypted_content", TEXT)])),
        ("configuration_update", Shape::of(&[ID])),
    ],
};

const ID: Field = optional("id", TEXT);
const STATE: Field = optional("status", STATUS);
const CALL_ID: Field = required("call_id", NAME);
const TEXTS: ValueRule = ValueRule::List { of: &TEXT, min: 0, max: usize::MAX };

const FUNCTION_CALL: Shape = Shape::of(&[
    ID,
    STATE,
    CALL_ID,
    required("name", NAME),
    required("arguments", TEXT),
    optional("namespace", TEXT),
    optional("async", ValueRule::Bool),
]);

/// Without `call_id` it is an output that the client reports although the model called nothing.
const FUNCTION_CALL_OUTPUT: Shape = Shape::of(&[
    ID,
    STATE,
    optional("call_id", NAME),
    optional("name", TEXT),
    optional("namespace", TEXT),
    required("output", CALL_OUTPUT),
]);

const CUSTOM_TOOL_CALL_OUTPUT: Shape = Shape::of(&[ID, STATE, CALL_ID, required("output", CALL_OUTPUT)]);

const REASONING: Shape = Shape::of(&[
    ID,
    STATE,
    optional("summary", ValueRule::List { of: &ValueRule::Tagged(&SUMMARIES), min: 0, max: usize::MAX }),
    optional("content", ValueRule::List { of: &ValueRule::Tagged(&THOUGHTS), min: 0, max: usize::MAX }),
    optional("encrypted_content", TEXT),
    optional("format", TEXT),
    optional("signature", TEXT),
]);

const CUSTOM_TOOL_CALL: Shape = Shape::of(&[
    ID,
    STATE,
    CALL_ID,
    required("name", NAME),
    required("input", TEXT),
    optional("namespace", TEXT),
]);

const COMPUTER_CALL: Shape = Shape::of(&[
    ID,
    STATE,
    CALL_ID,
    optional("action", OPEN_OBJECT),
    optional("actions", OBJECTS),
    optional("pending_safety_checks", OBJECTS),
]);

const COMPUTER_CALL_OUTPUT: Shape = Shape::of(&[
    ID,
    STATE,
    CALL_ID,
    required("output", SCREENSHOT),
    optional("acknowledged_safety_checks", OBJECTS),
]);

const CODE_INTERPRETER_CALL: Shape = Shape::of(&[
    ID,
    STATE,
    optional("code", TEXT),
    optional("container_id", TEXT),
    optional("outputs", OBJECTS),
]);

const MCP_CALL: Shape = Shape::of(&[
    ID,
    STATE,
    required("server_label", NAME),
    required("name", NAME),
    required("arguments", TEXT),
    optional("output", TEXT),
    optional("approval_request_id", TEXT),
]);

const MCP_APPROVAL_REQUEST: Shape =
    Shape::of(&[ID, required("server_label", NAME), required("name", NAME), required("arguments", TEXT)]);

const MCP_APPROVAL_RESPONSE: Shape = Shape::of(&[
    ID,
    required("approval_request_id", NAME),
    required("approve", ValueRule::Bool),
    optional("reason", TEXT),
]);

const ERROR: Field = optional("error", ValueRule::Either(&[TEXT, OPEN_OBJECT]));
const MODEL: Field = optional("model", TEXT);
const INSTANCE: Field = optional("instance_name", TEXT);

/// The members of every item of a server tool. It is also the shape of items whose name is not in
/// [`SERVER_ITEMS`].
pub(in crate::request) static SERVER_ITEM: Shape = Shape::of(&[ID, STATE, ERROR]);

/// Items of server tools, by name without prefix. They were written by this service or by another
/// one with the same API, so only the members that are read as text are checked.
pub(in crate::request) static SERVER_ITEMS: &[(&str, Shape)] = &[
    ("datetime", Shape::of(&[ID, STATE, ERROR, optional("datetime", TEXT), optional("timezone", TEXT)])),
    ("web_search", Shape::of(&[ID, STATE, ERROR, optional("action", OPEN_OBJECT)])),
    (
        "web_fetch",
        Shape::of(&[
            ID,
            STATE,
            ERROR,
            optional("url", TEXT),
            optional("title", TEXT),
            // An array if nothing was fetched.
            optional("content", ValueRule::Either(&[TEXT, OPEN_LIST])),
            optional("http_status", ValueRule::Integer { min: 0, max: 999 }),
        ]),
    ),
    (
        "image_generation",
        Shape::of(&[
            ID,
            STATE,
            ERROR,
            optional("prompt", TEXT),
            optional("result", TEXT),
            optional("image_url", TEXT),
            optional("image_b64", TEXT),
            optional("revised_prompt", TEXT),
        ]),
    ),
    ("tool_search", Shape::of(&[ID, STATE, ERROR, optional("query", TEXT), optional("matches", OPEN_LIST)])),
    ("experimental__search_models", Shape::of(&[ID, STATE, ERROR, optional("query", TEXT)])),
    (
        "files",
        Shape::of(&[
            ID,
            STATE,
            ERROR,
            optional("operation", ValueRule::OneOf(&["list", "read", "write", "edit"])),
            optional("file_id", TEXT),
            optional("filename", TEXT),
        ]),
    ),
    (
        "advisor",
        Shape::of(&[ID, STATE, ERROR, MODEL, INSTANCE, optional("prompt", TEXT), optional("advice", TEXT)]),
    ),
    (
        "subagent",
        Shape::of(&[
            ID,
            STATE,
            ERROR,
            MODEL,
            INSTANCE,
            optional("name", TEXT),
            optional("task_name", TEXT),
            optional("task_description", TEXT),
            optional("outcome", TEXT),
        ]),
    ),
    (
        "fusion",
        Shape::of(&[ID, STATE, ERROR, optional("responses", OBJECTS), optional("sources", OPEN_LIST)]),
    ),
    ("apply_patch", Shape::of(&[ID, STATE, ERROR, optional("operation", OPEN_OBJECT)])),
];
