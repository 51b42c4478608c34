//! What `plugin dev` watches: the contents of a project's sources, by their digests. Times of files
//! do not matter, and what a build makes is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use cofferdam_runtime::Inspection;

use super::project::FOLDER;
use super::recipe::Recipe;

/// What every project has besides the `watch` of its `build.toml`.
const ALWAYS: [&str; 3] = ["plugin.toml", "build.toml", CASES];
pub(super) const CASES: &str = "cases";
/// What is watched until `build.toml` can be read.
const USUALLY: [&str; 2] = ["src", "wit"];
/// Folders that tools fill, at any depth.
const MADE: [&str; 6] = [FOLDER, "plugins", "node_modules", "target", "__pycache__", ".git"];
/// Number of files that are watched.
pub(super) const FILES_MAX: usize = 2_000;
/// Of a larger file only length and time are watched.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The files that a build depends on.
pub(super) struct Watch {
    dir: PathBuf,
    /// Files and folders, as `watch` names them.
    paths: BTreeSet<PathBuf>,
    /// The output of the build, and the folder that it is made in.
    outputs: Vec<PathBuf>,
}

/// The watched files that exist and their digests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    files: BTreeMap<PathBuf, String>,
    /// Whether there are more files than are watched.
    pub(super) is_cut: bool,
}

impl Watch {
    pub(super) fn new(dir: &Path) -> Self {
        let paths = ALWAYS.into_iter().chain(USUALLY).map(PathBuf::from).collect();
        Self { dir: dir.to_owned(), paths, outputs: Vec::new() }
    }

    /// Watches what a `build.toml` names.
    pub(super) fn follow(&mut self, recipe: &Recipe) {
        self.paths = ALWAYS.into_iter().map(PathBuf::from).collect();
        self.paths.extend(recipe.watch.iter().map(PathBuf::from));
        let output = PathBuf::from(&recipe.output);
        let made_in = output.components().next().map(|first| PathBuf::from(first.as_os_str()));
        // The folder may have sources, too, if `watch` names something in it.
        let made_in = made_in.filter(|folder| !self.paths.iter().any(|path| path.starts_with(folder)));
        self.outputs =
            [Some(output), made_in].into_iter().flatten().map(|path| self.dir.join(path)).collect();
    }

    /// What is watched, for people.
    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        names.join(", ")
    }

    /// The watched files, in an order that makes the same files count when there are too many.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let mut waiting: Vec<PathBuf> = self.paths.iter().rev().map(|path| self.dir.join(path)).collect();
        std::iter::from_fn(move || self.next_file(&mut waiting))
    }

    /// Takes paths until one is a file; folders are replaced by what they have.
    fn next_file(&self, waiting: &mut Vec<PathBuf>) -> Option<PathBuf> {
        while let Some(path) = waiting.pop() {
            if self.outputs.contains(&path) {
                continue;
            }
            if !path.is_dir() {
                return Some(path);
            }
            waiting.extend(self.entries(&path));
        }
        None
    }

    /// A source that was changed after this time. Cases are no source of the component.
    pub(super) fn newer_than(&self, built: SystemTime) -> Option<PathBuf> {
        let cases = self.dir.join(CASES);
        let sources = self.files().take(FILES_MAX).filter(|path| !path.starts_with(&cases));
        let is_newer = |path: &PathBuf| {
            let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
            changed.is_ok_and(|changed| changed > built)
        };
        sources.into_iter().find(is_newer)
    }

    /// Reads all watched files. What does not exist at the moment is left out.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for path in self.files() {
            let Some(digest) = digest(&path) else { continue };
            if snapshot.files.len() >= FILES_MAX {
                snapshot.is_cut = true;
                break;
            }
            snapshot.files.insert(path, digest);
        }
        snapshot
    }

    /// What is watched in a folder, in reverse order. Links to folders are not followed, since they
    /// may lead in a circle.
    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX + 1);
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| self.is_source(path));
        paths.sort_unstable_by(|one, other| other.cmp(one));
        paths
    }

    fn is_source(&self, path: &Path) -> bool {
        let Some(Component::Normal(name)) = path.components().next_back() else { return false };
        let name = name.to_string_lossy();
        // Backups and swap files of editors.
        let is_draft = name.starts_with(['.', '#']) || name.ends_with('~');
        let is_made = MADE.contains(&&*name) && path.is_dir();
        let is_linked_folder = path.is_symlink() && path.is_dir();
        !is_draft && !is_made && !is_linked_folder
    }
}

/// The digest of a file, if it can be read.
fn digest(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Some(format!("{} bytes, {:?}", metadata.len(), metadata.modified().ok()));
    }
    Some(Inspection::digest_of(&fs::read(path).ok()?))
}

impl Snapshot {
    /// The files that differ, or that only one of both has.
    pub(super) fn changed(&self, other: &Self) -> BTreeSet<PathBuf> {
        let differs = |path: &&PathBuf| self.files.get(*path) != other.files.get(*path);
        self.files.keys().chain(other.files.keys()).filter(differs).cloned().collect()
    }

    /// Takes the state of these files from another snapshot.
    pub(super) fn take(&mut self, paths: &BTreeSet<PathBuf>, other: &Self) {
        for path in paths {
            match other.files.get(path) {
                Some(digest) => self.files.insert(path.clone(), digest.clone()),
                None => self.files.remove(path),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FILES_MAX, Watch};
    use crate::plugin_kit::recipe::Recipe;

    fn write(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn watch(dir: &Path, recipe: &str) -> Watch {
        write(dir, "build.toml", recipe);
        let mut watch = Watch::new(dir);
        watch.follow(&Recipe::read(dir).unwrap());
        watch
    }

    /// The names of the files that changed since the snapshot.
    fn changed(watch: &Watch, dir: &Path, change: impl FnOnce()) -> Vec<String> {
        let before = watch.snapshot();
        change();
        let changed = before.changed(&watch.snapshot());
        changed.iter().map(|path| path.strip_prefix(dir).unwrap().display().to_string()).collect()
    }

    #[test]
    fn contents_count_and_times_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "src/a.rs", "one");
        let watch = watch(dir, "command = [\"true\"]\noutput = \"build/a.wasm\"\nwatch = [\"src\"]");
        assert_eq!(changed(&watch, dir, || write(dir, "src/a.rs", "two")), ["src/a.rs"]);
        assert!(changed(&watch, dir, || write(dir, "src/a.rs", "two")).is_empty());
        let replaced = changed(&watch, dir, || {
            write(dir, "src/a.rs.new", "two");
            std::fs::rename(dir.join("src/a.rs.new"), dir.join("src/a.rs")).unwrap();
        });
        assert!(replaced.is_empty(), "{replaced:?}");
        assert_eq!(changed(&watch, dir, || std::fs::remove_dir_all(dir.join("src")).unwrap()), ["src/a.rs"]);
        assert_eq!(changed(&watch, dir, || write(dir, "src/a.rs", "two")), ["src/a.rs"]);
        assert_eq!(changed(&watch, dir, || write(dir, "cases/a.toml", "")), ["cases/a.toml"]);
    }

    #[test]
    fn outputs_and_drafts_of_editors_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "src/a.rs", "one");
        let watch = watch(dir, "command = [\"true\"]\noutput = \"build/a.wasm\"\nwatch = [\".\"]");
        for path in [
            "build/a.wasm",
            "build/deps/a.o",
            "plugins/a.wasm",
            "target/x",
            ".cofferdam/data/lock",
            "node_modules/a/index.js",
            "src/.a.rs.swp",
            "src/a.rs~",
            "src/#a.rs#",
            "src/__pycache__/a.pyc",
        ] {
            let changed = changed(&watch, dir, || write(dir, path, "anything"));
            assert!(changed.is_empty(), "{path}: {changed:?}");
        }
        assert_eq!(changed(&watch, dir, || write(dir, "src/b.rs", "")), ["src/b.rs"]);
    }

    #[test]
    fn an_output_among_the_sources_is_left_out_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, "src/a.rs", "one");
        let watch = watch(dir, "command = [\"true\"]\noutput = \"src/a.wasm\"\nwatch = [\"src\"]");
        assert!(changed(&watch, dir, || write(dir, "src/a.wasm", "anything")).is_empty());
        assert_eq!(changed(&watch, dir, || write(dir, "src/a.rs", "two")), ["src/a.rs"]);
    }

    #[test]
    fn a_circle_of_links_and_too_many_files_end() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for number in 0..=FILES_MAX {
            write(dir, &format!("src/{number}"), "");
        }
        std::os::unix::fs::symlink(dir.join("src"), dir.join("src/circle")).unwrap();
        let watch = watch(dir, "command = [\"true\"]\noutput = \"build/a.wasm\"\nwatch = [\"src\"]");
        assert!(watch.snapshot().is_cut);
    }
}
