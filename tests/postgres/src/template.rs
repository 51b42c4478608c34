//! A fresh data directory. `initdb` takes about a second, a copy of its result a tenth of that, so the first one is
//! kept beside the build.

use crate::Result;
use crate::programs::{Programs, run};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fills `folder/data`, which must not exist.
pub(crate) fn fill(programs: &Programs, folder: &Path) -> Result<()> {
    let data = folder.join("data");
    let template = target()?.map(|target| target.join("postgres-template").join(programs.name()));
    if let Some(template) = template.as_ref().filter(|template| template.is_dir()) {
        return copy(template, &data);
    }
    let arguments = ["--pgdata=data", "--username=postgres", "--auth=trust", "--locale=C", "--encoding=UTF8"];
    // Small segments of the log of changes: half of a new data directory would be the first one.
    programs.run("initdb", folder, &[&arguments[..], &["--no-sync", "--wal-segsize=1"]].concat())?;
    template.map_or(Ok(()), |template| keep(&data, &template))
}

/// Puts a copy into place in one step, because other test processes may do the same.
fn keep(data: &Path, template: &Path) -> Result<()> {
    let parent = template.parent().context("a template has a parent")?;
    std::fs::create_dir_all(parent)?;
    let staging = tempfile::Builder::new().prefix("new-").tempdir_in(parent)?;
    let copied = staging.path().join("data");
    copy(data, &copied)?;
    match std::fs::rename(&copied, template) {
        Err(_) if template.is_dir() => Ok(()),
        renamed => Ok(renamed?),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("-a").arg(from).arg(to))
}

/// The build's target directory, which Cargo marks as a cache; tests run from inside of it. `None` for others.
fn target() -> Result<Option<PathBuf>> {
    let program = std::env::current_exe()?;
    let mut folders = program.ancestors();
    Ok(folders.find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_owned))
}
