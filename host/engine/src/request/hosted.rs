//! What a request makes a provider run or read inside its own endpoint: hosted tools, with the
//! members that an endpoint may not support or that name stored objects, and stored files. Each
//! endpoint is checked for whether it accepts them.

use super::json::{JsonKind, JsonValue};
use super::shapes::server_tools::SERVER_TOOLS;
use super::shapes::tools::TOOLS;
use cofferdam_protocol::{ToolClass, ToolKind};

/// Members that the host reads itself, or that identify the tool.
const OWN: [&str; 2] = ["type", "engine"];
/// Members whose content belongs to the client and never names stored objects: header texts and a
/// schema.
const FREE: [&str; 2] = ["headers", "output_schema"];
/// Known members of the objects that describe where a provider's tool runs.
const PLACE: [&str; 3] = ["type", "file_ids", "container_id"];

/// A tool that a provider runs, or a stored file that a part of the input names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosted {
    /// The JSON path of the tool or file, such as `tools[0]`.
    pub path: String,
    /// The type of the tool; none for a file.
    pub type_name: Option<String>,
    /// The members of the tool that endpoints are checked for.
    pub members: Vec<HostedMember>,
}

/// A member of a provider's tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostedMember {
    /// The name of the member, or its path inside the tool.
    pub name: String,
    /// How the member is checked against an endpoint.
    pub means: Meaning,
    /// The API defines the member, so a server tool of this host may be used as the tool's
    /// substitute.
    pub is_known: bool,
}

/// How a member is checked against an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A setting that the dialect may or may not support.
    Setting,
    /// The id of an object stored at the provider.
    Stored(String),
    /// A member that no dialect is known to support, inside an object that is known.
    Unknown,
}

/// Whether a member with this name holds ids of stored objects.
fn names_stored(name: &str) -> bool {
    name == "container" || name.ends_with("_id") || name.ends_with("_ids")
}

impl Hosted {
    /// The tool, if a provider would run it. `path` computes its JSON path.
    pub(super) fn of_tool(tool: JsonValue<'_>, path: impl FnOnce() -> String) -> Option<Self> {
        let type_name = tool.get("type")?.text();
        if is_clients(&type_name, tool) {
            return None;
        }
        let mut members = Vec::new();
        let given = tool.members().filter(|(_, value)| !value.is_null());
        for (key, value) in given {
            let name = key.text();
            if OWN.contains(&&*name) {
                continue;
            }
            // A member whose name says that it holds ids is checked by these ids only, not as a
            // setting as well.
            let own = members.len();
            if !FREE.contains(&&*name) {
                note_stored(&name, &name, value, &mut members);
            }
            if !names_stored(&name) || members.len() == own {
                members.push(HostedMember::new(&name, Meaning::Setting));
            }
            let is_known = match &*name {
                // With true the search behaves as it does anyway. With false it would use only what
                // the provider has stored, which this host's search cannot do.
                "external_web_access" => value.is_true(),
                name => is_known(&type_name, name),
            };
            members.iter_mut().skip(own).for_each(|member| member.is_known = is_known);
            if matches!(&*name, "container" | "environment") {
                note_unknown(&name, value, &mut members);
            }
        }
        Some(Self { path: path(), type_name: Some(type_name.into_owned()), members })
    }

    /// Collects the tools of a list that a provider would run, including those in namespaces.
    /// Elements of other types are skipped. Stops when there are more than `max`.
    pub(super) fn of_list<'d>(tools: impl Iterator<Item = JsonValue<'d>>, max: usize, out: &mut Vec<Self>) {
        for tool in tools {
            if out.len() > max {
                return;
            }
            out.extend(Self::of_tool(tool, || tool.path()));
            if tool.get("type").is_some_and(|tag| tag.is("namespace")) {
                let inner = tool.get("tools").into_iter().flat_map(JsonValue::items);
                Self::of_list(inner, max, out);
            }
        }
    }

    /// The stored file that a part names by id.
    pub(super) fn of_file(id: JsonValue<'_>) -> Option<Self> {
        let means = (id.kind() == JsonKind::String).then(|| Meaning::Stored(id.text().into_owned()))?;
        Some(Self { path: id.path(), type_name: None, members: vec![HostedMember::new("", means)] })
    }
}

impl HostedMember {
    fn new(name: &str, means: Meaning) -> Self {
        Self { name: name.to_owned(), means, is_known: false }
    }
}

/// Whether the API defines this member for tools of the type, as a tool of the client or as a
/// server tool.
fn is_known(type_name: &str, member: &str) -> bool {
    let base = if type_name.starts_with("web_search") { "web_search" } else { type_name };
    let mut shapes = TOOLS.variants.iter().filter(|(known, _)| *known == type_name);
    let mut own = SERVER_TOOLS.iter().filter(|(known, _)| *known == base);
    shapes.any(|(_, shape)| shape.knows(member)) || own.any(|(_, shape)| shape.knows(member))
}

/// Whether the client runs the tool.
fn is_clients(type_name: &str, tool: JsonValue<'_>) -> bool {
    let member = |object: JsonValue<'_>, name, word| object.get(name).is_some_and(|value| value.is(word));
    match ToolKind::of_type(type_name) {
        Some(ToolKind::Shell) => tool.get("environment").is_none_or(|place| member(place, "type", "local")),
        Some(ToolKind::ToolSearch) => member(tool, "execution", "client"),
        kind => kind.is_some_and(|kind| kind.class() == ToolClass::Client),
    }
}

/// Notes all ids of stored objects in a member, at any depth.
fn note_stored(path: &str, name: &str, value: JsonValue<'_>, out: &mut Vec<HostedMember>) {
    let note = |id: JsonValue<'_>, out: &mut Vec<HostedMember>| {
        out.push(HostedMember::new(path, Meaning::Stored(id.text().into_owned())));
    };
    match value.kind() {
        JsonKind::String if names_stored(name) => note(value, out),
        JsonKind::Array => {
            for item in value.items() {
                note_stored(path, name, item, out);
            }
        }
        JsonKind::Object => {
            for (key, member) in value.members() {
                let name = key.text();
                note_stored(&format!("{path}.{name}"), &name, member, out);
            }
        }
        _ => {}
    }
}

/// Notes unknown members of an object that describes where a tool runs. They may change the price:
/// more memory, for example.
fn note_unknown(path: &str, place: JsonValue<'_>, out: &mut Vec<HostedMember>) {
    let given = place.members().filter(|(_, value)| !value.is_null());
    let unknown = given.map(|(key, _)| key.text()).filter(|name| !PLACE.contains(&&**name));
    out.extend(unknown.map(|name| HostedMember::new(&format!("{path}.{name}"), Meaning::Unknown)));
}
