//! The programs of PostgreSQL on this machine, and the user that they run as.

use crate::Result;
use anyhow::{Context, bail};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What Debian's packages of the server bring, one directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

const OLDEST_MAJOR: u32 = 13;

/// PostgreSQL refuses to run as root; then this user runs it. Debian's package makes it.
const USER: &str = "postgres";

#[derive(Clone, Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// As `initdb --version` writes it, without spaces.
    version: String,
    /// User and group, where the tests run as root.
    user: Option<(u32, u32)>,
}

impl Programs {
    /// The version in `PATH`, else the newest one of Debian.
    pub(crate) fn find() -> Result<Self> {
        let folder = folder().with_context(|| {
            format!("PostgreSQL is neither in PATH nor in {DEBIAN}; Debian: apt-get install postgresql")
        })?;
        let output = Command::new(folder.join("initdb")).arg("--version").output()?;
        let text = String::from_utf8(output.stdout)?;
        let words =
            text.split_whitespace().skip_while(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
        let version: Vec<&str> = words.collect();
        let major = version.first().and_then(|word| word.split(['.', 'b', 'd', 'r']).next()?.parse().ok());
        let major: u32 = major.with_context(|| format!("initdb --version says {text:?}"))?;
        if major < OLDEST_MAJOR {
            bail!("PostgreSQL {major} in {} is too old: {OLDEST_MAJOR} is the oldest", folder.display());
        }
        let user = rustix::process::geteuid().is_root().then(user).transpose()?;
        Ok(Self { folder, version: version.join("-").replace(['(', ')', '/'], ""), user })
    }

    /// Tells apart data directories that cannot take each other's place.
    pub(crate) fn name(&self) -> String {
        self.user.map_or_else(|| self.version.clone(), |(user, _)| format!("{}-of-{user}", self.version))
    }

    pub(crate) fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// A command with no environment but `PATH`, which runs in this folder as the server's user.
    pub(crate) fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir(folder);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Runs a program of PostgreSQL to its end.
    pub(crate) fn run(&self, program: &str, folder: &Path, arguments: &[&str]) -> Result<()> {
        run(self.command(&self.path(program), folder).args(arguments))
    }

    /// Hands a file or folder over to the server's user.
    pub(crate) fn hand_over(&self, path: &Path) -> Result<()> {
        if let Some((user, group)) = self.user {
            std::os::unix::fs::chown(path, Some(user), Some(group))?;
        }
        Ok(())
    }
}

/// Runs a command to its end; what it wrote is in the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{:?} failed: {}", command.get_program(), String::from_utf8_lossy(&said));
    }
    Ok(())
}

fn folder() -> Option<PathBuf> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    // A link in PATH leads to the folder that has the other programs too.
    let linked =
        std::env::split_paths(&in_path).filter_map(|folder| folder.join("initdb").canonicalize().ok());
    let mut linked = linked.filter_map(|program| Some(program.parent()?.to_owned()));
    if let Some(folder) = linked.find(|folder| is_whole(folder)) {
        return Some(folder);
    }
    let versions = std::fs::read_dir(DEBIAN).ok()?.flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, folder)| is_whole(folder))
        .collect();
    versions.sort();
    versions.pop().map(|(_, folder)| folder)
}

fn is_whole(folder: &Path) -> bool {
    ["initdb", "postgres", "pg_basebackup"].iter().all(|program| folder.join(program).is_file())
}

fn user() -> Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.split(':').next() == Some(USER));
    let mut ids = line
        .with_context(|| format!("the tests run as root, PostgreSQL cannot, and there is no user {USER}"))?
        .split(':')
        .skip(2)
        .map(str::parse);
    match (ids.next(), ids.next()) {
        (Some(Ok(user)), Some(Ok(group))) => Ok((user, group)),
        _ => bail!("the line of {USER} in /etc/passwd has no ids"),
    }
}
