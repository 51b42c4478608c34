//! The body of POST /v1/responses.

use super::{
    Ability, InvalidRequest, ProviderPreferences, RequestPlugin, RequestTool, Route, ServiceTier,
    StopCondition, TextFormat, ToolChoice,
};
use bytes::Bytes;

/// A checked request. Every string and list in it is bounded by the rules of the interface.
#[derive(Debug, Clone)]
pub struct ResponsesRequest {
    /// `model` as the client wrote it, slug suffix included.
    pub model: Option<String>,
    /// The models to try in order: `model`, then `models` without repeats. Never empty.
    pub models: Vec<String>,
    /// Whether the client reads a stream.
    pub stream: bool,
    /// The largest output in tokens, at least 1.
    pub max_output_tokens: Option<u32>,
    /// Steps of the server-tool loop, 1 to 30; none when unset or overridden by stop conditions.
    pub max_tool_calls: Option<u32>,
    /// Conditions that end the server-tool loop; empty when unset.
    pub stop_server_tools_when: Vec<StopCondition>,
    /// The tools in the client's order.
    pub tools: Vec<RequestTool>,
    /// Which tool the model may or must call.
    pub tool_choice: ToolChoice,
    /// Whether the model may call several tools in one turn. Default true.
    pub parallel_tool_calls: bool,
    /// Routing preferences.
    pub provider: ProviderPreferences,
    /// Plugin entries in the client's order, each id at most once.
    pub plugins: Vec<RequestPlugin>,
    /// The session, at most 256 characters.
    pub session_id: Option<String>,
    /// A second choice of sticky key.
    pub prompt_cache_key: Option<String>,
    /// The end user, at most 256 characters.
    pub user: Option<String>,
    /// The tier asked for, `auto` when unset.
    pub service_tier: ServiceTier,
    /// The deprecated `route`.
    pub route: Option<Route>,
    /// The type of `text.format`.
    pub text_format: TextFormat,
    /// What an endpoint must be able to do, each once, in the order of [`Ability`].
    pub needs: Vec<Ability>,
    /// Names of the generation parameters the client set, for `require_parameters`.
    pub parameters: Vec<&'static str>,
    /// Counts over the text of the input.
    pub facts: TextFacts,
    /// A rough count of input tokens: a quarter of the characters of text, instructions and tools.
    pub input_tokens: u32,
    /// `debug.echo_upstream_body` of a streamed request; false otherwise.
    pub echo_upstream_body: bool,
    /// `metadata` in the client's order, at most 16 pairs.
    pub metadata: Vec<(String, String)>,
    /// `trace` as JSON.
    pub trace: Option<Bytes>,
    /// What provider guests receive, written once. Its `model` is the first of `models`.
    pub guest_json: Bytes,
    /// The constant members of the response object, `"background":false,...`: a JSON fragment without
    /// braces and without a comma at either end.
    pub echo: String,
}

/// Counts over the text of an input, for model routers. Never text itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TextFacts {
    /// Unicode scalar values of the last user message.
    pub last_user_chars: u32,
    /// Unicode scalar values of the instructions and the whole input.
    pub all_chars: u32,
    /// Messages of any role.
    pub turns: u32,
    /// Fenced code blocks of the whole input.
    pub code_blocks: u32,
    /// Share of all characters that are digits or mathematical signs, 0 to 1.
    pub math_share: f64,
    /// Question marks in the last user message.
    pub questions: u32,
    /// `model` of the last assistant message, if it has one.
    pub last_model: Option<String>,
}

impl ResponsesRequest {
    /// Parses and checks a body. `extra_plugins` are ids of installed hooks beyond the twelve known ones.
    ///
    /// # Errors
    /// The first thing wrong with it, by path.
    pub fn parse(body: &[u8], extra_plugins: &[String]) -> Result<Self, InvalidRequest> {
        let _ = (body, extra_plugins);
        Err(InvalidRequest::new("", "cannot be read yet"))
    }
}
