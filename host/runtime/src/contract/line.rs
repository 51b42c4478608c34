//! A line of the contract: all versions that one host links alike. The versions of a line differ in
//! their patch only (0.1.0, 0.1.1); from 1.0 on, in their minor version too. `docs/plugins/lines.md`
//! says what begins a new line.
//!
//! The component model compares types by their structure. So a function that is the same in two
//! lines is called with the same Rust types; only the version in the names of its interface
//! differs. A line brings types of its own only for what it has differently from the newest line.

use std::fmt;
use std::sync::OnceLock;

use wasmtime::component::{ComponentType, Lift};
use wit_parser::{Interface, PackageId, Resolve, SourceMap};

use crate::guest::exports::{InvokeTool, invoke_converted};
use crate::wire::Output;

const FILES: [(&str, &str); 19] = [
    ("catalog.wit", include_str!("../../../../wit/catalog.wit")),
    ("clock.wit", include_str!("../../../../wit/clock.wit")),
    ("config.wit", include_str!("../../../../wit/config.wit")),
    ("deferred-tools.wit", include_str!("../../../../wit/deferred-tools.wit")),
    ("hook.wit", include_str!("../../../../wit/hook.wit")),
    ("http-stream.wit", include_str!("../../../../wit/http-stream.wit")),
    ("http.wit", include_str!("../../../../wit/http.wit")),
    ("log.wit", include_str!("../../../../wit/log.wit")),
    ("model-panel.wit", include_str!("../../../../wit/model-panel.wit")),
    ("model.wit", include_str!("../../../../wit/model.wit")),
    ("provider.wit", include_str!("../../../../wit/provider.wit")),
    ("random.wit", include_str!("../../../../wit/random.wit")),
    ("request.wit", include_str!("../../../../wit/request.wit")),
    ("router.wit", include_str!("../../../../wit/router.wit")),
    ("scratch.wit", include_str!("../../../../wit/scratch.wit")),
    ("tool-call.wit", include_str!("../../../../wit/tool-call.wit")),
    ("tool.wit", include_str!("../../../../wit/tool.wit")),
    ("types.wit", include_str!("../../../../wit/types.wit")),
    ("worlds.wit", include_str!("../../../../wit/worlds.wit")),
];

/// The line of `wit/`, from which the types of [`crate::wire`] are generated.
static NEWEST: ContractLine = ContractLine::new("0.1.0", &FILES);

/// A line of the contract.
pub struct ContractLine {
    /// The newest version of the line.
    version: &'static str,
    files: &'static [(&'static str, &'static str)],
    parsed: OnceLock<Parsed>,
    /// Calls `tools.invoke`, where its output is another type than in the newest line.
    pub(crate) invoke_tool: Option<InvokeTool>,
}

struct Parsed {
    resolve: Resolve,
    package: PackageId,
}

impl ContractLine {
    /// The lines that this build serves, the newest first.
    pub const SERVED: &[&Self] = &[&NEWEST];
    /// The contract's package, without a version.
    pub const PACKAGE: &str = "cofferdam:plugin";
    /// The folder of a plugin's project that has the contract.
    pub const FOLDER: &str = "wit/deps/cofferdam-plugin";

    /// A line that differs from the newest one in nothing but its version. `files` are its files,
    /// each with its text.
    #[must_use]
    pub const fn new(version: &'static str, files: &'static [(&'static str, &'static str)]) -> Self {
        Self { version, files, parsed: OnceLock::new(), invoke_tool: None }
    }

    /// Changes the type of a tool's output to `O`. Answers are converted into [`Output`].
    #[must_use]
    pub const fn with_output<O>(mut self) -> Self
    where
        O: ComponentType + Lift + Into<Output> + Send + Sync + 'static,
    {
        self.invoke_tool = Some(invoke_converted::<O>);
        self
    }

    /// The line of `wit/`.
    #[must_use]
    pub fn newest() -> &'static Self {
        &NEWEST
    }

    /// The name: the part of the version that all versions of the line have in common.
    #[must_use]
    pub fn name(&self) -> &'static str {
        line_of(self.version)
    }

    /// Name and version of the contract's package.
    #[must_use]
    pub fn package(&self) -> String {
        format!("{}@{}", Self::PACKAGE, self.version)
    }

    /// The name of an interface, as components import and export it.
    #[must_use]
    pub fn interface_name(&self, interface: &str) -> String {
        format!("{}/{interface}@{}", Self::PACKAGE, self.version)
    }

    /// The files, each with its text.
    #[must_use]
    pub fn files(&self) -> &'static [(&'static str, &'static str)] {
        self.files
    }

    pub(super) fn version(&self) -> &'static str {
        self.version
    }

    /// All packages and types of the line.
    pub(super) fn resolve(&self) -> &Resolve {
        &self.parsed().resolve
    }

    /// The interface of this name.
    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        let Parsed { resolve, package } = self.parsed();
        let id = resolve.packages.get(*package)?.interfaces.get(name)?;
        resolve.interfaces.get(*id)
    }

    #[expect(clippy::expect_used, reason = "the text is part of the program, and a test parses it")]
    fn parsed(&self) -> &Parsed {
        self.parsed.get_or_init(|| {
            let mut sources = SourceMap::new();
            for (name, text) in self.files {
                sources.push_str(name, *text);
            }
            let group = sources.parse().map_err(|(_, error)| error).expect("the contract parses");
            let mut resolve = Resolve::default();
            let package = resolve.push_group(group).expect("the contract resolves");
            Parsed { resolve, package }
        })
    }
}

impl fmt::Debug for ContractLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContractLine").field(&self.name()).finish()
    }
}

/// The name of the line that a version belongs to. A version before a release (`0.2.0-rc.1`) is a
/// line of its own: it is compatible with no other.
pub(super) fn line_of(version: &str) -> &str {
    let release = version.split_once('+').map_or(version, |(release, _)| release);
    if release.contains('-') {
        return release;
    }
    let shortened =
        if release.starts_with("0.") { release.rsplit_once('.') } else { release.split_once('.') };
    shortened.map_or(release, |(line, _)| line)
}

/// Whether `version` is a newer one of the same line.
pub(super) fn is_newer(version: &str, than: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let release = version.split_once('+').map_or(version, |(release, _)| release);
        release.split('.').map_while(|part| part.parse().ok()).collect()
    };
    numbers(version) > numbers(than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_contract_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".wit"))
            .collect();
        names.sort();
        assert_eq!(names, FILES.map(|(name, _)| name));
    }

    #[test]
    fn the_text_of_every_served_line_has_the_version_of_the_line() {
        for line in ContractLine::SERVED {
            let Parsed { resolve, package } = line.parsed();
            assert_eq!(resolve.packages[*package].name.to_string(), line.package());
            assert!(line.interface("generation").is_some());
            assert!(line.interface("telepathy").is_none());
        }
    }

    #[test]
    fn lines_are_served_under_different_names_the_newest_first() {
        let names: Vec<&str> = ContractLine::SERVED.iter().map(|line| line.name()).collect();
        let different: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len());
        assert_eq!(names.first(), Some(&ContractLine::newest().name()));
    }

    #[test]
    fn a_line_is_what_compatible_versions_have_in_common() {
        let lines =
            ["0.1.0", "0.1.12", "0.2.0", "1.0.0", "1.4.2", "12.0.1", "0.1.0+a.b", "0.2.0-rc.1"].map(line_of);
        assert_eq!(lines, ["0.1", "0.1", "0.2", "1", "1", "12", "0.1", "0.2.0-rc.1"]);
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_newer("0.1.10", "0.1.9") && is_newer("1.2.0", "1.1.7"));
        assert!(!is_newer("0.1.9", "0.1.10") && !is_newer("0.1.0", "0.1.0") && !is_newer("0.1.0+b", "0.1.0"));
    }
}
