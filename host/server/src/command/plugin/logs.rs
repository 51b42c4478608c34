//! `plugin logs`: its arguments and output. The lines are in the memory of the running host.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::command::{CommandError, CommandOutcome, FailureCause};
use crate::telemetry::{KeptLines, PLUGIN_LINES_MAX};

/// Whose lines to show.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct LogsArguments {
    /// The plugin
    pub name: String,
    /// How many lines to show, the last ones; a host keeps 200
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = lines)]
    pub lines: usize,
}

fn lines(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=PLUGIN_LINES_MAX).contains(number));
    number.ok_or_else(|| format!("expected a number from 1 to {PLUGIN_LINES_MAX}"))
}

/// The output, from the lines that the running host has. `None`: it has no such plugin.
pub(crate) fn logged(
    wanted: &LogsArguments,
    kept: Option<KeptLines>,
) -> Result<CommandOutcome, CommandError> {
    let name = &wanted.name;
    let Some(KeptLines { lines, earlier, .. }) = kept else {
        let message = format!(
            "no plugin {name} is loaded in the running host; `cofferdam plugin list` names those that are"
        );
        return Err(CommandError { cause: FailureCause::NotFound, ..CommandError::new(message) });
    };
    let mut text = match earlier {
        0 => String::new(),
        1 => "1 earlier line is not shown\n".to_owned(),
        earlier => format!("{earlier} earlier lines are not shown\n"),
    };
    for line in &lines {
        let generation = line.generation.as_deref().map(|id| format!("{id} ")).unwrap_or_default();
        let request = line.request_id.map(|id| format!("{id} {generation}")).unwrap_or(generation);
        text.push_str(&format!("{} {:>5} {request}{}\n", line.time, line.level, line.text));
    }
    if lines.is_empty() {
        text = format!("the running host has no log lines about {name}\n");
    }
    Ok(CommandOutcome { document: json!({"plugin": name, "earlier": earlier, "lines": lines}), text })
}

/// The error where no host runs.
pub(crate) fn not_running(wanted: &LogsArguments) -> CommandError {
    CommandError::new(format!(
        "no host runs with this data directory, and the last lines about {} are in the memory of the host that \
         writes them: `cofferdam serve` starts one",
        wanted.name
    ))
}
