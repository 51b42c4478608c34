//! Translates `tool_choice` for models, which get functions and no server tools.

use super::offer::Offer;
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::walk::walk;
use crate::request::{ResponsesRequest, ToolChoice};
use cofferdam_protocol::{ToolKind, server_tool_name};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashSet;

/// The `tool_choice` of a turn. `None` leaves the client's own in place.
pub(crate) struct Choice {
    /// In the first turn.
    pub(crate) first: Option<Vec<u8>>,
    /// In later turns. A model that is forced to call something would never finish, so a forced
    /// choice applies to the first turn only.
    pub(crate) later: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct TaggedChoice<'a> {
    #[serde(rename = "type", borrow)]
    tag: Cow<'a, str>,
    #[serde(borrow)]
    server_label: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
}

impl Choice {
    /// The choice of a request, in terms of the offered functions.
    ///
    /// # Errors
    /// 400 naming a server tool that is not in `tools`.
    pub(crate) fn of(request: &ResponsesRequest, offer: &Offer) -> Result<Self, Refusal> {
        let auto = || Some(b"\"auto\"".to_vec());
        Ok(match &request.tool_choice {
            ToolChoice::Auto | ToolChoice::None => Self { first: None, later: None },
            ToolChoice::Required | ToolChoice::Function(_) | ToolChoice::Custom(_) => {
                Self { first: None, later: auto() }
            }
            ToolChoice::Mcp { server_label, name } => {
                let functions = offer.functions_on(server_label, name.as_deref());
                // If no tool serves the label, it is an endpoint's own server. A server without
                // functions forces nothing.
                let first = offer.serves(server_label).then(|| must_call(&functions_as_choices(functions)));
                Self { first, later: auto() }
            }
            ToolChoice::Type(type_name) => {
                if type_name == "tool_search" && client_searches(request) {
                    return Ok(Self { first: None, later: auto() });
                }
                Self { first: forced(type_name, "tool_choice.type", offer)?, later: auto() }
            }
            ToolChoice::Allowed { required, tools } => {
                let allowed = allowed(tools, offer, request)?;
                let write = |mode: &str| {
                    json!({"type": "allowed_tools", "mode": mode, "tools": allowed}).to_string().into_bytes()
                };
                let first = write(if *required { "required" } else { "auto" });
                Self { first: Some(first), later: Some(write("auto")) }
            }
        })
    }
}

/// The functions of the server tool that a type names, or of the hosted substitute for the type;
/// `None` if the type is another kind of tool.
fn named(type_name: &str, path: &str, offer: &Offer) -> Result<Option<Vec<Value>>, Refusal> {
    let functions = match server_tool_name(type_name) {
        Some(name) => Some(offer.functions_of(name).ok_or_else(|| not_offered(path, type_name))?),
        None => offer.functions_for(type_name),
    };
    Ok(functions.map(functions_as_choices))
}

fn forced(type_name: &str, path: &str, offer: &Offer) -> Result<Option<Vec<u8>>, Refusal> {
    Ok(named(type_name, path, offer)?.map(|functions| must_call(&functions)))
}

fn must_call(functions: &[Value]) -> Vec<u8> {
    let choice = match functions {
        // There is nothing to force.
        [] => json!("auto"),
        [function] => function.clone(),
        _ => json!({"type": "allowed_tools", "mode": "required", "tools": functions}),
    };
    choice.to_string().into_bytes()
}

fn functions_as_choices(functions: Vec<&str>) -> Vec<Value> {
    functions.into_iter().map(|name| json!({"type": "function", "name": name})).collect()
}

fn allowed(tools: &[u8], offer: &Offer, request: &ResponsesRequest) -> Result<Vec<Value>, Refusal> {
    // The parser has checked that these are objects with a type.
    let tools: Vec<&RawValue> = serde_json::from_slice(tools).map_err(|_| Refusal::internal())?;
    let mut allowed = Vec::with_capacity(tools.len());
    let searches = client_searches(request);
    // An entry that stands for several functions adds them once.
    let mut seen = HashSet::new();
    for (index, tool) in walk(tools).enumerate() {
        let TaggedChoice { tag, server_label, name } =
            serde_json::from_str(tool.get()).map_err(|_| Refusal::internal())?;
        let is_new = seen.insert((tag.clone(), server_label.clone(), name.clone()));
        if let Some(label) = server_label.filter(|label| offer.serves(label)) {
            if !is_new {
                continue;
            }
            allowed.extend(functions_as_choices(offer.functions_on(&label, name.as_deref())));
            continue;
        }
        let given = match tag == "tool_search" && searches {
            true => None,
            false => named(&tag, &format!("tool_choice.tools[{index}].type"), offer)?,
        };
        match given {
            Some(functions) if is_new => allowed.extend(functions),
            Some(_) => {}
            None => allowed.push(serde_json::from_str(tool.get()).map_err(|_| Refusal::internal())?),
        }
    }
    Ok(allowed)
}

/// Whether `tool_search` names the tool search that the client executes, and not the one of this
/// service.
fn client_searches(request: &ResponsesRequest) -> bool {
    request.tools.iter().any(|tool| tool.kind == ToolKind::ToolSearch)
}

fn not_offered(path: &str, type_name: &str) -> Refusal {
    Refusal::invalid(format!("{path} names a tool that is not in tools: \"{}\"", printable(type_name)))
}
