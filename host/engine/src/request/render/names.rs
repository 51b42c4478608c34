//! Names of the functions that represent tools of the client's own kinds.

use cofferdam_protocol::ToolKind;
use std::collections::{BTreeMap, BTreeSet};

/// The longest function name that every provider accepts.
const NAME_CHARS_MAX: usize = 64;

/// A tool as the client defined it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientTool {
    pub(crate) kind: ToolKind,
    pub(crate) namespace: Option<String>,
    /// The tool's own name, or its type where tools of the kind have no names.
    pub(crate) name: String,
}

/// What has to be undone in the answer to a rendered request: functions that represent tools of other
/// kinds, and a compaction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RenderedTools {
    tools: BTreeMap<String, ClientTool>,
    /// The model's answer is the summary of a compacted conversation.
    pub(crate) compacts: bool,
}

impl RenderedTools {
    /// The tool that a function represents; none for the client's own functions.
    pub(crate) fn get(&self, function: &str) -> Option<&ClientTool> {
        self.tools.get(function)
    }
}

/// Assigns function names to tools while a request is rendered.
#[derive(Default)]
pub(super) struct FunctionNames {
    told: BTreeMap<String, ClientTool>,
    functions: BTreeMap<ClientTool, String>,
    /// The first function for a kind and a tool name, in any namespace.
    anywhere: BTreeMap<(ToolKind, String), String>,
    namespaces: BTreeMap<String, Vec<String>>,
    taken: BTreeSet<String>,
    /// For each name that was already taken, the last numeric suffix that was assigned.
    numbers: BTreeMap<String, usize>,
}

impl FunctionNames {
    /// Reserves a name for one of the client's own functions. Returns false if the name was taken.
    pub(super) fn keep(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_owned())
    }

    /// Assigns a function name to a tool. None if the tool has one already.
    pub(super) fn add(&mut self, tool: ClientTool) -> Option<String> {
        if self.functions.contains_key(&tool) {
            return None;
        }
        let wanted = wanted(&tool);
        let mut name = wanted.clone();
        while !self.taken.insert(name.clone()) {
            let number = self.numbers.entry(wanted.clone()).or_insert(1);
            *number = number.saturating_add(1);
            let suffix = format!("_{number}");
            name = cut(&wanted, NAME_CHARS_MAX.saturating_sub(suffix.len())).to_owned() + &suffix;
        }
        self.functions.insert(tool.clone(), name.clone());
        self.anywhere.entry((tool.kind.clone(), tool.name.clone())).or_insert_with(|| name.clone());
        if let Some(namespace) = &tool.namespace {
            self.namespaces.entry(namespace.clone()).or_default().push(name.clone());
        }
        self.told.insert(name.clone(), tool);
        Some(name)
    }

    /// The name of the function that represents a tool. A tool that is only called in the history,
    /// and not offered, gets the name that it would have.
    pub(super) fn of(&self, kind: &ToolKind, namespace: Option<&str>, name: &str) -> String {
        self.known(kind, namespace, name).map(str::to_owned).unwrap_or_else(|| {
            wanted(&ClientTool {
                kind: kind.clone(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            })
        })
    }

    /// The name of the function that represents an offered tool.
    pub(super) fn known(&self, kind: &ToolKind, namespace: Option<&str>, name: &str) -> Option<&str> {
        let tool =
            ClientTool { kind: kind.clone(), namespace: namespace.map(str::to_owned), name: name.to_owned() };
        self.functions.get(&tool).map(String::as_str)
    }

    /// Whether the name belongs to one of the client's own functions.
    pub(super) fn is_kept(&self, name: &str) -> bool {
        self.taken.contains(name) && !self.told.contains_key(name)
    }

    /// The functions that represent the tools of a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> &[String] {
        self.namespaces.get(namespace).map(Vec::as_slice).unwrap_or_default()
    }

    /// The first function that represents a tool with this name, in any namespace.
    pub(super) fn anywhere(&self, kind: &ToolKind, name: &str) -> Option<&str> {
        self.anywhere.get(&(kind.clone(), name.to_owned())).map(String::as_str)
    }

    pub(super) fn into_told(self, compacts: bool) -> RenderedTools {
        RenderedTools { tools: self.told, compacts }
    }
}

/// The preferred function name: namespace and name, with characters that providers do not accept
/// replaced by `_`.
fn wanted(tool: &ClientTool) -> String {
    let whole = match &tool.namespace {
        Some(namespace) => format!("{namespace}__{}", tool.name),
        None => tool.name.clone(),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = whole.chars().map(plain).collect();
    if name.len() <= NAME_CHARS_MAX {
        return name;
    }
    // Long names often differ only at the end, so a hash of the whole name keeps them distinct.
    let suffix = format!("_{:08x}", hash(&whole));
    cut(&name, NAME_CHARS_MAX.saturating_sub(suffix.len())).to_owned() + &suffix
}

fn cut(name: &str, most: usize) -> &str {
    name.get(..most).unwrap_or(name)
}

/// FNV-1a. It is the same in every run, so a conversation keeps its names.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
