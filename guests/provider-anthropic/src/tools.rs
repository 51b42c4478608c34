//! The functions that are offered to the model, and which of them it must call.

use std::collections::BTreeSet;

use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{Tool, ToolChoice};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::blocks::{Block, Text, Turn};
use crate::cache::CacheControl;
use crate::error::refuse;

/// A function in the provider's form. `strict` is not passed on, because Anthropic can enforce
/// fewer schemas than clients mark as strict.
#[derive(Debug, Serialize)]
pub struct ToolDefinition<'a> {
    name: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Text<'a>>,
    input_schema: InputSchema<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<CacheControl>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum InputSchema<'a> {
    Raw(&'a RawValue),
    Made(Value),
}

/// `tool_choice`.
#[derive(Debug, Serialize)]
pub struct Choice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Text<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

impl Choice<'_> {
    fn new(kind: &'static str) -> Self {
        Choice { kind, name: None, disable_parallel_tool_use: false }
    }

    /// Whether the model must call a tool.
    pub fn is_forced(&self) -> bool {
        matches!(self.kind, "any" | "tool")
    }

    /// Lets the model decide. With thinking, the provider accepts no forced tool.
    pub fn relax(&mut self) {
        self.kind = "auto";
        self.name = None;
    }
}

/// What the request says about tools.
#[derive(Debug, Default)]
pub struct Offer<'a> {
    pub tools: Vec<ToolDefinition<'a>>,
    pub choice: Option<Choice<'a>>,
}

impl<'a> Offer<'a> {
    /// Translates `tools`, `tool_choice` and `parallel_tool_calls`.
    pub fn read(
        tools: &'a [Tool<'a>],
        choice: Option<&'a ToolChoice<'a>>,
        parallel: Option<bool>,
    ) -> Result<Self, Failure> {
        let mut tools: Vec<_> = tools.iter().filter_map(definition).collect();
        let choice = match choice {
            None | Some(ToolChoice::Auto | ToolChoice::Other { .. }) => None,
            Some(ToolChoice::None) => Some(Choice::new("none")),
            Some(ToolChoice::Required) => Some(Choice::new("any")),
            Some(ToolChoice::Function { name }) => {
                if !tools.iter().any(|tool| tool.name == *name) {
                    return Err(refuse("tool_choice names a function that is not among the tools"));
                }
                Some(Choice { name: Some(Text::Borrowed(name)), ..Choice::new("tool") })
            }
            Some(ToolChoice::Custom { .. }) => {
                return Err(refuse("tool_choice names a custom tool, which this provider does not have"));
            }
            Some(ToolChoice::Allowed { required, tools: allowed }) => {
                let functions = allowed.iter().filter(|tool| tool.kind == "function");
                let names: BTreeSet<&str> = functions.filter_map(|tool| tool.name.as_deref()).collect();
                tools.retain(|tool| names.contains(&*tool.name));
                required.then(|| Choice::new("any"))
            }
        };
        if tools.is_empty() {
            return Ok(Offer::default());
        }
        let mut offer = Offer { tools, choice };
        if parallel == Some(false) {
            let choice = offer.choice.get_or_insert_with(|| Choice::new("auto"));
            choice.disable_parallel_tool_use = choice.kind != "none";
        }
        Ok(offer)
    }

    /// Defines the tools that the history called when the request defines none, and forbids new
    /// calls: the provider refuses calls in the history when no tool is defined.
    pub fn cover_history(&mut self, turns: &[Turn<'a>]) {
        if !self.tools.is_empty() {
            return;
        }
        let mut seen = BTreeSet::new();
        for block in turns.iter().flat_map(|turn| &turn.content) {
            let Block::ToolUse { name, .. } = block else { continue };
            if seen.insert(name.clone()) {
                self.tools.push(ToolDefinition {
                    name: name.clone(),
                    description: None,
                    input_schema: InputSchema::Made(empty_schema()),
                    cache_control: None,
                });
            }
        }
        if !self.tools.is_empty() {
            self.choice = Some(Choice::new("none"));
        }
    }
}

fn definition<'a>(tool: &'a Tool<'a>) -> Option<ToolDefinition<'a>> {
    let Tool::Function { name, description, parameters, cache_control, .. } = tool else { return None };
    Some(ToolDefinition {
        name: Text::Borrowed(name),
        description: description.as_deref().filter(|text| !text.is_empty()).map(Text::Borrowed),
        input_schema: input_schema(*parameters),
        cache_control: cache_control.and_then(CacheControl::read),
    })
}

/// The provider requires a schema of type `object`, which clients often leave out.
fn input_schema(parameters: Option<&RawValue>) -> InputSchema<'_> {
    let Some(raw) = parameters else { return InputSchema::Made(empty_schema()) };
    match serde_json::from_str(raw.get()) {
        Ok(Value::Object(schema)) if schema.get("type").is_some_and(|kind| kind == "object") => {
            InputSchema::Raw(raw)
        }
        Ok(Value::Object(mut schema)) => {
            let mut typed = Map::new();
            typed.insert("type".to_owned(), Value::from("object"));
            schema.shift_remove("type");
            if schema.is_empty() {
                return InputSchema::Made(empty_schema());
            }
            typed.append(&mut schema);
            InputSchema::Made(Value::Object(typed))
        }
        _ => InputSchema::Made(empty_schema()),
    }
}

fn empty_schema() -> Value {
    serde_json::json!({ "type": "object", "properties": {} })
}
