//! Logs: to standard error, for people when it is a terminal, as JSON lines
//! otherwise. `COFFERDAM_LOG` filters, without it `RUST_LOG` does for lines of the host
//! itself. What is never logged: content, prompts,
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
/// Names the variable that other programs read too.
const COMMON_VARIABLE: &str = "RUST_LOG";
/// How all targets of the host begin.
const OWN_TARGETS: &str = "cofferdam";

/// A filter that is none, and was not used.
pub struct Mistake {
    /// The variable that holds it.
    pub variable: &'static str,
    /// What is wrong with it.
    pub error: String,
}

/// Starts logging at `level` unless a filter says otherwise. Returns also what
/// was wrong with the filter, if anything was.
///
/// # Errors
///
/// The thread that writes cannot be started.
pub fn start(level: LevelFilter) -> io::Result<(Logging, Option<Mistake>)> {
    let (variable, written) = written_filter(|name| std::env::var(name).ok());
    let builder = EnvFilter::builder().with_default_directive(level.into());
    let (filter, mistake) = match builder.parse(&written) {
        Ok(filter) => (filter, None),
        Err(error) => {
            (EnvFilter::new(level.to_string()), Some(Mistake { variable, error: error.to_string() }))
        }
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

/// The filter, and the variable that it is from.
fn written_filter(read: impl Fn(&str) -> Option<String>) -> (&'static str, String) {
    match read(FILTER_VARIABLE).filter(|filter| !filter.is_empty()) {
        Some(filter) => (FILTER_VARIABLE, filter),
        None => (COMMON_VARIABLE, own_part(&read(COMMON_VARIABLE).unwrap_or_default())),
    }
}

/// The part of a filter that is about the host: a level for everything is one for the host's own targets, and
/// targets of libraries stay as they are without a filter.
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

/// A panic is logged with its place only: its message may quote what it choked on.
fn log_panic(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(place, "a part of the host panicked");
}

#[cfg(test)]
mod tests {
    use super::{own_part, written_filter};

    #[test]
    fn the_common_filter_is_about_the_host_only() {
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
    fn the_hosts_own_variable_wins() {
        let both = |name: &str| Some(if name == "RUST_LOG" { "debug" } else { "hyper=trace" }.to_owned());
        assert_eq!(written_filter(both), ("COFFERDAM_LOG", "hyper=trace".to_owned()));
        let common = |name: &str| Some(if name == "RUST_LOG" { "debug" } else { "" }.to_owned());
        assert_eq!(written_filter(common), ("RUST_LOG", "cofferdam=debug".to_owned()));
        assert_eq!(written_filter(|_| None), ("RUST_LOG", String::new()));
    }
}
