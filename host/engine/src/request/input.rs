//! `input`: checks every item, counts its text, and writes it in normal form for guests.
//!
//! In normal form `input` is an array, every item has its `type`, the content of a message is
//! always an array of parts, and items of server tools are written as the function calls that they
//! represent. Everything else is copied as the client sent it.

use super::TextFacts;
use super::bounds::{PartCount, RequestBounds, Tools};
use super::hosted::Hosted;
use super::invalid::InvalidRequest;
use super::json::{JsonKind, JsonValue, TextCounts, separate, write_key};
use super::render::Kinds;
use super::rule::Shape;
use super::server_items::{CallPart, ServerItemReader};
use super::settings::{Ability, Needs};
use super::shapes::items::{ITEMS, MESSAGE, SERVER_ITEM, SERVER_ITEMS};
use super::tool_source::ToolPath;
use super::tools::{CheckedTool, RequestTool, is_search};
use cofferdam_protocol::{Rendering, ToolKind, split_prefix};
use std::ops::Range;

/// Facts about an input, collected while it is checked.
#[derive(Debug)]
pub(super) struct InputTally<'d> {
    counts: TextCounts,
    last_user: TextCounts,
    turns: u32,
    last_model: Option<JsonValue<'d>>,
    pub(super) needs: Needs,
    /// Which cache marks the content parts have.
    pub(super) marks: Marks,
    /// Bytes of the tool definitions inside items.
    pub(super) tool_bytes: usize,
    /// An item brings tools, so names in `tool_choice` may refer to them.
    pub(super) brings_tools: bool,
    /// The tools of `additional_tools` items, each with its path.
    pub(super) brought: Vec<(ToolPath, CheckedTool<'d>)>,
    /// Kinds of tools and items that not every dialect supports.
    pub(super) kinds: Kinds,
    /// An item represents a call of a server tool.
    pub(super) has_server_calls: bool,
    /// Tools found by searches that a provider would run, and files stored at a provider.
    pub(super) hosted: Vec<Hosted>,
    /// The last item is the result of a call, or a call that includes its result.
    pub(super) ends_with_result: bool,
    parts: PartCount,
    /// Counts the tools of the whole body.
    pub(super) tools: Tools,
}

/// The most tools and files of a provider that items may bring. Errors about them name the path,
/// and each path needs a walk from the root.
const HOSTED_MAX: usize = 128;

/// Marks on content parts that an endpoint may not support, for `require_parameters`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    cache_control: bool,
    breakpoint: bool,
}

impl Marks {
    /// Whether a part has the mark that belongs to this member of the body.
    pub(super) fn have(self, member: &str) -> bool {
        match member {
            "cache_control" => self.cache_control,
            "prompt_cache_options" => self.breakpoint,
            _ => false,
        }
    }
}

impl<'d> InputTally<'d> {
    fn new(bounds: RequestBounds) -> Self {
        Self {
            counts: TextCounts::default(),
            last_user: TextCounts::default(),
            turns: 0,
            last_model: None,
            needs: Needs::default(),
            marks: Marks::default(),
            tool_bytes: 0,
            brings_tools: false,
            brought: Vec::new(),
            kinds: Kinds::default(),
            has_server_calls: false,
            hosted: Vec::new(),
            ends_with_result: false,
            parts: PartCount::of(bounds),
            tools: Tools::default(),
        }
    }

    /// Checks `input` and collects its facts.
    ///
    /// # Errors
    /// The first item that is unknown or malformed, or that exceeds a limit, with its path.
    pub(super) fn of(input: JsonValue<'d>, bounds: RequestBounds) -> Result<Self, InvalidRequest> {
        let mut tally = Self::new(bounds);
        match input.kind() {
            JsonKind::String => {
                tally.counts = input.counts();
                tally.last_user = tally.counts;
                tally.turns = 1;
            }
            JsonKind::Array => {
                if input.items().all(is_skipped) {
                    return Err(input.invalid("must hold at least 1 item"));
                }
                let mut items = input.items().enumerate();
                // Items beyond the limit are not checked, because the request is refused for their
                // number.
                let mut within = items.by_ref().take(bounds.items).filter(|(_, item)| !is_skipped(*item));
                within.try_for_each(|(at, item)| tally.item(item, at))?;
                if items.next().is_some() {
                    return Err(input.invalid(format!("must hold at most {} items", bounds.items)));
                }
            }
            _ => return Err(input.mistyped("a string or an array")),
        }
        let searches = tally.brought.iter().filter(|(_, tool)| *tool.kind() == ToolKind::WebSearch).count();
        if tally.hosted.len() + searches > HOSTED_MAX {
            return Err(
                input.invalid(format!("must hold at most {HOSTED_MAX} tools and files of a provider"))
            );
        }
        Ok(tally)
    }

    /// Counts a text outside the input, such as the instructions.
    pub(super) fn add_text(&mut self, text: JsonValue<'_>) {
        self.counts.add(text.counts());
    }

    /// Characters of all texts.
    pub(super) fn chars(&self) -> u64 {
        self.counts.chars
    }

    /// The counts as routers receive them.
    pub(super) fn facts(&self) -> TextFacts {
        let share = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        TextFacts {
            last_user_chars: saturated(self.last_user.chars),
            all_chars: saturated(self.counts.chars),
            turns: self.turns,
            code_blocks: saturated(self.counts.fences.div_ceil(2)),
            math_share: share(self.counts.math, self.counts.chars),
            questions: saturated(self.last_user.questions),
            last_model: self.last_model.map(|model| model.text().into_owned()),
        }
    }

    fn item(&mut self, item: JsonValue<'d>, place: usize) -> Result<(), InvalidRequest> {
        self.ends_with_result = false;
        if item.kind() == JsonKind::Object && item.get("type").is_none() {
            return self.untyped(item);
        }
        let tag = ITEMS.tag_of(item)?;
        if tag.is("message") {
            return self.message(item);
        }
        if tag.is("item_reference") {
            return Err(stateless(tag));
        }
        let word = tag.text();
        if let Some((_, name)) = split_prefix(&word) {
            server_item(name).check(item)?;
            // The item includes its result, so the model continues as after a result.
            self.has_server_calls = true;
            self.ends_with_result = true;
            return self.texts(item);
        }
        let kind = ITEMS.check(item)?;
        self.ends_with_result = is_result(kind);
        match kind {
            "computer_call_output" => self.needs.add(Ability::Images),
            "additional_tools" => self.bring(item, place)?,
            "tool_search_output" => self.bring_searches(item, place)?,
            _ => {}
        }
        self.note_kind(kind, item);
        self.texts(item)
    }

    /// Checks the tools that an item brings.
    fn bring(&mut self, item: JsonValue<'d>, place: usize) -> Result<(), InvalidRequest> {
        self.brings_tools = true;
        self.needs.add(Ability::Tools);
        item.get("tools").map_or(Ok(()), |tools| self.tools.take(tools))?;
        let offered = item.get("tools").map(CheckedTool::list).transpose()?.unwrap_or_default();
        for (index, tool) in offered.into_iter().enumerate() {
            if matches!(tool.kind(), ToolKind::Server(_)) {
                let tag = tool.value().get("type").unwrap_or_else(|| tool.value());
                return Err(tag.invalid("names a tool of this service, which has to stand in tools"));
            }
            self.kinds.tools.extend(tool.own_type());
            self.brought.push((ToolPath::Input(place, index), tool));
        }
        Ok(())
    }

    /// Checks the web searches among the tools that a search has found. An endpoint without them may
    /// still be asked. The other tools are functions, or are noted as the provider's.
    fn bring_searches(&mut self, item: JsonValue<'d>, place: usize) -> Result<(), InvalidRequest> {
        self.brings_tools = true;
        let found = item.get("tools").into_iter().flat_map(JsonValue::items).enumerate();
        for (index, tool) in found.filter(|(_, tool)| is_web_search(*tool)) {
            let tool = CheckedTool::check(tool)?;
            self.kinds.tools.extend(tool.own_type());
            self.brought.push((ToolPath::Input(place, index), tool));
        }
        Ok(())
    }

    /// Takes the tools that items bring, and notes the kinds of the tools in `tools`.
    pub(super) fn take_brought(&mut self, offered: &[CheckedTool<'_>]) -> Vec<RequestTool> {
        self.kinds.tools.extend(offered.iter().filter_map(CheckedTool::own_type));
        let brought = std::mem::take(&mut self.brought).into_iter();
        brought.map(|(place, tool)| tool.into_copy(place)).collect()
    }

    /// Notes the kinds that not every dialect supports.
    fn note_kind(&mut self, kind: &'static str, item: JsonValue<'d>) {
        let has = |member| item.get(member).is_some();
        let tool = match kind {
            "function_call" | "custom_tool_call" if has("namespace") => "namespace",
            "function_call_output" if !has("call_id") => return self.kinds.has_items = true,
            "additional_tools" | "agent_message" => return self.kinds.has_items = true,
            "compaction_trigger" => return self.kinds.compacts = true,
            "compaction" => return self.kinds.has_compacted = true,
            "mcp_list_tools" | "mcp_approval_request" | "mcp_approval_response" => "mcp",
            _ => match ToolKind::of_item(kind) {
                Some((tool, _)) if tool.rendering() != Rendering::Unchanged => tool.type_name(),
                _ => return,
            },
        };
        self.kinds.tools.insert(tool.to_owned());
        if kind == "custom_tool_call" {
            self.kinds.tools.insert("custom".to_owned());
        }
    }

    /// Checks an item without `type`. Only messages may omit it; an object with nothing but an `id`
    /// is a reference to a stored item.
    fn untyped(&mut self, item: JsonValue<'d>) -> Result<(), InvalidRequest> {
        if item.get("role").is_some() {
            return self.message(item);
        }
        if item.get("id").is_some() && item.members().count() == 1 {
            return Err(stateless(item));
        }
        Err(item.invalid_member("type", "is required: only messages may leave it out"))
    }

    fn message(&mut self, message: JsonValue<'d>) -> Result<(), InvalidRequest> {
        let mut role = None;
        let mut model = None;
        MESSAGE.visit(message, |name, value| match name {
            "role" => role = Some(value),
            "model" => model = Some(value),
            _ => {}
        })?;
        self.turns = self.turns.saturating_add(1);
        // The counts start again at zero, so that after the content they are those of this message
        // alone.
        let before = std::mem::take(&mut self.counts);
        if let Some(content) = message.get("content") {
            self.parts.take(content)?;
            self.content(content);
        }
        if role.is_some_and(|role| role.is("user")) {
            self.last_user = self.counts;
        }
        if role.is_some_and(|role| role.is("assistant")) {
            self.last_model = model;
        }
        self.counts.add(before);
        Ok(())
    }

    /// Counts the texts of an item that is not a message.
    fn texts(&mut self, item: JsonValue<'_>) -> Result<(), InvalidRequest> {
        for (key, value) in item.members() {
            self.parts.take(value)?;
            if key.is("output") {
                // The output of a computer is an object, not an array of parts.
                self.file(value.get("file_id"));
            }
            match key.text().as_ref() {
                "arguments" | "input" | "output" | "content" | "summary" | "code" | "query" | "prompt"
                | "advice" | "outcome" => self.content(value),
                "tools" => {
                    self.tool_bytes += value.raw().len();
                    self.hosted_of(item, value);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes the tools of a provider among the tools that an item brings, except those in
    /// `brought`.
    fn hosted_of(&mut self, item: JsonValue<'_>, tools: JsonValue<'_>) {
        if !item.get("type").is_some_and(|tag| tag.is("additional_tools")) {
            let tools = tools.items().filter(|tool| !is_web_search(*tool));
            Hosted::of_list(tools, HOSTED_MAX, &mut self.hosted);
        }
    }

    fn content(&mut self, content: JsonValue<'_>) {
        if content.kind() == JsonKind::String {
            self.counts.add(content.counts());
        }
        content.items().for_each(|part| self.part(part));
    }

    fn file(&mut self, id: Option<JsonValue<'_>>) {
        if self.hosted.len() <= HOSTED_MAX {
            self.hosted.extend(id.and_then(Hosted::of_file));
        }
    }

    fn part(&mut self, part: JsonValue<'_>) {
        for (key, value) in part.members() {
            match key.text().as_ref() {
                "text" | "refusal" | "stdout" | "stderr" => self.counts.add(value.counts()),
                "type" => self.needs.add_part(value),
                "file_id" => self.file(Some(value)),
                "cache_control" => self.marks.cache_control |= value.kind() != JsonKind::Null,
                "prompt_cache_breakpoint" => self.marks.breakpoint |= value.kind() != JsonKind::Null,
                _ => {}
            }
        }
    }
}

impl Needs {
    fn add_part(&mut self, tag: JsonValue<'_>) {
        const PARTS: [(&str, Ability); 4] = [
            ("input_image", Ability::Images),
            ("input_file", Ability::Files),
            ("input_audio", Ability::Audio),
            ("input_video", Ability::Video),
        ];
        if let Some((_, ability)) = PARTS.iter().find(|(name, _)| tag.is(name)) {
            self.add(*ability);
        }
    }
}

/// A count as the plugin contract has it: 32 bits.
pub(super) fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn is_web_search(tool: JsonValue<'_>) -> bool {
    tool.get("type").is_some_and(|tag| is_search(&tag.text()))
}

fn server_item(name: &str) -> &'static Shape {
    SERVER_ITEMS.iter().find(|(known, _)| *known == name).map_or(&SERVER_ITEM, |(_, shape)| shape)
}

/// Whether an item refers to stored reasoning. The messages and calls that the reasoning led to are
/// in the input themselves, so the reference can be left out.
fn is_skipped(item: JsonValue<'_>) -> bool {
    let id = || item.get("id").is_some_and(|id| id.text().starts_with("rs_"));
    match item.get("type") {
        Some(tag) => tag.is("item_reference") && id(),
        None => item.kind() == JsonKind::Object && item.members().count() == 1 && id(),
    }
}

/// Whether an item of this type is the result of a call, or a call that includes its result.
fn is_result(kind: &str) -> bool {
    kind.ends_with("_call_output")
        || ["tool_search_output", "mcp_call", "mcp_approval_response"].contains(&kind)
}

fn stateless(at: JsonValue<'_>) -> InvalidRequest {
    at.invalid(
        "refers to a stored item (item_reference), but this service is stateless and stores none: \
         set store to false in the client, so that it sends the item itself",
    )
}

/// Appends `input` in normal form. Returns the ranges of the first system or developer message and
/// of the first other message, which together identify a conversation for sticky routing.
pub(super) fn write(input: JsonValue<'_>, out: &mut Vec<u8>) -> [Option<Range<usize>>; 2] {
    let mut opening = [None, None];
    out.push(b'[');
    if input.kind() == JsonKind::String {
        let start = out.len();
        out.extend_from_slice(br#"{"type":"message","role":"user","content":"#);
        write_content(input, false, out);
        out.push(b'}');
        opening = [None, Some(start..out.len())];
    }
    let mut calls = ServerItemReader::new(input, &[]);
    let mut parts = Vec::new();
    for (place, item) in input.items().enumerate().filter(|(_, item)| !is_skipped(*item)) {
        let is_taken = calls.take(item, place, &mut parts);
        CallPart::write_all(&mut parts, out);
        if is_taken {
            continue;
        }
        separate(out);
        let start = out.len();
        write_item(item, out);
        if opening.iter().any(Option::is_none) {
            note_opening(item, start..out.len(), &mut opening);
        }
    }
    calls.end(&mut parts);
    CallPart::write_all(&mut parts, out);
    out.push(b']');
    opening
}

fn note_opening(item: JsonValue<'_>, range: Range<usize>, opening: &mut [Option<Range<usize>>; 2]) {
    let Some(role) = item.get("role") else { return };
    let [system, other] = opening;
    let place = if role.is("system") || role.is("developer") { system } else { other };
    place.get_or_insert(range);
}

fn write_item(item: JsonValue<'_>, out: &mut Vec<u8>) {
    let tag = item.get("type");
    let normal = match tag {
        None => false,
        Some(tag) => {
            !tag.is("message") || item.get("content").is_some_and(|content| content.kind() == JsonKind::Array)
        }
    };
    if normal {
        return item.write(out);
    }
    let assistant = item.get("role").is_some_and(|role| role.is("assistant"));
    out.extend_from_slice(br#"{"type":"message""#);
    for (key, value) in item.members().filter(|(key, _)| !key.is("type")) {
        write_key(key, out);
        if key.is("content") {
            write_content(value, assistant, out);
        } else {
            value.write(out);
        }
    }
    out.push(b'}');
}

/// Writes content as an array of parts: a string becomes one part, null becomes an empty array.
fn write_content(content: JsonValue<'_>, assistant: bool, out: &mut Vec<u8>) {
    match content.kind() {
        JsonKind::Null => out.extend_from_slice(b"[]"),
        JsonKind::String => {
            let part: &[u8] = if assistant {
                br#"[{"type":"output_text","text":"#
            } else {
                br#"[{"type":"input_text","text":"#
            };
            out.extend_from_slice(part);
            content.write(out);
            out.extend_from_slice(b"}]");
        }
        _ => content.write(out),
    }
}
