//! `plugin check`: what is wrong with a built plugin, and what it costs to compile and call it.

use std::fs;
use std::path::Path;

use cofferdam_runtime::manifest::{DEADLINE_MS_MAX, MEMORY_MIB_MAX};
use cofferdam_runtime::{ContractLine, Fit, Inspection, PluginKind, missing_grants};
use serde_json::{Value, json};

use super::Checked;
use super::cases;
use super::declared::sandbox;
use super::examination::{Extent, examination};
use super::examine::{Examination, ExaminedCall, Problem};
use super::project::{Project, read_component, read_text};
use super::recipe::Recipe;
use super::watch::Watch;
use crate::command::{CommandOutcome, grant_lines};
use crate::config::Config;
use crate::failure::Failure;
use crate::install::check_version;
use crate::options::Options;
use crate::wiring::plugins::{Taken, is_built_in, taken_name};

/// Width of the first column, and of the second where a verdict follows: with both, 80 characters.
const TITLE_WIDTH: usize = 10;
const TEXT_WIDTH: usize = 61;

/// Number of calls that broke of which the report tells.
const BROKEN_MAX: usize = 8;

/// Interfaces with types and no functions.
const TYPES_ONLY: [&str; 2] = ["types", "hooks"];

/// One line of the report.
struct Line {
    title: &'static str,
    text: String,
    verdict: Verdict,
    /// What mends it, or what belongs to it; one line each.
    more: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Wrong,
    /// Nothing that the author can mend.
    Missing,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Wrong => "wrong",
            Self::Missing => "missing",
        }
    }
}

impl Line {
    fn new(title: &'static str, text: impl Into<String>, verdict: Verdict) -> Self {
        Self { title, text: text.into(), verdict, more: Vec::new() }
    }

    fn with(mut self, more: impl Into<String>) -> Self {
        self.more.push(more.into());
        self
    }
}

pub(super) fn check(options: &Options, dir: &Path) -> Result<Checked, Failure> {
    let project = Project::open(dir)?;
    let extent = Extent { with_suite: false, host_cache: None };
    check_project(options, &project, Freshness::ByTimes, extent).map(|(checked, _)| checked)
}

/// Also returns what compiling and calling showed, if that could be tried.
pub(super) fn check_project(
    options: &Options,
    project: &Project,
    freshness: Freshness,
    extent: Extent<'_>,
) -> Result<(Checked, Option<Examination>), Failure> {
    let inspection = Inspection::of(&read_component(&project.require_component()?)?);
    let mut lines = vec![package(project, freshness), contract(project, &inspection)];
    if let Ok(fit) = &inspection.verdict {
        lines.push(imports(project, &inspection, fit));
        lines.push(needs(&inspection));
    }
    if let Err(error) = cases::read(&project.cases(), project.manifest.kind) {
        lines.push(Line::new("cases", error.to_string(), Verdict::Wrong));
    }
    let mut examined = None;
    // What loading refuses cannot be called.
    if lines.iter().all(|line| line.title == "package" || line.verdict == Verdict::Ok) {
        match examination(project, extent)? {
            Ok(examination) => {
                lines.extend(examination_lines(project, &examination));
                examined = Some(examination);
            }
            Err(problem) => lines.push(Line::new("compile", problem, Verdict::Wrong)),
        }
    }
    lines.extend(rebuild(project, &inspection));
    lines.extend(beside_others(project));
    lines.extend(grants(options, project)?);
    Ok((report(project, &inspection, &lines), examined))
}

/// How it is known that the component is that of the sources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// By the times of the files.
    ByTimes,
    /// The caller has compared their contents.
    Known,
}

/// Whether the component is that of the sources as they are now.
fn package(project: &Project, freshness: Freshness) -> Line {
    let installed = project.installed_manifest();
    let again = format!("cofferdam plugin build {}", project.dir.display());
    if read_text(&installed).is_ok_and(|text| text != project.manifest_text) {
        let text = format!("{} differs from plugin.toml", installed.display());
        return Line::new("package", text, Verdict::Wrong).with(again);
    }
    let built = fs::metadata(project.component()).and_then(|metadata| metadata.modified());
    let recipe = Recipe::read(&project.dir).ok();
    let built = built.ok().filter(|_| freshness == Freshness::ByTimes);
    let newer = built.zip(recipe).and_then(|(built, recipe)| {
        let mut watch = Watch::new(&project.dir);
        watch.follow(&recipe);
        watch.newer_than(built)
    });
    match newer {
        Some(path) => {
            let text = format!("{} is newer than the component", path.display());
            Line::new("package", text, Verdict::Wrong).with(again)
        }
        None => Line::new("package", format!("{} is current", project.plugins().display()), Verdict::Ok),
    }
}

fn contract(project: &Project, inspection: &Inspection) -> Line {
    match &inspection.verdict {
        Ok(fit) if fit.kind == Some(project.manifest.kind) => {
            let package = ContractLine::PACKAGE;
            let text = format!("{package}@{}, line {}, served here", fit.version, fit.line.name());
            Line::new("contract", text, Verdict::Ok)
        }
        Ok(_) => {
            let message = inspection.suits(&project.manifest).err().map(|error| error.to_string());
            Line::new("contract", message.unwrap_or_default(), Verdict::Wrong)
                .with("make `kind` in plugin.toml and the exports in wit/world.wit agree")
        }
        Err(error) => Line::new("contract", format!("the component {error}"), Verdict::Wrong),
    }
}

fn imports(project: &Project, inspection: &Inspection, fit: &Fit) -> Line {
    let manifest = &project.manifest;
    let asked: Vec<&str> = manifest.imports.iter().map(|import| import.as_str()).collect();
    let asks = if asked.is_empty() { "nothing".to_owned() } else { asked.join(", ") };
    if let Some(interface) = inspection.unasked(manifest) {
        let import = format!("import {}/{interface}@{};", ContractLine::PACKAGE, fit.version);
        let text = format!("{interface}; plugin.toml asks for {asks}");
        let line = Line::new("imports", text, Verdict::Wrong);
        let line = match project.line_of("wit/world.wit", &import) {
            Some(number) => line.with(format!("wit/world.wit:{number}: remove `{import}` and build again")),
            None => line.with(format!("remove `{import}` from the world in wit/ and build again")),
        };
        let Some(import) = cofferdam_runtime::manifest::Import::ALL
            .into_iter()
            .find(|import| import.brings(interface) && manifest.kind.optional_imports().contains(import))
        else {
            return line;
        };
        let number = project.line_of("plugin.toml", "imports").unwrap_or(1);
        let all: Vec<String> =
            manifest.imports.iter().chain([&import]).map(|name| format!("\"{name}\"")).collect();
        return line.with(format!("or plugin.toml:{number}: `imports = [{}]`", all.join(", ")));
    }
    if let Err(error) = inspection.suits(manifest) {
        return Line::new("imports", error.to_string(), Verdict::Wrong);
    }
    let names = inspection.imports.iter();
    let used = names.filter_map(|name| name.strip_prefix(ContractLine::PACKAGE)?.strip_prefix('/'));
    let used = used.filter_map(|name| name.split('@').next()).filter(|name| !TYPES_ONLY.contains(name));
    let used: Vec<&str> = used.collect();
    let used = if used.is_empty() { "none".to_owned() } else { used.join(", ") };
    Line::new("imports", format!("{used}; plugin.toml asks for {asks}"), Verdict::Ok)
}

fn needs(inspection: &Inspection) -> Line {
    let verdict = if inspection.sandbox.fits() { Verdict::Ok } else { Verdict::Wrong };
    Line::new("sandbox", sandbox(inspection.sandbox), verdict)
}

fn examination_lines(project: &Project, examination: &Examination) -> Vec<Line> {
    if let Some(reason) = &examination.uncompiled {
        return vec![Line::new("compile", reason.clone(), Verdict::Wrong)];
    }
    let time = match examination.compile_ms {
        ms @ ..1_000 => format!("{ms} ms"),
        ms => format!("{:.1} s", ms as f64 / 1_000.0),
    };
    let time = if examination.is_cached { "compiled before".to_owned() } else { time };
    let text = format!("{time}, {} of code", size(examination.code_bytes));
    let mut compile = Line::new("compile", text, Verdict::Ok);
    if !examination.is_cached && examination.compile_ms >= 2_000 {
        let name = &project.manifest.name;
        compile = compile
            .with(format!("a host is ready before that, unless: [plugins.{name}] compile = \"start\""));
    }
    let mut lines = vec![compile];
    lines.extend(examination.calls.iter().map(|call| call_line(project, call)));
    lines.extend(examination.problems.iter().take(BROKEN_MAX).map(|problem| {
        let mut line = called_wrong(project, problem);
        line.more.extend(problem.notes.iter().cloned());
        line
    }));
    let left_out = examination.problems.len().saturating_sub(BROKEN_MAX);
    if left_out > 0 {
        lines.push(Line::new("calls", format!("{left_out} more broke"), Verdict::Wrong));
    }
    lines
}

/// What the calls of a function took at most.
fn call_line(project: &Project, call: &ExaminedCall) -> Line {
    let manifest = &project.manifest;
    let text = format!(
        "{} {:.1} ms of {}, {} fuel, {} of {} MiB",
        call.function,
        call.busy_us as f64 / 1_000.0,
        call.busy_max_us / 1_000,
        short(call.fuel),
        size(call.memory_bytes),
        manifest.memory_mib()
    );
    let is_in_time = call.busy_us < call.busy_max_us;
    Line::new("calls", text, if is_in_time { Verdict::Ok } else { Verdict::Wrong })
}

fn called_wrong(project: &Project, problem: &Problem) -> Line {
    let line = Line::new("calls", problem.message.clone(), Verdict::Wrong);
    let manifest = &project.manifest;
    if problem.message.ends_with("broke (invalid_value)") {
        return line.with("a value that it returned is not of the contract's type: a text must be UTF-8");
    }
    if problem.message.ends_with("broke (out_of_bounds)") {
        return line.with("it used memory that it does not have: look for a wrong pointer or index");
    }
    if problem.message.ends_with("broke (stack_overflow)") {
        return line.with("its calls are nested too deeply: bound the recursion by what it reads");
    }
    if problem.is_trap {
        return line.with(match Interpreter::of(project) {
            Some(Interpreter::QuickJs) => {
                "JavaScript: return u64 as numbers, not BigInt; throw only {tag, val}, catch every other exception"
            }
            Some(Interpreter::Python) => {
                "Python: raise only componentize_py_types.Err(...), catch every other exception"
            }
            None => "the plugin ended itself, as by a panic: return an error of the contract instead",
        });
    }
    let limits = |key: &str, now: u64, most: u64| {
        let place = project.place_of("plugin.toml", key);
        format!("{place}: make it need less, or set `[limits] {key}`, now {now}, at most {most}")
    };
    let message = &problem.message;
    if message.ends_with("ran out of time") {
        let now = u64::try_from(manifest.deadline().as_millis()).unwrap_or(u64::MAX);
        line.with(limits("deadline_ms", now, DEADLINE_MS_MAX.into()))
    } else if message.ends_with("ran out of memory") {
        line.with(limits("memory_mib", manifest.memory_mib().into(), MEMORY_MIB_MAX.into()))
    } else if message.ends_with("produced more output than accepted") {
        line.with("return less: what a call returns, and each text in it, has a limit")
    } else {
        line
    }
}

/// An interpreter that a component consists of, known by the tool that `build.toml` runs.
#[derive(Clone, Copy)]
enum Interpreter {
    QuickJs,
    Python,
}

impl Interpreter {
    fn of(project: &Project) -> Option<Self> {
        let names = |tool: &str| project.line_of("build.toml", tool).is_some();
        if names("componentize-qjs") {
            Some(Self::QuickJs)
        } else if names("componentize-py") {
            Some(Self::Python)
        } else {
            None
        }
    }
}

/// Whether another build gives other bytes, where the language decides that.
fn rebuild(project: &Project, inspection: &Inspection) -> Option<Line> {
    let interpreter = match Interpreter::of(project)? {
        Interpreter::QuickJs => "QuickJS",
        Interpreter::Python => "Python",
    };
    let text = format!("gives other bytes ({interpreter} snapshot): pin the digest");
    let pin = format!("[plugins.{}] sha256 = \"{}\"", project.manifest.name, inspection.digest);
    Some(Line::new("rebuild", text, Verdict::Ok).with(pin))
}

/// What a host, or the installation, refuses although the plugin is good by itself.
fn beside_others(project: &Project) -> Vec<Line> {
    let manifest = &project.manifest;
    let place = |text: &str| project.place_of("plugin.toml", &format!("\"{text}\""));
    let taken = taken_name(manifest).map(|Taken { what, id, by }| {
        Line::new("name", format!("the {what} `{id}` is taken by {by}"), Verdict::Wrong)
            .with(format!("{}: choose another", place(&id)))
    });
    let version = check_version(manifest).err().map(|error| {
        Line::new("version", error.to_string(), Verdict::Wrong)
            .with(format!("{}: such as version = \"0.1.0\"", place(&manifest.version)))
    });
    taken.into_iter().chain(version).collect()
}

/// What the configuration in use does not grant. It is the operator's to grant.
fn grants(options: &Options, project: &Project) -> Result<Vec<Line>, Failure> {
    let config = Config::load(options.config.as_deref(), &options.data)?;
    let manifest = &project.manifest;
    let nothing = cofferdam_runtime::OperatorGrant::default();
    let granted = config.plugins.get(&manifest.name).unwrap_or(&nothing);
    let denials = missing_grants(manifest, granted);
    let mut lines = Vec::new();
    if is_built_in(&manifest.name) && !granted.replaces {
        let text = format!("{} is built in, and this plugin may not replace it", manifest.name);
        let place = project.place_of("plugin.toml", "name");
        let replace = format!("let the operator set [plugins.{}] replaces = true", manifest.name);
        let line = Line::new("name", text, Verdict::Missing);
        // Under another name a router would order no endpoints.
        lines.push(match manifest.kind {
            PluginKind::Router => line.with(replace),
            _ => line.with(format!("{place}: choose another name")).with(format!("or {replace}")),
        });
    }
    if denials.is_empty() {
        lines.push(Line::new("grants", "all that plugin.toml asks for", Verdict::Ok));
        return Ok(lines);
    }
    let wanted: Vec<&str> = denials.iter().map(|denial| denial.wanted.as_str()).collect();
    let mut line = Line::new("grants", wanted.join("; "), Verdict::Missing);
    line.more = if denials.iter().any(|denial| denial.needs_author) {
        let place = project.place_of("plugin.toml", "imports");
        vec![format!("{place}: http needs hosts: name them, hosts = [\"HOST\"], or take http out")]
    } else {
        grant_lines(manifest, granted, Some(&project.plugins()))
    };
    lines.push(line);
    Ok(lines)
}

fn report(project: &Project, inspection: &Inspection, lines: &[Line]) -> Checked {
    let manifest = &project.manifest;
    let mut text = format!(
        "{} {} ({})  {}, {} bytes\n{:TITLE_WIDTH$}{}\n",
        manifest.name,
        manifest.version,
        manifest.kind,
        manifest.component,
        inspection.bytes,
        "sha256",
        inspection.digest
    );
    let mut title = "";
    for line in lines {
        let shown = if line.title == title { "" } else { line.title };
        title = line.title;
        let verdict = line.verdict.as_str();
        // Behind a text of several lines a verdict would be overlooked.
        let is_long = line.verdict != Verdict::Ok && line.text.chars().count() > TEXT_WIDTH;
        let line_text = if is_long {
            format!("{verdict}: {}", line.text)
        } else {
            format!("{:TEXT_WIDTH$}  {verdict}", line.text)
        };
        text.push_str(&format!("{shown:TITLE_WIDTH$}{line_text}\n"));
        text.extend(line.more.iter().map(|more| format!("{:TITLE_WIDTH$}{more}\n", "")));
    }
    let documents: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({"check": line.title, "text": line.text, "verdict": line.verdict.as_str(), "more": line.more})
        })
        .collect();
    let wrong = lines.iter().filter(|line| line.verdict == Verdict::Wrong).count();
    let document = json!({
        "name": manifest.name, "version": manifest.version, "kind": manifest.kind.as_str(),
        "bytes": inspection.bytes, "sha256": inspection.digest,
        "line": inspection.verdict.as_ref().ok().map(|fit| fit.line.name()),
        "checks": documents, "wrong": wrong,
    });
    Checked { outcome: CommandOutcome { document, text }, wrong, what: "check" }
}

/// A size in KiB or MiB.
fn size(bytes: usize) -> String {
    match bytes {
        ..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A count in thousands or millions.
fn short(count: u64) -> String {
    match count {
        ..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{} k", count / 1_000),
        _ => format!("{:.1} M", count as f64 / 1_000_000.0),
    }
}
