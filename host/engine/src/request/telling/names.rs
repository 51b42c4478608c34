//! Names of the functions that stand for tools of the client's own kinds.

use std::collections::{BTreeMap, BTreeSet};

/// The longest name that every provider takes.
const NAME_CHARS_MAX: usize = 64;

/// A kind of tool that the client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientKind {
    /// A function of a namespace.
    Function,
    /// A tool whose input is text.
    Custom,
    /// `local_shell`
    LocalShell,
    /// `shell`
    Shell,
    /// `apply_patch`
    ApplyPatch,
    /// `tool_search` that the client executes.
    ToolSearch,
}

impl ClientKind {
    /// The kind that is always told as one function of the same name, by the type of its tool.
    pub(super) fn of_type(type_name: &str) -> Option<Self> {
        Some(match type_name {
            "local_shell" => Self::LocalShell,
            "shell" => Self::Shell,
            "apply_patch" => Self::ApplyPatch,
            "tool_search" => Self::ToolSearch,
            _ => return None,
        })
    }

    /// The type of its tool.
    pub(super) fn tool_type(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Custom => "custom",
            Self::LocalShell => "local_shell",
            Self::Shell => "shell",
            Self::ApplyPatch => "apply_patch",
            Self::ToolSearch => "tool_search",
        }
    }
}

/// A tool as the client knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientTool {
    pub(crate) kind: ClientKind,
    pub(crate) namespace: Option<String>,
    /// Its own name; the type where tools of the kind have no names.
    pub(crate) name: String,
}

/// The functions of one told request that stand for tools of other kinds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ToldTools {
    tools: BTreeMap<String, ClientTool>,
    /// The answer is the summary that a conversation is compacted to.
    pub(crate) compacts: bool,
}

impl ToldTools {
    /// What a function stands for, if it is not the client's own.
    pub(crate) fn get(&self, function: &str) -> Option<&ClientTool> {
        self.tools.get(function)
    }
}

/// Names in the making.
#[derive(Default)]
pub(super) struct Names {
    told: BTreeMap<String, ClientTool>,
    functions: BTreeMap<ClientTool, String>,
    /// The first function for a kind and a name, in whatever namespace.
    anywhere: BTreeMap<(ClientKind, String), String>,
    namespaces: BTreeMap<String, Vec<String>>,
    taken: BTreeSet<String>,
    /// For each name that was wanted again, the number that the last one got.
    numbers: BTreeMap<String, usize>,
}

impl Names {
    /// Keeps a name for a function of the client; false if it was taken.
    pub(super) fn keep(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_owned())
    }

    /// The name of the function that stands for a new tool; none if the tool has one.
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
        self.anywhere.entry((tool.kind, tool.name.clone())).or_insert_with(|| name.clone());
        if let Some(namespace) = &tool.namespace {
            self.namespaces.entry(namespace.clone()).or_default().push(name.clone());
        }
        self.told.insert(name.clone(), tool);
        Some(name)
    }

    /// The name of the function that stands for a tool, offered or not.
    pub(super) fn of(&self, kind: ClientKind, namespace: Option<&str>, name: &str) -> String {
        self.known(kind, namespace, name).map(str::to_owned).unwrap_or_else(|| {
            wanted(&ClientTool { kind, namespace: namespace.map(str::to_owned), name: name.to_owned() })
        })
    }

    /// The name of the function that stands for a tool that is offered.
    pub(super) fn known(&self, kind: ClientKind, namespace: Option<&str>, name: &str) -> Option<&str> {
        let tool = ClientTool { kind, namespace: namespace.map(str::to_owned), name: name.to_owned() };
        self.functions.get(&tool).map(String::as_str)
    }

    /// Whether a function of this name stands for nothing else.
    pub(super) fn is_kept(&self, name: &str) -> bool {
        self.taken.contains(name) && !self.told.contains_key(name)
    }

    /// The functions that stand for the tools of a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> &[String] {
        self.namespaces.get(namespace).map(Vec::as_slice).unwrap_or_default()
    }

    /// The first function that stands for a tool of this name, in whatever namespace.
    pub(super) fn anywhere(&self, kind: ClientKind, name: &str) -> Option<&str> {
        self.anywhere.get(&(kind, name.to_owned())).map(String::as_str)
    }

    pub(super) fn into_told(self, compacts: bool) -> ToldTools {
        ToldTools { tools: self.told, compacts }
    }
}

/// The name that a function has unless another has it: namespace and name, of the letters that providers take.
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
    // Long names often differ at their ends only.
    let suffix = format!("_{:08x}", hash(&whole));
    cut(&name, NAME_CHARS_MAX.saturating_sub(suffix.len())).to_owned() + &suffix
}

fn cut(name: &str, most: usize) -> &str {
    name.get(..most).unwrap_or(name)
}

/// FNV-1a: the same in every run, so that a conversation keeps its names.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
