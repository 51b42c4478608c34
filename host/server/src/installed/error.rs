//! Why installed plugins cannot be read or changed. Each message names the file and what mends it.

use std::path::PathBuf;

use cofferdam_runtime::LoadError;

#[derive(Debug, thiserror::Error)]
pub enum InstalledError {
    #[error(
        "{}:{line}: {message}; put the file back from a copy, or remove it and {} and install the plugins again", 
        path.display(),
        folder.display()
    )]
    Lock { path: PathBuf, line: usize, message: String, folder: PathBuf },
    #[error(
        "{}: this file of plugin {name} {version} is not there, and plugins.lock names it; `cofferdam plugin install \
         FILE` with the same plugin writes it again, `cofferdam plugin remove {name}` removes the plugin",
        path.display()
    )]
    Missing { path: PathBuf, name: String, version: String },
    #[error(
        "{}: this is not the file of plugin {name} {version} that was installed: it has the SHA-256 {found}, \
         plugins.lock has {locked}; `cofferdam plugin install FILE` with the same plugin writes it again, \
         `cofferdam plugin remove {name}` removes the plugin",
        path.display()
    )]
    OtherBytes { path: PathBuf, name: String, version: String, locked: String, found: String },
    #[error(
        "--plugins: {} is the folder of installed plugins, which are loaded without this option; name another folder",
        folder.display()
    )]
    SameFolder { folder: PathBuf },
    #[error(transparent)]
    File(#[from] LoadError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
}

impl InstalledError {
    /// The name of the plugin that cannot be used.
    pub(crate) fn plugin(&self) -> Option<&str> {
        match self {
            Self::Missing { name, .. } | Self::OtherBytes { name, .. } => Some(name),
            Self::File(error) => error.plugin(),
            Self::Lock { .. } | Self::SameFolder { .. } | Self::Io { .. } => None,
        }
    }

    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { path, error }
    }
}
