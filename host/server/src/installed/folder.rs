//! The files of the data directory that belong to installed plugins. A file is named after its
//! plugin and its digest, so that a new version never overwrites one that may serve.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cofferdam_runtime::{
    COMPONENT_BYTES_MAX, Inspection, LoadError, MANIFEST_BYTES_MAX, Manifest, PluginSource,
    check_installed_folder, read_installed_file,
};
use cofferdam_store::{Draft, drafted};

use super::asks::{InstalledAsks, beyond};
use super::error::{InstalledError, VersionPart};
use super::lock::{InstalledVersion, LOCK_BYTES_MAX, LockedPlugin, PluginLock};

/// Hexadecimal digits of a digest in the name of a file.
const DIGITS: usize = 32;
/// Number of entries of the folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// Manifest and component of one version, as they were read.
pub(crate) struct PluginFiles {
    pub(crate) manifest: String,
    pub(crate) component: Vec<u8>,
}

/// `DATA/plugins` and `DATA/plugins.lock`.
pub(crate) struct InstalledFolder {
    data: PathBuf,
}

impl InstalledFolder {
    pub(crate) fn new(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.data.join("plugins")
    }

    fn lock_file(&self) -> PathBuf {
        self.data.join("plugins.lock")
    }

    /// Whether a folder is that of the installed plugins.
    pub(super) fn is_same(&self, folder: &Path) -> bool {
        match (folder.canonicalize(), self.folder().canonicalize()) {
            (Ok(folder), Ok(own)) => folder == own,
            _ => false,
        }
    }

    /// The lock; an empty one if there is no file.
    ///
    /// # Errors
    ///
    /// The file cannot be read or trusted, or is not a lock.
    pub(crate) fn read_lock(&self) -> Result<PluginLock, InstalledError> {
        let path = self.lock_file();
        let bytes = match read_installed_file(&path, LOCK_BYTES_MAX) {
            Err(error) if is_absent(&error) => return Ok(PluginLock::default()),
            bytes => bytes?,
        };
        let bad = |line, message| {
            let (path, folder) = (path.clone(), self.folder());
            InstalledError::Lock { path, line, message, folder }
        };
        let text = String::from_utf8(bytes).map_err(|_| bad(1, "is not UTF-8 text".to_owned()))?;
        PluginLock::parse(&text).map_err(|(line, message)| bad(line, message))
    }

    /// The plugins that serve under a lock. Their bytes are compared with the digests of the lock,
    /// and these bytes are the ones that will be compiled.
    ///
    /// # Errors
    ///
    /// A file is missing, has other bytes or cannot be trusted.
    pub(super) fn sources(&self, lock: &PluginLock) -> Result<Vec<PluginSource>, InstalledError> {
        if !lock.plugins.is_empty() && self.folder().exists() {
            check_installed_folder(&self.folder())?;
        }
        let source = |(name, plugin): (&String, &LockedPlugin)| {
            let PluginFiles { manifest, component } = self.read(name, &plugin.current)?;
            Ok(PluginSource {
                manifest,
                component: component.into(),
                digest: None,
                name: name.clone(),
                origin: self.manifest_file(name, &plugin.current).display().to_string(),
                is_built_in: false,
            })
        };
        lock.plugins.iter().map(source).collect()
    }

    /// The component with this digest, of any version of an installed plugin: the one that serves, the one
    /// before, or a held one.
    pub(crate) fn component_of(&self, sha256: &str) -> Option<Vec<u8>> {
        let lock = self.read_lock().ok()?;
        let versions = lock
            .plugins
            .iter()
            .flat_map(|(name, plugin)| plugin.versions().map(move |version| (name, version)));
        let mut found = versions.filter(|(_, version)| version.component_sha256 == sha256);
        found.find_map(|(name, version)| self.read(name, version).ok()).map(|files| files.component)
    }

    /// The files of one version.
    ///
    /// # Errors
    ///
    /// As for [`Self::sources`].
    pub(crate) fn read(&self, name: &str, version: &InstalledVersion) -> Result<PluginFiles, InstalledError> {
        let manifest = self.manifest_text(name, version)?;
        let component = self.component_file(name, version);
        let component =
            read_locked(name, version, component, COMPONENT_BYTES_MAX, &version.component_sha256)?;
        Ok(PluginFiles { manifest, component })
    }

    fn manifest_text(&self, name: &str, version: &InstalledVersion) -> Result<String, InstalledError> {
        let path = self.manifest_file(name, version);
        let text = read_locked(name, version, path.clone(), MANIFEST_BYTES_MAX, &version.manifest_sha256)?;
        let not_text = |_| InstalledError::io(path)(io::Error::other("is not UTF-8 text"));
        String::from_utf8(text).map_err(not_text)
    }

    /// The manifest of one version.
    ///
    /// # Errors
    ///
    /// As for [`Self::sources`], or the manifest is one that this program does not accept.
    pub(crate) fn manifest(
        &self,
        name: &str,
        version: &InstalledVersion,
    ) -> Result<Manifest, InstalledError> {
        let origin = self.manifest_file(name, version).display().to_string();
        let text = self.manifest_text(name, version)?;
        let blame = |error| LoadError::Manifest { name: name.to_owned(), origin, error };
        Ok(Manifest::parse(&text).map_err(blame)?)
    }

    /// What the version that serves asks for, also where its manifest cannot be used: an update may
    /// mend that.
    pub(crate) fn current_asks(&self, name: &str, plugin: &LockedPlugin) -> InstalledAsks {
        let current = &plugin.current;
        self.manifest(name, current).map_or_else(|_| InstalledAsks::noted(&current.asks), InstalledAsks::of)
    }

    /// What the held version asks for beyond the one that serves.
    pub(crate) fn asks_more(&self, name: &str, plugin: &LockedPlugin) -> Result<Vec<String>, InstalledError> {
        let Some(held) = &plugin.held else { return Ok(Vec::new()) };
        Ok(beyond(&self.manifest(name, held)?, &self.current_asks(name, plugin)))
    }

    /// Writes the files of a version, durably. They count once a lock names them.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub(crate) fn put(
        &self,
        name: &str,
        version: &InstalledVersion,
        files: &PluginFiles,
    ) -> Result<(), InstalledError> {
        let folder = self.folder();
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(InstalledError::io(folder)(error));
            }
            _ => check_installed_folder(&folder)?,
        }
        write_file(&self.manifest_file(name, version), files.manifest.as_bytes())?;
        write_file(&self.component_file(name, version), &files.component)
    }

    /// Replaces the lock, durably. This is the moment at which a change takes effect.
    ///
    /// # Errors
    ///
    /// The lock would be too large, or the system refuses. The old one is then still there.
    pub(crate) fn commit(&self, lock: &PluginLock) -> Result<(), InstalledError> {
        let path = self.lock_file();
        let text =
            lock.text().map_err(|message| InstalledError::io(path.clone())(io::Error::other(message)))?;
        write_file(&path, text.as_bytes())
    }

    /// Removes files that a lock does not name and an earlier command wrote. Files of any other name
    /// stay. What cannot be removed is logged: it is not loaded in any case.
    pub(crate) fn sweep(&self, lock: &PluginLock) {
        let named = self.named(lock);
        for path in self.entries().filter(|path| !named.contains(path) && is_own(path)) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(file = %path.display(), %error, "a file of no installed plugin cannot be removed");
            }
        }
    }

    /// Warns of files that no command wrote.
    pub(super) fn warn_of_strangers(&self, lock: &PluginLock) {
        let named = self.named(lock);
        for path in self.entries().filter(|path| !named.contains(path) && !is_own(path)) {
            let file = path.display();
            tracing::warn!(%file, "not loaded: plugins.lock does not name this file; `cofferdam plugin install` installs a plugin");
        }
    }

    fn entries(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        entries.take(ENTRIES_MAX).map(|entry| entry.path())
    }

    fn named(&self, lock: &PluginLock) -> BTreeSet<PathBuf> {
        let versions =
            lock.plugins.iter().flat_map(|(name, plugin)| plugin.versions().map(move |one| (name, one)));
        versions
            .flat_map(|(name, version)| {
                [self.manifest_file(name, version), self.component_file(name, version)]
            })
            .collect()
    }

    fn manifest_file(&self, name: &str, version: &InstalledVersion) -> PathBuf {
        self.file(name, &version.manifest_sha256, "toml")
    }

    fn component_file(&self, name: &str, version: &InstalledVersion) -> PathBuf {
        self.file(name, &version.component_sha256, "wasm")
    }

    fn file(&self, name: &str, digest: &str, extension: &str) -> PathBuf {
        let digits: String = digest.chars().take(DIGITS).collect();
        self.folder().join(format!("{name}-{digits}.{extension}"))
    }
}

/// Reads a file and compares its digest with that of the lock.
fn read_locked(
    name: &str,
    version: &InstalledVersion,
    path: PathBuf,
    bytes_max: usize,
    locked: &str,
) -> Result<Vec<u8>, InstalledError> {
    let (name, version) = (name.to_owned(), version.version.clone());
    let bytes = match read_installed_file(&path, bytes_max) {
        Err(error) if is_absent(&error) => {
            return Err(InstalledError::Missing { path, name, version, part: VersionPart::Serving });
        }
        bytes => bytes?,
    };
    let found = Inspection::digest_of(&bytes);
    match found == locked {
        true => Ok(bytes),
        false => {
            let part = VersionPart::Serving;
            let (locked, found) = (locked.into(), found.into());
            Err(InstalledError::OtherBytes { path, name, version, locked, found, part })
        }
    }
}

fn is_absent(error: &LoadError) -> bool {
    matches!(error, LoadError::Read { error, .. } if error.kind() == ErrorKind::NotFound)
}

/// Whether a file has a name that [`InstalledFolder::put`] gives, or that of its draft.
fn is_own(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = drafted(name).unwrap_or(name);
    let stem = name.strip_suffix(".toml").or_else(|| name.strip_suffix(".wasm"));
    stem.and_then(|stem| stem.rsplit_once('-')).is_some_and(|(_, digits)| {
        digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), InstalledError> {
    Draft::write(path, bytes, 0o600).and_then(Draft::replace).map_err(InstalledError::io(path))
}
