//! The files of a request: each under its name, and one list of the names.
//!
//! Calls of one turn run side by side. Each file is a value of its own, so that calls about different files do
//! not disturb each other; a name that two calls at the same moment keep out of the list comes back with the next
//! write to its file, and can be read all the time.

use cofferdam_toolbox::bindings::exports::cofferdam::plugin::tools::ToolError;
use cofferdam_toolbox::{Fields, relative_path};

/// Files of one request.
pub(crate) const FILES_MAX: usize = 64;
/// The longest file, in bytes; all together have the MiB of the host.
pub(crate) const FILE_BYTES_MAX: usize = 512 * 1024;
/// The longest name, in bytes: a key of the host's less the prefix.
const NAME_BYTES_MAX: usize = 120;
const LIST: &str = "list";

/// Bytes that outlive a call.
pub(crate) trait Keep {
    /// What is kept under this key.
    fn get(&self, key: &str) -> Option<Vec<u8>>;
    /// Keeps these bytes.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Full>;
}

/// Why bytes were not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// There is no room.
    Bytes,
    /// The key is none.
    Key,
}

/// The files.
pub(crate) struct Shelf<K> {
    keep: K,
}

impl<K: Keep> Shelf<K> {
    pub(crate) fn new(keep: K) -> Self {
        Self { keep }
    }

    /// Names of files, in the order in which they were made.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.keep.get(LIST).and_then(|list| String::from_utf8(list).ok()).unwrap_or_default();
        list.lines().map(str::to_owned).collect()
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        String::from_utf8(self.keep.get(&key(name))?).ok()
    }

    /// Writes a whole file, and its name into the list if it is not there.
    ///
    /// # Errors
    ///
    /// There are too many files, or too much in them: nothing was written.
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

/// The file that the arguments name.
pub(crate) fn name_of(arguments: &Fields) -> Result<&str, ToolError> {
    let name = arguments.text("filename")?.unwrap_or_default();
    relative_path(name, NAME_BYTES_MAX).map_err(|rule| arguments.wrong("filename", &rule))?;
    Ok(name)
}

/// A file's id: its name as a number, the same in every call.
pub(crate) fn id_of(name: &str) -> String {
    // FNV-1a, 64 bits.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("file_{hash:016x}")
}

fn key(name: &str) -> String {
    format!("file:{name}")
}
