//! Logs to standard error: text on a terminal, JSON lines otherwise, unless `COFFERDAM_LOG_FORMAT`
//! names one of the two. `COFFERDAM_LOG` sets a filter;
//! without it, the part of `RUST_LOG` about the host itself is used. Never logged: content,
//! prompts, bodies, keys, secrets, query strings and responses of providers.

use std::io::{self, IsTerminal, stderr};
use std::panic::PanicHookInfo;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

mod format;
mod lines;
mod plugin_lines;
mod request;

use format::{ForPeople, Json};
use lines::LogLines;
pub use lines::Logging;
pub(crate) use lines::lines_lost;
pub use plugin_lines::PluginLines;
pub(crate) use plugin_lines::{KeptLines, PLUGIN_LINES_MAX, PluginLine};
pub(crate) use request::{within, within_polls};

/// The variable with the filter, such as `info,cofferdam_engine=debug`.
const FILTER_VARIABLE: &str = "COFFERDAM_LOG";
/// The variable with the format of lines: `text` or `json`.
const FORMAT_VARIABLE: &str = "COFFERDAM_LOG_FORMAT";
/// The variable that other Rust programs read too.
const COMMON_VARIABLE: &str = "RUST_LOG";
/// The prefix of all log targets of the host.
const OWN_TARGETS: &str = "cofferdam";

/// The format of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogFormat {
    /// For people.
    Text,
    /// One object a line, for programs.
    Json,
}

/// A variable whose value cannot be used and is ignored.
pub struct Mistake {
    pub variable: &'static str,
    pub error: String,
}

/// Starts logging at `level`, unless a filter is set, and keeps the last lines about each plugin in
/// `kept`. Also returns the mistakes in the variables.
///
/// # Errors
///
/// The writer thread cannot be started.
pub fn start(level: LevelFilter, kept: &PluginLines) -> io::Result<(Logging, Vec<Mistake>)> {
    let (variable, written) = written_filter(|name| std::env::var(name).ok());
    let builder = EnvFilter::builder().with_default_directive(level.into());
    let mut mistakes = Vec::new();
    let filter = builder.parse(&written).unwrap_or_else(|error| {
        let error = format!("it is not a log filter: {error}");
        mistakes.push(Mistake { variable, error });
        EnvFilter::new(level.to_string())
    });
    let wanted = std::env::var(FORMAT_VARIABLE).unwrap_or_default();
    let format = chosen_format(&wanted, stderr().is_terminal()).unwrap_or_else(|(error, format)| {
        mistakes.push(Mistake { variable: FORMAT_VARIABLE, error });
        format
    });
    let (lines, logging) = LogLines::start(stderr(), lines::GATHER, |lost| {
        tracing::warn!(lines = lost, "log lines were lost: standard error did not take them");
    })?;
    let kept = registry().with(kept.layer().with_filter(PluginLines::filter()));
    let shown = fmt::layer().with_ansi(stderr().is_terminal()).with_writer(lines);
    match format {
        LogFormat::Text => kept.with(shown.event_format(ForPeople).with_filter(filter)).init(),
        LogFormat::Json => kept.with(shown.event_format(Json).with_filter(filter)).init(),
    }
    std::panic::set_hook(Box::new(log_panic));
    Ok((logging, mistakes))
}

/// The format that is asked for, or else the one that fits standard error.
///
/// # Errors
///
/// The name of the format is unknown: what is wrong, and the format that fits.
fn chosen_format(wanted: &str, is_terminal: bool) -> Result<LogFormat, (String, LogFormat)> {
    let fitting = if is_terminal { LogFormat::Text } else { LogFormat::Json };
    match wanted {
        "" => Ok(fitting),
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(("it takes `text` or `json`".to_owned(), fitting)),
    }
}

/// The filter, and the variable that contains it.
fn written_filter(read: impl Fn(&str) -> Option<String>) -> (&'static str, String) {
    match read(FILTER_VARIABLE).filter(|filter| !filter.is_empty()) {
        Some(filter) => (FILTER_VARIABLE, filter),
        None => (COMMON_VARIABLE, own_part(&read(COMMON_VARIABLE).unwrap_or_default())),
    }
}

/// The part of a filter that concerns the host. A level for all targets becomes one for the host's
/// own targets, and directives for libraries are dropped.
fn own_part(filter: &str) -> String {
    let directives = filter.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let own = directives.filter_map(|directive| {
        if directive.parse::<LevelFilter>().is_ok() {
            return Some(format!("{OWN_TARGETS}={directive}"));
        }
        directive.starts_with(OWN_TARGETS).then(|| directive.to_owned())
    });
    own.collect::<Vec<_>>().join(",")
}

/// Logs only the location of a panic: its message may quote the data that caused it.
fn log_panic(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(place, "a part of the host panicked");
}

#[cfg(test)]
mod tests {
    use super::{LogFormat, chosen_format, own_part, written_filter};

    #[test]
    fn the_format_is_the_one_that_is_asked_for_or_fits_the_output() {
        for (wanted, is_terminal, format) in [
            ("", true, LogFormat::Text),
            ("", false, LogFormat::Json),
            ("json", true, LogFormat::Json),
            ("text", false, LogFormat::Text),
        ] {
            assert_eq!(chosen_format(wanted, is_terminal), Ok(format), "{wanted}");
        }
        let (error, format) = chosen_format("JSON", false).unwrap_err();
        assert_eq!((error.as_str(), format), ("it takes `text` or `json`", LogFormat::Json));
    }

    #[test]
    fn rust_log_applies_to_the_host_only() {
        for (filter, own) in [
            ("", ""),
            ("debug", "cofferdam=debug"),
            ("WARN, hyper=trace,cofferdam_engine=debug", "cofferdam=WARN,cofferdam_engine=debug"),
            ("hyper,[span]=trace", ""),
            ("cofferdam::access=off", "cofferdam::access=off"),
        ] {
            assert_eq!(own_part(filter), own, "{filter}");
        }
    }

    #[test]
    fn cofferdam_log_wins_over_rust_log() {
        let both = |name: &str| Some(if name == "RUST_LOG" { "debug" } else { "hyper=trace" }.to_owned());
        assert_eq!(written_filter(both), ("COFFERDAM_LOG", "hyper=trace".to_owned()));
        let common = |name: &str| Some(if name == "RUST_LOG" { "debug" } else { "" }.to_owned());
        assert_eq!(written_filter(common), ("RUST_LOG", "cofferdam=debug".to_owned()));
        assert_eq!(written_filter(|_| None), ("RUST_LOG", String::new()));
    }
}
