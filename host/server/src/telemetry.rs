//! Logs: to standard error, for people when it is a terminal, as JSON lines
//! otherwise. `COFFERDAM_LOG` filters. What is never logged: content, prompts,
//! bodies, keys, secrets, query strings, what providers answered.

use std::io::{IsTerminal, stderr};
use std::panic::PanicHookInfo;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Names the variable with the filter, such as `info,cofferdam_engine=debug`.
const FILTER_VARIABLE: &str = "COFFERDAM_LOG";

/// How many lines may wait to be written. Whoever reads standard error may stall;
/// requests do not wait for it, further lines are lost.
const LINES_WAITING_MAX: usize = 16_384;

/// Logging that runs. What waits is written when this is dropped.
pub struct Logging {
    _writer: WorkerGuard,
}

/// Starts logging at `level` unless the filter says otherwise. Returns also what
/// was wrong with the filter, if anything was.
pub fn start(level: LevelFilter) -> (Logging, Option<String>) {
    let written = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let builder = EnvFilter::builder().with_default_directive(level.into());
    let (filter, mistake) = match builder.parse(&written) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(level.to_string()), Some(error.to_string())),
    };
    let (writer, guard) =
        NonBlockingBuilder::default().buffered_lines_limit(LINES_WAITING_MAX).lossy(true).finish(stderr());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    if stderr().is_terminal() {
        lines.with_target(false).init();
    } else {
        lines.json().flatten_event(true).with_current_span(true).with_span_list(false).init();
    }
    std::panic::set_hook(Box::new(log_panic));
    (Logging { _writer: guard }, mistake)
}

/// A panic is logged with its place only: its message may quote what it choked on.
fn log_panic(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(place, "a part of the host panicked");
}
