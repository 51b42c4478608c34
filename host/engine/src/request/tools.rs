//! The tools that a client offers. Their class says which side runs them: the client, the provider
//! or this service.

use super::bounds::TOOLS_MAX;
use super::hosted::Hosted;
use super::invalid::{InvalidRequest, quoted};
use super::json::{self, JsonDocument, JsonKind, JsonValue};
use super::rule::{OPEN_OBJECT, TEXT, ValueRule};
use super::shapes::server_tools::SERVER_TOOLS;
use super::shapes::tools::TOOLS;
use super::tool_source::{ToolPath, ToolSource};
use bytes::Bytes;
use cofferdam_protocol::{Rendering, ToolKind, ToolPrefix, split_prefix};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A tool of a request, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTool {
    /// The part of the request that asks for the tool.
    pub source: ToolSource,
    /// The kind of the tool.
    pub kind: ToolKind,
    /// `type` as the client wrote it.
    pub type_name: String,
    /// The prefix of a server tool; none for other tools and for the bare alias.
    pub prefix: Option<ToolPrefix>,
    /// The name of a function, custom tool or namespace, or the `server_label` of an MCP server.
    pub name: Option<String>,
    /// The whole entry of `tools` as JSON; empty where another part of the request asks for the
    /// tool.
    pub json: Bytes,
    /// The parameters of a server tool as JSON, `{}` when absent; empty bytes for other tools.
    pub settings: Bytes,
    /// A server tool of this host is used instead of the tool that the client offered, as its
    /// hosted substitute.
    pub stands_in: bool,
    /// The requirements for endpoints; set for tools that a provider runs.
    pub hosted: Option<Hosted>,
    /// A function with `defer_loading: true`: it may be withheld from the model until a tool search
    /// finds it.
    pub is_deferred: bool,
}

impl RequestTool {
    /// The entry without `defer_loading`, because a provider that receives this member searches for
    /// tools itself.
    #[must_use]
    pub fn loaded_json(&self) -> Bytes {
        // The entry is part of a document that was parsed before, so this does not fail.
        let Ok(document) = JsonDocument::parse(&self.json) else { return self.json.clone() };
        let mut out = vec![b'{'];
        for (key, value) in document.root().members().filter(|(key, _)| !key.is("defer_loading")) {
            json::write_member(key, value, &mut out);
        }
        out.push(b'}');
        Bytes::from(out)
    }

    /// Whether the tool can be rendered without loss as one or more functions, for models that
    /// support only functions.
    pub(crate) fn is_told_as_functions(&self) -> bool {
        // The client runs a local shell. A shell in a container is run by the provider.
        let is_local = || {
            let document = JsonDocument::parse(&self.json).ok();
            let environment = document.as_ref().and_then(|it| it.root().get("environment")?.get("type"));
            environment.is_none_or(|environment| environment.is("local"))
        };
        self.kind.rendering() == Rendering::Functions && (self.kind != ToolKind::Shell || is_local())
    }

    /// Whether endpoints without this tool may be used nevertheless. Clients offer web search by
    /// default, without depending on it; a client that names the engine `native` depends on the
    /// endpoint's own search.
    pub(crate) fn may_be_left_out(&self) -> bool {
        self.kind == ToolKind::WebSearch && self.engine().as_deref() != Some("native")
    }

    /// Replaces the tool by its hosted substitute, the server tool `name`. The whole entry becomes
    /// the substitute's settings.
    pub(crate) fn replace(&mut self, name: &str) {
        self.kind = ToolKind::Server(name.to_owned());
        self.source.names = Some(&[]);
        self.settings = self.json.clone();
        self.stands_in = true;
        self.hosted = None;
    }

    /// A member of a provider's tool that this host's substitute would ignore.
    pub(crate) fn unknown_member(&self) -> Option<&str> {
        let members = self.hosted.iter().flat_map(|hosted| &hosted.members);
        members.filter(|member| !member.is_known).map(|member| member.name.as_str()).next()
    }

    /// The `engine` that the entry names.
    pub(crate) fn engine(&self) -> Option<String> {
        let document = JsonDocument::parse(&self.json).ok()?;
        Some(document.root().get("engine")?.text().into_owned())
    }

    /// The name by which the model calls a function or custom tool. None for other kinds: a
    /// namespace has its own name for grouping, and the remaining kinds have no name.
    #[must_use]
    pub fn function_name(&self) -> Option<&str> {
        let named = matches!(self.kind, ToolKind::Function | ToolKind::Custom);
        self.name.as_deref().filter(|_| named)
    }
}

/// `tool_choice`, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides. This is the default.
    #[default]
    Auto,
    /// No tool may be called.
    None,
    /// Some tool must be called.
    Required,
    /// This function must be called.
    Function(String),
    /// This custom tool must be called.
    Custom(String),
    /// A tool of this MCP server must be called.
    Mcp {
        /// The `server_label` of the tool entry.
        server_label: String,
        /// The tool on that server, if one was named.
        name: Option<String>,
    },
    /// The model may call only these tools.
    Allowed {
        /// Whether it must call one.
        required: bool,
        /// The list as JSON.
        tools: Bytes,
    },
    /// The tool of this type must be called; the type is as the client wrote it.
    Type(String),
}

/// The name of an entry in a list of allowed tools.
#[derive(serde::Deserialize)]
struct AllowedTool {
    name: Option<String>,
}

/// The type of an entry in a list of allowed tools.
#[derive(serde::Deserialize)]
struct Typed<'a> {
    #[serde(rename = "type", borrow)]
    tag: Cow<'a, str>,
}

/// Whether this is one of the types of web search.
pub(crate) fn is_search(type_name: &str) -> bool {
    type_name.starts_with("web_search")
}

/// A checked entry that still borrows from the body.
#[derive(Debug)]
pub(super) struct CheckedTool<'d> {
    value: JsonValue<'d>,
    kind: ToolKind,
    prefix: Option<ToolPrefix>,
}

impl<'d> CheckedTool<'d> {
    /// Checks all of `tools`.
    ///
    /// # Errors
    /// The first entry that is unknown or malformed, by path.
    pub(super) fn list(tools: JsonValue<'d>) -> Result<Vec<Self>, InvalidRequest> {
        ValueRule::List { of: &ValueRule::Any, min: 0, max: TOOLS_MAX }.check(tools)?;
        tools.items().map(Self::check).collect()
    }

    pub(super) fn check(value: JsonValue<'d>) -> Result<Self, InvalidRequest> {
        let tag = TOOLS.tag_of(value)?;
        let type_name = tag.text();
        if let Some((prefix, name)) = split_prefix(&type_name) {
            return Self::server(value, Some(prefix), name);
        }
        let is_clients = value.get("execution").is_some_and(|by| by.is("client"));
        if type_name == "tool_search" && !is_clients {
            return Self::server(value, None, &type_name);
        }
        TOOLS.check(value)?;
        let kind = ToolKind::of_type(&type_name).cloned().ok_or_else(|| TOOLS.unknown(tag))?;
        Ok(Self { value, kind, prefix: None })
    }

    fn server(value: JsonValue<'d>, prefix: Option<ToolPrefix>, name: &str) -> Result<Self, InvalidRequest> {
        if let Some(parameters) = value.get("parameters") {
            match SERVER_TOOLS.iter().find(|(known, _)| *known == name) {
                Some((_, shape)) => shape.check(parameters)?,
                None => OPEN_OBJECT.check(parameters)?,
            }
        }
        Ok(Self { value, kind: ToolKind::Server(name.to_owned()), prefix })
    }

    pub(super) fn value(&self) -> JsonValue<'d> {
        self.value
    }

    pub(super) fn kind(&self) -> &ToolKind {
        &self.kind
    }

    /// The type, if not every dialect has tools of it.
    pub(super) fn own_type(&self) -> Option<String> {
        let is_common = matches!(self.kind, ToolKind::Function | ToolKind::Server(_));
        Some(self.value.get("type").filter(|_| !is_common)?.text().into_owned())
    }

    /// Converts the entry, with a copy of its JSON.
    pub(super) fn into_copy(self, path: ToolPath) -> RequestTool {
        let json = Bytes::from(self.value.compact());
        self.into_tool(path, json)
    }

    /// Converts the entry. `json` is its slice of the JSON for guests.
    pub(super) fn into_tool(self, path: ToolPath, json: Bytes) -> RequestTool {
        let text = |name| self.value.get(name).map(|value| value.text().into_owned());
        let (name, settings) = match self.kind {
            ToolKind::Server(_) => {
                let settings = self.value.get("parameters").map(|value| Bytes::from(value.compact()));
                (None, settings.unwrap_or(Bytes::from_static(b"{}")))
            }
            ToolKind::Mcp => (text("server_label"), Bytes::new()),
            ToolKind::Function | ToolKind::Custom | ToolKind::Namespace => (text("name"), Bytes::new()),
            _ => (None, Bytes::new()),
        };
        let type_name = text("type").unwrap_or_default();
        let is_server = matches!(self.kind, ToolKind::Server(_));
        let hosted = if is_server { None } else { Hosted::of_tool(self.value, || path.to_string()) };
        let is_deferred = self.kind == ToolKind::Function
            && self.value.get("defer_loading").is_some_and(JsonValue::is_true);
        RequestTool {
            source: ToolSource { path, names: None },
            kind: self.kind,
            type_name,
            prefix: self.prefix,
            name,
            json,
            settings,
            stands_in: false,
            hosted,
            is_deferred,
        }
    }

    /// What a choice can name by a type (`function`, `custom` or `mcp`) and a name. A namespace offers the
    /// tools inside it.
    fn choices(&self) -> impl Iterator<Item = (Cow<'d, str>, Cow<'d, str>)> {
        let (member, namespace) = match self.kind {
            ToolKind::Function | ToolKind::Custom => (Some("name"), None),
            ToolKind::Mcp => (Some("server_label"), None),
            ToolKind::Namespace => (None, self.value.get("tools")),
            _ => (None, None),
        };
        let choice = |tool: JsonValue<'d>, member| Some((tool.get("type")?.text(), tool.get(member)?.text()));
        let inside = namespace.into_iter().flat_map(JsonValue::items);
        let own = member.and_then(|member| choice(self.value, member));
        own.into_iter().chain(inside.filter_map(move |tool| choice(tool, "name")))
    }
}

/// What a choice can name: types with names.
type Choices<'d> = BTreeSet<(Cow<'d, str>, Cow<'d, str>)>;

impl ToolChoice {
    /// Whether the choice depends on web search: it names a search, or `tools` has nothing else
    /// that could be called.
    pub(crate) fn needs_search(&self, tools: &[RequestTool]) -> bool {
        match self {
            Self::Type(name) => is_search(name),
            Self::Allowed { tools, .. } => {
                let tools: Vec<Typed<'_>> = serde_json::from_slice(tools).unwrap_or_default();
                tools.iter().any(|tool| is_search(&tool.tag))
            }
            Self::Required => tools.iter().all(|tool| tool.kind == ToolKind::WebSearch),
            Self::Auto | Self::None | Self::Function(_) | Self::Custom(_) | Self::Mcp { .. } => false,
        }
    }

    /// The functions and custom tools that the choice names.
    pub(crate) fn named(&self) -> BTreeSet<String> {
        match self {
            Self::Function(name) | Self::Custom(name) => BTreeSet::from([name.clone()]),
            Self::Allowed { tools, .. } => {
                let tools: Vec<AllowedTool> = serde_json::from_slice(tools).unwrap_or_default();
                tools.into_iter().filter_map(|tool| tool.name).collect()
            }
            Self::Auto | Self::None | Self::Required | Self::Mcp { .. } | Self::Type(_) => BTreeSet::new(),
        }
    }

    /// Checks `tool_choice` against the offered tools. `complete` is false when items of the input
    /// bring further tools; names are then not looked up.
    ///
    /// # Errors
    /// An unknown form, or a tool that is not offered, with path and name.
    pub(super) fn check(
        value: JsonValue<'_>,
        tools: &[CheckedTool<'_>],
        complete: bool,
    ) -> Result<Self, InvalidRequest> {
        if value.kind() == JsonKind::String {
            ValueRule::OneOf(&["auto", "none", "required"]).check(value)?;
            return Ok(match value.text().as_ref() {
                "none" => Self::None,
                "required" => Self::Required,
                _ => Self::Auto,
            });
        }
        if value.kind() != JsonKind::Object {
            return Err(value.mistyped("a string or an object"));
        }
        let offered: Option<Choices<'_>> =
            complete.then(|| tools.iter().flat_map(CheckedTool::choices).collect());
        match TOOLS.tag_of(value)?.is("allowed_tools") {
            true => Self::allowed(value, offered.as_ref()),
            false => Self::one(value, offered.as_ref()),
        }
    }

    /// A choice of one tool.
    fn one(value: JsonValue<'_>, offered: Option<&Choices<'_>>) -> Result<Self, InvalidRequest> {
        let tag = TOOLS.tag_of(value)?;
        let type_name = tag.text();
        let find = |member: &str| {
            let name = member_text(value, member)?;
            let wanted = (type_name.clone(), name.text());
            if offered.is_some_and(|offered| !offered.contains(&wanted)) {
                let message = format!(
                    "names a tool of type {type_name} that is not in tools: \"{}\"",
                    quoted(&name.text())
                );
                return Err(name.invalid(message));
            }
            Ok(wanted.1.into_owned())
        };
        match type_name.as_ref() {
            "function" => find("name").map(Self::Function),
            "custom" => find("name").map(Self::Custom),
            "mcp" => {
                let server_label = find("server_label")?;
                let name = value.get("name");
                name.map_or(Ok(()), |name| TEXT.check(name))?;
                Ok(Self::Mcp { server_label, name: name.map(|name| name.text().into_owned()) })
            }
            other => {
                let known = TOOLS.variants.iter().any(|(name, _)| *name == other);
                if known || other == "tool_search" || split_prefix(other).is_some() {
                    return Ok(Self::Type(other.to_owned()));
                }
                Err(tag.invalid(format!("names an unknown tool choice: \"{}\"", quoted(other))))
            }
        }
    }

    /// A choice among several tools. Each of them has the form of a choice of this tool alone.
    fn allowed(value: JsonValue<'_>, offered: Option<&Choices<'_>>) -> Result<Self, InvalidRequest> {
        let mode = member_text(value, "mode")?;
        ValueRule::OneOf(&["auto", "required"]).check(mode)?;
        let Some(tools) = value.get("tools") else {
            return Err(value.invalid_member("tools", "is required"));
        };
        ValueRule::List { of: &OPEN_OBJECT, min: 1, max: TOOLS_MAX }.check(tools)?;
        for tool in tools.items() {
            Self::one(tool, offered)?;
        }
        Ok(Self::Allowed { required: mode.is("required"), tools: Bytes::from(tools.compact()) })
    }
}

fn member_text<'d>(object: JsonValue<'d>, name: &str) -> Result<JsonValue<'d>, InvalidRequest> {
    let Some(value) = object.get(name) else { return Err(object.invalid_member(name, "is required")) };
    TEXT.check(value)?;
    Ok(value)
}
