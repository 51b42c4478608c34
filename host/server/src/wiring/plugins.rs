//! The plugins of a host: those embedded in the program, and those that are installed or in the folder
//! of `--plugins`, which add to them or, where the configuration allows it, replace them.

use std::borrow::Cow;
use std::path::Path;

use cofferdam_engine::is_own_entry;
use cofferdam_runtime::{
    LoadError, Manifest, Plugin, PluginSource, Plugins, Runtime, read_plugin_dir, shared_name,
};

use crate::config::Config;

/// Name, manifest, component of a plugin in the program, and the component's SHA-256.
type Embedded = (&'static str, &'static str, &'static [u8], &'static str);

const EMBEDDED: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/plugins.rs"));

/// Loads all plugins with their grants from the configuration.
///
/// # Errors
///
/// A folder, manifest or component is not valid.
pub(crate) fn load(
    runtime: &Runtime,
    installed: Vec<PluginSource>,
    folder: Option<&Path>,
    config: &Config,
) -> Result<Plugins, LoadError> {
    let mut sources: Vec<PluginSource> = EMBEDDED.iter().map(embedded).collect();
    sources.extend(installed);
    if let Some(folder) = folder {
        sources.extend(read_plugin_dir(folder)?);
    }
    let plugins = runtime.load(sources, &config.plugins)?;
    for plugin in plugins.iter() {
        if let Some(id) = own_entry(plugin) {
            let (origin, id) = (plugin.origin().to_owned(), id.to_owned());
            let first = "the host itself".to_owned();
            return Err(LoadError::Duplicate { origin, what: "id", id, first });
        }
    }
    Ok(plugins)
}

/// Whether a plugin of this name is part of the program.
pub(crate) fn is_built_in(name: &str) -> bool {
    EMBEDDED.iter().any(|(built_in, ..)| *built_in == name)
}

/// A name of a plugin that another plugin or the host has.
pub(crate) struct Taken {
    /// What it names, such as `hook id`.
    pub(crate) what: &'static str,
    pub(crate) id: String,
    pub(crate) by: String,
}

/// The first name of a plugin that one of the built-in plugins, or the host itself, has already. A plugin takes the place
/// of the built-in one that is named as it.
pub(crate) fn taken_name(manifest: &Manifest) -> Option<Taken> {
    if let Some(id) = manifest.entry_id().filter(|id| is_own_entry(id)) {
        return Some(Taken { what: "id", id: id.to_owned(), by: "the host itself".to_owned() });
    }
    EMBEDDED.iter().filter(|(name, ..)| *name != manifest.name).find_map(|(name, text, ..)| {
        let (what, id) = shared_name(manifest, &Manifest::parse(text).ok()?)?;
        Some(Taken { what, id, by: format!("the plugin {name}") })
    })
}

/// The component in the program with this SHA-256.
pub(crate) fn embedded_component(sha256: &str) -> Option<&'static [u8]> {
    EMBEDDED.iter().find(|(.., digest)| *digest == sha256).map(|(_, _, component, _)| *component)
}

/// The id of the plugin's entries, if it is one that the host handles itself.
fn own_entry(plugin: &Plugin) -> Option<&str> {
    plugin.manifest().entry_id().filter(|id| is_own_entry(id))
}

fn embedded((name, manifest, component, digest): &Embedded) -> PluginSource {
    PluginSource {
        name: (*name).to_owned(),
        manifest: (*manifest).to_owned(),
        component: Cow::Borrowed(component),
        digest: Some(digest),
        origin: "embedded".to_owned(),
        is_built_in: true,
    }
}
