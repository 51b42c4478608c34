//! The contract that this host was built with: the text of `wit/`, parsed once.

use std::sync::OnceLock;

use wit_parser::{Interface, PackageId, Resolve, SourceMap};

/// Namespace and name of the contract's package.
pub(super) const NAMESPACE: &str = "cofferdam";
pub(super) const NAME: &str = "plugin";

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

/// The files of the contract, each with its text.
#[must_use]
pub fn contract_files() -> &'static [(&'static str, &'static str)] {
    &FILES
}

struct Own {
    resolve: Resolve,
    package: PackageId,
}

/// The parsed contract. The bindings were generated from the same text, so parsing cannot fail in a
/// host that was built.
#[expect(clippy::expect_used, reason = "the bindings were generated from the same text")]
fn own() -> &'static Own {
    static OWN: OnceLock<Own> = OnceLock::new();
    OWN.get_or_init(|| {
        let mut sources = SourceMap::new();
        for (name, text) in FILES {
            sources.push_str(name, text);
        }
        let group = sources.parse().map_err(|(_, error)| error).expect("wit/ parses");
        let mut resolve = Resolve::default();
        let package = resolve.push_group(group).expect("wit/ resolves");
        Own { resolve, package }
    })
}

/// All packages and types of the contract.
pub(super) fn resolve() -> &'static Resolve {
    &own().resolve
}

/// The contract's interface of this name.
pub(super) fn interface(name: &str) -> Option<&'static Interface> {
    let own = own();
    let id = own.resolve.packages.get(own.package)?.interfaces.get(name)?;
    own.resolve.interfaces.get(*id)
}

/// The version of the contract.
pub(super) fn version() -> (u64, u64, u64) {
    let own = own();
    let version = own.resolve.packages.get(own.package).and_then(|package| package.name.version.as_ref());
    version.map_or((0, 0, 0), |version| (version.major, version.minor, version.patch))
}

/// The name of the contract's package with its version.
#[must_use]
pub fn package_name() -> String {
    let (major, minor, patch) = version();
    format!("{NAMESPACE}:{NAME}@{major}.{minor}.{patch}")
}

/// The name of one of the contract's interfaces, as a world imports it.
pub(super) fn interface_name(interface: &str) -> String {
    let (major, minor, patch) = version();
    format!("{NAMESPACE}:{NAME}/{interface}@{major}.{minor}.{patch}")
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
            .collect();
        names.sort();
        assert_eq!(names, FILES.map(|(name, _)| name));
    }

    #[test]
    fn the_contract_has_its_version_and_interfaces() {
        assert_eq!(version(), (0, 1, 0));
        assert!(interface("generation").is_some());
        assert!(interface("telepathy").is_none());
    }
}
