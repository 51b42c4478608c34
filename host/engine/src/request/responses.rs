//! The body of POST /v1/responses.

use super::fields::BodyFields;
use super::guest::{GuestParts, GuestTurn};
use super::input::{InputTally, Marks, saturated};
use super::json::{JsonDocument, JsonValue};
use super::render::{self, Kinds};
use super::settings::{Needs, Truncation};
use super::shapes::body::{BODY, STEPS};
use super::tool_source::ToolPath;
use super::tools::CheckedTool;
use super::weight::Weight;
use super::{
    Ability, Hosted, InvalidRequest, Prompts, ProviderPreferences, RequestBounds, RequestPlugin, RequestTool,
    RouteSetting, ServiceTier, StopCondition, TextFormat, ToolChoice, echo, guest, weight,
};
use bytes::Bytes;
use std::ops::Range;

/// A checked request. The length of every string and list is bounded, by a rule or by the limit of
/// the whole body.
#[derive(Debug, Clone)]
pub struct ResponsesRequest {
    /// `model` as the client wrote it, with a suffix such as `:online`.
    pub model: Option<String>,
    /// The models to try in order: `model`, then `models` without repeats. Never empty.
    pub models: Vec<String>,
    /// Whether the answer is sent as a stream of events.
    pub stream: bool,
    /// The largest output in tokens, at least 1.
    pub max_output_tokens: Option<u32>,
    /// The most steps of the server tool loop, 1 to 30. None when it is unset, or when stop
    /// conditions replace it.
    pub max_tool_calls: Option<u32>,
    /// Conditions that end the server tool loop; empty when unset.
    pub stop_server_tools_when: Vec<StopCondition>,
    /// The tools in the client's order.
    pub tools: Vec<RequestTool>,
    /// Files stored at a provider, and tools found by searches, that items of the input make a
    /// provider read or run. The tools of `additional_tools` items are in `brought` instead.
    pub hosted_items: Vec<Hosted>,
    /// Which tool the model may or must call.
    pub tool_choice: ToolChoice,
    /// Members of output items that the client requests in addition, such as
    /// `code_interpreter_call.outputs`.
    pub include: Vec<String>,
    /// Whether the model may call several tools in one turn. Default true.
    pub parallel_tool_calls: bool,
    /// Routing preferences.
    pub provider: ProviderPreferences,
    /// Plugin entries in the client's order, each id at most once.
    pub plugins: Vec<RequestPlugin>,
    /// The session, at most 256 characters.
    pub session_id: Option<String>,
    /// The key for sticky routing where there is no `session_id`.
    pub prompt_cache_key: Option<String>,
    /// The end user's id, at most 256 characters.
    pub user: Option<String>,
    /// The requested tier; `auto` when unset.
    pub service_tier: ServiceTier,
    /// The deprecated `route`.
    pub route: Option<RouteSetting>,
    /// The type of `text.format`.
    pub text_format: TextFormat,
    /// What an endpoint must be able to do, each once, in the order of [`Ability`].
    pub needs: Vec<Ability>,
    /// Names of the generation parameters that the client set, in the body or by marks on content
    /// parts. Endpoints must support them under `require_parameters`.
    pub parameters: Vec<&'static str>,
    /// Counts over the text of the input.
    pub facts: TextFacts,
    /// An estimate of the input tokens: a quarter of the characters of input, instructions and
    /// tools.
    pub input_tokens: u32,
    /// The upper bound of the input tokens, from which the reservation of cost is computed.
    pub(crate) weight: Weight,
    /// `truncation`; none when unset.
    pub truncation: Option<Truncation>,
    /// `debug.echo_upstream_body` of a streamed request; false otherwise.
    pub echo_upstream_body: bool,
    /// `metadata` in the client's order, at most 16 pairs.
    pub metadata: Vec<(String, String)>,
    /// `trace` as JSON without whitespace.
    pub trace: Option<Bytes>,
    /// The document for provider guests, written once. Its `model` is the first of `models`.
    pub guest_json: Bytes,
    /// The first system or developer message and the first other message, as in `guest_json`. The
    /// sticky key is made of them when the client names no session.
    pub opening: Vec<Bytes>,
    /// The input ends with the result of a call. The model may then finish without any output.
    pub(crate) ends_with_result: bool,
    /// The input has items of server tools. `guest_json` has them as calls of functions under the
    /// tool's prefixed name, because the functions of the request's tools are not known yet.
    pub(crate) has_server_calls: bool,
    /// The tools of `additional_tools` items.
    pub(crate) brought: Vec<RequestTool>,
    /// Kinds of tools and items that not every dialect supports.
    pub(crate) kinds: Kinds,
    /// The constant members of the response object, `"background":false,...`: a JSON fragment without
    /// braces and without a comma at either end.
    pub echo: String,
    parts: GuestParts,
}

/// Counts over the text of an input, for model routers. The text itself is never included.
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
    /// `model` of the last assistant message, if the client sent one.
    pub last_model: Option<String>,
}

impl ResponsesRequest {
    /// Parses and checks a body without prompt templates. `extra_plugins` are the ids of installed
    /// hooks and model routers beyond the known ids.
    ///
    /// # Errors
    /// The first violation, with its path.
    pub fn parse(body: &[u8], extra_plugins: &[String]) -> Result<Self, InvalidRequest> {
        Self::parse_with(body, extra_plugins, &Prompts::default(), RequestBounds::default())
    }

    /// Like [`Self::parse`], with templates that `prompt` may name. The template's messages go
    /// before the input, which may then be absent. `bounds` limits how much the body may hold.
    ///
    /// # Errors
    /// The first violation, with its path.
    pub fn parse_with(
        body: &[u8],
        extra_plugins: &[String],
        prompts: &Prompts,
        bounds: RequestBounds,
    ) -> Result<Self, InvalidRequest> {
        let document = JsonDocument::parse(body)?;
        let (expanded, whole);
        let mut fields = BodyFields::check(&BODY, document.root())?;
        let models = fields.models()?;
        // The client's own input is checked before a template is expanded, so that paths in errors
        // are right.
        let prompt = fields.get("prompt");
        // An empty list beside a template is no input: client libraries write one for "no messages of my own".
        let own = fields.get("input").filter(|input| prompt.is_none() || !input.is_empty_list());
        let mut tally = own.map(|input| InputTally::of(input, bounds)).transpose()?;
        if let Some(prompt) = prompt {
            expanded = prompts.expand(prompt, own)?;
            whole = JsonDocument::parse(&expanded)?;
            tally = Some(InputTally::of(whole.root(), bounds)?);
            fields.set("input", whole.root());
        }
        let mut tally = tally.ok_or_else(|| InvalidRequest::new("input", "is required"))?;
        if let Some(instructions) = fields.get("instructions") {
            tally.add_text(instructions);
        }
        fields.get("tools").map_or(Ok(()), |tools| tally.tools.take(tools))?;
        let offered = fields.get("tools").map(CheckedTool::list).transpose()?.unwrap_or_default();
        let tool_choice = match fields.get("tool_choice") {
            Some(choice) => ToolChoice::check(choice, &offered, !tally.brings_tools)?,
            None => ToolChoice::Auto,
        };
        let plugins = fields.get("plugins").map(|list| RequestPlugin::list(list, extra_plugins));
        let plugins = plugins.transpose()?.unwrap_or_default();
        let max_tool_calls = fields.max_tool_calls()?;
        let guest = guest::write(&fields, &offered, body.len());
        let echo = echo::write(&fields, &offered);
        let stream = fields.is_true("stream");
        let brought = tally.take_brought(&offered);
        let tool_bytes = fields.get("tools").map_or(0, |tools| tools.raw().len()) + tally.tool_bytes;
        Ok(Self {
            model: fields.text("model"),
            models,
            weight: fields.weight(&guest.tools, &tally.kinds),
            stream,
            max_output_tokens: fields.count("max_output_tokens"),
            max_tool_calls,
            stop_server_tools_when: fields.stop_conditions(),
            needs: fields.needs(tally.needs, &offered),
            tools: with_json(offered, guest.tools, &guest.json),
            hosted_items: std::mem::take(&mut tally.hosted),
            tool_choice,
            include: fields.texts("include"),
            parallel_tool_calls: fields.get("parallel_tool_calls").is_none_or(JsonValue::is_true),
            provider: fields.get("provider").map(ProviderPreferences::of).unwrap_or_default(),
            plugins,
            session_id: fields.text("session_id").filter(|id| !id.is_empty()),
            prompt_cache_key: fields.text("prompt_cache_key"),
            user: fields.text("user"),
            service_tier: fields.get("service_tier").map(ServiceTier::of).unwrap_or_default(),
            route: fields.get("route").map(RouteSetting::of),
            text_format: fields.text_format().unwrap_or_default(),
            parameters: fields.parameters(tally.marks),
            facts: tally.facts(),
            input_tokens: saturated((tally.chars() + tool_bytes as u64).div_ceil(4)),
            truncation: fields.get("truncation").map(Truncation::of),
            echo_upstream_body: stream && fields.wants_echo(),
            metadata: fields.metadata(),
            trace: fields.get("trace").map(|trace| Bytes::from(trace.compact())),
            opening: guest.opening.into_iter().flatten().map(|range| guest.json.slice(range)).collect(),
            guest_json: guest.json,
            ends_with_result: tally.ends_with_result,
            has_server_calls: tally.has_server_calls,
            brought,
            kinds: tally.kinds,
            echo,
            parts: guest.parts,
        })
    }
}

impl ResponsesRequest {
    /// `guest_json` with the changes of one turn: other or more items, or other tools.
    #[must_use]
    pub fn guest_json_for(&self, turn: &GuestTurn<'_>) -> Bytes {
        self.parts.write(turn)
    }

    /// The items of `input` as in `guest_json`, comma-separated, without the brackets.
    #[must_use]
    pub fn input_items(&self) -> Bytes {
        self.parts.input.clone()
    }

    /// `input` as in `guest_json`.
    pub(crate) fn input_array(&self) -> Bytes {
        self.guest_json.slice(self.parts.input_array())
    }

    /// All tools and files that a provider runs or reads for this request.
    pub(crate) fn hosted(&self) -> impl Iterator<Item = &Hosted> {
        self.all_tools().filter_map(|tool| tool.hosted.as_ref()).chain(&self.hosted_items)
    }

    /// The tools of `tools`, and those that items bring.
    pub(crate) fn all_tools(&self) -> impl Iterator<Item = &RequestTool> {
        self.tools.iter().chain(&self.brought)
    }

    /// Replaces the items of `input` by `items`, in normal form and comma-separated.
    pub(crate) fn replace_input(&mut self, items: &[u8]) {
        self.guest_json = self.parts.replace_input(items);
    }

    /// Frees the document for guests, once no guest will be given it any more. Of the tools only those that a
    /// provider runs keep their JSON: the others share the document's memory, and the routing metadata of a finished
    /// answer does not need them.
    pub(crate) fn drop_document(&mut self) {
        self.guest_json = Bytes::new();
        self.opening = Vec::new();
        self.parts = GuestParts::default();
        for tool in &mut self.tools {
            let is_hosted = tool.hosted.is_some();
            tool.json = if is_hosted { Bytes::copy_from_slice(&tool.json) } else { Bytes::new() };
            tool.settings = Bytes::new();
        }
    }

    /// Replaces everything that models receive by that of `other`, the request as a hook returned
    /// it. Routing, session and echo stay as the client sent them.
    pub fn adopt(&mut self, other: Self) {
        self.guest_json = other.guest_json;
        // Hooks receive calls of server tools as function calls, so `other` alone does not show
        // that there are any.
        self.has_server_calls |= other.has_server_calls;
        self.ends_with_result = other.ends_with_result;
        self.parts = other.parts;
        self.tools = other.tools;
        self.brought = other.brought;
        self.kinds = other.kinds;
        self.hosted_items = other.hosted_items;
        self.tool_choice = other.tool_choice;
        self.needs = other.needs;
        self.facts = other.facts;
        self.input_tokens = other.input_tokens;
        self.weight = other.weight;
        self.max_output_tokens = other.max_output_tokens;
    }
}

/// Converts the tools, each with its slice of the JSON that guests receive.
fn with_json(offered: Vec<CheckedTool<'_>>, ranges: Vec<Range<usize>>, json: &Bytes) -> Vec<RequestTool> {
    let placed = offered.into_iter().zip(ranges).enumerate();
    placed.map(|(index, (tool, range))| tool.into_tool(ToolPath::Tools(index), json.slice(range))).collect()
}

/// Members that an endpoint may not support, for `require_parameters`.
const PARAMETERS: [&str; 17] = [
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "top_logprobs",
    "parallel_tool_calls",
    "tools",
    "tool_choice",
    "text",
    "reasoning",
    "truncation",
    "modalities",
    "image_config",
    "cache_control",
    "prompt_cache_options",
];

impl BodyFields<'_> {
    /// `model`, then `models`, without repeats.
    fn models(&self) -> Result<Vec<String>, InvalidRequest> {
        let mut models: Vec<String> = Vec::new();
        let further = self.get("models").into_iter().flat_map(JsonValue::items);
        for model in self.get("model").into_iter().chain(further) {
            let model = model.text();
            if !models.iter().any(|known| *known == model) {
                models.push(model.into_owned());
            }
        }
        if models.is_empty() {
            return Err(InvalidRequest::new("model", "is required, or models with at least 1 model"));
        }
        Ok(models)
    }

    fn stop_conditions(&self) -> Vec<StopCondition> {
        let conditions = self.get("stop_server_tools_when").into_iter().flat_map(JsonValue::items);
        conditions.map(StopCondition::of).collect()
    }

    /// Ignored, and not even checked, when stop conditions are given.
    fn max_tool_calls(&self) -> Result<Option<u32>, InvalidRequest> {
        if self.get("stop_server_tools_when").is_some() {
            return Ok(None);
        }
        let Some(value) = self.get("max_tool_calls") else { return Ok(None) };
        STEPS.check(value)?;
        Ok(self.count("max_tool_calls"))
    }

    fn needs(&self, mut needs: Needs, tools: &[CheckedTool<'_>]) -> Vec<Ability> {
        if !tools.is_empty() {
            needs.add(Ability::Tools);
        }
        if self.text_format() == Some(TextFormat::JsonSchema) {
            needs.add(Ability::StructuredOutput);
        }
        if self.get("reasoning").is_some_and(asks_to_reason) {
            needs.add(Ability::Reasoning);
        }
        if self.get("modalities").is_some_and(|list| list.items().any(|modality| modality.is("image"))) {
            needs.add(Ability::ImageOutput);
        }
        needs.list()
    }

    /// The upper bound of input tokens. `tools` are the ranges of the tools as written for guests.
    fn weight(&self, tools: &[Range<usize>], kinds: &Kinds) -> Weight {
        let told = ["instructions", "input"].into_iter().filter_map(|name| self.get(name));
        let format = self.get("text").and_then(|text| text.get("format"));
        let tools = tools.iter().map(|tool| Weight::tokens(tool.len() as u64));
        let rendered =
            Weight::tokens(render::added_bytes(self.get("tools"), self.get("input"), kinds) as u64);
        let weight = told.chain(format).map(weight::of).chain(tools).fold(rendered, Weight::plus);
        let Some(reasoning) = self.get("reasoning").filter(|reasoning| asks_to_reason(*reasoning)) else {
            return weight;
        };
        let tokens = reasoning.get("max_tokens").and_then(JsonValue::integer);
        weight.reasoning(tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or_default())
    }

    fn text_format(&self) -> Option<TextFormat> {
        self.get("text")?.get("format").map(TextFormat::of)
    }

    fn wants_echo(&self) -> bool {
        self.get("debug").and_then(|debug| debug.get("echo_upstream_body")).is_some_and(JsonValue::is_true)
    }

    fn parameters(&self, marks: Marks) -> Vec<&'static str> {
        let set = |name: &&str| match *name {
            // An empty object and the default format request nothing.
            "text" => self.get("text").is_some_and(asks_for_text),
            "reasoning" => self.get("reasoning").is_some_and(asks_to_reason),
            name => self.get(name).is_some() || marks.have(name),
        };
        PARAMETERS.into_iter().filter(set).collect()
    }

    fn metadata(&self) -> Vec<(String, String)> {
        let pairs = self.get("metadata").into_iter().flat_map(JsonValue::members);
        pairs.map(|(key, value)| (key.text().into_owned(), value.text().into_owned())).collect()
    }
}

fn asks_for_text(text: JsonValue<'_>) -> bool {
    let format = text.get("format").map(TextFormat::of).unwrap_or_default();
    format != TextFormat::Text || text.get("verbosity").is_some()
}

/// Whether reasoning is requested: by an effort other than `none`, by a budget, or by `enabled`.
fn asks_to_reason(reasoning: JsonValue<'_>) -> bool {
    let off = reasoning.get("enabled").is_some_and(|enabled| !enabled.is_true());
    let effort = reasoning.get("effort").is_some_and(|effort| !effort.is("none"));
    let budget = reasoning.get("max_tokens").and_then(JsonValue::integer).is_some_and(|tokens| tokens > 0);
    let on = reasoning.get("enabled").is_some_and(JsonValue::is_true);
    !off && (effort || budget || on)
}
