//! Turns `[[workspaces]]` of the configuration into plugin defaults. Entries are checked like those
//! of a request, and the plugins they enable must exist.

use std::collections::BTreeMap;

use cofferdam_engine::request::{InvalidRequest, RequestPlugin};
use cofferdam_engine::{PluginDefault, PluginDefaults, is_request_plugin};
use cofferdam_runtime::Plugins;
use cofferdam_store::{Error, Store};

use crate::config::{Problem, WorkspaceConfig, WorkspaceName};

/// Entries with mistakes are added to `problems` and left out.
pub(crate) fn read(
    workspaces: &[WorkspaceConfig],
    plugins: &Plugins,
    problems: &mut Vec<Problem>,
) -> PluginDefaults {
    let ids = plugins.iter().filter_map(|plugin| plugin.manifest().entry_id());
    let entry_ids: Vec<String> = ids.map(str::to_owned).collect();
    let mut everyone = Vec::new();
    let mut named = BTreeMap::new();
    for workspace in workspaces {
        let mut entries: Vec<PluginDefault> = Vec::new();
        for (json, place) in &workspace.plugins {
            let problem = |message| Problem { place: place.clone(), message };
            match entry(json, plugins, &entry_ids) {
                Ok(entry) if entries.iter().any(|earlier| earlier.entry.id == entry.id) => {
                    problems.push(problem(format!("id names a plugin a second time: `{}`", entry.id)));
                }
                Ok(entry) => {
                    entries.push(PluginDefault { is_fixed: workspace.fixed.contains(&entry.id), entry });
                }
                Err(message) => problems.push(problem(message)),
            }
        }
        match &workspace.name {
            WorkspaceName::Everyone => everyone = entries,
            WorkspaceName::One(name) => drop(named.insert(name.clone(), entries)),
        }
    }
    PluginDefaults::new(everyone, named)
}

/// The names that match no workspace. This is not an error, because the workspace may be created
/// later.
pub(crate) async fn unknown<'w>(workspaces: &'w [WorkspaceConfig], store: &Store) -> Vec<&'w str> {
    let mut unknown = Vec::new();
    for workspace in workspaces {
        if let WorkspaceName::One(name) = &workspace.name
            && matches!(store.find_workspace(name).await, Err(Error::Lookup(_)))
        {
            unknown.push(name.as_str());
        }
    }
    unknown
}

/// Warns of names that match no workspace.
pub(crate) async fn warn_of_unknown(workspaces: &[WorkspaceConfig], store: &Store) {
    for name in unknown(workspaces, store).await {
        tracing::warn!(workspace = %name, "the configuration names a workspace that does not exist");
    }
}

fn entry(json: &serde_json::Value, plugins: &Plugins, entry_ids: &[String]) -> Result<RequestPlugin, String> {
    let entry = RequestPlugin::parse(json.to_string().as_bytes(), entry_ids);
    let entry = entry.map_err(
        |InvalidRequest { path, message, .. }| {
            if path.is_empty() { message } else { format!("{path} {message}") }
        },
    )?;
    if entry.enabled && !is_request_plugin(plugins, &entry.id) {
        return Err(format!("id `{}` is not available on this host", entry.id));
    }
    Ok(entry)
}
