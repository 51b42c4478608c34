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
        "{}: this file of plugin {name} {version} is not there, and plugins.lock names it; {}",
        path.display(),
        part.mend(name)
    )]
    Missing { path: PathBuf, name: String, version: String, part: VersionPart },
    #[error(
        "{}: this is not the file of plugin {name} {version} that was installed: it has the SHA-256 {found}, \
         plugins.lock has {locked}; {}",
        path.display(),
        part.mend(name)
    )]
    OtherBytes {
        path: PathBuf,
        name: String,
        version: String,
        locked: Box<str>,
        found: Box<str>,
        part: VersionPart,
    },
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

/// Which of the kept versions of a plugin a file belongs to. It decides what mends the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionPart {
    Serving,
    /// The one that `plugin rollback` brings back.
    Earlier,
    /// The update that waits for the operator.
    Held,
}

impl VersionPart {
    fn mend(self, name: &str) -> String {
        match self {
            Self::Serving => format!(
                "`cofferdam plugin install FILE` with the same plugin writes it again, `cofferdam plugin remove {name}` \
                 removes the plugin"
            ),
            Self::Earlier => format!(
                "only `cofferdam plugin rollback {name}` needs it, and the version that serves is not affected; \
                 `cofferdam plugin update FILE --allow-downgrade` with this version's files brings it back"
            ),
            Self::Held => format!(
                "the version that serves is not affected; `cofferdam plugin update FILE` with the same plugin writes \
                 it again, `cofferdam plugin remove {name} --held` drops the update"
            ),
        }
    }
}

impl InstalledError {
    /// The same error of a file that belongs to this version.
    pub(crate) fn in_part(mut self, of: VersionPart) -> Self {
        if let Self::Missing { part, .. } | Self::OtherBytes { part, .. } = &mut self {
            *part = of;
        }
        self
    }

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
