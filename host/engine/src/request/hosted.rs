//! What a request has a provider run or read inside its own endpoint: tools, with the members that may restrict them,
//! and things that are stored there. An endpoint is asked whether it takes each of them.

use super::json::{Kind, Value};
use super::shapes::server_tools::SERVER_TOOLS;
use super::shapes::tools::TOOLS;

/// Members that this host reads itself, or that say what the tool is.
const OWN: [&str; 2] = ["type", "engine"];
/// Members whose content is the client's own and names nothing that is stored: texts by name, and a schema.
const FREE: [&str; 2] = ["headers", "output_schema"];
/// Members of the objects that say where a provider's tool runs.
const PLACE: [&str; 3] = ["type", "file_ids", "container_id"];

/// A tool that a provider runs, or something stored that a part of the input names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosted {
    /// Where it stands: `tools[0]`.
    pub path: String,
    /// The type of the tool; none for a part of the input.
    pub type_name: Option<String>,
    /// The tool's members.
    pub members: Vec<Member>,
}

/// A member of a provider's tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, or its path within the tool.
    pub name: String,
    /// What it is to an endpoint.
    pub means: Meaning,
    /// The interface says what it does, so that a tool of this host may take the place of the provider's.
    pub is_known: bool,
}

/// What a member is to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A setting of the tool, which the dialect has or has not.
    Setting,
    /// It names this thing, stored at the provider.
    Stored(String),
    /// It says more of a known member than any dialect is known to have.
    Unknown,
}

/// Whether a member of this name names things that are stored.
fn names_stored(name: &str) -> bool {
    name == "container" || name.ends_with("_id") || name.ends_with("_ids")
}

impl Hosted {
    /// The tool, if a provider would run it. `path` is where it stands.
    pub(super) fn of_tool(tool: Value<'_>, path: impl FnOnce() -> String) -> Option<Self> {
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
            // What names stored things needs no place in the dialect's list beside.
            let own = members.len();
            if !FREE.contains(&&*name) {
                note_stored(&name, &name, value, &mut members);
            }
            if !names_stored(&name) || members.len() == own {
                members.push(Member::new(&name, Meaning::Setting));
            }
            let is_known = match &*name {
                // True is what a search does anyway. What this host's search finds is not what a provider has stored.
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

    /// The tools of this list that a provider would run, those of namespaces among them. The list may hold anything.
    /// Stops when there are more than `max`.
    pub(super) fn of_list(tools: Value<'_>, max: usize, out: &mut Vec<Self>) {
        for tool in tools.items() {
            if out.len() > max {
                return;
            }
            out.extend(Self::of_tool(tool, || tool.path()));
            if tool.get("type").is_some_and(|tag| tag.is("namespace")) {
                tool.get("tools").into_iter().for_each(|inner| Self::of_list(inner, max, out));
            }
        }
    }

    /// The file that a part names.
    pub(super) fn of_file(id: Value<'_>) -> Option<Self> {
        let means = (id.kind() == Kind::String).then(|| Meaning::Stored(id.text().into_owned()))?;
        Some(Self { path: id.path(), type_name: None, members: vec![Member::new("", means)] })
    }
}

impl Member {
    fn new(name: &str, means: Meaning) -> Self {
        Self { name: name.to_owned(), means, is_known: false }
    }
}

/// Whether the interface has a rule for this member of such a tool, the client's own or this host's.
fn is_known(type_name: &str, member: &str) -> bool {
    let base = if type_name.starts_with("web_search") { "web_search" } else { type_name };
    let mut shapes = TOOLS.variants.iter().filter(|(known, _)| *known == type_name);
    let mut own = SERVER_TOOLS.iter().filter(|(known, _)| *known == base);
    shapes.any(|(_, shape)| shape.knows(member)) || own.any(|(_, shape)| shape.knows(member))
}

/// Whether the client runs it, or this host.
fn is_clients(type_name: &str, tool: Value<'_>) -> bool {
    let member = |object: Value<'_>, name, word| object.get(name).is_some_and(|value| value.is(word));
    match type_name {
        "function"
        | "custom"
        | "namespace"
        | "apply_patch"
        | "local_shell"
        | "computer"
        | "computer_use_preview" => true,
        "shell" => tool.get("environment").is_none_or(|place| member(place, "type", "local")),
        "tool_search" => member(tool, "execution", "client"),
        _ => false,
    }
}

/// Notes the things that a member names, itself or within.
fn note_stored(path: &str, name: &str, value: Value<'_>, out: &mut Vec<Member>) {
    let note = |id: Value<'_>, out: &mut Vec<Member>| {
        out.push(Member::new(path, Meaning::Stored(id.text().into_owned())));
    };
    match value.kind() {
        Kind::String if names_stored(name) => note(value, out),
        Kind::Array => {
            for item in value.items() {
                note_stored(path, name, item, out);
            }
        }
        Kind::Object => {
            for (key, member) in value.members() {
                let name = key.text();
                note_stored(&format!("{path}.{name}"), &name, member, out);
            }
        }
        _ => {}
    }
}

/// Notes what an object that says where a tool runs has beside what is known: more memory, say, has another price.
fn note_unknown(path: &str, place: Value<'_>, out: &mut Vec<Member>) {
    let given = place.members().filter(|(_, value)| !value.is_null());
    let unknown = given.map(|(key, _)| key.text()).filter(|name| !PLACE.contains(&&**name));
    out.extend(unknown.map(|name| Member::new(&format!("{path}.{name}"), Meaning::Unknown)));
}
