//! What requests name plugins by has to name one of them. Which of two that answer to one name is meant must not
//! depend on the order of their file names.

use std::collections::BTreeMap;

use super::PluginSource;
use crate::error::LoadError;
use crate::manifest::Manifest;

/// Refuses a second plugin that answers to an id, tool type or item type of another.
///
/// # Errors
///
/// Names what both have. The later one is at fault: a built-in never is.
pub(super) fn check<'a>(
    plugins: impl Iterator<Item = (&'a Manifest, &'a PluginSource)>,
) -> Result<(), LoadError> {
    let mut sorted: Vec<_> = plugins.collect();
    sorted.sort_by_key(|(manifest, source)| (!source.is_built_in, &manifest.name));
    let mut taken: BTreeMap<(Space, String), &str> = BTreeMap::new();
    for (manifest, source) in sorted {
        for (space, what, id) in names(manifest) {
            let Some(first) = taken.insert((space, id.clone()), &manifest.name) else { continue };
            let (origin, first) = (source.origin.clone(), format!("plugin {first}"));
            return Err(LoadError::Duplicate { origin, what, id, first });
        }
    }
    Ok(())
}

/// Names of one space are told apart; those of two spaces never meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    /// Ids of a request's `plugins`, of hooks and routers alike.
    Entry,
    Tool,
    ClientTool,
    Item,
}

/// What a plugin answers to: in which space, what it is called, and the name.
fn names(manifest: &Manifest) -> impl Iterator<Item = (Space, &'static str, String)> + '_ {
    let hook = manifest.hook.iter().map(|hook| (Space::Entry, "hook id", hook.id.clone()));
    let router = manifest.router.iter().map(|router| (Space::Entry, "router id", router.id.clone()));
    let tool = manifest.tool.iter().flat_map(|tool| {
        let own = (Space::Tool, "tool type", tool.tool_type.clone());
        let clients =
            tool.client_types.iter().map(|name| (Space::ClientTool, "client tool type", name.clone()));
        let items = tool.items.iter().map(|item| (Space::Item, "item type", item.item_type.clone()));
        [own].into_iter().chain(clients).chain(items)
    });
    hook.chain(router).chain(tool)
}
