//! Files that appear at their path at once, with all of their content.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A new file beside its path, under a name of its own. It is removed again unless it is put in place.
/// Symbolic links at both names are not followed.
#[derive(Debug)]
pub struct Draft {
    file: File,
    draft: PathBuf,
    path: PathBuf,
}

impl Draft {
    /// Writes a draft of the file at `path`. The umask of the process applies to `mode`.
    ///
    /// # Errors
    /// The system refuses it, or gives no random name.
    pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<Self> {
        let random = getrandom::u64().map_err(io::Error::other)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{random:016x}.new"));
        let draft = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
        let mut draft = Self { file, draft, path: path.to_owned() };
        draft.file.write_all(bytes)?;
        Ok(draft)
    }

    /// Sets the permissions, whatever the umask is.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    /// Puts the file in place, durably. A file or link that is there is replaced.
    ///
    /// # Errors
    /// The system refuses it. The path then has its old file or the new one.
    pub fn replace(self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.draft, &self.path)?;
        sync_folder_of(&self.path)
    }

    /// Puts the file in place, durably, unless there is one.
    ///
    /// # Errors
    /// There is a file, or the system refuses it.
    pub fn create(self) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::hard_link(&self.draft, &self.path)?;
        let path = self.path.clone();
        drop(self);
        sync_folder_of(&path)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is gone after a rename.
        std::fs::remove_file(&self.draft).unwrap_or_default();
    }
}

/// Whether a file has the name of a draft that was left behind, and the name of the file that it is of.
#[must_use]
pub fn drafted(name: &str) -> Option<&str> {
    let (file, random) = name.strip_suffix(".new")?.rsplit_once('.')?;
    let is_random = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_random.then_some(file)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        std::fs::write(&other, "kept").unwrap();
        symlink(&other, &path).unwrap();
        for text in ["one", "two"] {
            let draft = Draft::write(&path, text.as_bytes(), 0o600).unwrap();
            draft.set_mode(0o640).unwrap();
            draft.replace().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o640);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
        assert_eq!(names(folder.path()), ["file", "other"]);
    }

    #[test]
    fn a_file_is_created_once_and_a_draft_that_is_not_used_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (first, second) =
            (Draft::write(&path, b"one", 0o600).unwrap(), Draft::write(&path, b"two", 0o600).unwrap());
        let drafts = names(folder.path());
        assert_eq!(drafts.iter().map(|name| drafted(name)).collect::<Vec<_>>(), [Some("file"); 2]);
        first.create().unwrap();
        assert_eq!(second.create().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(Draft::write(&path, b"three", 0o600).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn only_names_of_drafts_are_taken_for_drafts() {
        for name in ["file", "file.new", "file.x.new", "file.0123456789abcdef", "0123456789abcdef.new"] {
            assert_eq!(drafted(name), None, "{name}");
        }
    }
}
