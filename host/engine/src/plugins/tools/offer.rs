//! What a request's server tools offer to the model: each entry of `tools` is replaced by the
//! functions of its guest.

use super::capabilities::RequestCapabilities;
use super::deferred::defers;
use super::function_index::{self, ServedFunctions};
use super::refused::{too_deep, unavailable};
use super::run;
use super::server_tool::{ServerTool, installed};
use super::shown;
use crate::Engine;
use crate::assembler::approvals::Binding;
use crate::assembler::{CallItem, Served};
use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::{RequestTool, ResponsesRequest, ToolPath};
use bytes::Bytes;
use cofferdam_protocol::ToolKind;
use cofferdam_runtime::manifest::Import;
use cofferdam_runtime::wire::{Function, ToolError};
use cofferdam_runtime::{CallContext, Plugin};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The most server tools of one request. Each costs a call into its guest.
const SERVER_TOOLS_MAX: usize = 64;
/// How long a tool may take to list its functions. Most only look at their settings, some ask a
/// server.
const OFFER_TIME_MAX: Duration = Duration::from_secs(25);
/// The most tools that list their functions at the same time.
const OFFERS_AT_ONCE: usize = 8;
/// How long all tools of a request together may take for it.
const OFFERS_TIME_MAX: Duration = Duration::from_secs(60);

/// One entry of the request's `tools`.
enum ToolEntry {
    /// Passed on unchanged.
    Client(Bytes),
    /// A function that is offered only after it was found: its name, and its entry for that time.
    Deferred { name: String, json: Bytes },
    /// Functions that the host serves, and their definitions, comma-separated.
    Server { tool: ServerTool, functions: Vec<OfferedFunction>, json: Bytes },
}

/// A function that the host serves.
struct OfferedFunction {
    name: String,
    /// The item that shows a call to the client.
    item: Arc<CallItem>,
    /// The names of its parameters.
    parameters: Vec<String>,
}

/// Everything that a model is offered.
#[derive(Default)]
pub(crate) struct Offer {
    entries: Vec<ToolEntry>,
    /// The index of the entry of each function that the host serves.
    owners: BTreeMap<String, usize>,
    served: ServedFunctions,
}

impl Offer {
    /// Asks the tools of a request for their functions.
    ///
    /// # Errors
    /// 400 naming the entry: a tool that this host does not have, wrong settings, a function
    /// offered twice. 503 and 500 when a guest could not be asked.
    pub(crate) async fn of(
        engine: &Engine,
        request: &ResponsesRequest,
        context: &CallContext,
        capabilities: &RequestCapabilities,
    ) -> Result<Self, Refusal> {
        let defers = defers(&request.tools);
        let named = request.tool_choice.named();
        let mut entries = Vec::with_capacity(request.tools.len());
        for plugin in request.tools.iter().filter_map(|tool| match &tool.kind {
            ToolKind::Server(name) => engine.tool_plugin(name),
            _ => None,
        }) {
            // The first use of a guest compiles it, which must not count against the time limits
            // below. Errors are reported when the guest is called.
            plugin.compile().await.unwrap_or_default();
        }
        let mut offered = offered(engine, request, context, capabilities).await?.into_iter();
        for tool in &request.tools {
            entries.push(match (&tool.kind, tool.name.as_ref()) {
                (ToolKind::Server(_), _) => offered.next().ok_or_else(Refusal::internal)?,
                (_, Some(name)) if defers && tool.is_deferred && !named.contains(name) => {
                    ToolEntry::Deferred { name: name.clone(), json: tool.loaded_json() }
                }
                _ => ToolEntry::Client(tool.json.clone()),
            });
        }
        let owners = owners(&entries, &request.tools)?;
        let served = served_of(&entries);
        Ok(Self { entries, owners, served })
    }

    /// The tool that serves this function.
    pub(crate) fn owner(&self, function: &str) -> Option<&ServerTool> {
        match self.entries.get(*self.owners.get(function)?)? {
            ToolEntry::Server { tool, .. } => Some(tool),
            _ => None,
        }
    }

    /// The functions of the tool with this name, if the request has it.
    pub(crate) fn functions_of(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.served.of_tool(name)?.iter().map(String::as_str).collect())
    }

    /// The functions of the hosted substitute for this type of client tool, if there is one.
    pub(crate) fn functions_for(&self, type_name: &str) -> Option<Vec<&str>> {
        self.functions_where(|tool| {
            let table = tool.plugin.manifest().tool.as_ref();
            tool.stands_in
                && table.is_some_and(|table| table.client_types.iter().any(|known| known == type_name))
        })
    }

    /// The server tools of the request.
    pub(crate) fn server_tools(&self) -> impl Iterator<Item = &ServerTool> {
        self.entries.iter().filter_map(|entry| match entry {
            ToolEntry::Server { tool, .. } => Some(tool),
            _ => None,
        })
    }

    /// The function whose calls are items with this `server_label` and `name`.
    pub(crate) fn function_like(&self, item: &Map<String, Value>) -> Option<&str> {
        let label = item.get("server_label")?.as_str()?;
        self.served.on_server(label, Some(item.get("name")?.as_str()?)).first().map(String::as_str)
    }

    /// Whether a tool of this host connects to the server with this label, even if that server
    /// lists no functions.
    pub(crate) fn serves(&self, label: &str) -> bool {
        self.served.has_label(label)
    }

    /// The functions that stand for the tools of the server with this label, or for the one with
    /// this name.
    pub(crate) fn functions_on(&self, label: &str, name: Option<&str>) -> Vec<&str> {
        self.served.on_server(label, name).iter().map(String::as_str).collect()
    }

    /// The function of the tool with this name whose calls are items with these members: its only
    /// function, or the one whose declared members match best. `None` where several match equally.
    pub(super) fn function_told_as(&self, tool: &str, item: &Map<String, Value>) -> Option<&str> {
        self.served.like(tool, item)
    }

    /// The names of a function's parameters.
    pub(super) fn parameters_of(&self, function: &str) -> &[String] {
        let Some(ToolEntry::Server { functions, .. }) =
            self.owners.get(function).and_then(|index| self.entries.get(*index))
        else {
            return &[];
        };
        let own = functions.iter().find(|offered| offered.name == function);
        own.map_or(&[], |own| own.parameters.as_slice())
    }

    /// The first function of a tool.
    pub(crate) fn first_of(&self, tool: &ServerTool) -> Option<&str> {
        self.served.first_of(&tool.name, &tool.label)
    }

    fn functions_where(&self, is_meant: impl Fn(&ServerTool) -> bool) -> Option<Vec<&str>> {
        let mut found = None;
        for entry in &self.entries {
            if let ToolEntry::Server { tool, functions, .. } = entry
                && is_meant(tool)
            {
                found.get_or_insert_with(Vec::new).extend(functions.iter().map(|offered| &*offered.name));
            }
        }
        found
    }

    /// Types of items that stand for calls of hosted substitutes. They are rendered for models as
    /// calls of functions. The items of a tool that asks the client are rendered by
    /// [`super::history`].
    pub(crate) fn hosted_substitute_items(&self) -> Vec<String> {
        let mut known = HashSet::new();
        let functions = self.entries.iter().flat_map(|entry| match entry {
            ToolEntry::Server { tool, functions, .. } if tool.stands_in && !tool.asks_client() => {
                functions.as_slice()
            }
            _ => &[],
        });
        let kinds = functions.map(|offered| &offered.item.item_type).filter(|kind| known.insert(*kind));
        kinds.cloned().collect()
    }

    /// The functions and items that the assembler needs to recognize calls.
    pub(crate) fn served(&self) -> Served {
        let functions = self.entries.iter().flat_map(|entry| match entry {
            ToolEntry::Server { functions, .. } => functions.as_slice(),
            _ => &[],
        });
        Served::new(functions.map(|offered| (offered.name.clone(), Arc::clone(&offered.item))))
    }

    /// The array `tools` of a turn: the entries in the client's order, then the deferred functions
    /// at the indexes in `loaded`. Empty when nothing is offered.
    pub(crate) fn write(&self, loaded: &[usize]) -> Vec<u8> {
        let first = self.entries.iter().map(|entry| match entry {
            ToolEntry::Client(json) | ToolEntry::Server { json, .. } => json.as_ref(),
            ToolEntry::Deferred { .. } => b"",
        });
        let later = loaded.iter().map(|index| match self.entries.get(*index) {
            Some(ToolEntry::Deferred { json, .. }) => json.as_ref(),
            _ => b"",
        });
        let pieces: Vec<&[u8]> = first.chain(later).filter(|piece| !piece.is_empty()).collect();
        if pieces.is_empty() {
            return Vec::new();
        }
        [b"[".as_slice(), &pieces.join(&b','), b"]"].concat()
    }

    /// Indexes of the deferred functions that `is_loaded` and are not in `known`, in the client's
    /// order.
    pub(crate) fn newly_loaded(&self, known: &[usize], is_loaded: impl Fn(&str) -> bool) -> Vec<usize> {
        let known: HashSet<&usize> = known.iter().collect();
        let entries = self.entries.iter().enumerate();
        let loaded = entries.filter_map(|(index, entry)| match entry {
            ToolEntry::Deferred { name, .. } if is_loaded(name) && !known.contains(&index) => Some(index),
            _ => None,
        });
        loaded.collect()
    }
}

/// Checks the number of server tools before any guest is called.
///
/// # Errors
/// 400 naming the first that is too many.
pub(super) fn check_count(tools: &[RequestTool]) -> Result<(), Refusal> {
    let mut servers = tools.iter().filter(|tool| matches!(tool.kind, ToolKind::Server(_)));
    match servers.nth(SERVER_TOOLS_MAX) {
        Some(tool) => Err(Refusal::invalid(format!(
            "{} is one server tool too many, of {SERVER_TOOLS_MAX}",
            tool.source.path
        ))),
        None => Ok(()),
    }
}

impl Engine {
    /// The guest behind an entry.
    ///
    /// # Errors
    /// 400 if the tool is not available, or asks models in a request at the greatest depth.
    fn server_tool(
        &self,
        tool: &RequestTool,
        name: &str,
        capabilities: &RequestCapabilities,
    ) -> Result<ServerTool, Refusal> {
        let plugin = self.tool_plugin(name).ok_or_else(|| self.unavailable(tool, name))?;
        if capabilities.questions().is_deepest() && plugin.grant().imports.contains(&Import::Model) {
            return Err(too_deep(tool));
        }
        Ok(ServerTool {
            source: tool.source,
            plugin: Arc::clone(plugin),
            name: name.to_owned(),
            label: tool.name.clone(),
            stands_in: tool.stands_in,
            settings: tool.settings.clone(),
        })
    }

    /// The installed tool of this type that has the grants it needs.
    pub(crate) fn tool_plugin(&self, name: &str) -> Option<&Arc<Plugin>> {
        installed(&self.parts.plugins, name)
    }
}

/// The entries of the server tools. They are asked side by side, because some ask a server of their
/// own.
async fn offered(
    engine: &Engine,
    request: &ResponsesRequest,
    context: &CallContext,
    capabilities: &RequestCapabilities,
) -> Result<Vec<ToolEntry>, Refusal> {
    let until = Instant::now() + OFFERS_TIME_MAX;
    let mut asked: Vec<BoxFuture<'_, Result<ToolEntry, Refusal>>> = Vec::new();
    for tool in &request.tools {
        let ToolKind::Server(name) = &tool.kind else { continue };
        let server = engine.server_tool(tool, name, capabilities)?;
        asked.push(Box::pin(async move {
            let functions = functions(&server, tool, context, capabilities, until).await?;
            let asks = capabilities.approvals().bind(&server.settings);
            let (functions, json) = written(functions, &server, tool, &request.include, &asks)?;
            Ok(ToolEntry::Server { tool: server, functions, json })
        }));
    }
    stream::iter(asked).buffered(OFFERS_AT_ONCE).try_collect().await
}

async fn functions(
    tool: &ServerTool,
    asked_for: &RequestTool,
    context: &CallContext,
    capabilities: &RequestCapabilities,
    until: Instant,
) -> Result<Vec<Function>, Refusal> {
    let asked = tool.plugin.functions(
        context,
        capabilities.services(&tool.plugin, capabilities.timeline()),
        &tool.settings,
    );
    match timeout_at(until.min(Instant::now() + OFFER_TIME_MAX), asked).await {
        Ok(Ok(Ok(functions))) => Ok(run::clean(functions, tool, capabilities)),
        // The tool depends on a server of a third party. Its opening item reports the failure to
        // the client.
        Ok(Err(_)) | Err(_) if tool.opens() => Ok(Vec::new()),
        Ok(Ok(Err(ToolError::InvalidSettings(message) | ToolError::InvalidArguments(message)))) => {
            let message = run::clean_message(message, tool, capabilities);
            Err(Refusal::invalid(tool.source.complaint(&message)))
        }
        Ok(Ok(Err(ToolError::Failed(message)))) => {
            let message = run::clean_message(message, tool, capabilities);
            // Not a fault of the request: the operator has not set up the tool.
            tracing::warn!(plugin = tool.plugin.name(), %message, "a tool is not in order");
            Err(unavailable(asked_for))
        }
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

/// Functions as entries of `tools`, comma-separated, and the items of their calls. `strict` is
/// written because providers have different defaults, and schemas of tools have optional members.
fn written(
    functions: Vec<Function>,
    tool: &ServerTool,
    asked_for: &RequestTool,
    include: &[String],
    asks: &Binding,
) -> Result<(Vec<OfferedFunction>, Bytes), Refusal> {
    let mut out = Vec::new();
    let mut offered = Vec::with_capacity(functions.len());
    for function in functions {
        if !out.is_empty() {
            out.push(b',');
        }
        // The runtime has checked that the schema is an object.
        let mut parameters: Map<String, Value> =
            serde_json::from_slice(&function.parameters).map_err(|_| Refusal::internal())?;
        let Some(table) = tool.plugin.manifest().tool.as_ref() else { return Err(Refusal::internal()) };
        let mut item = shown::item_of(&mut parameters, table, asked_for, include).map_err(|undeclared| {
            let plugin = tool.plugin.name();
            tracing::error!(plugin, item = %undeclared, "a tool names an item that its manifest does not declare");
            Refusal::internal()
        })?;
        let is_asked = table.item(&item.item_type).is_some_and(|declared| declared.asks.is_some());
        item.asks = is_asked.then(|| asks.clone());
        let entry = json!({
            "type": "function",
            "name": function.name,
            "description": function.description,
            "strict": false,
            "parameters": parameters,
        });
        out.extend_from_slice(entry.to_string().as_bytes());
        let parameters = entry.pointer("/parameters/properties").and_then(Value::as_object);
        let parameters = parameters.into_iter().flat_map(Map::keys).cloned().collect();
        offered.push(OfferedFunction { name: function.name, item: Arc::new(item), parameters });
    }
    Ok((offered, Bytes::from(out)))
}

/// Builds the index of the functions.
fn served_of(entries: &[ToolEntry]) -> ServedFunctions {
    let servers = || {
        entries.iter().filter_map(|entry| match entry {
            ToolEntry::Server { tool, functions, .. } => Some((tool, functions)),
            _ => None,
        })
    };
    let functions =
        servers().flat_map(|(tool, functions)| functions.iter().map(move |offered| (tool, offered)));
    let entries = functions.map(|(tool, offered)| function_index::ServedFunction {
        tool: &tool.name,
        label: tool.label.as_deref(),
        function: &offered.name,
        members: &offered.item.members,
    });
    ServedFunctions::of(servers().map(|(tool, _)| (tool.name.as_str(), tool.label.as_deref())), entries)
}

/// The index of the entry that serves each function.
///
/// # Errors
/// 400 naming both entries that offer the same function.
fn owners(entries: &[ToolEntry], tools: &[RequestTool]) -> Result<BTreeMap<String, usize>, Refusal> {
    let mut offered: BTreeMap<&str, usize> = BTreeMap::new();
    let mut owners = BTreeMap::new();
    // Two functions of the client's own may have the same name: the provider decides about that.
    for (index, tool) in tools.iter().enumerate() {
        if let Some(name) = tool.function_name() {
            offered.entry(name).or_insert(index);
        }
    }
    for (index, entry) in entries.iter().enumerate() {
        let ToolEntry::Server { functions, .. } = entry else { continue };
        for function in functions {
            if let Some(other) = offered.insert(&function.name, index) {
                return Err(collision(tools, entries, other, index, &function.name));
            }
            owners.insert(function.name.clone(), index);
        }
    }
    Ok(owners)
}

fn collision(
    tools: &[RequestTool],
    entries: &[ToolEntry],
    first: usize,
    second: usize,
    function: &str,
) -> Refusal {
    let (first, second) = (first.min(second), first.max(second));
    let name = |index: usize| match entries.get(index) {
        Some(ToolEntry::Server { tool, .. }) => Some(tool.name.as_str()),
        _ => None,
    };
    let path = |index: usize| tools.get(index).map_or(ToolPath::Tools(index), |tool| tool.source.path);
    let function = printable(function);
    if name(first).is_some() && name(first) == name(second) {
        return Refusal::invalid(format!(
            "{} and {} are the same server tool, whose function \"{function}\" can be offered only once",
            path(first),
            path(second)
        ));
    }
    Refusal::invalid(format!(
        "{} and {} both offer a function named \"{function}\"",
        path(first),
        path(second)
    ))
}
