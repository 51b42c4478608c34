//! `plugins.lock`: which plugins are installed, and the digests of their files.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_runtime::Inspection;
use serde::{Deserialize, Serialize};

/// The format of the file.
const FORMAT: u32 = 1;
/// Number of installed plugins.
const PLUGINS_MAX: usize = 1_000;
/// Length limit of the file, in bytes.
pub(super) const LOCK_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The beginning of the file.
const HEAD: &str = "# Written by `cofferdam plugin install` and the commands like it. A start refuses plugins \
                    whose files have\n# other digests.\n";

/// The content of `plugins.lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PluginLock {
    format: u32,
    #[serde(default)]
    pub(crate) plugins: BTreeMap<String, LockedPlugin>,
}

/// One installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockedPlugin {
    pub(crate) kind: String,
    /// The version that serves.
    pub(crate) current: InstalledVersion,
    /// The version that `plugin rollback` brings back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<InstalledVersion>,
    /// An update that asks for more than `current` and waits for `plugin grant --accept`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) held: Option<InstalledVersion>,
}

/// One version of an installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstalledVersion {
    pub(crate) version: String,
    /// The file that it was installed from.
    pub(crate) origin: String,
    pub(crate) installed_at: String,
    pub(crate) manifest_sha256: String,
    pub(crate) component_sha256: String,
    /// What its manifest asks for.
    pub(crate) asks: BTreeSet<String>,
    /// What it was granted when it was installed or accepted.
    pub(crate) granted: BTreeSet<String>,
}

impl InstalledVersion {
    pub(crate) fn has_bytes_of(&self, other: &Self) -> bool {
        self.manifest_sha256 == other.manifest_sha256 && self.component_sha256 == other.component_sha256
    }

    /// The SHA-256 of the digests of manifest and component.
    pub(crate) fn digest(&self) -> String {
        Inspection::digest_of(format!("{}{}", self.manifest_sha256, self.component_sha256).as_bytes())
    }
}

impl LockedPlugin {
    /// All versions whose files are kept.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &InstalledVersion> {
        [Some(&self.current), self.previous.as_ref(), self.held.as_ref()].into_iter().flatten()
    }
}

impl Default for PluginLock {
    fn default() -> Self {
        Self { format: FORMAT, plugins: BTreeMap::new() }
    }
}

/// A line of the file, counted from 1, and what is wrong with it.
type LockProblem = (usize, String);

impl PluginLock {
    /// Parses the file. An unknown key is an error: it could be a rule that this version does not
    /// know.
    pub(super) fn parse(text: &str) -> Result<Self, LockProblem> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let placed = |error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            (line, error.message().lines().next().unwrap_or_default().to_owned())
        };
        let Format { format } = toml::from_str(text).map_err(placed)?;
        if format != FORMAT {
            return Err((1, format!("has the format {format}, this program reads {FORMAT}")));
        }
        let lock: Self = toml::from_str(text).map_err(placed)?;
        lock.check().map_err(|message| (1, message))?;
        Ok(lock)
    }

    /// The text of the file.
    pub(super) fn text(&self) -> Result<String, String> {
        self.check()?;
        let text = toml::to_string(self).map_err(|error| error.to_string())?;
        let text = format!("{HEAD}{text}");
        if text.len() > LOCK_BYTES_MAX {
            return Err(format!("would have {} bytes, at most {LOCK_BYTES_MAX} are allowed", text.len()));
        }
        Ok(text)
    }

    /// Names and digests become names of files.
    fn check(&self) -> Result<(), String> {
        if self.plugins.len() > PLUGINS_MAX {
            return Err(format!("has more than {PLUGINS_MAX} plugins (the limit)"));
        }
        let is_name = |name: &str| {
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
        };
        for (name, plugin) in &self.plugins {
            if !is_name(name) {
                return Err(format!("{name:?} is not the name of a plugin"));
            }
            let digests = plugin.versions().flat_map(|one| [&one.manifest_sha256, &one.component_sha256]);
            if let Some(digest) = digests.into_iter().find(|digest| !is_digest(digest)) {
                return Err(format!("{digest:?} of plugin {name} is not 64 lower-case hexadecimal digits"));
            }
        }
        Ok(())
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> PluginLock {
        let version = InstalledVersion {
            version: "0.1.0".to_owned(),
            origin: "dice.wasm".to_owned(),
            installed_at: "2026-01-02T03:04:05.678Z".to_owned(),
            manifest_sha256: "0".repeat(64),
            component_sha256: "a".repeat(64),
            asks: ["import random".to_owned()].into(),
            granted: BTreeSet::new(),
        };
        let held = Some(InstalledVersion { version: "0.2.0".to_owned(), ..version.clone() });
        let plugin = LockedPlugin { kind: "tool".to_owned(), current: version, previous: None, held };
        PluginLock { plugins: [("dice".to_owned(), plugin)].into(), ..PluginLock::default() }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for lock in [lock(), PluginLock::default()] {
            assert_eq!(PluginLock::parse(&lock.text().unwrap()), Ok(lock));
        }
    }

    #[test]
    fn a_lock_with_anything_else_is_refused_with_its_line() {
        let good = lock().text().unwrap();
        for (from, to, says) in [
            ("format = 1", "format = 2", "has the format 2, this program reads 1"),
            ("kind = ", "signer = \"x\"\nkind = ", "unknown field `signer`"),
            ("plugins.dice", "plugins.\"../dice\"", "is not the name of a plugin"),
            (&"a".repeat(64), "../../x", "is not 64 lower-case hexadecimal digits"),
            ("format = 1", "format", "line"),
        ] {
            let text = good.replace(from, to);
            assert_ne!(text, good, "{from}");
            let (line, message) = PluginLock::parse(&text).unwrap_err();
            assert!(line > 0 && (message.contains(says) || says == "line"), "{line}: {message}");
        }
    }
}
