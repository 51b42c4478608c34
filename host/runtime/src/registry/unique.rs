//! Checks that each name in a request stands for one plugin. Otherwise the order of file names
//! would decide which of two plugins is meant.

use std::collections::{BTreeMap, BTreeSet};

use super::source::PluginSource;
use crate::error::LoadError;
use crate::manifest::Manifest;

/// Refuses a plugin with an id, tool type or item type that another plugin has.
///
/// # Errors
///
/// [`LoadError::Duplicate`] with the shared name. It blames the later plugin by name, and never a
/// built-in one.
pub(super) fn check<'a>(
    plugins: impl Iterator<Item = (&'a Manifest, &'a PluginSource)>,
) -> Result<(), LoadError> {
    let mut sorted: Vec<_> = plugins.collect();
    sorted.sort_by_key(|(manifest, source)| (!source.is_built_in, &manifest.name));
    let mut taken: BTreeMap<(Namespace, String), &str> = BTreeMap::new();
    for (manifest, source) in sorted {
        for (space, what, id) in names(manifest) {
            let Some(first) = taken.insert((space, id.clone()), &manifest.name) else { continue };
            let (origin, first) = (source.origin.clone(), format!("plugin {first}"));
            return Err(LoadError::Duplicate { origin, what, id, first });
        }
    }
    Ok(())
}

/// The first name that both plugins claim: what it names, and the name.
#[must_use]
pub fn shared_name(one: &Manifest, other: &Manifest) -> Option<(&'static str, String)> {
    let taken: BTreeSet<(Namespace, String)> = names(other).map(|(space, _, id)| (space, id)).collect();
    names(one).find(|(space, _, id)| taken.contains(&(*space, id.clone()))).map(|(_, what, id)| (what, id))
}

/// A namespace: names must be unique within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Namespace {
    /// Ids in a request's `plugins`, shared by hooks and routers.
    Entry,
    Tool,
    ClientTool,
    Item,
}

/// The names that a plugin claims: namespace, kind of name for messages, and the name.
fn names(manifest: &Manifest) -> impl Iterator<Item = (Namespace, &'static str, String)> + '_ {
    let hook = manifest.hook.iter().map(|hook| (Namespace::Entry, "hook id", hook.id.clone()));
    let router = manifest.router.iter().map(|router| (Namespace::Entry, "router id", router.id.clone()));
    let tool = manifest.tool.iter().flat_map(|tool| {
        let own = (Namespace::Tool, "tool type", tool.tool_type.clone());
        let clients =
            tool.client_types.iter().map(|name| (Namespace::ClientTool, "client tool type", name.clone()));
        let items = tool.items.iter().map(|item| (Namespace::Item, "item type", item.item_type.clone()));
        [own].into_iter().chain(clients).chain(items)
    });
    hook.chain(router).chain(tool)
}
