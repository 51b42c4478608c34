//! Translates tools and the choice among them.

use std::collections::HashSet;

use cofferdam_dialect_openai::{Fields, failure};
use cofferdam_guest_kit::bindings::types::Failure;
use cofferdam_guest_kit::{AllowedTool, Text, Tool as Offered, ToolChoice};
use serde::Serialize;
use serde_json::value::RawValue;

/// The translated tools and choice. A choice without tools is left out, because servers refuse it.
pub(crate) struct Tools<'a> {
    pub(crate) tools: Vec<Tool<'a>>,
    pub(crate) choice: Option<Choice<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Tool<'a> {
    Function { function: Function<'a> },
    Custom { custom: Custom<'a> },
}

#[derive(Serialize)]
pub(crate) struct Function<'a> {
    name: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Text<'a>>,
    parameters: Parameters<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

/// The JSON Schema of a function. Some servers require one.
#[derive(Serialize)]
#[serde(untagged)]
enum Parameters<'a> {
    Given(&'a RawValue),
    Nothing { r#type: &'static str, properties: NoProperties },
}

#[derive(Serialize)]
struct NoProperties {}

#[derive(Serialize)]
pub(crate) struct Custom<'a> {
    name: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format<'a>>,
}

/// The format of a custom tool. A grammar is nested in an object, unlike in the Responses API.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format<'a> {
    Text,
    Grammar { grammar: Grammar<'a> },
}

#[derive(Serialize)]
struct Grammar<'a> {
    syntax: &'a RawValue,
    definition: &'a RawValue,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Choice<'a> {
    Word(&'static str),
    Named(NamedChoice<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum NamedChoice<'a> {
    Function { function: Name<'a> },
    Custom { custom: Name<'a> },
}

#[derive(Serialize)]
pub(crate) struct Name<'a> {
    name: Text<'a>,
}

/// Translates tools and choice. `custom` says whether the endpoint accepts custom tools.
pub(crate) fn tools<'a>(
    offered: Vec<Offered<'a>>,
    choice: Option<ToolChoice<'a>>,
    custom: bool,
) -> Result<Tools<'a>, Failure> {
    let tools = offered.into_iter().enumerate().map(|(index, tool)| translate(tool, index, custom));
    let mut tools: Vec<Tool<'a>> = tools.collect::<Result<_, _>>()?;
    let choice = match choice {
        None => None,
        Some(ToolChoice::Auto) => Some(Choice::Word("auto")),
        Some(ToolChoice::None) => Some(Choice::Word("none")),
        Some(ToolChoice::Required) => Some(Choice::Word("required")),
        Some(ToolChoice::Function { name }) => {
            Some(Choice::Named(NamedChoice::Function { function: Name { name } }))
        }
        Some(ToolChoice::Custom { name }) => {
            Some(Choice::Named(NamedChoice::Custom { custom: Name { name } }))
        }
        Some(ToolChoice::Allowed { required, tools: allowed }) => {
            // Few servers support `allowed_tools`; sending only the allowed tools has the same effect.
            let allowed: HashSet<_> = allowed.iter().filter_map(named).collect();
            tools.retain(|tool| allowed.contains(&tool.named()));
            Some(Choice::Word(if required { "required" } else { "auto" }))
        }
        Some(ToolChoice::Other { .. }) => {
            return Err(failure::unsupported("tool_choice.type", "this choice"));
        }
    };
    let choice = choice.filter(|_| !tools.is_empty());
    Ok(Tools { tools, choice })
}

impl Tool<'_> {
    /// The type and the name of the tool.
    fn named(&self) -> (&str, &str) {
        match self {
            Tool::Function { function } => ("function", &function.name),
            Tool::Custom { custom } => ("custom", &custom.name),
        }
    }
}

/// The type and the name of an allowed tool.
fn named<'t>(allowed: &'t AllowedTool<'_>) -> Option<(&'t str, &'t str)> {
    Some((&*allowed.kind, allowed.name.as_deref()?))
}

fn translate(tool: Offered<'_>, index: usize, custom: bool) -> Result<Tool<'_>, Failure> {
    match tool {
        Offered::Function { name, description, parameters, strict, .. } => {
            let nothing = Parameters::Nothing { r#type: "object", properties: NoProperties {} };
            let parameters = parameters.map_or(nothing, Parameters::Given);
            Ok(Tool::Function { function: Function { name, description, parameters, strict } })
        }
        Offered::Custom { name, description, format } if custom => {
            Ok(Tool::Custom { custom: Custom { name, description, format: format.and_then(grammar) } })
        }
        _ => Err(failure::unsupported(&format!("tools[{index}].type"), "a tool of this type")),
    }
}

fn grammar(format: &RawValue) -> Option<Format<'_>> {
    let fields = Fields::read(format.get()).ok()?;
    Some(match (fields.get("syntax"), fields.get("definition")) {
        (Some(syntax), Some(definition)) => Format::Grammar { grammar: Grammar { syntax, definition } },
        _ => Format::Text,
    })
}
