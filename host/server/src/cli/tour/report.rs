//! What the tour prints: one JSON document, or steps with headings.

use std::io::IsTerminal;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use serde_json::{Value, json};

use super::echo::ReceivedRequest;

/// What was searched for the value of the secret, which was in none of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Searched {
    pub(super) answer_bytes: usize,
    pub(super) log_bytes: usize,
    pub(super) files: usize,
    pub(super) file_bytes: usize,
}

/// What happened on the tour, as the host and the server reported it.
#[derive(Debug, Serialize)]
pub(super) struct TourReport {
    /// The address of the host.
    pub(super) listen: String,
    /// The commands that were run.
    pub(super) commands: Vec<String>,
    pub(super) model: &'static str,
    pub(super) server: &'static str,
    pub(super) secret: &'static str,
    /// The value of the secret: a random text that is of no use to anyone.
    pub(super) value: String,
    pub(super) prompt: String,
    /// The item of the tool in the response.
    pub(super) call: Value,
    /// Events of the streamed response.
    pub(super) events: usize,
    /// The request that reached the server.
    pub(super) received: ReceivedRequest,
    /// The text of the model, which quotes what the plugin got.
    pub(super) answer: String,
    pub(super) searched: Searched,
    /// The record of the release in the audit log.
    pub(super) audit: Value,
    pub(super) took_ms: u128,
}

impl TourReport {
    pub(super) fn document(&self) -> Value {
        json!(self)
    }

    /// The steps, with colours if standard output is a terminal that shows them.
    pub(super) fn text(&self) -> String {
        self.text_in(&Styles::of_this_output())
    }

    /// Time and members of the audit entry, one a line.
    fn audit_lines(&self) -> String {
        let entry = self.audit.pointer("/entries/0").and_then(Value::as_object);
        let members = entry.into_iter().flatten().map(|(name, value)| (name.as_str(), value));
        let lines = self.audit.get("at").map(|at| ("at", at)).into_iter().chain(members);
        let line = |(name, value): (&str, &Value)| match value {
            Value::String(text) => format!("   {name:12}{text}\n"),
            value => format!("   {name:12}{value}\n"),
        };
        lines.map(line).collect()
    }

    fn text_in(&self, styles: &Styles) -> String {
        let Self { listen, model, server, secret, value, prompt, call, events, .. } = self;
        let Styles { heading, bad, good } = styles;
        let received = &self.received;
        let sent = received.authorization.as_deref().unwrap_or("none");
        let sent = sent.replace(value, &format!("{bad}{value}{bad:#}"));
        let mark = format!("[secret:{secret}]");
        let answer = indented(&self.answer).replace(&mark, &format!("{good}{mark}{good:#}"));
        let commands: String = self.commands.iter().map(|line| format!("   $ {line}\n")).collect();
        let text = |name: &str| call[name].as_str().unwrap_or("none").to_owned();
        let Searched { answer_bytes, log_bytes, files, file_bytes } = self.searched;
        let head = |number: usize, title: &str| format!("\n{heading}{number}. {title}{heading:#}\n");
        let mut out = format!("{heading}A model uses a secret that it cannot see{heading:#}\n");
        out += &head(1, "A host runs in a temporary directory");
        out += &format!("   It listens on http://{listen} and serves the built-in model {model}.\n");
        out += &head(2, "The operator makes a workspace, a key and a secret");
        out += &commands;
        out += &format!("   The value is {bad}{value}{bad:#}. It may be sent to {server} only.\n");
        out += &head(3, "A client asks, and the model calls a tool");
        out += &format!("   Client: {prompt}\n");
        out += &format!("   Tool:   {} {}\n", text("method"), text("url"));
        out += &head(4, "What the server received");
        out += &format!("   {} {}\n   authorization: {sent}\n", received.method, received.path);
        out += &head(5, "What the plugin, the model and the client saw");
        out += &format!("{answer}\n");
        out += &format!(
            "   The server had sent the value back. It is in none of the {events} events ({answer_bytes} bytes) of the \
             answer,\n   the {log_bytes} bytes of the host's log and the {file_bytes} bytes of its {files} files.\n"
        );
        out += &head(6, "What the audit log keeps");
        out += &self.audit_lines();
        out += &head(7, "Where to go from here");
        out += "   cofferdam serve            starts a host of your own, with its data in ./data\n";
        out += "   cofferdam doctor           says what is wrong with it and what to do\n";
        out += "   cofferdam --help           lists all commands; README.md has the next steps\n";
        out += &format!("\nIt took {} ms. The directory is deleted.\n", self.took_ms);
        out
    }
}

fn indented(text: &str) -> String {
    let lines: Vec<String> =
        text.trim().lines().map(|line| format!("   {line}").trim_end().to_owned()).collect();
    lines.join("\n")
}

/// How text is marked on a terminal. Empty styles print nothing.
struct Styles {
    heading: Style,
    /// The value of the secret.
    bad: Style,
    /// What stands in its place.
    good: Style,
}

impl Styles {
    const PLAIN: Self = Self { heading: Style::new(), bad: Style::new(), good: Style::new() };

    /// Colours for a terminal, unless `NO_COLOR` has a value.
    fn of_this_output() -> Self {
        let has_value = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !std::io::stdout().is_terminal() || has_value("NO_COLOR") || is_dumb {
            return Self::PLAIN;
        }
        Self {
            heading: Style::new().bold(),
            bad: AnsiColor::Red.on_default(),
            good: AnsiColor::Green.on_default(),
        }
    }
}
