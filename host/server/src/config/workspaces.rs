//! `[[workspaces]]`: plugins that apply to all requests of a workspace. A workspace that does not
//! exist may be named, because workspaces can be created while the host runs.

use std::collections::BTreeSet;

use super::ConfigSpan;
use super::document::Table;

/// Stands for every workspace.
const EVERYONE: &str = "*";
/// The maximum length of one list, the same as in a request.
const PLUGINS_MAX: usize = 64;

/// The workspaces that an entry applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceName {
    Everyone,
    /// By name or id.
    One(String),
}

#[derive(Debug, Clone)]
pub struct WorkspaceConfig {
    pub name: WorkspaceName,
    /// Entries like those in `plugins` of a request, not checked yet, with their positions in the
    /// file.
    pub plugins: Vec<(serde_json::Value, ConfigSpan)>,
    /// Ids of the entries that requests cannot override.
    pub fixed: BTreeSet<String>,
}

pub(super) fn read(tables: &[Table<'_>]) -> Vec<WorkspaceConfig> {
    let mut workspaces: Vec<WorkspaceConfig> = Vec::new();
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
        workspaces.push(WorkspaceConfig { name, plugins: plugins.collect(), fixed });
    }
    workspaces
}
