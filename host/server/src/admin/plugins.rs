//! Metrics of plugins. Each is counted under its name; those beyond the room for names are counted
//! together.

use std::collections::BTreeMap;

use cofferdam_runtime::manifest::Import;
use cofferdam_runtime::{CounterValues, PluginKind, PluginState, Plugins};

use crate::metrics::{Text, decimal, escape};

/// Plugins whose compilation is shown.
const SHOWN_MAX: usize = 128;

/// What the metrics need to know of the plugins that serve, by name.
#[derive(Default)]
pub(super) struct PluginCatalog {
    /// The tool that a plugin is.
    tools: BTreeMap<String, String>,
    hooks: Vec<String>,
    /// Plugins that may ask for HTTP requests.
    callers: Vec<String>,
    /// Milliseconds, and whether the compiled form came out of the cache.
    compiled: Vec<(String, bool, u64)>,
}

impl PluginCatalog {
    pub(super) fn of(plugins: &Plugins) -> Self {
        let mut catalog = Self::default();
        for plugin in plugins.iter() {
            let name = plugin.name().to_owned();
            if let PluginState::Compiled { from_cache, ms } = plugin.state()
                && catalog.compiled.len() < SHOWN_MAX
            {
                catalog.compiled.push((name.clone(), from_cache, ms));
            }
            if plugin.manifest().imports.contains(&Import::Http) {
                catalog.callers.push(name.clone());
            }
            if let Some(tool) = &plugin.manifest().tool {
                catalog.tools.insert(name.clone(), tool.tool_type.clone());
            }
            if plugin.kind() == PluginKind::Hook {
                catalog.hooks.push(name);
            }
        }
        catalog
    }

    /// The name of the tool that these counts belong to, if they are counts of a tool.
    fn tool<'a>(&'a self, name: &'a str, values: &CounterValues) -> Option<&'a str> {
        let known = self.tools.get(name).map(String::as_str);
        known.or_else(|| values.tools.is_some().then_some(name))
    }
}

pub(super) fn write(counters: &[(String, CounterValues)], catalog: &PluginCatalog, text: &mut Text) {
    let plugins: Vec<Row<'_>> = counters.iter().map(|(name, values)| Row::new(name, values)).collect();
    calls(&plugins, text);
    errors(&plugins, text);
    text.family("cofferdam_plugin_compile_seconds", "gauge", "How long compiling or loading a plugin took");
    for (name, from_cache, ms) in &catalog.compiled {
        let labels = format!("plugin=\"{}\",cached=\"{from_cache}\"", escape(name));
        text.sample("cofferdam_plugin_compile_seconds", &labels, decimal(*ms, 1_000));
    }
    let help = "HTTP requests of plugins themselves, by result";
    text.family("cofferdam_plugin_http_total", "counter", help);
    for row in &plugins {
        let asks = catalog.callers.iter().any(|caller| caller == row.name);
        for (result, count) in row.values.http.iter().filter(|(_, count)| asks || *count > 0) {
            let labels = format!("{},result=\"{result}\"", row.label);
            text.sample("cofferdam_plugin_http_total", &labels, count);
        }
    }
    text.family("cofferdam_hook_actions_total", "counter", "Decisions of hooks");
    for row in &plugins {
        let is_hook = catalog.hooks.iter().any(|hook| hook == row.name);
        for (action, count) in row.values.hook_actions.iter().filter(|(_, count)| is_hook || *count > 0) {
            let labels = format!("{},action=\"{action}\"", row.label);
            text.sample("cofferdam_hook_actions_total", &labels, count);
        }
    }
    tools(&plugins, catalog, text);
}

/// The counts of one name.
struct Row<'a> {
    name: &'a str,
    label: String,
    values: &'a CounterValues,
}

impl<'a> Row<'a> {
    fn new(name: &'a str, values: &'a CounterValues) -> Self {
        Self { name, label: format!("plugin=\"{}\"", escape(name)), values }
    }
}

fn calls(plugins: &[Row<'_>], text: &mut Text) {
    text.family("cofferdam_plugin_calls_total", "counter", "Calls into plugins");
    for Row { label, values, .. } in plugins {
        text.sample("cofferdam_plugin_calls_total", label, values.calls);
    }
    text.family("cofferdam_plugin_busy_seconds_total", "counter", "Time that plugins' code ran");
    for Row { label, values, .. } in plugins {
        let seconds = decimal(values.busy_ns, 1_000_000_000);
        text.sample("cofferdam_plugin_busy_seconds_total", label, seconds);
    }
    let help = "Time that a plugin's code ran in one call of a function, without waits";
    text.family("cofferdam_plugin_call_seconds", "histogram", help);
    for Row { label, values, .. } in plugins {
        for (export, reading) in &values.functions {
            let labels = format!("{label},export=\"{export}\"");
            text.histogram("cofferdam_plugin_call_seconds", &labels, reading);
        }
    }
    let help = "The most memory that an instance had at the end of a call";
    text.family("cofferdam_plugin_memory_peak_bytes", "gauge", help);
    for Row { label, values, .. } in plugins.iter().filter(|row| row.values.memory_peak > 0) {
        text.sample("cofferdam_plugin_memory_peak_bytes", label, values.memory_peak);
    }
}

fn errors(plugins: &[Row<'_>], text: &mut Text) {
    text.family("cofferdam_plugin_errors_total", "counter", "Calls into plugins that failed, traps included");
    for Row { label, values, .. } in plugins {
        for (kind, count) in &values.errors {
            text.sample("cofferdam_plugin_errors_total", &format!("{label},kind=\"{kind}\""), count);
        }
    }
    text.family("cofferdam_plugin_log_lines_dropped_total", "counter", "Lines of plugins beyond their quota");
    for Row { label, values, .. } in plugins {
        text.sample("cofferdam_plugin_log_lines_dropped_total", label, values.log_lines_dropped);
    }
}

fn tools(plugins: &[Row<'_>], catalog: &PluginCatalog, text: &mut Text) {
    let tools = || plugins.iter().filter_map(|row| Some((catalog.tool(row.name, row.values)?, row.values)));
    text.family("cofferdam_tool_calls_total", "counter", "Calls of server tools, by models and hooks");
    for (tool, values) in tools() {
        let all = values.tools.as_ref().map_or(0, |times| times.count());
        let answered = all.saturating_sub(values.tool_failures);
        for (outcome, count) in [("answered", answered), ("failed", values.tool_failures)] {
            let labels = format!("tool=\"{}\",outcome=\"{outcome}\"", escape(tool));
            text.sample("cofferdam_tool_calls_total", &labels, count);
        }
    }
    text.family("cofferdam_tool_seconds", "histogram", "Time of calls of server tools, with their waits");
    for (tool, values) in tools() {
        if let Some(times) = &values.tools {
            text.histogram("cofferdam_tool_seconds", &format!("tool=\"{}\"", escape(tool)), times);
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_store::{HistogramReading, OTHER};

    use super::*;

    /// The most samples of plugins; a test of the whole text counts the others.
    const SAMPLES_MAX: usize = 11_500;

    /// A provider has the most functions. Errors have sixteen kinds.
    #[test]
    fn plugins_of_which_everything_is_known_have_a_bounded_number_of_samples() {
        let times = HistogramReading { buckets: vec![1; 5], sum: 1, bounds: &[1, 2, 3, 4], per_unit: 1 };
        let functions = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let kinds = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
        let values = CounterValues {
            functions: functions.map(|name| (name, times.clone())).to_vec(),
            memory_peak: 1,
            errors: kinds.map(|kind| (kind, 1)).into(),
            ..CounterValues::default()
        };
        let names = (0..SHOWN_MAX).map(|number| number.to_string()).chain([OTHER.to_owned()]);
        let counters: Vec<_> = names.map(|name| (name, values.clone())).collect();
        let compiled = (0..SHOWN_MAX).map(|number| (number.to_string(), true, 1)).collect();
        let mut text = Text::default();
        write(&counters, &PluginCatalog { compiled, ..PluginCatalog::default() }, &mut text);
        let samples = text.finish().lines().filter(|line| !line.starts_with('#')).count();
        assert!((10_000..=SAMPLES_MAX).contains(&samples), "{samples} samples");
    }
}
