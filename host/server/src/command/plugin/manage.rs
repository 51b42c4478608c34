//! The commands that change which plugins are installed: their arguments. They are carried out in
//! `install`, by the process that holds the data directory.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::super::{Folder, Remote};

/// Changes of what is installed.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ManageCommand {
    /// Check a plugin and install it in the data directory
    Install(InstallArguments),
    /// Put another version in the place of an installed plugin
    Update(UpdateArguments),
    /// Remove an installed plugin
    Remove(RemoveArguments),
    /// Bring back the version of an installed plugin that served before
    #[command(add = Remote::Changes)]
    Rollback(RollbackArguments),
}

impl ManageCommand {
    pub(crate) fn folder(&self) -> &Folder {
        let (Self::Install(InstallArguments { folder, .. })
        | Self::Update(UpdateArguments { folder, .. })
        | Self::Remove(RemoveArguments { folder, .. })
        | Self::Rollback(RollbackArguments { folder, .. })) = self;
        folder
    }

    /// The file to install, and where its checked copy is noted.
    pub(crate) fn package(&mut self) -> Option<(&PathBuf, &mut Option<StagedPlugin>)> {
        match self {
            Self::Install(InstallArguments { file, staged, .. })
            | Self::Update(UpdateArguments { file, staged, .. }) => Some((file, staged)),
            Self::Remove(_) | Self::Rollback(_) => None,
        }
    }
}

/// What to install.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct InstallArguments {
    /// The component with its manifest beside it, the manifest, or a project's folder
    pub file: PathBuf,
    /// The copy that was checked.
    #[arg(skip)]
    pub staged: Option<StagedPlugin>,
    /// Where plugins are.
    #[command(flatten)]
    #[serde(skip)]
    pub folder: Folder,
}

/// What to put in the place of the installed version.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct UpdateArguments {
    /// The component with its manifest beside it, the manifest, or a project's folder
    pub file: PathBuf,
    /// Take an older version too
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Take the same version with other bytes too
    #[arg(long)]
    pub replace: bool,
    /// The copy that was checked.
    #[arg(skip)]
    pub staged: Option<StagedPlugin>,
    /// Where plugins are.
    #[command(flatten)]
    #[serde(skip)]
    pub folder: Folder,
}

/// What to remove.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct RemoveArguments {
    /// The plugin
    pub name: String,
    /// Only drop the update that is held
    #[arg(long, conflicts_with = "grants")]
    pub held: bool,
    /// Take `[plugins.NAME]` out of the configuration too
    #[arg(long)]
    pub grants: bool,
    /// Where plugins are.
    #[command(flatten)]
    #[serde(skip)]
    pub folder: Folder,
}

/// Which plugin to take back.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct RollbackArguments {
    /// The plugin
    pub name: String,
    /// Where plugins are.
    #[command(flatten)]
    #[serde(skip)]
    pub folder: Folder,
}

/// A checked copy of a plugin in the data directory, made by the process of the operator: the running
/// host may not be able to read the operator's files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StagedPlugin {
    /// Name of the folder in the data directory.
    pub folder: String,
    /// Name of the plugin, which is the name of both files.
    pub name: String,
    /// The file that was named on the command line, in full.
    pub origin: String,
    /// Digests of the bytes that were checked.
    pub manifest_sha256: String,
    /// As above, of the component.
    pub component_sha256: String,
}
