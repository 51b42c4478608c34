//! The commands for authors of plugins: their arguments. They are carried out in `plugin_kit`, in
//! this process and without a store.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use cofferdam_runtime::ContractLine;
use cofferdam_runtime::manifest::Import;

use crate::command::Folder;
use crate::config::RECORDINGS_MAX;

/// What authors of plugins do.
#[derive(Debug, Clone, Subcommand)]
pub enum KitCommand {
    /// Begin a plugin: write a project that builds and passes `plugin check` as it is
    New(NewArguments),
    /// Build a plugin's project into its folder `plugins`, which `serve --plugins` reads
    Build(ProjectFolder),
    /// Check a built plugin, and call it in a sandbox that counts
    Check(ProjectFolder),
    /// Try a built plugin with odd input and with the cases of its project, and compare the answers
    Test(ProjectFolder),
    /// Build, check, test and serve a plugin, again after every change of its sources
    Dev(DevArguments),
    /// Show what a component declares, and whether this host accepts it
    Inspect {
        /// The component
        file: PathBuf,
    },
    /// Write the contract between host and plugins, for toolchains
    Wit {
        /// The line of the contract, such as `0.1`; without it, the newest
        #[arg(long, value_parser = contract_line)]
        line: Option<&'static ContractLine>,
        /// Where to
        #[arg(default_value = "wit/deps/cofferdam-plugin")]
        dir: PathBuf,
    },
    /// Make a recorded call of a plugin again, and say whether it goes the same way
    Replay(ReplayArguments),
    /// Replays a call, for `plugin replay`, which runs this in a process of its own.
    #[command(hide = true)]
    Rerun(RerunArguments),
    /// Compiles and calls a plugin, for `plugin check` and `plugin test`, which run this in a process
    /// of its own.
    #[command(hide = true)]
    Examine(ExamineArguments),
}

/// What to begin with.
#[derive(Debug, Clone, Args)]
pub struct NewArguments {
    /// What the plugin is
    #[arg(value_enum)]
    pub kind: NewKind,
    /// Its name, and that of the folder: lower-case letters, digits and hyphens
    #[arg(value_parser = plugin_name)]
    pub name: String,
    /// The language of the code
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub lang: Language,
    /// What it asks for beyond `log` and `config`, such as `http,clock`
    #[arg(long, value_name = "IMPORTS", value_delimiter = ',', value_parser = import)]
    pub imports: Vec<Import>,
}

/// A kind of plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NewKind {
    Tool,
    Hook,
    Router,
    Provider,
}

/// A language for which there are projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    Js,
    Python,
    C,
}

/// Where a project is.
#[derive(Debug, Clone, Args)]
pub struct ProjectFolder {
    /// The project's folder
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

/// What to develop.
#[derive(Debug, Clone, Args)]
pub struct DevArguments {
    /// Where the project is.
    #[command(flatten)]
    pub project: ProjectFolder,
    /// Record the last N failing calls of the plugin, with their content, for `plugin replay` [default of N: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RECORDINGS_MAX)))]
    pub record: Option<u32>,
}

/// What to replay.
#[derive(Debug, Clone, Args)]
pub struct ReplayArguments {
    /// The recording, from `recordings` in the data directory
    pub file: PathBuf,
    /// The component, or another version of it [default: the recorded one, if it is installed]
    pub component: Option<PathBuf>,
    /// Also write the call as a case for `plugin test` into this new file
    #[arg(long, value_name = "FILE")]
    pub case: Option<PathBuf>,
    /// Where plugins are.
    #[command(flatten)]
    pub folder: Folder,
}

/// What `plugin replay` gives to its process.
#[derive(Debug, Clone, Args)]
pub struct RerunArguments {
    /// The recording
    pub file: PathBuf,
    /// The component
    #[arg(long)]
    pub component: PathBuf,
}

/// What `plugin check` and `plugin test` give to their process.
#[derive(Debug, Clone, Args)]
pub struct ExamineArguments {
    /// The manifest
    #[arg(long)]
    pub manifest: PathBuf,
    /// The component
    #[arg(long)]
    pub component: PathBuf,
    /// A file of cases
    #[arg(long = "cases")]
    pub cases: Vec<PathBuf>,
    /// Also the checks that need no author
    #[arg(long)]
    pub suite: bool,
    /// Where code that counts is kept between runs
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// The compile cache of a host: its code is used, which does not count
    #[arg(long, conflicts_with = "cache")]
    pub host_cache: Option<PathBuf>,
}

/// Parses a name that is also a name for a package of every language.
fn plugin_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if begins && text.len() <= 40 && text.bytes().all(is_plain) && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("expected a lower-case letter, then lower-case letters, digits and hyphens, at most 40".to_owned())
}

fn import(text: &str) -> Result<Import, String> {
    let text = text.trim();
    if let Some(import) = Import::ALL.into_iter().find(|import| import.as_str() == text) {
        return Ok(import);
    }
    Err(match Import::ALL.into_iter().find(|import| import.brings(text)) {
        Some(import) => format!("{text} comes with {import}"),
        None => format!("there is no such import; there are {}", Import::ALL.map(Import::as_str).join(", ")),
    })
}

fn contract_line(name: &str) -> Result<&'static ContractLine, String> {
    let served = || ContractLine::SERVED.iter().map(|line| line.name()).collect::<Vec<_>>().join(" and ");
    ContractLine::SERVED
        .iter()
        .copied()
        .find(|line| line.name() == name)
        .ok_or_else(|| format!("this program serves {}", served()))
}
