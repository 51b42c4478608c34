//! `[[workspaces]]`: what the requests of a workspace have without asking for it. A workspace that does not
//! exist yet may be named: workspaces are made while the host runs.

use std::collections::BTreeSet;

use super::Place;
use super::document::Table;

/// Every workspace.
const EVERYONE: &str = "*";
/// Entries of one list, as many as a request may have.
const PLUGINS_MAX: usize = 64;

/// Who an entry is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceName {
    /// Every workspace.
    Everyone,
    /// The one with this name or id.
    One(String),
}

/// What the operator sets for one workspace or for all.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// Whose requests it is about.
    pub name: WorkspaceName,
    /// Entries as in `plugins` of a request, not yet checked, and where each stands in the file.
    pub plugins: Vec<(serde_json::Value, Place)>,
    /// Ids of those entries that requests cannot change.
    pub fixed: BTreeSet<String>,
}

pub(super) fn read(tables: &[Table<'_>]) -> Vec<Workspace> {
    let mut workspaces: Vec<Workspace> = Vec::new();
    for table in tables {
        let written = table.required_text("name");
        let name = match written.value.as_str() {
            EVERYONE => WorkspaceName::Everyone,
            name => WorkspaceName::One(name.to_owned()),
        };
        if workspaces.iter().any(|workspace| workspace.name == name) {
            written.reject(format!("workspace `{}` stands here already", written.value));
        }
        let plugins = table.jsons("plugins");
        if let Some(first_too_many) = plugins.get(PLUGINS_MAX) {
            first_too_many.reject(format!("a list has at most {PLUGINS_MAX} entries"));
        }
        let mut fixed = BTreeSet::new();
        for id in table.texts("prevent_overrides") {
            if !plugins.iter().any(|entry| entry.value.get("id").is_some_and(|known| *known == id.value)) {
                id.reject("`plugins` has no entry with this id");
            }
            fixed.insert(id.value);
        }
        let plugins = plugins.into_iter().map(|entry| {
            let place = entry.place();
            (entry.value, place)
        });
        workspaces.push(Workspace { name, plugins: plugins.collect(), fixed });
    }
    workspaces
}
