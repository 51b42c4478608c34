//! A plugin before it is checked, and the check of its manifest.

use std::borrow::Cow;

use crate::error::{LoadError, ManifestError};
use crate::manifest::Manifest;

/// A plugin before it is checked.
#[derive(Debug, Clone)]
pub struct PluginSource {
    /// The manifest's text.
    pub manifest: String,
    /// The component's bytes.
    pub component: Cow<'static, [u8]>,
    /// SHA-256 of the component in hexadecimal, if it was computed when the program was built.
    /// Then the bytes of a component that is already in the compile cache are never read.
    pub digest: Option<&'static str>,
    /// The name of the manifest's file without `.toml`. It must be the name in the manifest.
    pub name: String,
    /// Names the manifest in messages: its path, or `embedded`.
    pub origin: String,
    /// Whether the plugin is part of the program. Another plugin may take its name only if the
    /// operator allows it.
    pub is_built_in: bool,
}

/// Parses a source's manifest and checks its name.
pub(super) fn checked_manifest(source: &PluginSource) -> Result<Manifest, LoadError> {
    let (name, origin) = (&source.name, &source.origin);
    let blame = |error| LoadError::Manifest { name: name.clone(), origin: origin.clone(), error };
    let manifest = Manifest::parse(&source.manifest).map_err(blame)?;
    check_name(&manifest, name).map_err(blame)?;
    Ok(manifest)
}

/// Checks that the manifest's name is the name of its file.
pub(super) fn check_name(manifest: &Manifest, file: &str) -> Result<(), ManifestError> {
    if manifest.name == file {
        return Ok(());
    }
    let message = format!("`name` is \"{}\", but the file is named \"{file}\"", manifest.name);
    Err(ManifestError { line: 1, message })
}
