//! The formats of a log line: a JSON object for programs, a sentence for people. Values are written
//! directly into the line, without intermediate strings.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;
use uuid::Uuid;

use super::request;

/// The target of guests' lines, which filters name. Lines show `plugin::NAME` in its place, because
/// a target is fixed when the program is compiled.
const GUEST: &str = "cofferdam::guest";

/// Room for an ordinary line, in bytes. A longer one grows.
const LINE_BYTES: usize = 640;

/// One JSON object per line: time, level, the event's fields, target, request id.
pub(super) struct Json;

/// For a terminal, with colours if it supports them.
pub(super) struct ForPeople;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        write_json(&mut line, event)
    }
}

impl<S, N> FormatEvent<S, N> for ForPeople
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let colours = line.has_ansi_escapes();
        let (dim, level, plain) =
            if colours { ("\x1b[2m", colour(event.metadata()), "\x1b[0m") } else { ("", "", "") };
        line.write_str(dim)?;
        SystemTime.format_time(&mut line)?;
        write!(line, "{plain} {level}{:>5}{plain} ", event.metadata().level())?;
        if let Some(id) = request::current() {
            write!(line, "{dim}{id}{plain} ")?;
        }
        context.format_fields(line.by_ref(), event)?;
        line.write_char('\n')
    }
}

fn colour(metadata: &Metadata<'_>) -> &'static str {
    match *metadata.level() {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

fn write_json(line: &mut Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let metadata = event.metadata();
    line.write_str("{\"timestamp\":\"")?;
    SystemTime.format_time(line)?;
    // Each write to `line` is a call through a table of functions, and a line consists of a hundred pieces.
    let mut rest = String::with_capacity(LINE_BYTES);
    rest.push_str("\",\"level\":\"");
    rest.push_str(metadata.level().as_str());
    rest.push('"');
    let is_guest = metadata.target() == GUEST;
    let mut fields = EventFields { line: &mut rest, written: Ok(()), plugin: is_guest.then(String::new) };
    event.record(&mut fields);
    fields.written?;
    let plugin = fields.plugin;
    rest.push_str(",\"target\":");
    match plugin {
        Some(plugin) => write_string(&mut rest, &format!("plugin::{plugin}"))?,
        None => write_string(&mut rest, metadata.target())?,
    }
    if let Some(id) = request::current() {
        rest.push_str(",\"request_id\":\"");
        rest.push_str(id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        rest.push('"');
    }
    rest.push_str("}\n");
    line.write_str(&rest)
}

/// Writes the fields of an event as further members of a JSON object.
struct EventFields<'l, W> {
    line: &'l mut W,
    written: fmt::Result,
    /// The plugin that wrote the line, if it is a line of a guest.
    plugin: Option<String>,
}

impl<W: Write> EventFields<'_, W> {
    fn member(&mut self, field: &Field, value: impl FnOnce(&mut W) -> fmt::Result) {
        if self.written.is_ok() {
            self.written = (|| {
                self.line.write_char(',')?;
                write_string(self.line, field.name())?;
                self.line.write_char(':')?;
                value(self.line)
            })();
        }
    }
}

impl<W: Write> Visit for EventFields<'_, W> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, |line| line.write_str(if value { "true" } else { "false" }));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, |line| write!(line, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, |line| write!(line, "{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN.
        self.member(
            field,
            |line| if value.is_finite() { write!(line, "{value}") } else { line.write_str("null") },
        );
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(plugin) = self.plugin.as_mut().filter(|_| field.name() == "plugin") {
            value.clone_into(plugin);
        }
        self.member(field, |line| write_string(line, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.member(field, |line| {
            line.write_char('"')?;
            write!(Escaped(line), "{value:?}")?;
            line.write_char('"')
        });
    }
}

fn write_string(line: &mut impl Write, text: &str) -> fmt::Result {
    line.write_char('"')?;
    Escaped(line).write_str(text)?;
    line.write_char('"')
}

/// Escapes text for the inside of a JSON string.
struct Escaped<'l, W>(&'l mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The fast path: nearly all texts need no escapes.
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
            return self.0.write_str(text);
        }
        // Copy up to the next character that needs an escape.
        let is_special = |character: char| character.is_control() || matches!(character, '"' | '\\');
        let mut rest = text;
        while let Some(at) = rest.find(is_special) {
            let (plain, special) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut characters = special.chars();
            match characters.next() {
                Some('"') => self.0.write_str("\\\"")?,
                Some('\\') => self.0.write_str("\\\\")?,
                Some('\n') => self.0.write_str("\\n")?,
                // Control characters have at most two hexadecimal digits here: U+0000 to U+001F and
                // U+007F to U+009F.
                Some(control) => write!(self.0, "\\u{:04x}", u32::from(control))?,
                None => {}
            }
            rest = characters.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing::subscriber::with_default;
    use uuid::Uuid;

    use super::{ForPeople, Json};
    use crate::telemetry::request::within;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn json_of(work: impl FnOnce()) -> Value {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber =
            tracing_subscriber::fmt().event_format(Json).with_writer(move || writer.clone()).finish();
        with_default(subscriber, work);
        let text = sink.text();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(text.ends_with('\n') && !text.trim_end().chars().any(char::is_control), "{text:?}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_event_is_one_object_on_one_line() {
        let id = Uuid::from_u128(7);
        let mut line = json_of(|| {
            within(id, || {
                tracing::info!(
                    target: "place",
                    text = "a",
                    count = 3_u64,
                    less = -3_i64,
                    share = 0.5,
                    none = f64::NAN,
                    absent = None::<&str>,
                    flag = true,
                    shown = %"b",
                    debugged = ?Some("c"),
                    "what {}",
                    "happened"
                );
            });
        });
        let at = line["timestamp"].take();
        assert!(at.as_str().unwrap().ends_with('Z'));
        let expected = json!({
            "timestamp": null, "level": "INFO", "message": "what happened", "text": "a", "count": 3,
            "less": -3, "share": 0.5, "none": null, "flag": true, "shown": "b", "debugged": "Some(\"c\")",
            "target": "place", "request_id": id.to_string(),
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_of_a_guest_names_its_plugin_as_target() {
        let line = json_of(|| tracing::info!(target: "cofferdam::guest", plugin = "tool-x", "said"));
        assert_eq!(line["target"], "plugin::tool-x");
        let line = json_of(|| tracing::info!(target: "elsewhere", plugin = "tool-x", "said"));
        assert_eq!(line["target"], "elsewhere");
    }

    #[test]
    fn values_are_escaped_in_json_lines() {
        let nasty = "\"}\n{\\\u{0}\u{1b}[31m\r\t\u{7f}\u{85}ä\u{1F4A5}";
        let line = json_of(|| tracing::warn!(plain = nasty, shown = %nasty, "{nasty}"));
        for name in ["plain", "shown", "message"] {
            assert_eq!(line[name], nasty, "{name}");
        }
        assert_eq!(line.get("request_id"), None);
    }

    #[test]
    fn text_line_has_level_request_message_and_fields() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(ForPeople)
            .with_writer(move || writer.clone())
            .finish();
        let id = Uuid::from_u128(9);
        with_default(subscriber, || within(id, || tracing::warn!(model = "m", "went wrong")));
        let text = sink.text();
        let (_, after_time) = text.split_once(' ').unwrap();
        assert_eq!(after_time, format!(" WARN {id} went wrong model=\"m\"\n"));
    }
}
