//! The members that go upstream, for each type of item, content part and tool.

/// How the `id` of an item is treated.
#[derive(Clone, Copy)]
pub(crate) enum Id {
    /// It is dropped.
    Dropped,
    /// It is sent if it is well formed.
    Kept,
    /// The server requires an id with this prefix. An item without one is left out, unless it holds a
    /// result.
    Required(&'static str),
}

/// The types of items, how their id is treated, and their fields other than `type`, `id` and
/// `status`.
pub(crate) const ITEMS: &[(&str, Id, &[&str])] = &[
    ("function_call", Id::Dropped, &["call_id", "name", "arguments", "namespace", "caller"]),
    ("custom_tool_call", Id::Dropped, &["call_id", "name", "input", "namespace"]),
    ("shell_call", Id::Dropped, &["call_id", "action", "environment"]),
    ("shell_call_output", Id::Dropped, &["call_id", "output", "max_output_length"]),
    ("apply_patch_call", Id::Dropped, &["call_id", "operation"]),
    ("apply_patch_call_output", Id::Dropped, &["call_id", "output"]),
    ("local_shell_call", Id::Kept, &["call_id", "action"]),
    ("local_shell_call_output", Id::Kept, &["output"]),
    ("computer_call", Id::Required("cu_"), &["call_id", "action", "actions", "pending_safety_checks"]),
    ("computer_call_output", Id::Dropped, &["call_id", "output", "acknowledged_safety_checks"]),
    ("web_search_call", Id::Required("ws_"), &["action"]),
    ("file_search_call", Id::Required("fs_"), &["queries", "results"]),
    ("code_interpreter_call", Id::Required("ci_"), &["code", "container_id", "outputs"]),
    ("image_generation_call", Id::Required("ig_"), &["result"]),
    (
        "mcp_call",
        Id::Required("mcp_"),
        &["server_label", "name", "arguments", "output", "error", "approval_request_id"],
    ),
    ("mcp_list_tools", Id::Required("mcpl_"), &["server_label", "tools", "error"]),
    ("mcp_approval_request", Id::Required("mcpr_"), &["server_label", "name", "arguments"]),
    ("mcp_approval_response", Id::Dropped, &["approval_request_id", "approve", "reason"]),
    ("tool_search_call", Id::Dropped, &["call_id", "execution", "arguments"]),
    ("tool_search_output", Id::Dropped, &["call_id", "execution", "tools"]),
    ("additional_tools", Id::Dropped, &["role", "tools"]),
    ("compaction", Id::Kept, &["encrypted_content"]),
    ("compaction_trigger", Id::Dropped, &[]),
    ("program", Id::Kept, &["call_id", "code", "fingerprint"]),
    ("program_output", Id::Kept, &["call_id", "result"]),
];

/// The types of parts and their fields other than `type`.
pub(crate) const PARTS: &[(&str, &[&str])] = &[
    ("input_text", &["text", "prompt_cache_breakpoint"]),
    ("input_image", &["detail", "image_url", "file_id", "prompt_cache_breakpoint"]),
    ("input_file", &["filename", "file_data", "file_url", "file_id", "prompt_cache_breakpoint"]),
    ("input_audio", &["input_audio"]),
    ("output_text", &["text"]),
    ("refusal", &["refusal"]),
];

/// Which members of a tool go upstream, other than `type`.
pub(crate) enum Carried {
    /// Only these.
    Only(&'static [&'static str]),
    /// All except these, which have no meaning upstream.
    But(&'static [&'static str]),
}

/// The tool that finds deferred tools, and the member that marks a tool as deferred. Without a search
/// tool in the request, a deferred tool could never be called, so the mark is removed.
pub(crate) const SEARCH: &str = "tool_search";
pub(crate) const DEFERRED: &str = "defer_loading";

/// The members of each type of tool that does not run upstream, or may run elsewhere.
const TOOLS: &[(&str, Carried)] = &[
    ("function", Carried::But(&["cache_control"])),
    ("custom", Carried::Only(&["name", "description", "format", DEFERRED])),
    ("namespace", Carried::Only(&["name", "description"])),
    ("apply_patch", Carried::Only(&[])),
    ("local_shell", Carried::Only(&[])),
    ("shell", Carried::Only(&["environment", "allowed_callers", "output_schema"])),
    ("computer_use_preview", Carried::Only(&["display_width", "display_height", "environment"])),
    ("computer", Carried::Only(&[])),
    (SEARCH, Carried::Only(&["execution", "description", "parameters"])),
];

/// The types of tools that the server runs.
const HOSTED: [&str; 9] = [
    "programmatic_tool_calling",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "mcp",
    "image_generation",
];
/// The host has checked each member of a tool of the server against the manifest. `engine` only says where it runs.
const HOSTED_MEMBERS: Carried = Carried::But(&["engine"]);

/// Whether the server runs tools of this type.
pub(crate) fn is_hosted(kind: &str) -> bool {
    HOSTED.contains(&kind)
}

/// Which members of a tool of this type go upstream; `None` for an unknown type.
pub(crate) fn carried(kind: &str) -> Option<&'static Carried> {
    let listed = TOOLS.iter().find(|(known, _)| *known == kind).map(|(_, carried)| carried);
    listed.or_else(|| is_hosted(kind).then_some(&HOSTED_MEMBERS))
}
