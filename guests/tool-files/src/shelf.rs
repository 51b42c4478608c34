//! The files of a request: one stored value per file, and one list of the names.
//!
//! Calls of one turn run at the same time. Because each file is a value of its own, calls for
//! different files do not interfere. Two simultaneous calls may lose a name from the list. The file
//! can still be read, and the next write to it adds the name again.

use cofferdam_guest_kit::bindings::tools::ToolError;
use cofferdam_guest_kit::fnv_1a;
use cofferdam_guest_kit::server_tool::{Fields, relative_path};

/// The largest number of files in one request.
pub(crate) const FILES_MAX: usize = 64;
/// The longest file, in bytes. All files together may use 1 MiB, the limit of the host's storage.
pub(crate) const FILE_BYTES_MAX: usize = 512 * 1024;
/// The longest name, in bytes: the host's limit for keys minus the prefix.
const NAME_BYTES_MAX: usize = 120;
const LIST: &str = "list";

/// Storage that keeps bytes between the calls of a request.
pub(crate) trait Keep {
    /// The value stored under this key.
    fn get(&self, key: &str) -> Option<Vec<u8>>;
    /// Stores a value.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Full>;
}

/// Why a value was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// There is no room left.
    Bytes,
    /// The key is not valid.
    Key,
}

/// The files of one request.
pub(crate) struct Shelf<K> {
    keep: K,
}

impl<K: Keep> Shelf<K> {
    pub(crate) fn new(keep: K) -> Self {
        Self { keep }
    }

    /// The names of the files, in the order in which they were created.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.keep.get(LIST).and_then(|list| String::from_utf8(list).ok()).unwrap_or_default();
        list.lines().map(str::to_owned).collect()
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        String::from_utf8(self.keep.get(&key(name))?).ok()
    }

    /// Writes a whole file and adds its name to the list if it is new.
    ///
    /// # Errors
    ///
    /// When there are too many files, or they are too large.
    pub(crate) fn write(&mut self, name: &str, content: &str) -> Result<(), ToolError> {
        if content.len() > FILE_BYTES_MAX {
            return Err(ToolError::Failed(format!("A file has at most {FILE_BYTES_MAX} bytes.")));
        }
        let mut names = self.names();
        let is_new = !names.iter().any(|known| known == name);
        if is_new && names.len() >= FILES_MAX {
            return Err(ToolError::Failed(format!("A request has at most {FILES_MAX} files.")));
        }
        let full = |_| ToolError::Failed("The files of a request have at most 1 MiB together.".to_owned());
        self.keep.set(&key(name), content.as_bytes()).map_err(full)?;
        if is_new {
            names.push(name.to_owned());
            self.keep.set(LIST, names.join("\n").as_bytes()).map_err(full)?;
        }
        Ok(())
    }
}

/// The file name in the arguments.
pub(crate) fn name_of(arguments: &Fields) -> Result<&str, ToolError> {
    let name = arguments.text("filename")?.unwrap_or_default();
    relative_path(name, NAME_BYTES_MAX).map_err(|rule| arguments.wrong("filename", &rule))?;
    Ok(name)
}

/// The id of a file: a hash of its name, the same in every call.
pub(crate) fn id_of(name: &str) -> String {
    format!("file_{:016x}", fnv_1a(name.bytes()))
}

fn key(name: &str) -> String {
    format!("file:{name}")
}
