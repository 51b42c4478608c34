//! The process that replays a recorded call for `plugin replay`. It limits itself before it reads
//! the component.

use std::time::Duration;

use cofferdam_runtime::{RecordedEnd, Replayed, ReplayedVerdict, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::examine::limit_this_process;
use super::project::{read_component, wrong};
use super::replay::read;
use crate::command::{CommandOutcome, RerunArguments};
use crate::failure::Failure;
use crate::start::block_on;

/// Lines of the guest that are reported, and characters of each, so that the report stays short.
const LINES_MAX: usize = 256;
const LINE_CHARS_MAX: usize = 500;

/// What the process found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    /// Why nothing could be replayed.
    pub(super) problem: Option<String>,
    /// The first difference.
    pub(super) difference: Option<String>,
    /// How the replayed call failed.
    pub(super) failed: Option<End>,
    pub(super) imports: usize,
    /// The fuel of the last call.
    pub(super) fuel: Option<u64>,
    pub(super) fuel_max: Option<u64>,
    /// The guest's lines in the log, each with its level.
    pub(super) log: Vec<(String, String)>,
}

/// How a call failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) function: String,
    pub(super) backtrace: Option<String>,
}

impl End {
    pub(super) fn of(end: &RecordedEnd) -> Self {
        let RecordedEnd { kind, message, function, backtrace } = end.clone();
        Self { kind, message, function, backtrace }
    }
}

pub(super) fn rerun(arguments: &RerunArguments) -> Result<CommandOutcome, Failure> {
    limit_this_process()?;
    let recording = read(&arguments.file)?;
    let component = read_component(&arguments.component)?;
    let runtime = Runtime::start_metered(Duration::from_millis(2), None)?;
    let replayed = block_on(runtime.replay(recording, component.into()))?;
    let replayed = replayed.map_err(|error| wrong(error.to_string()))?;
    let mut report = match replayed {
        Ok(replayed) => report(replayed),
        Err(error) => Report { problem: Some(error.to_string()), ..Report::default() },
    };
    report.fuel = runtime.take_calls().last().map(|call| call.fuel);
    let document = json!(report);
    Ok(CommandOutcome { text: format!("{document}\n"), document })
}

fn report(replayed: Replayed) -> Report {
    let Replayed { verdict, failed, imports, fuel_max, log, .. } = replayed;
    let line =
        |(level, line): (&str, String)| (level.to_owned(), line.chars().take(LINE_CHARS_MAX).collect());
    Report {
        problem: None,
        difference: match verdict {
            ReplayedVerdict::Same => None,
            ReplayedVerdict::Different(difference) => Some(difference),
        },
        failed: failed.as_ref().map(End::of),
        imports,
        fuel: None,
        fuel_max,
        log: log.into_iter().take(LINES_MAX).map(line).collect(),
    }
}
