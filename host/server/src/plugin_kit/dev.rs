//! `plugin dev`: builds, checks, tests and serves a project, again after every change of its
//! sources. What does not pass is printed, and the component before it goes on serving.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::styling::Style;
use serde_json::{Value, json};

use super::check::Freshness;
use super::dev_host::{DevFolder, DevHost};
use super::output::Marks;
use super::process::{OutputTo, is_stopped, stop_on_signals};
use super::project::Project;
use super::recipe::Recipe;
use super::watch::{CASES, FILES_MAX, Snapshot, Watch};
use super::{Checked, build, check, trial};
use crate::command::CommandOutcome;
use crate::failure::Failure;
use crate::options::Options;
use crate::start::{pause, write_out};

/// The time between two looks at the sources.
const LOOK: Duration = Duration::from_millis(300);
/// For how long the sources have to stay as they are before a round begins.
const QUIET: Duration = Duration::from_millis(150);
/// Number of notes of one run.
const NOTES_MAX: usize = 100;
/// When a round begins although the sources keep changing.
const QUIET_TIME_MAX: Duration = Duration::from_secs(10);

/// Builds, checks, tests and serves until a signal to stop.
///
/// # Errors
///
/// There is no project, or its folder cannot be written.
pub(super) fn dev(options: &Options, dir: &Path) -> Result<CommandOutcome, Failure> {
    stop_on_signals().map_err(Failure::system("signals"))?;
    Project::open(dir)?;
    let mut dev = DevLoop::new(options, dir)?;
    let ended = dev.run();
    if let Some(host) = dev.host.take() {
        host.stop(&dev.folder);
    }
    ended?;
    Ok(CommandOutcome { text: String::new(), document: json!({"event": "stopped"}) })
}

struct DevLoop {
    dir: PathBuf,
    folder: DevFolder,
    watch: Watch,
    host: Option<DevHost>,
    /// The sources that the last round was made of.
    seen: Snapshot,
    /// The files that changed during the last build.
    during: BTreeSet<PathBuf>,
    /// Those of them that every build changes.
    own: BTreeSet<PathBuf>,
    /// The sources of the last build that went well.
    built: Option<Snapshot>,
    /// What was noted before, and is not noted again.
    noted: BTreeSet<String>,
    as_json: bool,
    marks: Marks,
}

/// A round that did not come to its end.
struct Stumble {
    /// What failed: `build`, `check`, `test` or `serve`.
    step: &'static str,
    text: String,
}

impl DevLoop {
    fn new(options: &Options, dir: &Path) -> Result<Self, Failure> {
        Ok(Self {
            dir: dir.to_owned(),
            folder: DevFolder::make(options, dir)?,
            watch: Watch::new(dir),
            host: None,
            seen: Snapshot::default(),
            during: BTreeSet::new(),
            own: BTreeSet::new(),
            built: None,
            noted: BTreeSet::new(),
            as_json: options.json,
            marks: Marks::of_this_output(),
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        while !is_stopped() {
            let mut done = Vec::new();
            let round = self.round(&mut done);
            if is_stopped() {
                break;
            }
            match round {
                Ok(is_new) => self.tell_live(done, is_new)?,
                Err(stumble) => self.tell_stumble(&stumble, &done)?,
            }
            self.note()?;
            self.until_changed()?;
        }
        Ok(())
    }

    /// Says once what the author should know about the watched files.
    fn note(&mut self) -> Result<(), Failure> {
        let mut notes = Vec::new();
        if self.seen.is_cut {
            notes.push(format!(
                "more than {FILES_MAX} files are watched: changes of the others are not seen; name fewer in `watch` of \
                 build.toml"
            ));
        }
        notes.extend(self.own.iter().map(|path| {
            format!(
                "{} changed during two builds and is taken for an output: if you changed it, save it again",
                path.display()
            )
        }));
        for text in notes {
            if self.noted.len() < NOTES_MAX && self.noted.insert(text.clone()) {
                self.tell(&json!({"event": "note", "text": text}), &text, Style::new())?;
            }
        }
        Ok(())
    }

    /// Builds, checks, tests and serves once. Whether a host was started.
    fn round(&mut self, done: &mut Vec<String>) -> Result<bool, Stumble> {
        let built = self.build(done);
        let project = Project::open(&self.dir).map_err(|error| Stumble::new("build", &error))?;
        built?;
        self.folder.configure(&project.manifest).map_err(|error| Stumble::new("serve", &error))?;
        let failed = |step| move |error: Failure| Stumble::new(step, &error);
        passed(
            "check",
            check::check(&self.folder.options, &self.dir, Freshness::Known).map_err(failed("check"))?,
        )?;
        done.push("checked".to_owned());
        let tested = trial::test(&self.dir).map_err(failed("test"))?;
        let count = tested.outcome.document.get("cases").and_then(Value::as_array).map_or(0, Vec::len);
        passed("test", tested)?;
        done.push(if count == 0 { "tested".to_owned() } else { format!("{count} cases") });
        self.folder.install(&project).map_err(failed("serve"))?;
        self.serve().map_err(|text| Stumble { step: "serve", text })
    }

    /// Builds, unless only cases have changed. Afterwards `seen` has the sources that were built.
    fn build(&mut self, done: &mut Vec<String>) -> Result<(), Stumble> {
        if let Ok(recipe) = Recipe::read(&self.dir) {
            self.watch.follow(&recipe);
        }
        let before = self.watch.snapshot();
        let cases = self.dir.join(CASES);
        let is_source = |path: &PathBuf| !path.starts_with(&cases);
        let is_built = self.built.as_ref().is_some_and(|built| !built.changed(&before).iter().any(is_source));
        if is_built && Project::open(&self.dir).is_ok_and(|project| project.component().exists()) {
            self.seen = before;
            return Ok(());
        }
        let started = Instant::now();
        let built = build::build(&self.dir, OutputTo::Text);
        let after = self.watch.snapshot();
        self.note_build(before, &after);
        self.built = None;
        built.map_err(|error| Stumble::new("build", &error))?;
        self.built = Some(self.seen.clone());
        done.push(format!("built {:.1} s", started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Decides which sources a build was made of. A file that changed during the build may have been
    /// written by the author: its change begins another round. One that changed during the build
    /// before, too, is written by the build itself, and begins none.
    fn note_build(&mut self, before: Snapshot, after: &Snapshot) {
        let during = before.changed(after);
        self.own = during.intersection(&self.during).cloned().collect();
        self.seen = before;
        self.seen.take(&self.own, after);
        self.during = during;
    }

    /// Lets the host serve what was built. Whether a host was started.
    fn serve(&mut self) -> Result<bool, String> {
        let ended = self.host.as_mut().and_then(DevHost::ended);
        if ended.is_some() {
            self.host = None;
        }
        if let Some(host) = &mut self.host {
            return host.reload(&self.folder).map(|()| false);
        }
        self.host = DevHost::start(&self.folder)?;
        Ok(self.host.is_some())
    }

    /// Waits until the sources differ from those of the last round, and are quiet. Also returns at a
    /// signal to stop.
    fn until_changed(&mut self) -> Result<(), Failure> {
        loop {
            wait(LOOK);
            if is_stopped() {
                return Ok(());
            }
            if let Some(text) = self.host.as_mut().and_then(DevHost::ended) {
                self.host = None;
                let text = format!("{text}\nIt starts again after the next change.");
                self.tell_stumble(&Stumble { step: "serve", text }, &[])?;
            }
            if self.watch.snapshot() == self.seen {
                continue;
            }
            // An editor may have deleted a file and written it again.
            if self.quiet_snapshot() != self.seen {
                return Ok(());
            }
        }
    }

    /// The sources when they have stayed as they are for a moment.
    fn quiet_snapshot(&self) -> Snapshot {
        let until = Instant::now() + QUIET_TIME_MAX;
        let mut now = self.watch.snapshot();
        while Instant::now() < until && !is_stopped() {
            wait(QUIET);
            let before = std::mem::replace(&mut now, self.watch.snapshot());
            if before == now {
                break;
            }
        }
        now
    }

    /// Says where the plugin is served and how it is called.
    fn greet(&self) -> Result<(), Failure> {
        let (Some(host), Ok(project)) = (&self.host, Project::open(&self.dir)) else { return Ok(()) };
        let manifest = &project.manifest;
        let curl = host.curl(manifest);
        if self.as_json {
            let document = json!({
                "event": "serving", "listen": host.listen, "admin": host.admin, "key": host.key, "curl": curl,
                "log": self.folder.log, "watched": self.watch.names(),
            });
            return write_out(&format!("{document}\n"));
        }
        write_out(&format!(
            "\n{} {} is served on http://{}, health and metrics on http://{}.\nThe log: {}\n\nTry it:\n\n  {curl}\n\n\
             Watching {}. Ctrl-C ends it.\n\n",
            manifest.name,
            manifest.version,
            host.listen,
            host.admin,
            self.folder.log.display(),
            self.watch.names()
        ))
    }

    fn tell_live(&self, mut done: Vec<String>, is_new: bool) -> Result<(), Failure> {
        done.push("live".to_owned());
        self.tell(&json!({"event": "live", "done": done}), &done.join(", "), self.marks.good)?;
        if is_new { self.greet() } else { Ok(()) }
    }

    fn tell_stumble(&self, stumble: &Stumble, done: &[String]) -> Result<(), Failure> {
        let Stumble { step, text } = stumble;
        let serves = if self.host.is_some() { "the component before it serves" } else { "nothing is served" };
        let before: String = done.iter().map(|done| format!("{done}, ")).collect();
        let line = format!("{before}{step} failed: {serves}");
        self.tell(
            &json!({"event": "failed", "step": step, "done": done, "text": text}),
            &line,
            self.marks.bad,
        )?;
        if self.as_json { Ok(()) } else { write_out(&format!("{}\n\n", text.trim_end())) }
    }

    /// Prints a line with the time, or a JSON document.
    fn tell(&self, document: &Value, line: &str, style: Style) -> Result<(), Failure> {
        if self.as_json {
            return write_out(&format!("{document}\n"));
        }
        let time = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
        write_out(&format!("{time} {style}{line}{style:#}\n"))
    }
}

impl Stumble {
    fn new(step: &'static str, error: &Failure) -> Self {
        Self { step, text: error.to_string() }
    }
}

/// Refuses what a check found wrong.
fn passed(step: &'static str, checked: Checked) -> Result<(), Stumble> {
    match checked.wrong {
        0 => Ok(()),
        _ => Err(Stumble { step, text: checked.outcome.text.clone() }),
    }
}

/// Waits without a line of the terminal, and not after a signal to stop.
fn wait(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && !is_stopped() {
        pause();
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn dev_loop(dir: &Path) -> DevLoop {
        let options = Options { data: dir.join("data"), config: None, json: true };
        DevLoop::new(&options, dir).unwrap()
    }

    #[test]
    fn a_change_during_a_build_begins_one_more_round_and_the_builds_own_changes_none() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::create_dir(dir.join("src")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.join("src").join(file), text).unwrap();
        let mut dev = dev_loop(dir);
        let build = |dev: &mut DevLoop, written: &[(&str, &str)]| {
            let before = dev.watch.snapshot();
            written.iter().for_each(|(file, text)| write(file, text));
            dev.note_build(before, &dev.watch.snapshot());
            dev.seen != dev.watch.snapshot()
        };
        write("lib.rs", "one");
        assert!(build(&mut dev, &[("made.rs", "1")]), "the author may have written it");
        assert!(!build(&mut dev, &[("made.rs", "2")]), "every build writes it");
        assert!(build(&mut dev, &[("made.rs", "3"), ("lib.rs", "two")]), "the author wrote meanwhile");
        assert!(!build(&mut dev, &[("made.rs", "4")]));
        assert_eq!(dev.own, BTreeSet::from([dir.join(PathBuf::from("src/made.rs"))]));
        assert!(!build(&mut dev, &[]));
    }
}
