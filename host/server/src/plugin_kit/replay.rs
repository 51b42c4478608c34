//! `plugin replay`: makes a recorded call again, in a limited process of its own, and says whether
//! it went the same way.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam_runtime::{Inspection, RECORDING_BYTES_MAX, Recording, read_plugin_dir};
use serde_json::json;
use tempfile::NamedTempFile;

use super::Checked;
use super::case_of_recording::write_case;
use super::process::{self, Ended};
use super::project::{read_bounded, read_component, wrong};
use super::rerun::{End, Report};
use crate::command::{CommandOutcome, ReplayArguments};
use crate::failure::Failure;
use crate::installed::InstalledFolder;
use crate::options::Options;
use crate::wiring;

/// For how long the process that replays may run.
const REPLAY_TIME_MAX: Duration = Duration::from_secs(900);

pub(super) fn replay(options: &Options, arguments: &ReplayArguments) -> Result<Checked, Failure> {
    let recording = read(&arguments.file)?;
    if let Some(file) = &arguments.case {
        write_case(&recording, file)?;
    }
    let recorded = &recording.head.component_sha256;
    let (report, digest) = match &arguments.component {
        Some(component) => {
            (run(&arguments.file, component)?, Inspection::digest_of(&read_component(component)?))
        }
        None => {
            let component = installed(options, arguments, &recording)?;
            let failed = |error| Failure::system("a temporary file for the component")(error);
            let mut copy = NamedTempFile::new().map_err(failed)?;
            copy.write_all(&component).map_err(failed)?;
            (run(&arguments.file, copy.path())?, recorded.clone())
        }
    };
    let report = report.map_err(wrong)?;
    if let Some(problem) = &report.problem {
        return Err(wrong(problem.clone()));
    }
    let outcome = told(&recording, &report, digest == *recorded);
    Ok(Checked { outcome, wrong: usize::from(report.difference.is_some()), what: "replay" })
}

/// Reads a recording.
///
/// # Errors
///
/// The file cannot be read, or is not a recording.
pub(super) fn read(file: &Path) -> Result<Recording, Failure> {
    let bytes = read_bounded(file, 2 * RECORDING_BYTES_MAX as u64)?;
    let text =
        String::from_utf8(bytes).map_err(|_| wrong(format!("{} is not UTF-8 text", file.display())))?;
    Recording::parse(&text).map_err(|error| wrong(format!("{} {error}", file.display())))
}

/// The recorded component, from the program, from the installed plugins or from the folder of plugins.
fn installed(
    options: &Options,
    arguments: &ReplayArguments,
    recording: &Recording,
) -> Result<Vec<u8>, Failure> {
    let (plugin, wanted) = (&recording.head.plugin, &recording.head.component_sha256);
    if let Some(component) = wiring::embedded_component(wanted) {
        return Ok(component.to_vec());
    }
    if let Some(component) = InstalledFolder::new(&options.data).component_of(wanted) {
        return Ok(component);
    }
    let sources = match &arguments.folder.plugins {
        Some(folder) => read_plugin_dir(folder).map_err(|error| wrong(error.to_string()))?,
        None => Vec::new(),
    };
    let found = sources.into_iter().find(|source| Inspection::digest_of(&source.component) == *wanted);
    let searched = match &arguments.folder.plugins {
        Some(folder) => format!("the program, its plugins and {} do not have it", folder.display()),
        None => "neither the program nor its installed plugins have it".to_owned(),
    };
    let file = arguments.file.display();
    let missing = || {
        wrong(format!(
            "{file} is of {plugin} with the SHA-256 {wanted}, and {searched}: name the component (cofferdam \
             plugin replay {file} COMPONENT) or the folder with it (--plugins DIR)"
        ))
    };
    found.map(|source| source.component.into_owned()).ok_or_else(missing)
}

/// Replays in a process of its own. The inner error says why that process came to no report.
fn run(recording: &Path, component: &Path) -> Result<Result<Report, String>, Failure> {
    let program = env::current_exe().map_err(Failure::system("this program"))?;
    let mut command = Command::new(program);
    command.arg("--parent").arg(std::process::id().to_string());
    command.args(["plugin", "rerun", "--json", "--component"]).arg(component).arg(recording);
    // What the guest writes to the log is in the report.
    command.stdin(Stdio::null()).env("COFFERDAM_LOG", "off");
    let (ended, output) = process::read(&mut command, REPLAY_TIME_MAX, "replaying")
        .map_err(Failure::system("a process for the replay"))?;
    let status = match ended {
        Ended::Exited(status) if status.success() => None,
        Ended::Exited(status) => Some(status.to_string()),
        Ended::OutOfTime => Some(format!("no end after {} s", REPLAY_TIME_MAX.as_secs())),
    };
    if let Some(status) = status {
        return Ok(Err(format!("the process that replays ended: {status}")));
    }
    let report = serde_json::from_slice(&output);
    Ok(report.map_err(|_| "the process that replays wrote no report".to_owned()))
}

/// The report, for people and for programs.
fn told(recording: &Recording, report: &Report, is_recorded_component: bool) -> CommandOutcome {
    let (plugin, end) = (&recording.head.plugin, &recording.end);
    let mut text = match &report.difference {
        None => format!("same       {plugin} {} in {}, as recorded\n", end.message, end.function),
        Some(difference) => {
            format!("different  {difference}\nrecorded   {plugin} {} in {}\n", end.message, end.function)
        }
    };
    if !is_recorded_component {
        text.push_str("component  another one than the recorded one\n");
    }
    text.push_str(&format!("imports    {} answered from the recording\n", report.imports));
    if let Some(fuel) = report.fuel {
        let most = report.fuel_max.map(|most| format!(", of {most} in place of the deadline"));
        text.push_str(&format!("fuel       {fuel} in the last call{}\n", most.unwrap_or_default()));
    }
    if !report.log.is_empty() {
        text.push_str("\nlog of the guest\n");
        text.extend(report.log.iter().map(|(level, line)| format!("  {level:<5}  {line}\n")));
    }
    let backtrace = report.failed.as_ref().and_then(|end| end.backtrace.as_ref());
    if let Some(backtrace) = backtrace.or(end.backtrace.as_ref()) {
        text.push_str("\nbacktrace\n");
        text.extend(backtrace.lines().map(|line| format!("  {}\n", line.trim_end())));
    }
    let recorded = End::of(end);
    let document = json!({
        "plugin": plugin,
        "same": report.difference.is_none(),
        "difference": report.difference,
        "recorded": recorded,
        "replayed": report.failed,
        "recorded_component": is_recorded_component,
        "imports": report.imports,
        "fuel": report.fuel,
        "fuel_max": report.fuel_max,
        "log": report.log,
    });
    CommandOutcome { document, text }
}
