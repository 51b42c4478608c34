//! The folder of a plugin's project: its manifest, and what is built from it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cofferdam_runtime::Manifest;
use cofferdam_store::Draft;

use crate::command::CommandError;
use crate::failure::Failure;

/// Length limit of a text file of a project, in bytes.
pub(super) const TEXT_BYTES_MAX: u64 = 1024 * 1024;
/// Length limit of a component, in bytes, as for loading.
const COMPONENT_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The folder within a project for what this program keeps there.
pub(super) const FOLDER: &str = ".cofferdam";

/// A plugin's project.
pub(super) struct Project {
    pub(super) dir: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) manifest_text: String,
}

impl Project {
    /// Reads the manifest of the project in this folder.
    ///
    /// # Errors
    ///
    /// There is no manifest, or it has a mistake.
    pub(super) fn open(dir: &Path) -> Result<Self, Failure> {
        let file = dir.join("plugin.toml");
        if !file.exists() {
            return Err(wrong(format!(
                "{} is not there; `cofferdam plugin new` writes a project",
                file.display()
            )));
        }
        let manifest_text = read_text(&file)?;
        let manifest = Manifest::parse(&manifest_text)
            .map_err(|error| wrong(format!("{}:{}: {}", file.display(), error.line, error.message)))?;
        Ok(Self { dir: dir.to_owned(), manifest, manifest_text })
    }

    /// The folder that `serve --plugins` reads.
    pub(super) fn plugins(&self) -> PathBuf {
        // Without the `.` that stands for no argument, the path is shorter and the same.
        match self.dir.strip_prefix(".") {
            Ok(rest) => rest.join("plugins"),
            Err(_) => self.dir.join("plugins"),
        }
    }

    /// The built component.
    pub(super) fn component(&self) -> PathBuf {
        self.plugins().join(&self.manifest.component)
    }

    /// The built component, which has to be there.
    pub(super) fn require_component(&self) -> Result<PathBuf, Failure> {
        let file = self.component();
        if file.exists() {
            return Ok(file);
        }
        let (file, dir) = (file.display(), self.dir.display());
        Err(wrong(format!("{file} is not there: run `cofferdam plugin build {dir}`")))
    }

    /// The copy of the manifest beside the component.
    pub(super) fn installed_manifest(&self) -> PathBuf {
        self.plugins().join(format!("{}.toml", self.manifest.name))
    }

    /// Files of cases, sorted by name.
    pub(super) fn cases(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.join("cases")).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
        files.sort();
        files
    }

    /// A file of the project and the line that contains a text, such as `t/build.toml:3`.
    pub(super) fn place_of(&self, file: &str, text: &str) -> String {
        let line = self.line_of(file, text).map(|line| format!(":{line}")).unwrap_or_default();
        format!("{}{line}", self.dir.join(file).display())
    }

    /// The line of a file of the project that contains a text, counted from 1.
    pub(super) fn line_of(&self, file: &str, text: &str) -> Option<usize> {
        let content = read_text(&self.dir.join(file)).ok()?;
        content.lines().position(|line| line.contains(text)).map(|index| index + 1)
    }
}

/// An error of the author, who can mend it.
pub(super) fn wrong(message: impl Into<String>) -> Failure {
    CommandError::new(message).into()
}

pub(super) fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = read_bounded(path, TEXT_BYTES_MAX)?;
    String::from_utf8(bytes).map_err(|_| wrong(format!("{} is not UTF-8 text", path.display())))
}

pub(super) fn read_component(path: &Path) -> Result<Vec<u8>, Failure> {
    read_bounded(path, COMPONENT_BYTES_MAX)
}

pub(super) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::system(path.display().to_string())(error);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(failed(io::Error::other(format!("has more than {bytes_max} bytes (the limit)"))));
    }
    Ok(bytes)
}

/// Makes a folder that only this user can change: a host refuses plugins that others can change.
pub(super) fn make_folder(dir: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
        .map_err(Failure::system(dir.display().to_string()))
}

/// Makes a folder that only this user can read.
pub(super) fn make_private_folder(dir: &Path) -> Result<(), Failure> {
    let failed = || Failure::system(dir.display().to_string());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed())?;
    // Another version may have made it readable.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed())
}

/// Replaces a file at once, so that a host that reads it meanwhile sees the old or the new one.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let replaced = Draft::write(path, bytes, 0o644).and_then(Draft::replace);
    replaced.map_err(Failure::system(path.display().to_string()))
}
