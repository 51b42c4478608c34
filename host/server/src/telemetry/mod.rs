//! Logs: to standard error, for people when it is a terminal, as JSON lines
//! otherwise. `COFFERDAM_LOG` filters. What is never logged: content, prompts,
//! bodies, keys, secrets, query strings, what providers answered.

use std::io::{self, IsTerminal, stderr};
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

mod format;
mod lines;
mod request;

use format::{ForPeople, Json};
use lines::Lines;
pub use lines::Logging;
pub(crate) use request::{within, within_polls};

/// Names the variable with the filter, such as `info,cofferdam_engine=debug`.
const FILTER_VARIABLE: &str = "COFFERDAM_LOG";

/// Starts logging at `level` unless the filter says otherwise. Returns also what
/// was wrong with the filter, if anything was.
///
/// # Errors
///
/// The thread that writes cannot be started.
pub fn start(level: LevelFilter) -> io::Result<(Logging, Option<String>)> {
    let written = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let builder = EnvFilter::builder().with_default_directive(level.into());
    let (filter, mistake) = match builder.parse(&written) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(level.to_string()), Some(error.to_string())),
    };
    let (lines, logging) = Lines::start(stderr(), lines::GATHER, |lost| {
        tracing::warn!(lines = lost, "log lines were lost: standard error did not take them");
    })?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    if stderr().is_terminal() {
        subscriber.event_format(ForPeople).init();
    } else {
        subscriber.event_format(Json).init();
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok((logging, mistake))
}

/// A panic is logged with its place only: its message may quote what it choked on.
fn log_panic(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(place, "a part of the host panicked");
}
