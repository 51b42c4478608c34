//! `[plugins.NAME]`: what the operator grants to a plugin beyond the defaults of
//! its manifest. A plugin gets what its manifest asks for and this allows.

use std::collections::BTreeMap;

use super::document::Table;

/// The grant of one plugin.
#[derive(Debug, Clone, Default)]
pub struct Plugin {
    /// Host names it may send requests to.
    pub hosts: Vec<String>,
    /// Names of secrets that may go along.
    pub secrets: Vec<String>,
    /// Imports that cost money or show content: `model`, `tool-call`, `request`.
    pub imports: Vec<String>,
    /// The most memory it may use.
    pub memory_mib: Option<u32>,
    /// The longest one call may run.
    pub deadline_ms: Option<u32>,
    /// What it reads as its settings: an object.
    pub config: serde_json::Value,
}

pub(super) fn read(table: &Table<'_>) -> BTreeMap<String, Plugin> {
    table.named_tables().into_iter().map(|(name, table)| (name, grant(&table))).collect()
}

fn grant(table: &Table<'_>) -> Plugin {
    let texts = |key| table.texts(key).into_iter().map(|text| text.value).collect();
    let number = |key, most| table.integer(key, 1..=most).and_then(|number| u32::try_from(number).ok());
    let config = table.value("config", table.json("config"));
    if !config.value.is_object() {
        config.reject("expected a table");
    }
    Plugin {
        hosts: texts("hosts"),
        secrets: texts("secrets"),
        imports: imports(table),
        memory_mib: number("memory_mib", 4096),
        deadline_ms: number("deadline_ms", 600_000),
        config: config.value,
    }
}

fn imports(table: &Table<'_>) -> Vec<String> {
    let mut imports = Vec::new();
    for import in table.texts("imports") {
        if !["model", "tool-call", "request"].contains(&import.value.as_str()) {
            import.reject(
                "expected `model`, `tool-call` or `request`; other imports need no grant of their own",
            );
        }
        imports.push(import.value);
    }
    imports
}
