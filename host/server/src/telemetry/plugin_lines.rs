//! The last log lines about each plugin, in memory, for `plugin logs`: what the plugin wrote within
//! its quota, and each event of the host with a field `plugin`. `COFFERDAM_LOG` does not change what
//! is kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Context, Layer};
use uuid::Uuid;

use super::request;
use crate::timestamp::timestamp;

/// Lines that are kept of one plugin.
pub(crate) const PLUGIN_LINES_MAX: usize = 200;
/// Bytes of text that are kept of one plugin.
const PLUGIN_BYTES_MAX: usize = 64 * 1024;
/// The maximum length of one text, in bytes. A longer one is cut.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Plugins of which lines are kept.
const PLUGINS_MAX: usize = 1024;

/// The last lines of all plugins. Clones share them.
#[derive(Clone, Default)]
pub struct PluginLines(Arc<Mutex<BTreeMap<String, KeptLines>>>);

/// The last lines of one plugin, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptLines {
    pub(crate) lines: VecDeque<PluginLine>,
    /// How many lines came before these.
    pub(crate) earlier: u64,
    bytes: usize,
}

/// One line of the log that concerns a plugin.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PluginLine {
    pub(crate) time: String,
    pub(crate) level: &'static str,
    /// The HTTP request that the host worked on.
    pub(crate) request_id: Option<Uuid>,
    /// The response or embedding. Known for lines that the plugin itself wrote, and for requests that
    /// the recorder still has.
    pub(crate) generation: Option<String>,
    pub(crate) text: String,
}

impl PluginLines {
    /// The layer of the log that keeps the lines.
    pub(super) fn layer<S: Subscriber>(&self) -> impl Layer<S> + use<S> {
        KeepLines(self.clone())
    }

    /// The events that are kept.
    pub(super) fn filter() -> FilterFn<fn(&Metadata<'_>) -> bool> {
        let concerns_a_plugin: fn(&Metadata<'_>) -> bool =
            |metadata| metadata.fields().field("plugin").is_some();
        filter_fn(concerns_a_plugin).with_max_level_hint(LevelFilter::DEBUG)
    }

    /// The last lines of a plugin, at most `most`.
    pub(crate) fn last(&self, plugin: &str, most: usize) -> KeptLines {
        let mut kept = self.lock().get(plugin).cloned().unwrap_or_default();
        let left_out = kept.lines.len().saturating_sub(most);
        kept.lines.drain(..left_out);
        kept.earlier += left_out as u64;
        kept
    }

    /// Forgets the lines of all other plugins.
    pub(crate) fn retain<'n>(&self, plugins: impl Iterator<Item = &'n str>) {
        let plugins: BTreeSet<&str> = plugins.collect();
        self.lock().retain(|plugin, _| plugins.contains(plugin.as_str()));
    }

    fn keep(&self, plugin: &str, line: PluginLine) {
        let mut all = self.lock();
        if let Some(kept) = all.get_mut(plugin) {
            kept.push(line);
        } else if all.len() < PLUGINS_MAX {
            all.entry(plugin.to_owned()).or_default().push(line);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, KeptLines>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptLines {
    fn push(&mut self, line: PluginLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > PLUGIN_LINES_MAX || self.bytes > PLUGIN_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.earlier += 1;
        }
    }
}

struct KeepLines(PluginLines);

impl<S: Subscriber> Layer<S> for KeepLines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = LineFields::default();
        event.record(&mut fields);
        let LineFields { plugin, generation, mut text, others } = fields;
        text.push(&others.text);
        let now_ms = UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let line = PluginLine {
            time: timestamp(u64::try_from(now_ms).unwrap_or(u64::MAX)),
            level: event.metadata().level().as_str(),
            request_id: request::current(),
            generation,
            text: text.text,
        };
        self.0.keep(&plugin, line);
    }
}

/// The fields of an event, sorted by their use in a line.
#[derive(Default)]
struct LineFields {
    plugin: String,
    generation: Option<String>,
    /// The message.
    text: LineText,
    /// The other fields, each as ` name=value`.
    others: LineText,
}

impl Visit for LineFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "plugin" => value.clone_into(&mut self.plugin),
            "generation" => self.generation = Some(value.to_owned()),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into these texts cannot fail.
        let written = match field.name() {
            "plugin" => write!(self.plugin, "{value:?}"),
            "message" => write!(self.text, "{value:?}"),
            name => write!(self.others, " {name}={value:?}"),
        };
        written.unwrap_or_default();
    }
}

/// A text of bounded length on one line: control characters are escaped.
#[derive(Default)]
struct LineText {
    text: String,
    is_cut: bool,
}

impl LineText {
    fn push(&mut self, part: &str) {
        for character in part.chars() {
            if self.is_cut {
                return;
            }
            if self.text.len() >= TEXT_BYTES_MAX {
                self.is_cut = true;
                self.text.push_str(" [cut]");
            } else if character.is_control() {
                self.text.extend(character.escape_default());
            } else {
                self.text.push(character);
            }
        }
    }
}

impl Write for LineText {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.push(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing::subscriber::with_default;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::request::within;

    fn kept(work: impl FnOnce()) -> PluginLines {
        let lines = PluginLines::default();
        let layer = lines.layer().with_filter(PluginLines::filter());
        with_default(tracing_subscriber::registry().with(layer), work);
        lines
    }

    fn texts(lines: &PluginLines, plugin: &str) -> Vec<String> {
        lines.last(plugin, PLUGIN_LINES_MAX).lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn events_about_a_plugin_are_kept_with_their_request() {
        let id = Uuid::from_u128(4);
        let lines = kept(|| {
            tracing::warn!(model = "m", "about no plugin");
            tracing::trace!(plugin = "a", "too fine");
            within(id, || tracing::warn!(plugin = "a", count = 2, why = "x y", "went {}", "wrong"));
            tracing::debug!(plugin = %"b", generation = "resp_1", "said\nby the guest\u{1b}");
        });
        let KeptLines { lines: of_a, .. } = lines.last("a", 9);
        assert_eq!(of_a.len(), 1);
        assert_eq!((of_a[0].level, of_a[0].request_id), ("WARN", Some(id)));
        assert_eq!(of_a[0].text, "went wrong count=2 why=\"x y\"");
        let KeptLines { lines: of_b, .. } = lines.last("b", 9);
        assert_eq!(of_b[0].generation.as_deref(), Some("resp_1"));
        assert_eq!(of_b[0].text, "said\\nby the guest\\u{1b}");
        lines.retain(["b", "c"].into_iter());
        assert!(texts(&lines, "a").is_empty() && texts(&lines, "b").len() == 1);
    }

    #[test]
    fn lines_and_bytes_of_a_plugin_are_bounded() {
        let lines = kept(|| (0..300).for_each(|number| tracing::info!(plugin = "a", "line {number}")));
        let last = lines.last("a", 2);
        assert_eq!((last.lines[0].text.as_str(), last.earlier), ("line 298", 298));
        assert_eq!(texts(&lines, "a").len(), PLUGIN_LINES_MAX);

        let long = "x".repeat(3 * TEXT_BYTES_MAX);
        let lines = kept(|| (0..20).for_each(|_| tracing::info!(plugin = "a", "{long}")));
        let texts = texts(&lines, "a");
        assert!(texts.iter().map(String::len).sum::<usize>() <= PLUGIN_BYTES_MAX);
        assert!(texts[0].len() < TEXT_BYTES_MAX + 16 && texts[0].ends_with("x [cut]"));
    }
}
