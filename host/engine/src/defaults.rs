//! Account defaults: plugin entries that the requests of a workspace have without naming them (names.md 5).

use crate::request::RequestPlugin;
use cofferdam_store::{Store, WorkspaceId};
use std::collections::BTreeMap;

/// The entries that the operator set, for every workspace and for some of them.
#[derive(Debug, Default)]
pub struct PluginDefaults {
    everyone: Vec<RequestPlugin>,
    /// By name or id; those of everyone are in them.
    workspaces: BTreeMap<String, Vec<RequestPlugin>>,
}

impl PluginDefaults {
    /// Defaults for everyone, and for workspaces by name or id: what these set comes before what everyone has,
    /// member by member.
    pub fn new(everyone: Vec<RequestPlugin>, workspaces: BTreeMap<String, Vec<RequestPlugin>>) -> Self {
        let workspaces = workspaces.into_iter().map(|(name, own)| (name, merged(&everyone, own))).collect();
        Self { everyone, workspaces }
    }

    /// Puts the defaults of a workspace under what its request asks for: defaults first, in their order, each
    /// with what the request says of it, then the others of the request.
    pub(crate) fn apply(&self, store: &Store, workspace: WorkspaceId, asked: &mut Vec<RequestPlugin>) {
        if self.everyone.is_empty() && self.workspaces.is_empty() {
            return;
        }
        let defaults = self.of(store, workspace);
        if !defaults.is_empty() {
            *asked = merged(defaults, std::mem::take(asked));
        }
    }

    fn of(&self, store: &Store, workspace: WorkspaceId) -> &[RequestPlugin] {
        if self.workspaces.is_empty() {
            return &self.everyone;
        }
        let directory = store.directory();
        let name = directory.workspace(workspace).map(|workspace| workspace.name.as_str());
        let by_name = name.and_then(|name| self.workspaces.get(name));
        by_name.or_else(|| self.workspaces.get(&workspace.to_string())).unwrap_or(&self.everyone)
    }
}

fn merged(defaults: &[RequestPlugin], mut asked: Vec<RequestPlugin>) -> Vec<RequestPlugin> {
    let mut list = Vec::with_capacity(defaults.len() + asked.len());
    for default in defaults {
        let place = asked.iter().position(|entry| entry.id == default.id);
        list.push(place.map_or_else(|| default.clone(), |place| asked.remove(place).over(default)));
    }
    list.append(&mut asked);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entries(list: Value) -> Vec<RequestPlugin> {
        let body = json!({"model": "a/b", "input": "x", "plugins": list}).to_string();
        crate::request::ResponsesRequest::parse(body.as_bytes(), &["own".to_owned()]).unwrap().plugins
    }

    fn defaults(list: Value) -> Vec<RequestPlugin> {
        let parse = |entry: &Value| RequestPlugin::parse(entry.to_string().as_bytes(), &["own".to_owned()]);
        list.as_array().unwrap().iter().map(|entry| parse(entry).unwrap()).collect()
    }

    fn shown(list: &[RequestPlugin]) -> Value {
        list.iter().map(|entry| serde_json::from_slice::<Value>(&entry.json).unwrap()).collect()
    }

    #[test]
    fn what_a_request_says_comes_before_its_default_member_by_member() {
        let defaults = defaults(json!([
            {"id": "auto-router", "cost_tier": "low", "excluded_models": ["x/*"]},
            {"id": "own", "enabled": false, "depth": 3},
            {"id": "moderation"},
        ]));
        let asked = entries(json!([
            {"id": "web"},
            {"id": "own", "breadth": 1, "depth": null},
            {"id": "auto-router", "cost_tier": "max"},
            {"id": "moderation", "enabled": false},
        ]));
        let merged = merged(&defaults, asked);
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
    fn a_default_that_nobody_names_is_as_the_operator_wrote_it() {
        let defaults = defaults(json!([{"id": "own", "enabled": false}, {"id": "web", "max_uses": 2}]));
        let merged = merged(&defaults, Vec::new());
        assert_eq!(merged, defaults);
        assert_eq!((merged[0].path().as_str(), merged[0].enabled), ("own", false));
    }

    #[test]
    fn a_workspace_adds_to_what_everyone_has() {
        let everyone = defaults(json!([{"id": "moderation"}, {"id": "own", "depth": 1}]));
        let own = defaults(json!([{"id": "web"}, {"id": "own", "depth": 2}]));
        let all = PluginDefaults::new(everyone, BTreeMap::from([("team".to_owned(), own)]));
        assert_eq!(
            shown(&all.workspaces["team"]),
            json!([{"id": "moderation"}, {"id": "own", "depth": 2}, {"id": "web"}])
        );
    }
}
