//! A checked copy of a plugin in the data directory, for `plugin install` and `plugin update`. The
//! copy is what is checked, so that the bytes that are installed are those that were checked.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_runtime::{Inspection, Manifest};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use super::examination::examine_files;
use super::project::{Project, read_component, read_text, wrong};
use crate::command::StagedPlugin;
use crate::failure::Failure;
use crate::options::Options;
use crate::start::ask;

/// How the folder of a copy begins.
const PREFIX: &str = "plugin-incoming-";
/// The age at which a copy is one that an ended command left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);
/// Number of entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// A copy that lasts as long as this value.
pub(crate) struct StagedCopy {
    pub(crate) staged: StagedPlugin,
    _folder: TempDir,
}

/// Copies and checks a plugin.
///
/// # Errors
///
/// The files cannot be read, or a host would refuse the plugin.
pub(crate) fn stage(options: &Options, file: &Path) -> Result<StagedCopy, Failure> {
    let found = find(file)?;
    let component = read_component(&found.component)?;
    let name = found.manifest.name.clone();
    let shown = found.component.display();
    let inspection = Inspection::of(&component);
    if let Err(error) = &inspection.verdict {
        return Err(wrong(format!("{shown}: the component {error}")));
    }
    if let Some(interface) = inspection.unasked(&found.manifest) {
        return Err(wrong(format!(
            "{shown}: the component imports {interface}, and {} does not ask for it; `cofferdam plugin check` in its \
             project names the lines",
            found.manifest_file.display()
        )));
    }
    inspection.suits(&found.manifest).map_err(|error| wrong(format!("{shown}: the component {error}")))?;
    let folder = folder(&options.data)?;
    let (manifest_copy, component_copy) =
        (folder.path().join(format!("{name}.toml")), folder.path().join(format!("{name}.wasm")));
    write_copies(folder.path(), &name, found.manifest_text.as_bytes(), &component)
        .map_err(Failure::system(folder.path().display().to_string()))?;
    let examination = examine_files(&name, &manifest_copy, &component_copy)?.map_err(wrong)?;
    if let Some(reason) = examination.uncompiled {
        return Err(wrong(format!("{shown} does not compile: {reason}")));
    }
    // A plugin may need settings that the operator gives it after it is installed.
    if let Some(problem) = examination.problems.first() {
        ask(&format!("note: called without settings: {}\n", problem.message));
    }
    let origin = std::path::absolute(&found.component).map_err(Failure::system(shown.to_string()))?;
    let staged = StagedPlugin {
        folder: folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
        name,
        origin: origin.display().to_string(),
        manifest_sha256: Inspection::digest_of(found.manifest_text.as_bytes()),
        component_sha256: inspection.digest,
    };
    Ok(StagedCopy { staged, _folder: folder })
}

/// The files of a plugin where its author put them.
struct FoundPlugin {
    manifest_file: PathBuf,
    manifest_text: String,
    manifest: Manifest,
    component: PathBuf,
}

/// Finds manifest and component from either of them, or from a folder.
fn find(file: &Path) -> Result<FoundPlugin, Failure> {
    let manifest_file = if file.is_dir() { manifest_in(file)? } else { file.with_extension("toml") };
    if !manifest_file.exists() {
        let (there, wanted) = (file.display(), manifest_file.display());
        return Err(match file.exists() {
            true => wrong(format!("{wanted} is not there: the manifest has to be beside {there}")),
            false => wrong(format!("{there} is not there")),
        });
    }
    let manifest_text = read_text(&manifest_file)?;
    let shown = manifest_file.display();
    let manifest = Manifest::parse(&manifest_text)
        .map_err(|error| wrong(format!("{shown}:{}: {}", error.line, error.message)))?;
    if manifest_file.file_stem().is_none_or(|stem| stem != manifest.name.as_str()) {
        return Err(wrong(format!("{shown}: the manifest of {0} has to be named {0}.toml", manifest.name)));
    }
    let component = manifest_file.with_file_name(&manifest.component);
    if file.extension().is_some_and(|extension| extension == "wasm") && file != component {
        return Err(wrong(format!(
            "{shown} names the component {}, not {}",
            component.display(),
            file.display()
        )));
    }
    Ok(FoundPlugin { manifest_file, manifest_text, manifest, component })
}

/// The manifest in a folder: that of a built project, or the only one.
fn manifest_in(dir: &Path) -> Result<PathBuf, Failure> {
    if dir.join("plugin.toml").exists() {
        let project = Project::open(dir)?;
        project.require_component()?;
        return Ok(project.installed_manifest());
    }
    let entries = fs::read_dir(dir).map_err(Failure::system(dir.display().to_string()))?;
    let files = entries.take(ENTRIES_MAX).flatten().map(|entry| entry.path());
    let mut manifests: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect();
    match (manifests.pop(), manifests.len()) {
        (Some(manifest), 0) => Ok(manifest),
        (found, _) => {
            let count = manifests.len() + usize::from(found.is_some());
            Err(wrong(format!("{} has {count} manifests: name the component of one plugin", dir.display())))
        }
    }
}

/// A folder of its own in the data directory. The process that installs reads it, which may run as
/// another user. The data directory keeps all others out.
fn folder(data: &Path) -> Result<TempDir, Failure> {
    let failed = || Failure::system(data.display().to_string());
    if !data.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed())?;
    }
    remove_left_behind(data);
    tempfile::Builder::new().prefix(PREFIX).tempdir_in(data).map_err(failed())
}

/// Writes the files of a plugin into the folder of a copy. Root may write here into the data directory of another
/// user, who can put a link in the place of the folder: so the folder is opened once, and only new files are made.
fn write_copies(folder: &Path, name: &str, manifest: &[u8], component: &[u8]) -> io::Result<()> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
    folder.set_permissions(Permissions::from_mode(0o755))?;
    for (extension, bytes) in [("toml", manifest), ("wasm", component)] {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::openat(&folder, format!("{name}.{extension}"), flags, mode)?;
        let mut file = File::from(file);
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(bytes)?;
    }
    Ok(())
}

/// Removes copies that commands left behind which were killed.
fn remove_left_behind(data: &Path) {
    let entries = fs::read_dir(data).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let copies = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for copy in copies {
        let age = copy.metadata().and_then(|metadata| metadata.modified()).ok();
        let age = age.and_then(|changed| changed.elapsed().ok());
        if age.is_some_and(|age| age > LEFT_BEHIND)
            && let Err(error) = fs::remove_dir_all(copy.path())
        {
            tracing::warn!(folder = %copy.path().display(), %error, "a leftover copy cannot be removed");
        }
    }
}
