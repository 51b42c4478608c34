//! Files and the disk: who can read them, whether a backup exists, and whether there is room.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cofferdam_store::{LastBackup, LockError, RootKeySource};
use rustix::fs::statvfs;

use super::{CheckFinding, Installation};
use crate::config::Config;
use crate::operators;
use crate::timestamp::timestamp;

/// A backup that is older is a warning.
const BACKUP_AGE_DAYS_MAX: u64 = 7;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) fn check(installation: &Installation<'_>) -> Vec<CheckFinding> {
    let mut findings = vec![data_directory(installation), configuration_file(installation)];
    findings.extend(root_key(installation));
    findings.extend(operator_token(installation));
    findings.extend(backup(installation));
    findings.push(disk_space(installation));
    findings
}

/// A data directory that this process cannot use.
pub(super) fn refused(error: &LockError) -> CheckFinding {
    let remedy = match error {
        LockError::WrongOwner { .. } => "run the command as that user, or while the host runs",
        _ => "see \"When something refuses to start\" in docs/operate.md",
    };
    CheckFinding::bad("data-directory", "data directory", error.to_string(), remedy)
}

/// The permissions of a file or directory; `None` if it does not exist or cannot be looked at.
pub(crate) fn mode(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o7777)
}

fn data_directory(installation: &Installation<'_>) -> CheckFinding {
    const ID: &str = "data-directory";
    let data = installation.options.data.display();
    let Some(mode) = installation.data_mode else {
        return CheckFinding::ok(ID, "data directory", format!("{data} does not exist; `serve` makes it"));
    };
    let remedy = format!("chmod 700 {data}");
    match mode {
        open if open & 0o022 != 0 => CheckFinding::bad(
            ID,
            "data directory",
            format!("{data} has mode {open:04o}: other users can change what is in it"),
            remedy,
        ),
        open if open & 0o077 != 0 => CheckFinding::warn(
            ID,
            "data directory",
            format!("{data} has mode {open:04o}: other users can look into it"),
            remedy,
        ),
        closed => CheckFinding::ok(ID, "data directory", format!("{data} has mode {closed:04o}")),
    }
}

fn configuration_file(installation: &Installation<'_>) -> CheckFinding {
    const ID: &str = "configuration-file";
    let options = installation.options;
    let file = Config::path(options.config.as_deref(), &options.data);
    match mode(&file) {
        None => CheckFinding::ok(
            ID,
            "configuration file",
            format!("there is no {}: all keys have their defaults", file.display()),
        ),
        Some(open) if open & 0o022 != 0 => CheckFinding::bad(
            ID,
            "configuration file",
            format!("{} has mode {open:04o}: other users can change grants and addresses", file.display()),
            format!("chmod go-w {}", file.display()),
        ),
        Some(mode) => {
            CheckFinding::ok(ID, "configuration file", format!("{} has mode {mode:04o}", file.display()))
        }
    }
}

/// The file of the root key, if it comes from one.
fn root_key_file(config: &Config) -> Option<&PathBuf> {
    match &config.vault.root_key {
        RootKeySource::File(path) => Some(path),
        _ => None,
    }
}

fn root_key(installation: &Installation<'_>) -> Vec<CheckFinding> {
    const ID: &str = "root-key";
    let Some(path) = root_key_file(installation.config) else {
        let source = &installation.config.vault.root_key;
        return vec![match source.check() {
            Ok(()) => CheckFinding::ok(ID, "root key", format!("it comes from {source}")),
            Err(error) => CheckFinding::bad(ID, "root key", error.to_string(), "see docs/vault.md"),
        }];
    };
    let shown = path.display();
    let is_on_database = installation.config.store.database.is_some();
    let mut findings = Vec::new();
    match mode(path) {
        None if installation.has_store => findings.push(CheckFinding::bad(
            ID,
            "root key",
            format!("{shown} cannot be read; without it the store does not open"),
            "put the file back, or open the store with the recovery key, see docs/vault.md",
        )),
        None => {
            let maker = if is_on_database { "`store create`" } else { "the first start" };
            let text = format!("{shown} does not exist; {maker} makes it");
            findings.push(CheckFinding::ok(ID, "root key", text));
        }
        Some(open) if open & 0o7177 != 0 => findings.push(CheckFinding::bad(
            ID,
            "root key",
            format!("{shown} has mode {open:04o}; the store opens with mode 0600 or 0400 only"),
            format!("chmod 600 {shown}"),
        )),
        Some(mode) => findings.push(CheckFinding::ok(ID, "root key", format!("{shown} has mode {mode:04o}"))),
    }
    let beside = !is_on_database && path.exists() && is_within(path, &installation.options.data);
    if beside {
        findings.push(CheckFinding::warn(
            ID,
            "root key",
            format!("{shown} is beside the store that it opens: a copy of the directory has both"),
            "move it to another disk or a key store and name it in vault.root_key (`file:PATH`, `env:NAME`, `fd:N`), \
             or keep copies of the directory as safe as the key",
        ));
    }
    findings
}

/// A token file that keeps the host from starting. The host makes one that is missing.
fn operator_token(installation: &Installation<'_>) -> Option<CheckFinding> {
    let error = operators::check_token(&installation.options.data).err()?;
    let remedy = "give it mode 0600 and the user of the host, or delete it: the next start makes a new one";
    Some(CheckFinding::bad("operator-token", "operator token", error.to_string(), remedy))
}

fn is_within(path: &Path, directory: &Path) -> bool {
    match (path.canonicalize(), directory.canonicalize()) {
        (Ok(path), Ok(directory)) => path.starts_with(directory),
        _ => false,
    }
}

fn backup(installation: &Installation<'_>) -> Vec<CheckFinding> {
    const ID: &str = "backup";
    let data = &installation.options.data;
    if !installation.has_store {
        return Vec::new();
    }
    let remedy = "cofferdam vault backup FILE, with FILE on another machine's disk";
    let last = match LastBackup::read(data) {
        Ok(Some(last)) => last,
        // Another host of the database may make them.
        Ok(None) if installation.config.store.database.is_some() => return Vec::new(),
        Ok(None) => return vec![CheckFinding::warn(ID, "backup", "none was made by this version", remedy)],
        Err(error) => {
            return vec![CheckFinding::warn(
                ID,
                "backup",
                format!("the note about the last one: {error}"),
                remedy,
            )];
        }
    };
    let (file, at) = (last.path.display(), timestamp(last.made_at_ms));
    let days = installation.now_ms.saturating_sub(last.made_at_ms) / DAY_MS;
    let mut findings = vec![if days >= BACKUP_AGE_DAYS_MAX {
        CheckFinding::warn(ID, "backup", format!("the last one is of {at}, {days} days old"), remedy)
    } else {
        CheckFinding::ok(ID, "backup", format!("the last one is of {at}, in {file}"))
    }];
    let folder = last.path.parent().and_then(|folder| folder.canonicalize().ok());
    let key = root_key_file(installation.config).and_then(|key| key.parent()?.canonicalize().ok());
    if last.path.exists() && key.is_some() && folder == key {
        findings.push(CheckFinding::bad(
            ID,
            "backup",
            format!("{file} is beside the root key that opens it"),
            "move one of them to another place",
        ));
    } else if installation.config.store.database.is_none()
        && let (Ok(backup), Ok(store)) = (std::fs::metadata(&last.path), std::fs::metadata(data))
        && backup.dev() == store.dev()
    {
        findings.push(CheckFinding::warn(
            ID,
            "backup",
            format!("{file} is on the disk of the store: both are lost together"),
            "copy it to another machine",
        ));
    }
    findings
}

fn disk_space(installation: &Installation<'_>) -> CheckFinding {
    const ID: &str = "disk-space";
    let min = installation.config.store.free_bytes_min;
    let free = match free_bytes(&installation.options.data) {
        Ok(free) => free,
        Err(error) => {
            let remedy = "look at the disk of the data directory";
            return CheckFinding::warn(
                ID,
                "disk space",
                format!("the system does not tell it: {error}"),
                remedy,
            );
        }
    };
    if installation.config.store.database.is_some() {
        let found = format!("{} MiB free; the store is in a database", free >> 20);
        return CheckFinding::ok(ID, "disk space", found);
    }
    let found = format!("{} MiB free, store.free_bytes_min is {} MiB", free >> 20, min >> 20);
    let remedy = "make room on the disk of the data directory";
    if free < min {
        let found = format!("{found}: changes by tenants and prepaid requests are refused");
        CheckFinding::bad(ID, "disk space", found, remedy)
    } else if free < min.saturating_mul(2) {
        CheckFinding::warn(ID, "disk space", found, remedy)
    } else {
        CheckFinding::ok(ID, "disk space", found)
    }
}

/// Free space of the disk of a directory, or of its nearest parent that exists.
fn free_bytes(directory: &Path) -> io::Result<u64> {
    let directory = std::path::absolute(directory)?;
    let exists = directory.ancestors().find(|ancestor| ancestor.exists());
    let found = statvfs(exists.unwrap_or(&directory))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
