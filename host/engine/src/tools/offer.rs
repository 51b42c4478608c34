//! What a request's server tools offer to the model: for each entry the functions of its guest, in the place
//! of the entry.

use super::doors::{Deferred, Doors};
use super::kinds::{Own, dialect_has};
use super::owners::owners;
use super::shows;
use crate::Engine;
use crate::assembler::{Served, Shown};
use crate::catalog::Endpoint;
use crate::refusal::Refusal;
use crate::request::{RequestTool, ResponsesRequest, ToolKind, ToolPrefix, ToolSource};
use crate::routing::printable;
use bytes::Bytes;
use cofferdam_runtime::wire::{Function, ToolError};
use cofferdam_runtime::{CallContext, Kind, Plugin};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The most server tools of one request; each is a call into its guest.
const SERVER_TOOLS_MAX: usize = 64;
/// How long a tool may take to say what it offers. It only has to look at its settings.
const OFFER_TIME_MAX: Duration = Duration::from_secs(10);

/// A server tool of a request.
#[derive(Clone)]
pub(crate) struct ServerTool {
    /// What asks for it.
    pub(crate) source: ToolSource,
    /// The guest.
    pub(crate) plugin: Arc<Plugin>,
    /// The tool's name without prefix.
    pub(crate) name: String,
    /// The type of the items that stand for its calls, where a function names none.
    item_type: String,
    /// The entry's `parameters`; of one of the client's own kinds the whole entry.
    pub(crate) settings: Bytes,
}

/// One entry of the request's `tools`.
pub(super) enum Entry {
    /// Handed on as it is.
    Client(Bytes),
    /// A function that waits until it is found: its name, and its entry when it is offered.
    Deferred { name: String, json: Bytes },
    /// Functions that the host serves: their definitions, comma-separated. An entry of the client's own kinds
    /// is kept, for endpoints whose dialect has the kind.
    Server { tool: ServerTool, functions: Vec<Shows>, json: Bytes, client: Option<ClientEntry> },
}

/// An entry of the client's own kinds that the host can stand in for.
pub(super) struct ClientEntry {
    type_name: String,
    pub(super) json: Bytes,
}

/// A function and how its calls are shown.
pub(super) struct Shows {
    pub(super) function: String,
    shown: Arc<Shown>,
}

/// Everything a model is offered.
#[derive(Default)]
pub(crate) struct Offer {
    entries: Vec<Entry>,
    /// The entry of each function that the host serves.
    owners: BTreeMap<String, usize>,
    /// Why entries that the host could stand in for are left to endpoints whose dialect has them.
    left: BTreeMap<usize, Refusal>,
}

impl Offer {
    /// Asks the tools of a request for their functions.
    ///
    /// # Errors
    /// 400 naming the entry: a tool this host has not, wrong settings, a function offered twice. 503 and 500
    /// when a guest could not be asked.
    pub(crate) async fn of(
        engine: &Engine,
        request: &ResponsesRequest,
        context: &CallContext,
        doors: &Doors,
    ) -> Result<Self, Refusal> {
        let defers = defers(&request.tools);
        let named = request.tool_choice.named();
        let mut entries = Vec::with_capacity(request.tools.len());
        check_count(engine, &request.tools)?;
        for tool in &request.tools {
            entries.push(match (&tool.kind, tool.name.as_ref()) {
                (ToolKind::Server(name), _) => {
                    let server = engine.server_tool(tool, name)?;
                    server_entry(server, None, request, context, doors).await?
                }
                (_, Some(name)) if defers && tool.is_deferred && !named.contains(name) => {
                    Entry::Deferred { name: name.clone(), json: tool.loaded_json() }
                }
                _ => match engine.stand_in_tool(tool) {
                    Some(server) => {
                        let client =
                            ClientEntry { type_name: tool.type_name.clone(), json: tool.json.clone() };
                        server_entry(server, Some(client), request, context, doors).await?
                    }
                    None => Entry::Client(tool.json.clone()),
                },
            });
        }
        let mut left = BTreeMap::new();
        let owners = owners(&mut entries, &request.tools, &mut left)?;
        Ok(Self { entries, owners, left })
    }

    /// Which entries this endpoint's dialect has itself.
    pub(crate) fn own_of(&self, endpoint: &Endpoint) -> Own {
        Own::new(self.entries.iter().map(|entry| match entry {
            Entry::Server { client: Some(client), .. } => dialect_has(endpoint, &client.type_name),
            _ => false,
        }))
    }

    /// Whether the host serves this entry of the request's tools.
    pub(crate) fn serves(&self, place: usize) -> bool {
        matches!(self.entries.get(place), Some(Entry::Server { .. }))
    }

    /// Why the host does not stand in for this entry although it has a tool that could.
    pub(crate) fn why_left(&self, place: usize) -> Option<&Refusal> {
        self.left.get(&place)
    }

    /// The tool that serves this function.
    pub(crate) fn owner(&self, function: &str) -> Option<&ServerTool> {
        match self.entries.get(*self.owners.get(function)?)? {
            Entry::Server { tool, .. } => Some(tool),
            _ => None,
        }
    }

    /// Whether a stream tells of the questions that calls of this function put to models.
    pub(crate) fn tells_questions(&self, function: &str) -> bool {
        let Some(Entry::Server { functions, .. }) =
            self.owners.get(function).and_then(|place| self.entries.get(*place))
        else {
            return false;
        };
        functions.iter().any(|shows| shows.function == function && shows.shown.table.questions)
    }

    /// The functions of the tool with this name, if the request has it.
    pub(crate) fn functions_of(&self, name: &str) -> Option<Vec<&str>> {
        self.functions_where(|_, tool, client| client.is_none() && tool.name == name)
    }

    /// The functions that stand for the client's own tools of this type, as far as the endpoint has none of
    /// its own.
    pub(crate) fn functions_for(&self, type_name: &str, own: &Own) -> Option<Vec<&str>> {
        self.functions_where(|place, _, client| {
            !own.has(place) && client.is_some_and(|client| client.type_name == type_name)
        })
    }

    fn functions_where(
        &self,
        is_meant: impl Fn(usize, &ServerTool, Option<&ClientEntry>) -> bool,
    ) -> Option<Vec<&str>> {
        let mut found = None;
        for (place, entry) in self.entries.iter().enumerate() {
            if let Entry::Server { tool, functions, client, .. } = entry
                && is_meant(place, tool, client.as_ref())
            {
                let names = functions.iter().map(|shows| shows.function.as_str());
                found.get_or_insert_with(Vec::new).extend(names);
            }
        }
        found
    }

    /// What the assembler has to know.
    pub(crate) fn served(&self) -> Served {
        let functions = self.entries.iter().flat_map(|entry| match entry {
            Entry::Server { functions, .. } => functions.as_slice(),
            _ => &[],
        });
        Served::new(functions.map(|shows| (shows.function.clone(), Arc::clone(&shows.shown))))
    }

    /// The array `tools` of a turn: the client's order, then the deferred functions in `loaded`, which are
    /// places of entries. Empty when nothing is offered.
    pub(crate) fn write(&self, loaded: &[usize], own: &Own) -> Vec<u8> {
        let first = self.entries.iter().enumerate().map(|(place, entry)| match entry {
            Entry::Server { client: Some(client), .. } if own.has(place) => client.json.as_ref(),
            Entry::Client(json) | Entry::Server { json, .. } => json.as_ref(),
            Entry::Deferred { .. } => b"",
        });
        let later = loaded.iter().map(|place| match self.entries.get(*place) {
            Some(Entry::Deferred { json, .. }) => json.as_ref(),
            _ => b"",
        });
        let pieces: Vec<&[u8]> = first.chain(later).filter(|piece| !piece.is_empty()).collect();
        if pieces.is_empty() {
            return Vec::new();
        }
        [b"[".as_slice(), &pieces.join(&b','), b"]"].concat()
    }

    /// Places of the deferred functions that `is_loaded` and are not in `known`, in the client's order.
    pub(crate) fn newly_loaded(&self, known: &[usize], is_loaded: impl Fn(&str) -> bool) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        let loaded = entries.filter_map(|(place, entry)| match entry {
            Entry::Deferred { name, .. } if is_loaded(name) && !known.contains(&place) => Some(place),
            _ => None,
        });
        loaded.collect()
    }
}

/// The functions that wait until they are found: none where nothing can find them.
pub(crate) fn deferred(tools: &[RequestTool]) -> Vec<Deferred> {
    let defers = defers(tools);
    let deferred = tools.iter().filter(|tool| defers && tool.is_deferred);
    let definition =
        |tool: &RequestTool| Some(Deferred { name: tool.name.clone()?, json: tool.loaded_json() });
    deferred.filter_map(definition).collect()
}

fn defers(tools: &[RequestTool]) -> bool {
    tools.iter().any(|tool| matches!(&tool.kind, ToolKind::Server(name) if name == "tool_search"))
}

/// Refuses more server tools than anybody needs before a guest is asked.
fn check_count(engine: &Engine, tools: &[RequestTool]) -> Result<(), Refusal> {
    let is_served =
        |tool: &&RequestTool| matches!(tool.kind, ToolKind::Server(_)) || engine.stand_in(tool).is_some();
    let mut servers = tools.iter().filter(is_served);
    match servers.nth(SERVER_TOOLS_MAX) {
        Some(tool) => Err(Refusal::invalid(format!(
            "{} is one server tool too many, of {SERVER_TOOLS_MAX}",
            tool.source.place
        ))),
        None => Ok(()),
    }
}

impl Engine {
    /// The guest behind an entry.
    fn server_tool(&self, tool: &RequestTool, name: &str) -> Result<ServerTool, Refusal> {
        let plugin = self.tool_plugin(name).ok_or_else(|| unavailable(tool))?;
        let prefix = tool.prefix.unwrap_or(ToolPrefix::Service);
        Ok(ServerTool {
            source: tool.source,
            plugin: Arc::clone(plugin),
            name: name.to_owned(),
            item_type: format!("{}{name}", prefix.as_str()),
            settings: tool.settings.clone(),
        })
    }

    /// The guest that stands in for an entry of the client's own kinds.
    fn stand_in_tool(&self, tool: &RequestTool) -> Option<ServerTool> {
        let (plugin, table) = self.stand_in(tool)?;
        Some(ServerTool {
            // Its settings are the members of the entry.
            source: ToolSource { names: Some(&[]), ..tool.source },
            plugin: Arc::clone(plugin),
            name: table.tool_type.clone(),
            // The manifest was checked for it.
            item_type: table.client_item.clone().unwrap_or_default(),
            settings: tool.json.clone(),
        })
    }

    /// The installed tool of this type that has all it needs.
    pub(crate) fn tool_plugin(&self, name: &str) -> Option<&Arc<Plugin>> {
        let has_type = |plugin: &&Arc<Plugin>| {
            plugin.kind() == Kind::Tool
                && plugin.manifest().tool.as_ref().is_some_and(|table| table.tool_type == name)
        };
        self.parts.plugins.iter().filter(has_type).find(|plugin| plugin.is_usable())
    }
}

fn unavailable(tool: &RequestTool) -> Refusal {
    Refusal::invalid(format!(
        "{}.type \"{}\" is not available on this host",
        tool.source.place,
        printable(&tool.type_name)
    ))
}

/// Asks a tool for its functions. Their definitions say `strict` because providers differ in what they take
/// for granted, and schemas of tools have optional members.
async fn server_entry(
    tool: ServerTool,
    client: Option<ClientEntry>,
    request: &ResponsesRequest,
    context: &CallContext,
    doors: &Doors,
) -> Result<Entry, Refusal> {
    let mut functions = Vec::new();
    let mut definitions = Vec::new();
    for function in ask(&tool, context, doors).await? {
        let Function { name, description, parameters } = function;
        // The runtime has checked that the schema is an object.
        let mut parameters = serde_json::from_slice(&parameters).map_err(|_| Refusal::internal())?;
        let shown = shows::of(&tool.plugin, &tool.item_type, &mut parameters, &request.include)?;
        let definition = json!({
            "type": "function",
            "name": name,
            "description": description,
            "strict": false,
            "parameters": parameters,
        });
        definitions.push(definition.to_string());
        functions.push(Shows { function: name, shown: Arc::new(shown) });
    }
    Ok(Entry::Server { tool, functions, json: Bytes::from(definitions.join(",")), client })
}

async fn ask(tool: &ServerTool, context: &CallContext, doors: &Doors) -> Result<Vec<Function>, Refusal> {
    // The first use of a guest compiles it, which takes what it takes.
    let compiled = tool.plugin.compile().await;
    let asked = async {
        compiled?;
        tool.plugin.functions(context, doors.services(&tool.plugin), &tool.settings).await
    };
    match timeout(OFFER_TIME_MAX, asked).await {
        Ok(Ok(Ok(functions))) => Ok(functions),
        Ok(Ok(Err(
            ToolError::InvalidSettings(message)
            | ToolError::InvalidArguments(message)
            | ToolError::Failed(message),
        ))) => Err(Refusal::invalid(tool.source.complaint(&message))),
        Ok(Err(error)) if error.is_saturated() => Err(Refusal::saturated()),
        Ok(Err(error)) => {
            tracing::error!(plugin = %error.plugin, %error, "a tool could not say what it offers");
            Err(Refusal::internal())
        }
        Err(_elapsed) => {
            tracing::error!(plugin = tool.plugin.name(), "a tool took too long to say what it offers");
            Err(Refusal::internal())
        }
    }
}
