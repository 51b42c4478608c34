//! Account defaults: plugin entries that the requests of a workspace have without naming them.

use crate::refusal::Refusal;
use crate::refusal::printable;
use crate::request::RequestPlugin;
use cofferdam_runtime::wire::ErrorKind;
use cofferdam_store::Workspace;
use std::collections::BTreeMap;

/// One plugin entry that the operator configured as a default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginDefault {
    /// The entry, as it would stand in a request's `plugins`.
    pub entry: RequestPlugin,
    /// Whether requests may not change it or switch it off (`prevent_overrides`).
    pub is_fixed: bool,
}

/// The operator's default entries, for all workspaces and for individual ones.
#[derive(Debug, Default)]
pub struct PluginDefaults {
    everyone: Vec<PluginDefault>,
    /// By name or id. Each list already includes the entries for all workspaces.
    workspaces: BTreeMap<String, Vec<PluginDefault>>,
}

impl PluginDefaults {
    /// Defaults for all workspaces, and for individual ones by name or id. A workspace's own entry
    /// is laid over the general one, member by member. An entry that is fixed in general stays
    /// fixed, with the workspace's own members.
    pub fn new(everyone: Vec<PluginDefault>, workspaces: BTreeMap<String, Vec<PluginDefault>>) -> Self {
        let workspaces = workspaces.into_iter().map(|(name, own)| (name, joined(&everyone, own))).collect();
        Self { everyone, workspaces }
    }

    /// Merges the defaults of a workspace with the entries of its request: the defaults come first,
    /// in their order, each with the members of the request's entry laid over it, then the other
    /// entries of the request.
    ///
    /// # Errors
    /// 403 naming an entry that would change a fixed default.
    pub(crate) fn apply(&self, workspace: &Workspace, asked: &mut Vec<RequestPlugin>) -> Result<(), Refusal> {
        if self.everyone.is_empty() && self.workspaces.is_empty() {
            return Ok(());
        }
        let defaults = self.of(workspace);
        if !defaults.is_empty() {
            *asked = under(defaults, std::mem::take(asked))?;
        }
        Ok(())
    }

    fn of(&self, workspace: &Workspace) -> &[PluginDefault] {
        if self.workspaces.is_empty() {
            return &self.everyone;
        }
        let by_name = self.workspaces.get(workspace.name.as_str());
        by_name.or_else(|| self.workspaces.get(&workspace.id.to_string())).unwrap_or(&self.everyone)
    }
}

/// Lays a workspace's own defaults over those for all workspaces.
fn joined(everyone: &[PluginDefault], mut own: Vec<PluginDefault>) -> Vec<PluginDefault> {
    let mut list: Vec<PluginDefault> = everyone
        .iter()
        .map(|default| match own.iter().position(|other| other.entry.id == default.entry.id) {
            None => default.clone(),
            Some(place) => {
                let PluginDefault { entry, is_fixed } = own.remove(place);
                PluginDefault { entry: entry.over(&default.entry), is_fixed: is_fixed || default.is_fixed }
            }
        })
        .collect();
    list.append(&mut own);
    list
}

/// Lays the entries of a request over the defaults.
fn under(defaults: &[PluginDefault], mut asked: Vec<RequestPlugin>) -> Result<Vec<RequestPlugin>, Refusal> {
    let mut list = Vec::with_capacity(defaults.len() + asked.len());
    for PluginDefault { entry: default, is_fixed } in defaults {
        let Some(place) = asked.iter().position(|entry| entry.id == default.id) else {
            list.push(default.clone());
            continue;
        };
        let entry = asked.remove(place);
        if *is_fixed && !entry.agrees_with(default) {
            let (path, id) = (entry.path(), printable(&entry.id));
            let message = format!("{path} cannot change \"{id}\": its settings are fixed for this workspace");
            return Err(Refusal::new(403, ErrorKind::PermissionDenied, message));
        }
        list.push(entry.over(default));
    }
    list.append(&mut asked);
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entries(list: Value) -> Vec<RequestPlugin> {
        let body = json!({"model": "a/b", "input": "x", "plugins": list}).to_string();
        crate::request::ResponsesRequest::parse(body.as_bytes(), &["own".to_owned()]).unwrap().plugins
    }

    fn defaults(list: Value, is_fixed: bool) -> Vec<PluginDefault> {
        let parse = |entry: &Value| RequestPlugin::parse(entry.to_string().as_bytes(), &["own".to_owned()]);
        let list = list.as_array().unwrap().iter();
        list.map(|entry| PluginDefault { entry: parse(entry).unwrap(), is_fixed }).collect()
    }

    fn shown<'a>(list: impl IntoIterator<Item = &'a RequestPlugin>) -> Value {
        let json = |entry: &RequestPlugin| serde_json::from_slice::<Value>(&entry.json).unwrap();
        list.into_iter().map(json).collect()
    }

    #[test]
    fn members_of_a_request_entry_override_those_of_the_default() {
        let defaults = defaults(
            json!([
                {"id": "auto-router", "cost_tier": "low", "excluded_models": ["x/*"]},
                {"id": "own", "enabled": false, "depth": 3},
                {"id": "moderation"},
            ]),
            false,
        );
        let asked = entries(json!([
            {"id": "web"},
            {"id": "own", "breadth": 1, "depth": null},
            {"id": "auto-router", "cost_tier": "max"},
            {"id": "moderation", "enabled": false},
        ]));
        let merged = under(&defaults, asked).unwrap();
        assert_eq!(
            shown(&merged),
            json!([
                {"id": "auto-router", "cost_tier": "max", "excluded_models": ["x/*"]},
                {"id": "own", "depth": 3, "breadth": 1},
                {"id": "moderation", "enabled": false},
                {"id": "web"},
            ])
        );
        let told = merged.iter().map(|entry| (entry.path(), entry.enabled));
        let expected =
            [("plugins[2]", true), ("plugins[1]", true), ("plugins[3]", false), ("plugins[0]", true)];
        assert_eq!(told.collect::<Vec<_>>(), expected.map(|(path, on)| (path.to_owned(), on)));
    }

    #[test]
    fn a_default_that_the_request_does_not_name_is_unchanged() {
        let defaults = defaults(json!([{"id": "own", "enabled": false}, {"id": "web", "max_uses": 2}]), true);
        let merged = under(&defaults, Vec::new()).unwrap();
        assert_eq!(merged, defaults.into_iter().map(|default| default.entry).collect::<Vec<_>>());
        assert_eq!((merged[0].path().as_str(), merged[0].enabled), ("own", false));
    }

    #[test]
    fn defaults_of_a_workspace_are_added_to_the_general_ones() {
        let mut everyone = defaults(json!([{"id": "moderation"}]), true);
        everyone.append(&mut defaults(json!([{"id": "own", "depth": 1}]), false));
        let own = defaults(
            json!([{"id": "web"}, {"id": "own", "depth": 2}, {"id": "moderation", "enabled": false}]),
            false,
        );
        let all = PluginDefaults::new(everyone, BTreeMap::from([("team".to_owned(), own)]));
        let team = &all.workspaces["team"];
        assert_eq!(
            shown(team.iter().map(|default| &default.entry)),
            json!([{"id": "moderation", "enabled": false}, {"id": "own", "depth": 2}, {"id": "web"}])
        );
        assert_eq!(team.iter().map(|default| default.is_fixed).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn a_fixed_default_may_be_repeated_but_not_changed() {
        let fixed = defaults(json!([{"id": "own", "depth": 1, "enabled": true}]), true);
        for entry in [json!({"id": "own"}), json!({"id": "own", "depth": 1, "enabled": true, "more": null})] {
            let merged = under(&fixed, entries(json!([entry]))).unwrap();
            assert_eq!(shown(&merged)[0]["depth"], 1);
        }
        for entry in [
            json!({"id": "own", "enabled": false}),
            json!({"id": "own", "depth": 2}),
            json!({"id": "own", "more": 1}),
        ] {
            let refusal = under(&fixed, entries(json!([{"id": "web"}, entry]))).unwrap_err();
            assert_eq!(refusal.status, 403);
            assert_eq!(
                refusal.message,
                "plugins[1] cannot change \"own\": its settings are fixed for this workspace"
            );
        }
    }
}
