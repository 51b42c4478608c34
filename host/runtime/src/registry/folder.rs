//! Reads a plugin folder: manifests and their components. Files that another user could change are
//! refused, because plugins are code.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::source::{PluginSource, check_name};
use crate::contract::COMPONENT_BYTES_MAX;
use crate::error::{Distrust, LoadError};
use crate::manifest::Manifest;

/// Length limit of a manifest, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 64 * 1024;
/// Number of plugins in one folder.
const PLUGINS_MAX: usize = 1_000;
/// Number of entries of one folder, of any kind.
const ENTRIES_MAX: usize = 10_000;

/// Reads every `NAME.toml` of a folder and the component it names. A component that no manifest
/// names is logged.
///
/// # Errors
///
/// A file cannot be read, is too long, belongs to another user or can be changed by other users; a
/// manifest is wrong; two manifests name one component.
pub fn read_plugin_dir(dir: &Path) -> Result<Vec<PluginSource>, LoadError> {
    let metadata = fs::metadata(dir).map_err(|error| unreadable(dir, error))?;
    trusted(dir, &metadata)?;
    let FolderListing { manifests, components } = list(dir)?;
    let mut sources = Vec::with_capacity(manifests.len());
    let mut read = BTreeMap::new();
    for manifest in manifests {
        let (source, component) = read_source(dir, &manifest)?;
        // Links can give one file two names.
        let real = fs::canonicalize(&component).map_err(|error| unreadable(&component, error))?;
        if let Some(first) = read.insert(real, source.name.clone()) {
            let (id, first) = (component.display().to_string(), format!("plugin {first}"));
            return Err(LoadError::Duplicate { origin: source.origin, what: "component file", id, first });
        }
        sources.push(source);
    }
    for component in components {
        let real = fs::canonicalize(&component).map_err(|error| unreadable(&component, error))?;
        if !read.contains_key(&real) {
            let (file, wanted) = (component.display(), component.with_extension("toml"));
            tracing::warn!(%file, "this component is not loaded: no manifest names it, there is no {}", wanted.display());
        }
    }
    Ok(sources)
}

/// The manifests and components of a folder, each sorted by name.
#[derive(Default)]
struct FolderListing {
    manifests: Vec<PathBuf>,
    components: Vec<PathBuf>,
}

fn list(dir: &Path) -> Result<FolderListing, LoadError> {
    let too_many = |most: usize, what: &str| {
        let error = io::Error::other(format!("has more than {most} {what} (the limit)"));
        Err(unreadable(dir, error))
    };
    let mut listing = FolderListing::default();
    for (count, entry) in fs::read_dir(dir).map_err(|error| unreadable(dir, error))?.enumerate() {
        let path = entry.map_err(|error| unreadable(dir, error))?.path();
        if count >= ENTRIES_MAX {
            return too_many(ENTRIES_MAX, "files");
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => listing.manifests.push(path),
            Some("wasm") => listing.components.push(path),
            _ => {}
        }
        if listing.manifests.len() > PLUGINS_MAX {
            return too_many(PLUGINS_MAX, "plugins");
        }
    }
    listing.manifests.sort();
    listing.components.sort();
    Ok(listing)
}

/// Reads one plugin. Also returns the path of its component.
fn read_source(dir: &Path, path: &Path) -> Result<(PluginSource, PathBuf), LoadError> {
    let origin = path.display().to_string();
    let text = read_bounded(path, MANIFEST_BYTES_MAX)?;
    let text = String::from_utf8(text)
        .map_err(|_| unreadable(path, io::Error::new(io::ErrorKind::InvalidData, "is not UTF-8 text")))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let blame = |error| LoadError::Manifest { name: name.clone(), origin: origin.clone(), error };
    let manifest = Manifest::parse(&text).map_err(blame)?;
    // Checked before the component is read: with a wrong name the only error would be a missing
    // component.
    check_name(&manifest, &name).map_err(blame)?;
    let file = dir.join(&manifest.component);
    let component = read_bounded(&file, COMPONENT_BYTES_MAX)?;
    let source = PluginSource {
        manifest: text,
        component: component.into(),
        digest: None,
        name,
        origin,
        is_built_in: false,
    };
    Ok((source, file))
}

/// Reads a trusted file of at most `bytes_max` bytes at a path that the host chose itself. A symbolic
/// link is not followed.
///
/// # Errors
///
/// The file cannot be read, is too long, belongs to another user or can be changed by other users.
pub fn read_installed_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    let mut options = File::options();
    // Without `NONBLOCK`, opening a named pipe would wait for its writer.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            unreadable(path, io::Error::other("is a symbolic link"))
        }
        _ => unreadable(path, error),
    })?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(unreadable(path, io::Error::other("is not a file")));
    }
    read_open(path, file, bytes_max)
}

/// Checks that other users cannot change which files are in a folder. A symbolic link is refused.
///
/// # Errors
///
/// It is not a folder, belongs to another user or can be changed by other users.
pub fn check_installed_folder(dir: &Path) -> Result<(), LoadError> {
    let metadata = fs::symlink_metadata(dir).map_err(|error| unreadable(dir, error))?;
    if !metadata.is_dir() {
        return Err(unreadable(dir, io::Error::other("is not a folder")));
    }
    trusted(dir, &metadata)
}

/// Reads a trusted file of at most `bytes_max` bytes.
fn read_bounded(path: &Path, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    read_open(path, file, bytes_max)
}

fn read_open(path: &Path, file: File, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    // Metadata of the open file, so a link cannot be changed between check and read.
    trusted(path, &file.metadata().map_err(|error| unreadable(path, error))?)?;
    let mut bytes = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, error))?;
    if bytes.len() > bytes_max {
        let error = io::Error::other(format!("has more than {bytes_max} bytes (the limit)"));
        return Err(unreadable(path, error));
    }
    Ok(bytes)
}

fn unreadable(path: &Path, error: io::Error) -> LoadError {
    LoadError::Read { path: path.to_owned(), error }
}

fn trusted(path: &Path, metadata: &Metadata) -> Result<(), LoadError> {
    let access = FilePermissions { owner: metadata.uid(), group: metadata.gid(), mode: metadata.mode() };
    let us = rustix::process::geteuid().as_raw();
    let our_group = rustix::process::getegid().as_raw();
    match access.distrust(us, our_group) {
        None => Ok(()),
        Some(reason) => Err(LoadError::Untrusted { path: path.to_owned(), reason }),
    }
}

/// Owner, group and permissions of a file.
#[derive(Clone, Copy)]
struct FilePermissions {
    owner: u32,
    group: u32,
    mode: u32,
}

impl FilePermissions {
    /// Why this user cannot trust the file: a user other than root and itself can change it. `None`
    /// if it can be trusted.
    fn distrust(self, user: u32, group: u32) -> Option<Distrust> {
        const ROOT: u32 = 0;
        if self.owner != ROOT && self.owner != user {
            return Some(Distrust::Owner { owner: self.owner });
        }
        if self.mode & 0o002 != 0 {
            return Some(Distrust::WritableForAll { mode: self.mode & 0o7777 });
        }
        if self.mode & 0o020 != 0 && self.group != group {
            return Some(Distrust::WritableForGroup { group: self.group, mode: self.mode & 0o7777 });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_other_users_can_change_are_not_trusted() {
        let (us, our_group) = (1000, 100);
        let verdict = |owner, group, mode| FilePermissions { owner, group, mode }.distrust(us, our_group);
        for (owner, group, mode) in [
            (us, our_group, 0o644),
            (us, our_group, 0o664),
            (us, 5, 0o755),
            (0, 0, 0o644),
            (0, our_group, 0o775),
        ] {
            assert_eq!(verdict(owner, group, mode), None, "{owner}:{group} {mode:o}");
        }
        assert_eq!(verdict(1001, our_group, 0o600), Some(Distrust::Owner { owner: 1001 }));
        assert_eq!(verdict(us, our_group, 0o100_646), Some(Distrust::WritableForAll { mode: 0o646 }));
        assert_eq!(verdict(0, 0, 0o1777), Some(Distrust::WritableForAll { mode: 0o1777 }));
        assert_eq!(verdict(us, 5, 0o660), Some(Distrust::WritableForGroup { group: 5, mode: 0o660 }));
        // The root group is not the group of the host's user.
        assert_eq!(verdict(0, 0, 0o664), Some(Distrust::WritableForGroup { group: 0, mode: 0o664 }));
    }
}
