//! Simulates the disk after a power failure. The shim's record is played back up to some moment;
//! what was not synced by then is kept or lost as a real disk might do.
//!
//! A file's content is durable as it was when its last completed sync began. Names are different.
//! Strictly, a name is durable when its folder was synced. Journaling file systems also keep the
//! name of a new file that was synced itself, and write changes of names in order and earlier than
//! required. See [`Of`].

use super::random::Random;
use super::record::{Entry, Kind, Record};
use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tempfile::TempDir;

pub const PAGE: usize = 4096;

/// Identifies a file or folder over its whole life, since inode numbers are reused.
type Id = u64;

#[derive(Clone, Default, PartialEq)]
struct Content {
    pages: BTreeMap<u64, Rc<[u8; PAGE]>>,
    length: u64,
}

impl Content {
    fn write(&mut self, offset: u64, mut data: &[u8]) {
        let mut at = offset;
        while !data.is_empty() {
            let start = (at % PAGE as u64) as usize;
            let (part, rest) = data.split_at(data.len().min(PAGE - start));
            let page = self.pages.entry(at / PAGE as u64).or_insert_with(|| Rc::new([0; PAGE]));
            Rc::make_mut(page)[start..start + part.len()].copy_from_slice(part);
            at += part.len() as u64;
            data = rest;
        }
        self.length = self.length.max(at);
    }

    /// Pages of zeros are left out, so holes stay holes.
    fn append(&mut self, page: &[u8]) {
        let at = self.length;
        if page.iter().any(|byte| *byte != 0) {
            self.write(at, page);
        }
        self.length = at + page.len() as u64;
    }

    fn truncate(&mut self, length: u64) {
        self.pages.split_off(&length.div_ceil(PAGE as u64));
        if let Some(page) = self.pages.get_mut(&(length / PAGE as u64)) {
            Rc::make_mut(page)[(length % PAGE as u64) as usize..].fill(0);
        }
        self.length = length;
    }

    /// A mix of both contents: each page and the length are taken from one of them at random.
    fn torn(&self, newer: &Self, random: &mut Random) -> Self {
        let mut torn = self.clone();
        if random.below(2) == 0 {
            torn.truncate(newer.length);
        }
        for (number, page) in &newer.pages {
            if self.pages.get(number) != Some(page) && random.below(2) == 0 {
                torn.pages.insert(*number, Rc::clone(page));
            }
        }
        torn.truncate(torn.length);
        torn
    }

    fn save(&self, path: &Path) {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        file.set_len(self.length).unwrap();
        for (number, page) in &self.pages {
            let at = number * PAGE as u64;
            let count = (self.length.saturating_sub(at) as usize).min(PAGE);
            file.write_all_at(&page[..count], at).unwrap();
        }
    }

    fn load(path: &Path) -> Self {
        let mut content = Self::default();
        let mut file = File::open(path).unwrap();
        let mut block = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut block).unwrap();
            if count == 0 {
                return content;
            }
            block[..count].chunks(PAGE).for_each(|page| content.append(page));
        }
    }
}

#[derive(Default)]
struct Contents {
    now: Content,
    durable: Content,
}

/// The names in one folder.
type Names = Rc<BTreeMap<String, (Id, bool)>>;
/// The names in all folders.
type Tree = HashMap<Id, Names>;

enum Syncing {
    File(Content),
    Folder(Names),
}

/// The state of the disk at one moment of a record.
pub struct Disk {
    root: PathBuf,
    root_id: Option<Id>,
    ids: HashMap<u64, Id>,
    last_id: Id,
    files: HashMap<Id, Contents>,
    now: Tree,
    durable: Tree,
    /// The durable names, and the names of new files that were synced themselves.
    synced: Tree,
    /// The names after each change since the last completed sync.
    since_sync: Vec<Tree>,
    syncing: HashMap<(u64, Id), Syncing>,
}

/// The guarantee for names after a power failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Of {
    /// Only the names that a sync of their folder has made durable.
    Strict,
    /// Also the name under which a new file was synced, as ext4, XFS and btrfs keep it.
    Synced,
    /// All changes in their order, up to some moment after the last sync.
    Ordered,
    Everything,
}

impl Disk {
    /// The disk before the first entry: the folder as it is now, all of it durable.
    pub fn of(root: &Path) -> Self {
        let root = root.parent().unwrap().canonicalize().unwrap().join(root.file_name().unwrap());
        let mut disk = Self {
            root: root.clone(),
            root_id: None,
            ids: HashMap::new(),
            last_id: 0,
            files: HashMap::new(),
            now: Tree::new(),
            durable: Tree::new(),
            synced: Tree::new(),
            since_sync: Vec::new(),
            syncing: HashMap::new(),
        };
        if root.exists() {
            disk.root_id = Some(disk.scan(&root));
        }
        disk
    }

    fn scan(&mut self, folder: &Path) -> Id {
        let id = self.known(std::fs::metadata(folder).unwrap().ino());
        let mut names = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let name = entry.file_name().into_string().unwrap();
            if kind.is_dir() {
                names.insert(name, (self.scan(&entry.path()), true));
            } else if kind.is_file() {
                let id = self.known(entry.metadata().unwrap().ino());
                let content = Content::load(&entry.path());
                self.files.insert(id, Contents { now: content.clone(), durable: content });
                names.insert(name, (id, false));
            }
        }
        let names = Rc::new(names);
        self.now.insert(id, Rc::clone(&names));
        self.synced.insert(id, Rc::clone(&names));
        self.durable.insert(id, names);
        id
    }

    /// Applies further entries.
    pub fn play(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.apply(entry);
        }
    }

    fn known(&mut self, ino: u64) -> Id {
        let next = self.last_id + 1;
        let id = *self.ids.entry(ino).or_insert(next);
        self.last_id = self.last_id.max(id);
        id
    }

    /// The id of a new file or folder. If the inode number still belongs to one with a name, that
    /// one's id is used.
    fn created(&mut self, ino: u64) -> Id {
        let linked =
            |tree: &Tree, id: Id| tree.values().any(|names| names.values().any(|(other, _)| *other == id));
        if self.ids.get(&ino).is_some_and(|id| !linked(&self.now, *id)) {
            self.ids.remove(&ino);
        }
        self.known(ino)
    }

    fn apply(&mut self, entry: &Entry) {
        match entry.kind {
            Kind::Create => {
                let id = self.created(entry.ino);
                self.files.entry(id).or_default();
                self.link(&entry.path, id, false);
            }
            Kind::MakeFolder => {
                let id = self.created(entry.ino);
                self.now.entry(id).or_default();
                self.synced.entry(id).or_default();
                self.durable.entry(id).or_default();
                self.link(&entry.path, id, true);
            }
            Kind::Open => self.found(&entry.path, entry.ino),
            Kind::Rename => {
                let old = PathBuf::from(String::from_utf8(entry.data.clone()).unwrap());
                // No state of the disk has neither name: a rename is one change.
                if let Some((id, is_folder)) = self.unlink(&old) {
                    self.link(&entry.path, id, is_folder);
                }
            }
            Kind::Remove => {
                self.unlink(&entry.path);
                self.changed();
            }
            Kind::Truncate => self.file(entry).now.truncate(entry.offset),
            Kind::Write => self.file(entry).now.write(entry.offset, &entry.data),
            Kind::Sync => {
                let content = self.file(entry).now.clone();
                let id = self.known(entry.ino);
                self.syncing.insert((entry.thread, id), Syncing::File(content));
            }
            Kind::SyncFolder => {
                let names = self.listed(entry);
                let id = self.known(entry.ino);
                self.syncing.insert((entry.thread, id), Syncing::Folder(names));
            }
            Kind::Synced => self.end_sync(entry),
            Kind::Answer | Kind::Sent | Kind::Fault => {}
        }
    }

    fn file(&mut self, entry: &Entry) -> &mut Contents {
        let id =
            *self.ids.get(&entry.ino).unwrap_or_else(|| panic!("{} was never made", entry.path.display()));
        self.files.get_mut(&id).unwrap()
    }

    fn end_sync(&mut self, entry: &Entry) {
        let id = self.known(entry.ino);
        let syncing = self.syncing.remove(&(entry.thread, id)).expect("a sync that did not begin ends");
        if entry.result != 0 {
            return;
        }
        match syncing {
            Syncing::File(content) => {
                self.files.get_mut(&id).unwrap().durable = content;
                self.keep_name(&entry.path, id);
            }
            Syncing::Folder(names) => {
                self.synced.insert(id, Rc::clone(&names));
                self.durable.insert(id, names);
            }
        }
        self.since_sync.clear();
    }

    /// Records the name under which a new file was synced. A name that another file had before is
    /// not replaced, because a sync of a file does not make a rename durable.
    fn keep_name(&mut self, path: &Path, id: Id) {
        let Some(folder) = path.parent().and_then(|folder| self.folder(folder)) else { return };
        let name = path.file_name().unwrap().to_str().unwrap();
        if self.now[&folder].get(name) == Some(&(id, false)) {
            let names = Rc::make_mut(self.synced.entry(folder).or_default());
            names.entry(name.to_owned()).or_insert((id, false));
        }
    }

    /// The listing of a folder. It also reveals renames that did not go through the C library.
    fn listed(&mut self, entry: &Entry) -> Names {
        let mut names = BTreeMap::new();
        for line in std::str::from_utf8(&entry.data).unwrap().lines() {
            let mut words = line.splitn(3, ' ');
            let (ino, kind, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let ino: u64 = ino.parse().unwrap();
            let Some(id) = self.ids.get(&ino).copied() else { continue };
            if kind == "f" && self.files.contains_key(&id) {
                self.found(&entry.path.join(name), ino);
            }
            names.insert(name.to_owned(), (id, kind == "d"));
        }
        Rc::new(names)
    }

    /// Records that a file has this name.
    fn found(&mut self, path: &Path, ino: u64) {
        let Some(id) = self.ids.get(&ino).copied() else { return };
        let Some(folder) = path.parent().and_then(|folder| self.folder(folder)) else { return };
        let name = path.file_name().unwrap().to_str().unwrap();
        let names = self.now.get_mut(&folder).unwrap();
        if !self.files.contains_key(&id) || names.get(name).is_some_and(|(known, _)| *known == id) {
            return;
        }
        let names = Rc::make_mut(names);
        names.retain(|_, (known, _)| *known != id);
        names.insert(name.to_owned(), (id, false));
        self.changed();
    }

    fn folder(&self, path: &Path) -> Option<Id> {
        let below = path.strip_prefix(&self.root).ok()?;
        below.components().try_fold(self.root_id?, |folder, part| {
            let (id, is_folder) = *self.now.get(&folder)?.get(part.as_os_str().to_str()?)?;
            is_folder.then_some(id)
        })
    }

    fn link(&mut self, path: &Path, id: Id, is_folder: bool) {
        if path == self.root {
            self.root_id = Some(id);
            return;
        }
        let folder = self.folder(path.parent().unwrap()).unwrap_or_else(|| panic!("no folder for {path:?}"));
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Rc::make_mut(self.now.get_mut(&folder).unwrap()).insert(name, (id, is_folder));
        self.changed();
    }

    fn unlink(&mut self, path: &Path) -> Option<(Id, bool)> {
        let folder = self.folder(path.parent()?)?;
        let name = path.file_name()?.to_str()?;
        Rc::make_mut(self.now.get_mut(&folder)?).remove(name)
    }

    fn changed(&mut self) {
        self.since_sync.push(self.now.clone());
    }

    /// Writes the disk's state to a folder. With `torn`, it also contains random parts of what was
    /// not synced.
    pub fn save(&self, target: &Path, of: Of, torn: Option<&mut Random>, choice: &mut Random) {
        let ordered = choice.below(self.since_sync.len() as u64 + 1) as usize;
        let tree = match of {
            Of::Strict => &self.durable,
            Of::Synced => &self.synced,
            // An index past the last change means the current names.
            Of::Ordered => self.since_sync.get(ordered).unwrap_or(&self.now),
            Of::Everything => &self.now,
        };
        let mut save = Save { disk: self, tree, all: of == Of::Everything, torn };
        match self.root_id {
            Some(root) => save.folder(target, root),
            None => save.make(target),
        }
    }
}

struct Save<'d, 'r> {
    disk: &'d Disk,
    tree: &'d Tree,
    all: bool,
    torn: Option<&'r mut Random>,
}

impl Save<'_, '_> {
    fn make(&self, target: &Path) {
        DirBuilder::new().mode(0o700).create(target).unwrap();
    }

    fn folder(&mut self, target: &Path, id: Id) {
        self.make(target);
        let Some(names) = self.tree.get(&id) else { return };
        for (name, (id, is_folder)) in names.iter() {
            let path = target.join(name);
            if *is_folder {
                self.folder(&path, *id);
                continue;
            }
            let contents = &self.disk.files[id];
            let content = match &mut self.torn {
                _ if self.all => contents.now.clone(),
                Some(random) => contents.durable.torn(&contents.now, random),
                None => contents.durable.clone(),
            };
            content.save(&path);
        }
    }
}

/// A temporary folder for copies that are opened once. It is in memory if possible, because syncs
/// on a disk are slow and the copies are not kept.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Copies a folder and keeps holes.
pub fn copy(from: &Path, to: &Path) {
    Disk::of(from).save(to, Of::Everything, None, &mut Random::new(0));
}

/// The first difference between two folders, ignoring sockets; `None` if they contain the same
/// files.
pub fn difference(one: &Path, other: &Path) -> Option<String> {
    let names = |folder: &Path| -> BTreeMap<String, bool> {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let kept = entries.filter(|entry| {
            let kind = entry.file_type().unwrap();
            kind.is_dir() || kind.is_file()
        });
        kept.map(|entry| (entry.file_name().into_string().unwrap(), entry.file_type().unwrap().is_dir()))
            .collect()
    };
    let (ours, theirs) = (names(one), names(other));
    if ours != theirs {
        return Some(format!("{}: {:?} and {:?}", one.display(), ours.keys(), theirs.keys()));
    }
    ours.into_iter().find_map(|(name, is_folder)| {
        let (one, other) = (one.join(&name), other.join(&name));
        if is_folder {
            return difference(&one, &other);
        }
        (Content::load(&one) != Content::load(&other)).then(|| one.display().to_string())
    })
}

/// Checks that playing back the whole record gives the folder as it is, so that no change is
/// missing in the record.
pub fn assert_complete(before: Disk, record: &Record) {
    let mut disk = before;
    disk.play(&record.entries);
    let folder = tempfile::tempdir().unwrap();
    let played = folder.path().join("played");
    disk.save(&played, Of::Everything, None, &mut Random::new(0));
    assert_eq!(difference(&played, &record.root), None, "the record misses something");
}
