//! Compiles and calls a plugin in a process of its own, for `plugin check`, `plugin test`,
//! `plugin dev` and for installing.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::examine::{CPU_SECONDS_MAX, Examination, MEMORY_BYTES_MAX};
use super::process::{self, Ended};
use super::project::{FOLDER, Project};
use crate::failure::Failure;

/// For how long that process may run.
const EXAMINE_TIME_MAX: Duration = Duration::from_secs(900);

/// What is tried beside the samples and cases, and where compiled code is kept between runs.
#[derive(Clone, Copy)]
pub(super) struct Extent<'a> {
    /// Also the checks that need no author.
    pub(super) with_suite: bool,
    /// The compile cache of a host, whose code counts no fuel. Without it, code that counts is kept in
    /// the project's folder.
    pub(super) host_cache: Option<&'a Path>,
}

/// Examines what a project has built. The inner error says why the process came to no report.
pub(super) fn examination(
    project: &Project,
    extent: Extent<'_>,
) -> Result<Result<Examination, String>, Failure> {
    let mut command = command(&project.dir.join("plugin.toml"), &project.component())?;
    for case in project.cases() {
        command.arg("--cases").arg(case);
    }
    if extent.with_suite {
        command.arg("--suite");
    }
    match extent.host_cache {
        Some(cache) => command.arg("--host-cache").arg(cache),
        None => command.arg("--cache").arg(project.dir.join(FOLDER).join("cache")),
    };
    run(&mut command, &project.manifest.name)
}

/// As [`examination`], of files that need not be those of a project.
pub(super) fn examine_files(
    name: &str,
    manifest: &Path,
    component: &Path,
) -> Result<Result<Examination, String>, Failure> {
    run(&mut command(manifest, component)?, name)
}

fn command(manifest: &Path, component: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(env::current_exe().map_err(Failure::system("this program"))?);
    command.arg("--parent").arg(std::process::id().to_string());
    command.args(["plugin", "examine", "--json", "--manifest"]).arg(manifest);
    command.arg("--component").arg(component);
    Ok(command)
}

fn run(command: &mut Command, name: &str) -> Result<Result<Examination, String>, Failure> {
    command.stdin(Stdio::null());
    let title = format!("compiling and calling {name}");
    let (ended, output) = process::read(command, EXAMINE_TIME_MAX, &title)
        .map_err(Failure::system("a process for the check"))?;
    let status = match ended {
        Ended::Exited(status) if status.success() => None,
        Ended::Exited(status) if status.signal().is_some() => Some(format!(
            "{status}; it may take {} GiB of memory and {CPU_SECONDS_MAX} s of processor time",
            MEMORY_BYTES_MAX >> 30
        )),
        Ended::Exited(status) => Some(status.to_string()),
        Ended::OutOfTime => Some(format!("no end after {} s", EXAMINE_TIME_MAX.as_secs())),
    };
    if let Some(status) = status {
        return Ok(Err(format!("the process that compiles and calls it ended: {status}")));
    }
    let report = serde_json::from_slice(&output);
    Ok(report.map_err(|_| "the process that compiles and calls it wrote no report".to_owned()))
}
