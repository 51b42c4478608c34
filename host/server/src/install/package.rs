//! A plugin on its way into the data directory: the copy that the operator's process has checked.

use std::collections::BTreeSet;

use cofferdam_runtime::{COMPONENT_BYTES_MAX, Inspection, MANIFEST_BYTES_MAX, Manifest, read_installed_file};

use super::{check_version, refusal};
use crate::command::StagedPlugin;
use crate::failure::Failure;
use crate::grants::GrantEditor;
use crate::installed::{InstalledError, InstalledVersion, PluginFiles, asks};

pub(super) struct PluginPackage {
    pub(super) manifest: Manifest,
    pub(super) files: PluginFiles,
    staged: StagedPlugin,
}

impl PluginPackage {
    /// Reads the checked copy. Its bytes are the ones that were checked, else it is refused.
    pub(super) fn read(grants: &GrantEditor, staged: Option<&StagedPlugin>) -> Result<Self, Failure> {
        let staged = staged.ok_or_else(|| refusal("the plugin was not checked before it was sent"))?;
        let is_plain = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && !name.is_empty()
        };
        if !is_plain(&staged.folder) || !is_plain(&staged.name) {
            return Err(refusal("the copy of the plugin has no plain name"));
        }
        let folder = grants.options().data.join(&staged.folder);
        let read = |extension: &str, bytes_max, checked: &str| {
            let path = folder.join(format!("{}.{extension}", staged.name));
            let bytes = read_installed_file(&path, bytes_max).map_err(InstalledError::from)?;
            match Inspection::digest_of(&bytes) == checked {
                true => Ok(bytes),
                false => {
                    Err(refusal(format!("{} was changed after it was checked; try again", path.display())))
                }
            }
        };
        let manifest = read("toml", MANIFEST_BYTES_MAX, &staged.manifest_sha256)?;
        let component = read("wasm", COMPONENT_BYTES_MAX, &staged.component_sha256)?;
        let text = String::from_utf8(manifest).map_err(|_| refusal("the manifest is not UTF-8 text"))?;
        let manifest = Manifest::parse(&text).map_err(|error| refusal(format!("the manifest, {error}")))?;
        check_version(&manifest)?;
        let files = PluginFiles { manifest: text, component };
        Ok(Self { manifest, files, staged: staged.clone() })
    }

    /// The entry of the lock.
    pub(super) fn version(&self, now: &str) -> InstalledVersion {
        InstalledVersion {
            version: self.manifest.version.clone(),
            origin: self.staged.origin.clone(),
            installed_at: now.to_owned(),
            manifest_sha256: self.staged.manifest_sha256.clone(),
            component_sha256: self.staged.component_sha256.clone(),
            asks: asks(&self.manifest),
            granted: BTreeSet::new(),
        }
    }
}
