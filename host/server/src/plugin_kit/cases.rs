//! The cases of a project: what a file in `cases/` says, read and checked before anything is
//! called. Every mistake names the file and the line.

mod expectation;
mod imports;
mod provider;
mod router;
mod written;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_runtime::manifest::PluginKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::Spanned;

use super::project::{read_text, wrong};
use crate::failure::Failure;

pub(super) use expectation::{Expectation, cut, difference};
pub(super) use imports::{
    ANSWERS_MAX, HTTP_ERRORS, HttpScript, ScriptedAnswer, ScriptedReply, Scripts, TOOL_ERRORS, texts,
};
pub(super) use provider::{FedStream, ProviderInput, ProviderRequest, UpstreamAnswer};
pub(super) use router::RouterInput;
pub(super) use written::{HookInput, ToolInput};

use written::Common;

/// Number of cases of one project.
const CASES_MAX: usize = 64;

/// One call of a plugin, and the answer that is expected.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// The file and the line where it begins.
    pub(super) at: String,
    pub(super) now_ms: u64,
    pub(super) seed: u64,
    /// The operator's settings of the plugin.
    pub(super) config: Map<String, Value>,
    pub(super) input: CaseInput,
    pub(super) expect: Expectation,
}

/// What the plugin is called with.
#[derive(Debug)]
pub(super) enum CaseInput {
    Tool(ToolInput),
    Hook(HookInput),
    Provider(ProviderInput),
    Router(RouterInput),
}

impl CaseInput {
    /// What the imports answer. Routers and providers have none beyond `log` and `config`.
    pub(super) fn scripts(&self) -> Option<&Arc<Scripts>> {
        match self {
            Self::Tool(tool) => Some(&tool.scripts),
            Self::Hook(hook) => Some(&hook.scripts),
            Self::Provider(_) | Self::Router(_) => None,
        }
    }
}

/// A mistake in a case file, and where it is.
#[derive(Debug)]
struct CaseMistake {
    offset: usize,
    message: String,
}

impl CaseMistake {
    fn at<T>(place: &Spanned<T>, message: impl Into<String>) -> Self {
        Self { offset: place.span().start, message: message.into() }
    }
}

/// A case as a file has it, for one kind of plugin.
trait WrittenCase: DeserializeOwned {
    /// The keys of `expect` that this kind of plugin can answer.
    const ANSWERS: &[&str];

    /// Checks what the types leave open. `folder` has the file.
    fn checked(self, folder: &Path) -> Result<CheckedCase, CaseMistake>;
}

/// The parts of a [`Case`] that its text gives.
struct CheckedCase {
    common: Common,
    input: CaseInput,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile<T> {
    #[serde(default = "Vec::new")]
    case: Vec<Spanned<T>>,
}

/// The cases of these files, for a plugin of this kind.
///
/// # Errors
///
/// A file cannot be read, has a mistake, or there are too many cases.
pub(super) fn read(files: &[PathBuf], kind: PluginKind) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for file in files {
        let text = read_text(file)?;
        let read = match kind {
            PluginKind::Tool => cases_of::<written::ToolCase>(file, &text),
            PluginKind::Hook => cases_of::<written::HookCase>(file, &text),
            PluginKind::Provider => cases_of::<provider::ProviderCase>(file, &text),
            PluginKind::Router => cases_of::<router::RouterCase>(file, &text),
        };
        cases.extend(read.map_err(|CaseMistake { offset, message }| {
            wrong(format!("{}:{}: {message}", file.display(), line_at(&text, offset)))
        })?);
    }
    if cases.len() > CASES_MAX {
        return Err(wrong(format!("there are {} cases; at most {CASES_MAX} are called", cases.len())));
    }
    Ok(cases)
}

fn cases_of<T: WrittenCase>(file: &Path, text: &str) -> Result<Vec<Case>, CaseMistake> {
    let read: CaseFile<T> = toml::from_str(text).map_err(|error| CaseMistake {
        offset: error.span().map_or(0, |span| span.start),
        message: error.message().lines().next().unwrap_or_default().to_owned(),
    })?;
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let cases = read.case.into_iter().map(|written| {
        let line = line_at(text, written.span().start);
        let CheckedCase { common, input } = written.into_inner().checked(folder)?;
        Ok(Case {
            name: common.name,
            at: format!("{}:{line}", file.display()),
            now_ms: written::milliseconds(common.now.as_ref())?,
            seed: common.seed,
            config: common.config,
            input,
            expect: Expectation::checked(common.expect, T::ANSWERS)?,
        })
    });
    cases.collect()
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}
