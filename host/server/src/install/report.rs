//! What a change of the installed plugins prints.

use cofferdam_runtime::{Manifest, OperatorGrant};
use serde_json::{Value, json};

use crate::command::{Became, CommandOutcome, grant_lines, held_text, indented};
use crate::facts::HeldFacts;
use crate::installed::asks;

/// What was done to a plugin.
pub(super) enum ChangeKind {
    Installed,
    /// The installed version has the same bytes.
    Same,
    Updated {
        from: String,
    },
    Held {
        digest: String,
        serving: String,
        more: Vec<String>,
    },
    Accepted {
        from: String,
        more: Vec<String>,
        /// The lines of the configuration that were written.
        lines: String,
    },
    /// The update that was held is gone.
    Dropped,
    Removed,
    RolledBack {
        from: String,
    },
}

impl ChangeKind {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Same => "unchanged",
            Self::Updated { .. } => "updated",
            Self::Held { .. } => "held",
            Self::Accepted { .. } => "accepted",
            Self::Dropped => "dropped",
            Self::Removed => "removed",
            Self::RolledBack { .. } => "rolled_back",
        }
    }
}

pub(super) struct Change {
    name: String,
    version: String,
    kind: ChangeKind,
    asks: Vec<String>,
    /// What grants the rest.
    missing: Vec<String>,
}

impl Change {
    pub(super) fn new(name: &str, version: &str, kind: ChangeKind) -> Self {
        let (name, version) = (name.to_owned(), version.to_owned());
        Self { name, version, kind, asks: Vec::new(), missing: Vec::new() }
    }

    /// Adds what the manifest asks for, and what would grant the rest of it.
    pub(super) fn with_asks(mut self, manifest: &Manifest, granted: &OperatorGrant) -> Self {
        self.asks = asks(manifest).into_iter().collect();
        self.missing = grant_lines(manifest, granted, None);
        self
    }

    pub(super) fn outcome(&self, became: Became) -> CommandOutcome {
        let Self { name, version, kind, asks, missing } = self;
        let mut text = match kind {
            ChangeKind::Installed => format!("Installed {name} {version}.\n"),
            ChangeKind::Same => {
                format!("{name} {version} is installed already; its files were written again.\n")
            }
            ChangeKind::Updated { from } => format!("Updated {name} from {from} to {version}.\n"),
            ChangeKind::Held { digest, serving, more } => {
                let facts = HeldFacts {
                    plugin: name.clone(),
                    version: version.clone(),
                    digest: digest.clone(),
                    serving: serving.clone(),
                    asks_more: more.clone(),
                };
                held_text(&facts).trim_start().to_owned()
            }
            ChangeKind::Accepted { from, more, lines } => {
                let verb = if became == Became::Printed { "would replace" } else { "replaces" };
                let more = indented(&more.join("\n"));
                let granted =
                    if lines.is_empty() { String::new() } else { format!("granted\n{}", indented(lines)) };
                format!("{name} {version} {verb} {from}. It asks for more:\n{more}{granted}")
            }
            ChangeKind::Dropped => format!("Dropped {name} {version}, which was held.\n"),
            ChangeKind::Removed => format!("Removed {name} {version}.\n"),
            ChangeKind::RolledBack { from } => format!("Rolled {name} back from {from} to {version}.\n"),
        };
        if matches!(kind, ChangeKind::Installed) {
            text.push_str(&format!("asks for\n{}", indented(&asks.join("\n"))));
        }
        if !missing.is_empty() {
            text.push_str(&format!("not granted yet; to grant it:\n{}", indented(&missing.join("\n"))));
        }
        match became {
            Became::Told => text.push_str("The running host reads it now.\n"),
            Became::Written => text.push_str("The next start has it.\n"),
            Became::Nothing | Became::Printed => {}
        }
        CommandOutcome { document: self.document(became), text }
    }

    fn document(&self, became: Became) -> Value {
        let Self { name, version, kind, asks, missing } = self;
        let mut document = serde_json::Map::new();
        let mut set = |key: &str, value: Value| {
            document.insert(key.to_owned(), value);
        };
        set("plugin", json!(name));
        set("version", json!(version));
        set("state", json!(kind.as_str()));
        set("reloading", json!(became == Became::Told));
        match kind {
            ChangeKind::Updated { from } | ChangeKind::RolledBack { from } => set("from", json!(from)),
            ChangeKind::Held { digest, serving, more } => {
                set("digest", json!(digest));
                set("from", json!(serving));
                set("asks_more", json!(more));
            }
            ChangeKind::Accepted { from, more, lines } => {
                set("from", json!(from));
                set("asks_more", json!(more));
                set("lines", json!(lines));
                set("written", json!(became != Became::Printed));
            }
            ChangeKind::Installed | ChangeKind::Same | ChangeKind::Dropped | ChangeKind::Removed => {}
        }
        if !asks.is_empty() {
            set("asks", json!(asks));
            set("missing", json!(missing));
        }
        Value::Object(document)
    }
}
