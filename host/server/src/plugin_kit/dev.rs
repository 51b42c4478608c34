//! `plugin dev`: builds, checks, tests and serves a project, again after every change of its
//! sources. What does not pass is printed, and the component before it goes on serving.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::builder::styling::Style;
use serde_json::{Value, json};

use super::check::{Freshness, check_project};
use super::dev_host::{DevFolder, DevHost};
use super::dev_recordings::{DevRecordings, word};
use super::examination::Extent;
use super::output::Marks;
use super::process::{OutputTo, is_stopped, stop_on_signals};
use super::project::Project;
use super::recipe::Recipe;
use super::watch::{CASES, FILES_MAX, Snapshot, Watch};
use super::{Checked, build, trial};
use crate::command::{CommandOutcome, DevArguments};
use crate::failure::Failure;
use crate::options::Options;
use crate::start::{cache_directory, pause, write_out};

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
/// There is no project, its folder cannot be written, or the options contradict each other.
pub(super) fn dev(options: &Options, arguments: &DevArguments) -> Result<CommandOutcome, Failure> {
    stop_on_signals().map_err(Failure::system("signals"))?;
    let mut dev = DevLoop::new(options, arguments)?;
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
    recordings: DevRecordings,
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
    fn new(options: &Options, arguments: &DevArguments) -> Result<Self, Failure> {
        let dir = &arguments.project.dir;
        let project = Project::open(dir)?;
        let folder = DevFolder::make(options, &project, arguments.record)?;
        Ok(Self {
            dir: dir.clone(),
            watch: Watch::new(dir),
            host: None,
            recordings: DevRecordings::new(folder.recordings()),
            folder,
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
        // Check and tests are one run of the code that the host then takes from its cache.
        let cache = cache_directory(&self.folder.options.data);
        let extent = Extent { with_suite: true, host_cache: Some(&cache) };
        let (checked, examination) = check_project(&self.folder.options, &project, Freshness::Known, extent)
            .map_err(failed("check"))?;
        passed("check", checked)?;
        done.push("checked".to_owned());
        if let Some(examination) = examination {
            passed("test", trial::report(&examination))?;
            let count = examination.cases.len();
            done.push(match count {
                0 => "tested".to_owned(),
                1 => "1 case".to_owned(),
                _ => format!("{count} cases"),
            });
        }
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
            self.tell_recordings()?;
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

    /// Says which calls were recorded since the last look, and how they are made again.
    fn tell_recordings(&mut self) -> Result<(), Failure> {
        let Ok(project) = Project::open(&self.dir) else { return Ok(()) };
        for recording in self.recordings.take_new(&project) {
            self.tell(&recording.document(), &recording.title(), self.marks.bad)?;
            if !self.as_json {
                write_out(&format!("  {}\n", recording.command))?;
            }
        }
        Ok(())
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
        let curl = host.curl(manifest, &self.folder);
        if self.as_json {
            let document = json!({
                "event": "serving", "listen": host.at.listen, "admin": host.at.admin, "key": host.key, "curl": curl.as_ref().ok(),
                "log": self.folder.log, "watched": self.watch.names(),
                "recordings": self.folder.record.map(|_| &self.recordings.folder),
            });
            return write_out(&format!("{document}\n"));
        }
        let recorded = match self.folder.record {
            Some(kept) => format!(
                "The last {kept} failing calls, with their content: {}\n",
                word(&self.recordings.folder)
            ),
            None => String::new(),
        };
        let how = match curl {
            Ok(curl) => format!("Try it:\n\n  {curl}"),
            Err(missing) => missing,
        };
        let console = match host.at.has_console() {
            true => format!(
                "`cofferdam console --data {}` prints a link that signs in to the console.\n",
                word(&self.folder.options.data)
            ),
            false => String::new(),
        };
        write_out(&format!(
            "\n{} {} is served on {}://{}; {}.\n{console}The log: {}\n{recorded}\n{how}\n\n\
             Watching {}. Ctrl-C ends it.\n\n",
            manifest.name,
            manifest.version,
            host.at.scheme(),
            host.at.listen,
            host.at.admin_text(),
            word(&self.folder.log),
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
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::command::ProjectFolder;

    fn dev_loop(dir: &Path) -> DevLoop {
        let options = Options { data: dir.join("data"), config: None, json: true };
        let manifest =
            "name = \"t\"\nkind = \"tool\"\nversion = \"0.1.0\"\ndescription = \"d\"\n[tool]\ntype = \"t\"\n";
        std::fs::write(dir.join("plugin.toml"), manifest).unwrap();
        let project = ProjectFolder { dir: dir.to_owned() };
        DevLoop::new(&options, &DevArguments { project, record: None }).unwrap()
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
