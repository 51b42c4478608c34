//! The recordings that the host of `plugin dev` writes: which ones are new, and how each is replayed.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_runtime::RecordedEnd;
use serde_json::{Value, json};

use super::project::Project;
use super::replay;

/// Number of new recordings of which one is told at a time: the newest.
const TOLD_MAX: usize = 5;

/// The folder of recordings and what was in it at the last look.
pub(super) struct DevRecordings {
    pub(super) folder: PathBuf,
    seen: BTreeSet<PathBuf>,
}

/// A new recording of the project's plugin.
pub(super) struct NewRecording {
    file: PathBuf,
    end: RecordedEnd,
    /// The command that replays it.
    pub(super) command: String,
}

impl DevRecordings {
    /// What the folder has now is not new.
    pub(super) fn new(folder: PathBuf) -> Self {
        let seen = files(&folder);
        Self { folder, seen }
    }

    /// The recordings of this plugin since the last look, the oldest first.
    pub(super) fn take_new(&mut self, project: &Project) -> Vec<NewRecording> {
        let now = files(&self.folder);
        let seen = std::mem::replace(&mut self.seen, now);
        // A host keeps few. Their names have the plugin, then the time.
        let own = format!("{}.", project.manifest.name);
        let is_own = |path: &&PathBuf| {
            path.file_name().is_some_and(|name| name.display().to_string().starts_with(&own))
        };
        let new: Vec<&PathBuf> = self.seen.difference(&seen).filter(is_own).collect();
        let newest = new.get(new.len().saturating_sub(TOLD_MAX)..).unwrap_or_default();
        // One that cannot be read has made room for others meanwhile.
        newest.iter().filter_map(|file| NewRecording::read(file, project)).collect()
    }
}

impl NewRecording {
    fn read(file: &Path, project: &Project) -> Option<Self> {
        let end = replay::read(file).ok()?.end;
        let component = project.component();
        let command = format!("cofferdam plugin replay {} {}", word(file), word(&component));
        Some(Self { file: file.to_owned(), end, command })
    }

    /// What failed, for people.
    pub(super) fn title(&self) -> String {
        format!("a call of {} {} and is recorded", self.end.function, self.end.message)
    }

    pub(super) fn document(&self) -> Value {
        json!({
            "event": "recorded", "file": self.file, "function": self.end.function, "kind": self.end.kind,
            "message": self.end.message, "replay": self.command,
        })
    }
}

/// The complete recordings in a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

/// A path as one word of a shell, from the current directory where it is below that.
pub(super) fn word(path: &Path) -> String {
    let here = env::current_dir().ok();
    let short = here.and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path);
    let text = short.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@".contains(&byte);
    if text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::word;

    #[test]
    fn paths_are_words_of_a_shell() {
        assert_eq!(word(Path::new("/a/b-1.0_2.jsonl")), "/a/b-1.0_2.jsonl");
        assert_eq!(word(Path::new("/a b/it's")), "'/a b/it'\\''s'");
        assert_eq!(word(&std::env::current_dir().unwrap().join("x/y")), "x/y");
    }
}
